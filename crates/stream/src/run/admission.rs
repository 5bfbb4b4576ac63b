//! Decides which received records are new. Between stages a record's number and stamp are fixed, so the answer is
//! exact: a stamp below the reclaim watermark is a remnant, a number in the catalog is a duplicate, all others are new.
//!
//! The catalog in memory holds committed ids and those of the bundle under way: the same id twice in one bundle counts
//! once. If the bundle is not committed, the partition drops its memory and reads the catalog again, so that the records
//! of that bundle are new when they come again. The catalog is asked for whole blocks, in the bucket of the *sender's*
//! stamp: a retry after a bucket's end asks the same bucket.

use super::keys::{Station, StreamKeys};
use crate::{
    block::RecordBlock,
    catalog::intervals::Intervals,
    data,
    error::StreamError,
    identity::{ProducerId, Stamp},
    seams,
};
use onceflow_core::{Batch, Key, Name, Row};
use std::collections::{BTreeMap, BTreeSet};

/// The answer for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// All its records are below the reclaim watermark.
    Remnant,
    /// None of its records was seen.
    New,
    /// Some were seen: each is asked for.
    Mixed,
}

/// The catalog of a partition for records from other stages.
pub(crate) struct Catalog {
    bucket_us: u64,
    buckets: BTreeMap<u64, BTreeMap<ProducerId, Intervals>>,
    changed: BTreeSet<(u64, ProducerId)>,
}

impl Catalog {
    pub(crate) fn new(bucket_ms: u64) -> Self {
        Catalog { bucket_us: bucket_ms.saturating_mul(1000).max(1), buckets: BTreeMap::new(), changed: BTreeSet::new() }
    }

    /// Takes in a stored row.
    pub(crate) fn load(&mut self, bucket: u64, name: &Name, row: &Row) -> Result<(), StreamError> {
        let damaged = StreamError::Damaged("a row of the catalog cannot be decoded");
        let producer = name.as_bytes().try_into().map(ProducerId::from_bytes).map_err(|_| damaged.clone())?;
        let seen = data::decode(row).map_err(|_| damaged)?;
        self.buckets.entry(bucket).or_default().insert(producer, seen);
        Ok(())
    }

    pub(crate) fn admit(&self, block: &RecordBlock, reclaimed: Stamp) -> Admission {
        if seams::is_remnant(block.stamp(), reclaimed) {
            return Admission::Remnant;
        }
        let is_pending = self.changed.contains(&(self.bucket(block), block.producer()));
        match self.seen(block).filter(|_| seams::consults_pending(is_pending)) {
            Some(seen) if !seen.is_free(block.seqs()) => Admission::Mixed,
            _ => Admission::New,
        }
    }

    fn seen(&self, block: &RecordBlock) -> Option<&Intervals> {
        self.buckets.get(&self.bucket(block))?.get(&block.producer())
    }

    /// The record was seen.
    pub(crate) fn contains(&self, block: &RecordBlock, seq: u64) -> bool {
        self.seen(block).is_some_and(|seen| seen.contains(seq))
    }

    /// Adds ids of a block that this bundle consumes.
    pub(crate) fn add(&mut self, block: &RecordBlock, seqs: std::ops::Range<u64>) {
        let at = (self.bucket(block), block.producer());
        self.buckets.entry(at.0).or_default().entry(at.1).or_default().insert_range(seqs);
        self.changed.insert(at);
    }

    fn bucket(&self, block: &RecordBlock) -> u64 {
        block.stamp().0 / self.bucket_us
    }

    /// Adds the changes of this bundle to its batch, and drops buckets that the reclaim watermark has passed. The batch
    /// stores the watermark too. Returns the buckets that are left.
    pub(crate) fn commit_into(
        &mut self,
        batch: &mut Batch,
        keys: &StreamKeys,
        station: Station,
        reclaimed: Stamp,
    ) -> Vec<u64> {
        for (bucket, producer) in std::mem::take(&mut self.changed) {
            let seen = &self.buckets[&bucket][&producer];
            let key = Key { group: keys.seen(station, bucket), name: Name::new(producer.to_bytes()) };
            batch.put(key, data::encode(seen));
        }
        let live = reclaimed.0 / self.bucket_us;
        let kept = self.buckets.split_off(&live);
        for bucket in std::mem::replace(&mut self.buckets, kept).into_keys() {
            batch.delete_group(keys.seen(station, bucket));
        }
        self.buckets.keys().copied().collect()
    }

    /// Returns how many intervals the catalog has.
    pub(crate) fn intervals(&self) -> u64 {
        self.buckets.values().flat_map(BTreeMap::values).map(|seen| seen.runs() as u64).sum()
    }

    /// Drops every bucket: the partition has ended.
    pub(crate) fn clear_into(&mut self, batch: &mut Batch, keys: &StreamKeys, station: Station) {
        for bucket in std::mem::take(&mut self.buckets).into_keys() {
            batch.delete_group(keys.seen(station, bucket));
        }
        self.changed.clear();
    }
}
