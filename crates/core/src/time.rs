//! Timestamps on the store's clock. All deadlines are compared on that one clock; a worker's own clock decides nothing.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Milliseconds since 1970 on the store's clock, which never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The earliest time.
    pub const ZERO: Timestamp = Timestamp(0);
    /// The latest time: a wait until then never ends.
    pub const NEVER: Timestamp = Timestamp(u64::MAX);

    /// Returns the time `ms` milliseconds after 1970.
    pub const fn from_ms(ms: u64) -> Self {
        Timestamp(ms)
    }

    /// Returns the milliseconds since 1970.
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// Returns the time `ms` later; [`Timestamp::NEVER`] on overflow.
    pub const fn plus_ms(self, ms: u64) -> Self {
        Timestamp(self.0.saturating_add(ms))
    }

    /// Returns the milliseconds from `earlier` to this time; zero if `earlier` is not earlier.
    pub const fn ms_since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Encodes the time as eight bytes that sort as the times do.
    pub const fn to_sortable(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Decodes bytes that [`Timestamp::to_sortable`] wrote; `None` for any other length.
    pub fn from_sortable(bytes: &[u8]) -> Option<Self> {
        Some(Timestamp(u64::from_be_bytes(bytes.try_into().ok()?)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Timestamp::NEVER => f.write_str("never"),
            Timestamp(ms) => write!(f, "{}.{:03}s", ms / 1000, ms % 1000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sortable_bytes_sort_as_the_times_do() {
        let times = [0, 1, 255, 256, 65_535, 65_536, u64::MAX].map(Timestamp::from_ms);
        for pair in times.windows(2) {
            assert!(pair[0].to_sortable() < pair[1].to_sortable());
            assert_eq!(Timestamp::from_sortable(&pair[0].to_sortable()), Some(pair[0]));
        }
        assert_eq!(Timestamp::from_sortable(b"short"), None);
    }
}
