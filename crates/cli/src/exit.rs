//! Exit codes: one table, used by every verb, printed in the help, documented in the book (`cli.md`).

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The command did what it was asked.
    Done = 0,
    /// The run failed, or the answer is no.
    No = 1,
    /// The command was not understood.
    Usage = 2,
    /// The run goes on in other processes, or waits for an event or for an operator.
    Waiting = 3,
    /// The flow file has errors.
    Flow = 4,
    /// The run was cancelled and nothing of it is left.
    Cancelled = 5,
    /// The run failed or was cancelled, and could not be cleaned up.
    Unclean = 6,
    /// The store is damaged, or was written by a later version.
    Damaged = 7,
    /// Another process has the store or the run now.
    Busy = 75,
    /// Ctrl-C; the state is safe.
    Interrupted = 130,
    /// SIGTERM; the state is safe.
    Terminated = 143,
}

/// Every code and its meaning.
pub(crate) const TABLE: [(Exit, &str); 11] = [
    (Exit::Done, "done"),
    (Exit::No, "the run failed, or the answer is no"),
    (Exit::Usage, "bad usage: an option, an input or a name is wrong"),
    (Exit::Waiting, "waiting: the run continues elsewhere, or an operator must report an outcome"),
    (Exit::Flow, "the flow does not check"),
    (Exit::Cancelled, "cancelled and cleaned up"),
    (Exit::Unclean, "failed or cancelled, and cleaning up or an undo failed"),
    (Exit::Damaged, "the store is damaged, or written by a later version"),
    (Exit::Busy, "the store or the run is busy or unreachable; try again later"),
    (Exit::Interrupted, "interrupted (Ctrl-C); the state is safe"),
    (Exit::Terminated, "terminated (SIGTERM); the state is safe"),
];

/// Returns the table, as the help shows it.
pub(crate) fn help() -> String {
    let line = |(exit, what): &(Exit, &str)| format!("  {:>3}  {what}\n", *exit as u8);
    format!("Exit codes:\n{}", TABLE.iter().map(line).collect::<String>())
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
