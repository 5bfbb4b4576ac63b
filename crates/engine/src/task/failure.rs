//! The failure of a task: its causes, and whether another attempt may follow.

use super::TIMEOUT;

/// The failure of an attempt at a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error, followed by its causes.
    pub causes: Vec<String>,
    /// Another attempt would fail as well.
    pub is_final: bool,
    /// The attempt had no effect, so that even an `at_most_once` task may be tried again.
    pub not_done: bool,
}

impl Failure {
    /// A failure that may not repeat: another attempt may follow.
    pub fn new(what: impl Into<String>) -> Self {
        Failure { causes: vec![what.into()], is_final: false, not_done: false }
    }

    /// An error and its chain of sources.
    pub fn from_error(error: &(dyn std::error::Error + 'static)) -> Self {
        let chain = std::iter::successors(Some(error), |error| error.source());
        Failure { causes: chain.map(ToString::to_string).collect(), is_final: false, not_done: false }
    }

    /// The attempt exceeded its timeout; `more` are further causes.
    pub(crate) fn timed_out(ms: u64, more: Vec<String>) -> Self {
        let mut failure = Failure::new(format!("{TIMEOUT}: it took longer than its timeout, {ms} ms"));
        failure.causes.extend(more);
        failure
    }

    /// The same failure with a further cause.
    pub(crate) fn because(mut self, cause: String) -> Self {
        self.causes.push(cause);
        self
    }

    /// The same failure, after which no other attempt follows.
    pub fn finally(mut self) -> Self {
        self.is_final = true;
        self
    }
}
