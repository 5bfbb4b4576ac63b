//! Runs user code: once per step as far as it declares itself harmless, never twice if it says so, and always under the
//! same key.

mod body;
mod start;

use super::{Committed, Job, Work};
use crate::{
    Error, data,
    events::What,
    task::{Data, Failure},
    worker::Seat,
};
use body::Interrupted;
pub(super) use body::{blake3_of, blocking, walled};
use futures_util::future::select;
use onceflow_core::{
    limits,
    model::{Effect, TaskSpec, program::Op},
    payload::Outcome,
    protocol::{
        rows::{Failed, Held, Phase, State, Ticket, Why},
        step,
    },
};
use onceflow_store::values::Weave;

impl Work<'_> {
    /// Performs a task, or several that are fused.
    pub(super) async fn task(&self, seat: &Seat, inputs: Vec<Held>) -> Result<Option<Job>, Error> {
        let spec = self.spec();
        if let Some(started) = self.taken.ticket.started
            && spec.effect == Effect::AtMostOnce
        {
            return self.lost_track(seat, started).await;
        }
        let memo = self.memo(&inputs);
        if let Some(outputs) = self.kept(memo.as_ref()).await? {
            let what = What::DidReuse { address: self.address_if_wanted().await? };
            return self.give(seat, &outputs, Some(what)).await;
        }
        let mut ticket = self.taken.ticket.clone();
        loop {
            let attempt = ticket.failed + 1;
            let Some(began) = self.begin(&spec, &mut ticket, &inputs).await? else { return Ok(None) };
            let failure = match self.attempt(&spec, attempt, &inputs, began).await? {
                Ok(outputs) => match self.gave(seat, outputs, memo).await {
                    Err(error) if error.is_of_the_data() => Failure::new(error.to_string()).finally(),
                    done => return done,
                },
                Err(Interrupted::Lost) => return Ok(None),
                Err(Interrupted::Failed(failure)) => failure,
                Err(Interrupted::TimedOut(ms)) if spec.effect == Effect::AtMostOnce => {
                    tracing::warn!(ms, "a task that must not run twice took too long; its outcome is not known");
                    return self.lost_track(seat, self.taken.fence).await;
                }
                Err(Interrupted::TimedOut(ms)) => Failure::new(format!("it took longer than {ms} ms")),
            };
            if !may_retry(&spec, &failure, attempt) {
                return self.fail(seat, attempt, failure.causes).await;
            }
            ticket.failed = attempt;
            ticket.started = None;
            if !self.try_again(&spec, &ticket, failure.causes).await? {
                return Ok(None);
            }
        }
    }

    /// The task of the step; of a fused one, the first: all are alike in what matters here.
    fn spec(&self) -> TaskSpec {
        let plan = &self.run.plan;
        let task = match &self.taken.node(plan).op {
            Op::Task(task) => *task,
            Op::Fused(tasks) => tasks[0].task,
            _ => unreachable!("only tasks are performed here"),
        };
        plan.program.tasks[task as usize].clone()
    }

    /// Commits what the body gave.
    async fn gave(&self, seat: &Seat, outputs: Vec<Data>, memo: Option<[u8; 32]>) -> Result<Option<Job>, Error> {
        let plan = &self.run.plan;
        let node = self.taken.node(plan);
        let mut weaves: Vec<Weave> = Vec::new();
        // Storing a large output may take longer than a claim stands.
        let is_small = |output: &Data| match output {
            Data::None => true,
            Data::Bytes(bytes) => bytes.len() <= limits::INLINE_BYTES_MAX,
            Data::List(_) | Data::File(_) => false,
        };
        let writes = !outputs.iter().all(is_small);
        let _writing = writes.then(|| self.worker.alive.keep(&self.taken.queue, &self.taken.name, self.taken.fence));
        let mut outcomes = Vec::with_capacity(node.outputs.len());
        for output in outputs {
            outcomes.push(data::store(&self.worker.shared.values, output, &mut weaves).await?);
        }
        if node.attempt {
            outcomes.push(Outcome::None);
        }
        let shape = self.taken.frame.shape;
        loop {
            let memo = match &memo {
                Some(memo) if self.kept(Some(memo)).await?.is_none() => Some(memo),
                _ => None,
            };
            let what = What::DidCommit { address: self.address_if_wanted().await? };
            let commit = |state: State| {
                let mut draft = step::commit(plan, state, &self.taken, &outcomes);
                if let Some(memo) = memo {
                    step::keep(plan, &mut draft, memo, &outcomes);
                }
                draft
            };
            match self.commit(seat, &weaves, Some(what), commit).await? {
                Committed::Yes(next) => {
                    self.got_on(shape);
                    return Ok(next);
                }
                Committed::Lost => return Ok(None),
                // Somebody else put the same content meanwhile, or kept the same result: look again.
                Committed::Refused(_) => {}
            }
        }
    }

    /// The step failed for good: somebody around it handles that, or it is put aside until the run is tried again.
    pub(super) async fn fail(&self, seat: &Seat, attempt: u32, causes: Vec<String>) -> Result<Option<Job>, Error> {
        let plan = &self.run.plan;
        let node = self.taken.node(plan);
        let failed = Failed { address: self.address().await?.into(), attempt, causes: shortened(causes) };
        let what = What::DidFail(failed.clone());
        if self.taken.frame.guarded || node.attempt {
            let why = format!("{}: {}", failed.address, failed.causes.join(": ")).into();
            return self.give(seat, &step::failed_outputs(node, &why), Some(what)).await;
        }
        let finish_independent = self.run.header.finish_independent;
        let park = |state: State| {
            let next = if finish_independent || state.phase != Phase::Running { state.phase } else { Phase::Failing };
            step::park(plan, state, &self.taken, Why::Failed(failed.clone()), next)
        };
        let committed = self.commit(seat, &[], Some(what), park).await?;
        if !finish_independent {
            self.worker.shared.read_run(plan.keys.run).await?;
        }
        Ok(committed.next())
    }

    /// The step was started and nobody knows what became of it.
    async fn lost_track(&self, seat: &Seat, started: onceflow_core::Fence) -> Result<Option<Job>, Error> {
        let address = self.address().await?;
        let what = What::DidLoseTrack { address: address.clone() };
        let why = Why::Unknown { started, address: address.into() };
        let park = |state: State| step::park(&self.run.plan, state, &self.taken, why.clone(), state.phase);
        self.commit(seat, &[], Some(what), park).await.map(Committed::next)
    }

    /// Writes down that an attempt failed, and waits before the next. False if the step is not ours any more.
    async fn try_again(&self, spec: &TaskSpec, ticket: &Ticket, causes: Vec<String>) -> Result<bool, Error> {
        let shared = &self.worker.shared;
        let failed =
            Failed { address: self.address().await?.into(), attempt: ticket.failed, causes: shortened(causes) };
        tracing::debug!(address = %failed.address, attempt = failed.attempt, causes = ?failed.causes, "an attempt failed");
        let note = |state: State| step::note(&self.run.plan, state, &self.taken, ticket);
        let crate::commit::Sent::Applied(committed) = shared.commit(&self.run, &self.taken, None, &[], note).await?
        else {
            return Ok(false);
        };
        self.tell(committed.position, What::DidFail(failed));
        let heartbeat = self.worker.alive.keep(&self.taken.queue, &self.taken.name, self.taken.fence);
        let pause = shared.world.sleep(pause_ms(spec, ticket.failed, shared.world.random()));
        select(pause, std::pin::pin!(heartbeat.lost())).await;
        let goes_on = !self.worker.is_stopping() && self.run.state().phase.dispatches();
        if !goes_on {
            // Whoever takes it next sees at which attempt it stands, and puts it aside if the run has stopped.
            self.give_back().await?;
        }
        Ok(goes_on)
    }
}

/// What is kept and told of the causes of a failure: enough to understand it, and never more than a row holds.
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

/// How long to wait after so many failures: doubling, bounded, and between half and all of that by chance.
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
