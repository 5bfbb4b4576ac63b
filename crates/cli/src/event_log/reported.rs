//! What somebody said became of a step that waited for it: by hand, or by bringing the event that it waited for.

use super::{append_line, now_ms};
use serde_json::{Map, Value, json};
use std::path::Path;

/// What was said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReportedOutcome {
    /// It was done, and gave this. With the event, if it waited for one.
    Done { event: Option<String>, outputs: Map<String, Value> },
    /// It was not done, and runs again.
    Redo,
    /// It failed.
    Failed(String),
}

impl ReportedOutcome {
    pub(crate) fn is_redo(&self) -> bool {
        *self == ReportedOutcome::Redo
    }

    /// The state of the step, in a word.
    pub(crate) fn fate(&self) -> &'static str {
        match self {
            ReportedOutcome::Done { event: None, .. } => "resolved",
            ReportedOutcome::Done { event: Some(_), .. } => "ran",
            ReportedOutcome::Redo => "not started",
            ReportedOutcome::Failed(_) => "failed",
        }
    }

    /// For people.
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

    /// As data.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            ReportedOutcome::Done { event, outputs } => json!({"outcome": "done", "event": event, "outputs": outputs}),
            ReportedOutcome::Redo => json!({"outcome": "redo"}),
            ReportedOutcome::Failed(why) => json!({"outcome": "fail", "why": why}),
        }
    }

    /// Writes it into the event log of a run. To whoever reads only what happens, it is as if whoever did the step had told it.
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

/// What somebody said, as [`ReportedOutcome::to_json`] wrote it.
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
