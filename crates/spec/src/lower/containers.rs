//! Graphs of steps, and choices between them.

use super::{
    Lowering,
    draft::{GraphDraft, port},
    steps::Layer,
};
use crate::syntax::step::StepDecl;
use onceflow_core::model::{Arm, Module, Port, Type, graph::ModuleKind};
use onceflow_exec::expr::infer::optional;

impl Lowering<'_> {
    pub(super) fn composite(&mut self, step: &StepDecl, steps: &[StepDecl], name: &str) -> Option<Vec<Port>> {
        self.graphs.open(GraphDraft::default());
        self.steps(steps);
        let ports = self.gives(&step.gives, "out");
        let body = self.graphs.close(name);
        let origin = Some(self.reader.origin(step.span));
        let kind = ModuleKind::Composite(body);
        self.graphs.top().add(Module { name: name.to_owned(), kind, origin, attempt: step.attempt });
        (ports.len() == step.gives.len()).then_some(ports)
    }

    pub(super) fn choose(&mut self, step: &StepDecl, arms: &[StepDecl], name: &str) -> Option<Vec<Port>> {
        let mut made = Vec::new();
        let mut ports = Some(Vec::new());
        for (at, arm) in arms.iter().enumerate() {
            let guard_port = format!("when-{}", at + 1);
            if let Some(when) = &arm.when {
                let module = format!("{name}-when-{}", at + 1);
                if let Some(guard) = self.condition(when, &module, "when") {
                    let origin = self.reader.origin(when.span);
                    self.graphs.top().connect(guard, port(name, guard_port.clone()), origin);
                }
            }
            self.graphs.open(GraphDraft::default());
            let given = self.body(arm, Layer::Bare);
            let body = self.graphs.close(name);
            ports = ports.zip(given).map(|(mut ports, given)| {
                ports.push(given);
                ports
            });
            let guard = arm.when.as_ref().map(|_| guard_port);
            // Not a name that a file can have: users see only the choice.
            made.push(Arm { name: format!("-{}", at + 1), guard, body });
        }
        let always = made.iter().any(|arm| arm.guard.is_none());
        let origin = Some(self.reader.origin(step.span));
        let kind = ModuleKind::Choice { arms: made };
        self.graphs.top().add(Module { name: name.to_owned(), kind, origin, attempt: step.attempt });
        ports.map(|ports| choice_ports(&ports, always))
    }
}

/// Returns the outputs of a choice. An output is an option if an arm lacks it, or if it may be that no arm is taken.
fn choice_ports(arms: &[Vec<Port>], always: bool) -> Vec<Port> {
    let mut ports: Vec<Port> = Vec::new();
    for given in arms.iter().flatten() {
        match ports.iter_mut().find(|port| port.name == given.name) {
            Some(port) if matches!(given.ty, Type::Option(_)) => port.ty = optional(port.ty.clone()),
            Some(_) => {}
            None => ports.push(given.clone()),
        }
    }
    for port in &mut ports {
        if !(always && arms.iter().all(|given| given.iter().any(|other| other.name == port.name))) {
            port.ty = optional(port.ty.clone());
        }
    }
    ports
}
