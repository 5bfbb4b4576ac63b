//! Events that go into a session, effects that come out, and the access to the content of messages.

use super::{cause::Disposal, cause::Mishap, cause::OrderFailure, cause::SessionEnd, definition::OpId};
use serde::{Deserialize, Serialize};

/// One execution of an operation that a driver carries out: user code, a nested session, a cleanup flow. Unique in its
/// session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OrderId {
    pub(crate) slot: u32,
    pub(crate) turn: u32,
}

impl OrderId {
    /// The number of the order among all orders of its session.
    pub fn turn(self) -> u32 {
        self.turn
    }

    /// The order as one number, for tables of drivers.
    pub fn number(self) -> u64 {
        u64::from(self.turn) << 32 | u64::from(self.slot)
    }
}

/// The content of messages, which only a driver knows.
pub trait Contents<M> {
    /// Copies a message of an operation that needs it more than once: a clone, or a buffer that a join copies from.
    fn duplicate(&self, op: OpId, message: &M) -> M;

    /// Says in words what a message means to a cancel operation; `None` if it cancels quietly.
    fn describe(&self, op: OpId, message: &M) -> Option<String>;
}

/// Something that happened to a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ScopeEvent<M> {
    /// The session is opened with this message. Once.
    Start(M),
    /// An order ended well, and gave this.
    Ended {
        /// The order.
        order: OrderId,
        /// Messages by port.
        emitted: Emitted<M>,
        /// Problems of its own cleanup, if it was a nested session.
        mishaps: Vec<Mishap>,
    },
    /// An order that goes on gave a message by one of its stream ports.
    Streamed {
        /// The order.
        order: OrderId,
        /// The port; streams begin at 1.
        port: u32,
        /// The message.
        message: M,
    },
    /// An order ended without a result.
    Failed {
        /// The order.
        order: OrderId,
        /// The reason.
        why: OrderFailure,
        /// Problems of its own cleanup, if it was a nested session.
        mishaps: Vec<Mishap>,
    },
    /// An order that was to be cancelled is gone: its future is dropped, its own cleanup has ended.
    Dropped {
        /// The order.
        order: OrderId,
        /// Problems of its own cleanup, if it was a nested session.
        mishaps: Vec<Mishap>,
    },
    /// A key put a message into a buffer.
    Push {
        /// The buffer.
        buffer: OpId,
        /// The operation that gave out the key; `None` for a cleanup flow.
        by: Option<OpId>,
        /// The message.
        message: M,
    },
    /// No key to this buffer exists any more.
    KeysReleased {
        /// The buffer.
        buffer: OpId,
    },
    /// The caller wants the session to end.
    Cancel(super::CancelCause),
    /// The parent ends, or trims the operation that opened this session.
    ParentEnds,
    /// A timer that the session had set is due.
    Due(SessionTimer),
    /// Nothing that the driver could do at once is left: the session looks at which operations are still reachable; one that
    /// ends tells its next orders.
    Idle,
}

/// A timer of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SessionTimer {
    /// The deadline of the session.
    Deadline,
    /// The time limit of a cleanup flow.
    Cleanup(OrderId),
}

/// Work for the driver. Effects are carried out in order; each is safe to skip only where it says so.
#[derive(Clone, Debug)]
pub enum ScopeEffect<M> {
    /// Run an operation, and answer with `Ended`, `Failed` or `Dropped`, exactly once. An order that is not
    /// [wanted](super::Session::is_wanted) any more is answered with `Dropped` and not run.
    Run {
        /// The order to answer.
        order: OrderId,
        /// The operation.
        op: OpId,
        /// Its input.
        feed: Feed<M>,
    },
    /// Cancel an order, and answer `Dropped` when it is really gone.
    Cancel {
        /// The order.
        order: OrderId,
    },
    /// Run a cleanup flow with keys to its buffers, and answer as for `Run`.
    Clean {
        /// The order to answer.
        order: OrderId,
        /// The index of the flow.
        flow: u32,
    },
    /// Send a message out by a stream of the scope.
    Stream {
        /// The index of the stream.
        stream: u32,
        /// The message.
        message: M,
    },
    /// A buffer that keys exist for has changed: wake those who wait for it.
    Changed {
        /// The buffer.
        buffer: OpId,
    },
    /// Send `Due` after so many milliseconds, unless the session is done by then.
    SetTimer {
        /// The timer.
        timer: SessionTimer,
        /// When, from now.
        after_ms: u64,
    },
    /// A message that no operation needs any more.
    Drop(M),
    /// The session is done. The last effect.
    Deliver(Box<SessionEnd<M>>),
}

/// The input of an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Feed<M> {
    /// One message.
    One(M),
    /// The parts of a join, or a collection.
    Many(Vec<M>),
    /// Keys to the operation's buffers, with the message they are added to.
    Keys(Option<M>),
    /// Nothing: a message was stored.
    Trigger,
    /// A disposal that is watched.
    Disposal(Box<Disposal>),
}

/// Messages that an order gave, by port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub enum Emitted<M> {
    /// None.
    #[default]
    Nothing,
    /// One.
    One(u32, M),
    /// Several, in order.
    Many(Vec<(u32, M)>),
}
