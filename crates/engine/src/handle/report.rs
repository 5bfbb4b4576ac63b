//! The state of a run, as its handle reports it.

use crate::error::failures as told;
use onceflow_core::{
    payload::Outcome,
    protocol::rows::{Failed, Finished, Status},
};

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// It is at work.
    Running,
    /// All outputs are there.
    Done(Vec<(String, Outcome)>),
    /// It failed. Starting it again tries what failed again, until its history ends: then it goes, and nothing remains.
    Failed(Vec<Failed>),
    /// The outcomes of these steps are not known; see [`Handle::resolve`](crate::Handle::resolve).
    Waiting(Vec<String>),
    /// It failed and was undone; these could not be. Unless they were given up, the run is still there: see
    /// [`Handle::abandon`](crate::Handle::abandon).
    Undone {
        /// What went wrong.
        failures: Vec<Failed>,
        /// What could not be undone.
        not_undone: Vec<Failed>,
    },
    /// It was cancelled and undone; these could not be, as above.
    Cancelled {
        /// What could not be undone.
        not_undone: Vec<Failed>,
    },
}

impl Report {
    /// Whether it will stay so until somebody does something.
    pub fn is_at_rest(&self) -> bool {
        !matches!(self, Report::Running)
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Report::Running => f.write_str("running"),
            Report::Done(_) => f.write_str("done"),
            Report::Failed(failures) => f.write_str(&told(failures)),
            Report::Waiting(steps) => write!(f, "waiting for what became of {}", steps.join(", ")),
            Report::Undone { failures, not_undone } => {
                write!(f, "failed and undone: {}{}", told(failures), left(not_undone))
            }
            Report::Cancelled { not_undone } => write!(f, "cancelled{}", left(not_undone)),
        }
    }
}

/// The sentence about failed undos; empty if there are none.
fn left(not_undone: &[Failed]) -> String {
    if not_undone.is_empty() { String::new() } else { format!("\nnot undone: {}", told(not_undone)) }
}

pub(super) fn report(finished: Finished) -> Report {
    match finished.status {
        Status::Done => Report::Done(finished.outputs),
        Status::Failed { failures, undone } => Report::Undone { failures, not_undone: undone },
        Status::Cancelled { undone } => Report::Cancelled { not_undone: undone },
    }
}
