//! The settings of a running pipeline.

use serde::{Deserialize, Serialize};

/// The way records take between stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EdgeMode {
    /// The sender's commit writes into the receiver's inbox: exactly once because it is one commit.
    Local,
    /// The sender stores blocks and sends them until they are acknowledged; the receiver's catalog drops copies.
    Retry,
}

/// Settings of a running pipeline.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// Partitions of every stage that is not a source. Fixed for the life of a pipeline.
    pub partitions: u16,
    /// Records that one bundle takes at most.
    pub bundle_records: usize,
    /// The way between stages.
    pub edges: EdgeMode,
    /// Drop copies, on retry edges and by the ids of clients. Without it a pipeline counts a record as often as it was
    /// delivered.
    pub deduplicate: bool,
    /// The length of a time bucket of the catalog.
    pub bucket_ms: u64,
    /// Blocks that are not acknowledged are sent again after this long.
    pub resend_ms: u64,
    /// A claim on a partition is void this long after its last heartbeat.
    pub lease_ms: u64,
    /// A worker without anything to do looks again after this long, unless it is woken before.
    pub idle_ms: u64,
    /// While a source has more records than one bundle takes, input of later stages gathers for as long as that has lasted,
    /// and up to this long, so that fewer and larger bundles are committed. A source that has caught up makes nothing wait.
    pub gather_ms: u64,
}

impl Default for StreamOptions {
    fn default() -> Self {
        StreamOptions {
            partitions: 8,
            bundle_records: 10_000,
            edges: EdgeMode::Local,
            deduplicate: true,
            bucket_ms: 600_000,
            resend_ms: 1000,
            lease_ms: 10_000,
            idle_ms: 10,
            gather_ms: 50,
        }
    }
}
