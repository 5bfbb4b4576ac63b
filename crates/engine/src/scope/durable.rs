//! The durable driver of scopes: the same machine as the light one, but every message, order and phase is a row, and an
//! event is one batch of the kernel. A crash anywhere resumes to the same observations.
//!
//! A *session* is a row of its scope's queue for as long as it lives; the holder of that row's claim is its one writer,
//! keeps the machine in memory, and reads it back from the rows when it takes a session over. An *activity* (user code
//! that touches the world) is a row of the same queue, which any host may claim; its commit deletes that row and puts an
//! event row for the session. A nested session and a cleanup flow are sessions of their own: their end is an event
//! for the parent.
//!
//! | module | what it owns |
//! |---|---|
//! | `body` | the code behind the operations |
//! | `keys` | the rows: names, and the notes of ready rows |
//! | `turn` | events into the machine, effects into one batch; pure but for inline bodies |
//! | `orders` | the effects that begin orders and tell them to end |
//! | `lanes` | orders that are served one at a time |
//! | `writer` | the holder of a session: reads, commits, waits |
//! | `activity` | runs one activity, and commits its answer |
//! | `call` | runs a flow for an order, and ends that run |
//! | `entry` | a scope as a step of a flow |
//! | `open_sessions` | the sessions that a run has open |
//! | `census` | compares the rows of open sessions with each other, for `fsck` |
//! | `inspect` | what the sessions of a run wait for, for any process that asks |
//! | `hosted` | the sessions that hosts have opened outside any run |
//! | `host` | claims, heartbeats, takeover; opens sessions and awaits their ends |

mod activity;
mod body;
mod call;
mod census;
mod entry;
mod host;
mod hosted;
mod inspect;
mod keys;
mod lanes;
mod open_sessions;
mod orders;
mod turn;
mod writer;

pub use body::{
    Activity, ActivityBody, BufferAccess, DeliveryRule, DescribeRow, DurableBody, DurableCleanup, DurableScope,
    InlineBody,
};
pub use call::{FlowCall, FlowValues};
pub(crate) use census::{ReadGroup, check_hosted, check_sessions};
pub(crate) use entry::ScopeStore;
pub use entry::{end_scope, enter_scope, sessions_left_open};
pub use host::{ScopeHost, ScopeHostOptions};
pub use inspect::{OrderView, OrderWork, SessionView};
pub use keys::{DurableEnd, SessionId};
pub(crate) use open_sessions::{OpenSession, session_name, work_key};
