//! A pipeline on a new store, from its first look at the store to its end; and a sink that keeps what it was given.

use anyhow::Context;
use onceflow_bench::{disk::Scratch, program::scaled, rounds::Turn};
use onceflow_store::{Store, world::RealWorld};
use onceflow_stream::{Pipeline, SinkChunk, SinkWriter, StreamOptions, StreamResult, StreamSink};
use std::{
    cell::Cell,
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};
use tokio::runtime::Runtime;

/// Stores, each in a directory of its own that goes when the store was used.
pub(super) struct Bed<'a> {
    pub(super) runtime: &'a Runtime,
    pub(super) scratch: Scratch,
    stores: Cell<u64>,
}

/// A pipeline that ran to its end.
pub(super) struct Ran {
    pub(super) seconds: f64,
    pub(super) result: StreamResult,
}

impl Ran {
    /// Compared as a rate of records.
    pub(super) fn rate(&self, records: u64) -> Turn {
        Turn { figure: records as f64 / self.seconds, seconds: self.seconds }
    }

    /// The counts of the stage whose steps include this one.
    pub(super) fn counts(&self, step: &str) -> anyhow::Result<onceflow_stream::Counts> {
        let stage = self.result.stages.iter().find(|stage| stage.name.split(" → ").any(|name| name == step));
        Ok(stage.with_context(|| format!("no stage has a step {step}"))?.counts)
    }
}

impl Bed<'_> {
    pub(super) fn new<'a>(runtime: &'a Runtime, name: &str) -> anyhow::Result<Bed<'a>> {
        Ok(Bed { runtime, scratch: Scratch::new(&format!("streams-{name}"))?, stores: Cell::new(0) })
    }

    /// Runs a pipeline to its end on a new journal, by so many workers.
    pub(super) fn run(&self, pipeline: &Pipeline, workers: usize) -> anyhow::Result<Ran> {
        self.run_on("journal", pipeline, workers)
    }

    /// As [`Bed::run`], on a backend.
    pub(super) fn run_on(&self, backend: &str, pipeline: &Pipeline, workers: usize) -> anyhow::Result<Ran> {
        let directory = self.scratch.join(&format!("store-{}", self.stores.replace(self.stores.get() + 1)));
        let url = format!("{backend}:{}", directory.display());
        let ran = self.runtime.block_on(async {
            let store = Store::open_url(&url).await?;
            let start = Instant::now();
            let runs = (0..workers).map(|_| pipeline.run(store.records(), RealWorld::here()));
            let runs: Vec<_> = runs.map(|run| tokio::spawn(run)).collect();
            let mut result = None;
            for run in runs {
                result = Some(run.await??);
            }
            let seconds = start.elapsed().as_secs_f64();
            store.close().await?;
            anyhow::Ok(Ran { seconds, result: result.context("no worker ran")? })
        })?;
        std::fs::remove_dir_all(&directory)?;
        Ok(ran)
    }
}

/// The options of a pipeline whose bundles take so many records. A lease that no busy machine outlives by accident.
pub(super) fn options(bundle_records: usize) -> StreamOptions {
    StreamOptions { bundle_records, lease_ms: 60_000, idle_ms: 2, ..StreamOptions::default() }
}

/// So many records, scaled, and at least enough for some bundles.
pub(super) fn records(many: u64) -> u64 {
    scaled(many, 50_000)
}

type Chunks = BTreeMap<(u16, u64), Vec<u8>>;

/// Keeps its chunks by partition and number: one that is written again counts once.
#[derive(Clone, Default)]
pub(super) struct MemorySink(Arc<Mutex<Chunks>>);

struct Writing(MemorySink, u16);

impl MemorySink {
    /// All lines, sorted; the sink is empty afterwards.
    pub(super) fn take_lines(&self) -> Vec<String> {
        let chunks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let text = |chunk: &Vec<u8>| String::from_utf8_lossy(chunk).lines().map(str::to_owned).collect::<Vec<_>>();
        let mut lines: Vec<String> = chunks.values().flat_map(text).collect();
        lines.sort_unstable();
        lines
    }
}

impl StreamSink for MemorySink {
    fn open(&self, partition: u16, _: u16) -> io::Result<Box<dyn SinkWriter>> {
        Ok(Box::new(Writing(self.clone(), partition)))
    }
}

impl SinkWriter for Writing {
    fn write(&mut self, chunk: &SinkChunk) -> io::Result<()> {
        let mut chunks = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        chunks.insert((self.1, chunk.number), chunk.bytes.to_vec());
        Ok(())
    }
}
