//! A line of a trail: what it tells, as it is written and read.

use super::{
    cut::Counts,
    said::{self, Said},
};
use crate::words;
use onceflow_core::protocol::rows::Failed;
use onceflow_engine::{End, What, task::Used};
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// A line.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// When, in milliseconds since 1970.
    pub(crate) t: u64,
    /// The address of the step it is about.
    pub(crate) step: Option<String>,
    /// What happened.
    pub(crate) what: Option<What>,
    /// If somebody said it, rather than whoever did it.
    pub(crate) said: Option<Said>,
    /// What is not listed, if that is what it tells.
    pub(crate) unlisted: Option<Counts>,
    /// A process began to attend the run: whoever was at work on it before is gone.
    pub(crate) resumed: bool,
}

/// What the event is called that counts what is not listed, and the one that somebody goes on.
const NOT_LISTED: &str = "not-listed";
const DID_RESUME: &str = "did-resume";

/// An event as data: the same in a trail and on stderr, but for the names of steps, which people see without a slash.
pub(crate) fn line(ms: u64, what: &What) -> Value {
    match what {
        What::DidStart { generation } => json!({"t": ms, "event": "did-start", "plan": generation}),
        What::WillRun { address, attempt } => {
            json!({"t": ms, "event": "will-run", "step": address, "attempt": attempt})
        }
        What::DidCommit { address } => json!({"t": ms, "event": "did-commit", "step": address}),
        What::DidReuse { address } => json!({"t": ms, "event": "did-reuse", "step": address}),
        What::DidOpen { address, elements } => {
            json!({"t": ms, "event": "did-open", "step": address, "elements": elements})
        }
        What::DidTurn { address, iteration } => {
            json!({"t": ms, "event": "did-turn", "step": address, "iteration": iteration})
        }
        What::DidUse { address, attempt, used } => {
            let mut line =
                json!({"t": ms, "event": "did-use", "step": address, "attempt": attempt, "cpu_ms": used.cpu_ms});
            if let Some(bytes) = used.peak_bytes {
                line["peak_bytes"] = json!(bytes);
            }
            line
        }
        What::DidFail(failed) => json!({
            "t": ms, "event": "did-fail", "step": &*failed.address, "attempt": failed.attempt, "causes": failed.causes,
        }),
        What::WillWait { address } => json!({"t": ms, "event": "will-wait", "step": address}),
        What::DidLoseTrack { address } => json!({"t": ms, "event": "did-lose-track", "step": address}),
        What::DidLose { address } => json!({"t": ms, "event": "did-lose", "step": address}),
        What::HeldUp { address, why } => json!({"t": ms, "event": "held-up", "step": address, "why": why}),
        What::DidUndo { address } => json!({"t": ms, "event": "did-undo", "step": address}),
        What::DidEnd { how } => json!({"t": ms, "event": "did-end", "how": how.to_string()}),
    }
}

/// An event as programs read it, with the step's name as the flow file has it; `None` if it is about something that a step
/// was lowered to, and people know nothing of.
pub(crate) fn told(ms: u64, what: &What) -> Option<Value> {
    let mut line = line(ms, what);
    if let Some(address) = line["step"].as_str().map(str::to_owned) {
        if words::is_helper(&address) && !matches!(what, What::DidFail(_)) {
            return None;
        }
        line["step"] = json!(words::step(&address));
    }
    Some(line)
}

/// The line that counts what is not listed.
pub(super) fn not_listed(ms: u64, counts: &Counts) -> Value {
    json!({"t": ms, "event": NOT_LISTED, "of": counts})
}

/// The line that says that a process begins to attend the run.
pub(super) fn did_resume(ms: u64) -> Value {
    json!({"t": ms, "event": DID_RESUME})
}

/// All that any line has.
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

/// A line, unless it is not one.
pub(super) fn read(text: &[u8]) -> Option<Line> {
    let raw: Raw<'_> = serde_json::from_slice(text).ok()?;
    let (t, said) = (raw.t, raw.said.as_ref().and_then(said::read));
    let step = raw.step.as_deref().map(str::to_owned);
    let (resumed, unlisted) = (raw.event == DID_RESUME, raw.of.clone().filter(|_| raw.event == NOT_LISTED));
    Some(Line { t, step, what: what(raw), said, unlisted, resumed })
}

fn what(raw: Raw<'_>) -> Option<What> {
    let attempt = raw.attempt;
    let address = || raw.step.as_deref().map(str::to_owned);
    Some(match &*raw.event {
        "did-start" => What::DidStart { generation: raw.plan },
        "will-run" => What::WillRun { address: address()?, attempt },
        "did-commit" => What::DidCommit { address: address()? },
        "did-reuse" => What::DidReuse { address: address()? },
        "did-open" => What::DidOpen { address: address()?, elements: raw.elements },
        "did-turn" => What::DidTurn { address: address()?, iteration: raw.iteration },
        "did-use" => {
            let used = Used { cpu_ms: raw.cpu_ms, peak_bytes: raw.peak_bytes };
            What::DidUse { address: address()?, attempt, used }
        }
        "did-fail" => What::DidFail(Failed { address: address()?.into(), attempt, causes: raw.causes, started: false }),
        "will-wait" => What::WillWait { address: address()? },
        "did-lose-track" => What::DidLoseTrack { address: address()? },
        "did-lose" => What::DidLose { address: address()? },
        "held-up" => What::HeldUp { address: address()?, why: raw.why? },
        "did-undo" => What::DidUndo { address: address()? },
        "did-end" => {
            let ends = [End::Done, End::Failed, End::Waiting, End::Cancelled, End::Undone, End::NotUndone];
            What::DidEnd { how: ends.into_iter().find(|end| raw.how.as_deref() == Some(&*end.to_string()))? }
        }
        _ => return None,
    })
}
