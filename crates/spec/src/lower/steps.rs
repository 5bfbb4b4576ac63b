//! Lowers steps into the innermost graph: an action may be wrapped in a `when`, and that in an `each`.

use super::{
    Lowering,
    draft::{GraphDraft, NameTarget, own, port},
    leaf::Leaf,
    order,
    repeat::LoopDraft,
};
use crate::syntax::{
    kinds::StepKind,
    outs::OutputDecl,
    step::{Each, StepDecl},
};
use onceflow_core::model::{Arm, Module, Port, Type, graph::ERROR, graph::ModuleKind, task::DONE};
use onceflow_exec::expr::infer::optional;

/// The outermost wrapper of a step that is still to be lowered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Layer {
    Each,
    When,
    Bare,
}

impl Lowering<'_> {
    /// Lowers these steps, and makes their names known.
    pub(super) fn steps(&mut self, steps: &[StepDecl]) {
        for step in steps {
            self.name_is_free(&step.name.name, step.name.span);
        }
        for step in steps {
            let known = leaf_ports(step).map(|ports| face(step, ports));
            let named = known.map_or(NameTarget::Unclear, NameTarget::Step);
            self.graphs.top().names.insert(step.name.name.clone(), named);
        }
        for at in order::order(steps) {
            let step = &steps[at];
            self.graphs.top().at = at;
            let outputs = self.layer(step, &step.name.name, Layer::Each);
            if let Some(outputs) = outputs {
                self.graphs.top().names.insert(step.name.name.clone(), NameTarget::Step(outputs));
            }
        }
        self.graphs.top().at = steps.len();
    }

    pub(super) fn name_is_free(&self, name: &str, span: crate::source::Span) {
        if self.graphs.knows(name) {
            let hint = "a name means one thing wherever it is seen; steps in other `steps:` may have the same names";
            self.reader.say(span, "OF0109", format!("the name `{name}` is taken"), hint);
        }
    }

    /// Lowers the step with its remaining wrappers to a module called `name`; returns the outputs of the module.
    pub(super) fn layer(&mut self, step: &StepDecl, name: &str, layer: Layer) -> Option<Vec<Port>> {
        match (layer, &step.each, &step.when) {
            (Layer::Each, Some(each), _) => self.each(step, each, name),
            (Layer::Each | Layer::When, _, Some(_)) => self.when(step, name),
            _ => self.bare(step, name),
        }
    }

    fn bare(&mut self, step: &StepDecl, name: &str) -> Option<Vec<Port>> {
        let after = self.after.len();
        self.after.extend(step.after.iter().cloned());
        let ports = match (&step.kind, &step.repeat) {
            (StepKind::Steps(steps), Some(repeat)) => LoopDraft::new(self, step, repeat, name).lower(steps),
            (StepKind::Steps(steps), None) => self.composite(step, steps, name),
            (StepKind::Choose(arms), _) => self.choose(step, arms, name),
            (StepKind::Flow(file), _) => self.call(step, file, name),
            _ => Leaf::new(self, step, name).lower(),
        };
        self.after.truncate(after);
        ports.map(|ports| attempted(step, ports))
    }

    /// Lowers the step as the only content of the innermost graph; returns the outputs of the graph.
    pub(super) fn body(&mut self, step: &StepDecl, layer: Layer) -> Option<Vec<Port>> {
        let nothing_around = step.repeat.is_none() && !step.attempt && (layer == Layer::Bare || step.when.is_none());
        if let (StepKind::Steps(steps), true) = (&step.kind, nothing_around) {
            let after = self.after.len();
            self.after.extend(step.after.iter().cloned());
            self.steps(steps);
            self.after.truncate(after);
            return Some(self.gives(&step.gives, "out"));
        }
        let name = onceflow_core::model::instance_path::NAMELESS;
        let ports = self.layer(step, name, layer)?;
        let origin = self.reader.origin(step.span);
        let top = self.graphs.top();
        for output in &ports {
            top.connect(port(name, output.name.clone()), own(output.name.clone()), origin.clone());
        }
        top.graph.outputs.clone_from(&ports);
        Some(ports)
    }

    /// Lowers the declared outputs of the innermost graph; returns their ports.
    pub(super) fn gives(&mut self, gives: &[OutputDecl], what: &str) -> Vec<Port> {
        let mut ports = Vec::new();
        for given in gives {
            let wanted = given.shape.as_ref().map(crate::types::TypeDecl::ty);
            let module = format!("{what}-{}", given.name.name);
            let range = 0..given.value.text.len();
            let Some((from, ty)) = self.value(&given.value, range, &module, wanted.as_ref()) else { continue };
            let ty = match wanted {
                Some(wanted) if !wanted.accepts(&ty) => {
                    let message = format!("output `{}` is {wanted}, but {ty} is given", given.name.name);
                    self.reader.say(given.value.span, "OF0130", message, "");
                    continue;
                }
                Some(wanted) => wanted,
                None => ty,
            };
            let origin = self.reader.origin(given.value.span);
            self.graphs.top().connect(from, own(given.name.name.clone()), origin);
            ports.push(Port::new(given.name.name.clone(), ty));
        }
        self.graphs.top().graph.outputs.clone_from(&ports);
        ports
    }

    fn each(&mut self, step: &StepDecl, each: &Each, name: &str) -> Option<Vec<Port>> {
        let mut frame = GraphDraft::default();
        let mut sources = Vec::new();
        for (variable, range) in &each.over {
            self.name_is_free(variable, each.text.span);
            let made = format!("{name}-each-{variable}");
            let (from, ty) = self.value(&each.text, range.clone(), &made, None)?;
            let Type::List(inner) = ty else {
                let over = &each.text.text[range.clone()];
                if !self.graphs.is_unclear(over.split('.').next().unwrap_or_default()) {
                    let span = self.reader.source.inside(&each.text, range.clone());
                    let hint = match ty {
                        Type::Json => {
                            "say of what it is a list: an `expr` of its own, with `out: { name: list<json> }`"
                        }
                        _ => "",
                    };
                    self.reader.say(span, "OF0124", format!("`each` goes over a list, but `{over}` is {ty}"), hint);
                }
                return None;
            };
            frame.graph.inputs.push(Port::new(variable.clone(), (*inner).clone()));
            if frame.names.insert(variable.clone(), NameTarget::Variable(*inner)).is_some() {
                self.reader.say(each.text.span, "OF0123", format!("`{variable}` is here twice"), "");
                return None;
            }
            sources.push((variable.clone(), from));
        }
        self.graphs.open(frame);
        let ports = self.body(step, Layer::When);
        let body = self.graphs.close(name);
        let origin = self.reader.origin(step.span);
        let top = self.graphs.top();
        let over = sources.iter().map(|(variable, _)| variable.clone()).collect();
        for (variable, from) in sources {
            top.connect(from, port(name, variable), origin.clone());
        }
        let kind = ModuleKind::Each { body, over, concurrency: step.at_most };
        top.add(Module { name: name.to_owned(), kind, origin: Some(origin), attempt: false });
        ports.map(listed)
    }

    fn when(&mut self, step: &StepDecl, name: &str) -> Option<Vec<Port>> {
        let when = step.when.as_ref()?;
        let guard = self.condition(when, &format!("{name}-when"), "when");
        self.graphs.open(GraphDraft::default());
        let ports = self.body(step, Layer::Bare);
        let body = self.graphs.close(name);
        let origin = self.reader.origin(step.span);
        let top = self.graphs.top();
        top.connect(guard?, port(name, "when"), origin.clone());
        let arms = vec![Arm { name: "-then".into(), guard: Some("when".into()), body }];
        top.add(Module {
            name: name.to_owned(),
            kind: ModuleKind::Choice { arms },
            origin: Some(origin),
            attempt: false,
        });
        ports.map(optionals)
    }
}

/// Returns the outputs of a leaf, if it declares them all.
pub(super) fn leaf_ports(step: &StepDecl) -> Option<Vec<Port>> {
    let said = |name: &str| step.outs.iter().any(|out| out.name.name == name);
    match &step.kind {
        StepKind::Expr(all) if !all.iter().all(|(name, _)| name.as_ref().is_none_or(|name| said(&name.name))) => None,
        StepKind::Stream(_) | StepKind::Flow(_) | StepKind::Steps(_) | StepKind::Choose(_) => None,
        _ if step.outs.is_empty() => Some(vec![Port::new(DONE, Type::Unit)]),
        _ => Some(step.outs.iter().map(|out| Port::new(out.name.name.clone(), out.shape.ty())).collect()),
    }
}

/// Returns the outputs of a step after its wrappers: `attempt`, `when`, `each`.
fn face(step: &StepDecl, ports: Vec<Port>) -> Vec<Port> {
    let ports = attempted(step, ports);
    let ports = if step.when.is_some() { optionals(ports) } else { ports };
    if step.each.is_some() { listed(ports) } else { ports }
}

fn attempted(step: &StepDecl, ports: Vec<Port>) -> Vec<Port> {
    if !step.attempt {
        return ports;
    }
    let error = Port::new(ERROR, Type::option(Type::Text));
    optionals(ports).into_iter().chain([error]).collect()
}

fn optionals(ports: Vec<Port>) -> Vec<Port> {
    ports.into_iter().map(|port| Port { ty: optional(port.ty), ..port }).collect()
}

fn listed(ports: Vec<Port>) -> Vec<Port> {
    ports.into_iter().map(|port| Port { ty: Type::list(port.ty), ..port }).collect()
}
