//! Settings of an engine and its worker.

use crate::{event_log::EventLogOptions, resources::Resources};
use onceflow_core::Shard;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf};

/// Settings of an engine and its worker. The defaults are for one process on one machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// The shard of the store that the worker works on.
    pub shard: Shard,
    /// Steps that the worker may hold at a time.
    pub steps_max: usize,
    /// Blocking tasks that run at a time; each has a thread.
    pub blocking_max: usize,
    /// Steps of a class that the worker may hold at a time; classes not named here are bounded by `steps_max` only.
    pub classes: BTreeMap<String, usize>,
    /// Steps of all classes named in `classes` together that the worker may hold at a time. A step that waits for its
    /// retry does not count.
    pub classes_max: usize,
    /// Steps whose class is not named in `classes` are taken too.
    pub other_classes: bool,
    /// Tasks that run at a time, over all classes; pure tasks that reserve nothing do not count. Steps may be claimed
    /// ahead of that, so that the writes before and after a task keep no other task waiting.
    pub running_max: usize,
    /// How long a claim stands without a heartbeat.
    pub lease_ms: u64,
    /// Processors, in thousandths, that tasks may reserve together.
    pub cpu_milli: u32,
    /// Bytes of memory that tasks may reserve together.
    pub memory_bytes: u64,
    /// Neighbouring pure tasks become one step.
    pub fuse: bool,
    /// This process takes steps; otherwise it only starts runs and waits for them.
    pub works: bool,
    /// The worker takes its first step only when [`Engine::start_work`](crate::Engine::start_work) is called: for a
    /// process that is about to plan its run anew or to cancel it.
    pub waits: bool,
    /// The directory for files given to tasks.
    pub scratch: PathBuf,
    /// This process holds a lock file in `scratch` while the engine is open, and checks the lock files of others there:
    /// of processes on one machine that name the same directory, each notices at once that another has ended, however
    /// it ended.
    pub locks: bool,
    /// The description under which the worker registers, so that other workers see it. A worker that is not limited to
    /// a run leaves steps whose task it lacks to workers that offer it, and keeps the logs of its steps in the store.
    /// All workers of a store should register, or none.
    pub about: Option<About>,
    /// Keeps event logs of the runs that this engine starts or works on, in the store: see
    /// [`RunHistory::event_log`](crate::RunHistory::event_log). Without it, and without listeners, events cost nothing.
    pub event_log: Option<EventLogOptions>,
    /// Resources that tasks take by type. A working engine refuses a task that takes a resource it lacks.
    pub resources: Resources,
}

/// The description of a worker, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The host name of its machine.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// The name of its program.
    pub program: String,
    /// Labels that its operator gave it.
    pub labels: Vec<String>,
    /// The key of the only run whose steps it takes; `None` if it takes steps of any run.
    pub run: Option<String>,
}

impl About {
    /// Describes this process, under the name of this program.
    pub fn this_process(program: impl Into<String>) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
        let host = host.map(|host| host.trim().to_owned()).filter(|host| !host.is_empty());
        About {
            host: host.unwrap_or_else(|| String::from("unknown")),
            pid: std::process::id(),
            program: program.into(),
            labels: vec![],
            run: None,
        }
    }
}

impl Options {
    /// The worker is registered for all runs, so that other workers may take steps of the same runs.
    pub(crate) fn is_shared(&self) -> bool {
        self.about.as_ref().is_some_and(|about| about.run.is_none())
    }
}

impl Default for Options {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Options {
            shard: Shard::default(),
            steps_max: 1024,
            blocking_max: 4 * cpus,
            classes: BTreeMap::new(),
            classes_max: usize::MAX,
            other_classes: true,
            running_max: usize::MAX,
            lease_ms: 30_000,
            cpu_milli: u32::try_from(cpus * 1000).unwrap_or(u32::MAX),
            memory_bytes: u64::MAX,
            fuse: true,
            works: true,
            waits: false,
            scratch: std::env::temp_dir(),
            locks: false,
            about: None,
            event_log: None,
            resources: Resources::default(),
        }
    }
}
