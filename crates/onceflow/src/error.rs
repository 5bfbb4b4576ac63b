//! Errors of starting a run and of asking for its outputs, with messages for people.

use crate::{Summary, value};
use onceflow_store::{backend::embedded::OpenError, store::OpenUrlError};

/// An error of a step, with what caused it as its [`source`](std::error::Error::source).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct StepError {
    what: String,
    source: Option<Box<StepError>>,
}

impl StepError {
    /// Makes a chain of causes, the outermost first; `None` if there are none.
    fn chain(causes: &[String]) -> Option<Self> {
        let below = |source: Option<StepError>, what: &String| {
            Some(StepError { what: what.clone(), source: source.map(Box::new) })
        };
        causes.iter().rev().fold(None, below)
    }
}

impl Error {
    /// Makes the error for a run that gave no result.
    pub(crate) fn run(key: &str, summary: Summary) -> Self {
        let source = summary.failures.first().and_then(|failed| StepError::chain(&failed.causes));
        Error::Run { key: key.into(), summary: Box::new(summary), source }
    }
}

impl From<OpenUrlError> for Error {
    fn from(error: OpenUrlError) -> Self {
        match error {
            OpenUrlError::Directory(error) => Error::Open(error),
            #[cfg(feature = "redis")]
            OpenUrlError::Server(error) => Error::Connect(error),
            _ => Error::NoServers,
        }
    }
}

/// The error of an operation of an [`Engine`](crate::Engine) or a [`Run`](crate::Run).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The server could not be used.
    #[cfg(feature = "redis")]
    #[error(transparent)]
    Connect(#[from] onceflow_store::backend::redis::ConnectError),
    /// A server was requested, but this build has no support for servers.
    #[error("stores on servers need the feature `redis` of the crate `onceflow`")]
    NoServers,
    /// The run did not come to its end. The summary says what failed: where, at which attempt, and the whole chain of
    /// causes.
    #[error("run `{key}` gave no result: {summary}")]
    Run {
        /// The run.
        key: String,
        /// Its status, and what it came to.
        summary: Box<Summary>,
        /// The errors of the step that failed first, the outermost first: the chain that its task returned.
        source: Option<StepError>,
    },
    /// The run's key was started again with other inputs, another flow or other outputs: the run does not give what was
    /// asked for here any more.
    #[error("run `{key}` was started again with something else: what it gives is not for these inputs")]
    Superseded {
        /// The run.
        key: String,
    },
    /// The output was left out when the run was started.
    #[error("run `{key}` was not asked for its output `{output}`")]
    NotAsked {
        /// The run.
        key: String,
        /// The output.
        output: String,
    },
    /// An input could not be written.
    #[error("an input of flow `{flow}` cannot be written")]
    Input {
        /// The flow.
        flow: String,
        /// The error of the value.
        source: value::Error,
    },
    /// An output could not be read as its type.
    #[error("an output of run `{key}` cannot be read")]
    Output {
        /// The run.
        key: String,
        /// The error of the value.
        source: value::Error,
    },
    /// Everything else: a flow that does not check, inputs it does not have, a store that does not answer.
    #[error(transparent)]
    Engine(onceflow_engine::Error),
}

impl From<onceflow_engine::Error> for Error {
    fn from(error: onceflow_engine::Error) -> Self {
        match error {
            onceflow_engine::Error::Superseded { key } => Error::Superseded { key },
            error => Error::Engine(error),
        }
    }
}
