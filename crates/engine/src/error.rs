//! Errors of the engine's calls.

use onceflow_core::protocol::rows::Failed;
use onceflow_store::{blobs, records, values};

/// The error of a call of the engine. A failed run is not one: see [`RunStatus`](crate::RunStatus).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The flow does not pass its checks.
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
    /// A scratch file, as which a task is given a value, could not be written.
    #[error("cannot write a scratch file: {0}")]
    Scratch(String),
    /// The store has rows that differ from what was written, or lacks rows.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The given inputs do not match those of the flow.
    #[error("{0}")]
    Inputs(String),
    /// A different task of the same name and version is registered with this engine.
    #[error(transparent)]
    Tasks(#[from] crate::task::Conflict),
    /// A task takes a resource that this engine was not given.
    #[error(
        "task `{task}` takes a `State<{ty}>`, and this engine has none: give it one with `Engine::builder().state(..)`"
    )]
    Resource {
        /// The task.
        task: String,
        /// The type that it takes.
        ty: &'static str,
    },
    /// No run has this key.
    #[error("there is no run `{0}`")]
    NoRun(String),
    /// The start was first tried longer ago than history is kept: its run may have ended and been removed since.
    #[error(
        "the start of `{key}` was first tried {ago_ms} ms ago, and history is kept for {history_ms} ms: whether it ran is not known any more"
    )]
    TooLate {
        /// The run.
        key: String,
        /// The milliseconds since the first try.
        ago_ms: u64,
        /// The milliseconds for which history is kept.
        history_ms: u64,
    },
    /// The key was started again with other inputs, another flow or other outputs: the run's outputs are not those of
    /// the request that this handle was made for.
    #[error("run `{key}` was started again with something else: what it gives is not for these inputs")]
    Superseded {
        /// The run.
        key: String,
    },
    /// A row of [`Start::while_there`](crate::Start::while_there) is gone: the caller lost its right to start the run.
    #[error("run `{key}` is not wanted any more: its caller has what it gives")]
    Unwanted {
        /// The run.
        key: String,
    },
    /// The run has ended.
    #[error("run `{key}` has ended")]
    Ended {
        /// The run.
        key: String,
    },
    /// The run is being cancelled, undone or removed; it ends by itself.
    #[error("run `{key}` is being cancelled or undone; wait for its end")]
    Busy {
        /// The run.
        key: String,
    },
    /// The new plan would run steps again that were done and must not be repeated without consent: see
    /// [`Start::accept_reruns`](crate::Start::accept_reruns).
    #[error("run `{key}` has done {}, which would run again: accept that, or ask for it under another key", steps.join(", "))]
    WouldRerun {
        /// The run.
        key: String,
        /// The addresses of the steps, with `*` for the numbers of elements and iterations.
        steps: Vec<String>,
    },
    /// The outcome of started at-most-once steps is not known, and the new plan would run them again.
    #[error(
        "run `{key}` has started {}, which must not start twice; report its outcome, or accept that it may run again",
        steps.join(", ")
    )]
    Undecided {
        /// The run.
        key: String,
        /// The addresses of the steps.
        steps: Vec<String>,
    },
    /// The run has registered compensations, which refer to its plan.
    #[error(
        "run `{key}` has done things that can be undone; let it end, or cancel it, before it is asked for something else"
    )]
    CanBeUndone {
        /// The run.
        key: String,
    },
    /// Some compensations of the run failed: the run neither starts again nor ends until they are retried
    /// ([`Handle::retry`](crate::Handle::retry)), resolved ([`Handle::resolve`](crate::Handle::resolve)) or given up
    /// ([`Handle::abandon`](crate::Handle::abandon)).
    #[error("run `{key}` could not be undone: {}; try that again, report its outcome, or give it up", failures(steps))]
    NotUndone {
        /// The run.
        key: String,
        /// The steps that could not be undone, and why.
        steps: Vec<Failed>,
    },
    /// The run has no such output, or it was not requested.
    #[error("run `{key}` has no output `{output}`, or it was not asked for")]
    NoOutput {
        /// The run.
        key: String,
        /// The name of the output.
        output: String,
    },
    /// The run does not allow this operation in its present state.
    #[error("run `{key}` {why}")]
    Refused {
        /// The run.
        key: String,
        /// The reason.
        why: String,
    },
    /// The engine was closed.
    #[error("the engine is closed")]
    Closed,
    /// The run failed.
    #[error("{}", failures(.0))]
    Failed(Vec<Failed>),
}

impl From<values::SourceError> for Error {
    fn from(error: values::SourceError) -> Self {
        Error::Values(values::Error::Source(Box::new(error)))
    }
}

/// The code of a step that failed because an input file changed or is gone: its first cause begins with this.
pub const SOURCE_CHANGED: &str = "OF0330";

/// The beginning of the first cause of a failure that is the store's, not the task's: see [`is_damage`].
pub const DAMAGE: &str = "the store is damaged";

/// The step failed because the store has lost or changed something: see [`Error::is_damage`].
pub fn is_damage(failed: &Failed) -> bool {
    failed.causes.first().is_some_and(|cause| cause.starts_with(DAMAGE))
}

/// Formats failures for people.
pub(crate) fn failures(failures: &[Failed]) -> String {
    let one = |failed: &Failed| {
        let causes = failed.causes.join("; caused by: ");
        format!("{} failed at attempt {}: {causes}", failed.address, failed.attempt)
    };
    failures.iter().map(one).collect::<Vec<_>>().join("\n")
}

impl Error {
    /// The error is due to the inputs or outputs of a task, and would repeat.
    pub(crate) fn is_of_the_data(&self) -> bool {
        use onceflow_core::batch::Invalid;
        let too_much = |error: &records::Error| matches!(error, records::Error::Invalid(Invalid::TooMany { .. }));
        match self {
            Error::Inputs(_) => true,
            Error::Store(error) | Error::Values(values::Error::Records(error)) => too_much(error),
            Error::Values(error) => {
                use values::Error::{Blobs, Source, TooLarge};
                matches!(error, TooLarge { .. } | Source(_) | Blobs(blobs::Error::Content { .. }))
            }
            Error::Blobs(error) => matches!(error, blobs::Error::Content { .. }),
            _ => false,
        }
    }

    /// The store has lost or changed something that was written. Retrying the step does not help; starting the run
    /// again does, where the lost value can be computed again. `fsck` reports the details.
    pub fn is_damage(&self) -> bool {
        let blobs = |error: &blobs::Error| matches!(error, blobs::Error::Missing { .. } | blobs::Error::Damaged { .. });
        match self {
            Error::Damaged(_) | Error::Store(records::Error::Damaged(_)) => true,
            Error::Blobs(error) => blobs(error),
            Error::Values(error) => match error {
                values::Error::Missing { .. }
                | values::Error::Lost { .. }
                | values::Error::Broken { .. }
                | values::Error::Damaged { .. } => true,
                values::Error::Records(error) => matches!(error, records::Error::Damaged(_)),
                values::Error::Blobs(error) => blobs(error),
                _ => false,
            },
            _ => false,
        }
    }

    /// The store has no space for the write. Nothing changed; retrying helps once there is space.
    pub fn is_full(&self) -> bool {
        match self {
            Error::Store(error) | Error::Values(values::Error::Records(error)) => {
                matches!(error, records::Error::Full(_))
            }
            Error::Blobs(error) | Error::Values(values::Error::Blobs(error)) => {
                matches!(error, blobs::Error::Full { .. })
            }
            _ => false,
        }
    }

    /// The store failed to serve the request, and may serve it another time.
    pub(crate) fn is_passing(&self) -> bool {
        self.is_of_objects() || self.is_of_rows()
    }

    /// The object store failed; its errors keep no row from being written.
    pub(crate) fn is_of_objects(&self) -> bool {
        use blobs::Error::{Full, Unavailable, Unknown};
        match self {
            Error::Blobs(error) | Error::Values(values::Error::Blobs(error)) => {
                matches!(error, Full { .. } | Unavailable { .. } | Unknown { .. })
            }
            _ => false,
        }
    }

    /// Rows cannot be read or written at present.
    pub(crate) fn is_of_rows(&self) -> bool {
        use records::Error::{Full, Unavailable, Unknown};
        match self {
            Error::Store(error) | Error::Values(values::Error::Records(error)) => {
                matches!(error, Full(_) | Unavailable(_) | Unknown(_))
            }
            _ => false,
        }
    }

    /// The run is not the one that the caller has seen, so what was decided about that one is not done to this one.
    pub fn changed(key: &str) -> Self {
        let why = "has changed since it was looked at: it was started again, or another run has its key";
        Error::Refused { key: key.to_owned(), why: why.to_owned() }
    }

    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Error::Damaged(what.into())
    }
}
