//! Steps of a run that wait for input from outside: for events, or, if they must not start twice, for an operator to
//! report their outcome. A step whose process was killed is parked only when a process resumes the run, but its outcome
//! is unknown before that, too.

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

/// The reason why a step waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The step waits for this event.
    Event(String),
    /// An operator must report the outcome (`onceflow resolve`).
    Unknown,
    /// The same, but the step is not parked yet: the worker that claimed it under this name is gone.
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

/// Returns the event that a step waits for, if it waits for one.
fn event(step: &UndecidedStep) -> Option<String> {
    let (_, params) = step.task.as_ref()?;
    match serde_json::from_slice(params).ok()? {
        Action::Wait(wait) => Some(wait.event),
        _ => None,
    }
}

/// Returns the parked steps of a run: those that wait for an event, or for an operator.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn aside(handle: &Handle) -> Result<Vec<PendingStep>, Fault> {
    Ok(parked(handle.steps().undecided_steps().await?))
}

/// Returns the parked steps of a preview.
pub(crate) fn parked(steps: Vec<UndecidedStep>) -> Vec<PendingStep> {
    steps.into_iter().map(PendingStep::aside).collect()
}

/// Returns the steps of a run that wait for an event or an operator: those that are parked, and started ones whose
/// processes are gone.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn all(engine: &Engine, handle: &Handle) -> Result<Vec<PendingStep>, Fault> {
    of(engine, handle.steps().undecided_steps().await?, handle.steps().started_steps().await?).await
}

/// Returns the same of a preview, or of any steps that were parked or started.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn of(
    engine: &Engine,
    parked: Vec<UndecidedStep>,
    started: Vec<StartedStep>,
) -> Result<Vec<PendingStep>, Fault> {
    let mut all = self::parked(parked);
    // A step that began to wait for an event has no effect yet, and simply begins again.
    let begun: Vec<_> = started.into_iter().filter(|begun| event(&begun.step).is_none()).collect();
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

/// Returns the addresses of the steps whose outcome is not known.
pub(crate) fn unknown(waits: &[PendingStep]) -> Vec<String> {
    waits.iter().filter(|waits| waits.event().is_none()).map(|waits| waits.step.address.clone()).collect()
}

/// Returns the same as names for display.
pub(crate) fn unknown_names(waits: &[PendingStep]) -> Vec<String> {
    unknown(waits).iter().map(|address| words::step(address)).collect()
}

/// Returns the steps that wait for events, each with its event.
pub(crate) fn events(waits: &[PendingStep]) -> Vec<(String, &str)> {
    waits.iter().filter_map(|waits| Some((words::step(&waits.step.address), waits.event()?))).collect()
}

/// Returns the same as JSON.
pub(crate) fn events_json(waits: &[PendingStep]) -> Value {
    events(waits).into_iter().map(|(step, event)| json!({"step": step, "event": event})).collect()
}

/// Returns the command that reports the outcome of the first unknown step, if there is one.
pub(crate) fn resolve(key: &str, waits: &[PendingStep]) -> Option<String> {
    let step = shell_word(&words::step(unknown(waits).first()?));
    Some(format!("onceflow resolve {} {step} --done | --redo | --fail WHY", shell_word(key)))
}

/// Returns the command to run next, if one is needed: it reports an unknown outcome, or, if there is none, sends an
/// event.
pub(crate) fn next(key: &str, waits: &[PendingStep]) -> Option<String> {
    let send = |event| format!("onceflow send {} {}", shell_word(key), shell_word(event));
    resolve(key, waits).or_else(|| waits.iter().find_map(PendingStep::event).map(send))
}
