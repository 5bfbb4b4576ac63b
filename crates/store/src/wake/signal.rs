//! A signal: every waiter looks again when it is raised.

use crate::sync::{Mutex, lock};
use std::{collections::BTreeMap, future::poll_fn, task::Poll, task::Waker};

/// Wakes all waiters. A waiter that stops waiting leaves nothing behind.
#[derive(Default)]
pub(crate) struct Signal {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    tickets: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Signal {
    /// Wakes all present waiters.
    pub(crate) fn notify(&self) {
        let wakers = std::mem::take(&mut lock(&self.waiting).wakers);
        wakers.into_values().for_each(Waker::wake);
    }

    /// Ends when `look` answers something. It looks at once, and again after every ring. A ring after `look` began
    /// is not missed.
    pub(crate) async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        let waiter = Waiter { bell: self, ticket: self.ticket() };
        poll_fn(|context| {
            // First in line, then look: whatever changes after the look finds us waiting.
            lock(&self.waiting).wakers.insert(waiter.ticket, context.waker().clone());
            look().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    fn ticket(&self) -> u64 {
        let mut waiting = lock(&self.waiting);
        waiting.tickets += 1;
        waiting.tickets
    }
}

/// A waiter in the line, given up when dropped.
struct Waiter<'a> {
    bell: &'a Signal,
    ticket: u64,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        lock(&self.bell.waiting).wakers.remove(&self.ticket);
    }
}
