//! A store that stops answering at its n-th call until it is released: a process that was stopped, and continues as if
//! nothing had happened.

use onceflow_core::{Batch, Key, Row, Shard, Timestamp};
use onceflow_store::{BoxFuture, CommitResult, Error, Page, Position, Records, records::Scan};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};
use tokio::sync::Notify;

/// The wrapper of a store that stops at a call.
pub(crate) struct Paused {
    records: Arc<dyn Records>,
    at: u64,
    calls: AtomicU64,
    goes_on: AtomicBool,
    bell: Notify,
}

impl Paused {
    pub(crate) fn new(records: Arc<dyn Records>, at: u64) -> Arc<Self> {
        let (calls, goes_on, bell) = (AtomicU64::new(0), AtomicBool::new(false), Notify::new());
        Arc::new(Paused { records, at, calls, goes_on, bell })
    }

    pub(crate) fn reached(&self) -> bool {
        self.calls.load(SeqCst) >= self.at
    }

    pub(crate) fn go_on(&self) {
        self.goes_on.store(true, SeqCst);
        self.bell.notify_waiters();
    }

    async fn pass(&self) {
        if self.calls.fetch_add(1, SeqCst) + 1 < self.at {
            return;
        }
        loop {
            let rings = self.bell.notified();
            if self.goes_on.load(SeqCst) {
                return;
            }
            rings.await;
        }
    }
}

impl Records for Paused {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        Box::pin(async move {
            self.pass().await;
            self.records.get(shard, keys).await
        })
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(async move {
            self.pass().await;
            self.records.scan(shard, scan).await
        })
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        Box::pin(async move {
            self.pass().await;
            self.records.commit(batch).await
        })
    }

    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), Error>> {
        self.records.durable(position)
    }

    fn position(&self) -> Position {
        self.records.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        Box::pin(async move {
            self.pass().await;
            self.records.now().await
        })
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        self.records.wait(shard, seen, until)
    }
}
