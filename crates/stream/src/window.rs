//! Windows: how event time is cut into the intervals over which records are combined.
//!
//! | module | decides |
//! |---|---|
//! | [`trigger`] | when a window's result is given: early, on time, late |
//! | [`pane`] | a window's accumulated value and how often it was given |
//! | [`session`] | windows that grow and merge as records come |

pub mod pane;
pub mod session;
pub mod trigger;

use crate::event_time::EventTime;
use serde::{Deserialize, Serialize};
use std::fmt;
pub use trigger::{Early, PaneMode, Timing, Trigger};

/// An interval of event time: `start` included, `end` excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// The exclusive end; windows sort by it.
    pub end: EventTime,
    /// The first moment inside.
    pub start: EventTime,
}

impl Window {
    /// The window of all time; its end passes when the stream ends.
    pub const GLOBAL: Window = Window { start: EventTime::MIN, end: EventTime::MAX };

    /// Returns the window from `start` that is `size_ms` long.
    pub const fn starting(start: EventTime, size_ms: i64) -> Self {
        Window { start, end: start.plus_ms(size_ms) }
    }

    /// Returns the event time of the window's results: its last moment, so that a watermark that has not passed the
    /// window has not passed its result.
    pub const fn last_moment(self) -> EventTime {
        self.end.plus_ms(-1)
    }

    /// The window has a moment in common with another one.
    pub fn overlaps(self, other: Window) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// The rule by which records are assigned to windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WindowKind {
    /// One window of all time.
    Global,
    /// Windows of equal size, one after the other.
    Tumbling {
        /// The size of a window.
        size_ms: i64,
    },
    /// Windows of equal size that begin at every multiple of `slide_ms`; a record is in several when they overlap.
    Sliding {
        /// The size of a window.
        size_ms: i64,
        /// The distance of their beginnings.
        slide_ms: i64,
    },
    /// A window of a key ends when no record of the key came for `gap_ms`.
    Session {
        /// The pause that ends a session.
        gap_ms: i64,
    },
}

impl WindowKind {
    /// Checks its sizes, which must be positive.
    ///
    /// # Panics
    /// If one is not: no record could be assigned to a window.
    pub(crate) fn assert_positive(self) {
        let sizes = match self {
            WindowKind::Global => return,
            WindowKind::Tumbling { size_ms } => [size_ms, 1],
            WindowKind::Sliding { size_ms, slide_ms } => [size_ms, slide_ms],
            WindowKind::Session { gap_ms } => [gap_ms, 1],
        };
        assert!(sizes.iter().all(|ms| *ms > 0), "the sizes of a window must be positive: {self:?}");
    }

    /// Calls `each` with every window that a record of this time is in, the earliest first. For sessions it is the
    /// window of that record alone; [`session`] merges it with others.
    pub fn assign(self, time: EventTime, mut each: impl FnMut(Window)) {
        match self {
            WindowKind::Global => each(Window::GLOBAL),
            WindowKind::Tumbling { size_ms } => each(Window::starting(floor(time, size_ms), size_ms)),
            WindowKind::Session { gap_ms } => each(Window::starting(time, gap_ms)),
            WindowKind::Sliding { size_ms, slide_ms } => {
                let last = floor(time, slide_ms);
                let before = (size_ms - 1 - (time.0 - last.0)).div_euclid(slide_ms).max(-1);
                for back in (0..=before).rev() {
                    each(Window::starting(last.plus_ms(-back * slide_ms), size_ms));
                }
            }
        }
    }

    /// Every record is in exactly one window.
    pub const fn assigns_one(self) -> bool {
        match self {
            WindowKind::Global | WindowKind::Tumbling { .. } | WindowKind::Session { .. } => true,
            WindowKind::Sliding { size_ms, slide_ms } => size_ms == slide_ms,
        }
    }

    /// Windows of one key may become one.
    pub const fn merges(self) -> bool {
        matches!(self, WindowKind::Session { .. })
    }
}

impl fmt::Display for WindowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WindowKind::Global => f.write_str("global"),
            WindowKind::Tumbling { size_ms } => write!(f, "tumbling, {size_ms} ms"),
            WindowKind::Sliding { size_ms, slide_ms } => write!(f, "sliding, {size_ms} ms every {slide_ms} ms"),
            WindowKind::Session { gap_ms } => write!(f, "sessions, {gap_ms} ms apart"),
        }
    }
}

/// The last multiple of `step` that is not after `time`.
const fn floor(time: EventTime, step: i64) -> EventTime {
    EventTime(time.0.saturating_sub(time.0.rem_euclid(step)))
}

/// Windows, when their results are given, and how long late records are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Windowing {
    /// How records are assigned.
    pub kind: WindowKind,
    /// When results are given.
    pub trigger: Trigger,
    /// How long after its end a window still takes records; later ones are dropped and counted.
    pub lateness_ms: i64,
}

impl Windowing {
    /// Returns windows of this kind that give their result once, at their end.
    pub const fn new(kind: WindowKind) -> Self {
        Windowing { kind, trigger: Trigger::at_end(), lateness_ms: 0 }
    }

    /// Windows of all time.
    pub const fn global() -> Self {
        Windowing::new(WindowKind::Global)
    }

    /// Windows of `size_ms`, one after the other.
    pub const fn tumbling(size_ms: i64) -> Self {
        Windowing::new(WindowKind::Tumbling { size_ms })
    }

    /// Windows of `size_ms` that begin every `slide_ms`.
    pub const fn sliding(size_ms: i64, slide_ms: i64) -> Self {
        Windowing::new(WindowKind::Sliding { size_ms, slide_ms })
    }

    /// Windows that end when a key had no record for `gap_ms`.
    pub const fn sessions(gap_ms: i64) -> Self {
        Windowing::new(WindowKind::Session { gap_ms })
    }

    /// Sets when results are given.
    #[must_use]
    pub const fn trigger(self, trigger: Trigger) -> Self {
        Windowing { trigger, ..self }
    }

    /// Takes late records until `lateness_ms` after a window's end.
    #[must_use]
    pub const fn lateness(self, lateness_ms: i64) -> Self {
        Windowing { lateness_ms, ..self }
    }

    /// Returns the time at which the watermark ends a window for good.
    pub const fn expiry(&self, window: Window) -> EventTime {
        window.end.plus_ms(self.lateness_ms)
    }

    /// The watermark has ended the window: its records are late beyond what is allowed.
    pub fn is_expired(&self, window: Window, watermark: EventTime) -> bool {
        self.expiry(window) <= watermark
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn assigned(kind: WindowKind, time: i64) -> Vec<Window> {
        let mut windows = Vec::new();
        kind.assign(EventTime(time), |window| windows.push(window));
        windows
    }

    proptest! {
        #[test]
        fn a_record_is_in_exactly_the_windows_that_cover_it(time in -500i64..500, size in 1i64..40, slide in 1i64..40) {
            let kind = WindowKind::Sliding { size_ms: size, slide_ms: slide };
            let expected: Vec<_> = (-600..=600)
                .filter(|start: &i64| start.rem_euclid(slide) == 0 && (*start..start + size).contains(&time))
                .map(|start| Window::starting(EventTime(start), size))
                .collect();
            prop_assert_eq!(assigned(kind, time), expected.clone());
            if slide == size {
                prop_assert_eq!(assigned(WindowKind::Tumbling { size_ms: size }, time), expected);
            }
        }
    }

    #[test]
    fn the_ends_of_time_have_windows_too() {
        for time in [i64::MIN, i64::MAX] {
            for kind in [WindowKind::Global, WindowKind::Tumbling { size_ms: 7 }, WindowKind::Session { gap_ms: 7 }] {
                assert_eq!(assigned(kind, time).len(), 1, "{kind:?}");
            }
        }
    }
}
