//! The light driver of scopes: sessions in memory, one step from outside. The machine in `onceflow_core::scope` decides;
//! this carries its effects out at once.
//!
//! | module | what it owns |
//! |---|---|
//! | `body` | the code behind the operations, and a scope with it |
//! | `cell` | one session: whoever brings an event drives it, one thread at a time |
//! | `carry` | carries effects out: runs bodies, opens nested sessions, sets timers |
//! | `job` | a future that can be cancelled, and says when it is really dropped |
//! | `keys` | access to the buffers of a session |
//! | `service` | delivery to shared services, and services that see all their open orders |

mod body;
mod carry;
mod cell;
mod job;
mod keys;
mod service;

pub use body::{
    AsyncBody, BlockingBody, BrokenCopy, Carrier, CleanupBody, CopyBody, DescribeBody, LightScope, OrderStreams,
    Packet, ScopeBody,
};
pub use cell::{SessionHandle, SessionOutlet};
pub use keys::{BufferChange, ErasedKey};
pub use service::{LightService, OpenOrder, OpenOrders};
