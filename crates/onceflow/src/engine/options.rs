//! The settings of an engine, made before it is opened.

use super::Engine;
use crate::Error;
use onceflow_core::limits::GRAPH_MODULES_MAX;
use onceflow_engine::Options;
use std::{path::PathBuf, time::Duration};

/// The settings of an engine. The defaults are for one process on one machine.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use onceflow::Engine;
/// use std::time::Duration;
///
/// let engine = Engine::builder()
///     .steps_max(64)                       // steps in flight
///     .class("gpu", 1)                     // of those whose task says `class = "gpu"`
///     .lease(Duration::from_secs(10))      // after so long without a sign of life others take over
///     .in_memory();                        // or `.open("./store").await?`
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until `open` or `in_memory`"]
pub struct EngineBuilder {
    options: Options,
    graph_modules_max: usize,
}

impl Default for EngineBuilder {
    fn default() -> Self {
        EngineBuilder { options: Options::default(), graph_modules_max: GRAPH_MODULES_MAX }
    }
}

impl EngineBuilder {
    /// Steps it may have in flight.
    pub fn steps_max(mut self, steps: usize) -> Self {
        self.options.steps_max = steps.max(1);
        self
    }

    /// Blocking tasks it runs at a time; each has a thread.
    pub fn blocking_max(mut self, tasks: usize) -> Self {
        self.options.blocking_max = tasks.max(1);
        self
    }

    /// Tasks that run at a time, pure ones that reserve nothing aside. Steps are taken ahead of that, so that what is
    /// written before and after a task keeps no other waiting.
    pub fn running_max(mut self, tasks: usize) -> Self {
        self.options.running_max = tasks.max(1);
        self
    }

    /// Steps of a class it may have in flight.
    pub fn class(mut self, class: impl Into<String>, steps_max: usize) -> Self {
        self.options.classes.insert(class.into(), steps_max);
        self
    }

    /// Takes only steps of the classes that were named.
    pub fn only_these_classes(mut self) -> Self {
        self.options.other_classes = false;
        self
    }

    /// The lease: how long a step stays with this engine without a heartbeat. Heartbeats are three times as frequent.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease_ms = ms(lease).max(1);
        self
    }

    /// Processors that tasks with `cpus = ..` may reserve together, in thousandths.
    pub fn cpu_milli(mut self, cpu_milli: u32) -> Self {
        self.options.cpu_milli = cpu_milli;
        self
    }

    /// Bytes of memory that tasks with `memory = ..` may reserve together.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.options.memory_bytes = bytes;
        self
    }

    /// Fuses neighbouring pure tasks into one step.
    pub fn fuse(mut self, fuse: bool) -> Self {
        self.options.fuse = fuse;
        self
    }

    /// Lets the engine take steps. One that takes none starts runs, waits for them, and leaves the work to others.
    pub fn works(mut self, works: bool) -> Self {
        self.options.works = works;
        self
    }

    /// The directory where files are materialised for tasks; without this, the system's directory for temporary files.
    pub fn scratch(mut self, directory: impl Into<PathBuf>) -> Self {
        self.options.scratch = directory.into();
        self
    }

    /// Adds a value that tasks take by type, as [`State`](crate::State): a pool, a client, settings. One of each type.
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.options.resources.add(state);
        self
    }

    /// Modules that one graph may have; 100 000 without this. A graph is held in memory as a whole: a flow of half a million
    /// steps takes 500 to 800 bytes a step, and starting or explaining it 350 to 400 bytes a step more and two seconds of a
    /// processor. What is wide because there is much data is better an each.
    pub fn graph_modules_max(mut self, modules: usize) -> Self {
        self.graph_modules_max = modules;
        self
    }

    /// The engine, on a directory or a server. See [`Engine::open`].
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub async fn open(self, store: impl Into<PathBuf>) -> Result<Engine, Error> {
        Engine::on_store(store.into(), self.options, self.graph_modules_max).await
    }

    /// The engine, with a store that is gone with it.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn in_memory(self) -> Engine {
        Engine::on_memory(self.options, self.graph_modules_max)
    }
}

/// Converts a duration to the engine's milliseconds, saturating.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
