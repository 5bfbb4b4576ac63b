//! A world, a store, a sink in memory and a transport that does its worst: everything a test of a pipeline needs.

use onceflow_core::{Batch, Group, Key, Row, Shard, Timestamp};
use onceflow_store::{
    BoxFuture, CommitResult, Error, Page, Position, Records,
    backend::memory::Memory,
    records::Scan,
    testing::{random::Random, world::TestWorld, world::poll_once},
};
use onceflow_stream::{
    EdgeMode, Pipeline, SinkChunk, SinkWriter, Station, StreamError, StreamMessage, StreamOptions, StreamResult,
    StreamSink, Transport,
};
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
};

/// Collects lines. A chunk that is written again must be the same.
#[derive(Clone, Default)]
pub(crate) struct MemorySink(Arc<Mutex<BTreeMap<(u16, u64), Vec<u8>>>>);

struct Writing(MemorySink, u16);

impl MemorySink {
    /// All lines, sorted.
    pub(crate) fn lines(&self) -> Vec<String> {
        let chunks = self.0.lock().unwrap();
        let mut lines: Vec<String> = chunks
            .values()
            .flat_map(|chunk| String::from_utf8_lossy(chunk).lines().map(String::from).collect::<Vec<_>>())
            .collect();
        lines.sort();
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
        let mut chunks = self.0.0.lock().unwrap();
        let earlier = chunks.insert((self.1, chunk.number), chunk.bytes.to_vec());
        assert!(earlier.is_none_or(|earlier| earlier == *chunk.bytes), "a chunk was written again with other bytes");
        Ok(())
    }
}

/// Adds a line.
pub(crate) fn line(text: &str, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(b'\n');
}

/// Small bundles that never wait for more, short leases: a few records are many commits.
pub(crate) fn options(edges: EdgeMode) -> StreamOptions {
    StreamOptions {
        partitions: 2,
        bundle_records: 7,
        edges,
        bucket_ms: 20,
        resend_ms: 5,
        lease_ms: 30,
        idle_ms: 1,
        gather_ms: 0,
        ..StreamOptions::default()
    }
}

/// A world and a store in memory.
pub(crate) struct Bed {
    pub(crate) world: Arc<TestWorld>,
    pub(crate) store: Arc<dyn Records>,
    /// A millisecond passes after so many turns.
    pub(crate) turns_per_ms: usize,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let world = TestWorld::new(1);
        Bed { store: Arc::new(Memory::new(world.clone())), world, turns_per_ms: 1 }
    }

    /// Runs a pipeline to its end.
    pub(crate) async fn run(&self, pipeline: &Pipeline) -> Result<StreamResult, StreamError> {
        self.run_on(pipeline, self.store.clone(), || false).await.expect("it was not stopped")
    }

    /// Runs a pipeline on another store until it ends or `stops`; then its worker is dropped, as by a kill.
    pub(crate) async fn run_on(
        &self,
        pipeline: &Pipeline,
        store: Arc<dyn Records>,
        stops: impl Fn() -> bool,
    ) -> Option<Result<StreamResult, StreamError>> {
        const TURNS_MAX: usize = 20_000;
        let mut running = pipeline.run(store, self.world.clone());
        for turn in 0..TURNS_MAX * self.turns_per_ms {
            if let Poll::Ready(result) = poll_once(&mut running).await {
                return Some(result);
            }
            // Calls run beside the worker.
            tokio::task::yield_now().await;
            if stops() {
                return None;
            }
            if turn.is_multiple_of(self.turns_per_ms) {
                self.world.advance(1);
            }
        }
        panic!("the pipeline does not end");
    }

    /// The rows that a finished pipeline leaves: its plan and its result.
    pub(crate) async fn rows_left(&self) -> usize {
        let mut rows = 0;
        for group in self.groups() {
            rows += self.store.scan(Shard(0), Scan::of(group, 4096)).await.unwrap().rows.len();
        }
        rows
    }

    fn groups(&self) -> Vec<Group> {
        let mut groups = vec![Group::rows("stream/p"), Group::queue("stream/p"), Group::rows("stream/p/workers")];
        for stage in 0..8u16 {
            for partition in 0..4u16 {
                let station = [stage.to_be_bytes(), partition.to_be_bytes()].concat();
                for what in ["/in", "/out", "/state"] {
                    groups.push(Group::rows([b"stream/p", what.as_bytes(), &station].concat()));
                }
            }
        }
        groups
    }
}

/// Delivers every message up to five times, in any order, late, or not at all.
pub(crate) struct Chaos {
    inner: Mutex<ChaosState>,
}

struct ChaosState {
    random: Random,
    waiting: BTreeMap<Station, VecDeque<(u32, StreamMessage)>>,
}

impl Chaos {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Chaos { inner: Mutex::new(ChaosState { random: Random::new(seed), waiting: BTreeMap::new() }) })
    }
}

impl Transport for Chaos {
    fn send(&self, to: Station, message: StreamMessage) -> BoxFuture<'_, Result<(), Error>> {
        let mut state = self.inner.lock().unwrap();
        let copies = if state.random.percent(15) { 0 } else { 1 + state.random.below(5) };
        for _ in 0..copies {
            let delay = if state.random.percent(20) { state.random.below(60) } else { state.random.below(3) };
            state.waiting.entry(to).or_default().push_back((delay as u32, message.clone()));
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn receive(&self, at: Station) -> BoxFuture<'_, Result<Vec<StreamMessage>, Error>> {
        let mut state = self.inner.lock().unwrap();
        let mut due = Vec::new();
        let waiting = std::mem::take(state.waiting.entry(at).or_default());
        for (delay, message) in waiting {
            match delay {
                0 => due.push(message),
                delay => state.waiting.entry(at).or_default().push_back((delay - 1, message)),
            }
        }
        for at in (1..due.len()).rev() {
            due.swap(at, state.random.below(at + 1));
        }
        Box::pin(std::future::ready(Ok(due)))
    }
}

/// A store whose n-th commit stands still until the gate is opened.
pub(crate) struct Gate {
    pub(crate) store: Arc<dyn Records>,
    pub(crate) commits_left: AtomicUsize,
    pub(crate) is_open: AtomicBool,
}

impl Gate {
    pub(crate) fn is_reached(&self) -> bool {
        self.commits_left.load(SeqCst) == 0
    }
}

impl Records for Gate {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        self.store.get(shard, keys)
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        self.store.scan(shard, scan)
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        Box::pin(async move {
            if self.commits_left.load(SeqCst) > 0 && self.commits_left.fetch_sub(1, SeqCst) == 1 {
                std::future::poll_fn(|_| if self.is_open.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }).await;
            }
            self.store.commit(batch).await
        })
    }

    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), Error>> {
        self.store.durable(position)
    }

    fn position(&self) -> Position {
        self.store.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        self.store.now()
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        self.store.wait(shard, seen, until)
    }
}
