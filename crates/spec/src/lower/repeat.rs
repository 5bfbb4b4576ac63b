//! Lowers loops: the carried values, the condition, and the count that `max` needs.

use super::{
    Lowering,
    draft::{GraphDraft, NameTarget, own, port},
    order,
    references::Allowed,
    texts::{Take, TaskInputs},
};
use crate::syntax::step::{Repeat, StepDecl};
use onceflow_core::{
    model::{Endpoint, Graph, Module, Port, SourceLocation, Type, graph::ModuleKind},
    payload::Payload,
};

/// The count under the name that the steps inside use; from 0, as in addresses.
const ITERATION: &str = "iteration";

/// The count of the next iteration: an output that is hidden from users.
const NEXT: &str = "iteration-next";

/// The output that is true if another iteration follows.
const AGAIN: &str = "while";

/// A loop that is being lowered.
pub(super) struct LoopDraft<'l, 'a> {
    lowering: &'l mut Lowering<'a>,
    step: &'l StepDecl,
    repeat: &'l Repeat,
    /// The name of its module.
    name: &'l str,
    /// Its iterations are counted, because the condition or a step inside needs the count.
    counts: bool,
}

/// A value that a loop begins with: its name inside, its source, and the place where that is written.
type FirstValue = (String, Endpoint, SourceLocation);

impl<'l, 'a> LoopDraft<'l, 'a> {
    pub(super) fn new(lowering: &'l mut Lowering<'a>, step: &'l StepDecl, repeat: &'l Repeat, name: &'l str) -> Self {
        let counts = repeat.max.is_some() || order::mentions(step).contains(ITERATION);
        LoopDraft { lowering, step, repeat, name, counts }
    }

    /// Lowers the loop over these steps; returns the outputs of its module, or `None` after reporting a problem.
    pub(super) fn lower(mut self, steps: &[StepDecl]) -> Option<Vec<Port>> {
        let (step, repeat, name) = (self.step, self.repeat, self.name);
        let mut frame = GraphDraft::default();
        let sources = self.first_values(&mut frame);
        self.lowering.graphs.open(frame);
        self.lowering.steps(steps);
        let ports = self.lowering.gives(&step.gives, "out");
        let complete = ports.len() == step.gives.len();
        let given = self.given();
        self.lowering.graphs.top().names.insert("out".into(), NameTarget::Given(given));
        self.check_carried(&ports, complete);
        self.again();
        let body = self.lowering.graphs.close(name);
        let origin = self.lowering.reader.origin(step.span);
        let top = self.lowering.graphs.top();
        let mut carried: Vec<_> = repeat.carry.iter().map(|(key, _)| (key.name.clone(), key.name.clone())).collect();
        if self.counts {
            carried.push((NEXT.into(), ITERATION.into()));
        }
        for (input, from, origin) in sources {
            top.connect(from, port(name, input), origin);
        }
        let kind = ModuleKind::Loop { body, carried, condition: AGAIN.into() };
        top.add(Module { name: name.to_owned(), kind, origin: Some(origin), attempt: step.attempt });
        complete.then_some(ports)
    }

    /// Makes the carried values, and the count, inputs of the body; returns their sources.
    fn first_values(&mut self, frame: &mut GraphDraft) -> Vec<FirstValue> {
        let mut sources = Vec::new();
        for (key, text) in &self.repeat.carry {
            self.lowering.name_is_free(&key.name, key.span);
            let made = format!("{}-carry-{}", self.name, key.name);
            let Some((from, ty)) = self.lowering.value(text, 0..text.text.len(), &made, None) else { continue };
            frame.graph.inputs.push(Port::new(key.name.clone(), ty.clone()));
            frame.names.insert(key.name.clone(), NameTarget::Variable(ty));
            sources.push((key.name.clone(), from, self.lowering.reader.origin(text.span)));
        }
        if self.counts {
            sources.push(self.count(frame));
        }
        sources
    }

    /// Adds the count, which begins with 0.
    fn count(&mut self, frame: &mut GraphDraft) -> FirstValue {
        frame.graph.inputs.push(Port::new(ITERATION, Type::Int));
        frame.names.insert(ITERATION.into(), NameTarget::Variable(Type::Int));
        let origin = self.lowering.reader.origin(self.step.span);
        let first = format!("{}-{ITERATION}", self.name);
        let kind = ModuleKind::Constant(Port::new("value", Type::Int), Payload::inline([0]));
        let module = Module { name: first.clone(), kind, origin: Some(origin.clone()), attempt: false };
        self.lowering.graphs.top().add(module);
        (ITERATION.into(), port(&first, "value"), origin)
    }

    /// Returns the outputs of the innermost graph, with their sources.
    fn given(&mut self) -> Vec<(String, Endpoint, Type)> {
        let Graph { outputs, connections, .. } = &self.lowering.graphs.top().graph;
        let from = |name: &str| connections.iter().find(|connection| connection.to == own(name));
        let given = outputs.iter().filter_map(|port| {
            from(&port.name).map(|connection| (port.name.clone(), connection.from.clone(), port.ty.clone()))
        });
        given.collect()
    }

    /// Checks that every carried value is an output of the body, and of the same type.
    fn check_carried(&mut self, ports: &[Port], complete: bool) {
        let (repeat, reader) = (self.repeat, self.lowering.reader);
        let inputs = self.lowering.graphs.top().graph.inputs.clone();
        for (key, _) in &repeat.carry {
            let Some(takes) = inputs.iter().find(|port| port.name == key.name) else { continue };
            match ports.iter().find(|port| port.name == key.name) {
                Some(gives) if !takes.ty.accepts(&gives.ty) => {
                    let message = format!(
                        "the loop carries `{}`, which begins as {}, but `out` gives {}",
                        key.name, takes.ty, gives.ty
                    );
                    reader.say(key.span, "OF0131", message, "");
                }
                None if complete => {
                    let message = format!("the loop carries `{}`, but `out` does not give it", key.name);
                    let hint = format!("`out: {{ {}: … }}` is what the next iteration begins with", key.name);
                    reader.say(key.span, "OF0131", message, hint);
                }
                _ => {}
            }
        }
    }

    /// Adds the condition as an output of the innermost graph.
    fn again(&mut self) {
        let (repeat, reader) = (self.repeat, self.lowering.reader);
        let origin = reader.origin(repeat.span);
        let count = Take { path: vec![ITERATION.into()], ty: Type::Int, from: own(ITERATION), origin: origin.clone() };
        if self.counts {
            let takes = TaskInputs { all: vec![count.clone()], secrets: vec![] };
            self.lowering.computed(NEXT, format!("{ITERATION} + 1"), &takes, &Type::Int, origin.clone());
            let top = self.lowering.graphs.top();
            top.graph.outputs.push(Port::new(NEXT, Type::Int));
            top.connect(port(NEXT, "value"), own(NEXT), origin.clone());
        }
        let from = match (&repeat.again, repeat.max) {
            (Some(text), None) => self.lowering.condition(text, AGAIN, AGAIN),
            (text, Some(max)) => {
                let mut takes = TaskInputs::default();
                let mut source = format!("{ITERATION} + 1 < {max}");
                if let Some(text) = text {
                    let Some(bound) = self.lowering.references().bind(text, 0..text.text.len(), Allowed::default())
                    else {
                        return;
                    };
                    if let Some(other) = bound.ty.clone().filter(|ty| !matches!(ty, Type::Bool | Type::Json)) {
                        reader.say(text.span, "OF0125", format!("`while` is true or false, but this is {other}"), "");
                    }
                    takes = bound.takes;
                    source = format!("({}) && {source}", bound.source);
                }
                takes.add(count);
                self.lowering.computed(AGAIN, source, &takes, &Type::Bool, origin.clone());
                Some(port(AGAIN, "value"))
            }
            (None, None) => None,
        };
        let top = self.lowering.graphs.top();
        top.graph.outputs.push(Port::new(AGAIN, Type::Bool));
        if let Some(from) = from {
            top.connect(from, own(AGAIN), origin);
        }
    }
}
