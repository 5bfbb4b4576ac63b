//! Lowers loops: the carried values, the condition, and the count that `max` needs.

use super::{
    Lowering,
    draft::{GraphDraft, NameTarget, own, port},
    expression::{Allowed, Take, TaskInputs},
    order,
};
use crate::syntax::step::{Repeat, StepDecl};
use onceflow_core::model::{Endpoint, Graph, Module, Port, Type, graph::ModuleKind};

/// The count under the name that the steps inside use; from 0, as in addresses.
const ITERATION: &str = "iteration";

/// The count of the next iteration: an output that is hidden from users.
const NEXT: &str = "iteration-next";

/// The output that is true if another iteration follows.
const AGAIN: &str = "while";

impl Lowering<'_> {
    pub(super) fn repeat(
        &mut self,
        step: &StepDecl,
        repeat: &Repeat,
        steps: &[StepDecl],
        name: &str,
    ) -> Option<Vec<Port>> {
        let mut frame = GraphDraft::default();
        let mut sources = Vec::new();
        for (key, text) in &repeat.carry {
            self.name_is_free(&key.name, key.span);
            let made = format!("{name}-carry-{}", key.name);
            let Some((from, ty)) = self.value(text, 0..text.text.len(), &made, None) else { continue };
            frame.graph.inputs.push(Port::new(key.name.clone(), ty.clone()));
            frame.names.insert(key.name.clone(), NameTarget::Variable(ty));
            sources.push((key.name.clone(), from, self.origin(text.span)));
        }
        let counts = repeat.max.is_some() || order::mentions(step).contains(ITERATION);
        if counts {
            sources.push(self.count(&mut frame, name, step));
        }
        self.frames.open(frame);
        self.steps(steps);
        let ports = self.gives(&step.gives, "out");
        let complete = ports.len() == step.gives.len();
        let given = self.given();
        self.frames.top().names.insert("out".into(), NameTarget::Given(given));
        self.carried(repeat, &ports, complete);
        self.again(repeat, counts);
        let body = self.frames.close(name);
        let origin = self.origin(step.span);
        let top = self.frames.top();
        let mut carried: Vec<_> = repeat.carry.iter().map(|(key, _)| (key.name.clone(), key.name.clone())).collect();
        if counts {
            carried.push((NEXT.into(), ITERATION.into()));
        }
        for (input, from, origin) in sources {
            top.connect(from, port(name, input), origin);
        }
        let kind = ModuleKind::Loop { body, carried, condition: AGAIN.into() };
        top.add(Module { name: name.to_owned(), kind, origin: Some(origin), attempt: step.attempt });
        complete.then_some(ports)
    }

    /// Adds the count, which begins with 0.
    fn count(
        &mut self,
        frame: &mut GraphDraft,
        name: &str,
        step: &StepDecl,
    ) -> (String, Endpoint, onceflow_core::model::SourceLocation) {
        frame.graph.inputs.push(Port::new(ITERATION, Type::Int));
        frame.names.insert(ITERATION.into(), NameTarget::Variable(Type::Int));
        let origin = self.origin(step.span);
        let first = format!("{name}-{ITERATION}");
        let zero = onceflow_core::payload::Payload::inline([0]);
        let kind = ModuleKind::Constant(Port::new("value", Type::Int), zero);
        self.frames.top().add(Module { name: first.clone(), kind, origin: Some(origin.clone()), attempt: false });
        (ITERATION.into(), port(&first, "value"), origin)
    }

    /// Returns the outputs of the innermost graph, with their sources.
    fn given(&mut self) -> Vec<(String, Endpoint, Type)> {
        let Graph { outputs, connections, .. } = &self.frames.top().graph;
        let from = |name: &str| connections.iter().find(|connection| connection.to == own(name));
        let given = outputs.iter().filter_map(|port| {
            from(&port.name).map(|connection| (port.name.clone(), connection.from.clone(), port.ty.clone()))
        });
        given.collect()
    }

    /// Checks that every carried value is an output of the body, and of the same type.
    fn carried(&mut self, repeat: &Repeat, ports: &[Port], complete: bool) {
        let inputs = self.frames.top().graph.inputs.clone();
        for (key, _) in &repeat.carry {
            let Some(takes) = inputs.iter().find(|port| port.name == key.name) else { continue };
            match ports.iter().find(|port| port.name == key.name) {
                Some(gives) if !takes.ty.accepts(&gives.ty) => {
                    let message = format!(
                        "the loop carries `{}`, which begins as {}, but `out` gives {}",
                        key.name, takes.ty, gives.ty
                    );
                    self.say(key.span, "OF0131", message, "");
                }
                None if complete => {
                    let message = format!("the loop carries `{}`, but `out` does not give it", key.name);
                    let hint = format!("`out: {{ {}: … }}` is what the next iteration begins with", key.name);
                    self.say(key.span, "OF0131", message, hint);
                }
                _ => {}
            }
        }
    }

    /// Adds the condition as an output of the innermost graph.
    fn again(&mut self, repeat: &Repeat, counts: bool) {
        let origin = self.origin(repeat.span);
        let count = Take { path: vec![ITERATION.into()], ty: Type::Int, from: own(ITERATION), origin: origin.clone() };
        if counts {
            let takes = TaskInputs { all: vec![count.clone()], secrets: vec![] };
            self.computed(NEXT, format!("{ITERATION} + 1"), &takes, &Type::Int, origin.clone());
            let top = self.frames.top();
            top.graph.outputs.push(Port::new(NEXT, Type::Int));
            top.connect(port(NEXT, "value"), own(NEXT), origin.clone());
        }
        let from = match (&repeat.again, repeat.max) {
            (Some(text), None) => self.condition(text, AGAIN, AGAIN),
            (text, Some(max)) => {
                let mut takes = TaskInputs::default();
                let mut source = format!("{ITERATION} + 1 < {max}");
                if let Some(text) = text {
                    let Some(bound) = self.bind(text, 0..text.text.len(), Allowed::default()) else { return };
                    if let Some(other) = bound.ty.clone().filter(|ty| !matches!(ty, Type::Bool | Type::Json)) {
                        self.say(text.span, "OF0125", format!("`while` is true or false, but this is {other}"), "");
                    }
                    takes = bound.takes;
                    source = format!("({}) && {source}", bound.source);
                }
                takes.add(count);
                self.computed(AGAIN, source, &takes, &Type::Bool, origin.clone());
                Some(port(AGAIN, "value"))
            }
            (None, None) => None,
        };
        let top = self.frames.top();
        top.graph.outputs.push(Port::new(AGAIN, Type::Bool));
        if let Some(from) = from {
            top.connect(from, own(AGAIN), origin);
        }
    }
}
