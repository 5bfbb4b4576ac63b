//! The observer of guests: the account of each process's claims is told when a guest came, committed and left.

use super::protocol::Hello;
use crate::{records::Error, world::BoxFuture};
use onceflow_core::Batch;

/// Keeps account of guests. All methods have defaults that keep none.
pub trait Guests: Send + Sync + 'static {
    /// A guest came and says what it holds. It is welcomed, and its requests are read, when this ends.
    ///
    /// # Errors
    /// If it cannot be served; its connection ends.
    fn arrived(&self, _hello: Hello) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// A guest commits this next.
    fn commits(&self, _member: u128, _batch: &Batch) {}

    /// A connection of a guest that had arrived has ended, and all that it sent is executed.
    fn left(&self, _member: u128) {}
}

/// Keeps no account.
pub(super) struct AllGuests;

impl Guests for AllGuests {}
