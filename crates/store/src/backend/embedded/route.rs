//! Where calls go: one opening of the store, reached as its owner or as a guest. Positions are comparable within one
//! opening only, so each route moves its own above all that were given before.

use super::{join::Joined, owner::Owner};
use crate::{
    backend::socket::Socket,
    records::{CommitResult, Error, Position, Records},
};
use std::sync::Arc;

/// One opening of the store, as this process reaches it.
pub(super) struct Route {
    pub(super) records: Arc<dyn Records>,
    /// The connection, for a guest.
    pub(super) socket: Option<Arc<Socket>>,
    /// All positions before this one are from earlier openings.
    base: u64,
}

impl Route {
    pub(super) fn to(seat: Joined, base: u64) -> (Arc<Route>, Option<Owner>) {
        match seat {
            Joined::Owner(owner) => {
                let records = owner.records.clone();
                (Arc::new(Route { records, socket: None, base }), Some(owner))
            }
            Joined::Guest(socket) => {
                let socket = Arc::new(socket);
                (Arc::new(Route { records: socket.clone(), socket: Some(socket), base }), None)
            }
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.socket.as_ref().is_some_and(|socket| socket.is_lost().is_some())
    }

    /// The answer says only that the owner changes: nothing was done, ask the next one.
    pub(super) fn is_over<T>(&self, answer: &Result<T, Error>) -> bool {
        matches!(answer, Err(Error::Unavailable(_))) && self.is_lost()
    }

    pub(super) fn position(&self) -> Position {
        self.give(self.records.position())
    }

    /// A position of this opening, as callers see it.
    pub(super) fn give(&self, position: Position) -> Position {
        Position(self.base + position.0)
    }

    pub(super) fn give_outcome(&self, mut outcome: CommitResult) -> CommitResult {
        match &mut outcome {
            CommitResult::Applied(committed) => committed.position = self.give(committed.position),
            CommitResult::Refused(refused) => refused.position = self.give(refused.position),
        }
        outcome
    }

    /// Translates a caller's position into this opening; `None` if it is from an earlier one.
    pub(super) fn take(&self, position: Position) -> Option<Position> {
        position.0.checked_sub(self.base).map(Position)
    }
}
