//! Error codes for everything that can go wrong while a step runs, and failures that carry them.

use onceflow_engine::task::Failure;

/// Every code of this crate with its subject. Each has a page, `docs/errors/<code>.md`.
pub const CODES: [(&str, &str); 24] = [
    (EXIT, "a command ended with a status other than 0"),
    (SIGNAL, "a command was ended by a signal"),
    (NOT_FOUND, "a program was not found"),
    (START, "a program could not be started"),
    (OUTPUT_MISSING, "a declared output is not there"),
    (OUTPUT_REFUSED, "an output is not what it was declared to be, or lies outside of the work directory"),
    (OUTPUT_VALUE, "the text of an output is not a value of its type"),
    (OUTPUT_MANY, "more than one file matches where one was declared"),
    (INPUT_CHANGED, "a command changed one of its inputs"),
    (SECRET, "a secret is not in the environment"),
    (EXPRESSION, "an expression cannot be computed"),
    (UNFIT, "a value cannot be part of a command"),
    (QUOTED, "a hole stands where no value can go"),
    (NO_JSON, "a script did not write JSON"),
    (HTTP_STATUS, "a server refused"),
    (HTTP_TRANSPORT, "a server could not be reached, or did not answer"),
    (HTTP_BODY, "the answer of a server is too large, or not what was declared"),
    (OTHER_VERSION, "a step was planned by another version of onceflow"),
    (WORK, "the work directory could not be made or read"),
    (INPUT_TYPE, "an input is not a value of its type"),
    (onceflow_engine::task::TIMEOUT, "a step took longer than its timeout"),
    (SCOPE, "a scope was cancelled"),
    (STREAM, "the stream of a step has stopped"),
    (onceflow_engine::SOURCE_CHANGED, "an input file changed, or is gone"),
];

pub(crate) const EXIT: &str = "OF0301";
pub(crate) const SIGNAL: &str = "OF0302";
pub(crate) const NOT_FOUND: &str = "OF0303";
pub(crate) const START: &str = "OF0304";
pub(crate) const OUTPUT_MISSING: &str = "OF0305";
pub(crate) const OUTPUT_REFUSED: &str = "OF0306";
pub(crate) const OUTPUT_VALUE: &str = "OF0307";
pub(crate) const OUTPUT_MANY: &str = "OF0308";
pub(crate) const INPUT_CHANGED: &str = "OF0309";
/// A secret that is not in the environment.
pub const SECRET: &str = "OF0310";
/// An expression that cannot be computed; public for the executor of streams.
pub const EXPRESSION: &str = "OF0311";
pub(crate) const UNFIT: &str = "OF0312";
/// A hole where no value can go; public for callers of [`crate::shell::scan`].
pub const QUOTED: &str = "OF0313";
pub(crate) const NO_JSON: &str = "OF0314";
pub(crate) const HTTP_STATUS: &str = "OF0315";
pub(crate) const HTTP_TRANSPORT: &str = "OF0316";
pub(crate) const HTTP_BODY: &str = "OF0317";
/// A step that was planned by another version; public for the executor of streams.
pub const OTHER_VERSION: &str = "OF0318";
pub(crate) const WORK: &str = "OF0319";
pub(crate) const INPUT_TYPE: &str = "OF0320";
pub(crate) const SCOPE: &str = "OF0322";
/// A stream of a step that has stopped; public for the executor of streams.
pub const STREAM: &str = "OF0323";

/// Makes a failure with a code: its first cause begins with the code, `OF0301: …`.
pub(crate) fn failure(code: &str, what: impl std::fmt::Display) -> Failure {
    Failure::new(format!("{code}: {what}"))
}

/// Makes the failure for an I/O error in the work directory: the disk is full, or the directory is not ours.
pub(crate) fn work(what: impl std::fmt::Display, error: &std::io::Error) -> Failure {
    failure(WORK, format!("{what}: {error}"))
}

/// Appends a cause to a failure.
pub(crate) fn because(mut failure: Failure, more: impl Into<String>) -> Failure {
    failure.causes.push(more.into());
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page_and_every_page_a_code() {
        let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
        let mut found: Vec<_> = std::fs::read_dir(pages)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("OF03"))
            .collect();
        found.sort();
        let codes: Vec<_> = CODES.iter().map(|(code, _)| format!("{code}.md")).collect();
        assert_eq!(found, codes);
        for (code, title) in CODES {
            let page = std::fs::read_to_string(format!("{pages}/{code}.md")).unwrap();
            assert!(page.starts_with(&format!("# {code}: {title}\n")), "the page of {code} opens with its title");
        }
    }
}
