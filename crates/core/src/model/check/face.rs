//! What a module looks like from outside: the ports others connect to. Lenient: of what is wrong it takes the first, and
//! leaves the complaint to the checks.

use crate::model::{
    Arm, Graph, Library, Module, Port, Type,
    graph::{ERROR, Kind},
    task::DONE,
};

/// The ports of a module, as its siblings see them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Face {
    pub(crate) inputs: Vec<Port>,
    pub(crate) outputs: Vec<Port>,
}

impl Face {
    /// The ports of `module`; `None` if it calls a flow that is not there.
    pub(crate) fn of(library: &Library, module: &Module) -> Option<Face> {
        let mut face = Face::inner(library, &module.kind)?;
        if module.attempt {
            face.outputs = attempted(face.outputs);
        }
        Some(face)
    }

    fn inner(library: &Library, kind: &Kind) -> Option<Face> {
        Some(match kind {
            Kind::Task(spec) if spec.outputs.is_empty() => {
                Face { inputs: spec.inputs.clone(), outputs: vec![Port::new(DONE, Type::Unit)] }
            }
            Kind::Task(spec) => Face { inputs: spec.inputs.clone(), outputs: spec.outputs.clone() },
            Kind::Constant(port, _) => Face { inputs: vec![], outputs: vec![port.clone()] },
            Kind::Composite(body) => Face::graph(body),
            Kind::Loop { body, condition, .. } => {
                let mut face = Face::graph(body);
                face.outputs.retain(|port| port.name != *condition);
                face
            }
            Kind::Each { body, over, .. } => each(body, over),
            Kind::Choice { arms } => Face { inputs: choice_inputs(arms), outputs: choice_outputs(arms) },
            Kind::Call { flow } => Face::graph(library.flows.get(flow)?),
        })
    }

    fn graph(graph: &Graph) -> Face {
        Face { inputs: graph.inputs.clone(), outputs: graph.outputs.clone() }
    }
}

/// An option of this, unless it is one.
pub(crate) fn optional(ty: Type) -> Type {
    if matches!(ty, Type::Option(_)) { ty } else { Type::option(ty) }
}

/// The outputs of something that may fail without failing the run.
pub(crate) fn attempted(outputs: Vec<Port>) -> Vec<Port> {
    let own = outputs.into_iter().map(|port| Port { ty: optional(port.ty), ..port });
    own.chain([Port::new(ERROR, Type::option(Type::Text))]).collect()
}

fn each(body: &Graph, over: &[String]) -> Face {
    let input = |port: &Port| match over.contains(&port.name) {
        true => Port::new(port.name.clone(), Type::list(port.ty.clone())),
        false => port.clone(),
    };
    let output = |port: &Port| Port::new(port.name.clone(), Type::list(port.ty.clone()));
    Face { inputs: body.inputs.iter().map(input).collect(), outputs: body.outputs.iter().map(output).collect() }
}

/// The inputs of all arms, each name once, and then the guards that are not among them.
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

/// The outputs of all arms, each name once; options where an arm may be taken, or none, that does not give them.
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
