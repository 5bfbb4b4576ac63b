//! The failures of a pipeline.

use crate::{block::BadBlock, data::BadValue};
use std::sync::Arc;

/// The reason why a pipeline stopped, or could not start.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StreamError {
    /// The store did not answer, or refused a request.
    #[error(transparent)]
    Store(#[from] onceflow_store::Error),
    /// Stored or received bytes are not a block of records.
    #[error(transparent)]
    Block(#[from] BadBlock),
    /// Stored or received bytes are not a value of a step's type.
    #[error(transparent)]
    Value(#[from] BadValue),
    /// A row of the pipeline is missing or is not what this version writes.
    #[error("the store's rows of this pipeline are damaged: {0}")]
    Damaged(&'static str),
    /// A record does not fit a row of the store.
    #[error(
        "a record has a key of {key} bytes and a value of {value} bytes; a key has {} bytes at most, both together {}",
        crate::run::KEY_BYTES_MAX,
        crate::block::RECORD_BYTES_MAX
    )]
    TooLarge {
        /// The size of the encoded key.
        key: usize,
        /// The size of the encoded value.
        value: usize,
    },
    /// One record became more than a bundle can hold.
    #[error("stage {stage} made {bytes} bytes of one record; a bundle holds {limit} bytes")]
    BundleTooLarge {
        /// The stage.
        stage: usize,
        /// The bytes it made.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// A pipeline of this name exists with other steps.
    #[error(
        "the pipeline `{name}` exists in this store with other steps or another number of partitions; \
         let it end, remove it, or give the changed one another name"
    )]
    Changed {
        /// The pipeline.
        name: String,
    },
    /// A source or a sink failed.
    #[error("{name}: {cause}")]
    Io {
        /// The source or sink.
        name: String,
        /// The system's reason.
        cause: Arc<std::io::Error>,
    },
    /// A step has no result for a record.
    #[error("step `{name}`: {message}")]
    Step {
        /// The step.
        name: String,
        /// The reason, with the record.
        message: String,
    },
    /// A run that a step called has no result.
    #[error("step `{name}`: run `{run}` {message}")]
    Call {
        /// The step.
        name: String,
        /// The key of the run.
        run: String,
        /// The end of the run.
        message: String,
    },
    /// The pipeline was removed while this worker was at work on it, or before it began.
    #[error("the pipeline `{name}` was removed while it ran")]
    Removed {
        /// The pipeline.
        name: String,
    },
    /// Workers are at work on a pipeline that is to be removed.
    #[error("the pipeline `{name}` is at work; stop its workers before it is removed")]
    AtWork {
        /// The pipeline.
        name: String,
    },
    /// A function of the user's panicked.
    #[error("a function in stage {stage} of the pipeline panicked: {message}")]
    Panicked {
        /// The stage.
        stage: usize,
        /// The panic's message.
        message: String,
    },
}
