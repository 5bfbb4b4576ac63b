//! How a worker behaves.

use crate::resources::Resources;
use onceflow_core::Shard;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf};

/// How a worker behaves. The defaults are for one process on one machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// The part of the store it works on.
    pub shard: Shard,
    /// Steps it may have taken at a time.
    pub steps_max: usize,
    /// Blocking tasks it runs at a time; each has a thread.
    pub blocking_max: usize,
    /// Steps of a class it may have taken at a time; classes not named here are bounded by `steps_max` only.
    pub classes: BTreeMap<String, usize>,
    /// Steps of the classes named in `classes` it may have taken at a time, of all of them together. One that waits to be
    /// tried again does not count.
    pub classes_max: usize,
    /// Whether steps whose class is not named in `classes` are taken too.
    pub other_classes: bool,
    /// Tasks that run at a time, in all, pure ones that reserve nothing aside. Steps may be taken ahead of that, so that
    /// what has to be written before and after a task keeps no other waiting.
    pub running_max: usize,
    /// How long a claim stands without a sign of life.
    pub lease_ms: u64,
    /// Processors, in thousandths, that tasks may reserve together.
    pub cpu_milli: u32,
    /// Bytes of memory that tasks may reserve together.
    pub memory_bytes: u64,
    /// Whether neighbouring pure tasks become one step.
    pub fuse: bool,
    /// Whether this process takes steps; otherwise it only starts runs and waits for them.
    pub works: bool,
    /// Whether it takes its first step only when [`Engine::go`](crate::Engine::go) is called: for a process that is about to
    /// plan anew or to cancel what it would otherwise go on with.
    pub waits: bool,
    /// Where files given to tasks are put.
    pub scratch: PathBuf,
    /// This process holds a lock file in `scratch` while the engine is open, and looks at those of others there: of processes
    /// on one machine that name the same directory, each notices at once that another has ended, however it did.
    pub locks: bool,
    /// Who this worker is: it registers under this, so that others see it. One that is not limited to a run leaves steps
    /// whose task it does not have to workers that have it, and keeps the logs of its steps in the store. All workers of a
    /// store should register, or none.
    pub about: Option<About>,
    /// What tasks take by its type. A task is refused by an engine that works and lacks what it takes.
    pub resources: Resources,
    /// Modules in one graph: see [`GRAPH_MODULES_MAX`](onceflow_core::limits::GRAPH_MODULES_MAX).
    pub graph_modules_max: usize,
}

/// Who a worker is, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The machine it is on.
    pub host: String,
    /// The number of its process there.
    pub pid: u32,
    /// Which program it is.
    pub program: String,
    /// What it was said to be good for.
    pub labels: Vec<String>,
    /// The key of the only run whose steps it takes; none if it takes steps of any.
    pub run: Option<String>,
}

impl About {
    /// This process, as this program.
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
    /// Other workers may take steps of the same runs.
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
            resources: Resources::default(),
            graph_modules_max: onceflow_core::limits::GRAPH_MODULES_MAX,
        }
    }
}
