//! The claim of a worker on a partition, with the rows of the store's queues: a claim is a fence, and every bundle
//! requires it. All use of claims is in this file, so that it can move to the kernel that flows use.

use super::{
    keys::{Station, StreamKeys},
    partition::SHARD,
};
use onceflow_core::{Batch, Claim, Fence, Fences, Key, Name, Pick, Row, Timestamp, limits::SCAN_ROWS_MAX};
use onceflow_store::{
    Error, Records,
    records::{Scan, get_one},
};
use std::collections::BTreeSet;

/// A partition that this worker has claimed.
#[derive(Clone, Debug)]
pub(crate) struct PartitionClaim {
    pub(crate) station: Station,
    fence: Fence,
}

impl PartitionClaim {
    /// Claims a free partition; `None` if there is none.
    pub(crate) async fn take(
        records: &dyn Records,
        keys: &StreamKeys,
        fences: &Fences,
        lease_ms: u64,
    ) -> Result<Option<Self>, Error> {
        let fence = fences.next();
        let mut batch = Batch::new(SHARD);
        batch.claim(Claim { queues: vec![keys.queue()], fence, ttl_ms: lease_ms, pick: Pick::InTurn });
        let claimed = records.commit(batch).await?.applied().and_then(|committed| committed.claimed);
        let station = claimed.and_then(|claimed| Station::from_bytes(claimed.name.as_bytes()));
        Ok(station.map(|station| PartitionClaim { station, fence }))
    }

    pub(crate) fn key(&self, keys: &StreamKeys) -> Key {
        keys.queue().claims().key(self.station.to_bytes())
    }

    pub(crate) fn row(&self) -> Row {
        Row::new(self.fence.to_bytes())
    }

    /// Moves the deadline of the claim; false if another worker has the partition.
    pub(crate) async fn renew(
        &self,
        records: &dyn Records,
        keys: &StreamKeys,
        until: Timestamp,
    ) -> Result<bool, Error> {
        let mut batch = Batch::new(SHARD);
        batch.require_equals(self.key(keys), self.row());
        batch.put(keys.queue().deadlines().key(self.station.to_bytes()), Row::new(until.to_sortable()));
        Ok(records.commit(batch).await?.is_applied())
    }

    /// Gives the partition back.
    pub(crate) async fn release(&self, records: &dyn Records, keys: &StreamKeys) -> Result<(), Error> {
        let mut batch = Batch::new(SHARD);
        batch.require_equals(self.key(keys), self.row());
        batch.delete(self.key(keys)).delete(keys.queue().deadlines().key(self.station.to_bytes()));
        let _refused_if_lost = records.commit(batch).await?;
        Ok(())
    }

    /// Removes the partition from the queue: it has ended.
    pub(crate) fn delete_into(&self, batch: &mut Batch, keys: &StreamKeys) {
        let name = Name::new(self.station.to_bytes());
        let queue = keys.queue();
        for group in [queue.clone(), queue.claims(), queue.deadlines()] {
            batch.delete(Key { group, name: name.clone() });
        }
    }
}

/// Frees partitions whose workers were killed, or have sent no heartbeat for too long. Requires what was read, so a
/// heartbeat wins.
pub(crate) async fn free_expired(
    records: &dyn Records,
    keys: &StreamKeys,
    now: Timestamp,
    killed: &BTreeSet<u128>,
) -> Result<(), Error> {
    let (claims, deadlines) = (keys.queue().claims(), keys.queue().deadlines());
    for (name, row) in records.scan(SHARD, Scan::of(deadlines.clone(), SCAN_ROWS_MAX)).await?.rows {
        let (claim, deadline) =
            (Key { group: claims.clone(), name: name.clone() }, Key { group: deadlines.clone(), name });
        let is_expired = Timestamp::from_sortable(&row).is_none_or(|deadline| deadline <= now);
        if !is_expired {
            if killed.is_empty() {
                continue;
            }
            let held = get_one(records, SHARD, claim.clone()).await?;
            let holder = held.and_then(|row| Fence::from_bytes(&row)).map(Fence::incarnation);
            if !holder.is_some_and(|holder| killed.contains(&holder)) {
                continue;
            }
        }
        let mut batch = Batch::new(SHARD);
        batch.require_present(claim.clone()).require_equals(deadline.clone(), row);
        batch.delete(claim).delete(deadline);
        let _refused_if_renewed = records.commit(batch).await?;
    }
    Ok(())
}
