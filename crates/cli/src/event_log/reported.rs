//! Outcomes of waiting steps that were reported from outside: by an operator (`resolve`), or by sending the event that
//! the step waited for.

use super::{append_line, now_ms};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The reported outcome.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReportedOutcome {
    /// The step was done, with these outputs; and the event, if it waited for one.
    Done { event: Option<String>, outputs: Map<String, Value> },
    /// The step was not done, and runs again.
    Redo,
    /// The step failed, for this reason.
    Failed(String),
}

impl ReportedOutcome {
    pub(crate) fn is_redo(&self) -> bool {
        *self == ReportedOutcome::Redo
    }

    /// Returns the state of the step, in a word.
    pub(crate) fn fate(&self) -> &'static str {
        match self {
            ReportedOutcome::Done { event: None, .. } => "resolved",
            ReportedOutcome::Done { event: Some(_), .. } => "ran",
            ReportedOutcome::Redo => "not started",
            ReportedOutcome::Failed(_) => "failed",
        }
    }

    /// Describes the outcome, for people.
    pub(crate) fn told(&self) -> String {
        let given = |outputs: &Map<String, Value>| {
            let all: Vec<_> = outputs.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            if all.is_empty() { String::new() } else { format!(", with {}", all.join(", ")) }
        };
        match self {
            ReportedOutcome::Done { event: None, outputs } => format!("by hand: it was done{}", given(outputs)),
            ReportedOutcome::Done { event: Some(event), outputs } => format!("`{event}` was sent{}", given(outputs)),
            ReportedOutcome::Redo => String::from("by hand: it was not done, and runs again"),
            ReportedOutcome::Failed(why) => format!("by hand: it failed: {why}"),
        }
    }

    /// Returns the outcome as JSON.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            ReportedOutcome::Done { event, outputs } => json!({"outcome": "done", "event": event, "outputs": outputs}),
            ReportedOutcome::Redo => json!({"outcome": "redo"}),
            ReportedOutcome::Failed(why) => json!({"outcome": "fail", "why": why}),
        }
    }

    /// Writes the outcome into the event log of a run. To a reader of events alone, the line looks as if the step's
    /// worker had written it.
    pub(crate) fn write(&self, directory: &Path, address: &str) {
        let mut line = match self {
            ReportedOutcome::Done { .. } => json!({"event": "did-commit"}),
            ReportedOutcome::Redo => json!({"event": "will-redo"}),
            ReportedOutcome::Failed(why) => json!({"event": "did-fail", "attempt": 1, "causes": [why]}),
        };
        (line["t"], line["step"], line["said"]) = (json!(now_ms()), json!(address), self.to_json());
        append_line(directory, &line);
    }
}

/// Parses an outcome that [`ReportedOutcome::to_json`] wrote.
pub(super) fn read(said: &Value) -> Option<ReportedOutcome> {
    Some(match said["outcome"].as_str()? {
        "done" => ReportedOutcome::Done {
            event: said["event"].as_str().map(str::to_owned),
            outputs: said["outputs"].as_object().cloned().unwrap_or_default(),
        },
        "redo" => ReportedOutcome::Redo,
        _ => ReportedOutcome::Failed(said["why"].as_str().unwrap_or_default().to_owned()),
    })
}
