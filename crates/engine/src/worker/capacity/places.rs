//! A limited number of places; each is free again when it is dropped.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

/// A limit on the number of steps.
pub(super) struct Places {
    taken: Arc<AtomicUsize>,
    max: usize,
}

/// A place, until dropped.
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

    /// A place, whether one is free or not: for a step that lent its place.
    pub(super) fn insist(&self) -> Place {
        self.taken.fetch_add(1, SeqCst);
        Place(self.taken.clone())
    }

    /// More places are taken than the limit allows, after [`Places::insist`].
    pub(super) fn is_exceeded(&self) -> bool {
        self.taken.load(SeqCst) > self.max
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, SeqCst);
        assert!(before > 0, "a place is given back that was not taken: more steps would run than the limit allows");
    }
}
