//! Every limit of a flow file and of its inputs, with the reason. A file that exceeds one is refused; the message names
//! the limit.

use onceflow_core::limits::ROW_BYTES_MAX;

/// Bytes of a flow file: some ten thousand steps. The file is held in memory several times over.
pub(crate) const FLOW_BYTES_MAX: u64 = 8 << 20;

/// Bytes of a file of inputs, or of a sample sheet.
pub(crate) const DATA_BYTES_MAX: u64 = 256 << 20;

/// Values in a flow file, including those that aliases expand to: this stops an anchor bomb.
pub(crate) const FLOW_NODES_MAX: usize = 500_000;

/// The most values that a file of inputs may have.
pub(crate) const DATA_NODES_MAX: usize = 20_000_000;

/// The depth of nested values, which is the recursion depth of the reader.
pub(crate) const DEPTH_MAX: usize = 100;

/// Flow files that one flow may call, directly or indirectly.
pub(crate) const FILES_MAX: usize = 1000;

/// Bytes of a scope with all flows that it calls. It stands in a row of each session, which may have twice as much.
pub(crate) const SCOPE_BYTES_MAX: usize = ROW_BYTES_MAX / 2;

/// The depth of nested types.
pub(crate) const TYPE_DEPTH_MAX: usize = 16;

/// Processors that one step may ask for.
pub(crate) const CPUS_MAX: f64 = 100_000.0;

/// Files that one pattern may match.
pub(crate) const GLOB_FILES_MAX: usize = 1_000_000;

/// Labels that one step may ask for: a worker looks at a queue for every set of labels that it has.
pub(crate) const LABELS_MAX: usize = 4;
