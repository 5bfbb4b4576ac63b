//! A seeded random number generator.

pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Rng(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 up to, but not including, `n`.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True with probability 1 in `n`.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Returns the seeds to try: a few by default, many under `ONCEFLOW_LONG=1`.
pub(super) fn seeds(default: u64) -> std::ops::Range<u64> {
    0..if long() { default * 10 } else { default }
}

/// `ONCEFLOW_LONG=1` is set: long tests run in full.
pub(super) fn long() -> bool {
    std::env::var_os("ONCEFLOW_LONG").is_some_and(|value| value == "1")
}
