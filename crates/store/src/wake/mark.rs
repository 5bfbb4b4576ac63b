//! A mark that only rises: whoever waits for a position wakes when the mark has reached it, or when it is
//! certain that it never will.

use crate::{
    records::{Error, Position},
    sync::{Mutex, lock},
};
use std::{
    collections::BTreeMap,
    future::poll_fn,
    task::{Poll, Waker},
};

/// How far something has come, for many who wait for it to come far enough.
#[derive(Default)]
pub(crate) struct Mark {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    reached: Position,
    failed: Option<Error>,
    tickets: u64,
    waiting: BTreeMap<(Position, u64), Waker>,
}

impl Mark {
    pub(crate) fn at(position: Position) -> Self {
        Mark { inner: Mutex::new(Inner { reached: position, ..Inner::default() }) }
    }

    /// Raises the mark and wakes those it has reached.
    pub(crate) fn raise(&self, to: Position) {
        let mut inner = lock(&self.inner);
        inner.reached = inner.reached.max(to);
        let above = inner.waiting.split_off(&(Position(to.0.saturating_add(1)), 0));
        let reached = std::mem::replace(&mut inner.waiting, above);
        drop(inner);
        reached.into_values().for_each(Waker::wake);
    }

    /// Says that the mark will not rise any more. What it had reached, it has reached.
    pub(crate) fn fail(&self, why: Error) {
        let mut inner = lock(&self.inner);
        inner.failed.get_or_insert(why);
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        waiting.into_values().for_each(Waker::wake);
    }

    /// Whether somebody waits for it to rise.
    pub(crate) fn is_awaited(&self) -> bool {
        !lock(&self.inner).waiting.is_empty()
    }

    /// Ends when the mark has reached `position`, or never will.
    pub(crate) async fn reach(&self, position: Position) -> Result<(), Error> {
        self.reach_asking(position, || {}).await
    }

    /// The same, and asks for the mark to be raised when nobody waited for that before.
    pub(crate) async fn reach_asking(&self, position: Position, ask: impl Fn()) -> Result<(), Error> {
        let mut place = Place { mark: self, position, ticket: None };
        poll_fn(|context| {
            let mut inner = lock(&self.inner);
            // Whoever raised or failed the mark has taken us out of the line, so there is no place to give up.
            if inner.reached >= position {
                place.ticket = None;
                return Poll::Ready(Ok(()));
            }
            if let Some(why) = &inner.failed {
                place.ticket = None;
                return Poll::Ready(Err(why.clone()));
            }
            let is_first = inner.waiting.is_empty();
            let ticket = *place.ticket.get_or_insert_with(|| {
                inner.tickets += 1;
                inner.tickets
            });
            inner.waiting.insert((position, ticket), context.waker().clone());
            drop(inner);
            if is_first {
                ask();
            }
            Poll::Pending
        })
        .await
    }
}

/// A place in the line, given up when dropped.
struct Place<'a> {
    mark: &'a Mark,
    position: Position,
    ticket: Option<u64>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            lock(&self.mark.inner).waiting.remove(&(self.position, ticket));
        }
    }
}
