//! The rows of an event log: see the table in `onceflow_core::protocol::keys`.

use super::{ReportedOutcome, counts::UnlistedCounts};
use crate::{RunStatus, events::EventKind};
use onceflow_core::payload::Stored;
use serde::{Deserialize, Serialize};

/// An entry of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LoggedEvent {
    /// The time on the store's clock, in milliseconds since 1970. In memory, before it is written: on this machine's.
    pub(super) ms: u64,
    /// The generation of the plan.
    pub(super) plan: u32,
    pub(super) what: Logged,
}

/// The content of an entry. New kinds go to the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Logged {
    Event(EventKind),
    Reported { address: String, outcome: ReportedOutcome },
    Resumed,
}

impl LoggedEvent {
    /// The run has ended, or is at rest.
    pub(super) fn end(&self) -> Option<RunStatus> {
        match &self.what {
            Logged::Event(EventKind::DidEnd { how }) => Some(*how),
            _ => None,
        }
    }
}

/// Some entries of one worker, in order. The last block of a worker grows until it is full.
pub(super) type Block = Vec<LoggedEvent>;

/// The counts of what a worker logged. It changes with every write of the worker, so that a batch which requires it as it
/// was read sees no other blocks than those of then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkerHeader {
    pub(super) host: String,
    /// How often the worker wrote.
    pub(super) version: u32,
    /// How often its blocks were sealed, after which it began anew: counts are since then.
    pub(super) epoch: u32,
    /// The number of the last block.
    pub(super) block: u32,
    /// Bytes in its blocks.
    pub(super) bytes: u64,
    /// Counts of unlisted events, with the plan they are of and the time of the last of them.
    pub(super) unlisted: Option<(u32, u64, UnlistedCounts)>,
}

/// The row of the sealed part of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SealedRow {
    /// The value: a [`SealedLog`].
    pub(crate) stored: Stored,
    /// The index in [`EVENTS`](onceflow_core::protocol::run::EVENTS) of the edge that holds it.
    pub(super) edge: u8,
    /// The number of steps that committed or were reused: see [`RunHistory::logged_steps`](crate::RunHistory::logged_steps).
    pub(super) steps: u64,
}

/// The sealed part of a log. Blocks keep their numbers, so that a reader which has seen some of them finds the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SealedLog {
    pub(super) workers: Vec<SealedWorker>,
}

/// The blocks of one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SealedWorker {
    pub(super) worker: u128,
    pub(super) header: WorkerHeader,
    pub(super) blocks: Vec<(u32, Block)>,
}
