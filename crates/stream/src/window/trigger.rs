//! When a window gives its result. Every window gives it when the watermark passes its end; a trigger adds early results
//! before that, and says what late records do after it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Results before the watermark has passed the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Early {
    /// Whenever this many records came since the last result.
    Count(u64),
    /// This long (processing time) after the first record since the last result.
    AfterMs(u64),
}

/// The content of a window's further results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PaneMode {
    /// Every result covers all records of the window so far.
    Accumulating,
    /// Every result covers the records since the last one.
    Discarding,
}

/// A result's place in the life of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Timing {
    /// Before the watermark passed the window's end.
    Early,
    /// As the watermark passed the window's end.
    OnTime,
    /// For records that came after that.
    Late,
}

/// When a window gives results, and what they cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// Results before the window's end.
    pub early: Option<Early>,
    /// Late records that together give a late result; what is left when the window expires gives one too.
    pub late_count: u64,
    /// This long (processing time) after the first late record since the last result, there is a late result, too.
    pub late_after_ms: Option<u64>,
    /// The records that a result covers.
    pub mode: PaneMode,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.early {
            None => {}
            Some(Early::Count(records)) => write!(f, "early every {records} records, ")?,
            Some(Early::AfterMs(ms)) => write!(f, "early after {ms} ms, ")?,
        }
        write!(f, "late every {} records", self.late_count)?;
        if let Some(ms) = self.late_after_ms {
            write!(f, " or after {ms} ms")?;
        }
        f.write_str(match self.mode {
            PaneMode::Accumulating => ", accumulating",
            PaneMode::Discarding => ", discarding",
        })
    }
}

impl Trigger {
    /// One result at the window's end, and one for every late record.
    pub const fn at_end() -> Self {
        Trigger { early: None, late_count: 1, late_after_ms: None, mode: PaneMode::Accumulating }
    }

    /// Adds early results.
    #[must_use]
    pub const fn early(self, early: Early) -> Self {
        Trigger { early: Some(early), ..self }
    }

    /// Sets how many late records together give a result.
    #[must_use]
    pub const fn late_count(self, late_count: u64) -> Self {
        Trigger { late_count, ..self }
    }

    /// Late records that come within this time (processing time) together give a result, however many they are.
    #[must_use]
    pub const fn late_after(self, ms: u64) -> Self {
        Trigger { late_count: u64::MAX, late_after_ms: Some(ms), ..self }
    }

    /// Every result covers the records since the last one.
    #[must_use]
    pub const fn discarding(self) -> Self {
        Trigger { mode: PaneMode::Discarding, ..self }
    }

    /// Counts records, so that it must see each of them.
    pub const fn observes_records(&self) -> bool {
        matches!(self.early, Some(Early::Count(_))) || self.late_count > 1 && self.late_count < u64::MAX
    }
}
