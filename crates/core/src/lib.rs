//! The pure part of onceflow: flows, plans and the batches that run them, as data.
//!
//! Nothing here reads a clock, a file or a random number, and nothing is async; the same input gives
//! the same answer in production, in a test and in the simulator.
//!
//! | module | what it owns |
//! |---|---|
//! | [`key`] | the key of a row: shard, group, name |
//! | [`row`] | the content of a row: bytes, which a batch can also treat as a counter or a bitmap |
//! | [`batch`] | the only way to change rows: requires, operations, triggers, a claim |
//! | [`queue`] | the rows of a queue, and the answer to a claim |
//! | [`digest`] | content digests |
//! | [`fence`] | the token by which a stale attempt is refused |
//! | [`model`] | flows: as they are described, and as they are run |
//! | [`plan`] | the work a run still has to do: resume, validity, specialised and fused programs |
//! | [`payload`] | the values that travel along connections |
//! | [`protocol`] | the batch of every commit, delivery, opening and ending |
//! | [`value`] | values, the edges that keep them alive, and changes to both |
//! | [`scope`] | reactive regions: one pure machine for sessions, buffers, cancellation and cleanup |
//! | [`time`] | points on the store's clock |
//! | [`limits`] | every bound, with its reason |

#![forbid(unsafe_code)]

mod adjacency;
pub mod batch;
pub mod digest;
pub mod fence;
pub mod hazard;
pub mod key;
pub mod limits;
pub mod model;
pub mod payload;
pub mod plan;
pub mod protocol;
pub mod queue;
pub mod row;
pub mod scope;
mod seams;
pub mod time;
pub mod value;

pub use batch::{Batch, Op, Require};
pub use digest::Digest;
pub use fence::{Fence, Fences};
pub use key::{Group, Key, Kind, Name, Shard};
pub use queue::{Claim, Claimed, Inbox, Pick};
pub use row::Row;
pub use time::Timestamp;
pub use value::{EdgeName, ValueChange, ValueId};
