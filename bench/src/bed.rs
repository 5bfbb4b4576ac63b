//! An engine on memory or on a journal in a directory, and how long a run on it takes.

use crate::{
    disk::{Counted, LogWrites, Written},
    flows::{self, Count},
    rounds::cpu_seconds,
};
use anyhow::ensure;
use onceflow_core::model::Graph;
use onceflow_engine::{Engine, Options, RunStatus, Start, task::Data};
use onceflow_store::{
    Records,
    backend::{journal, journal::Journal, memory::Memory},
    blobs::{DirectoryBlobs, Objects},
    values::Values,
    world::{RealWorld, World},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};
use tokio::runtime::Runtime;

/// A store and an engine on it.
pub struct Bed {
    pub engine: Engine,
    /// How often bodies ran.
    pub count: Arc<Count>,
    /// What was written to the log, if there is one.
    pub written: Option<Arc<Written>>,
    journal: Option<Arc<Journal>>,
    runs: AtomicU64,
}

/// What was done in some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Did {
    /// User's steps.
    pub steps: u64,
    /// From the answer of `start`, or the first body if that was earlier, to the answer of `wait`.
    pub seconds: f64,
    /// Processor time, with that of starting.
    pub cpu_seconds: f64,
    /// How long starting took: checking, planning and storing the flow and its inputs.
    pub start_seconds: f64,
}

impl Did {
    pub fn per_second(&self) -> f64 {
        self.steps as f64 / self.seconds
    }

    pub fn us_per_step(&self) -> f64 {
        self.seconds * 1e6 / self.steps as f64
    }

    pub fn cpu_us_per_step(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.steps as f64
    }

    /// Adds another time.
    pub fn add(&mut self, more: Did) {
        self.steps += more.steps;
        self.seconds += more.seconds;
        self.cpu_seconds += more.cpu_seconds;
        self.start_seconds += more.start_seconds;
    }
}

/// Several of what is over too soon.
pub fn several(times: usize, one: impl Fn() -> anyhow::Result<Did>) -> anyhow::Result<Did> {
    let mut did = Did::default();
    for _ in 0..times {
        did.add(one()?);
    }
    Ok(did)
}

impl Bed {
    /// In memory.
    pub fn memory(runtime: &Runtime, fuse: bool) -> Bed {
        Bed::in_memory(runtime, Options { fuse, ..Options::default() })
    }

    /// In memory, with an engine that starts runs and performs no step.
    pub fn starting(runtime: &Runtime, fuse: bool) -> Bed {
        Bed::in_memory(runtime, Options { fuse, waits: true, ..Options::default() })
    }

    fn in_memory(runtime: &Runtime, options: Options) -> Bed {
        let _inside = runtime.enter();
        let world: Arc<dyn World> = RealWorld::here();
        let records: Arc<dyn Records> = Arc::new(Memory::new(world.clone()));
        let values = Values::new(records.clone(), world.clone(), Default::default());
        let values = values.with_blobs(Arc::new(Objects::memory()));
        Bed::on(records, values, world, options, 0)
    }

    /// On a journal in a directory. A loop ends at `until`.
    pub fn journal(
        runtime: &Runtime,
        path: &Path,
        durability: journal::Durability,
        fuse: bool,
        until: i64,
    ) -> anyhow::Result<Bed> {
        let _inside = runtime.enter();
        let world: Arc<dyn World> = RealWorld::here();
        let (files, written) = Counted::new(path)?;
        let options = journal::Options { durability, ..journal::Options::default() };
        let (journal, _) = Journal::open(files, options, world.clone())?;
        let journal = Arc::new(journal);
        let blobs = runtime.block_on(DirectoryBlobs::open(path.join("blobs")))?;
        let values = Values::new(journal.clone(), world.clone(), Default::default()).with_blobs(Arc::new(blobs));
        let bed = Bed::on(journal.clone(), values, world, Options { fuse, ..Options::default() }, until);
        Ok(Bed { written: Some(written), journal: Some(journal), ..bed })
    }

    fn on(records: Arc<dyn Records>, values: Values, world: Arc<dyn World>, options: Options, until: i64) -> Bed {
        let count = Count::new();
        let engine = Engine::new(records, Arc::new(values), world, options);
        engine.add_tasks(&flows::tasks(&count, until)).expect("a new engine has no other tasks");
        Bed { engine, count, written: None, journal: None, runs: AtomicU64::new(0) }
    }

    /// A start of a flow under a new key. Its history ends with its handle, so that later rounds meet no rows
    /// of earlier ones.
    pub fn start(&self, graph: Graph, input: (&str, Data)) -> Start {
        let key = format!("run {}", self.runs.fetch_add(1, Relaxed));
        let start = Start::new(key, flows::flow(graph)).input(input.0, input.1);
        Start { ends_with_handle: true, ..start }
    }

    /// Runs to the end. `steps` is how many bodies must have run.
    pub async fn run(&self, start: Start, steps: u64) -> anyhow::Result<Did> {
        let before = self.count.ran();
        self.count.first();
        let (starting, cpu) = (Instant::now(), cpu_seconds());
        let handle = self.engine.start(start).await?;
        let answered = Instant::now();
        let report = handle.wait().await?;
        // Bodies that need not wait for the disk may be done before `start`, which does, has answered.
        let begun = answered.min(self.count.first());
        let did = Did {
            steps,
            seconds: begun.elapsed().as_secs_f64(),
            cpu_seconds: cpu_seconds() - cpu,
            start_seconds: (begun - starting).as_secs_f64(),
        };
        ensure!(report.status == RunStatus::Done, "a run did not end well: {report}");
        let ran = self.count.ran() - before;
        ensure!(ran == steps, "{ran} bodies ran, not {steps}");
        Ok(did)
    }

    /// Many runs of a chain at a time, from the first start to the last end.
    pub fn runs(&self, runtime: &Runtime, runs: usize, chain: usize) -> anyhow::Result<Did> {
        let starts: Vec<_> = (0..runs).map(|_| self.start(flows::chain(chain, false), ("x", flows::int(0)))).collect();
        let (start, cpu, before) = (Instant::now(), cpu_seconds(), self.count.ran());
        let run = |start| {
            let engine = self.engine.clone();
            runtime.spawn(async move { engine.start(start).await?.wait().await })
        };
        let running: Vec<_> = starts.into_iter().map(run).collect();
        for run in running {
            let report = runtime.block_on(run)??;
            ensure!(report.status == RunStatus::Done, "a run did not end well: {report}");
        }
        let (steps, expected) = (self.count.ran() - before, (runs * chain) as u64);
        ensure!(steps == expected, "{steps} bodies ran, not {expected}");
        let seconds = start.elapsed().as_secs_f64();
        Ok(Did { steps, seconds, cpu_seconds: cpu_seconds() - cpu, start_seconds: 0.0 })
    }

    /// The writes to the log so far.
    pub fn log(&self) -> LogWrites {
        self.written.as_ref().map(|written| written.so_far()).unwrap_or_default()
    }

    /// Ends everything and lets go of the directory.
    pub fn close(self, runtime: &Runtime) -> anyhow::Result<()> {
        runtime.block_on(self.engine.close())?;
        if let Some(journal) = self.journal {
            runtime.block_on(journal.close())?;
        }
        Ok(())
    }
}
