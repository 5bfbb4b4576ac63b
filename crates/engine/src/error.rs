//! Why the engine did not do what it was asked.

use onceflow_core::protocol::rows::Failed;
use onceflow_store::{blobs, records, values};

/// Why a call of the engine failed. A run that failed is not one: see [`RunStatus`](crate::RunStatus).
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
    /// A file that a task is to be given could not be put where it finds it.
    #[error("cannot write a scratch file: {0}")]
    Scratch(String),
    /// The store has rows that cannot be what was written, or lacks some.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The inputs given are not those of the flow.
    #[error("{0}")]
    Inputs(String),
    /// A different task of the same name and version is known here.
    #[error(transparent)]
    Tasks(#[from] crate::task::Conflict),
    /// A task takes something that this engine was not given.
    #[error(
        "task `{task}` takes a `State<{ty}>`, and this engine has none: give it one with `Engine::builder().state(..)`"
    )]
    Resource {
        /// The task.
        task: String,
        /// The type that it takes.
        ty: &'static str,
    },
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
    /// Somebody started the run's key with other inputs, another flow or other outputs: what it gives is not what this
    /// handle was given for.
    #[error("run `{key}` was started again with something else: what it gives is not for these inputs")]
    Superseded {
        /// The run.
        key: String,
    },
    /// The run has ended.
    #[error("run `{key}` has ended")]
    Ended {
        /// The run.
        key: String,
    },
    /// The run is being cancelled, undone or removed; it will end by itself.
    #[error("run `{key}` is being cancelled or undone; wait for its end")]
    Busy {
        /// The run.
        key: String,
    },
    /// What is asked for would run steps again that were done and must not simply be: see
    /// [`Start::accept_reruns`](crate::Start::accept_reruns).
    #[error("run `{key}` has done {}, which would run again: accept that, or ask for it under another key", steps.join(", "))]
    WouldRerun {
        /// The run.
        key: String,
        /// Where the steps are, with `*` for the numbers of elements and iterations.
        steps: Vec<String>,
    },
    /// What became of steps that must not start twice is not known, and what is asked for would run them again.
    #[error(
        "run `{key}` has started {}, which must not start twice; say what became of it, or accept that it may run again",
        steps.join(", ")
    )]
    Undecided {
        /// The run.
        key: String,
        /// Where the steps are.
        steps: Vec<String>,
    },
    /// The run has registered how to undo what it did, which is written in terms of its plan.
    #[error(
        "run `{key}` has done things that can be undone; let it end, or cancel it, before it is asked for something else"
    )]
    CanBeUndone {
        /// The run.
        key: String,
    },
    /// Some of what the run did could not be undone: it does not start again, or end, until that is tried again
    /// ([`Handle::retry`](crate::Handle::retry)), decided ([`Handle::resolve`](crate::Handle::resolve)) or given up
    /// ([`Handle::abandon`](crate::Handle::abandon)).
    #[error(
        "run `{key}` could not be undone: {}; try that again, say what became of it, or give it up",
        failures(steps)
    )]
    NotUndone {
        /// The run.
        key: String,
        /// What could not be undone, and why.
        steps: Vec<Failed>,
    },
    /// The run does not give this.
    #[error("run `{key}` has no output `{output}`, or it was not asked for")]
    NoOutput {
        /// The run.
        key: String,
        /// What was asked for.
        output: String,
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

impl From<values::SourceError> for Error {
    fn from(error: values::SourceError) -> Self {
        Error::Values(values::Error::Source(Box::new(error)))
    }
}

/// The code of a step that failed because an input file changed, or is gone: its first cause begins with it.
pub const SOURCE_CHANGED: &str = "OF0330";

/// How the first cause of a failure begins that is the store's, not the task's: see [`is_damage`].
pub const DAMAGE: &str = "the store is damaged";

/// Whether a step failed because the store has lost or changed something: see [`Error::is_damage`].
pub fn is_damage(failed: &Failed) -> bool {
    failed.causes.first().is_some_and(|cause| cause.starts_with(DAMAGE))
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
                use values::Error::{Blobs, Source, TooLarge};
                matches!(error, TooLarge { .. } | Source(_) | Blobs(blobs::Error::Content { .. }))
            }
            Error::Blobs(error) => matches!(error, blobs::Error::Content { .. }),
            _ => false,
        }
    }

    /// Whether the store has lost or changed something that was written. To try the same step again does not help; to start
    /// the run again does, where what is lost can be computed again. `fsck` says more.
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

    /// Whether the store has no room for what was to be written. Nothing changed; trying again helps once there is room.
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

    /// Whether the store itself did not do what it was asked, and may do it another time.
    pub(crate) fn is_passing(&self) -> bool {
        self.is_of_objects() || self.is_of_rows()
    }

    /// Whether the store of objects did not, whose errors keep no row from being written.
    pub(crate) fn is_of_objects(&self) -> bool {
        use blobs::Error::{Full, Unavailable, Unknown};
        match self {
            Error::Blobs(error) | Error::Values(values::Error::Blobs(error)) => {
                matches!(error, Full { .. } | Unavailable { .. } | Unknown { .. })
            }
            _ => false,
        }
    }

    /// Whether no row can be written or read now.
    pub(crate) fn is_of_rows(&self) -> bool {
        use records::Error::{Full, Unavailable, Unknown};
        match self {
            Error::Store(error) | Error::Values(values::Error::Records(error)) => {
                matches!(error, Full(_) | Unavailable(_) | Unknown(_))
            }
            _ => false,
        }
    }

    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Error::Damaged(what.into())
    }
}
