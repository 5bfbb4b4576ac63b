//! The capability of a backend whose rows are in this process: it answers at once, so a caller needs no future, and keeps
//! its batch.
//!
//! [`Records::in_process`](super::Records::in_process) answers it. A backend elsewhere has none, nor has a wrapper that
//! does not pass it on: their callers wait for the methods of the port, which promise the same.

use super::{CommitResult, Error, Position, Records};
use onceflow_core::{Batch, Key, Row, Shard};

/// Methods of [`Records`] that answer without waiting; `None` where they would have to wait, and nothing changed.
pub trait InProcessRecords: Send + Sync {
    /// Tries a batch, as [`Records::commit`]. `None` if there is no room for it yet.
    fn try_commit(&self, batch: &Batch) -> Option<Result<CommitResult, Error>>;

    /// The content of a row, as [`Records::get`].
    fn peek(&self, shard: Shard, key: &Key) -> Option<Result<Option<Row>, Error>>;

    /// Everything up to `position` would outlive a crash: [`Records::durable`] would succeed at once.
    fn is_durable(&self, position: Position) -> bool;
}

/// Commits a batch that the caller keeps. It is copied only if the store is elsewhere, or has to make room first.
pub async fn commit_kept(records: &dyn Records, batch: &Batch) -> Result<CommitResult, Error> {
    match records.in_process().and_then(|records| records.try_commit(batch)) {
        Some(decided) => decided,
        None => records.commit(batch.clone()).await,
    }
}

/// Reads one row.
pub async fn get_one(records: &dyn Records, shard: Shard, key: Key) -> Result<Option<Row>, Error> {
    match records.in_process().and_then(|records| records.peek(shard, &key)) {
        Some(found) => found,
        None => Ok(records.get(shard, &[key]).await?.pop().flatten()),
    }
}

/// Everything up to `position` is known to outlive a crash. If it is not known, [`Records::durable`] finds out.
pub fn is_durable(records: &dyn Records, position: Position) -> bool {
    records.in_process().is_some_and(|records| records.is_durable(position))
}
