//! The tests that make a backend, and code written above one, trustworthy. Public, behind the feature `testing`, so
//! that a backend from elsewhere is held to the same promises as ours.
//!
//! | module | what it owns |
//! |---|---|
//! | [`contract`] | the promises of every backend, a test for each; a backend is one line |
//! | [`oracle`] | random batches against a naive model of a batch |
//! | [`batches`] | short words for batches |
//! | [`world`] | a world whose clock is moved by hand and whose chance comes from a seed |
//! | [`disk`] | a disk that forgets unsynced writes, fills up and fails |
//! | [`fault`] | a store that fails at the n-th call: before it, after it, or with its reply lost |
//! | [`blobs`] | the contract of a blob store, and one that fails as planned |
//! | [`keep`] | a store that keeps something else alive: its directory, its server |
//! | [`random`] | numbers from a seed |

pub mod batches;
pub mod blobs;
pub mod contract;
pub mod crash;
pub mod disk;
pub mod fault;
pub mod keep;
pub mod oracle;
pub mod random;
#[cfg(feature = "redis")]
pub mod redis;
pub mod world;
