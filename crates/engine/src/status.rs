//! The status of a run: the one enum that the engine answers, the tool prints and `--json` writes.

use onceflow_core::protocol::rows::{Phase, Status};

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunStatus {
    /// Steps run, or are ready for a worker that serves them.
    Running,
    /// Steps are left, and no worker that the store knows of serves the run.
    Interrupted,
    /// A step failed; steps in flight may still end.
    Failing,
    /// Steps failed, and nothing else can run. Starting the run again retries them, until its history ends.
    Failed,
    /// Nothing runs until an operator reports the outcome of a step, or sends an event.
    Waiting,
    /// A changed flow, input or request is being planned.
    Planning,
    /// The run was cancelled; steps in flight end.
    Cancelling,
    /// Registered undos run, the last first.
    Undoing,
    /// As [`RunStatus::Cancelling`] and [`RunStatus::Undoing`], but no worker that the store knows of serves the run.
    UndoInterrupted,
    /// Remaining rows are removed.
    Removing,
    /// All requested outputs exist.
    Done,
    /// The run failed, and what it did was undone.
    Undone,
    /// The run was cancelled, and what it did was undone.
    Cancelled,
    /// An undo failed. Nothing happens until an operator retries, resolves or abandons it.
    NotUndone,
}

impl RunStatus {
    /// Every status; of two with the same word, the more frequent one first.
    const ALL: [RunStatus; 14] = {
        use RunStatus::*;
        [
            Running,
            Interrupted,
            Failing,
            Failed,
            Waiting,
            Planning,
            Cancelling,
            Undoing,
            UndoInterrupted,
            Removing,
            Done,
            Undone,
            Cancelled,
            NotUndone,
        ]
    };

    /// The status stays until an operator or a caller acts. An interrupted run is not at rest: any worker may continue
    /// it.
    pub fn is_at_rest(self) -> bool {
        use RunStatus::{Cancelled, Done, Failed, NotUndone, Undone, Waiting};
        matches!(self, Failed | Waiting | Done | Undone | Cancelled | NotUndone)
    }

    /// The run has ended: it holds its result and its history only.
    pub fn has_ended(self) -> bool {
        matches!(self, RunStatus::Done | RunStatus::Undone | RunStatus::Cancelled)
    }

    /// The run is on its way to `undone` or `cancelled`: none of its steps starts any more.
    pub fn is_being_undone(self) -> bool {
        use RunStatus::{Cancelling, Removing, UndoInterrupted, Undoing};
        matches!(self, Cancelling | Undoing | UndoInterrupted | Removing)
    }

    /// No worker that the store knows of serves the run, though something is left to do.
    pub fn is_interrupted(self) -> bool {
        matches!(self, RunStatus::Interrupted | RunStatus::UndoInterrupted)
    }

    /// The same status of a run that no worker serves.
    pub(crate) fn unserved(self) -> Self {
        match self {
            RunStatus::Running | RunStatus::Failing | RunStatus::Planning => RunStatus::Interrupted,
            RunStatus::Cancelling | RunStatus::Undoing | RunStatus::Removing => RunStatus::UndoInterrupted,
            status => {
                assert!(status.is_at_rest() || status.is_interrupted(), "a run that is {status} has steps left");
                status
            }
        }
    }
}

impl From<Phase> for RunStatus {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Running => RunStatus::Running,
            Phase::Failing => RunStatus::Failing,
            Phase::Cancelling => RunStatus::Cancelling,
            Phase::Failed { .. } => RunStatus::Failed,
            Phase::Waiting => RunStatus::Waiting,
            Phase::UndoingFailed | Phase::UndoingCancelled => RunStatus::Undoing,
            Phase::Frozen => RunStatus::Planning,
            Phase::NotUndone { .. } => RunStatus::NotUndone,
            Phase::RemovingFailed | Phase::RemovingCancelled | Phase::Expired => RunStatus::Removing,
        }
    }
}

impl From<&Status> for RunStatus {
    fn from(status: &Status) -> Self {
        match status {
            Status::Done => RunStatus::Done,
            Status::Failed { .. } => RunStatus::Undone,
            Status::Cancelled { .. } => RunStatus::Cancelled,
        }
    }
}

/// Serialized as its `Display`.
impl serde::Serialize for RunStatus {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for RunStatus {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let unknown = || serde::de::Error::custom(format!("no run is {word:?}"));
        RunStatus::ALL.into_iter().find(|status| status.to_string() == word).ok_or_else(unknown)
    }
}

impl std::fmt::Display for RunStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            RunStatus::Running => "running",
            RunStatus::Interrupted | RunStatus::UndoInterrupted => "interrupted",
            RunStatus::Failing => "failing",
            RunStatus::Failed => "failed",
            RunStatus::Waiting => "waiting",
            RunStatus::Planning => "planning",
            RunStatus::Cancelling => "cancelling",
            RunStatus::Undoing => "undoing",
            RunStatus::Removing => "removing",
            RunStatus::Done => "done",
            RunStatus::Undone => "undone",
            RunStatus::Cancelled => "cancelled",
            RunStatus::NotUndone => "not cleaned up",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_of_a_row_has_one_status_and_rests_as_the_row_does() {
        let until = onceflow_core::Timestamp::from_ms(1);
        for (phase, status) in [
            (Phase::Running, RunStatus::Running),
            (Phase::Failing, RunStatus::Failing),
            (Phase::Failed { until }, RunStatus::Failed),
            (Phase::Waiting, RunStatus::Waiting),
            (Phase::Frozen, RunStatus::Planning),
            (Phase::UndoingFailed, RunStatus::Undoing),
            (Phase::RemovingCancelled, RunStatus::Removing),
            (Phase::NotUndone { cancelled: true }, RunStatus::NotUndone),
        ] {
            assert_eq!(RunStatus::from(phase), status);
            assert!(!status.has_ended(), "a run with a phase has not ended");
            assert_eq!(
                status.unserved() == status,
                status.is_at_rest(),
                "only a run at rest needs no worker: {status}"
            );
        }
    }
}
