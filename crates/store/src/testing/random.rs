//! Numbers from a seed (splitmix64). The same seed gives the same numbers on every machine and in every version,
//! so a seed printed by a failing test is worth writing down. Or numbers from bytes, so that a fuzzer that changes a byte
//! changes one choice.

use std::sync::Arc;

/// A stream of numbers that look random.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
    /// The bytes that choices are read from while they last.
    tape: Option<Tape>,
}

#[derive(Clone, Debug)]
struct Tape {
    bytes: Arc<[u8]>,
    at: usize,
}

impl Random {
    /// The stream that belongs to this seed.
    pub fn new(seed: u64) -> Self {
        Random { state: seed, tape: None }
    }

    /// The stream that these bytes are: a byte for a choice among at most 256, two for one among more. When they are
    /// spent, all choices are the first.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Random { state: 0, tape: Some(Tape { bytes: bytes.into(), at: 0 }) }
    }

    /// There were bytes, and all of them were read.
    pub fn is_spent(&self) -> bool {
        self.tape.as_ref().is_some_and(|tape| tape.at >= tape.bytes.len())
    }

    /// 64 bits; from bytes, the next eight.
    pub fn bits(&mut self) -> u64 {
        if let Some(number) = self.read(8) {
            return number;
        }
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number of so many bytes, if numbers are read from bytes.
    fn read(&mut self, count: usize) -> Option<u64> {
        let tape = self.tape.as_mut()?;
        let next = (0..count).map(|n| tape.bytes.get(tape.at + n).copied().unwrap_or(0));
        let number = next.fold(0, |number, byte| number << 8 | u64::from(byte));
        tape.at += count;
        Some(number)
    }

    /// A number below `end`; zero if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        let bytes = match end {
            0..=256 => 1,
            257..=0x1_0000 => 2,
            _ => 8,
        };
        if let Some(number) = self.read(bytes) {
            return (number % (end.max(1) as u64)) as usize;
        }
        (self.bits() % (end.max(1) as u64)) as usize
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.per_mille(percent * 10)
    }

    /// True in so many of a thousand cases.
    pub fn per_mille(&mut self, per_mille: u32) -> bool {
        self.below(1000) < per_mille as usize
    }

    /// One of these.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut random = Random::new(1);
        assert_eq!([random.bits(), random.bits()], [0x910A_2DEC_8902_5CC1, 0xBEEB_8DA1_658E_EC67]);
    }

    #[test]
    fn bytes_give_one_choice_each_and_then_the_first_for_ever() {
        let mut random = Random::of_bytes(&[3, 7, 1, 0]);
        assert_eq!([random.below(5), random.below(5), random.below(1000)], [3, 2, 256]);
        assert!(random.is_spent());
        assert_eq!([random.below(5), random.below(1000)], [0, 0]);
        assert!(!Random::new(1).is_spent());
    }

    #[test]
    fn every_number_below_the_end_comes_up_and_no_other() {
        let mut random = Random::new(7);
        let mut seen = [0; 5];
        (0..1000).for_each(|_| seen[random.below(5)] += 1);
        assert!(seen.iter().all(|times| (150..250).contains(times)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
