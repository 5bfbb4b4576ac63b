//! What a run waits for that only somebody outside can say: events, and what became of steps that must not start twice.
//! A step whose process was killed is put aside only when somebody goes on with the run; nobody knows what became of it
//! before that either.

use crate::{fault::Fault, verbs::ls::shell_word, words};
use onceflow_engine::{Engine, Handle, StartedStep, UndecidedStep};
use onceflow_exec::action::Action;
use serde_json::{Value, json};

/// A step that waits.
#[derive(Clone, Debug)]
pub(crate) struct PendingStep {
    pub(crate) step: UndecidedStep,
    pub(crate) why: Why,
}

/// For what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// An event.
    Event(String),
    /// Somebody who says what became of it.
    Unknown,
    /// The same; but it stands as whoever ran it left it, who claimed steps under this name and is gone.
    Left(u128),
}

impl PendingStep {
    fn aside(step: UndecidedStep) -> Self {
        let why = event(&step).map_or(Why::Unknown, Why::Event);
        PendingStep { step, why }
    }

    pub(crate) fn event(&self) -> Option<&str> {
        match &self.why {
            Why::Event(event) => Some(event),
            Why::Unknown | Why::Left(_) => None,
        }
    }
}

/// The event that a step waits for, if it is one that waits for events.
fn event(step: &UndecidedStep) -> Option<String> {
    let (_, params) = step.task.as_ref()?;
    match serde_json::from_slice(params).ok()? {
        Action::Wait(wait) => Some(wait.event),
        _ => None,
    }
}

/// The steps of a run that are put aside until somebody says something.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn aside(handle: &Handle) -> Result<Vec<PendingStep>, Fault> {
    Ok(handle.undecided_steps().await?.into_iter().map(PendingStep::aside).collect())
}

/// The same, and those whose processes are gone.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn all(engine: &Engine, handle: &Handle) -> Result<Vec<PendingStep>, Fault> {
    let mut all = aside(handle).await?;
    // Who began to wait for an event has done nothing, and begins again.
    let begun: Vec<_> =
        handle.started_steps().await?.into_iter().filter(|begun| event(&begun.step).is_none()).collect();
    if begun.is_empty() {
        return Ok(all);
    }
    let (workers, ended) = (engine.workers().await?, engine.ended_workers().await?);
    let is_alive = |by: u128| workers.iter().any(|worker| worker.incarnation == by && worker.is_alive);
    let has_ended = |by: u128| ended.iter().any(|worker| worker.incarnation == by);
    let is_left = |begun: &StartedStep| has_ended(begun.by) || begun.held_until.is_none() && !is_alive(begun.by);
    let left =
        begun.into_iter().filter(is_left).map(|begun| PendingStep { step: begun.step, why: Why::Left(begun.by) });
    all.extend(left);
    Ok(all)
}

/// Where the steps are of which nobody knows whether they took effect.
pub(crate) fn unknown(waits: &[PendingStep]) -> Vec<String> {
    waits.iter().filter(|waits| waits.event().is_none()).map(|waits| waits.step.address.clone()).collect()
}

/// The same, as people name them.
pub(crate) fn unknown_names(waits: &[PendingStep]) -> Vec<String> {
    unknown(waits).iter().map(|address| words::step(address)).collect()
}

/// The steps that wait for events, each with its event.
pub(crate) fn events(waits: &[PendingStep]) -> Vec<(String, &str)> {
    waits.iter().filter_map(|waits| Some((words::step(&waits.step.address), waits.event()?))).collect()
}

/// The same, as data.
pub(crate) fn events_json(waits: &[PendingStep]) -> Value {
    events(waits).into_iter().map(|(step, event)| json!({"step": step, "event": event})).collect()
}

/// How to say what became of a step, if somebody must.
pub(crate) fn resolve(key: &str, waits: &[PendingStep]) -> Option<String> {
    let step = shell_word(&words::step(unknown(waits).first()?));
    Some(format!("onceflow resolve {} {step} --done | --redo | --fail WHY", shell_word(key)))
}

/// What somebody must do, if somebody must: say what became of a step; if there is none, bring an event.
pub(crate) fn next(key: &str, waits: &[PendingStep]) -> Option<String> {
    let send = |event| format!("onceflow send {} {}", shell_word(key), shell_word(event));
    resolve(key, waits).or_else(|| waits.iter().find_map(PendingStep::event).map(send))
}
