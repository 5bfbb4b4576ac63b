//! What somebody said became of a step that waited for it: by hand, or by bringing the event that it waited for.

use super::{append_line, now_ms};
use serde_json::{Map, Value, json};
use std::path::Path;

/// What was said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// It was done, and gave this. With the event, if it waited for one.
    Done { event: Option<String>, outputs: Map<String, Value> },
    /// It was not done, and runs again.
    Redo,
    /// It failed.
    Failed(String),
}

impl Said {
    pub(crate) fn is_redo(&self) -> bool {
        *self == Said::Redo
    }

    /// What the step has come to, in a word.
    pub(crate) fn fate(&self) -> &'static str {
        match self {
            Said::Done { event: None, .. } => "resolved",
            Said::Done { event: Some(_), .. } => "ran",
            Said::Redo => "not started",
            Said::Failed(_) => "failed",
        }
    }

    /// For people.
    pub(crate) fn told(&self) -> String {
        let given = |outputs: &Map<String, Value>| {
            let all: Vec<_> = outputs.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            if all.is_empty() { String::new() } else { format!(", with {}", all.join(", ")) }
        };
        match self {
            Said::Done { event: None, outputs } => format!("by hand: it was done{}", given(outputs)),
            Said::Done { event: Some(event), outputs } => format!("`{event}` was sent{}", given(outputs)),
            Said::Redo => String::from("by hand: it was not done, and runs again"),
            Said::Failed(why) => format!("by hand: it failed: {why}"),
        }
    }

    /// As data.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Said::Done { event, outputs } => json!({"outcome": "done", "event": event, "outputs": outputs}),
            Said::Redo => json!({"outcome": "redo"}),
            Said::Failed(why) => json!({"outcome": "fail", "why": why}),
        }
    }

    /// Writes it into the trail of a run. To whoever reads only what happens, it is as if whoever did the step had told it.
    pub(crate) fn write(&self, directory: &Path, address: &str) {
        let mut line = match self {
            Said::Done { .. } => json!({"event": "did-commit"}),
            Said::Redo => json!({"event": "will-redo"}),
            Said::Failed(why) => json!({"event": "did-fail", "attempt": 1, "causes": [why]}),
        };
        (line["t"], line["step"], line["said"]) = (json!(now_ms()), json!(address), self.to_json());
        append_line(directory, &line);
    }
}

/// What somebody said, as [`Said::to_json`] wrote it.
pub(super) fn read(said: &Value) -> Option<Said> {
    Some(match said["outcome"].as_str()? {
        "done" => Said::Done {
            event: said["event"].as_str().map(str::to_owned),
            outputs: said["outputs"].as_object().cloned().unwrap_or_default(),
        },
        "redo" => Said::Redo,
        _ => Said::Failed(said["why"].as_str().unwrap_or_default().to_owned()),
    })
}
