//! Errors of streams as the tool reports them: with an exit code, a page, and what to do next.

use super::unknown;
use crate::{codes, exit::Exit, fault::Fault, verbs::ls::shell_word};
use onceflow_stream::{
    StreamError,
    upgrade::{ConflictCause, StepConflict},
};

/// Says how a changed stream can go on, for the first reason why it cannot.
fn upgrade_hint(conflicts: &[StepConflict]) -> String {
    let Some(first) = conflicts.first() else { return String::new() };
    let step = shell_word(&first.step);
    match first.cause {
        ConflictCause::Changed { .. } => String::from(
            "a new name for the step lets it begin empty, and `--drop` its earlier name; `--new` begins everything anew",
        ),
        ConflictCause::Removed => format!("`--drop {step}` drops its state; the earlier file still goes on with it"),
        ConflictCause::InFlight => String::from(
            "run the earlier file once more, and stop it with Ctrl-C or `onceflow drain`: then nothing is on its way",
        ),
        ConflictCause::Ended => String::from("`--key NAME` runs it beside the other, `--new` from the beginning"),
    }
}

impl From<StreamError> for Fault {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Store(error) => error.into(),
            StreamError::Changed { ref conflicts, .. } => {
                Fault::new(Exit::No, codes::STREAM_CHANGED, error.to_string()).hint(upgrade_hint(conflicts))
            }
            StreamError::EndedOtherwise { .. } | StreamError::OtherFormat { .. } => {
                Fault::new(Exit::No, codes::STREAM_CHANGED, error.to_string())
                    .hint("`--key NAME` runs it beside the other, `--new` from the beginning")
            }
            StreamError::Unknown { ref name } => unknown(name),
            StreamError::Exists { .. } => Fault::new(Exit::Usage, codes::NOT_NEW, error.to_string())
                .hint("`--key NAME` gives the new one another name; `--new` replaces the one that is there"),
            StreamError::NoSavepoint { .. } => Fault::new(Exit::Usage, codes::NO_RUN, error.to_string())
                .hint("`onceflow savepoint` lists the savepoints"),
            StreamError::SavepointExists { ref name } => {
                let hint = format!("`onceflow savepoint --rm {}` removes it", shell_word(name));
                Fault::new(Exit::Usage, codes::NOT_NEW, error.to_string()).hint(hint)
            }
            StreamError::NotQuiet { ref name } => {
                let hint =
                    format!("`onceflow pause {}` returns when it is, if a process works on it", shell_word(name));
                Fault::new(Exit::Busy, codes::RUN_BUSY, error.to_string()).hint(hint)
            }
            StreamError::CopyLost => {
                Fault::new(Exit::Busy, codes::RUN_BUSY, error.to_string()).hint("try again in half a minute")
            }
            StreamError::Ended { .. } => Fault::new(Exit::No, codes::ENDED, error.to_string())
                .hint("`onceflow run --new` of its file runs it from the beginning"),
            StreamError::Cancelled { .. } => Fault::new(Exit::Cancelled, codes::ENDED, error.to_string())
                .hint("`onceflow run --new` of its file runs it from the beginning, `onceflow rm` removes it"),
            StreamError::Superseded { .. } => Fault::new(Exit::Busy, codes::RUN_BUSY, error.to_string())
                .hint("run it with its new file, as the other process does"),
            StreamError::Call { ref run, .. } => {
                let run = shell_word(run);
                Fault::new(Exit::No, codes::STREAM_CALL, error.to_string()).hint(format!(
                    "`onceflow show {run}` shows it; the same command starts it again, and goes on from there"
                ))
            }
            StreamError::AtWork { .. } => Fault::new(Exit::Busy, codes::RUN_BUSY, error.to_string()),
            StreamError::Removed { .. } => Fault::new(Exit::No, codes::STREAM_STOPPED, error.to_string())
                .hint("the same command runs it from the beginning"),
            StreamError::Damaged(_) | StreamError::Block(_) | StreamError::Value(_) => {
                Fault::new(Exit::Damaged, codes::STORE_DAMAGED, error.to_string())
            }
            StreamError::TooLarge { .. }
            | StreamError::BundleTooLarge { .. }
            | StreamError::Io { .. }
            | StreamError::Step { .. }
            | StreamError::Panicked { .. } => Fault::new(Exit::No, codes::STREAM_STOPPED, error.to_string())
                .hint("what was done is kept; the same command goes on from there"),
        }
    }
}
