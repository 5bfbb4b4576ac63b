//! A task as the kernel knows it: its ports, its version, its effect on the outside world, and how to run it. Its code
//! belongs to the engine; here the task is a name.

use super::Type;
use serde::{Deserialize, Serialize};

/// A typed input or output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Unique among the inputs, or the outputs, of its module.
    pub name: String,
    /// The type of its values.
    pub ty: Type,
}

impl Port {
    /// Creates a port.
    pub fn new(name: impl Into<String>, ty: Type) -> Self {
        Port { name: name.into(), ty }
    }
}

/// The effect of a task's body on the outside world, and so the meaning of "once" for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Effect {
    /// No effect. The task may be fused, run again, shared.
    Pure,
    /// The task may run more than once for one step, with the same key each time.
    #[default]
    Idempotent,
    /// The task never starts twice; after a crash its outcome is unknown until an operator reports it.
    AtMostOnce,
    /// The changes it makes to the flow's own rows are part of the step's commit.
    Transactional,
}

/// The retry policy: when a failed attempt is followed by another. Never part of a task's version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Attempts in all; 1 is no retry.
    pub attempts: u32,
    /// Wait before the second attempt, in milliseconds; it doubles with each.
    pub backoff_ms: u64,
    /// The longest wait.
    pub backoff_ms_max: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { attempts: 1, backoff_ms: 100, backoff_ms_max: 60_000 }
    }
}

/// The resources a step needs on the machine it runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceRequest {
    /// Thousandths of a processor.
    pub cpu_milli: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

/// A task as flows refer to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// The name by which workers find its code.
    pub name: String,
    /// Stands for everything its results depend on beside its inputs: code, parameters. With another version, results
    /// are computed anew.
    pub version: String,
    /// The input ports.
    pub inputs: Vec<Port>,
    /// The output ports. A task without outputs gets an output `done` of type unit.
    pub outputs: Vec<Port>,
    /// Per output the inputs it depends on, by index; `None` is all of them.
    pub depends: Option<Vec<Vec<u16>>>,
    /// The effect of its body on the outside world.
    pub effect: Effect,
    /// The retry policy.
    pub retry: Retry,
    /// The longest an attempt may take; `None` is no limit.
    pub timeout_ms: Option<u64>,
    /// The queue that its steps are put into, and so the workers that run it.
    pub class: String,
    /// The resources it needs on the machine.
    pub resources: ResourceRequest,
    /// The task that undoes it: registered before the body runs, with the same inputs.
    #[serde(deserialize_with = "super::program::nested::deeper")]
    pub compensation: Option<Box<TaskSpec>>,
    /// Parameters for an executor that runs many tasks; empty for a task with code of its own. The version must cover
    /// every parameter that results depend on.
    pub params: Vec<u8>,
}

impl TaskSpec {
    /// Creates a task with these ports and every default.
    pub fn new(name: impl Into<String>, inputs: Vec<Port>, outputs: Vec<Port>) -> Self {
        TaskSpec {
            name: name.into(),
            version: String::from("1"),
            inputs,
            outputs,
            depends: None,
            effect: Effect::default(),
            retry: Retry::default(),
            timeout_ms: None,
            class: String::from(DEFAULT_CLASS),
            resources: ResourceRequest::default(),
            compensation: None,
            params: vec![],
        }
    }

    /// Output `output` depends on input `input`.
    pub fn depends(&self, output: usize, input: usize) -> bool {
        match &self.depends {
            None => true,
            Some(depends) => depends.get(output).is_none_or(|inputs| inputs.iter().any(|at| usize::from(*at) == input)),
        }
    }
}

/// The class of tasks that name none.
pub const DEFAULT_CLASS: &str = "default";

/// The output of a task that has none of its own.
pub const DONE: &str = "done";
