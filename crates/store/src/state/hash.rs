//! A hash of a few bytes in a few nanoseconds, the same in every process. Names here are made by the engine; an
//! attacker who could choose them to collide could as well fill the store.

use std::hash::{BuildHasherDefault, Hasher};

/// For maps that are looked up by name and never walked.
pub(super) type Hashing = BuildHasherDefault<Folding>;

/// Folds word after word into one by a long multiplication.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Folding(u64);

const SALT: u64 = 0x9E37_79B9_7F4A_7C15;
const FACTOR: u64 = 0xD6E8_FEB8_6659_FD93;

impl Folding {
    #[inline]
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ SALT) * u128::from(FACTOR);
        self.0 = (product as u64).rotate_left(23) ^ (product >> 64) as u64;
    }
}

impl Hasher for Folding {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.fold(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            // The length tells a short rest from one with zeros behind it.
            self.fold(u64::from_le_bytes(last) ^ ((rest.len() as u64) << 56));
        }
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.fold(u64::from(number));
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.fold(number as u64);
    }

    #[inline]
    fn write_isize(&mut self, number: isize) {
        self.fold(number as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // Once more, or the last word's low bytes would not reach the hash's high bits.
        let mut last = *self;
        last.fold(0);
        last.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_core::Name;
    use std::{collections::BTreeSet, hash::BuildHasher};

    /// Both ends of a hash are used by a map: the lowest bits to find a place, the highest to tell neighbours apart.
    #[test]
    fn names_that_differ_a_little_spread_over_both_ends_of_the_hash() {
        const NAMES: u64 = 4096;
        let spread = |names: &dyn Fn(u64) -> Name, part: fn(u64) -> u64| {
            let parts: BTreeSet<_> = (0..NAMES).map(|n| part(Hashing::default().hash_one(names(n)))).collect();
            // Thrown at random into as many places, 63 of 100 are hit.
            parts.len() as u64 * 100 / NAMES
        };
        let counted = |n: u64| Name::join(&[b"lane-aaa", &n.to_be_bytes()]);
        let lanes = |n: u64| Name::join(&[&n.to_be_bytes(), b"step"]);
        let text = |n: u64| Name::new(n.to_string());
        let kinds: [&dyn Fn(u64) -> Name; 3] = [&counted, &lanes, &text];
        for (at, names) in kinds.into_iter().enumerate() {
            for part in [|hash: u64| hash % NAMES, |hash: u64| hash / (u64::MAX / NAMES)] {
                assert!((58..68).contains(&spread(names, part)), "{at}: {}", spread(names, part));
            }
        }
    }
}
