//! The front of a store in a directory, the same whatever its rows are kept in: callers look at the rows under one lock,
//! wait for the disk, and learn why the store takes nothing more. The book behind it applies batches and differs.

use super::{clock::StoreClock, shared::wait_for};
use crate::{
    records::{CommitResult, Error, Position},
    state::{StandingClaim, StoreState},
    sync::{Mutex, lock},
    wake::{Signal, Watermark},
    world::World,
};
use onceflow_core::{Shard, Timestamp};
use std::sync::Arc;

/// The mark of a task that has ended.
pub(super) const ENDED: Position = Position(1);

/// A book: the applied state of a store and what of it waits to be written.
pub(super) trait Book: Send + 'static {
    /// Returns what the front looks at and changes.
    fn parts(&mut self) -> BookParts<'_>;
}

/// The parts that all books have.
pub(super) struct BookParts<'a> {
    /// Queues with their claims; a book may keep its other rows here too.
    pub(super) queues: &'a mut StoreState,
    pub(super) clock: &'a mut StoreClock,
    /// How many batches are applied.
    pub(super) position: Position,
    /// The reason why no batch is admitted any more.
    pub(super) fault: Option<&'a Error>,
    pub(super) closing: &'a mut bool,
    /// No claim finds anything: processes that may hold claims have yet to report them.
    pub(super) grants_held: &'a mut bool,
}

/// The result of trying a batch.
pub(super) enum Attempt {
    Decided {
        outcome: CommitResult,
        /// Callers that wait for free rows should look again.
        enabled: bool,
        /// The committer has work and must be woken.
        wake_committer: bool,
        /// Nothing was left to write, so the answer is as durable as it will get.
        settled: bool,
    },
    /// The batch must wait until the committer has made room for it.
    NoRoom,
}

/// The state that the callers and the committer share.
pub(super) struct Front<B> {
    pub(super) world: Arc<dyn World>,
    /// The identity of the store, different from every other's, for ever.
    pub(super) store: u128,
    pub(super) book: Mutex<B>,
    /// Up to where everything is durable.
    pub(super) durable: Watermark,
    /// Wakes the committer.
    pub(super) work: Signal,
    /// Wakes callers that wait for room.
    pub(super) room: Signal,
    /// Wakes callers that wait for free rows.
    pub(super) enabled: Signal,
    /// Raised to [`ENDED`] when the committer touches the files no more.
    pub(super) committer_ended: Watermark,
}

impl<B: Book> Front<B> {
    /// `durable` is the position up to which the files hold everything.
    pub(super) fn new(world: Arc<dyn World>, store: u128, book: B, durable: Position) -> Self {
        Front {
            world,
            store,
            book: Mutex::new(book),
            durable: Watermark::at(durable),
            work: Signal::default(),
            room: Signal::default(),
            enabled: Signal::default(),
            committer_ended: Watermark::default(),
        }
    }

    /// Refuses batches from now on, and lets the committer write those applied and end.
    pub(super) fn begin_close(&self) {
        *lock(&self.book).parts().closing = true;
        self.work.notify();
        self.room.notify();
    }

    /// The claims that stand now.
    pub(super) fn claims(&self) -> Vec<StandingClaim> {
        lock(&self.book).parts().queues.claims()
    }

    /// Suspends or resumes claims. Callers that wait for free rows look again.
    pub(super) fn hold_grants(&self, held: bool) {
        let mut book = lock(&self.book);
        let parts = book.parts();
        *parts.grants_held = held;
        if !held {
            parts.queues.note_all_enabled(Position(parts.position.0 + 1));
        }
        drop(book);
        self.enabled.notify();
    }

    pub(super) fn holds_grants(&self) -> bool {
        *lock(&self.book).parts().grants_held
    }

    /// Looks at the book under the lock, unless the store has failed: the state in memory then may not be on the disk.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut B) -> T) -> Result<T, Error> {
        let mut book = lock(&self.book);
        match book.parts().fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(look(&mut book)),
        }
    }

    /// Tells the committer and the waiting callers the result of trying a batch; `None` if the batch must wait for room.
    pub(super) fn tell(&self, attempt: Attempt) -> Option<CommitResult> {
        let Attempt::Decided { outcome, enabled, wake_committer, settled } = attempt else {
            self.work.notify();
            return None;
        };
        if wake_committer {
            self.work.notify();
        }
        if settled {
            self.durable.raise(outcome.position());
        }
        if enabled {
            self.enabled.notify();
        }
        Some(outcome)
    }

    pub(super) fn position(&self) -> Position {
        lock(&self.book).parts().position
    }

    pub(super) fn now(&self) -> Result<Timestamp, Error> {
        let world = self.world.clock();
        self.look(|book| book.parts().clock.read(world))
    }

    /// Waits for free rows of a shard after `seen`, until a time at most.
    pub(super) async fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> Result<(), Error> {
        let now = self.now()?;
        let look = || {
            let mut book = lock(&self.book);
            let parts = book.parts();
            (parts.fault.is_some() || parts.queues.enabled_at(shard) > seen).then_some(())
        };
        wait_for(&*self.world, &self.enabled, look, until.ms_since(now)).await;
        self.look(|_| ())
    }
}
