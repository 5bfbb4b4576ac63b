//! The way between partitions that do not share a store: at least once, in any order, with losses. Everything above it
//! makes that exactly once. A message log implements [`Transport`]; [`MemoryTransport`] serves one process.

use super::keys::Station;
use crate::{
    event_time::EventTime,
    identity::{ProducerId, Stamp},
};
use onceflow_core::Row;
use onceflow_store::{BoxFuture, Error};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// A message from one partition to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamMessage {
    /// A block of records.
    Records(Row),
    /// The receiver has committed the block of this producer that begins with this number, durably.
    Acknowledged {
        /// The sender of the block.
        producer: ProducerId,
        /// The number of its first record.
        first: u64,
    },
    /// A watermark that the sender promises. They may arrive in any order; the greatest holds.
    Progress {
        /// The edge, and the sender's partition.
        sender: (u16, u16),
        /// No record that was not acknowledged is earlier, nor is any to come.
        watermark: EventTime,
        /// No block that was not acknowledged has an earlier stamp, nor has any to come.
        reclaim: Stamp,
    },
}

/// Carries messages. May lose, repeat, delay and reorder them; never changes one.
pub trait Transport: Send + Sync + 'static {
    /// Sends a message. Ending without an error promises nothing: the sender sends again until it is acknowledged.
    fn send(&self, to: Station, message: StreamMessage) -> BoxFuture<'_, Result<(), Error>>;

    /// Returns the messages that have come for a partition.
    fn receive(&self, at: Station) -> BoxFuture<'_, Result<Vec<StreamMessage>, Error>>;
}

/// A transport within one process.
#[derive(Debug, Default)]
pub struct MemoryTransport {
    waiting: Mutex<BTreeMap<Station, Vec<StreamMessage>>>,
}

impl Transport for MemoryTransport {
    fn send(&self, to: Station, message: StreamMessage) -> BoxFuture<'_, Result<(), Error>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).entry(to).or_default().push(message);
        Box::pin(std::future::ready(Ok(())))
    }

    fn receive(&self, at: Station) -> BoxFuture<'_, Result<Vec<StreamMessage>, Error>> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&at);
        Box::pin(std::future::ready(Ok(waiting.unwrap_or_default())))
    }
}
