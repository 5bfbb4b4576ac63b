//! How a worker behaves.

use onceflow_core::Shard;
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
}

impl Default for Options {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Options {
            shard: Shard::default(),
            steps_max: 1024,
            blocking_max: 4 * cpus,
            classes: BTreeMap::new(),
            other_classes: true,
            running_max: usize::MAX,
            lease_ms: 30_000,
            cpu_milli: u32::try_from(cpus * 1000).unwrap_or(u32::MAX),
            memory_bytes: u64::MAX,
            fuse: true,
            works: true,
            waits: false,
            scratch: std::env::temp_dir(),
        }
    }
}
