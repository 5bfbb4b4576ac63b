//! The failures of a pipeline.

use crate::{block::BadBlock, data::BadValue, upgrade::StepConflict};
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
    /// A pipeline of this name exists, and steps of this one cannot go on with its state.
    #[error("the pipeline `{name}` cannot go on with the state that this store has of it:{}", list(conflicts))]
    Changed {
        /// The pipeline.
        name: String,
        /// Every step that cannot, with the reason.
        conflicts: Vec<StepConflict>,
    },
    /// A pipeline of this name has ended, and had other steps.
    #[error("the pipeline `{name}` has ended in this store, with other steps than it has now")]
    EndedOtherwise {
        /// The pipeline.
        name: String,
    },
    /// A pipeline of this name was written by another version.
    #[error("the pipeline `{name}` was written by another version of onceflow, which keeps its rows in another way")]
    OtherFormat {
        /// The pipeline.
        name: String,
    },
    /// There is no pipeline of this name.
    #[error("there is no pipeline `{name}` in this store")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The pipeline has ended.
    #[error("the pipeline `{name}` has ended")]
    Ended {
        /// The pipeline.
        name: String,
    },
    /// The pipeline was cancelled.
    #[error("the pipeline `{name}` was cancelled, and its state is gone")]
    Cancelled {
        /// The pipeline.
        name: String,
    },
    /// A pipeline of this name is there.
    #[error("there is a pipeline `{name}` in this store already")]
    Exists {
        /// The name.
        name: String,
    },
    /// Records of the pipeline are on their way, or it worked while its rows were copied.
    #[error("the pipeline `{name}` is not quiet, so no savepoint of it can be made")]
    NotQuiet {
        /// The pipeline.
        name: String,
    },
    /// There is no savepoint of this name.
    #[error("there is no savepoint `{name}` in this store")]
    NoSavepoint {
        /// The name.
        name: String,
    },
    /// There is a savepoint of this name.
    #[error("there is a savepoint `{name}` in this store already")]
    SavepointExists {
        /// The name.
        name: String,
    },
    /// Another process makes a copy in the same place, or has taken this one for dead.
    #[error("another process makes a savepoint, or a pipeline from one, of the same name")]
    CopyLost,
    /// The pipeline was changed while this worker ran it as it was before.
    #[error("the pipeline `{name}` was changed by another process; this one has its earlier steps, and stops")]
    Superseded {
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
    /// Workers are at work on a pipeline that is to be removed or changed.
    #[error("the pipeline `{name}` is at work; its workers must stop before it is removed or changed")]
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

/// The conflicts of a changed pipeline, a line each.
fn list(conflicts: &[StepConflict]) -> String {
    conflicts.iter().map(|conflict| format!("\n  {conflict}")).collect()
}
