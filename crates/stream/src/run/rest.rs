//! When a partition of a later stage rests: while a source of this worker has a backlog, a bundle of what has gathered for
//! some milliseconds ([`gather_ms`](super::options::StreamOptions::gather_ms)) costs little more than one of what a single
//! bundle of the source has sent. So the size of bundles follows the load: a source that has caught up makes no partition
//! rest, and its records pass on at once.

use super::Runtime;
use onceflow_core::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The time until which a source of this worker counts as having a backlog.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    until_ms: AtomicU64,
}

impl Backlog {
    /// A source has filled its bundle: it counts as having a backlog for as long as others may rest.
    pub(super) fn begin(&self, now: Timestamp, gather_ms: u64) {
        self.until_ms.store(now.plus_ms(gather_ms).as_ms(), Relaxed);
    }

    fn lasts(&self, now: Timestamp) -> bool {
        now.as_ms() < self.until_ms.load(Relaxed)
    }
}

/// The rest of one partition.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    until: Option<Timestamp>,
    /// The bundle under way had room for everything that waited.
    pub(super) has_room: bool,
}

impl Rest {
    /// The partition rests now. It may be woken at any time: resting saves work and decides nothing.
    pub(super) fn lasts(&self, runtime: &Runtime, now: Timestamp) -> bool {
        // A clock that was set back must not make it rest for longer.
        let is_before = |until: Timestamp| now < until && until <= now.plus_ms(runtime.options.gather_ms);
        self.until.is_some_and(is_before) && runtime.backlog.lasts(now)
    }

    /// A bundle was committed, or there was nothing to do.
    pub(super) fn begin(&mut self, runtime: &Runtime) {
        let now = runtime.world.clock();
        self.until = (self.has_room && runtime.backlog.lasts(now)).then(|| now.plus_ms(runtime.options.gather_ms));
    }
}
