//! The rows that announce workers, and which of the workers live. A worker that was killed is known from its lock file, if
//! it is seen from here; any other, once its lease has ended.

use super::{keys::StreamKeys, partition::SHARD};
use crate::data;
use onceflow_core::{Name, Row, Timestamp, limits::SCAN_ROWS_MAX};
use onceflow_store::{
    Error, Records,
    alive::{self, Alive, LockDirectory},
    records::Scan,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, path::Path};

/// The row of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerRow {
    /// Its lease ends then, unless it renews it.
    pub(crate) until_ms: u64,
    /// It began at this time of the store's clock.
    pub(crate) began_ms: u64,
    /// The directory in which it holds a lock file while its process lives.
    pub(crate) locks: Option<LockDirectory>,
}

impl WorkerRow {
    pub(crate) fn to_row(&self) -> Row {
        Row::from(data::encode(self))
    }
}

/// The name of a worker's lock file.
fn lock_name(incarnation: u128) -> String {
    format!("{incarnation:032x}")
}

/// Makes the lock file of a worker; without one, others wait for the end of its lease.
pub(crate) fn lock(directory: Option<&Path>, incarnation: u128) -> Option<Alive> {
    let directory = directory?;
    let locked = Alive::begin(directory, &lock_name(incarnation));
    locked
        .inspect_err(|error| {
            tracing::warn!(%error, directory = %directory.display(), "failed to make the lock file of a stream's worker");
        })
        .ok()
}

/// The workers of a pipeline as their rows say.
#[derive(Default)]
pub(crate) struct WorkerRows {
    /// The times at which those that live began.
    pub(crate) live: Vec<Timestamp>,
    /// Workers whose process has ended.
    pub(crate) killed: BTreeSet<u128>,
    /// The rows of workers that do not live.
    pub(crate) gone: Vec<(Name, Row)>,
}

impl WorkerRows {
    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }
}

/// Reads the rows of all workers.
pub(crate) async fn read(records: &dyn Records, keys: &StreamKeys, locks: Option<&Path>) -> Result<WorkerRows, Error> {
    let (now, here) = (records.now().await?, locks.and_then(LockDirectory::at));
    let mut workers = WorkerRows::default();
    for (name, row) in records.scan(SHARD, Scan::of(keys.workers(), SCAN_ROWS_MAX)).await?.rows {
        let incarnation = <[u8; 16]>::try_from(name.as_bytes()).map(u128::from_be_bytes).ok();
        let known = incarnation.zip(data::decode::<WorkerRow>(&row).ok());
        let has_ended = known.as_ref().and_then(|(incarnation, worker)| {
            let directory = locks.filter(|_| here.is_some() && worker.locks == here)?;
            alive::has_ended(&directory.join(lock_name(*incarnation))).ok()
        });
        let is_live = match (has_ended, &known) {
            (Some(has_ended), _) => !has_ended,
            (None, Some((_, worker))) => Timestamp::from_ms(worker.until_ms) > now,
            (None, None) => false,
        };
        if is_live {
            workers.live.extend(known.map(|(_, worker)| Timestamp::from_ms(worker.began_ms)));
            continue;
        }
        workers.killed.extend(incarnation.filter(|_| has_ended == Some(true)));
        workers.gone.push((name, row));
    }
    Ok(workers)
}
