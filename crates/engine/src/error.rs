//! Why the engine did not do what it was asked.

use onceflow_core::protocol::rows::Failed;
use onceflow_store::{blobs, records, values};

/// Why a call of the engine failed. A run that failed is not one: see [`Report`](crate::Report).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The flow does not check.
    #[error("{0}")]
    Flow(#[from] onceflow_core::model::Errors),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] records::Error),
    /// A value could not be read or written.
    #[error(transparent)]
    Values(#[from] values::Error),
    /// A file could not be stored.
    #[error(transparent)]
    Blobs(#[from] blobs::Error),
    /// The store has rows that cannot be what was written, or lacks some.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The inputs given are not those of the flow.
    #[error("{0}")]
    Inputs(String),
    /// A different task of the same name and version is known here.
    #[error(transparent)]
    Tasks(#[from] crate::task::Conflict),
    /// There is no such run.
    #[error("there is no run `{0}`")]
    NoRun(String),
    /// The start was first tried so long ago that its run may have come and gone.
    #[error(
        "the start of `{key}` was first tried {ago_ms} ms ago, and history is kept for {history_ms} ms: whether it ran is not known any more"
    )]
    TooLate {
        /// The run.
        key: String,
        /// How long ago.
        ago_ms: u64,
        /// How long is remembered.
        history_ms: u64,
    },
    /// The run does not allow this now.
    #[error("run `{key}` {why}")]
    Refused {
        /// The run.
        key: String,
        /// Why.
        why: String,
    },
    /// The engine was closed.
    #[error("the engine is closed")]
    Closed,
    /// The run failed.
    #[error("{}", failures(.0))]
    Failed(Vec<Failed>),
}

/// Failures as people read them.
pub(crate) fn failures(failures: &[Failed]) -> String {
    let one = |failed: &Failed| {
        let causes = failed.causes.join("; caused by: ");
        format!("{} failed at attempt {}: {causes}", failed.address, failed.attempt)
    };
    failures.iter().map(one).collect::<Vec<_>>().join("\n")
}

impl Error {
    /// Whether it is so because of what a task gave or was given, and would be so again.
    pub(crate) fn is_of_the_data(&self) -> bool {
        use onceflow_core::batch::Invalid;
        let too_much = |error: &records::Error| matches!(error, records::Error::Invalid(Invalid::TooMany { .. }));
        match self {
            Error::Inputs(_) => true,
            Error::Store(error) | Error::Values(values::Error::Records(error)) => too_much(error),
            Error::Values(error) => {
                matches!(error, values::Error::TooLarge { .. } | values::Error::Blobs(blobs::Error::Content { .. }))
            }
            Error::Blobs(error) => matches!(error, blobs::Error::Content { .. }),
            _ => false,
        }
    }

    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Error::Damaged(what.into())
    }
}
