//! Errors of commands: a message, a code with a page, a hint, and the exit code of the process.

use crate::{codes, exit::Exit, verbs::ls::shell_word, words};
use onceflow_core::{
    batch::Invalid,
    model::{Errors, Mistake},
    protocol::rows::Failed,
};
use onceflow_engine::Error;
use onceflow_spec::{Problem, Problems};
use onceflow_store::{
    backend::{
        embedded::{Obstacle, OpenError},
        redis::{ConnectError, Risk},
    },
    records, values,
};
use serde_json::{Value, json};
use std::{fmt, io, path::Path};

/// The hint for a full disk.
const ROOM: &str = "make room on the disk, then run the same command again: what was done is kept";

/// The hint for a file that the store refers to and that has changed.
const RECOMPUTED: &str =
    "bring the file back as it was, or run the flow with what is there now: `onceflow explain` says what that takes";

/// The hint for damaged bytes in the store.
const RECOMPUTE: &str =
    "`onceflow run` of the same flow computes it again; `onceflow fsck --deep` finds all that is damaged";

/// The hint for steps that must not start twice and would.
const RERUN: &str = "`--accept-code-change` lets them run again; `--key NAME` starts another run beside it";

/// The error of a command.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: Option<&'static str>,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) exit: Exit,
    /// Several problems of a flow or of its inputs, each with its position; the message has all of them.
    pub(crate) problems: Vec<Problem>,
}

impl Fault {
    pub(crate) fn new(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        Fault { code: Some(code), message: message.into(), hint: None, exit, problems: vec![] }
    }

    /// Makes an error without a code and a page: one that only a bug of ours can cause.
    pub(crate) fn plain(exit: Exit, message: impl Into<String>) -> Self {
        Fault { code: None, message: message.into(), hint: None, exit, problems: vec![] }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the same refusal for a run that no process works on. One that was being undone stays as it is until
    /// `cancel` finishes it, so scripts must not be told to try again later.
    pub(crate) fn of_unattended(self, key: &str) -> Self {
        if (self.exit, self.code) != (Exit::Busy, Some(codes::ENDED)) {
            return self;
        }
        let what = format!("run `{key}` was interrupted while it was undone, and nothing else of it runs");
        let cancel = format!("`onceflow cancel {}`", shell_word(key));
        Fault::new(Exit::No, codes::ENDED, what)
            .hint(format!("{cancel} finishes undoing it; then `onceflow run` of its flow begins anew"))
    }

    /// Makes the error of a flow file or its inputs from their problems.
    pub(crate) fn problems(exit: Exit, problems: Problems) -> Self {
        Fault { code: None, message: problems.to_string(), hint: None, exit, problems: problems.0 }
    }

    /// The command was understood, and asks for something impossible.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Fault::new(Exit::Usage, codes::USAGE, message)
    }

    /// A value is not of the type that is expected.
    pub(crate) fn misfit(what: String) -> impl FnOnce(onceflow_exec::value::Mismatch) -> Fault {
        move |error| Fault::new(Exit::Usage, codes::MISFIT, format!("{what}: {error}"))
    }

    /// The system refused a basic resource.
    pub(crate) fn system(what: &str) -> impl FnOnce(io::Error) -> Fault {
        move |error| Fault::new(Exit::No, codes::SYSTEM, format!("the system gives {what}: {error}"))
    }

    /// A file named on the command line cannot be read.
    pub(crate) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Fault {
        let message = format!("cannot read {}", path.display());
        move |error| Fault::new(Exit::Usage, codes::UNREADABLE, format!("{message}: {error}"))
    }

    /// A file named on the command line cannot be written. A wrong path, for example without its directory, is an error
    /// of usage.
    pub(crate) fn unwritten(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Fault {
        use io::ErrorKind::{AlreadyExists, InvalidFilename, IsADirectory, NotADirectory, NotFound};
        let fault = Fault::io(codes::WRITE, what, path);
        move |error| match error.kind() {
            NotFound | NotADirectory | IsADirectory | AlreadyExists | InvalidFilename => {
                Fault { exit: Exit::Usage, ..fault(error) }
            }
            _ => fault(error),
        }
    }

    /// An operation of the file system failed.
    pub(crate) fn io(code: &'static str, what: &str, path: &Path) -> impl FnOnce(io::Error) -> Fault {
        let message = format!("cannot {what} {}", path.display());
        move |error| Fault::new(Exit::No, code, format!("{message}: {error}"))
    }

    /// The same, for files of the store.
    pub(crate) fn store(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Fault {
        let message = format!("cannot {what} {}", path.display());
        move |error| unusable(Some(error.kind()), &format!("{message}: {error}"))
    }

    /// The store has no room.
    pub(crate) fn full(why: impl Into<String>) -> Fault {
        Fault::new(Exit::Busy, codes::STORE_UNUSABLE, why).hint(ROOM)
    }

    /// Returns code, message and hint; of several problems those of the first.
    pub(crate) fn in_short(&self) -> (Option<&'static str>, String, Option<String>) {
        match &self.problems[..] {
            [] => (self.code, self.message.clone(), self.hint.clone()),
            [one] => (Some(one.code), one.message.clone(), one.hint.clone()),
            [first, rest @ ..] => {
                let more = crate::words::count(rest.len(), "more problem");
                (Some(first.code), format!("{}; and {more}, see `problems`", first.message), first.hint.clone())
            }
        }
    }

    /// Returns the error as JSON. With several problems it has the code of the first, and all of them in a list.
    pub(crate) fn to_json(&self) -> Value {
        let problems: Vec<_> = self.problems.iter().map(problem).collect();
        let (code, message, hint) = self.in_short();
        json!({ "error": {
            "code": code,
            "message": message,
            "hint": hint,
            "exit": self.exit as u8,
            "problems": problems,
        } })
    }
}

/// Returns one problem as JSON.
pub(crate) fn problem(problem: &Problem) -> Value {
    let place = problem.place.as_ref();
    json!({
        "code": problem.code,
        "message": problem.message,
        "file": place.map(|place| place.file.clone()),
        "line": place.map(|place| place.line),
        "column": place.map(|place| place.column),
        "hint": problem.hint,
    })
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.problems.is_empty() {
            return f.write_str(self.message.trim_end());
        }
        match self.code {
            Some(code) => write!(f, "error[{code}]: {}", self.message)?,
            None => write!(f, "error: {}", self.message)?,
        }
        match (&self.hint, self.code) {
            (Some(hint), _) => write!(f, "\nhint: {hint}"),
            (None, Some(code)) => write!(f, "\nhint: see `onceflow error {code}`"),
            (None, None) => Ok(()),
        }
    }
}

/// Splits a message of the store into the message and its hint, which is on a line of its own.
fn split(message: &str) -> (String, Option<String>) {
    match message.split_once("\nhint: ") {
        Some((message, hint)) => (message.to_owned(), Some(hint.to_owned())),
        None => (message.to_owned(), None),
    }
}

fn told(exit: Exit, code: &'static str, message: &str) -> Fault {
    let (message, hint) = split(message);
    Fault { hint, ..Fault::new(exit, code, message) }
}

/// The store cannot be used, because of an error of the file system.
fn unusable(kind: Option<io::ErrorKind>, message: &str) -> Fault {
    use io::ErrorKind::{FileTooLarge, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let fault = told(Exit::Busy, codes::STORE_UNUSABLE, message);
    match kind {
        Some(StorageFull | QuotaExceeded | FileTooLarge) => fault.hint(ROOM),
        Some(PermissionDenied | ReadOnlyFilesystem) => fault.hint(
            "every command writes to its store; ask its owner for the right to, or give another with `--store DIR`",
        ),
        _ => fault,
    }
}

/// Finds the error of the file system in a chain of causes.
fn said(error: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    match error.downcast_ref::<io::Error>() {
        Some(error) => Some(error.kind()),
        None => said(error.source()?),
    }
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Fault {
        let text = error.to_string();
        match error.obstacle() {
            Obstacle::Busy => told(Exit::Busy, codes::STORE_BUSY, &text),
            Obstacle::Damaged => told(Exit::Damaged, codes::STORE_DAMAGED, &text)
                .hint("keep a copy of the directory, then restore a backup; see `onceflow error OF0406`"),
            Obstacle::TooNew => told(Exit::Damaged, codes::STORE_TOO_NEW, &text),
            Obstacle::OtherBackend => told(Exit::Usage, codes::STORE_UNUSABLE, &text),
            Obstacle::Unusable => unusable(said(&error), &text),
        }
    }
}

/// The hint for a server that has these risks: how to fix or to accept them.
fn accepting(risks: &[Risk]) -> String {
    let words: Vec<_> = risks.iter().map(|risk| risk.word()).collect();
    let what = if risks.len() == 1 { "that this may happen" } else { "that all of this may happen" };
    format!("change the settings of the server, or accept {what}: add `accept={}` to the URL", words.join(","))
}

impl From<ConnectError> for Fault {
    fn from(error: ConnectError) -> Fault {
        let text = error.to_string();
        match error {
            ConnectError::Address(_) => told(Exit::Usage, codes::SERVER, &text),
            ConnectError::Risky { risks, .. } => told(Exit::Usage, codes::RISKY, &text).hint(accepting(&risks)),
            ConnectError::Unfit { .. } => told(Exit::No, codes::SERVER, &text),
            ConnectError::Unavailable(_) => told(Exit::Busy, codes::STORE_BUSY, &text)
                .hint("is the server there, and are name and password right? See `onceflow error OF0405`"),
        }
    }
}

impl From<records::Error> for Fault {
    fn from(error: records::Error) -> Fault {
        let text = error.to_string();
        match error {
            records::Error::Damaged(_) => told(Exit::Damaged, codes::STORE_DAMAGED, &text),
            records::Error::Full(_) => Fault::full(text),
            records::Error::Lost(_) => told(Exit::Damaged, codes::STORE_LOST, &text)
                .hint("restore the server's data, or start the runs anew; see `onceflow error OF0421`"),
            records::Error::Unavailable(_) | records::Error::Unknown(_) => {
                told(Exit::Busy, codes::STORE_BUSY, &text).hint("run the same command again: what was done is kept")
            }
            records::Error::Invalid(Invalid::TooMany { .. }) => told(Exit::No, codes::TOO_MUCH, &text),
            records::Error::Invalid(_) => Fault::plain(Exit::No, text),
        }
    }
}

impl From<values::Error> for Fault {
    fn from(error: values::Error) -> Fault {
        Fault::from(Error::from(error))
    }
}

impl From<onceflow_store::blobs::Error> for Fault {
    fn from(error: onceflow_store::blobs::Error) -> Fault {
        told(Exit::Busy, codes::STORE_UNUSABLE, &error.to_string())
    }
}

/// Converts the mistakes that the kernel found in a flow.
fn mistakes(errors: Errors) -> Problems {
    let one = |mistake: Mistake| Problem {
        hint: mistake.hint.clone(),
        ..Problem::new(mistake.what.code(), mistake.what.to_string())
    };
    Problems(errors.0.into_iter().map(one).collect())
}

/// Joins the names of steps, as in the flow.
fn named(steps: &[String]) -> String {
    let mut names: Vec<_> = steps.iter().map(|step| words::step(step)).collect();
    names.dedup();
    names.join(", ")
}

/// Some of what a run did could not be undone, and is still there.
fn not_undone(key: &str, steps: &[Failed]) -> Fault {
    let named = |failed: &Failed| {
        let why = failed.causes.first().map_or("", String::as_str);
        format!("{} ({why})", words::step(&failed.address))
    };
    let left: Vec<_> = steps.iter().map(named).collect();
    let what =
        format!("run `{key}` did what could not be undone, and does not start again by itself: {}", left.join("; "));
    let first = steps.first().map_or(String::from("STEP"), |failed| shell_word(&words::step(&failed.address)));
    Fault::new(Exit::Unclean, codes::NOT_UNDONE, what).hint(undo_hint(&shell_word(key), &first))
}

/// The hint for a run that could not be undone.
pub(crate) fn undo_hint(key: &str, step: &str) -> String {
    format!(
        "`onceflow retry {key}` tries the undos that failed again; `onceflow resolve {key} {step} --done` says that one was \
         done by hand; `onceflow cancel --abandon {key}` gives them up"
    )
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let text = error.to_string();
        match error {
            Error::Store(error) | Error::Values(values::Error::Records(error)) => error.into(),
            Error::Values(values::Error::Broken { .. } | values::Error::Lost { .. }) => {
                told(Exit::Damaged, codes::STORE_DAMAGED, &text).hint(RECOMPUTE)
            }
            ref error if error.is_damage() => told(Exit::Damaged, codes::STORE_DAMAGED, &text),
            Error::WouldRerun { key, steps } => {
                let again = "which would run again: accept that, or ask for it under another key";
                let what = format!("run `{key}` has done {}, {again}", named(&steps));
                Fault::new(Exit::No, codes::RERUNS, what).hint(RERUN)
            }
            Error::Undecided { key, steps } => {
                let again = "which must not start twice; report its outcome, or accept that it may run again";
                let what = format!("run `{key}` has started {}, {again}", named(&steps));
                Fault::new(Exit::No, codes::RERUNS, what)
                    .hint(format!("`onceflow resolve {}` reports its outcome; {RERUN}", shell_word(&key)))
            }
            Error::Busy { key } => {
                let what = format!("run `{key}` is being cancelled or undone, and nothing else can be asked of it now");
                let cancel = format!("`onceflow cancel {}`", shell_word(&key));
                Fault::new(Exit::Busy, codes::ENDED, what)
                    .hint(format!("{cancel} continues that if no process does, and waits for its end"))
            }
            Error::NotUndone { key, steps } => not_undone(&key, &steps),
            Error::Superseded { key } => {
                let what =
                    format!("run `{key}` was started again with something else, and does not answer for these inputs");
                Fault::new(Exit::No, codes::ENDED, what)
                    .hint(format!("`onceflow show {}` says what it does now; `--key` starts another", shell_word(&key)))
            }
            Error::Ended { .. } | Error::CanBeUndone { .. } => told(Exit::No, codes::ENDED, &text),
            ref error if error.is_full() => Fault::full(text),
            Error::Values(values::Error::Source(_)) => {
                Fault::new(Exit::No, onceflow_engine::SOURCE_CHANGED, text).hint(RECOMPUTED)
            }
            Error::Values(_) | Error::Blobs(_) => told(Exit::Busy, codes::STORE_UNUSABLE, &text),
            Error::NoRun(_) => {
                told(Exit::Usage, codes::NO_RUN, &text).hint("`onceflow ls` lists the runs of this store")
            }
            Error::Refused { .. } | Error::TooLate { .. } => told(Exit::No, codes::ENDED, &text),
            Error::Flow(errors) => Fault::problems(Exit::Flow, mistakes(errors)),
            Error::Inputs(_) => told(Exit::Usage, codes::INPUTS, &text),
            Error::Scratch(_) => told(Exit::No, codes::WRITE, &text),
            _ => Fault::plain(Exit::No, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_of_a_server_that_can_lose_commits_accepts_exactly_what_the_message_names() {
        let words = |text: &str| -> Vec<String> {
            let words = text.split("accept=").skip(1).map(|rest| rest.split('`').next().unwrap_or_default());
            words.flat_map(|words| words.split(',')).map(String::from).collect()
        };
        let all: Vec<_> = Risk::ALL.iter().map(|(risk, _)| *risk).collect();
        for risks in all.iter().map(|risk| vec![*risk]).chain([all.clone(), vec![Risk::Eviction, Risk::Everysec]]) {
            let expected: Vec<_> = risks.iter().map(|risk| risk.word().to_owned()).collect();
            let fault = Fault::from(ConnectError::Risky { address: String::from("redis://host"), risks });
            assert_eq!((words(&fault.message), words(fault.hint.as_deref().unwrap())), (expected.clone(), expected));
            assert_eq!((fault.exit, fault.code), (Exit::Usage, Some(codes::RISKY)));
        }
        let page = crate::pages::find(codes::RISKY).expect("it has a page").1;
        assert!(Risk::ALL.iter().all(|(_, word)| page.contains(&format!("| `{word}` |"))), "{page}");
    }
}
