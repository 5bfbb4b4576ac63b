//! A line of an event log, as commands read it; and an event as programs read it.

use crate::{picture::scene::box_id, words};
use onceflow_core::protocol::rows::Failed;
use onceflow_engine::{EventKind, LogEntry, LogEntryKind, ReportedOutcome, Unlisted, UnlistedCounts};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// Counts of unlisted events by the id of the step's box; under the empty id, those of steps beyond the log's bound.
pub(crate) type Counts = BTreeMap<String, Unlisted>;

/// A line.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// The time, in milliseconds since 1970.
    pub(crate) t: u64,
    /// The host name of the worker that logged it.
    pub(crate) host: Arc<str>,
    /// The address of the step it is about.
    pub(crate) step: Option<String>,
    /// The event. To a reader of events alone, a reported outcome looks as if the step's worker had logged it.
    pub(crate) what: Option<EventKind>,
    /// The reported outcome, if an operator or a sender reported it rather than the worker.
    pub(crate) said: Option<ReportedOutcome>,
    /// The counts, if the line counts unlisted events.
    pub(crate) unlisted: Option<Counts>,
    /// A process began to attend the run: the process that worked on it before is gone.
    pub(crate) resumed: bool,
}

impl Line {
    /// Makes the line of an entry.
    pub(super) fn of(entry: LogEntry) -> Self {
        let line = Line { t: entry.ms, host: entry.host, ..Line::default() };
        match entry.kind {
            LogEntryKind::Event(what) => Line { step: what.address().map(str::to_owned), what: Some(what), ..line },
            LogEntryKind::Reported { address, outcome } => {
                let what = match &outcome {
                    ReportedOutcome::Done { .. } => Some(EventKind::DidCommit { address: address.clone() }),
                    ReportedOutcome::Redo => None,
                    ReportedOutcome::Failed(why) => Some(EventKind::DidFail(Failed {
                        address: address.as_str().into(),
                        attempt: 1,
                        causes: vec![why.clone()],
                        started: false,
                    })),
                };
                Line { step: Some(address), what, said: Some(outcome), ..line }
            }
            LogEntryKind::Resumed => Line { resumed: true, ..line },
            LogEntryKind::Unlisted(counts) => Line { unlisted: Some(by_box(&counts)), ..line },
        }
    }

    /// The run is at rest.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self.what, Some(EventKind::DidEnd { .. }))
    }
}

fn by_box(counts: &UnlistedCounts) -> Counts {
    let mut of = Counts::new();
    for (address, counts) in counts {
        of.entry(box_id(address)).or_default().add(counts);
    }
    of
}

/// An event as JSON, with the address of its step.
fn line(ms: u64, what: &EventKind) -> Value {
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
        EventKind::CleanupFailed { address, why } => {
            json!({"t": ms, "event": "cleanup-failed", "step": address, "why": why})
        }
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
