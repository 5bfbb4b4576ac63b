//! The store's clock: the world's, held so that it never goes back.

use onceflow_core::Timestamp;

/// Remembers the latest time it gave.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreClock(Timestamp);

impl StoreClock {
    /// A clock that gives no time before this one.
    pub(crate) fn not_before(time: Timestamp) -> Self {
        StoreClock(time)
    }

    /// The latest time given.
    pub(crate) fn latest(&self) -> Timestamp {
        self.0
    }

    /// The time, given what the world's clock says.
    pub(crate) fn read(&mut self, world: Timestamp) -> Timestamp {
        self.0 = self.0.max(world);
        self.0
    }
}
