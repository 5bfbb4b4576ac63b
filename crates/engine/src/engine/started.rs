//! At-most-once steps that were started and have reported no outcome: while their body runs, and after their worker is
//! gone, until another worker takes them over or they are parked.

use super::{UndecidedStep, again::undecided, live::Live};
use crate::{Error, EventKind, RunSteps, perform::may_decide, runs::Run, shared::Shared};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Fence, Key, Timestamp,
    model::Effect,
    protocol::{
        claim::WorkClaim,
        ids::StepId,
        rows::{ReadyStep, Why},
        step::{self, Taken},
    },
};

/// An at-most-once step that was started and has reported no outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedStep {
    /// The address of the step, and the outputs that it would give.
    pub step: UndecidedStep,
    /// The incarnation of the worker that started it; see [`crate::Engine::incarnation`].
    pub by: u128,
    /// The deadline of the claim on it, on the store's clock: until then its worker may be running it.
    pub held_until: Option<Timestamp>,
}

/// A started step, with its row in its queue.
struct Found {
    key: Key,
    step: StepId,
    ready_step: ReadyStep,
    started: Fence,
    address: String,
}

impl<'a> RunSteps<'a> {
    /// The at-most-once steps of the run that were started and have reported no outcome. Steps that are parked as
    /// unknown are not among them; see [`RunSteps::undecided_steps`].
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn started_steps(self) -> BoxFuture<'a, Result<Vec<StartedStep>, Error>> {
        Box::pin(async move {
            let Some(run) = self.handle.shared.runs.read_run(self.handle.id()).await? else { return Ok(vec![]) };
            let started = StartedSteps::of(&self.handle.shared, &run);
            let found = started.find().await?;
            started.with_claims(found).await
        })
    }

    /// Parks a started step of a worker that is gone, as the worker that takes it over would, but without asking the
    /// task's own check: its outcome is unknown from then on, and [`Handle::resolve`](crate::Handle::resolve) reports it.
    /// The caller knows that the worker `by` is gone; if it is not, it may still commit its result until the outcome is reported.
    /// Returns false, and does nothing, if the step is not one of [`RunSteps::started_steps`], was started by another
    /// worker, or has a claim that stands. Durable when it returns.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn mark_unknown(self, address: &'a str, by: u128) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let Some(run) = self.handle.shared.runs.read_run(self.handle.id()).await? else { return Ok(false) };
            let started = StartedSteps::of(&self.handle.shared, &run);
            let mut begun = started.find().await?.into_iter();
            let Some(found) = begun.find(|found| found.address == address && found.started.incarnation() == by) else {
                return Ok(false);
            };
            let is_aside = started.put_aside(found).await?;
            self.handle.shared.records.durable(self.handle.shared.records.position()).await?;
            if is_aside {
                self.handle.shared.event_logs.log_outside(
                    self.handle.shared.world.clock().as_ms(),
                    &run,
                    EventKind::DidMarkUnknown { address: address.to_owned() },
                );
            }
            Ok(is_aside)
        })
    }
}

/// The at-most-once steps of a run that were started and have reported no outcome.
pub(super) struct StartedSteps<'a> {
    shared: &'a Shared,
    run: &'a Run,
}

impl<'a> StartedSteps<'a> {
    pub(super) fn of(shared: &'a Shared, run: &'a Run) -> Self {
        StartedSteps { shared, run }
    }

    async fn find(&self) -> Result<Vec<Found>, Error> {
        let program = &self.run.plan.program;
        // Most programs have no at-most-once task, and need no scan.
        if !program.tasks.iter().any(|task| task.effect == Effect::AtMostOnce) {
            return Ok(vec![]);
        }
        let ready = self.shared.queues().ready_steps(&self.run.plan).await?;
        self.among(ready).await
    }

    /// The steps of a run that were started and have reported no outcome, given its rows.
    pub(super) async fn in_rows(&self, live: &Live) -> Result<Vec<StartedStep>, Error> {
        let queued = live.queued.iter().map(|(step, key)| (key.clone(), *step, live.ready_steps[step].clone()));
        let found = self.among(queued.collect()).await?;
        self.with_claims(found).await
    }

    /// The started steps, each with the deadline of the claim on it.
    async fn with_claims(&self, found: Vec<Found>) -> Result<Vec<StartedStep>, Error> {
        let mut all = Vec::with_capacity(found.len());
        for found in found {
            let held_until = self.shared.queues().held_until(&found.key).await?;
            let step = undecided(self.run, found.address, found.step, &found.ready_step);
            all.push(StartedStep { step, by: found.started.incarnation(), held_until });
        }
        Ok(all)
    }

    /// The steps among these that were started.
    async fn among(&self, ready: Vec<(Key, StepId, ReadyStep)>) -> Result<Vec<Found>, Error> {
        let (program, mut all) = (&self.run.plan.program, Vec::new());
        for (key, step, ready_step) in ready {
            let Some(started) = ready_step.started else { continue };
            let node = &program.blocks[ready_step.block as usize].nodes[step.node as usize];
            let address = match self.shared.runs.place(self.run, step.frame, step.index).await {
                Ok(place) => place.address(&node.path),
                // The run went on meanwhile, and the frame of the step has closed.
                Err(_) if self.shared.row(key.clone()).await?.is_none() => continue,
                Err(error) => return Err(error),
            };
            all.push(Found { key, step, ready_step, started, address });
        }
        Ok(all)
    }

    async fn put_aside(&self, found: Found) -> Result<bool, Error> {
        let Found { key, step, ready_step, started, address } = found;
        let Some(row) = self.shared.row(key.clone()).await? else { return Ok(false) };
        // The step may have changed since it was found; the batch requires this row.
        if step::ready_step(&row).is_none_or(|now| now != ready_step) {
            return Ok(false);
        }
        let Some(frame) = self.shared.runs.frame(self.run, step.frame).await? else { return Ok(false) };
        self.shared.queues().free_overdue(&key.group, self.run.plan.keys.run).await?;
        let claim = WorkClaim { queue: key.group, name: key.name, fence: started, row: row.clone() };
        let taken = Taken { step, claim, ready_step, frame, inbox: vec![] };
        let why = Why::Unknown { started, address: address.into() };
        let state = self.run.state();
        if !may_decide(state.phase) {
            return Ok(false);
        }
        let draft = step::park_abandoned(&self.run.plan, state, &taken, &row, why);
        Ok(self.shared.commit_outside(draft, &[]).await?.is_applied())
    }
}
