//! Records that count what is asked of them, by kind, and can keep the batches.

use onceflow_core::{Batch, Group, Key, Kind, Name, Row, Shard, Timestamp, batch::BatchLimits};
use onceflow_store::{
    CommitResult, Records,
    records::{Error, Page, Position, Scan, ServerRecords, SweepReport, SweepRequest, UnorderedPage},
    world::BoxFuture,
};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// How often each kind of call was made.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) steps: AtomicU64,
    /// Commits that only claim: a worker was woken and looks for work.
    pub(super) looks: AtomicU64,
    /// Commits that only move deadlines.
    pub(super) heartbeats: AtomicU64,
    pub(super) scans: AtomicU64,
    /// Looks at the clock, also those of a wait.
    pub(super) nows: AtomicU64,
    /// Calls that sweep values: what earlier steps left.
    pub(super) sweeps: AtomicU64,
    kept: Mutex<Option<Vec<Batch>>>,
}

impl Calls {
    /// Keeps batches from now on.
    pub(super) fn keep(&self) {
        *self.kept.lock().expect("no thread panics while it holds the lock") = Some(vec![]);
    }

    /// Those that were kept.
    pub(super) fn kept(&self) -> Vec<Batch> {
        self.kept.lock().expect("no thread panics while it holds the lock").take().unwrap_or_default()
    }

    /// Scripts called that are not a step's: looks, heartbeats, scans and the clock.
    pub(super) fn others(&self) -> u64 {
        [&self.looks, &self.heartbeats, &self.scans, &self.nows].iter().map(|count| count.load(Relaxed)).sum()
    }

    fn count(&self, batch: &Batch) {
        let is_deadline = |op: &onceflow_core::Op| match op {
            onceflow_core::Op::Put(key, _) => key.group.kind() == Kind::Deadlines,
            _ => false,
        };
        let kind = match (batch.ops.is_empty(), batch.claim.is_some()) {
            (true, true) => &self.looks,
            (false, false) if batch.ops.iter().all(is_deadline) => &self.heartbeats,
            _ => &self.steps,
        };
        kind.fetch_add(1, Relaxed);
        if let Some(kept) = &mut *self.kept.lock().expect("no thread panics while it holds the lock") {
            kept.push(batch.clone());
        }
    }
}

/// Records, watched.
pub(super) struct Watched {
    pub(super) records: Arc<dyn Records>,
    pub(super) calls: Arc<Calls>,
}

impl Records for Watched {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        self.records.get(shard, keys)
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        self.calls.scans.fetch_add(1, Relaxed);
        self.records.scan(shard, scan)
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        self.calls.count(&batch);
        self.records.commit(batch)
    }

    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), Error>> {
        self.records.durable(position)
    }

    fn position(&self) -> Position {
        self.records.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        self.calls.nows.fetch_add(1, Relaxed);
        self.records.now()
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        self.records.wait(shard, seen, until)
    }

    fn batch_limits(&self) -> BatchLimits {
        self.records.batch_limits()
    }

    fn server(&self) -> Option<&dyn ServerRecords> {
        self.records.server().map(|_| self as &dyn ServerRecords)
    }
}

impl Watched {
    fn watched_server(&self) -> &dyn ServerRecords {
        self.records.server().expect("asked of a store on a server only")
    }
}

impl ServerRecords for Watched {
    fn check_store(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.watched_server().check_store()
    }

    fn walk(
        &self,
        shard: Shard,
        group: Group,
        from: Option<Name>,
        limit: usize,
    ) -> BoxFuture<'_, Result<UnorderedPage, Error>> {
        self.watched_server().walk(shard, group, from, limit)
    }

    fn inconsistencies(&self, shard: Shard) -> BoxFuture<'_, Result<Vec<String>, Error>> {
        self.watched_server().inconsistencies(shard)
    }

    fn concurrent_sweeps(&self) -> usize {
        self.watched_server().concurrent_sweeps()
    }

    fn sweep(&self, shard: Shard, ask: SweepRequest) -> BoxFuture<'_, Result<Option<SweepReport>, Error>> {
        self.calls.sweeps.fetch_add(1, Relaxed);
        self.watched_server().sweep(shard, ask)
    }
}
