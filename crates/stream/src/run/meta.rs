//! The row of a partition that every bundle replaces: bundle number, positions, sequence numbers, watermarks, counts.
//! A bundle requires the row as it was read, so of two writers one is refused, and repeating a bundle is harmless.

use super::keys::{Station, StreamKeys};
use crate::{
    data,
    error::StreamError,
    event_time::EventTime,
    identity::{Stamp, Stamper},
    pipeline::sink::SinkChunk,
};
use onceflow_core::{Group, Row};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Everything about a partition that changes with every bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    /// How many bundles were committed.
    pub(crate) bundle: u64,
    /// Where each split of a source stands.
    pub(crate) positions: Vec<Option<Vec<u8>>>,
    /// For each outgoing edge and destination, the number of the next record.
    pub(crate) next_seq: Vec<Vec<u64>>,
    pub(crate) stamper: Stamper,
    /// For each sink, the place of the next chunk.
    pub(crate) chunks: Vec<ChunkPlace>,
    /// The block in the inbox that was consumed in part, and how many of its records.
    pub(crate) consumed: Option<(Vec<u8>, u64)>,
    /// Senders (edge, partition) on retry edges that have sent their last block.
    pub(crate) ended_senders: BTreeSet<(u16, u16)>,
    /// The end was sent on all retry edges.
    pub(crate) end_sent: bool,
    pub(crate) watermark_in: EventTime,
    pub(crate) watermark_out: EventTime,
    /// Records with an earlier stamp are remnants.
    pub(crate) reclaimed: Stamp,
    /// Time buckets of the catalog that have a group.
    pub(crate) buckets: Vec<u64>,
    pub(crate) client_ids: ClientIdsMeta,
    pub(crate) catalog: CatalogSize,
    pub(crate) counts: Counts,
    pub(crate) has_ended: bool,
}

impl Meta {
    pub(crate) fn new(splits: usize, destinations: &[usize], sinks: usize) -> Self {
        Meta {
            bundle: 0,
            positions: vec![None; splits],
            next_seq: destinations.iter().map(|count| vec![0; *count]).collect(),
            stamper: Stamper::default(),
            chunks: vec![ChunkPlace::default(); sinks],
            consumed: None,
            ended_senders: BTreeSet::new(),
            end_sent: false,
            watermark_in: EventTime::MIN,
            watermark_out: EventTime::MIN,
            reclaimed: Stamp::ZERO,
            buckets: Vec::new(),
            client_ids: ClientIdsMeta::default(),
            catalog: CatalogSize::default(),
            counts: Counts::default(),
            has_ended: false,
        }
    }

    /// Returns the groups of its catalogs: one for every time bucket.
    pub(crate) fn catalog_groups(&self, keys: &StreamKeys, station: Station) -> Vec<Group> {
        let seen = self.buckets.iter().map(|bucket| keys.seen(station, *bucket));
        seen.chain(self.client_ids.buckets.iter().map(|bucket| keys.client_ids(station, *bucket))).collect()
    }

    pub(crate) fn to_row(&self) -> Row {
        Row::from(data::encode(self))
    }

    pub(crate) fn from_row(row: &Row) -> Result<Self, StreamError> {
        data::decode(row).map_err(|_| StreamError::Damaged("the meta row of a partition cannot be decoded"))
    }
}

/// Where a sink's next chunk goes, and the CRC-32 of everything before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChunkPlace {
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) crc: u32,
}

impl ChunkPlace {
    /// Returns the chunk at this place, and moves on behind it.
    pub(crate) fn take(&mut self, bytes: Vec<u8>) -> SinkChunk {
        let ChunkPlace { number, offset, crc } = *self;
        let mut hasher = crc32fast::Hasher::new_with_initial_len(crc, offset);
        hasher.update(&bytes);
        *self = ChunkPlace { number: number + 1, offset: offset + bytes.len() as u64, crc: hasher.finalize() };
        SinkChunk { part: String::new(), number, offset, crc_before: crc, bytes: Row::from(bytes) }
    }

    /// Returns the chunk at this place of a part; the numbers are those of the whole sink.
    pub(crate) fn take_for_part(&mut self, part: String, next_number: &mut u64, bytes: Vec<u8>) -> SinkChunk {
        let number = std::mem::replace(next_number, *next_number + 1);
        SinkChunk { part, number, ..self.take(bytes) }
    }
}

/// The catalog of clients' ids of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientIdsMeta {
    /// Records with an earlier time are remnants.
    pub(crate) reclaimed: EventTime,
    /// The ends of the time buckets that have a group.
    pub(crate) buckets: Vec<EventTime>,
}

impl Default for ClientIdsMeta {
    fn default() -> Self {
        ClientIdsMeta { reclaimed: EventTime::MIN, buckets: Vec::new() }
    }
}

/// The size of the catalogs of a partition, or of several: both shrink when the reclaim watermark passes a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogSize {
    /// Intervals of numbers that came from other stages: one per sender and time bucket, and one more for every gap.
    pub intervals: u64,
    /// Ids that clients chose.
    pub client_ids: u64,
}

impl CatalogSize {
    /// Adds the size of another partition's.
    pub fn add(&mut self, other: CatalogSize) {
        self.intervals += other.intervals;
        self.client_ids += other.client_ids;
    }
}

/// Counts of one partition, committed with its bundles: each record counts once however often a bundle was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Records that were processed.
    pub records_in: u64,
    /// Records that were sent to other stages and to sinks.
    pub records_out: u64,
    /// Copies between stages that were dropped because their id was seen.
    pub duplicates: u64,
    /// Copies between stages that were dropped because their id was reclaimed.
    pub remnants: u64,
    /// Records that were dropped because the id that their client chose was seen.
    pub client_duplicates: u64,
    /// Records that were dropped because they are older than the horizon of their clients' ids.
    pub client_remnants: u64,
    /// Records that came after their window had expired; one that is in several windows counts for each.
    pub late: u64,
    /// Records that could not be read or computed, and were skipped because the pipeline says so.
    pub skipped: u64,
    /// Clients' ids for which a filter answered "maybe", so that the catalog was asked: the filters' hits.
    pub lookups: u64,
    /// Look-ups that found nothing.
    pub false_positives: u64,
    /// The number of client ids that no filter contained, so that no look-up was needed.
    pub lookups_saved: u64,
    /// Bundles that were committed.
    pub bundles: u64,
    /// Bytes of the records that those bundles made.
    pub bundle_bytes: u64,
    /// Bundles whose commit was timed: the first, and each one after the timing before it.
    pub commits_timed: u64,
    /// Milliseconds from the beginning of timed commits until their partition saw that they were durable.
    pub commit_ms: u64,
}

impl Counts {
    /// Adds the counts of another partition.
    pub fn add(&mut self, other: &Counts) {
        self.records_in += other.records_in;
        self.records_out += other.records_out;
        self.duplicates += other.duplicates;
        self.remnants += other.remnants;
        self.client_duplicates += other.client_duplicates;
        self.client_remnants += other.client_remnants;
        self.late += other.late;
        self.skipped += other.skipped;
        self.lookups += other.lookups;
        self.false_positives += other.false_positives;
        self.lookups_saved += other.lookups_saved;
        self.bundles += other.bundles;
        self.bundle_bytes += other.bundle_bytes;
        self.commits_timed += other.commits_timed;
        self.commit_ms += other.commit_ms;
    }
}

/// The promises of a partition to the stages after it: one small row, so that they need not decode its meta row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) watermark: EventTime,
    pub(crate) has_ended: bool,
}

impl Published {
    pub(crate) fn to_row(self) -> Row {
        let mut bytes = [0; 9];
        bytes[..8].copy_from_slice(&self.watermark.to_sortable());
        bytes[8] = u8::from(self.has_ended);
        Row::new(bytes)
    }

    /// Reads the row; absent, nothing is promised yet.
    pub(crate) fn from_row(row: Option<&Row>) -> Option<Self> {
        let Some(row) = row else { return Some(Published { watermark: EventTime::MIN, has_ended: false }) };
        let (watermark, ended) = row.split_at_checked(8)?;
        Some(Published { watermark: EventTime::from_sortable(watermark)?, has_ended: *ended.first()? == 1 })
    }
}
