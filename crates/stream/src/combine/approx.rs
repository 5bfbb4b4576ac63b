//! The approximate number of distinct records: a HyperLogLog sketch of 1024 registers, within about 3 %.

use super::{Combine, Laws};
use crate::data::StreamData;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, marker::PhantomData};

/// Registers of a sketch, as a power of two; the standard error is 1.04 / √1024 = 3.3 %.
const REGISTER_BITS: u32 = 10;
const REGISTERS: usize = 1 << REGISTER_BITS;

/// Registers that are kept one by one before all are.
const SPARSE_MAX: usize = REGISTERS / 8;

/// A sketch of a set: small sets are nearly exact and take few bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sketch {
    /// The registers that are not zero.
    Sparse(BTreeMap<u16, u8>),
    /// All registers.
    Dense(Vec<u8>),
}

impl Sketch {
    fn raise(&mut self, register: u16, rank: u8) {
        match self {
            Sketch::Sparse(some) => {
                let held = some.entry(register).or_default();
                *held = rank.max(*held);
                if some.len() > SPARSE_MAX {
                    let mut all = vec![0; REGISTERS];
                    some.iter().for_each(|(register, rank)| all[usize::from(*register)] = *rank);
                    *self = Sketch::Dense(all);
                }
            }
            Sketch::Dense(all) => {
                // A stored sketch of another length would be damage; its registers out of range are ignored.
                if let Some(held) = all.get_mut(usize::from(register)) {
                    *held = rank.max(*held);
                }
            }
        }
    }

    fn each(&self, mut each: impl FnMut(u16, u8)) {
        match self {
            Sketch::Sparse(some) => some.iter().for_each(|(register, rank)| each(*register, *rank)),
            Sketch::Dense(all) => all.iter().zip(0..).for_each(|(rank, register)| each(register, *rank)),
        }
    }

    fn estimate(&self) -> u64 {
        let (mut zeros, mut sum) = (REGISTERS, REGISTERS as f64);
        self.each(|_, rank| {
            if rank > 0 {
                zeros -= 1;
                sum += 0.5f64.powi(i32::from(rank)) - 1.0;
            }
        });
        let registers = REGISTERS as f64;
        let raw = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / sum;
        // Few records leave registers empty, and counting those is more exact.
        let is_small = raw <= 2.5 * registers && zeros > 0;
        (if is_small { registers * (registers / zeros as f64).ln() } else { raw }).round() as u64
    }
}

/// About how many different records there are. Records are equal when their encodings are.
#[derive(Debug)]
pub struct ApproxDistinct<T>(PhantomData<fn(T) -> T>);

impl<T> Clone for ApproxDistinct<T> {
    fn clone(&self) -> Self {
        ApproxDistinct(PhantomData)
    }
}

impl<T> Default for ApproxDistinct<T> {
    fn default() -> Self {
        ApproxDistinct(PhantomData)
    }
}

impl<T> ApproxDistinct<T> {
    /// Creates the combine.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<T: StreamData> Combine for ApproxDistinct<T> {
    type In = T;
    type Acc = Sketch;
    type Out = u64;

    fn identity(&self) -> Sketch {
        Sketch::Sparse(BTreeMap::new())
    }

    fn add(&self, acc: &mut Sketch, record: T) {
        let hash = xxhash_rust::xxh3::xxh3_64(&crate::data::encode(&record));
        let register = (hash >> (64 - REGISTER_BITS)) as u16;
        let rank = ((hash << REGISTER_BITS) | (1 << (REGISTER_BITS - 1))).leading_zeros() + 1;
        acc.raise(register, rank as u8);
    }

    fn merge(&self, acc: &mut Sketch, other: Sketch) {
        other.each(|register, rank| {
            if rank > 0 {
                acc.raise(register, rank);
            }
        });
    }

    fn result(&self, acc: Sketch) -> u64 {
        acc.estimate()
    }

    fn laws(&self) -> Laws {
        Laws::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_within_a_tenth_of_the_number_of_distinct_records() {
        for distinct in [1u64, 10, 100, 1000, 10_000, 100_000] {
            let (combine, mut acc) = (ApproxDistinct::<u64>::new(), ApproxDistinct::<u64>::new().identity());
            for n in 0..2 * distinct {
                combine.add(&mut acc, n % distinct);
            }
            let estimate = combine.result(acc);
            assert!(estimate.abs_diff(distinct) <= distinct / 10, "{estimate} for {distinct}");
        }
    }
}
