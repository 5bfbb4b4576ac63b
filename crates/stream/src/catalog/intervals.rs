//! A set of sequence numbers as sorted, disjoint intervals. Records of one producer arrive in any order, so the set has
//! gaps; without reordering it is one interval, whatever the number of records.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A set of sequence numbers. Intervals never touch: two that do are one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intervals {
    /// First and last number of each interval, in order.
    runs: Vec<(u64, u64)>,
}

impl Intervals {
    /// The number is in the set.
    pub fn contains(&self, seq: u64) -> bool {
        let at = self.runs.partition_point(|run| run.1 < seq);
        self.runs.get(at).is_some_and(|run| run.0 <= seq)
    }

    /// No number of the range is in the set.
    pub fn is_free(&self, range: Range<u64>) -> bool {
        let at = self.runs.partition_point(|run| run.1 < range.start);
        range.is_empty() || self.runs.get(at).is_none_or(|run| run.0 >= range.end)
    }

    /// Adds a number; false if it was in the set.
    pub fn insert(&mut self, seq: u64) -> bool {
        let is_new = !self.contains(seq);
        if is_new {
            self.insert_range(seq..seq + 1);
        }
        is_new
    }

    /// Adds all numbers of a range.
    pub fn insert_range(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut first, mut last) = (range.start, range.end - 1);
        // Every interval that overlaps the range or touches it becomes part of one.
        let from = self.runs.partition_point(|run| run.1.saturating_add(1) < first);
        let to = self.runs.partition_point(|run| run.0 <= last.saturating_add(1));
        if from < to {
            (first, last) = (first.min(self.runs[from].0), last.max(self.runs[to - 1].1));
        }
        self.runs.splice(from..to, [(first, last)]);
    }

    /// Returns how many intervals there are: the memory and the bytes that the set takes.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns how many numbers are in the set.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|run| run.1 - run.0 + 1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn intervals_hold_what_a_set_holds(ranges in prop::collection::vec((0u64..60, 0u64..8), 0..40)) {
            let (mut intervals, mut set) = (Intervals::default(), BTreeSet::new());
            for (start, length) in ranges {
                let range = start..start + length;
                prop_assert_eq!(intervals.is_free(range.clone()), range.clone().all(|seq| !set.contains(&seq)));
                if length == 1 {
                    prop_assert_eq!(intervals.insert(start), !set.contains(&start));
                }
                intervals.insert_range(range.clone());
                set.extend(range);
                prop_assert!((0..70).all(|seq| intervals.contains(seq) == set.contains(&seq)));
                prop_assert!(intervals.runs.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "intervals touch");
            }
            prop_assert_eq!(intervals.count(), set.len() as u64);
        }
    }

    #[test]
    fn the_highest_number_fits() {
        let mut intervals = Intervals::default();
        intervals.insert_range(u64::MAX - 2..u64::MAX);
        assert!(intervals.contains(u64::MAX - 1) && !intervals.contains(u64::MAX));
    }
}
