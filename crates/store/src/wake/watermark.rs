//! A mark that only rises: a caller that waits for a position wakes when the mark has reached it, or when it is certain
//! that it never will.

use crate::{
    records::{Error, Position},
    sync::{AtomicU64, Mutex, lock},
};
use std::{
    future::poll_fn,
    sync::atomic::Ordering,
    task::{Poll, Waker},
};

/// The progress of something, for many callers that wait for a position.
#[derive(Default)]
pub(crate) struct Watermark {
    /// The mark. It rises under the lock, so that a waiter that looks there is not missed; most callers only ask whether
    /// it has reached them, which takes no lock from the thousands that come and go.
    reached: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    failed: Option<Error>,
    tickets: u64,
    /// The waiters, in order of arrival. A list, because they come and are woken by the thousand, and hardly any leaves
    /// before.
    waiting: Vec<Waiting>,
}

struct Waiting {
    position: Position,
    ticket: u64,
    waker: Waker,
}

impl Watermark {
    pub(crate) fn at(position: Position) -> Self {
        Watermark { reached: AtomicU64::new(position.0), ..Watermark::default() }
    }

    /// Raises the mark and wakes those it has reached.
    pub(crate) fn raise(&self, to: Position) {
        let mut inner = lock(&self.inner);
        self.reached.fetch_max(to.0, Ordering::Release);
        if inner.waiting.is_empty() {
            return;
        }
        let room = Vec::with_capacity(inner.waiting.len());
        let waiting = std::mem::replace(&mut inner.waiting, room);
        let mut reached = Vec::with_capacity(waiting.len());
        for one in waiting {
            if one.position <= to { reached.push(one.waker) } else { inner.waiting.push(one) }
        }
        drop(inner);
        reached.into_iter().for_each(Waker::wake);
    }

    /// Declares that the mark will not rise any more. Positions it had reached stay reached.
    pub(crate) fn fail(&self, why: Error) {
        let mut inner = lock(&self.inner);
        inner.failed.get_or_insert(why);
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        waiting.into_iter().for_each(|one| one.waker.wake());
    }

    /// The mark has reached `position`.
    pub(crate) fn has_reached(&self, position: Position) -> bool {
        self.reached.load(Ordering::Acquire) >= position.0
    }

    /// A caller waits for the mark to rise.
    pub(crate) fn is_awaited(&self) -> bool {
        !lock(&self.inner).waiting.is_empty()
    }

    /// Ends when the mark has reached `position`, or never will.
    pub(crate) async fn reach(&self, position: Position) -> Result<(), Error> {
        self.reach_asking(position, || {}).await
    }

    /// The same, and calls `ask` to have the mark raised when no other caller waited for that before.
    pub(crate) async fn reach_asking(&self, position: Position, ask: impl Fn()) -> Result<(), Error> {
        let mut waiter = Waiter { mark: self, ticket: None };
        poll_fn(|context| {
            // The call that raised or failed the mark takes us out of the line, so there is no waiter to give up.
            if self.has_reached(position) {
                waiter.ticket = None;
                return Poll::Ready(Ok(()));
            }
            let mut inner = lock(&self.inner);
            if self.has_reached(position) {
                waiter.ticket = None;
                return Poll::Ready(Ok(()));
            }
            if let Some(why) = &inner.failed {
                waiter.ticket = None;
                return Poll::Ready(Err(why.clone()));
            }
            let is_first = inner.waiting.is_empty();
            match waiter.ticket.and_then(|ticket| inner.place_of(ticket)) {
                Some(at) => inner.waiting[at].waker.clone_from(context.waker()),
                None => waiter.ticket = Some(inner.wait(position, context.waker().clone())),
            }
            drop(inner);
            if is_first {
                ask();
            }
            Poll::Pending
        })
        .await
    }
}

impl Inner {
    fn wait(&mut self, position: Position, waker: Waker) -> u64 {
        self.tickets += 1;
        self.waiting.push(Waiting { position, ticket: self.tickets, waker });
        self.tickets
    }

    /// The place of a ticket in the line. Tickets grow along it: the line only ever loses some.
    fn place_of(&self, ticket: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&ticket, |one| one.ticket).ok()
    }
}

/// A waiter in the line, given up when dropped.
struct Waiter<'a> {
    mark: &'a Watermark,
    ticket: Option<u64>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let mut inner = lock(&self.mark.inner);
            if let Some(at) = inner.place_of(ticket) {
                inner.waiting.remove(at);
            }
        }
    }
}
