//! The definition of a scope as data: operations, what each port leads to, cleanup flows, settings.
//! Nothing here is checked; [`check`](super::check) turns a draft into a [`Scope`](super::Scope).

use serde::{Deserialize, Serialize};

/// The number of an operation in its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OpId(pub u32);

impl OpId {
    /// The number as an index.
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// A scope that is being described.
#[derive(Clone, Debug, Default)]
pub struct ScopeDraft {
    /// The operations; an [`OpId`] is an index into them.
    pub ops: Vec<Operation>,
    /// The operation that gets the message a session is opened with.
    pub start: Option<OpId>,
    /// Flows that run when a session ends.
    pub cleanups: Vec<CleanupFlow>,
    /// Names of the streams that the scope sends out.
    pub streams: Vec<String>,
    /// Limits, and who may end a session.
    pub settings: ScopeSettings,
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its name in addresses and reasons; unique in its scope.
    pub name: String,
    /// The work it does on a message.
    pub kind: OpKind,
    /// For each output port the operation it leads to; `None` disposes of the message.
    pub outputs: Vec<Option<OpId>>,
}

/// The operations there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// User code or a nested flow. Port 0 is its result, the ports after it are its streams.
    Task {
        /// How it is run.
        mode: TaskMode,
        /// How many streams it has.
        streams: u32,
    },
    /// Sends a message by the ports that its content decides.
    Distribute(Distribution),
    /// A copy to every port.
    Clone,
    /// Gathers messages until there are `max`, or until none can arrive any more; fewer than `min` are disposed of.
    Collect {
        /// The least number of messages it gives on.
        min: u32,
        /// The number at which it does not wait for more.
        max: Option<u32>,
    },
    /// Gives one message made of one entry of each buffer, whenever all have one.
    Join {
        /// The buffers, in the order of the parts.
        inputs: Vec<JoinInput>,
    },
    /// Gives keys whenever one of its buffers has changed.
    Listen {
        /// The buffers it gives keys for.
        buffers: Vec<OpId>,
        /// Changes made with its own keys wake it too.
        own_writes: bool,
    },
    /// Stores messages for the session.
    Buffer {
        /// Which of them it keeps.
        keep: BufferKeep,
    },
    /// Adds keys to a message.
    Access {
        /// The buffers it gives keys for.
        buffers: Vec<OpId>,
    },
    /// Stores the message in a buffer, then gives a trigger.
    Push {
        /// The buffer.
        buffer: OpId,
    },
    /// Opens or closes buffers for their readers, then passes the message on.
    Gate {
        /// The buffers.
        buffers: Vec<OpId>,
        /// The action on them.
        action: GateAction,
    },
    /// Cleans a part of the scope as if the session ended there, then passes the message on.
    Trim {
        /// The part.
        span: TrimSpan,
    },
    /// Sends the message out of the scope.
    StreamOut {
        /// The index of the stream among [`ScopeDraft::streams`].
        stream: u32,
    },
    /// Cancels the session.
    Cancel {
        /// It is there for errors only: a session that can only reach this one is unreachable.
        implicit: bool,
    },
    /// Disposes of the message on purpose.
    Dispose,
    /// Gives a message whenever one of these operations disposes of one.
    Watch {
        /// The operations.
        of: Vec<OpId>,
    },
    /// Ends the session with the message as its result.
    Terminate,
}

/// How a task is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskMode {
    /// It ends before anything else of its session goes on.
    Blocking,
    /// A future.
    Async,
    /// A service that sees its open orders each tick, and answers them when it likes.
    Continuous,
    /// A nested scope, or a flow.
    Flow,
    /// The message brings its task along.
    Injected,
}

/// Operations whose ports the content of a message decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// One port of several: a result, an option, an enum.
    Fork,
    /// Every port: the elements of a tuple.
    Unzip,
    /// Ports by key or index, and one for the rest; ports whose part is missing get nothing.
    Split,
    /// Many messages by one port.
    Spread,
    /// One port, or nothing.
    Filter,
}

/// Which messages a buffer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferKeep {
    /// The newest so many; older ones go.
    Last(u32),
    /// The first so many; further ones are refused.
    First(u32),
    /// All of them.
    All,
}

/// One input of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinInput {
    /// The buffer.
    pub buffer: OpId,
    /// The oldest entry is copied and stays, instead of being taken.
    pub by_clone: bool,
}

/// Action of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateAction {
    /// Readers see the buffer.
    Open,
    /// Readers do not.
    Close,
    /// The message decides: its body answers by port 0 to open and by port 1 to close.
    Dynamic,
}

/// The part of a scope that a trim cleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimSpan {
    /// One operation.
    Point(OpId),
    /// An operation and all that it leads to, except the end of the scope and the trim itself.
    Downstream(OpId),
    /// All operations on a way from the first to the second, both included.
    Between(OpId, OpId),
}

/// A flow that runs when a session ends, with keys to some of its buffers.
#[derive(Clone, Debug)]
pub struct CleanupFlow {
    /// Its name in reasons; unique in its scope.
    pub name: String,
    /// The ends it runs at.
    pub when: CleanupWhen,
    /// The buffers it gets keys for.
    pub buffers: Vec<OpId>,
    /// It is cancelled after so many milliseconds.
    pub timeout_ms: Option<u64>,
}

/// The ends of a session at which a cleanup flow runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanupWhen {
    /// It has a result.
    Terminated,
    /// It was cancelled, from inside or by its parent.
    Cancelled,
    /// Either.
    Ended,
}

impl CleanupWhen {
    /// The flow runs at such an end.
    pub fn holds(self, has_result: bool) -> bool {
        match self {
            CleanupWhen::Terminated => has_result,
            CleanupWhen::Cancelled => !has_result,
            CleanupWhen::Ended => true,
        }
    }
}

/// Limits of a session, and who may end it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopeSettings {
    /// The end of the parent, and a request to cancel, are deferred until the session has ended by itself.
    pub uninterruptible: bool,
    /// The session is cancelled after so many milliseconds.
    pub deadline_ms: Option<u64>,
    /// The session is cancelled when an operation on a cycle would take more messages than this.
    pub rounds_max: Option<u32>,
}
