//! The reference backend: plain maps behind a lock. Everything it holds is gone with it, so everything is as
//! durable as it gets at once.

use super::{
    clock::StoreClock,
    shared::{check_get, wait_for},
};
use crate::{
    records::{CommitResult, Error, InProcessRecords, Page, Position, Records, Scan},
    state::{NoEffects, StoreState},
    sync::{Mutex, lock},
    wake::Signal,
    world::{BoxFuture, World},
};
use onceflow_core::{Batch, Key, Row, Shard, Timestamp, batch::BatchLimits};
use std::sync::Arc;

/// A store in memory.
pub struct Memory {
    world: Arc<dyn World>,
    inner: Mutex<Inner>,
    enabled: Signal,
}

#[derive(Default)]
struct Inner {
    state: StoreState,
    position: Position,
    clock: StoreClock,
}

impl Memory {
    /// An empty store.
    pub fn new(world: Arc<dyn World>) -> Self {
        Memory { world, inner: Mutex::default(), enabled: Signal::default() }
    }

    /// A copy of all rows.
    pub fn state(&self) -> StoreState {
        lock(&self.inner).state.clone()
    }

    fn commit_now(&self, batch: &Batch) -> Result<CommitResult, Error> {
        batch.check_within(BatchLimits::EMBEDDED)?;
        let world = self.world.clock();
        let mut inner = lock(&self.inner);
        let now = inner.clock.read(world);
        let position = inner.position;
        let (outcome, enabled) = inner.state.apply_checked(batch, (position, now), &mut NoEffects)?;
        inner.position = outcome.position();
        if enabled {
            inner.state.note_enabled(batch.shard, outcome.position());
            drop(inner);
            self.enabled.notify();
        }
        Ok(outcome)
    }
}

impl Records for Memory {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        let answer = check_get(keys).map(|()| {
            let inner = lock(&self.inner);
            keys.iter().map(|key| inner.state.get(shard, key).cloned()).collect()
        });
        Box::pin(std::future::ready(answer))
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(std::future::ready(Ok(lock(&self.inner).state.scan(shard, &scan))))
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        Box::pin(std::future::ready(self.commit_now(&batch)))
    }

    fn durable(&self, _: Position) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn position(&self) -> Position {
        lock(&self.inner).position
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        let now = lock(&self.inner).clock.read(self.world.clock());
        Box::pin(std::future::ready(Ok(now)))
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let now = self.now().await?;
            let look = || (lock(&self.inner).state.enabled_at(shard) > seen).then_some(());
            wait_for(&*self.world, &self.enabled, look, until.ms_since(now)).await;
            Ok(())
        })
    }

    fn batch_limits(&self) -> BatchLimits {
        BatchLimits::EMBEDDED
    }

    fn in_process(&self) -> Option<&dyn InProcessRecords> {
        Some(self)
    }
}

impl InProcessRecords for Memory {
    fn try_commit(&self, batch: &Batch) -> Option<Result<CommitResult, Error>> {
        Some(self.commit_now(batch))
    }

    fn peek(&self, shard: Shard, key: &Key) -> Option<Result<Option<Row>, Error>> {
        Some(Ok(lock(&self.inner).state.get(shard, key).cloned()))
    }

    fn is_durable(&self, position: Position) -> bool {
        position <= self.position()
    }
}
