//! A Bloom filter for one time bucket of a catalog. It never answers "new" for an id that was added; for others it
//! answers "maybe" rarely, and then the catalog is asked.
//!
//! A filter has room for a number of ids at its rate of false answers. At that number a second one of twice the room
//! and half the rate is chained, so that the rate stays bounded however many ids come; a bucket in use is never reset.
//! While a filter is being rebuilt by a scan it is incomplete, and answers "maybe" to everything.

use super::segments::ExternalId;
use crate::seams;
use fastbloom::BloomFilter;
use foldhash::fast::FixedState;
use std::hash::BuildHasher;

/// Ids that the first filter of a bucket has room for.
const FIRST_CAPACITY: usize = 1 << 16;

/// The rate of false "maybe" answers of the first filter; each chained one has half of the rate before it, so that all
/// of them together stay below twice this.
const FALSE_RATE: f64 = 0.005;

/// Answers whether an id may be in a bucket.
#[derive(Clone, Debug)]
pub struct BucketFilter {
    chain: Vec<Link>,
    is_complete: bool,
    seed: u64,
}

#[derive(Clone, Debug)]
struct Link {
    bits: BloomFilter<FixedState>,
    capacity: usize,
    ids: usize,
}

impl BucketFilter {
    /// Creates the filter of a bucket that has no ids.
    pub fn empty(seed: u64) -> Self {
        BucketFilter { is_complete: true, ..BucketFilter::rebuilding(seed, FIRST_CAPACITY) }
    }

    /// Creates a filter that answers "maybe" until [`BucketFilter::complete`] says that every stored id was added.
    pub fn rebuilding(seed: u64, ids: usize) -> Self {
        BucketFilter { chain: vec![Link::new(seed, ids.max(FIRST_CAPACITY), FALSE_RATE)], is_complete: false, seed }
    }

    /// Marks the filter complete: every stored id of the bucket was added.
    pub fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Returns the hash of an id that all filters of this seed share: an id that asks several is hashed once.
    pub fn hash_of(seed: u64, id: ExternalId) -> u64 {
        FixedState::with_seed(seed).hash_one(id.0)
    }

    /// Adds an id.
    pub fn add(&mut self, id: ExternalId) {
        self.add_hashed(BucketFilter::hash_of(self.seed, id));
    }

    /// Adds an id by its hash.
    pub fn add_hashed(&mut self, hash: u64) {
        let last = self.chain.last().expect("a filter has a first link");
        if last.ids >= last.capacity {
            seams::chain_filter(&mut self.chain);
            let links = i32::try_from(self.chain.len()).unwrap_or(i32::MAX);
            let capacity = self.chain.last().map_or(FIRST_CAPACITY, |last| last.capacity * 2);
            self.chain.push(Link::new(self.seed, capacity, FALSE_RATE / 2f64.powi(links)));
        }
        let last = self.chain.last_mut().expect("a filter has a first link");
        last.bits.insert_hash(hash);
        last.ids += 1;
    }

    /// The bucket may hold the id. False means that it does not.
    pub fn may_hold(&self, id: ExternalId) -> bool {
        self.may_hold_hashed(BucketFilter::hash_of(self.seed, id))
    }

    /// The bucket may hold the id that has this hash.
    pub fn may_hold_hashed(&self, hash: u64) -> bool {
        !seams::trusts_filter(self.is_complete) || self.chain.iter().any(|link| link.bits.contains_hash(hash))
    }

    /// Returns how many filters are chained.
    pub fn links(&self) -> usize {
        self.chain.len()
    }
}

impl Link {
    fn new(seed: u64, capacity: usize, rate: f64) -> Self {
        let bits = BloomFilter::with_false_pos(rate).hasher(FixedState::with_seed(seed)).expected_items(capacity);
        Link { bits, capacity, ids: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> ExternalId {
        ExternalId((u128::from(n) << 64) | u128::from(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    #[test]
    fn an_added_id_is_never_new_and_false_answers_stay_rare_as_filters_are_chained() {
        let mut filter = BucketFilter::empty(7);
        let added = 8 * FIRST_CAPACITY as u64;
        (0..added).for_each(|n| filter.add(id(n)));
        assert!(filter.links() >= 3, "{} links", filter.links());
        assert!((0..added).all(|n| filter.may_hold(id(n))));
        let false_answers = (added..2 * added).filter(|n| filter.may_hold(id(*n))).count();
        assert!((false_answers as f64) < 0.02 * added as f64, "{false_answers} of {added}");
    }

    #[test]
    fn a_filter_that_forgets_or_is_believed_too_early_is_noticed() {
        let lies = |hazard| {
            onceflow_core::hazard::switch(hazard);
            let (mut full, mut partial) = (BucketFilter::empty(7), BucketFilter::rebuilding(7, 10));
            (0..=FIRST_CAPACITY as u64).for_each(|n| full.add(id(n)));
            partial.add(id(1));
            let lies = !full.may_hold(id(0)) || !partial.may_hold(id(2));
            onceflow_core::hazard::switch(None);
            lies
        };
        assert!(!lies(None));
        assert!(lies(Some("full-filter-is-reset")) && lies(Some("incomplete-filter-trusted")));
    }

    #[test]
    fn a_filter_that_is_being_rebuilt_answers_maybe() {
        let mut filter = BucketFilter::rebuilding(7, 10);
        assert!(filter.may_hold(id(1)));
        filter.complete();
        assert!(!filter.may_hold(id(1)));
    }
}
