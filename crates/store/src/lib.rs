//! The storage of onceflow.
//!
//! Two ports, [`Records`] (small rows, changed by atomic batches) and [`Blobs`](blobs::Blobs) (large bytes), and above
//! them, written once for every backend, [`values`]: immutable, counted by named edges, reclaimed in small steps, and
//! provably without leaks.
//!
//! Start with [`Store`]: all of it in one directory.
//!
//! | module | what it owns |
//! |---|---|
//! | [`records`] | the port every backend implements, and its contract |
//! | [`alive`] | files that say that a process lives |
//! | [`world`] | clock, randomness, tasks and waiting, passed in |
//! | [`state`] | what a batch does to rows: the pure state machine that backends share |
//! | [`backend`] | memory, the journal in a directory, and the sharing of one between processes |
//! | [`blobs`] | the port for large bytes, in memory, a directory, or S3 |
//! | [`values`] | immutable values that cannot leak |
//! | [`tree`] | directories held open, for trees that others may have tampered with |
//! | `testing` | with that feature: the contract suite, a model to compare with, stores that fail on demand |

#![forbid(unsafe_code)]

pub mod alive;
pub mod backend;
pub mod blobs;
pub mod blocking;
mod fs;
pub mod records;
mod seams;
pub mod state;
pub mod store;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(any(feature = "redis", feature = "s3"))]
mod tls;
pub mod tree;
pub mod values;
mod wake;
pub mod world;

pub use onceflow_core as core;
pub use records::{CommitResult, Committed, Error, Page, Position, Records, Refused};
pub use store::Store;
pub use world::{BoxFuture, World};
