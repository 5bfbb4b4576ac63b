//! Why a task failed, and what may follow.

use super::TIMEOUT;

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong, and below it, what caused that.
    pub causes: Vec<String>,
    /// Another attempt would fail as well.
    pub is_final: bool,
    /// Nothing was done, so that even an `at_most_once` task may be tried again.
    pub not_done: bool,
    /// Nobody here can say what becomes of it: the step of a task that must not start twice waits until somebody does.
    pub is_open: bool,
}

impl Failure {
    /// A failure that another attempt may not have.
    pub fn new(what: impl Into<String>) -> Self {
        Failure { causes: vec![what.into()], is_final: false, not_done: false, is_open: false }
    }

    /// An error and all that caused it.
    pub fn from_error(error: &(dyn std::error::Error + 'static)) -> Self {
        let chain = std::iter::successors(Some(error), |error| error.source());
        Failure { causes: chain.map(ToString::to_string).collect(), is_final: false, not_done: false, is_open: false }
    }

    /// It took longer than it may; and what else there is to say.
    pub(crate) fn timed_out(ms: u64, more: Vec<String>) -> Self {
        let mut failure = Failure::new(format!("{TIMEOUT}: it took longer than its timeout, {ms} ms"));
        failure.causes.extend(more);
        failure
    }

    /// None yet: what becomes of the step, somebody outside will say. Only of a task that must not start twice.
    pub fn open(what: impl Into<String>) -> Self {
        Failure { is_open: true, ..Failure::new(what) }
    }

    /// The same, with what caused it.
    pub(crate) fn because(mut self, cause: String) -> Self {
        self.causes.push(cause);
        self
    }

    /// The same, but no other attempt follows.
    pub fn finally(mut self) -> Self {
        self.is_final = true;
        self
    }
}
