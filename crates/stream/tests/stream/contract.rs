//! Our own sources and sinks pass the suites, and deliberately wrong ones do not.

#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod databases;
mod sinks;
mod sources;
