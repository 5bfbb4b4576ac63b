//! Runs flows on a store.
//!
//! There is no orchestrator. A run is rows in a store; any worker may take a ready step, run it, and commit, and that
//! commit, one atomic batch, is the only way anything changes. The engine holds no truth: kill it anywhere, only time is
//! lost.
//!
//! | module | what it owns |
//! |---|---|
//! | [`task`] | what user code looks like to the engine |

#![forbid(unsafe_code)]

pub mod task;
