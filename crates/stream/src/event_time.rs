//! Event time: when a record says it happened. Milliseconds since 1970, before it negative; a watermark is one too.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A point in event time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventTime(pub i64);

impl EventTime {
    /// Before everything: the watermark of a stream that promises nothing yet.
    pub const MIN: EventTime = EventTime(i64::MIN);
    /// After everything: the watermark of a stream that has ended.
    pub const MAX: EventTime = EventTime(i64::MAX);

    /// Returns the time `ms` milliseconds later, or earlier if negative; it stops at the ends.
    pub const fn plus_ms(self, ms: i64) -> Self {
        EventTime(self.0.saturating_add(ms))
    }

    /// Encodes the time as eight bytes that sort as the times do.
    pub const fn to_sortable(self) -> [u8; 8] {
        ((self.0 as u64) ^ (1 << 63)).to_be_bytes()
    }

    /// Decodes bytes that [`EventTime::to_sortable`] wrote; `None` for any other length.
    pub fn from_sortable(bytes: &[u8]) -> Option<Self> {
        Some(EventTime((u64::from_be_bytes(bytes.try_into().ok()?) ^ (1 << 63)) as i64))
    }
}

impl fmt::Display for EventTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            EventTime::MIN => f.write_str("never"),
            EventTime::MAX => f.write_str("end"),
            EventTime(ms) => write!(f, "{ms} ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sortable_bytes_sort_as_the_times_do(a: i64, b: i64) {
            let (a, b) = (EventTime(a), EventTime(b));
            prop_assert_eq!(a.cmp(&b), a.to_sortable().cmp(&b.to_sortable()));
            prop_assert_eq!(EventTime::from_sortable(&a.to_sortable()), Some(a));
        }
    }
}
