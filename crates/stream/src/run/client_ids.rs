//! Decides which records are new by ids that clients chose. Such ids come in any order, so the catalog holds each of
//! them: sorted segments of 128-bit hashes in the group of a time bucket, with a Bloom filter per bucket in memory. Most
//! new ids are new to every filter and cost no look-up.
//!
//! A bucket is chosen by the record's own time and named by its end. The reclaim watermark is the input's watermark less
//! the horizon, and is committed with the bundle that drops the buckets it has passed. A record below it is a remnant:
//! dropped without a look-up, since its id may have been reclaimed. A copy may carry another time than the first, so
//! every live bucket is asked.
//!
//! Filters and the ids of the bundle under way are only in memory. A bundle that is not committed takes the memory with
//! it; after a restart the filters are rebuilt by a scan before the first record is taken.

use super::{
    keys::{Station, StreamKeys},
    meta::{ClientIdsMeta, Counts},
    partition::{Partition, Program, SHARD, Stop},
};
use crate::{
    catalog::{
        filter::BucketFilter,
        segments::{self, ExternalId, SEGMENT_IDS_MAX, SegmentIndex},
    },
    error::StreamError,
    event_time::EventTime,
    seams,
};
use foldhash::fast::FixedState;
use onceflow_core::{Batch, Group, Key, Name, Row};
use onceflow_store::{Records, records::Scan};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Buckets that a horizon is divided into: each live one has a filter that every record asks.
const BUCKETS_PER_HORIZON: i64 = 8;

/// Live buckets of a partition. Ids of records far in the future, for which there is no bucket left, are in one that is
/// reclaimed when the stream ends.
const BUCKETS_MAX: usize = 64;

/// Segments that are read at once: a bound of the memory of a look-up.
const SEGMENTS_READ_MAX: usize = 16;

/// Bytes of segments that are kept in memory, so that look-ups do not read them again.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// A record whose id is to be judged.
pub(crate) struct OfferedRecord {
    pub(crate) id: ExternalId,
    pub(crate) time: EventTime,
    /// The encoded record.
    pub(crate) value: Vec<u8>,
}

/// Ids, hashed with the seed of the filters.
type IdSet = HashSet<ExternalId, FixedState>;

struct Bucket {
    index: SegmentIndex,
    filter: BucketFilter,
}

/// The catalog of client ids of one partition, and the records of the bundle under way.
pub(crate) struct ClientIds {
    horizon_ms: i64,
    seed: u64,
    /// Buckets by their end.
    buckets: BTreeMap<EventTime, Bucket>,
    offered: Vec<OfferedRecord>,
    /// Ids of the bundle under way: the pending set, and the buckets they go to.
    pending: IdSet,
    fresh: BTreeMap<EventTime, Vec<ExternalId>>,
    kept: BTreeMap<(EventTime, u64), Row>,
    kept_bytes: usize,
    kept_bytes_max: usize,
}

impl ClientIds {
    pub(crate) fn new(horizon_ms: i64) -> Self {
        ClientIds {
            horizon_ms,
            seed: 0,
            buckets: BTreeMap::new(),
            offered: Vec::new(),
            pending: IdSet::default(),
            fresh: BTreeMap::new(),
            kept: BTreeMap::new(),
            kept_bytes: 0,
            kept_bytes_max: KEPT_BYTES_MAX,
        }
    }

    /// Takes a record of the bundle under way.
    pub(crate) fn offer(&mut self, record: OfferedRecord) {
        self.offered.push(record);
    }

    /// Returns the records that were judged to be new.
    pub(crate) fn take_new(&mut self) -> Vec<OfferedRecord> {
        std::mem::take(&mut self.offered)
    }

    /// Rebuilds the filters by a scan of every bucket. The seed is chosen anew, so that no client can know it.
    async fn load(&mut self, source: &IdRows<'_>, meta: &ClientIdsMeta, seed: u64) -> Result<(), Stop> {
        self.seed = seed;
        self.pending = IdSet::with_hasher(FixedState::with_seed(seed));
        for end in &meta.buckets {
            let mut bucket = Bucket { index: SegmentIndex::default(), filter: BucketFilter::rebuilding(seed, 0) };
            let mut after = None;
            loop {
                let scan = Scan::of(source.group(*end), SEGMENTS_READ_MAX).after(after);
                let page = source.records.scan(SHARD, scan).await?;
                after = page.rows.last().map(|(name, _)| name.clone());
                for (name, row) in page.rows {
                    let number = <[u8; 8]>::try_from(name.as_bytes()).map(u64::from_be_bytes);
                    let number = number.map_err(|_| StreamError::Damaged("a segment of ids has no number"))?;
                    if seams::rebuilds_filters() {
                        segments::ids(&row).for_each(|id| bucket.filter.add(id));
                    }
                    bucket.index.add(number, segments::ids(&row).count());
                    self.keep(*end, number, row);
                }
                if !page.more {
                    break;
                }
            }
            bucket.filter.complete();
            self.buckets.insert(*end, bucket);
        }
        Ok(())
    }

    fn keep(&mut self, end: EventTime, number: u64, row: Row) {
        if self.kept_bytes + row.len() <= self.kept_bytes_max {
            self.kept_bytes += row.len();
            self.kept.insert((end, number), row);
        }
    }

    /// Leaves only new records in what was offered, and counts the others.
    async fn judge(&mut self, source: &IdRows<'_>, reclaimed: EventTime, counts: &mut Counts) -> Result<(), Stop> {
        let mut asked: BTreeMap<EventTime, Vec<ExternalId>> = BTreeMap::new();
        let mut maybe = IdSet::with_hasher(FixedState::with_seed(self.seed));
        for record in self.offered.iter().filter(|record| !seams::is_remnant(record.time, reclaimed)) {
            let hash = BucketFilter::hash_of(self.seed, record.id);
            for (end, _) in self.buckets.iter().filter(|(_, bucket)| bucket.filter.may_hold_hashed(hash)) {
                asked.entry(*end).or_default().push(record.id);
                maybe.insert(record.id);
            }
        }
        let seen = self.look_up(source, asked).await?;
        for record in std::mem::take(&mut self.offered) {
            if seams::is_remnant(record.time, reclaimed) {
                counts.client_remnants += 1;
                continue;
            }
            if self.pending.contains(&record.id) && seams::consults_pending(true) {
                counts.client_duplicates += 1;
                continue;
            }
            match maybe.contains(&record.id) {
                true => counts.lookups += 1,
                false => counts.lookups_saved += 1,
            }
            if seen.contains(&record.id) {
                counts.client_duplicates += 1;
                continue;
            }
            counts.false_positives += u64::from(maybe.contains(&record.id));
            self.add(record.id, record.time);
            self.offered.push(record);
        }
        Ok(())
    }

    /// Returns those of the ids that their buckets hold. Every segment is read once, however many ids ask for it.
    async fn look_up(&self, source: &IdRows<'_>, asked: BTreeMap<EventTime, Vec<ExternalId>>) -> Result<IdSet, Stop> {
        let mut seen = IdSet::with_hasher(FixedState::with_seed(self.seed));
        for (end, mut ids) in asked {
            let numbers: Vec<u64> = self.buckets[&end].index.numbers().collect();
            for numbers in numbers.chunks(SEGMENTS_READ_MAX) {
                let rows = self.segments(source, end, numbers).await?;
                ids.retain(|id| {
                    let is_seen = rows.iter().any(|row| segments::contains(row, *id));
                    is_seen.then(|| seen.insert(*id)).is_none()
                });
            }
        }
        Ok(seen)
    }

    /// Returns segments of a bucket, from memory where they are kept.
    async fn segments(&self, source: &IdRows<'_>, end: EventTime, numbers: &[u64]) -> Result<Vec<Row>, Stop> {
        let is_kept = |number: &&u64| self.kept.contains_key(&(end, **number));
        let mut rows: Vec<Row> = numbers.iter().filter_map(|number| self.kept.get(&(end, *number)).cloned()).collect();
        let keys: Vec<Key> =
            numbers.iter().filter(|number| !is_kept(number)).map(|number| source.key(end, *number)).collect();
        if !keys.is_empty() {
            for row in source.records.get(SHARD, &keys).await? {
                rows.push(row.ok_or(StreamError::Damaged("a segment of ids is gone"))?);
            }
        }
        Ok(rows)
    }

    /// Adds an id to the bundle under way.
    fn add(&mut self, id: ExternalId, time: EventTime) {
        let end = self.bucket_of(time);
        let seed = self.seed;
        let bucket = self
            .buckets
            .entry(end)
            .or_insert_with(|| Bucket { index: SegmentIndex::default(), filter: BucketFilter::empty(seed) });
        bucket.filter.add(id);
        self.pending.insert(id);
        self.fresh.entry(end).or_default().push(id);
    }

    /// Returns how many ids the catalog has.
    fn count(&self) -> u64 {
        self.buckets.values().map(|bucket| bucket.index.ids() as u64).sum()
    }

    fn bucket_ms(&self) -> i64 {
        (self.horizon_ms / BUCKETS_PER_HORIZON).max(1)
    }

    /// Returns the end of the bucket of a time. A later bucket than its own is safe: the id is kept for longer.
    fn bucket_of(&self, time: EventTime) -> EventTime {
        let size = self.bucket_ms();
        let own = EventTime(time.0.div_euclid(size).saturating_add(1).saturating_mul(size));
        if self.buckets.len() < BUCKETS_MAX || self.buckets.contains_key(&own) {
            return own;
        }
        self.buckets.range(own..).next().map_or(EventTime::MAX, |(end, _)| *end)
    }

    /// Adds the new ids to a batch, a segment per bucket; in one bucket small segments are merged with it. Drops the
    /// buckets that the reclaim watermark has passed; the batch stores the watermark too.
    async fn commit_into(
        &mut self,
        batch: &mut Batch,
        source: &IdRows<'_>,
        watermark: EventTime,
        meta: &mut ClientIdsMeta,
    ) -> Result<(), Stop> {
        self.pending.clear();
        let mut has_merged = false;
        for (end, mut ids) in std::mem::take(&mut self.fresh) {
            if !seams::catalogs_ids() {
                continue;
            }
            while !ids.is_empty() {
                let part = ids.split_off(ids.len().saturating_sub(SEGMENT_IDS_MAX));
                let (number, merged) = self.buckets[&end].index.plan(part.len());
                let merged = if has_merged { Vec::new() } else { merged };
                has_merged |= !merged.is_empty();
                self.put_segment(batch, source, end, (number, merged), part).await?;
            }
        }
        meta.reclaimed = meta.reclaimed.max(watermark.plus_ms(-self.horizon_ms));
        let passed = seams::bucket_passed(meta.reclaimed, self.bucket_ms());
        let dropped: BTreeSet<EventTime> = self.buckets.range(..=passed).map(|(end, _)| *end).collect();
        for end in &dropped {
            self.buckets.remove(end);
            batch.delete_group(source.group(*end));
        }
        self.kept.retain(|(end, _), _| !dropped.contains(end));
        self.kept_bytes = self.kept.values().map(|row| row.len()).sum();
        meta.buckets = self.buckets.keys().copied().collect();
        Ok(())
    }

    async fn put_segment(
        &mut self,
        batch: &mut Batch,
        source: &IdRows<'_>,
        end: EventTime,
        (number, merged): (u64, Vec<u64>),
        ids: Vec<ExternalId>,
    ) -> Result<(), Stop> {
        let rows = self.segments(source, end, &merged).await?;
        let fresh = segments::encode(ids);
        let row = Row::from(segments::merge(rows.iter().map(|row| &**row).chain([fresh.as_slice()])));
        for number in &merged {
            batch.delete(source.key(end, *number));
            self.kept.remove(&(end, *number));
        }
        batch.put(source.key(end, number), row.clone());
        let bucket = self.buckets.get_mut(&end).expect("a bucket with new ids is live");
        bucket.index.replace(&merged, number, segments::ids(&row).count());
        self.keep(end, number, row);
        Ok(())
    }
}

/// The rows of a partition's client ids.
struct IdRows<'a> {
    records: &'a dyn Records,
    keys: &'a StreamKeys,
    station: Station,
}

impl IdRows<'_> {
    fn group(&self, end: EventTime) -> Group {
        self.keys.client_ids(self.station, end)
    }

    fn key(&self, end: EventTime, number: u64) -> Key {
        Key { group: self.group(end), name: Name::new(number.to_be_bytes()) }
    }
}

impl Partition {
    /// Reads the catalog of a partition that knows records by their clients' ids.
    pub(super) async fn load_client_ids(&mut self) -> Result<(), Stop> {
        let runtime = self.runtime.clone();
        let source = IdRows { records: &*runtime.records, keys: &runtime.keys, station: self.station };
        if let Some(ids) = client_ids(&mut self.program) {
            ids.load(&source, &self.meta.client_ids, runtime.world.random() as u64).await?;
        }
        Ok(())
    }

    /// Drops the records of this bundle whose ids were seen.
    pub(super) async fn judge_client_ids(&mut self) -> Result<(), Stop> {
        let runtime = self.runtime.clone();
        if !runtime.options.deduplicate {
            return Ok(());
        }
        let source = IdRows { records: &*runtime.records, keys: &runtime.keys, station: self.station };
        if let Some(ids) = client_ids(&mut self.program) {
            ids.judge(&source, self.meta.client_ids.reclaimed, &mut self.meta.counts).await?;
        }
        Ok(())
    }

    /// Returns how many ids of clients the partition knows.
    pub(super) fn count_client_ids(&mut self) -> u64 {
        client_ids(&mut self.program).map_or(0, |ids| ids.count())
    }

    /// Adds the ids of this bundle to its batch; with the last bundle, all of them go.
    pub(super) async fn commit_client_ids(&mut self, batch: &mut Batch, has_ended: bool) -> Result<(), Stop> {
        let runtime = self.runtime.clone();
        let source = IdRows { records: &*runtime.records, keys: &runtime.keys, station: self.station };
        let Some(ids) = client_ids(&mut self.program) else { return Ok(()) };
        if has_ended {
            for end in std::mem::take(&mut self.meta.client_ids.buckets) {
                batch.delete_group(source.group(end));
            }
            return Ok(());
        }
        ids.commit_into(batch, &source, self.meta.watermark_in, &mut self.meta.client_ids).await
    }
}

fn client_ids(program: &mut Program) -> Option<&mut ClientIds> {
    match program {
        Program::Stage(program) => program.client_ids(),
        Program::Source(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_store::{backend::memory::Memory, testing::world::TestWorld};
    use proptest::prelude::*;

    const STATION: Station = Station { stage: 1, partition: 0 };

    /// A partition's catalog on a store, with a bound of the segments that it keeps in memory.
    struct Bench {
        store: Memory,
        keys: StreamKeys,
        ids: ClientIds,
        meta: ClientIdsMeta,
        counts: Counts,
    }

    impl Bench {
        const HORIZON_MS: i64 = 80;

        fn new(kept_bytes_max: usize) -> Self {
            let ids = ClientIds { kept_bytes_max, ..ClientIds::new(Self::HORIZON_MS) };
            let (store, keys) = (Memory::new(TestWorld::new(1)), StreamKeys::new("p"));
            Bench { store, keys, ids, meta: ClientIdsMeta::default(), counts: Counts::default() }
        }

        /// Commits a bundle of records (id and time); returns the ids that were new.
        async fn bundle(&mut self, records: &[(u64, i64)], watermark: i64) -> Vec<u64> {
            let source = IdRows { records: &self.store, keys: &self.keys, station: STATION };
            for (id, time) in records {
                let (value, time) = (id.to_be_bytes().to_vec(), EventTime(*time));
                self.ids.offer(OfferedRecord { id: ExternalId::of(&value), time, value });
            }
            self.ids.judge(&source, self.meta.reclaimed, &mut self.counts).await.unwrap();
            let new = self.ids.take_new();
            let mut batch = Batch::new(SHARD);
            self.ids.commit_into(&mut batch, &source, EventTime(watermark), &mut self.meta).await.unwrap();
            assert!(self.store.commit(batch).await.unwrap().is_applied());
            new.iter().map(|record| u64::from_be_bytes(record.value.as_slice().try_into().unwrap())).collect()
        }

        /// Drops the memory and reads the store.
        async fn restart(&mut self) {
            let kept_bytes_max = self.ids.kept_bytes_max;
            self.ids = ClientIds { kept_bytes_max, ..ClientIds::new(Self::HORIZON_MS) };
            let source = IdRows { records: &self.store, keys: &self.keys, station: STATION };
            self.ids.load(&source, &self.meta, 11).await.unwrap();
        }

        async fn segments(&self) -> usize {
            let source = IdRows { records: &self.store, keys: &self.keys, station: STATION };
            let mut segments = 0;
            for end in &self.meta.buckets {
                segments += self.store.scan(SHARD, Scan::of(source.group(*end), 4096)).await.unwrap().rows.len();
            }
            segments
        }
    }

    proptest! {
        // A bucket's filter is some 90 kB, and every restart makes all of them anew.
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_record_is_new_if_it_is_not_older_than_the_horizon_and_its_id_was_never_seen(
            bundles in prop::collection::vec((prop::collection::vec(0u64..200, 0..20), 0i64..20, any::<bool>()), 1..60),
            kept_bytes_max in prop::sample::select(vec![0, 100, KEPT_BYTES_MAX]),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let (mut bench, mut watermark) = (Bench::new(kept_bytes_max), 0);
                let (mut seen, mut sent, mut passed) = (HashSet::new(), 0, 0);
                for (ids, advance, restarts) in bundles {
                    // A record's time is of its own, so a copy has it too.
                    let records: Vec<(u64, i64)> = ids.iter().map(|id| (*id, *id as i64 * 3)).collect();
                    let reclaimed = bench.meta.reclaimed.0;
                    let expected: Vec<u64> = (records.iter())
                        .filter(|(id, time)| *time >= reclaimed && seen.insert(*id))
                        .map(|(id, _)| *id)
                        .collect();
                    watermark += advance;
                    (sent, passed) = (sent + records.len() as u64, passed + expected.len() as u64);
                    assert_eq!(bench.bundle(&records, watermark).await, expected);
                    if restarts {
                        bench.restart().await;
                    }
                }
                let counts = bench.counts;
                assert_eq!(counts.client_duplicates + counts.client_remnants, sent - passed);
                assert_eq!(counts.lookups_saved + counts.false_positives, passed);
                let spread = (200 * 3 + Bench::HORIZON_MS) / (Bench::HORIZON_MS / BUCKETS_PER_HORIZON);
                assert!(bench.meta.buckets.len() as i64 <= spread);
            });
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn look_ups_read_segments_that_are_not_in_memory() {
        let mut bench = Bench::new(0);
        for at in 0..100 {
            let ids: Vec<_> = (at * 10..at * 10 + 10).map(|id| (id, 5)).collect();
            assert_eq!(bench.bundle(&ids, 0).await.len(), 10);
        }
        assert_eq!((bench.ids.kept.len(), bench.meta.buckets.len()), (0, 1));
        assert!(bench.segments().await < 24, "{} segments of 100 bundles", bench.segments().await);
        bench.restart().await;
        let copies: Vec<_> = (0..1000).map(|id| (id, 5)).collect();
        assert_eq!(bench.bundle(&copies, 0).await, [0u64; 0]);
        assert_eq!((bench.counts.client_duplicates, bench.counts.lookups >= 1000), (1000, true));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_copy_with_another_time_is_found() {
        let mut bench = Bench::new(KEPT_BYTES_MAX);
        assert_eq!(bench.bundle(&[(1, 5), (2, 75)], 40).await, [1, 2]);
        assert_eq!(bench.bundle(&[(1, 75), (2, 5), (3, 5)], 40).await, [3]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn times_from_all_over_the_calendar_need_few_buckets_and_no_id_is_forgotten() {
        let mut bench = Bench::new(KEPT_BYTES_MAX);
        let records: Vec<_> =
            (0..500).map(|id| (id, (id as i64 - 250) * 1_000_000_007)).chain([(500, i64::MAX)]).collect();
        assert_eq!(bench.bundle(&records, i64::MIN).await.len(), 501);
        assert!(bench.meta.buckets.len() <= BUCKETS_MAX + 1, "{} buckets", bench.meta.buckets.len());
        bench.restart().await;
        assert_eq!(bench.bundle(&records, i64::MIN).await, [0u64; 0]);
        // The watermark passes some of them: their copies are remnants, those of others are still found.
        assert_eq!(bench.bundle(&[], 0).await, [0u64; 0]);
        assert_eq!(bench.bundle(&records, 0).await, [0u64; 0]);
        assert!(bench.counts.client_remnants >= 250, "{:?}", bench.counts);
    }
}
