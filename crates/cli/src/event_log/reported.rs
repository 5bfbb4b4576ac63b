//! Outcomes of waiting steps that were reported from outside, for people and programs.

use onceflow_engine::ReportedOutcome;
use serde_json::{Map, Value, json};

/// Returns outputs as they are logged: each as JSON.
pub(crate) fn outputs_text(outputs: impl IntoIterator<Item = (String, Value)>) -> Vec<(String, String)> {
    outputs.into_iter().map(|(name, value)| (name, value.to_string())).collect()
}

/// Returns the state of the step, in a word.
pub(crate) fn reported_fate(outcome: &ReportedOutcome) -> &'static str {
    match outcome {
        ReportedOutcome::Done { event: None, .. } => "resolved",
        ReportedOutcome::Done { event: Some(_), .. } => "ran",
        ReportedOutcome::Redo => "not started",
        ReportedOutcome::Failed(_) => "failed",
    }
}

/// Describes the outcome, for people.
pub(crate) fn reported_text(outcome: &ReportedOutcome) -> String {
    let given = |outputs: &[(String, String)]| {
        let all: Vec<_> = outputs.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        if all.is_empty() { String::new() } else { format!(", with {}", all.join(", ")) }
    };
    match outcome {
        ReportedOutcome::Done { event: None, outputs } => format!("by hand: it was done{}", given(outputs)),
        ReportedOutcome::Done { event: Some(event), outputs } => format!("`{event}` was sent{}", given(outputs)),
        ReportedOutcome::Redo => String::from("by hand: it was not done, and runs again"),
        ReportedOutcome::Failed(why) => format!("by hand: it failed: {why}"),
    }
}

/// Returns the outcome as JSON.
pub(crate) fn reported_json(outcome: &ReportedOutcome) -> Value {
    match outcome {
        ReportedOutcome::Done { event, outputs } => {
            let read = |(name, text): &(String, String)| {
                (name.clone(), serde_json::from_str(text).unwrap_or_else(|_| json!(text)))
            };
            let outputs: Map<String, Value> = outputs.iter().map(read).collect();
            json!({"outcome": "done", "event": event, "outputs": outputs})
        }
        ReportedOutcome::Redo => json!({"outcome": "redo"}),
        ReportedOutcome::Failed(why) => json!({"outcome": "fail", "why": why}),
    }
}
