//! Runs user code: again after a crash if its effect allows it, never twice if it is at-most-once, and always under the
//! same key.

mod body;
mod changed;
mod left_open;
mod outputs;
mod start;
mod suspend;
mod unknown;

use super::{Work, container::place_of, memo::StepMemo, moving};
use crate::{
    Error, data,
    events::EventKind,
    kernel::{Job, Stop, WorkCommit},
    seams,
    shared::lock,
    task::{Body, Data, Failure, FlowRows, Tx, Verdict},
    tx::StepClaim,
    worker::Reserved,
};
use body::{BodyRun, Interrupted};
pub(super) use body::{Started, blocking, overrun, panicked, walled};
use futures_util::future::{Either, select};
pub(in crate::perform) use left_open::end_open_sessions;
use onceflow_core::{
    limits,
    model::{Effect, TaskSpec, program::NodeOp},
    protocol::{
        rows::{Failed, Held, Phase, ReadyStep, RunState},
        step,
    },
};
use onceflow_store::{blobs, values};
use start::StartRecord;
use std::{
    borrow::Cow,
    sync::{Arc, Mutex},
};
pub(in crate::perform) use suspend::cancel_suspended;
pub(crate) use unknown::{decide_done, may_decide};

/// A claimed step that runs a task, or several that are fused.
pub(super) struct TaskStep<'a> {
    work: &'a Work<'a>,
    /// The task; of a fused step the first: fused tasks agree in effect, class and limits.
    spec: Cow<'a, TaskSpec>,
    inputs: Vec<Held>,
}

impl<'a> TaskStep<'a> {
    pub(super) fn new(work: &'a Work<'a>, inputs: Vec<Held>) -> Self {
        let spec = work.run.plan.spec(work.taken.ready_step.block, work.taken.step.node);
        TaskStep { work, spec: spec.expect("only tasks are performed here"), inputs }
    }

    /// The bodies of all tasks of the step, if this worker offers them.
    fn bodies(&self) -> Result<Vec<Arc<dyn Body>>, String> {
        let program = &self.work.run.plan.program;
        let offered = self.work.shared().tasks();
        let body = |task: u32| offered.body_of(&program.tasks[task as usize]).cloned();
        match &self.work.taken.node(&self.work.run.plan).op {
            NodeOp::Task(task) => Ok(vec![body(*task)?]),
            NodeOp::Fused(tasks) => tasks.iter().map(|fused| body(fused.task)).collect(),
            _ => Ok(vec![]),
        }
    }

    /// Performs the step: leaves it to another worker, finds its outputs, or runs the body until it has an outcome.
    pub(super) async fn perform(&self) -> Result<Option<Job>, Error> {
        if let Some(queue) = moving::other_queue(self.work, &self.spec) {
            // Rare futures are boxed here and below: a slot is as large as its largest future, and moved when it starts.
            return Box::pin(moving::move_to(self.work, queue, None)).await.map(|()| None);
        }
        let bodies = match self.bodies() {
            Ok(bodies) => bodies,
            Err(why) => return Box::pin(moving::leave_to_offering(self.work, &why)).await.map(|()| None),
        };
        let mut ready_step = self.work.taken.ready_step.clone();
        if let Some(started) = seams::may_have_run(&self.spec, &ready_step) {
            match Box::pin(self.verify()).await? {
                Verdict::Unknown => return Box::pin(self.park_unknown(started)).await,
                Verdict::Done(outputs) => return Box::pin(self.commit_verified(outputs)).await,
                Verdict::NotDone => ready_step.started = None,
            }
        }
        let memo = StepMemo::of(self.work, &self.inputs).await?;
        if let Some(next) = memo.reuse().await? {
            return Ok(next);
        }
        self.run_body(ready_step, &bodies, &memo).await
    }

    /// Commits the outputs that the task's own check found.
    async fn commit_verified(&self, outputs: Vec<Data>) -> Result<Option<Job>, Error> {
        match self.commit_outputs(outputs, None, &StepMemo::new(self.work, None), None).await {
            Err(Error::Values(values::Error::Blobs(blobs::Error::Content { why, .. }))) => {
                self.work.fail(self.work.taken.ready_step.failed + 1, unreadable_output(&why)).await
            }
            Ok(Err(stop)) => self.stopped(stop).await,
            committed => committed.map(|committed| committed.map_or(None, WorkCommit::next)),
        }
    }

    /// Runs the body, again after failures that allow it.
    async fn run_body(
        &self,
        mut ready_step: ReadyStep,
        bodies: &[Arc<dyn Body>],
        memo: &StepMemo<'_>,
    ) -> Result<Option<Job>, Error> {
        let (spec, inputs) = (&*self.spec, &self.inputs[..]);
        let start = StartRecord { work: self.work, spec, inputs };
        loop {
            let attempt = ready_step.failed + 1;
            // The rows it was decided on must be durable. It waits for that before it takes a place to run, so that it
            // keeps no other step from running.
            start.until_durable(self.work.position, true).await?;
            // Resources come next: an at-most-once step is not marked as started while it waits for them.
            let waits_for_steps = bodies.iter().any(|body| body.waits_for_steps(spec));
            let reserved = match self.reserve(waits_for_steps).await? {
                Ok(reserved) => reserved,
                Err(stop) => return Box::pin(self.stopped(stop)).await,
            };
            // Nor is it marked as started while its inputs cannot be read.
            let scratch = self.work.scratch();
            let loaded = match data::load_all(&self.work.shared().values, inputs, Some(&scratch)).await {
                Err(Error::Values(values::Error::Source(changed))) => {
                    return Box::pin(self.park_changed(attempt, (&changed, None), false)).await;
                }
                Err(error) if error.is_of_the_data() => {
                    return Box::pin(self.work.fail(attempt, vec![error.to_string()])).await;
                }
                loaded => loaded?,
            };
            let Some(began) = start.begin(&mut ready_step, scratch).await? else { return Ok(None) };
            let has_tx = spec.effect == Effect::Transactional || bodies.iter().any(|body| body.opens_work());
            let tx = has_tx.then(|| self.tx());
            let reserved = Arc::new(Mutex::new(reserved));
            let resumed = ready_step.resumed.as_ref();
            let run = BodyRun { work: self.work, spec, bodies, inputs, attempt };
            let resting = waits_for_steps.then(|| self.work.worker.capacity.rest_for_others(self.work.slot));
            let given = run.perform(loaded, resumed, (tx.clone(), &reserved)).await?;
            drop(resting);
            lock(&reserved).take();
            let given = match self.inputs_changed(&began.scratch, &given).await? {
                None => given,
                Some(changed) => {
                    let started = spec.effect == Effect::AtMostOnce;
                    return Box::pin(self.park_changed(attempt, (&changed, given.err()), started)).await;
                }
            };
            if let Ok(outputs) = &given {
                seams::note_lens(outputs, |port| place_of(self.work, self.work.taken.step.node, port));
            }
            let failure = match given {
                Ok(outputs) => {
                    match self.commit_outputs(outputs, Some(&began.scratch), memo, tx.as_ref()).await {
                        // Rows that it has read changed meanwhile: nothing was done, and the body runs again.
                        Ok(Ok(WorkCommit::DecideAgain)) => continue,
                        Ok(Ok(committed)) => return Ok(committed.next()),
                        Ok(Err(stop)) => return Box::pin(self.stopped(stop)).await,
                        // The task returned a file that does not exist: its error, not the store's.
                        Err(Error::Values(values::Error::Blobs(blobs::Error::Content { why, .. }))) => {
                            return Box::pin(self.work.fail(attempt, unreadable_output(&why))).await;
                        }
                        Err(error) if error.is_of_the_data() => Failure::new(error.to_string()).finally(),
                        // There were enough tries. Another attempt would run the body again.
                        Err(error) if error.is_of_objects() && !self.work.worker.is_stopping() => {
                            Failure::new("cannot store its output").because(error.to_string()).finally()
                        }
                        Err(error) => return Err(error),
                    }
                }
                Err(Interrupted::Stopped(stop)) => return Box::pin(self.stopped(stop)).await,
                Err(Interrupted::Suspended(suspension)) => {
                    return Box::pin(self.suspend(&ready_step, suspension)).await;
                }
                Err(Interrupted::Failed(failure)) => match tx.as_ref().and_then(Tx::trouble) {
                    // The body failed because the store did not answer, which costs time and no attempt.
                    Some(trouble) => return Err(trouble.into()),
                    None => failure,
                },
                Err(Interrupted::TimedOut(ms, _)) if spec.effect == Effect::AtMostOnce => {
                    tracing::warn!(ms, "an at-most-once task exceeded its time limit; its outcome is unknown");
                    return Box::pin(self.park_unknown(self.work.taken.claim.fence)).await;
                }
                Err(Interrupted::TimedOut(ms, more)) => Failure::timed_out(ms, more),
            };
            if !may_retry(spec, &failure, attempt) {
                let started = spec.effect == Effect::AtMostOnce && !failure.not_done;
                return Box::pin(self.work.fail_as(attempt, failure.causes, started)).await;
            }
            ready_step.failed = attempt;
            ready_step.started = None;
            ready_step.resumed = None;
            match Box::pin(self.try_again(&ready_step, failure.causes)).await? {
                NextAttempt::Begins => {}
                NextAttempt::Left => return Ok(None),
                NextAttempt::RunFailed(failed) => return Box::pin(self.work.park_failed(failed, None)).await,
            }
        }
    }

    /// Waits for the resources that the task needs, and reads whether the run still starts bodies.
    async fn reserve(&self, waits_for_steps: bool) -> Result<Result<Option<Reserved>, Stop>, Error> {
        let spec = &*self.spec;
        let reserves = spec.resources.cpu_milli > 0 || spec.resources.memory_bytes > 0;
        let is_seen = spec.effect != Effect::Pure || reserves;
        let is_bounded = reserves || is_seen && self.work.worker.capacity.bounds_running();
        let reserved = match is_bounded && !waits_for_steps {
            false => None,
            true => {
                let heartbeat = self.work.heartbeat(true);
                let reserved = std::pin::pin!(self.work.worker.capacity.reserve(spec.resources));
                match select(reserved, std::pin::pin!(heartbeat.stopped())).await {
                    Either::Left((reserved, _)) => Some(reserved),
                    Either::Right((stop, _)) => return Ok(Err(stop)),
                }
            }
        };
        if self.work.worker.alive.is_interrupted() {
            return Ok(Err(Stop::Interrupted));
        }
        // Another process may have stopped the run. A pure body does no harm, and need not know.
        let is_there = !is_seen || self.work.shared().runs.see_state(&self.work.run).await?;
        Ok(if is_there && self.work.run.state().phase.dispatches() { Ok(reserved) } else { Err(Stop::Cancelled) })
    }

    /// Leaves a step whose body may not start or was stopped.
    async fn stopped(&self, stop: Stop) -> Result<Option<Job>, Error> {
        match stop {
            Stop::Lost => self.work.was_taken().await.map(|()| None),
            Stop::Cancelled => self.work.stand_back().await,
            Stop::Interrupted => self.work.give_back().await.map(|()| None),
        }
    }

    /// The rows of the flow, for a body that is transactional.
    fn tx(&self) -> Tx {
        tx_of(self.work)
    }

    /// Records that an attempt failed, and waits before the next.
    async fn try_again(&self, ready_step: &ReadyStep, causes: Vec<String>) -> Result<NextAttempt, Error> {
        let shared = self.work.shared();
        let failed = Failed {
            address: self.work.address().await?.into(),
            attempt: ready_step.failed,
            causes: shortened(causes),
            started: false,
        };
        tracing::debug!(address = %failed.address, attempt = failed.attempt, causes = ?failed.causes, "an attempt failed");
        let note = |state: RunState| step::note(&self.work.run.plan, state, &self.work.taken, ready_step);
        let position = loop {
            match shared.commit(&self.work.run, &self.work.taken, None, &[], note).await? {
                WorkCommit::Committed { position, .. } => break position,
                // Frozen for a new plan: the attempt counts if the run goes on as it was.
                _ if self.work.until_thawed().await? => {}
                _ => return self.work.pause_and_give_back().await.map(|()| NextAttempt::Left),
            }
        };
        self.work.tell_in_order(position, EventKind::DidFail(failed.clone())).await;
        let (heartbeat, resting) = (self.work.heartbeat(true), self.work.worker.capacity.rest(self.work.slot));
        let pause = shared.world.sleep(pause_ms(&self.spec, ready_step.failed, shared.world.random()));
        if let Either::Right((Stop::Lost, _)) = select(pause, std::pin::pin!(heartbeat.stopped())).await {
            return Ok(NextAttempt::Left);
        }
        drop((heartbeat, resting));
        let is_handled = self.work.taken.frame.guarded || self.work.taken.node(&self.work.run.plan).attempt;
        let is_there = shared.runs.see_state(&self.work.run).await?;
        match self.work.run.state().phase {
            Phase::Running if is_there && !self.work.worker.is_stopping() => Ok(NextAttempt::Begins),
            // Another step has failed the run: this failure is one of its failures too.
            Phase::Failing if is_there && !is_handled => Ok(NextAttempt::RunFailed(failed)),
            // The worker that claims it next continues at this attempt, or parks it if the run has stopped.
            _ => self.work.give_back().await.map(|()| NextAttempt::Left),
        }
    }
}

/// The continuation after a failed attempt that may be followed by another.
enum NextAttempt {
    /// The next attempt begins.
    Begins,
    /// The step is given back, or not ours any more.
    Left,
    /// The run has failed meanwhile: there is no other attempt, and this is the failure of the step.
    RunFailed(Failed),
}

/// The causes of the failure of a task that gave a file which cannot be read.
fn unreadable_output(why: &str) -> Vec<String> {
    vec![String::from("a file it gave cannot be stored"), why.to_owned()]
}

/// The causes of a failure, cut to what a row holds.
pub(super) fn shortened(causes: Vec<String>) -> Vec<String> {
    const CAUSES_MAX: usize = 16;
    let short = |cause: String| match cause.char_indices().nth(limits::ERROR_CHARS_MAX) {
        Some((at, _)) => format!("{} …", &cause[..at]),
        None => cause,
    };
    causes.into_iter().take(CAUSES_MAX).map(short).collect()
}

fn may_retry(spec: &TaskSpec, failure: &Failure, attempt: u32) -> bool {
    let harmless = spec.effect != Effect::AtMostOnce || failure.not_done;
    attempt < spec.retry.attempts && !failure.is_final && harmless
}

/// The pause after so many failures: exponential backoff with a bound, and jitter between half and all of it.
pub(super) fn pause_ms(spec: &TaskSpec, failed: u32, chance: u128) -> u64 {
    let doubled = spec.retry.backoff_ms.saturating_mul(1 << (failed - 1).min(30));
    let longest = doubled.min(spec.retry.backoff_ms_max);
    longest / 2 + (chance % u128::from(longest / 2 + 1)) as u64
}

/// The rows of the flow that a step belongs to, as its transaction.
fn tx_of(work: &Work<'_>) -> Tx {
    let step = StepClaim { claim: work.taken.claim.clone(), keys: work.run.plan.keys.clone() };
    Tx::new(FlowRows::new(work.shared().clone(), &work.run.header.flow), step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_are_never_less_than_half() {
        let mut spec = TaskSpec::new("t", vec![], vec![]);
        spec.retry = onceflow_core::model::Retry { attempts: 9, backoff_ms: 100, backoff_ms_max: 1000 };
        for (failed, longest) in [(1, 100), (2, 200), (4, 800), (5, 1000), (60, 1000)] {
            for chance in [0, 1, 77, u128::MAX] {
                let pause = pause_ms(&spec, failed, chance);
                assert!((longest / 2..=longest).contains(&pause), "{pause} after {failed}");
            }
        }
    }
}
