//! Every bound of a flow file and of what it is given, with its reason. What exceeds one is refused, naming it.

/// Bytes of a flow file: some ten thousand steps. It is held in memory several times over.
pub(crate) const FLOW_BYTES_MAX: u64 = 8 << 20;

/// Bytes of a file of inputs, or of a sample sheet.
pub(crate) const DATA_BYTES_MAX: u64 = 256 << 20;

/// Values in a flow file, those that aliases bring included: what an anchor bomb runs into.
pub(crate) const FLOW_NODES_MAX: usize = 500_000;

/// Values in a file of inputs.
pub(crate) const DATA_NODES_MAX: usize = 20_000_000;

/// Values within values. Reading calls itself this deep.
pub(crate) const DEPTH_MAX: usize = 100;

/// Flow files that one flow may come to call.
pub(crate) const FILES_MAX: usize = 1000;

/// Types within types.
pub(crate) const TYPE_DEPTH_MAX: usize = 16;

/// Processors that one step may ask for.
pub(crate) const CPUS_MAX: f64 = 100_000.0;

/// Files that one pattern may match.
pub(crate) const GLOB_FILES_MAX: usize = 1_000_000;

/// Labels that one step may ask for: a worker looks at a queue for every set of labels that it has.
pub(crate) const LABELS_MAX: usize = 4;
