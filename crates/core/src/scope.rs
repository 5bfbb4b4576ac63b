//! Scopes: reactive regions whose operations pass messages, with buffers, cancellation and cleanup.
//!
//! One pure machine decides everything: the state of a session is data, an event goes in, effects come out. Drivers
//! carry the effects out: the light one in memory and at once; the durable one turns the effects of an event into
//! one batch. Messages are opaque to the machine (`M`), so a driver passes typed values without encoding them, or
//! references to stored ones.
//!
//! | module | what it owns |
//! |---|---|
//! | [`definition`] | the operations of a scope and their connections, its cleanup flows and settings |
//! | [`check`] | the faults of a definition, all at once; a [`Scope`] has none |
//! | [`session`] | the state of one entry into a scope, and what an event does to it |
//! | [`effect`] | events and effects |
//! | `operation` | a file for each operation: set up, execute, clean, reachable |
//! | `reach` | which operations can still get a message: a least fixpoint, kept up to date where support was lost |
//! | [`cause`] | why a session was cancelled, a message disposed of, and what else went wrong |
//! | [`lanes`] | delivery: serial, per label, preempt, ensure |

pub mod cause;
pub mod check;
pub mod definition;
pub mod effect;
pub mod lanes;
mod operation;
mod reach;
pub mod session;

pub use cause::{CancelCause, Cancellation, Disposal, DisposalCause, Mishap, OrderFailure, SessionEnd};
pub use check::{Scope, ScopeFault};
pub use definition::{
    BufferKeep, CleanupFlow, CleanupWhen, Distribution, GateAction, JoinInput, OpId, OpKind, Operation, ScopeDraft,
    ScopeSettings, TaskMode, TrimSpan,
};
pub use effect::{Contents, Emitted, Feed, OrderId, ScopeEffect, ScopeEvent, SessionTimer};
pub use lanes::{Instruction, LaneChange, Lanes};
pub use session::{
    OpOverview, OrderKind, SESSION_ROW, Session, SessionPhase, check_rows, is_order_cancelled, is_readable, order_row,
    read_order,
};
