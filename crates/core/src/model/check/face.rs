//! The face of a module: the ports its siblings connect to. Lenient: of several conflicting declarations it takes the
//! first, and leaves the report to the checks.

use crate::model::{
    Arm, Graph, Library, Module, Port, Type,
    graph::{ERROR, ModuleKind},
    task::DONE,
};
use std::borrow::Cow;

/// The ports of a module, as its siblings see them. Those of tasks are borrowed: a flow may have a million steps of one
/// task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Face<'a> {
    pub(crate) inputs: Cow<'a, [Port]>,
    pub(crate) outputs: Cow<'a, [Port]>,
}

impl<'a> Face<'a> {
    /// Returns the ports of `module`; `None` if it calls a flow that does not exist.
    pub(crate) fn of(library: &'a Library, module: &'a Module) -> Option<Self> {
        let mut face = Face::inner(library, &module.kind)?;
        if module.attempt {
            face.outputs = attempted(face.outputs.into_owned()).into();
        }
        Some(face)
    }

    fn inner(library: &'a Library, kind: &'a ModuleKind) -> Option<Self> {
        Some(match kind {
            ModuleKind::Task(spec) if spec.outputs.is_empty() => {
                Face { inputs: (&spec.inputs).into(), outputs: vec![Port::new(DONE, Type::Unit)].into() }
            }
            ModuleKind::Task(spec) => Face { inputs: (&spec.inputs).into(), outputs: (&spec.outputs).into() },
            ModuleKind::Constant(port, _) => {
                Face { inputs: Cow::default(), outputs: std::slice::from_ref(port).into() }
            }
            ModuleKind::Composite(body) => Face::graph(body),
            ModuleKind::Loop { body, condition, .. } => {
                let outputs = body.outputs.iter().filter(|port| port.name != *condition).cloned();
                Face { inputs: (&body.inputs).into(), outputs: outputs.collect() }
            }
            ModuleKind::Each { body, over, .. } => each(body, over),
            ModuleKind::Choice { arms } => {
                Face { inputs: choice_inputs(arms).into(), outputs: choice_outputs(arms).into() }
            }
            ModuleKind::Call { flow } => Face::graph(library.flows.get(flow)?),
        })
    }

    fn graph(graph: &'a Graph) -> Self {
        Face { inputs: (&graph.inputs).into(), outputs: (&graph.outputs).into() }
    }
}

/// Returns the option of `ty`, or `ty` itself if it is an option.
pub(crate) fn optional(ty: Type) -> Type {
    if matches!(ty, Type::Option(_)) { ty } else { Type::option(ty) }
}

/// Returns the outputs of a module with `attempt`: its own as options, and `error`.
pub(crate) fn attempted(outputs: Vec<Port>) -> Vec<Port> {
    let own = outputs.into_iter().map(|port| Port { ty: optional(port.ty), ..port });
    own.chain([Port::new(ERROR, Type::option(Type::Text))]).collect()
}

fn each(body: &Graph, over: &[String]) -> Face<'static> {
    let input = |port: &Port| match over.contains(&port.name) {
        true => Port::new(port.name.clone(), Type::list(port.ty.clone())),
        false => port.clone(),
    };
    let output = |port: &Port| Port::new(port.name.clone(), Type::list(port.ty.clone()));
    Face { inputs: body.inputs.iter().map(input).collect(), outputs: body.outputs.iter().map(output).collect() }
}

/// Returns the inputs of all arms, each name once, and then the guards that are not among them.
fn choice_inputs(arms: &[Arm]) -> Vec<Port> {
    let mut inputs: Vec<Port> = Vec::new();
    let guards = arms.iter().filter_map(|arm| arm.guard.as_ref()).map(|guard| Port::new(guard.clone(), Type::Bool));
    for port in arms.iter().flat_map(|arm| arm.body.inputs.iter().cloned()).chain(guards) {
        if inputs.iter().all(|other| other.name != port.name) {
            inputs.push(port);
        }
    }
    inputs
}

/// Returns the outputs of all arms, each name once; an output is an option where some arm does not give it, or where no
/// arm may be taken.
fn choice_outputs(arms: &[Arm]) -> Vec<Port> {
    let mut outputs: Vec<Port> = Vec::new();
    for port in arms.iter().flat_map(|arm| &arm.body.outputs) {
        match outputs.iter_mut().find(|other| other.name == port.name) {
            Some(other) if matches!(port.ty, Type::Option(_)) => other.ty = optional(other.ty.clone()),
            Some(_) => {}
            None => outputs.push(port.clone()),
        }
    }
    let always = arms.iter().any(|arm| arm.guard.is_none());
    for port in &mut outputs {
        let gives = |arm: &Arm| arm.body.outputs.iter().any(|output| output.name == port.name);
        if !(always && arms.iter().all(gives)) {
            port.ty = optional(port.ty.clone());
        }
    }
    outputs
}
