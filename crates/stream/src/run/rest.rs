//! When a partition of a later stage rests: while a source of this worker has a backlog, a bundle of what has gathered for
//! some milliseconds costs little more than one of what a single bundle of the source has sent. A rest is as long as the
//! backlog is old, up to [`gather_ms`](super::options::StreamOptions::gather_ms): records that are late by seconds may wait
//! for some milliseconds more, and those behind a hiccup may not. So the size of bundles follows the load: a source that
//! has caught up makes no partition rest, and its records pass on at once.

use super::{Runtime, keys::Station};
use onceflow_core::Timestamp;
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// The time in which a source of this worker has a backlog.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// The source that has had it for the longest.
    of: Mutex<Option<Station>>,
    since_ms: AtomicU64,
    until_ms: AtomicU64,
}

impl Backlog {
    /// A source has filled its bundle: it counts as having a backlog for as long as others may rest.
    pub(super) fn begin(&self, source: Station, now: Timestamp, gather_ms: u64) {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if self.age_ms(now).is_none() {
            *of = Some(source);
            self.since_ms.store(now.as_ms(), Relaxed);
        }
        self.until_ms.store(now.plus_ms(gather_ms).as_ms(), Relaxed);
    }

    /// A source has nothing more for now. Its backlog is over at once: what later stages did with its last records may
    /// have taken so long that it fills a bundle again, which must not make them rest for longer and longer.
    pub(super) fn end(&self, source: Station) {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if *of == Some(source) {
            *of = None;
            self.until_ms.store(0, Relaxed);
        }
    }

    /// Returns how long there has been a backlog, if there is one.
    fn age_ms(&self, now: Timestamp) -> Option<u64> {
        let lasts = now.as_ms() < self.until_ms.load(Relaxed);
        lasts.then(|| now.as_ms().saturating_sub(self.since_ms.load(Relaxed)))
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
        self.until.is_some_and(is_before) && runtime.backlog.age_ms(now).is_some()
    }

    /// A bundle was committed, or there was nothing to do.
    pub(super) fn begin(&mut self, runtime: &Runtime) {
        let now = runtime.world.clock();
        let age_ms = runtime.backlog.age_ms(now).filter(|_| self.has_room);
        self.until = age_ms.map(|age_ms| now.plus_ms(age_ms.min(runtime.options.gather_ms)));
    }
}
