//! The state that a pipeline is asked for from outside: paused, drained, cancelled. It is one row, so it survives every
//! process; the batch that changes it rings, and workers that wait on the store wake and read it.

use super::{
    installed::{InstalledPlan, InstalledStage},
    keys::StreamKeys,
    meta::Meta,
    partition::SHARD,
};
use crate::{data, error::StreamError};
use onceflow_core::{Batch, Row, Timestamp};
use onceflow_store::{
    Records,
    records::{commit_durably, get_one},
};
use serde::{Deserialize, Serialize};

/// The row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Desired {
    /// Sources are not read, and workers rest once everything that was read is finished.
    pub(crate) is_paused: bool,
    /// Workers that began at this time of the store's clock, in milliseconds, or before drain; 0 means none.
    drain_until_ms: u64,
    /// The pipeline is given up: no bundle can be committed any more.
    pub(crate) is_cancelled: bool,
}

impl Desired {
    pub(crate) fn from_row(row: Option<&Row>) -> Result<Self, StreamError> {
        match row {
            None => Ok(Desired::default()),
            Some(row) => {
                data::decode(row).map_err(|_| StreamError::Damaged("the row of the desired state cannot be decoded"))
            }
        }
    }

    /// A worker that began then drains.
    pub(crate) fn drains(self, began: Timestamp) -> bool {
        self.drain_until_ms > 0 && began.as_ms() <= self.drain_until_ms
    }
}

/// Pauses a pipeline: its workers read no more from sources, finish what was read, and then rest until it is
/// [resumed](resume). Positions, state and open windows stay; timers on the clock wait. It stays paused whatever happens to
/// its workers, and those that begin meanwhile rest too. False if it was paused before.
///
/// # Errors
/// If there is no such pipeline, it has ended or was cancelled, or the store does not answer.
pub async fn pause(records: &dyn Records, name: &str) -> Result<bool, StreamError> {
    change(records, name, |desired, _| desired.is_paused = true).await
}

/// Lets a paused pipeline go on; false if it was not paused.
///
/// # Errors
/// If there is no such pipeline, it has ended or was cancelled, or the store does not answer.
pub async fn resume(records: &dyn Records, name: &str) -> Result<bool, StreamError> {
    change(records, name, |desired, _| desired.is_paused = false).await
}

/// Asks all workers that a pipeline has now, in every process, to [drain](crate::StreamControl::drain). Workers that begin
/// later are not asked.
///
/// # Errors
/// If there is no such pipeline, it has ended or was cancelled, or the store does not answer.
pub async fn drain(records: &dyn Records, name: &str) -> Result<(), StreamError> {
    change(records, name, |desired, now| desired.drain_until_ms = now.as_ms()).await.map(drop)
}

/// Gives a pipeline up, with its state: from the moment of the commit on no worker can commit anything. What its sinks have
/// written stays; the last results may not be written. False if it was cancelled before. Stopped in the middle, it
/// can be repeated.
///
/// # Errors
/// If there is no such pipeline, or it has ended, or the store does not answer.
pub async fn cancel(records: &dyn Records, name: &str) -> Result<bool, StreamError> {
    let is_new = match change(records, name, |desired, _| desired.is_cancelled = true).await {
        Err(StreamError::Cancelled { .. }) => false,
        changed => changed?,
    };
    let keys = StreamKeys::new(name);
    let Some(row) = get_one(records, SHARD, keys.plan()).await? else { return Ok(is_new) };
    for station in InstalledPlan::from_row(name, &row)?.stages.iter().flat_map(InstalledStage::stations) {
        let mut batch = Batch::new(SHARD);
        batch.delete_group(keys.inbox(station)).delete_group(keys.state(station));
        if let Some(row) = get_one(records, SHARD, keys.meta(station)).await? {
            for group in Meta::from_row(&row)?.catalog_groups(&keys, station) {
                batch.delete_group(group);
            }
        }
        let _always_applied = records.commit(batch).await?;
    }
    Ok(is_new)
}

/// Changes the row, durably; false if it is so already.
async fn change(
    records: &dyn Records,
    name: &str,
    change: impl Fn(&mut Desired, Timestamp),
) -> Result<bool, StreamError> {
    let keys = StreamKeys::new(name);
    loop {
        let rows = records.get(SHARD, &[keys.plan(), keys.result(), keys.desired()]).await?;
        let [plan, result, row] = <[_; 3]>::try_from(rows).map_err(|_| StreamError::Damaged("rows are missing"))?;
        let plan = plan.ok_or_else(|| StreamError::Unknown { name: name.to_owned() })?;
        if result.is_some() {
            return Err(StreamError::Ended { name: name.to_owned() });
        }
        let before = Desired::from_row(row.as_ref())?;
        if before.is_cancelled {
            return Err(StreamError::Cancelled { name: name.to_owned() });
        }
        let mut desired = before;
        change(&mut desired, records.now().await?);
        if desired == before {
            return Ok(false);
        }
        let mut batch = Batch::new(SHARD);
        batch.require_equals(keys.plan(), plan).require_absent(keys.result()).require_seen(keys.desired(), row);
        batch.put(keys.desired(), Row::from(data::encode(&desired)));
        if desired.is_cancelled {
            // Without its claim no worker commits, and without the queue none has a claim.
            let queue = keys.queue();
            for group in [queue.claims(), queue.deadlines(), queue] {
                batch.delete_group(group);
            }
        }
        batch.ring();
        if commit_durably(records, batch).await?.is_applied() {
            return Ok(true);
        }
    }
}
