//! A store that keeps something else alive as long as it lives: its directory, its server, its runtime.

use crate::{
    records::{CommitResult, Error, Page, Position, Records, Scan, ServerRecords},
    world::BoxFuture,
};
use onceflow_core::{Batch, Key, Row, Shard, Timestamp, batch::BatchLimits};
use std::sync::Arc;

/// The same store, which also keeps `other` until it is dropped itself. The store is dropped first.
pub fn keep(records: Arc<dyn Records>, other: impl Send + Sync + 'static) -> Arc<dyn Records> {
    Arc::new(Keeping { records, _other: other })
}

struct Keeping<T> {
    records: Arc<dyn Records>,
    _other: T,
}

impl<T: Send + Sync + 'static> Records for Keeping<T> {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        self.records.get(shard, keys)
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        self.records.scan(shard, scan)
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        self.records.commit(batch)
    }

    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), Error>> {
        self.records.durable(position)
    }

    fn position(&self) -> Position {
        self.records.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        self.records.now()
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        self.records.wait(shard, seen, until)
    }

    fn batch_limits(&self) -> BatchLimits {
        self.records.batch_limits()
    }

    fn server(&self) -> Option<&dyn ServerRecords> {
        self.records.server()
    }
}
