//! Numbers from a seed (splitmix64). The same seed gives the same numbers on every machine and in every version,
//! so a seed printed by a failing test is worth writing down.

/// A stream of numbers that look random.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream that belongs to this seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number below `end`; zero if there is none.
    pub fn below(&mut self, end: usize) -> usize {
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
    fn every_number_below_the_end_comes_up_and_no_other() {
        let mut random = Random::new(7);
        let mut seen = [0; 5];
        (0..1000).for_each(|_| seen[random.below(5)] += 1);
        assert!(seen.iter().all(|times| (150..250).contains(times)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
