//! A test bed: a store in memory, a clock that advances only when everything waits for it, and access to every row.

use super::{Kit, told};
use onceflow_engine::{Engine, Event, EventKind, HISTORY_MS, Options, RunStatus, Start, Summary};
use onceflow_store::{
    Records,
    backend::memory::Memory,
    blobs::{Blobs, Objects},
    testing::world::{TestWorld, poll_once},
    values::{Values, fsck::Mode},
};
use std::{collections::BTreeMap, sync::Arc, task::Poll};

/// Looks without a change in the store, after which everything is taken to wait for time to pass.
const LOOKS: usize = 40;

/// The limit of clock advances, in hundredths, after which a test counts as hanging.
const HANGS_AFTER: usize = 400_000;

/// A store in memory, and a world whose clock the test moves.
#[derive(Clone)]
pub(crate) struct Proof {
    pub(crate) world: Arc<TestWorld>,
    pub(crate) memory: Arc<Memory>,
    blobs: Arc<dyn Blobs>,
    pub(crate) kit: Kit,
}

impl Proof {
    pub(crate) fn new(kit: &Kit) -> Self {
        let world = TestWorld::new(7);
        let memory = Arc::new(Memory::new(world.clone()));
        Proof { world, memory, blobs: Arc::new(Objects::memory()), kit: kit.clone() }
    }

    pub(crate) fn values(&self, records: Arc<dyn Records>) -> Arc<Values> {
        let values = Values::new(records, self.world.clone(), Default::default());
        Arc::new(values.with_blobs(self.blobs.clone()))
    }

    /// An engine on this store, or on a wrapper of it.
    pub(crate) fn engine_on(&self, records: Arc<dyn Records>, options: Options) -> Engine {
        let values = self.values(records.clone());
        let engine = Engine::new(records, values, self.world.clone(), options);
        engine.add_tasks(&self.kit.tasks).expect("no two tasks of one name");
        engine
    }

    pub(crate) fn engine(&self) -> Engine {
        self.engine_on(self.memory.clone(), Options::default())
    }

    /// Drives a future to its end. The clock advances when nothing else happens.
    pub(crate) async fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let (mut seen, mut looks, mut passed) = (self.memory.position(), 0, 0);
        loop {
            if let Poll::Ready(done) = poll_once(&mut future).await {
                return done;
            }
            tokio::task::yield_now().await;
            let position = self.memory.position();
            looks = if position == seen { looks + 1 } else { 0 };
            seen = position;
            if looks > LOOKS {
                // If nothing waits for the clock, a thread is reading or writing a file.
                (looks, passed) = (0, passed + if self.world.advance_to_next() { 100 } else { 1 });
                assert!(passed < HANGS_AFTER, "nothing happens any more; there are\n{}", self.rows());
                std::thread::yield_now();
            }
        }
    }

    /// Lets everything run that needs no time to pass.
    pub(crate) async fn calm(&self) {
        let (mut seen, mut looks) = (self.memory.position(), 0);
        while looks < LOOKS {
            tokio::task::yield_now().await;
            let position = self.memory.position();
            looks = if position == seen { looks + 1 } else { 0 };
            seen = position;
        }
    }

    /// Runs to the end with a new engine, and returns the outputs or failures as text.
    pub(crate) async fn run(&self, start: Start) -> String {
        let engine = self.engine();
        let answer = self.drive(self.run_on(&engine, start)).await;
        self.drive(engine.close()).await.unwrap();
        answer
    }

    pub(crate) async fn run_on(&self, engine: &Engine, start: Start) -> String {
        match engine.start(start).await {
            Err(error) => error.to_string(),
            Ok(handle) => match handle.wait().await.unwrap() {
                Summary { status: RunStatus::Done, outputs, .. } => told(&handle, outputs).await,
                other => other.to_string(),
            },
        }
    }

    /// The number of rows of each group.
    pub(crate) fn rows(&self) -> String {
        let mut groups = BTreeMap::<String, usize>::new();
        for (_, key, _) in self.memory.state().all() {
            let kind = format!("{:?}", key.group.kind()).to_lowercase();
            let id = String::from_utf8_lossy(key.group.id()).into_owned();
            *groups.entry(format!("{kind} {id:?}")).or_default() += 1;
        }
        groups.into_iter().map(|(group, n)| format!("{group}: {n}")).collect::<Vec<_>>().join("\n")
    }

    async fn reclaim(&self) {
        let values = self.values(self.memory.clone());
        while self.drive(values.reclaim(usize::MAX)).await.unwrap().more {}
    }

    /// Advances the clock until abandoned uploads are removed.
    pub(crate) fn forget_uploads(&self) {
        let is_upload = |(_, key, _): &(_, onceflow_core::Key, _)| key.group.id() == b"values.uploads";
        if self.memory.state().all().iter().any(is_upload) {
            self.world.advance(onceflow_store::values::limits::UPLOAD_MS_MAX + 1);
        }
    }

    /// Advances the clock until values that were put ahead of a batch that never came are removed.
    async fn forget_ahead(&self) {
        let is_ahead = |(_, key, _): &(_, onceflow_core::Key, _)| {
            key.group.id() == b"values.edges" && key.name.as_bytes().starts_with(b"rahead")
        };
        self.reclaim().await;
        while self.memory.state().all().iter().any(is_ahead) {
            self.world.advance(onceflow_store::values::limits::HOLD_MS);
            self.reclaim().await;
        }
    }

    /// No step is at work: each run has only its head row, its removal schedule, its outputs, its program, its reasons,
    /// and its sealed record.
    pub(crate) async fn only_what_remains(&self) {
        const MAY: [&str; 8] = [
            "runs",
            "runs.due",
            "values",
            "values.counts",
            "values.edges",
            "values.due",
            "values.sealed",
            "values.sweeper",
        ];
        self.forget_ahead().await;
        for (_, key, row) in self.memory.state().all() {
            let group = String::from_utf8_lossy(key.group.id()).into_owned();
            let is_why = key.group.id().first() == Some(&b'W');
            assert!(is_why || MAY.contains(&group.as_str()), "{key} is left: {row:?}\n{}", self.rows());
            let name = key.name.as_bytes();
            let is_root = name.first() == Some(&ROOT_EDGE);
            let is_result = name.windows(6).any(|part| part == b"result");
            assert!(group != "values.edges" || !is_root || is_result, "edge {key} is left\n{}", self.rows());
        }
        self.fsck().await;
    }

    pub(crate) async fn fsck(&self) {
        let report = self.drive(self.values(self.memory.clone()).fsck(Mode::Check)).await.unwrap();
        assert!(report.is_clean() && report.lost.is_empty(), "{report}");
    }

    /// Ends the history of every run: no row is left.
    pub(crate) async fn nothing_remains(&self) {
        const HOUR_MS: u64 = 3_600_000;
        let engine = self.engine();
        self.world.advance(HISTORY_MS);
        // The sweeper was away, and extends deadlines by up to a day for that.
        for _ in 0..30 {
            self.world.advance(HOUR_MS);
            self.calm().await;
            if self.memory.state().all().is_empty() {
                break;
            }
        }
        self.drive(engine.close()).await.unwrap();
        self.reclaim().await;
        // Files are removed on threads of their own, for which the clock does not wait: the sweeper may have been late
        // again, and have extended deadlines again. Driven in time, everything is removed.
        let values = self.values(self.memory.clone());
        while let Some(next) = self.drive(values.reclaim(usize::MAX)).await.unwrap().next_deadline {
            self.world.advance(next.ms_since(onceflow_store::World::clock(&*self.world)).max(1));
        }
        self.fsck().await;
        let left = self.memory.state().all();
        let left: Vec<_> = left.iter().filter(|(_, key, _)| key.group.id() != b"values.sweeper").collect();
        assert!(left.is_empty(), "left:\n{}\n{left:?}", self.rows());
        let objects = self.blobs.list(None, 10).await.unwrap().objects;
        assert!(objects.is_empty(), "objects are left: {objects:?}");
    }

    /// Runs, compares the outputs, and checks the remaining rows, now and after the history.
    pub(crate) async fn prove(&self, start: Start, expected: &str) {
        assert_eq!(self.run(start).await, expected);
        self.once();
        self.only_what_remains().await;
        self.nothing_remains().await;
    }

    /// Every body ran once.
    pub(crate) fn once(&self) {
        let log = self.kit.log.lock().unwrap();
        let more: Vec<_> = log.iter().filter(|(_, n)| **n != 1).collect();
        assert!(more.is_empty(), "ran more than once: {more:?}");
    }
}

/// The first byte of the name of an edge that is a root.
const ROOT_EDGE: u8 = b'r';

/// The number of commits of each step, by the events of an engine.
pub(crate) fn commits(events: &mut tokio::sync::mpsc::UnboundedReceiver<Event>) -> BTreeMap<String, usize> {
    let mut commits = BTreeMap::new();
    while let Ok(event) = events.try_recv() {
        if let EventKind::DidCommit { address } = event.kind {
            *commits.entry(address).or_default() += 1;
        }
    }
    commits
}
