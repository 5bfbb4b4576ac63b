//! The tasks that wait for time to pass.

use crate::sync::{Mutex, lock};
use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// The time that has passed, and the tasks that wait for more.
#[derive(Default)]
pub(super) struct Sleepers(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    passed_ms: u64,
    tickets: u64,
    /// By wake-up time, then by arrival.
    waiting: BTreeMap<(u64, u64), Option<Waker>>,
}

impl Sleepers {
    pub(super) fn advance(&self, ms: u64) {
        let mut inner = lock(&self.0);
        inner.passed_ms = inner.passed_ms.saturating_add(ms);
        let due = (inner.passed_ms, u64::MAX);
        let wakers: Vec<_> = inner.waiting.range_mut(..=due).filter_map(|(_, waker)| waker.take()).collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(super) fn next_in_ms(&self) -> Option<u64> {
        let inner = lock(&self.0);
        inner.waiting.keys().map(|(at, _)| *at).find(|at| *at > inner.passed_ms).map(|at| at - inner.passed_ms)
    }

    pub(super) fn passed_ms(&self) -> u64 {
        lock(&self.0).passed_ms
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.0).waiting.len()
    }
}

/// A wait. It is counted from when it is made to when it is dropped.
pub(super) struct Sleep {
    sleepers: Arc<Sleepers>,
    place: (u64, u64),
}

impl Sleep {
    pub(super) fn new(sleepers: Arc<Sleepers>, ms: u64) -> Self {
        let mut inner = lock(&sleepers.0);
        inner.tickets += 1;
        let place = (inner.passed_ms.saturating_add(ms), inner.tickets);
        inner.waiting.insert(place, None);
        drop(inner);
        Sleep { sleepers, place }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut inner = lock(&self.sleepers.0);
        if inner.passed_ms >= self.place.0 {
            return Poll::Ready(());
        }
        inner.waiting.insert(self.place, Some(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        lock(&self.sleepers.0).waiting.remove(&self.place);
    }
}
