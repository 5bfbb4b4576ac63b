//! Why a session was cancelled, why a message went no further, and what went wrong besides. Every cause names the
//! operation it comes from.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The end of a session, as its caller sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionEnd<M> {
    /// The result, or why there is none.
    pub result: Result<M, Cancellation>,
    /// Problems that did not change the result, such as a cleanup flow that failed after a session had terminated.
    pub mishaps: Vec<Mishap>,
}

/// A session that was cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancellation {
    /// Why.
    pub cause: CancelCause,
    /// The last disposal of each port up to then.
    pub disposals: Vec<Disposal>,
}

/// Why a session was cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CancelCause {
    /// The caller asked for it.
    Requested(String),
    /// The caller does not wait any more.
    CallerGone,
    /// A cancel operation got a message.
    Triggered {
        /// The operation.
        at: String,
        /// The message in words.
        reason: Option<String>,
    },
    /// Nothing can reach the end of the scope any more; the disposals say why.
    Unreachable,
    /// The session or run this one belongs to ends.
    ParentEnded,
    /// A later request took its place.
    Supplanted,
    /// The deadline passed.
    Deadline {
        /// The deadline in milliseconds.
        after_ms: u64,
    },
    /// An operation on a cycle took too many messages.
    Rounds {
        /// The operation.
        at: String,
        /// The limit.
        max: u32,
    },
    /// One event would change more than a batch of the store takes.
    TooLarge {
        /// The operation that got most of it.
        at: String,
        /// The limit, in the words of the store.
        limit: String,
    },
}

/// A message that went no further, or that will never come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disposal {
    /// The operation.
    pub at: String,
    /// The output port that got nothing.
    pub port: u32,
    /// Why.
    pub cause: DisposalCause,
}

/// The cause for which a message was disposed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DisposalCause {
    /// A fork took another branch.
    NotTaken,
    /// A filter refused it, or a task gave nothing.
    Filtered,
    /// The list that was to be spread is empty.
    EmptySpread,
    /// The part that the port stands for is missing.
    MissingPart,
    /// A collection came to its end with too few.
    Deficient {
        /// So many had come.
        held: u32,
        /// So many were needed.
        min: u32,
    },
    /// The order failed.
    Failed(OrderFailure),
    /// A trim removed it.
    Trimmed,
    /// The buffer was full.
    BufferFull,
    /// A stream was never sent by.
    UnusedStream,
    /// The port leads nowhere, or to a dispose operation.
    Disposed,
}

/// Why an order has no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderFailure {
    /// The task said so.
    Error(String),
    /// The task panicked.
    Panic(String),
    /// The nested session was cancelled.
    Cancelled(Box<Cancellation>),
    /// A later request took its place.
    Supplanted,
}

/// A problem beside the result of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mishap {
    /// A cleanup flow did not end well.
    CleanupFailed {
        /// The flow.
        flow: String,
        /// Why.
        why: OrderFailure,
    },
    /// A cleanup flow was cancelled at its time limit.
    CleanupTimedOut {
        /// The flow.
        flow: String,
        /// The limit in milliseconds.
        after_ms: u64,
    },
    /// An operation failed while the session was being cleaned.
    LateFailure {
        /// The operation.
        at: String,
        /// Why.
        why: OrderFailure,
    },
    /// Further problems, which are only counted.
    Omitted {
        /// How many.
        count: u64,
    },
    /// A problem inside a nested session.
    Nested {
        /// The operation or cleanup flow that opened it.
        at: String,
        /// The problem.
        inner: Box<Mishap>,
    },
}

impl Cancellation {
    /// Finds the cause that explains this cancellation, and the address of its operation (empty for the session
    /// itself): a session whose nested session or task failed became unreachable for that reason.
    pub fn real_cause(&self) -> (String, String) {
        if self.cause == CancelCause::Unreachable {
            let failure = self.disposals.iter().rev().find_map(|disposal| match &disposal.cause {
                DisposalCause::Failed(why) => Some((&disposal.at, why)),
                _ => None,
            });
            if let Some((at, why)) = failure {
                return match why {
                    OrderFailure::Cancelled(inner) => match inner.real_cause() {
                        (below, cause) if below.is_empty() => (at.clone(), cause),
                        (below, cause) => (format!("{at}/{below}"), cause),
                    },
                    other => (at.clone(), other.to_string()),
                };
            }
        }
        match &self.cause {
            CancelCause::Triggered { at, .. } | CancelCause::Rounds { at, .. } | CancelCause::TooLarge { at, .. } => {
                (at.clone(), self.cause.to_string())
            }
            _ => (String::new(), self.cause.to_string()),
        }
    }
}

impl fmt::Display for Cancellation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, cause) = self.real_cause();
        if !at.is_empty() {
            return write!(f, "cancelled at {at}: {cause}");
        }
        write!(f, "cancelled: {cause}")?;
        if self.cause == CancelCause::Unreachable {
            for disposal in &self.disposals {
                write!(f, "; {disposal}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Cancellation {}

impl fmt::Display for CancelCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CancelCause::Requested(why) => write!(f, "requested: {why}"),
            CancelCause::CallerGone => f.write_str("the caller does not wait any more"),
            CancelCause::Triggered { reason: Some(reason), .. } => f.write_str(reason),
            CancelCause::Triggered { reason: None, .. } => f.write_str("a cancel operation was reached"),
            CancelCause::Unreachable => f.write_str("nothing can reach the end of the scope any more"),
            CancelCause::ParentEnded => f.write_str("its parent ended"),
            CancelCause::Supplanted => f.write_str("a later request took its place"),
            CancelCause::Deadline { after_ms } => write!(f, "not done within {after_ms} ms"),
            CancelCause::Rounds { max, .. } => write!(f, "more than {max} messages round a cycle"),
            CancelCause::TooLarge { limit, .. } => write!(f, "one event changes too much for one commit: {limit}"),
        }
    }
}

impl fmt::Display for Disposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.at)?;
        if self.port > 0 {
            write!(f, ":{}", self.port)?;
        }
        write!(f, ": {}", self.cause)
    }
}

impl fmt::Display for DisposalCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DisposalCause::NotTaken => f.write_str("another branch was taken"),
            DisposalCause::Filtered => f.write_str("gave nothing"),
            DisposalCause::EmptySpread => f.write_str("an empty list was spread"),
            DisposalCause::MissingPart => f.write_str("the message has no such part"),
            DisposalCause::Deficient { held, min } => write!(f, "collected {held} of at least {min}"),
            DisposalCause::Failed(why) => write!(f, "{why}"),
            DisposalCause::Trimmed => f.write_str("trimmed"),
            DisposalCause::BufferFull => f.write_str("the buffer is full"),
            DisposalCause::UnusedStream => f.write_str("nothing was sent by this stream"),
            DisposalCause::Disposed => f.write_str("disposed of"),
        }
    }
}

impl fmt::Display for OrderFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrderFailure::Error(error) => write!(f, "failed: {error}"),
            OrderFailure::Panic(message) => write!(f, "panicked: {message}"),
            OrderFailure::Cancelled(inner) => write!(f, "{inner}"),
            OrderFailure::Supplanted => f.write_str("a later request took its place"),
        }
    }
}

impl fmt::Display for Mishap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mishap::CleanupFailed { flow, why } => write!(f, "cleanup {flow} {why}"),
            Mishap::CleanupTimedOut { flow, after_ms } => write!(f, "cleanup {flow} was cancelled after {after_ms} ms"),
            Mishap::LateFailure { at, why } => write!(f, "{at} {why} while the session was cleaned"),
            Mishap::Omitted { count } => write!(f, "{count} more"),
            Mishap::Nested { at, inner } => write!(f, "{at}/{inner}"),
        }
    }
}
