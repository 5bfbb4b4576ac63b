//! So many places, and no more; each is free again when who has it drops it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

/// Places that steps have while they are taken.
pub(super) struct Places {
    taken: Arc<AtomicUsize>,
    max: usize,
}

/// One of them.
pub(super) struct Place(Arc<AtomicUsize>);

impl Places {
    pub(super) fn new(max: usize) -> Self {
        Places { taken: Arc::default(), max }
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// A place, if one is free.
    pub(super) fn take(&self) -> Option<Place> {
        let free = |taken| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(SeqCst, SeqCst, free).ok()?;
        Some(Place(self.taken.clone()))
    }

    /// A place, whether one is free or not: for who had one, and let others have it for a while.
    pub(super) fn insist(&self) -> Place {
        self.taken.fetch_add(1, SeqCst);
        Place(self.taken.clone())
    }

    /// Whether somebody insisted while none was free, and none has become free since.
    pub(super) fn is_exceeded(&self) -> bool {
        self.taken.load(SeqCst) > self.max
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}
