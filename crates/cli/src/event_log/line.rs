//! A line of an event log, as it is written and read.

use super::{
    cut::Counts,
    reported::{self, ReportedOutcome},
};
use crate::words;
use onceflow_core::protocol::rows::Failed;
use onceflow_engine::{EventKind, RunStatus, task::Used};
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// A line.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// The time, in milliseconds since 1970.
    pub(crate) t: u64,
    /// The address of the step it is about.
    pub(crate) step: Option<String>,
    /// The event.
    pub(crate) what: Option<EventKind>,
    /// The reported outcome, if an operator or a sender reported it rather than the worker.
    pub(crate) said: Option<ReportedOutcome>,
    /// The counts, if the line counts unlisted events.
    pub(crate) unlisted: Option<Counts>,
    /// A process began to attend the run: the process that worked on it before is gone.
    pub(crate) resumed: bool,
}

/// The names of the events that count unlisted events, and that say that a process resumed the run.
const NOT_LISTED: &str = "not-listed";
const DID_RESUME: &str = "did-resume";

/// An event as JSON: the same in an event log and on stderr, except that stderr shows the names of steps without a
/// slash.
pub(crate) fn line(ms: u64, what: &EventKind) -> Value {
    match what {
        EventKind::DidStart { generation } => json!({"t": ms, "event": "did-start", "plan": generation}),
        EventKind::WillRun { address, attempt } => {
            json!({"t": ms, "event": "will-run", "step": address, "attempt": attempt})
        }
        EventKind::DidCommit { address } => json!({"t": ms, "event": "did-commit", "step": address}),
        EventKind::DidReuse { address } => json!({"t": ms, "event": "did-reuse", "step": address}),
        EventKind::DidOpen { address, elements } => {
            json!({"t": ms, "event": "did-open", "step": address, "elements": elements})
        }
        EventKind::DidTurn { address, iteration } => {
            json!({"t": ms, "event": "did-turn", "step": address, "iteration": iteration})
        }
        EventKind::DidUse { address, attempt, used } => {
            let mut line =
                json!({"t": ms, "event": "did-use", "step": address, "attempt": attempt, "cpu_ms": used.cpu_ms});
            if let Some(bytes) = used.peak_bytes {
                line["peak_bytes"] = json!(bytes);
            }
            line
        }
        EventKind::DidFail(failed) => json!({
            "t": ms, "event": "did-fail", "step": &*failed.address, "attempt": failed.attempt, "causes": failed.causes,
        }),
        EventKind::WillWait { address } => json!({"t": ms, "event": "will-wait", "step": address}),
        EventKind::DidMarkUnknown { address } => json!({"t": ms, "event": "did-lose-track", "step": address}),
        EventKind::DidLose { address } => json!({"t": ms, "event": "did-lose", "step": address}),
        EventKind::HeldUp { address, why } => json!({"t": ms, "event": "held-up", "step": address, "why": why}),
        EventKind::DidUndo { address } => json!({"t": ms, "event": "did-undo", "step": address}),
        EventKind::DidEnd { how } => json!({"t": ms, "event": "did-end", "how": how.to_string()}),
    }
}

/// An event as programs read it, with the step's name as in the flow file; `None` if it is about a helper that a step
/// was lowered to, which users do not know of.
pub(crate) fn told(ms: u64, what: &EventKind) -> Option<Value> {
    let mut line = line(ms, what);
    if let Some(address) = line["step"].as_str().map(str::to_owned) {
        if words::is_helper(&address) && !matches!(what, EventKind::DidFail(_)) {
            return None;
        }
        line["step"] = json!(words::step(&address));
    }
    Some(line)
}

/// Makes the line that counts unlisted events.
pub(super) fn not_listed(ms: u64, counts: &Counts) -> Value {
    json!({"t": ms, "event": NOT_LISTED, "of": counts})
}

/// Makes the line that says that a process begins to attend the run.
pub(super) fn did_resume(ms: u64) -> Value {
    json!({"t": ms, "event": DID_RESUME})
}

/// All fields that any line has.
#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(default)]
    t: u64,
    #[serde(borrow)]
    step: Option<Cow<'a, str>>,
    #[serde(default)]
    attempt: u32,
    #[serde(default)]
    elements: u32,
    #[serde(default)]
    iteration: u32,
    #[serde(default)]
    plan: u32,
    #[serde(default)]
    cpu_ms: u64,
    peak_bytes: Option<u64>,
    #[serde(borrow)]
    how: Option<Cow<'a, str>>,
    #[serde(default)]
    causes: Vec<String>,
    why: Option<String>,
    said: Option<Value>,
    of: Option<Counts>,
}

/// Parses a line; `None` if it is not one.
pub(super) fn read(text: &[u8]) -> Option<Line> {
    let raw: Raw<'_> = serde_json::from_slice(text).ok()?;
    let (t, said) = (raw.t, raw.said.as_ref().and_then(reported::read));
    let step = raw.step.as_deref().map(str::to_owned);
    let (resumed, unlisted) = (raw.event == DID_RESUME, raw.of.clone().filter(|_| raw.event == NOT_LISTED));
    Some(Line { t, step, what: what(raw), said, unlisted, resumed })
}

fn what(raw: Raw<'_>) -> Option<EventKind> {
    let attempt = raw.attempt;
    let address = || raw.step.as_deref().map(str::to_owned);
    Some(match &*raw.event {
        "did-start" => EventKind::DidStart { generation: raw.plan },
        "will-run" => EventKind::WillRun { address: address()?, attempt },
        "did-commit" => EventKind::DidCommit { address: address()? },
        "did-reuse" => EventKind::DidReuse { address: address()? },
        "did-open" => EventKind::DidOpen { address: address()?, elements: raw.elements },
        "did-turn" => EventKind::DidTurn { address: address()?, iteration: raw.iteration },
        "did-use" => {
            let used = Used { cpu_ms: raw.cpu_ms, peak_bytes: raw.peak_bytes };
            EventKind::DidUse { address: address()?, attempt, used }
        }
        "did-fail" => {
            EventKind::DidFail(Failed { address: address()?.into(), attempt, causes: raw.causes, started: false })
        }
        "will-wait" => EventKind::WillWait { address: address()? },
        "did-lose-track" => EventKind::DidMarkUnknown { address: address()? },
        "did-lose" => EventKind::DidLose { address: address()? },
        "held-up" => EventKind::HeldUp { address: address()?, why: raw.why? },
        "did-undo" => EventKind::DidUndo { address: address()? },
        "did-end" => EventKind::DidEnd { how: ended(raw.how.as_deref()?)? },
        _ => return None,
    })
}

/// Parses the status in a line; earlier versions had other words for two of them.
fn ended(word: &str) -> Option<RunStatus> {
    use RunStatus::{Cancelled, Done, Failed, NotUndone, Undone, Waiting};
    match word {
        "failed and undone" => Some(Undone),
        "not undone" => Some(NotUndone),
        word => [Done, Failed, Waiting, Cancelled, Undone, NotUndone].into_iter().find(|end| end.to_string() == word),
    }
}
