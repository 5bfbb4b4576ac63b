//! The ways out of a parked row: an operator or a late worker reports the outcome, a timer wakes the step, or the run
//! takes it up again.

use super::{
    super::{
        draft::{Draft, InstalledProgram, Site},
        ids::StepId,
        keys,
        rows::{self, Frame, Parked, Phase, Received, RunState, Why},
    },
    set_phase,
};
use crate::{payload::Outcome, row::Row, seams};

/// Puts parked steps back into their queues, and the run into phase running. Failed steps have all their attempts
/// again.
pub fn unpark<'a>(plan: &'a InstalledProgram, state: RunState, parked: &[(StepId, Row, Parked)]) -> Draft<'a> {
    let mut draft = Draft::new(plan, state);
    set_phase(plan, &mut draft, state, Phase::Running);
    for (step, row, parked) in parked {
        let key = plan.keys.parked(*step);
        draft.batch.require_equals(key.clone(), row.clone());
        draft.batch.delete(key);
        // The class of the step may have changed since it was parked.
        let queue = plan.queue(parked.ready_step.block, step.node);
        let started = seams::start_mark(&parked.ready_step);
        let ready_step = rows::ReadyStep { failed: 0, started, ..parked.ready_step.clone() };
        draft.enable(*step, &queue, &ready_step);
    }
    draft
}

/// Commits outputs for a step whose outcome was unknown, as an operator or its late worker reports them.
pub fn decided<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    step: StepId,
    (row, parked): (&Row, &Parked),
    frame: &Frame,
    inbox: &[Received],
    outputs: &[Outcome],
) -> Draft<'a> {
    let mut draft = decide(plan, state, step, (row, parked));
    let ready_step = &parked.ready_step;
    for received in inbox.iter().chain(&ready_step.inputs) {
        let key = plan.keys.arrival(step, received.port);
        if received.owned {
            draft.release(&key, received.port, &received.outcome);
        }
        draft.batch.delete(key);
    }
    let site = Site { id: step.frame, frame, index: step.index, block: ready_step.block };
    let targets = plan.wiring.blocks[ready_step.block as usize].targets(step.node);
    draft.deliver(site, targets, &|port| outputs[usize::from(port)].clone());
    draft
}

/// Retries a step whose outcome was unknown; of a suspended step, wakes the attempt.
pub fn redo<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    step: StepId,
    (row, parked): (&Row, &Parked),
) -> Draft<'a> {
    let mut draft = decide(plan, state, step, (row, parked));
    let resumed = resumed(parked, false);
    let ready_step = rows::ReadyStep { started: None, resumed, ..parked.ready_step.clone() };
    let queue = plan.queue(ready_step.block, step.node);
    draft.enable(step, &queue, &ready_step);
    draft
}

/// Fails a step whose outcome was unknown.
pub fn fail<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    step: StepId,
    (row, parked): (&Row, &Parked),
    failed: rows::Failed,
) -> Draft<'a> {
    let mut draft = decide(plan, state, step, (row, parked));
    let parked = Parked { why: Why::Failed(failed), ..parked.clone() };
    draft.batch.put(plan.keys.parked(step), rows::write(&parked));
    draft
}

fn resumed(parked: &Parked, timed_out: bool) -> Option<rows::Resumed> {
    let Why::Suspended { handle, .. } = &parked.why else { return None };
    Some(rows::Resumed { handle: handle.clone(), timed_out })
}

/// The batch that a timer calls for, in this phase of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTimer {
    /// The step becomes ready.
    Wake,
    /// The timer goes: the run has ended or is on its way out, and takes the step with it.
    Forget,
    /// The timer waits: a new plan is being made.
    Later,
}

/// Decides what a timer does in this phase.
pub fn on_timer(phase: Phase) -> OnTimer {
    match phase {
        Phase::Running | Phase::Failing | Phase::Cancelling | Phase::Waiting => OnTimer::Wake,
        Phase::Frozen => OnTimer::Later,
        // A run with a suspended step waits for it before it fails.
        Phase::Failed { .. } | Phase::NotUndone { .. } => OnTimer::Forget,
        Phase::UndoingFailed | Phase::UndoingCancelled => OnTimer::Forget,
        Phase::RemovingFailed | Phase::RemovingCancelled | Phase::Expired => OnTimer::Forget,
    }
}

/// Wakes a suspended step whose deadline has passed: reverses [`step::suspend`](crate::protocol::step::suspend) in one batch.
pub fn wake<'a>(
    plan: &'a InstalledProgram,
    state: RunState,
    step: StepId,
    (row, parked): (&Row, &Parked),
) -> Draft<'a> {
    assert_eq!(on_timer(state.phase), OnTimer::Wake, "step {step:?} is woken in phase {:?}", state.phase);
    let mut draft = decide(plan, state, step, (row, parked));
    let ready_step = rows::ReadyStep { started: None, resumed: resumed(parked, true), ..parked.ready_step.clone() };
    let queue = parked.class.as_deref().map_or_else(keys::internal_queue, keys::class_queue);
    draft.enable(step, &queue, &ready_step);
    draft
}

/// Deletes a parked row, with its timer. A run that waited for it is settled again, if this enables nothing else.
fn decide<'a>(plan: &'a InstalledProgram, state: RunState, step: StepId, (row, parked): (&Row, &Parked)) -> Draft<'a> {
    let mut draft = Draft::new(plan, state);
    let key = plan.keys.parked(step);
    seams::delete_parked(&mut draft.batch, key, row.clone(), &parked.why);
    if let Some((timer, _)) = draft.timer(step, &parked.why) {
        draft.batch.delete(timer);
    }
    if state.phase == Phase::Waiting {
        set_phase(plan, &mut draft, state, Phase::Running);
        let settle = draft.settle();
        draft.batch.ops.push(settle);
    }
    draft
}
