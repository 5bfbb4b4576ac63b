//! The parts that the benchmarks share. Each benchmark is a program of its own: onceflow and its peers, side by side in
//! one run.
//!
//! | module | owns |
//! |---|---|
//! | [`program`] | a benchmark as a program: its parts, options and exit codes |
//! | [`rounds`] | fairness: sides take turns in shuffled order, and the median of their per-round ratios counts |
//! | [`report`] | the findings, as a table for people or one JSON object for programs |
//! | [`disk`] | directories on a real disk, their size, and the writes and syncs of a journal's log |
//! | [`barelog`] | the least a durable commit can cost with many waiters |
//! | [`appender`] | the least one durable append can cost |
//! | [`bed`] | an engine on memory or a journal, and how long a run on it takes |
//! | [`flows`] | the flows that the engine runs in `kernel` and `redis` |
//!
//! A new benchmark is a folder with a `main.rs`, a `[[bin]]` and a feature with its peers in `Cargo.toml`.

pub mod appender;
pub mod barelog;
#[cfg(feature = "engine")]
pub mod bed;
pub mod disk;
#[cfg(feature = "engine")]
pub mod flows;
pub mod program;
pub mod report;
pub mod rounds;
