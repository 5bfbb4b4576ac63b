//! Sorted segments of 128-bit ids, and when to merge them. A segment is one row; every bundle adds a small one, and as
//! soon as [`MERGED_AT_ONCE`] of one level stand together they become one of the next level, so that a look-up reads
//! few rows and every id is rewritten a few times only.
//!
//! 64-bit ids would not do: among the ids of a busy bucket two differing ones would be equal now and then, and the
//! second record would be lost.

use onceflow_core::limits::ROW_BYTES_MAX;
use std::collections::BTreeMap;

/// Segments of one level that are merged into one.
pub const MERGED_AT_ONCE: usize = 8;

/// Bytes of an id in a segment.
const ID_BYTES: usize = 16;

/// Ids in a segment that is not merged any more: it fills a row.
pub const SEGMENT_IDS_MAX: usize = ROW_BYTES_MAX / ID_BYTES / 2;

/// The hash of an id that a client chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExternalId(pub u128);

impl ExternalId {
    /// Hashes the bytes of a client's id.
    pub fn of(bytes: &[u8]) -> Self {
        ExternalId(xxhash_rust::xxh3::xxh3_128(bytes))
    }
}

/// Encodes ids as a segment: sorted, 16 bytes each.
pub fn encode(mut ids: Vec<ExternalId>) -> Vec<u8> {
    ids.sort_unstable();
    ids.dedup();
    ids.iter().flat_map(|id| id.0.to_be_bytes()).collect()
}

/// The segment holds the id. Bytes behind the last whole id are ignored.
pub fn contains(segment: &[u8], id: ExternalId) -> bool {
    segment.as_chunks::<ID_BYTES>().0.binary_search(&id.0.to_be_bytes()).is_ok()
}

/// Returns the ids of a segment.
pub fn ids(segment: &[u8]) -> impl Iterator<Item = ExternalId> {
    segment.as_chunks::<ID_BYTES>().0.iter().map(|id| ExternalId(u128::from_be_bytes(*id)))
}

/// Merges sorted segments into one.
pub fn merge<'a>(segments: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    encode(segments.into_iter().flat_map(ids).collect())
}

/// The segments of one bucket by number, and how many ids each has. Numbers only grow within a bucket.
#[derive(Clone, Debug, Default)]
pub struct SegmentIndex {
    sizes: BTreeMap<u64, usize>,
    next: u64,
}

impl SegmentIndex {
    /// Takes in a segment that is stored.
    pub fn add(&mut self, number: u64, ids: usize) {
        self.sizes.insert(number, ids);
        self.next = self.next.max(number + 1);
    }

    /// Returns the number of a new segment, and the segments to merge into it: those of the lowest level, once there
    /// are [`MERGED_AT_ONCE`] of them, then of the next, as long as the result fits a row.
    pub fn plan(&self, new_ids: usize) -> (u64, Vec<u64>) {
        let (mut merged, mut total) = (Vec::new(), new_ids);
        let mut sizes: Vec<(usize, u64)> = self.sizes.iter().map(|(number, ids)| (*ids, *number)).collect();
        sizes.sort_unstable();
        loop {
            // Segments no larger than what is already merged are of its level or below.
            let level: Vec<_> = sizes.iter().take_while(|(ids, _)| *ids <= total.max(1)).copied().collect();
            let level_total: usize = level.iter().map(|(ids, _)| ids).sum();
            if level.len() + 1 < MERGED_AT_ONCE || total + level_total > SEGMENT_IDS_MAX {
                return (self.next, merged);
            }
            total += level_total;
            merged.extend(level.iter().map(|(_, number)| *number));
            sizes.drain(..level.len());
        }
    }

    /// Replaces merged segments by the new one.
    pub fn replace(&mut self, merged: &[u64], number: u64, ids: usize) {
        for number in merged {
            self.sizes.remove(number);
        }
        self.add(number, ids);
    }

    /// Returns the numbers of all segments.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.sizes.keys().copied()
    }

    /// Returns how many ids all segments have together.
    pub fn ids(&self) -> usize {
        self.sizes.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn merged_segments_hold_every_id_and_stay_few(bundles in prop::collection::vec(prop::collection::vec(any::<u16>(), 1..20), 1..120)) {
            let (mut index, mut rows, mut all) = (SegmentIndex::default(), BTreeMap::new(), BTreeSet::new());
            for bundle in &bundles {
                let ids: Vec<_> = bundle.iter().map(|n| ExternalId::of(&n.to_be_bytes())).collect();
                all.extend(ids.iter().copied());
                let fresh = encode(ids);
                let (number, merged) = index.plan(fresh.len() / ID_BYTES);
                let parts: Vec<Vec<u8>> = merged.iter().map(|number| rows.remove(number).unwrap()).collect();
                let row = merge(parts.iter().map(Vec::as_slice).chain([fresh.as_slice()]));
                index.replace(&merged, number, row.len() / ID_BYTES);
                prop_assert!(rows.insert(number, row).is_none(), "a segment's number was used twice");
            }
            prop_assert_eq!(index.numbers().collect::<Vec<_>>(), rows.keys().copied().collect::<Vec<_>>());
            for n in 0..=u16::MAX {
                let id = ExternalId::of(&n.to_be_bytes());
                prop_assert_eq!(rows.values().any(|row| contains(row, id)), all.contains(&id));
                if n == 300 { break; }
            }
            let levels = bundles.len().ilog2() as usize / 3 + 2;
            prop_assert!(rows.len() <= levels * MERGED_AT_ONCE, "{} segments after {} bundles", rows.len(), bundles.len());
        }
    }

    #[test]
    fn full_segments_are_left_alone() {
        let mut index = SegmentIndex::default();
        for number in 0..20 {
            index.add(number, SEGMENT_IDS_MAX / 2);
        }
        assert_eq!(index.plan(SEGMENT_IDS_MAX / 2), (20, vec![]));
    }
}
