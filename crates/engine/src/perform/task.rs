//! Runs user code: again after a crash if its effect allows it, never twice if it is at-most-once, and always under the
//! same key.

mod body;
mod changed;
mod start;
mod suspend;
mod unknown;

use super::{
    Work,
    patience::{Patience, Storing},
};
use crate::{
    Error, data,
    error::SOURCE_CHANGED,
    events::EventKind,
    kernel::{Job, Stop, WorkCommit},
    seams,
    shared::lock,
    task::{Data, Failure, FlowRows, Tx, Verdict},
    worker::{Reserved, Slot},
};
use body::Interrupted;
pub(super) use body::{Started, blocking, overrun, panicked, walled};
use futures_util::future::{Either, select};
use onceflow_core::{
    Digest, limits,
    model::{Effect, TaskSpec},
    payload::Outcome,
    protocol::{
        rows::{Failed, Held, Phase, ReadyStep, RunState, Why},
        step,
    },
};
use onceflow_store::{blobs, values};
use std::sync::{Arc, Mutex};
pub(crate) use unknown::may_decide;

/// How long outputs of a body that has ended are stored after the worker was interrupted: a gigabyte or so, and less than
/// users wait before they kill a process.
const INTERRUPTED_STORE_MS_MAX: u64 = 5000;

impl Work<'_> {
    /// Performs a task, or several that are fused.
    pub(super) async fn task(&self, slot: &Slot, inputs: Vec<Held>) -> Result<Option<Job>, Error> {
        let spec = self.spec();
        if let Some(class) = self.is_elsewhere(&spec) {
            return self.move_to(class, None).await.map(|()| None);
        }
        if let Err(why) = self.bodies() {
            return self.leave_to_those_who_have_it(&why).await.map(|()| None);
        }
        let mut ready_step = self.taken.ready_step.clone();
        if let Some(started) = seams::may_have_run(&spec, &ready_step) {
            match self.verify(&inputs).await? {
                Verdict::Unknown => return self.park_unknown(slot, started).await,
                Verdict::Done(outputs) => {
                    return match self.commit_outputs(slot, outputs, None, None, None).await {
                        Err(Error::Values(values::Error::Blobs(blobs::Error::Content { why, .. }))) => {
                            self.fail(slot, ready_step.failed + 1, unreadable_output(&why)).await
                        }
                        Ok(Err(stop)) => self.stopped(slot, stop).await,
                        committed => committed.map(|committed| committed.map_or(None, WorkCommit::next)),
                    };
                }
                Verdict::NotDone => ready_step.started = None,
            }
        }
        let memo = self.memo(&inputs).await?;
        if let Some(next) = self.reuse(slot, memo.as_ref()).await? {
            return Ok(next);
        }
        loop {
            let attempt = ready_step.failed + 1;
            // The rows it was decided on must be durable. It waits for that before it takes a place to run, so that it
            // keeps no other step from running.
            self.until_durable(&spec, self.position, true).await?;
            // Resources come next: an at-most-once step is not marked as started while it waits for them.
            let reserved = match self.reserve(&spec).await? {
                Ok(reserved) => reserved,
                Err(stop) => return self.stopped(slot, stop).await,
            };
            // Nor is it marked as started while its inputs cannot be read.
            let scratch = self.scratch();
            let loaded = match data::load_all(&self.worker.shared.values, &inputs, Some(&scratch)).await {
                Err(Error::Values(values::Error::Source(changed))) => {
                    return self.park_changed(slot, attempt, (&changed, None), false).await;
                }
                Err(error) if error.is_of_the_data() => {
                    return self.fail(slot, attempt, vec![error.to_string()]).await;
                }
                loaded => loaded?,
            };
            let Some(began) = self.begin(&spec, &mut ready_step, &inputs, scratch).await? else { return Ok(None) };
            let tx = (spec.effect == Effect::Transactional).then(|| self.tx());
            let reserved = Arc::new(Mutex::new(reserved));
            let resumed = ready_step.resumed.as_ref();
            let given = self.attempt(&spec, attempt, (&inputs, loaded), resumed, (tx.clone(), &reserved)).await?;
            lock(&reserved).take();
            let given = match self.inputs_changed(&began.scratch, &given).await? {
                None => given,
                Some(changed) => {
                    let started = spec.effect == Effect::AtMostOnce;
                    return self.park_changed(slot, attempt, (&changed, given.err()), started).await;
                }
            };
            if let Ok(outputs) = &given {
                seams::note_lens(outputs, |port| self.place_of(self.taken.step.node, port));
            }
            let failure = match given {
                Ok(outputs) => {
                    match self.commit_outputs(slot, outputs, Some(&began.scratch), memo, tx.as_ref()).await {
                        // Rows that it has read changed meanwhile: nothing was done, and the body runs again.
                        Ok(Ok(WorkCommit::DecideAgain)) => continue,
                        Ok(Ok(committed)) => return Ok(committed.next()),
                        Ok(Err(stop)) => return self.stopped(slot, stop).await,
                        // The task returned a file that does not exist: its error, not the store's.
                        Err(Error::Values(values::Error::Blobs(blobs::Error::Content { why, .. }))) => {
                            return self.fail(slot, attempt, unreadable_output(&why)).await;
                        }
                        Err(error) if error.is_of_the_data() => Failure::new(error.to_string()).finally(),
                        // There were enough tries. Another attempt would run the body again.
                        Err(error) if error.is_of_objects() && !self.worker.is_stopping() => {
                            Failure::new("cannot store its output").because(error.to_string()).finally()
                        }
                        Err(error) => return Err(error),
                    }
                }
                Err(Interrupted::Stopped(stop)) => return self.stopped(slot, stop).await,
                Err(Interrupted::Suspended(suspension)) => return self.suspend(slot, &ready_step, suspension).await,
                Err(Interrupted::Failed(failure)) => match tx.as_ref().and_then(Tx::trouble) {
                    // The body failed because the store did not answer, which costs time and no attempt.
                    Some(trouble) => return Err(trouble.into()),
                    None => failure,
                },
                Err(Interrupted::TimedOut(ms, _)) if spec.effect == Effect::AtMostOnce => {
                    tracing::warn!(ms, "an at-most-once task exceeded its time limit; its outcome is unknown");
                    return self.park_unknown(slot, self.taken.claim.fence).await;
                }
                Err(Interrupted::TimedOut(ms, more)) => Failure::timed_out(ms, more),
            };
            if !may_retry(&spec, &failure, attempt) {
                let started = spec.effect == Effect::AtMostOnce && !failure.not_done;
                return self.fail_as(slot, attempt, failure.causes, started).await;
            }
            ready_step.failed = attempt;
            ready_step.started = None;
            ready_step.resumed = None;
            match self.try_again(slot, &spec, &ready_step, failure.causes).await? {
                NextAttempt::Begins => {}
                NextAttempt::Left => return Ok(None),
                NextAttempt::RunFailed(failed) => return self.park_failed(slot, failed, None).await,
            }
        }
    }

    /// Waits for the resources that the task needs, and reads whether the run still starts bodies.
    async fn reserve(&self, spec: &TaskSpec) -> Result<Result<Option<Reserved>, Stop>, Error> {
        let reserves = spec.resources.cpu_milli > 0 || spec.resources.memory_bytes > 0;
        let is_seen = spec.effect != Effect::Pure || reserves;
        let reserved = match reserves || is_seen && self.worker.capacity.bounds_running() {
            false => None,
            true => {
                let heartbeat = self.heartbeat(true);
                let reserved = std::pin::pin!(self.worker.capacity.reserve(spec.resources));
                match select(reserved, std::pin::pin!(heartbeat.stopped())).await {
                    Either::Left((reserved, _)) => Some(reserved),
                    Either::Right((stop, _)) => return Ok(Err(stop)),
                }
            }
        };
        if self.worker.alive.is_interrupted() {
            return Ok(Err(Stop::Interrupted));
        }
        // Another process may have stopped the run. A pure body does no harm, and need not know.
        let is_there = !is_seen || self.worker.shared.runs.see_state(&self.run).await?;
        Ok(if is_there && self.run.state().phase.dispatches() { Ok(reserved) } else { Err(Stop::Cancelled) })
    }

    /// Leaves a step whose body may not start or was stopped.
    async fn stopped(&self, slot: &Slot, stop: Stop) -> Result<Option<Job>, Error> {
        match stop {
            Stop::Lost => self.was_taken().await.map(|()| None),
            Stop::Cancelled => self.stand_back(slot).await,
            Stop::Interrupted => self.give_back().await.map(|()| None),
        }
    }

    /// Counts and reports a lost step: another worker has it, because the heartbeats of this one came too late.
    async fn was_taken(&self) -> Result<(), Error> {
        self.worker.announcement.count_lost();
        let shared = &self.worker.shared;
        if shared.events.wanted() {
            // Its frame may be gone by now.
            let address = self.address().await.unwrap_or_default();
            self.tell_in_order(shared.records.position(), EventKind::DidLose { address }).await;
        }
        Ok(())
    }

    /// The task of the step; of a fused one, the first: fused tasks agree in effect, class and limits.
    fn spec(&self) -> TaskSpec {
        let spec = self.run.plan.spec(self.taken.ready_step.block, self.taken.step.node);
        spec.expect("only tasks are performed here")
    }

    /// Stores and commits the outputs that the body gave. [`WorkCommit::DecideAgain`] if rows that a transactional body
    /// has read changed before it could commit; [`Stop`] if the work was stopped while a file was being stored.
    async fn commit_outputs(
        &self,
        slot: &Slot,
        outputs: Vec<Data>,
        scratch: Option<&data::Scratch>,
        memo: Option<Digest>,
        tx: Option<&Tx>,
    ) -> Result<Result<WorkCommit, Stop>, Error> {
        let plan = &self.run.plan;
        let node = self.taken.node(plan);
        let given = scratch.map(data::Scratch::given).unwrap_or_default();
        let patience = Storing::new(self);
        let storing = data::Storing::new(&self.worker.shared.values, data::Files::Taken(given));
        let mut storing = storing.patiently(&patience);
        let mut outcomes = Vec::with_capacity(node.outputs.len());
        // Reading a large file may take longer than a user who cancels wants to wait. The outcome of an at-most-once body
        // is stored even then.
        let stops = outputs.iter().any(|output| matches!(output, Data::File(_) | Data::List(_)))
            && self.spec().effect != Effect::AtMostOnce;
        let mut stopped = stops.then(|| Box::pin(self.must_stop_storing()));
        for output in outputs {
            let stored = std::pin::pin!(storing.store(&output));
            outcomes.push(match &mut stopped {
                None => stored.await?,
                Some(stopped) => match select(stored, stopped.as_mut()).await {
                    Either::Left((stored, _)) => stored?,
                    Either::Right((stop, _)) => return Ok(Err(stop)),
                },
            });
        }
        drop(stopped);
        if node.attempt {
            outcomes.push(Outcome::None);
        }
        let changes = storing.changes();
        let shape = self.taken.frame.shape;
        let now = match tx {
            Some(_) => self.worker.shared.records.now().await?,
            None => onceflow_core::Timestamp::ZERO,
        };
        loop {
            let committed =
                match self.commit_stored(slot, (&outcomes, &changes), memo.as_ref(), tx.zip(Some(now))).await {
                    Ok(committed) => committed,
                    Err(error) => {
                        patience.wait(error).await?;
                        continue;
                    }
                };
            match committed {
                WorkCommit::Committed { .. } => {
                    self.worker.announcement.count_done(plan.keys.run);
                    self.got_on(shape, self.taken.step.node);
                    return Ok(Ok(committed));
                }
                WorkCommit::Lost => {
                    self.was_taken().await?;
                    if self.spec().effect == Effect::AtMostOnce {
                        self.commit_late(&outcomes, &changes, memo.as_ref()).await?;
                    }
                    return Ok(Ok(committed));
                }
                WorkCommit::DecideAgain if tx.is_some() => return Ok(Ok(committed)),
                // Another step put the same content meanwhile, or kept the same result: look again.
                WorkCommit::DecideAgain => {}
            }
        }
    }

    /// Ends when outputs of a body that has ended are not worth storing any more: nobody wants them, or the worker was
    /// interrupted and its user has waited for a while.
    async fn must_stop_storing(&self) -> Stop {
        let stop = self.heartbeat(true).stopped().await;
        if stop == Stop::Interrupted {
            self.worker.shared.world.sleep(INTERRUPTED_STORE_MS_MAX).await;
        }
        stop
    }

    /// Tries once to commit outputs that are stored.
    async fn commit_stored(
        &self,
        slot: &Slot,
        (outcomes, changes): (&[Outcome], &[values::ValueChange]),
        memo: Option<&Digest>,
        tx: Option<(&Tx, onceflow_core::Timestamp)>,
    ) -> Result<WorkCommit, Error> {
        let plan = &self.run.plan;
        let memo = match memo {
            Some(memo) if self.kept(Some(memo)).await?.is_none() => Some(memo),
            _ => None,
        };
        let what = EventKind::DidCommit { address: self.address_if_wanted().await? };
        let commit = |state: RunState| {
            let mut draft = step::commit(plan, state, &self.taken, outcomes);
            if let Some((tx, now)) = tx.filter(|_| seams::commits_writes()) {
                tx.apply_to(&mut draft.batch, now, self.taken.claim.name.as_bytes());
            }
            if let Some(memo) = memo {
                step::keep(plan, &mut draft, memo, outcomes);
            }
            draft
        };
        self.commit_outcome(slot, changes, Some(what), commit).await
    }

    /// Fails the step for good: delivers the failure if something around the step handles it, else parks the step until
    /// the run is retried.
    pub(super) async fn fail(&self, slot: &Slot, attempt: u32, causes: Vec<String>) -> Result<Option<Job>, Error> {
        self.fail_as(slot, attempt, causes, false).await
    }

    async fn fail_as(
        &self,
        slot: &Slot,
        attempt: u32,
        causes: Vec<String>,
        started: bool,
    ) -> Result<Option<Job>, Error> {
        let plan = &self.run.plan;
        let node = self.taken.node(plan);
        let failed = Failed { address: self.address().await?.into(), attempt, causes: shortened(causes), started };
        let what = EventKind::DidFail(failed.clone());
        // A handler cannot make up for changed inputs of the run.
        let is_changed = failed.causes.first().is_some_and(|cause| cause.starts_with(SOURCE_CHANGED));
        if seams::delivers_failure((self.taken.frame.guarded || node.attempt) && !is_changed) {
            let why = format!("{}: {}", failed.address, failed.causes.join(": ")).into();
            return self.give(slot, &step::failed_outputs(node, &why), Some(what)).await;
        }
        self.park_failed(slot, failed, Some(what)).await
    }

    /// Parks the step until the run is retried.
    async fn park_failed(&self, slot: &Slot, failed: Failed, what: Option<EventKind>) -> Result<Option<Job>, Error> {
        let plan = &self.run.plan;
        let park = |state: RunState| {
            let next = if self.run.finish_independent() || state.phase != Phase::Running {
                state.phase
            } else {
                Phase::Failing
            };
            step::park(plan, state, &self.taken, Why::Failed(failed.clone()), next)
        };
        let committed = self.commit_outcome(slot, &[], what, park).await?;
        if !self.run.finish_independent() {
            self.worker.shared.runs.read_run(plan.keys.run).await?;
        }
        Ok(committed.next())
    }

    /// The rows of the flow, for a body that is transactional.
    fn tx(&self) -> Tx {
        Tx::new(FlowRows::new(self.worker.shared.clone(), &self.run.header.flow))
    }

    /// Records that an attempt failed, and waits before the next.
    async fn try_again(
        &self,
        slot: &Slot,
        spec: &TaskSpec,
        ready_step: &ReadyStep,
        causes: Vec<String>,
    ) -> Result<NextAttempt, Error> {
        let shared = &self.worker.shared;
        let failed = Failed {
            address: self.address().await?.into(),
            attempt: ready_step.failed,
            causes: shortened(causes),
            started: false,
        };
        tracing::debug!(address = %failed.address, attempt = failed.attempt, causes = ?failed.causes, "an attempt failed");
        let note = |state: RunState| step::note(&self.run.plan, state, &self.taken, ready_step);
        let position = loop {
            match shared.commit(&self.run, &self.taken, None, &[], note).await? {
                WorkCommit::Committed { position, .. } => break position,
                // Frozen for a new plan: the attempt counts if the run goes on as it was.
                _ if self.until_thawed(slot).await? => {}
                _ => return self.pause_and_give_back().await.map(|()| NextAttempt::Left),
            }
        };
        self.tell_in_order(position, EventKind::DidFail(failed.clone())).await;
        let (heartbeat, resting) = (self.heartbeat(true), self.worker.capacity.rest(slot));
        let pause = shared.world.sleep(pause_ms(spec, ready_step.failed, shared.world.random()));
        if let Either::Right((Stop::Lost, _)) = select(pause, std::pin::pin!(heartbeat.stopped())).await {
            return Ok(NextAttempt::Left);
        }
        drop((heartbeat, resting));
        let is_handled = self.taken.frame.guarded || self.taken.node(&self.run.plan).attempt;
        let is_there = shared.runs.see_state(&self.run).await?;
        match self.run.state().phase {
            Phase::Running if is_there && !self.worker.is_stopping() => Ok(NextAttempt::Begins),
            // Another step has failed the run: this failure is one of its failures too.
            Phase::Failing if is_there && !is_handled => Ok(NextAttempt::RunFailed(failed)),
            // The worker that claims it next continues at this attempt, or parks it if the run has stopped.
            _ => self.give_back().await.map(|()| NextAttempt::Left),
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
