//! The drivers of scopes. The machine in `onceflow_core::scope` decides; the light driver carries its effects out at
//! once, in memory, one step from outside; the `durable` one turns the effects of an event into one batch.
//!
//! | module | what it owns |
//! |---|---|
//! | `body` | the code behind the operations, and a scope with it |
//! | `cell` | one session: the thread that brings an event drives it, one at a time |
//! | `carry` | carries effects out: runs bodies, opens nested sessions, sets timers |
//! | `job` | a future that can be cancelled, and says when it is really dropped |
//! | `keys` | access to the buffers of a session |
//! | `durable` | the durable driver: sessions as rows |
//! | `service` | delivery to shared services, and services that see all their open orders |

mod body;
mod carry;
mod cell;
mod durable;
mod job;
mod keys;
mod service;

pub use body::{
    AsyncBody, BlockingBody, BrokenCopy, Carrier, CleanupBody, CopyBody, DescribeBody, LightScope, OrderStreams,
    Packet, ScopeBody,
};
pub use cell::{SessionHandle, SessionOutlet};
pub use durable::{
    Activity, ActivityBody, BufferAccess, DeliveryRule, DescribeRow, DurableBody, DurableCleanup, DurableEnd,
    DurableScope, FlowCall, FlowValues, InlineBody, OrderView, OrderWork, ScopeHost, ScopeHostOptions, SessionId,
    SessionView, end_scope, enter_scope, sessions_left_open,
};
pub(crate) use durable::{OpenSession, ReadGroup, ScopeStore, check_hosted, check_sessions, session_name, work_key};
pub use keys::{BufferChange, ErasedKey};
pub use service::{LightService, OpenOrder, OpenOrders};
