//! Error codes of the tool and its store. Each has a page in `docs/errors`.

/// Code and title.
#[cfg(test)]
const CODES: &[(&str, &str)] = &[
    (NO_STORE, "there is no store here"),
    (NO_RUN, "there is no such run"),
    (AMBIGUOUS, "a name stands for several runs"),
    (RUN_BUSY, "the run is at work with other inputs or another flow"),
    (STORE_BUSY, "the store cannot be reached"),
    (STORE_DAMAGED, "the store is damaged"),
    (STORE_TOO_NEW, "the store was written by a later version"),
    (STORE_UNUSABLE, "the store cannot be read or written"),
    (RESULTS, "a result cannot be written"),
    (NO_CODE, "there is no such error code"),
    (NO_LOGS, "there are no such logs"),
    (NOT_NEW, "the destination exists already"),
    (RERUNS, "steps that must not run twice would run again"),
    (ENDED, "the run does not allow this now"),
    (OUTCOME, "the outcome of a step is not known"),
    (UNREADABLE, "a file cannot be read"),
    (RISKY, "the server can lose what it has acknowledged"),
    (SERVER, "the server cannot be used"),
    (USAGE, "the command line asks for something that cannot be"),
    (INPUTS, "an input is not what it must be"),
    (WRITE, "a file cannot be written"),
    (CONFIG, "the configuration is wrong"),
    (DRAWING, "there is nothing to draw"),
    (SYSTEM, "the system does not give what is needed"),
    (NO_STEP, "there is no such step"),
    (NOT_WAITING, "no such step waits"),
    (NO_ORIGIN, "nothing is known of this content"),
    (BAD_EXPORT, "the file is not a run that can be imported"),
    (UNFINISHED, "the run has not ended"),
    (STORE_LOST, "the store has lost its data"),
    (IN_USE, "the store is in use, so nothing can be proven"),
    (NOT_UNDONE, "what a run did could not be undone"),
    (STREAM_STOPPED, "a stream stopped"),
    (STREAM_CHANGED, "a changed stream cannot go on with its state"),
    (STREAM_CALL, "a run that a stream called has no result"),
];

pub(crate) const NO_STORE: &str = "OF0401";
pub(crate) const NO_RUN: &str = "OF0402";
pub(crate) const AMBIGUOUS: &str = "OF0403";
pub(crate) const RUN_BUSY: &str = "OF0404";
pub(crate) const STORE_BUSY: &str = "OF0405";
pub(crate) const STORE_DAMAGED: &str = "OF0406";
pub(crate) const STORE_TOO_NEW: &str = "OF0407";
pub(crate) const STORE_UNUSABLE: &str = "OF0408";
pub(crate) const RESULTS: &str = "OF0409";
pub(crate) const NO_CODE: &str = "OF0410";
pub(crate) const NO_LOGS: &str = "OF0411";
pub(crate) const NOT_NEW: &str = "OF0412";
pub(crate) const RERUNS: &str = "OF0413";
pub(crate) const ENDED: &str = "OF0414";
pub(crate) const OUTCOME: &str = "OF0415";
pub(crate) const UNREADABLE: &str = "OF0416";
pub(crate) const RISKY: &str = "OF0417";
pub(crate) const SERVER: &str = "OF0418";
pub(crate) const USAGE: &str = "OF0419";
pub(crate) const INPUTS: &str = "OF0420";
pub(crate) const STORE_LOST: &str = "OF0421";
pub(crate) const WRITE: &str = "OF0440";
pub(crate) const CONFIG: &str = "OF0441";
pub(crate) const DRAWING: &str = "OF0442";
pub(crate) const SYSTEM: &str = "OF0443";
pub(crate) const NO_STEP: &str = "OF0450";
pub(crate) const NOT_WAITING: &str = "OF0451";
pub(crate) const NO_ORIGIN: &str = "OF0452";
pub(crate) const BAD_EXPORT: &str = "OF0453";
pub(crate) const UNFINISHED: &str = "OF0454";
pub(crate) const IN_USE: &str = "OF0480";
pub(crate) const NOT_UNDONE: &str = "OF0455";
pub(crate) const STREAM_STOPPED: &str = "OF0460";
pub(crate) const STREAM_CHANGED: &str = "OF0461";
pub(crate) const STREAM_CALL: &str = "OF0462";

// Codes of flows and their inputs that the tool reports, too.
pub(crate) const NO_OUTPUT: &str = "OF0016";
pub(crate) const TOO_MUCH: &str = "OF0040";
pub(crate) const MISFIT: &str = "OF0203";

#[cfg(test)]
mod tests {
    use crate::pages;

    #[test]
    fn every_code_has_a_page_of_its_title() {
        for (code, title) in super::CODES {
            let page = pages::find(code).unwrap_or_else(|| panic!("{code} has no page in docs/errors"));
            assert_eq!(pages::title(page.1), *title, "{code}");
        }
    }
}
