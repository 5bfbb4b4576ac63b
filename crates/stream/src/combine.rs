//! Combines: how the records of a window become one value, and the laws that let the planner combine some of them before
//! the shuffle.

mod approx;
mod basic;
mod custom;
mod top;

use crate::data::StreamData;
pub use approx::{ApproxDistinct, Sketch};
pub use basic::{Count, Max, Mean, Min, Sum, Summable};
pub use custom::Custom;
pub use top::TopN;

/// The laws a combine declares. The planner believes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laws {
    /// Merging partial values gives the same in whichever groups they are merged.
    pub associative: bool,
    /// The order of records and of partial values does not matter.
    pub commutative: bool,
}

impl Laws {
    /// Both laws hold: partial results may be combined in any place and order.
    pub const ALL: Laws = Laws { associative: true, commutative: true };
    /// No law holds, or only nearly, as with sums of floating-point numbers.
    pub const NONE: Laws = Laws { associative: false, commutative: false };

    /// Parts may be combined before the shuffle.
    pub const fn allow_lifting(self) -> bool {
        self.associative && self.commutative
    }
}

/// Combines records into one value. `merge(identity, a)` must be `a`, and adding a record must be the same as merging
/// what it alone becomes; the [`Laws`] say what else holds.
pub trait Combine: Clone + Send + Sync + 'static {
    /// The records.
    type In: StreamData;
    /// The partial value; it is stored and sent.
    type Acc: StreamData;
    /// The result.
    type Out: StreamData;

    /// Returns the value of no records.
    fn identity(&self) -> Self::Acc;
    /// Adds a record.
    fn add(&self, acc: &mut Self::Acc, record: Self::In);
    /// Adds all records of another partial value.
    fn merge(&self, acc: &mut Self::Acc, other: Self::Acc);
    /// Returns the result.
    fn result(&self, acc: Self::Acc) -> Self::Out;
    /// Returns the laws that hold.
    fn laws(&self) -> Laws;

    /// Describes what its stored values depend on beside their type: a pipeline that has stored values of another
    /// description is not continued.
    fn state(&self) -> String {
        String::new()
    }
}

/// A partial value that was combined before the shuffle, and of how many records.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Partial<A> {
    pub(crate) acc: A,
    pub(crate) records: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Combines the records in groups, the groups in turn order, and compares with one after the other.
    fn check_laws<C: Combine>(combine: &C, groups: Vec<Vec<C::In>>, turn: usize) -> Result<(), TestCaseError>
    where
        C::Out: PartialEq + std::fmt::Debug,
    {
        let mut plain = combine.identity();
        groups.iter().flatten().for_each(|record| combine.add(&mut plain, record.clone()));
        let mut groups = groups;
        let turn = turn % groups.len().max(1);
        groups.rotate_left(turn);
        let mut merged = combine.identity();
        for group in groups {
            let mut acc = combine.identity();
            group.into_iter().rev().for_each(|record| combine.add(&mut acc, record));
            combine.merge(&mut merged, acc);
        }
        prop_assert!(combine.laws().allow_lifting());
        prop_assert_eq!(combine.result(plain), combine.result(merged));
        Ok(())
    }

    proptest! {
        #[test]
        fn declared_laws_hold(groups in prop::collection::vec(prop::collection::vec(-50i64..50, 0..12), 0..6), turn: usize) {
            check_laws(&Count::new(), groups.clone(), turn)?;
            check_laws(&Sum::<i64>::new(), groups.clone(), turn)?;
            check_laws(&Min::new(), groups.clone(), turn)?;
            check_laws(&Max::new(), groups.clone(), turn)?;
            check_laws(&TopN::new(3), groups.clone(), turn)?;
            check_laws(&ApproxDistinct::new(), groups.clone(), turn)?;
            check_laws(&Custom::new(|| 1i64, |acc, n: i64| *acc = acc.wrapping_mul(n), |acc, n| *acc = acc.wrapping_mul(n), |acc| acc).laws(Laws::ALL), groups, turn)?;
        }

        #[test]
        fn results_are_those_of_the_definition(records in prop::collection::vec(-50i64..50, 1..40)) {
            fn of<C: Combine<In = i64>>(combine: &C, records: &[i64]) -> C::Out {
                let mut acc = combine.identity();
                records.iter().for_each(|n| combine.add(&mut acc, *n));
                combine.result(acc)
            }
            prop_assert_eq!(of(&Count::new(), &records), records.len() as u64);
            prop_assert_eq!(of(&Sum::new(), &records), records.iter().sum::<i64>());
            prop_assert_eq!(of(&Min::new(), &records), records.iter().min().copied());
            prop_assert_eq!(of(&Max::new(), &records), records.iter().max().copied());
            let mut sorted = records.clone();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            sorted.truncate(4);
            prop_assert_eq!(of(&TopN::new(4), &records), sorted);
            let mut mean = Mean.identity();
            records.iter().for_each(|n| Mean.add(&mut mean, *n as f64));
            let expected = records.iter().sum::<i64>() as f64 / records.len() as f64;
            prop_assert!((Mean.result(mean).unwrap() - expected).abs() < 1e-9);
        }
    }
}
