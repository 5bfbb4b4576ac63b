//! A flow as users describe it: modules, ports, connections. Nothing here has been checked; `check` does that, once,
//! and returns a [`Program`](super::Program) that is known to be valid.

use super::{Port, TaskSpec, check::calls::called_by};
use crate::payload::Payload;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// The place in a source file where a module or a connection was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLocation {
    /// The file. Thousands of modules come from one file, so they share its name.
    pub file: Arc<str>,
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
}

/// Modules and the connections between them. A flow is a graph; so is the inside of a composite, a loop, an each, an
/// arm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    /// The input ports.
    pub inputs: Vec<Port>,
    /// The output ports.
    pub outputs: Vec<Port>,
    /// The modules, in the order they were written.
    pub modules: Vec<Module>,
    /// The connections between ports.
    pub connections: Vec<Connection>,
}

/// A unit of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Unique among its siblings.
    pub name: String,
    /// The kind, with its parameters.
    pub kind: ModuleKind,
    /// Where it was defined.
    pub origin: Option<SourceLocation>,
    /// A failure inside does not fail the run: every output becomes an option, which is none after a failure, and there
    /// is one more output, [`ERROR`], with the error message.
    pub attempt: bool,
}

/// The output that a module with `attempt` has beside its own: `option<text>`.
pub const ERROR: &str = "error";

/// The kinds of module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModuleKind {
    /// A leaf with user code. Ports: the task's. Modules of one task may share it.
    Task(Arc<TaskSpec>),
    /// A constant. Its only output is this port, by convention `value`.
    Constant(Port, Payload),
    /// A nested graph. Ports: the graph's.
    Composite(Graph),
    /// Repeats a graph while its condition holds, at least once. Ports: the body's, less the condition.
    Loop {
        /// The graph that is repeated.
        body: Graph,
        /// Which output of the body feeds which input of the next iteration, by name. Inputs not named here are the
        /// same in every iteration.
        carried: Vec<(String, String)>,
        /// The output of type bool that says whether another iteration follows.
        condition: String,
    },
    /// Applies a graph to every element. Ports: the body's; those in `over` take lists, and all outputs are lists.
    Each {
        /// The graph that is applied.
        body: Graph,
        /// The inputs that are iterated, together (lists of equal length).
        over: Vec<String>,
        /// How many elements may be in flight at a time.
        concurrency: Option<u32>,
    },
    /// Runs the first arm whose guard holds. Ports: the inputs of all arms (equal names are one port), and the guards;
    /// the outputs of all arms. An output that some arm does not give is an option; without a default arm, all outputs
    /// are.
    Choice {
        /// In order.
        arms: Vec<Arm>,
    },
    /// Calls another flow. Ports: that flow's.
    Call {
        /// Its name.
        flow: String,
    },
}

/// One alternative of a choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Its name, as it appears in addresses.
    pub name: String,
    /// The input of the choice, of type bool, that must hold; `None` is the default arm, and the last.
    pub guard: Option<String>,
    /// The graph that runs when this arm is taken.
    pub body: Graph,
}

/// A connection between two ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// From an input of the graph, or an output of a module in it.
    pub from: Endpoint,
    /// To an output of the graph, or an input of a module in it.
    pub to: Endpoint,
    /// Where the connection was written.
    pub origin: Option<SourceLocation>,
}

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    /// The module; `None` is the graph itself.
    pub module: Option<String>,
    /// The port.
    pub port: String,
}

/// A flow and the flows it can call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Library {
    /// By name.
    pub flows: BTreeMap<String, Graph>,
}

impl Library {
    /// Calls `visit` with every task, however deep in its flow, and with the tasks that compensate others.
    pub fn for_each_task<'a>(&'a self, visit: &mut impl FnMut(&'a TaskSpec)) {
        self.flows.values().for_each(|graph| graph.for_each_task(visit));
    }

    /// Forgets where modules and connections were written: they mean the same.
    pub fn clear_origins(&mut self) {
        self.flows.values_mut().for_each(Graph::clear_origins);
    }

    /// The flow of this name with those that it calls, directly or indirectly, as far as they are here.
    pub fn called_by(&self, name: &str) -> Library {
        let (mut flows, mut left) = (BTreeMap::new(), vec![name.to_owned()]);
        while let Some(name) = left.pop() {
            if let Some(graph) = self.flows.get(&name)
                && flows.insert(name, graph.clone()).is_none()
            {
                called_by(graph, "", &mut |called, _| left.push(called.to_owned()));
            }
        }
        Library { flows }
    }
}

impl Graph {
    fn clear_origins(&mut self) {
        self.connections.iter_mut().for_each(|connection| connection.origin = None);
        for module in &mut self.modules {
            module.origin = None;
            match &mut module.kind {
                ModuleKind::Composite(body) | ModuleKind::Loop { body, .. } | ModuleKind::Each { body, .. } => {
                    body.clear_origins();
                }
                ModuleKind::Choice { arms } => arms.iter_mut().for_each(|arm| arm.body.clear_origins()),
                ModuleKind::Task(_) | ModuleKind::Constant(..) | ModuleKind::Call { .. } => {}
            }
        }
    }

    fn for_each_task<'a>(&'a self, visit: &mut impl FnMut(&'a TaskSpec)) {
        for module in &self.modules {
            match &module.kind {
                ModuleKind::Task(task) => {
                    std::iter::successors(Some(&**task), |task| task.compensation.as_deref()).for_each(&mut *visit);
                }
                ModuleKind::Composite(body) | ModuleKind::Loop { body, .. } | ModuleKind::Each { body, .. } => {
                    body.for_each_task(visit);
                }
                ModuleKind::Choice { arms } => arms.iter().for_each(|arm| arm.body.for_each_task(visit)),
                ModuleKind::Constant(..) | ModuleKind::Call { .. } => {}
            }
        }
    }
}
