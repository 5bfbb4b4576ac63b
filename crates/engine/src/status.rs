//! The status of a run: the one enum that the engine answers, the tool prints and `--json` writes.

use onceflow_core::protocol::rows::{Phase, Status};

/// Makes the enum of statuses, with their words, from one table.
macro_rules! statuses {
    ($($(#[$doc:meta])* $status:ident = $word:literal,)*) => {
        /// The status of a run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum RunStatus {
            $($(#[$doc])* $status,)*
        }

        impl RunStatus {
            /// Every status with its word; of two with the same word, the more frequent one first.
            const WORDS: &[(RunStatus, &str)] = &[$((RunStatus::$status, $word),)*];

            /// The word for the status, as the tool prints it and `--json` writes it.
            pub fn word(self) -> &'static str {
                match self {
                    $(RunStatus::$status => $word,)*
                }
            }
        }
    };
}

statuses! {
    /// Steps run, or are ready for a worker that serves them.
    Running = "running",
    /// Steps are left, and no worker that the store knows of serves the run.
    Interrupted = "interrupted",
    /// A step failed; steps in flight may still end.
    Failing = "failing",
    /// Steps failed, and nothing else can run. Starting the run again retries them, until its history ends.
    Failed = "failed",
    /// Nothing runs until an operator reports the outcome of a step, or sends an event.
    Waiting = "waiting",
    /// A changed flow, input or request is being planned.
    Planning = "planning",
    /// The run was cancelled; steps in flight end.
    Cancelling = "cancelling",
    /// Registered undos run, the last first.
    Undoing = "undoing",
    /// As [`RunStatus::Cancelling`] and [`RunStatus::Undoing`], but no worker that the store knows of serves the run.
    UndoInterrupted = "interrupted",
    /// Remaining rows are removed.
    Removing = "removing",
    /// All requested outputs exist.
    Done = "done",
    /// The run failed, and what it did was undone.
    Undone = "undone",
    /// The run was cancelled, and what it did was undone.
    Cancelled = "cancelled",
    /// An undo failed. Nothing happens until an operator retries, resolves or abandons it.
    NotUndone = "not cleaned up",
}

impl RunStatus {
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
        let known = RunStatus::WORDS.iter().find(|(_, known)| *known == word).map(|(status, _)| *status);
        known.ok_or_else(|| serde::de::Error::custom(format!("no run is {word:?}")))
    }
}

impl std::fmt::Display for RunStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_as_the_status_it_was_written_for() {
        for (status, word) in RunStatus::WORDS {
            let written = onceflow_core::protocol::rows::write(status);
            assert_eq!(written, onceflow_core::protocol::rows::write(word));
            let read: RunStatus = onceflow_core::protocol::rows::read(&written).unwrap();
            assert_eq!(read == *status, *status != RunStatus::UndoInterrupted, "{word}: two statuses have one word");
        }
    }

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
