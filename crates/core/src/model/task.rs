//! What the kernel knows about a task: its ports, its version, what it does to the world, and how it is to be run.
//! The code itself is the engine's business; here it is a name.

use super::Type;
use serde::{Deserialize, Serialize};

/// A typed input or output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Unique among the inputs, or the outputs, of its module.
    pub name: String,
    /// What it takes or gives.
    pub ty: Type,
}

impl Port {
    /// A port.
    pub fn new(name: impl Into<String>, ty: Type) -> Self {
        Port { name: name.into(), ty }
    }
}

/// What a task's body does to the world, and so what "once" means for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Effect {
    /// Nothing. It may be fused, run again, shared.
    Pure,
    /// It may run more than once for one step, with the same key each time.
    #[default]
    Idempotent,
    /// It never starts twice; after a crash its outcome is unknown until someone decides.
    AtMostOnce,
    /// What it does to the flow's own rows rides in the commit.
    Transactional,
}

/// When a failed attempt is followed by another. Never part of a task's version.
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

/// What a step needs of the machine it runs on.
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
    /// What workers know it by.
    pub name: String,
    /// What its results depend on beside its inputs: code, parameters. Another version, another result.
    pub version: String,
    /// What it takes.
    pub inputs: Vec<Port>,
    /// What it gives. A task that gives nothing gets an output `done` of type unit.
    pub outputs: Vec<Port>,
    /// Per output the inputs it depends on, by index; `None` is all of them.
    pub depends: Option<Vec<Vec<u16>>>,
    /// What its body does to the world.
    pub effect: Effect,
    /// When to try again.
    pub retry: Retry,
    /// The longest an attempt may take.
    pub timeout_ms: Option<u64>,
    /// Which workers take it: the name of a queue.
    pub class: String,
    /// What it needs of the machine.
    pub resources: ResourceRequest,
    /// The task that undoes it: registered before the body runs, given the same inputs.
    #[serde(deserialize_with = "super::program::nested::deeper")]
    pub compensation: Option<Box<TaskSpec>>,
    /// What an executor of many tasks is told about this one; nothing for a task with code of its own. The version must
    /// say all of it that results depend on.
    pub params: Vec<u8>,
}

impl TaskSpec {
    /// A task with these ports and every default.
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

    /// Whether output `output` depends on input `input`.
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
