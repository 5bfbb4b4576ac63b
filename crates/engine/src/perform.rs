//! Performs a claimed step. One file per kind of step; this one has their common parts.

mod container;
mod ending;
pub(crate) mod logs;
pub(crate) mod patience;
mod removing;
mod task;
mod undoing;

pub(crate) use ending::failures;
pub(crate) use removing::noted;
pub(crate) use task::may_decide;

use crate::{
    Error,
    error::DAMAGE,
    events::EventKind,
    kernel::{Heartbeat, Job, WorkCommit},
    runs::Run,
    seams,
    worker::{Slot, Whose, Worker},
};
use onceflow_core::{
    Inbox,
    payload::Outcome,
    protocol::{
        draft::Draft,
        ids::{END, LANE, SETTLE, StepId, TEARDOWN, UNDO},
        keys::Keys,
        rows::{self, Failed, Phase, ReadyStep, Received, RunState, Why},
        step::{self, Taken},
    },
};
use onceflow_store::{Position, records::Scan, values::ValueChange};
use std::sync::Arc;

/// A step while it is performed.
pub(crate) struct Work<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) run: Arc<Run>,
    pub(crate) taken: Taken,
    pub(crate) position: Position,
}

impl Worker {
    /// Performs a step; answers the step that its commit claimed.
    pub(crate) async fn perform(&self, job: &Job, slot: &mut Slot) -> Result<Option<Job>, Error> {
        let Some((id, step)) = StepId::from_queue_name(job.claim.name.as_bytes()) else {
            return Err(Error::damaged(format!("a row in a queue is called {:?}", job.claim.name)));
        };
        let ready_step = step::ready_step(&job.claim.row)
            .ok_or_else(|| Error::damaged(format!("the ready row of step {step:?}")))?;
        let run = match self.shared.runs.run(id, Some(ready_step.generation)).await? {
            Some(run) if run.plan.keys.generation == ready_step.generation => run,
            _ if step.node == TEARDOWN => return self.remove_plan(job, id, step, &ready_step).await,
            _ => return self.drop_stale(job, Keys::new(id, ready_step.generation), step, &ready_step).await,
        };
        let Some(frame) = self.shared.runs.frame(&run, step.frame).await? else {
            return self.missing(job, format!("the frame of step {step:?} of run `{}`", run.key)).await;
        };
        let inbox = self.arrived(job).await?;
        let taken = Taken { step, claim: job.claim.clone(), ready_step, frame, inbox };
        let work = Work { worker: self, run, taken, position: job.position };
        let ending = match step.node {
            SETTLE => Some(work.settle(slot).await),
            UNDO => Some(work.undo(slot).await),
            TEARDOWN => Some(work.tear_down(slot).await),
            _ => None,
        };
        match ending {
            Some(Err(error)) if !self.is_stopping() => return Err(work.count_trouble(error).await),
            Some(performed) => return performed,
            None => {}
        }
        if !work.run.state().phase.dispatches() {
            return work.stand_back(slot).await;
        }
        let performed = match step.node {
            LANE => work.open_chunk(slot).await,
            END => work.end(slot).await,
            _ => work.node(slot).await,
        };
        match performed {
            Err(error) if error.is_damage() => work.damaged(slot, error).await,
            Err(error) if !self.is_stopping() => work.troubled(slot, error).await,
            performed => performed,
        }
    }

    /// The deliveries in a step's inbox.
    async fn arrived(&self, job: &Job) -> Result<Vec<Received>, Error> {
        let mut rows = job.inputs.clone();
        if job.more {
            let inbox = Inbox::from_row(&job.claim.row).ok_or_else(|| Error::damaged("a row in a queue"))?;
            let after = rows.last().map(|(name, _)| name.clone());
            let scan = Scan::of(inbox.group, onceflow_core::limits::SCAN_ROWS_MAX).prefix(&inbox.prefix).after(after);
            rows.extend(self.shared.records.scan(self.shared.shard(), scan).await?.rows);
        }
        let read = |(_, row): &(_, onceflow_core::Row)| rows::read(row).ok_or_else(|| Error::damaged("an arrival"));
        seams::arrivals(rows).iter().map(read).collect()
    }

    /// A row that the step needs is missing. If the step is still ours, rows were lost; else another worker has it.
    async fn missing(&self, job: &Job, what: String) -> Result<Option<Job>, Error> {
        if self.shared.kernel.is_ours(&job.claim).await? {
            return Err(Error::damaged(format!("{what} is missing")));
        }
        Ok(None)
    }

    /// Drops a step of a generation that is not valid any more, and releases its deliveries.
    async fn drop_stale(
        &self,
        job: &Job,
        keys: Keys,
        step: StepId,
        ready_step: &ReadyStep,
    ) -> Result<Option<Job>, Error> {
        let mut batch = job.claim.drop_work(self.shared.shard());
        let clear = |received: &Received| {
            let stored = onceflow_core::protocol::draft::stored(&received.outcome)?;
            let edge = keys.edge(&keys.arrival(step, received.port), received.port);
            Some(ValueChange::clear(edge, stored.clone()))
        };
        let changes: Vec<_> = ready_step.inputs.iter().filter(|received| received.owned).filter_map(clear).collect();
        self.shared.values.add_changes(&mut batch, &changes).await?;
        let _refused_if_not_ours = self.shared.records.commit(batch).await?;
        Ok(None)
    }
}

impl Work<'_> {
    /// Commits, and claims the next step with it. A step that cannot commit because its run is frozen or went on is given
    /// back, after a pause: it would be claimed again at once.
    pub(crate) async fn commit<'a>(
        &'a self,
        slot: &Slot,
        changes: &[ValueChange],
        what: Option<EventKind>,
        decide: impl Fn(RunState) -> Draft<'a>,
    ) -> Result<WorkCommit, Error> {
        let committed = self.commit_and_hold(slot, changes, what, decide).await?;
        if matches!(committed, WorkCommit::Lost) {
            self.pause_and_give_back().await?;
        }
        Ok(committed)
    }

    /// As [`Work::commit`], but a step that cannot commit keeps its claim.
    async fn commit_and_hold<'a>(
        &'a self,
        slot: &Slot,
        changes: &[ValueChange],
        what: Option<EventKind>,
        decide: impl Fn(RunState) -> Draft<'a>,
    ) -> Result<WorkCommit, Error> {
        let asked = self.worker.claim_next(slot);
        let shared = &self.worker.shared;
        let order = if what.is_some() { shared.events.order_if_wanted().await } else { None };
        let committed = shared.commit(&self.run, &self.taken, asked.as_ref(), changes, decide).await?;
        match (&committed, what) {
            (WorkCommit::Committed { position, .. }, Some(what)) if order.is_some() => self.tell(*position, what),
            (WorkCommit::Lost, _) => {
                tracing::debug!(step = ?self.taken.step, "dropping a commit: another worker has the step, or the run went on");
            }
            _ => {}
        }
        Ok(committed)
    }

    /// As [`Work::commit`], for the outcome of a body: while the run is frozen for a new plan, the outcome waits. The plan
    /// may be refused, and then the run goes on as it was, with this outcome: it is not computed again, and that of an
    /// at-most-once body could not be.
    pub(crate) async fn commit_outcome<'a>(
        &'a self,
        slot: &Slot,
        changes: &[ValueChange],
        what: Option<EventKind>,
        decide: impl Fn(RunState) -> Draft<'a>,
    ) -> Result<WorkCommit, Error> {
        loop {
            let committed = self.commit_and_hold(slot, changes, what.clone(), &decide).await?;
            if !matches!(committed, WorkCommit::Lost) || !self.until_thawed(slot).await? {
                return Ok(committed);
            }
        }
    }

    /// Waits while the run is frozen; the step keeps its claim, and gives its places to others. False if the run was not
    /// frozen, or still is when the worker has to stop.
    pub(super) async fn until_thawed(&self, slot: &Slot) -> Result<bool, Error> {
        const LOOK_MS: u64 = 50;
        /// Looks while the worker stops: far more than a plan takes, unless its planner was killed.
        const LOOKS_MAX: usize = 100;
        let (shared, mut looks, mut resting) = (&self.worker.shared, 0, None);
        while shared.runs.see_state(&self.run).await? && self.run.state().phase == Phase::Frozen {
            if self.worker.is_stopping() && looks >= LOOKS_MAX {
                return Ok(false);
            }
            resting.get_or_insert_with(|| self.worker.capacity.rest(slot));
            shared.world.sleep(LOOK_MS).await;
            looks += 1;
        }
        Ok(looks > 0)
    }

    /// Watches over the work on the step. Only the loss of the claim stops it, unless `stops`.
    pub(crate) fn heartbeat(&self, stops: bool) -> Heartbeat<'_, Whose> {
        let keys = &self.run.plan.keys;
        let whose = Whose { run: keys.run, generation: keys.generation, ends_with_run: stops };
        self.worker.alive.watch(self.taken.claim.fence, stops, whose)
    }

    fn tell(&self, position: Position, what: EventKind) {
        self.worker.shared.events.tell(position, &self.run, what);
    }

    /// Sends an event that belongs to no commit, after the events of all earlier commits.
    pub(crate) async fn tell_in_order(&self, position: Position, what: EventKind) {
        let events = &self.worker.shared.events;
        if let Some(_order) = events.order_if_wanted().await {
            self.tell(position, what);
        }
    }

    /// Parks a step whose inputs are damaged, and fails the run: a retry would not help. If the step is not ours any
    /// more, its rows went with it, and nothing is wrong.
    async fn damaged(&self, slot: &Slot, error: Error) -> Result<Option<Job>, Error> {
        if !self.worker.shared.kernel.is_ours(&self.taken.claim).await? {
            return Ok(None);
        }
        self.worker.shared.drop_broken(&error).await;
        let told = error.to_string();
        let cause = if told.starts_with(DAMAGE) { told } else { format!("{DAMAGE}: {told}") };
        self.put_aside(slot, vec![cause]).await
    }

    /// Parks the step as failed, and fails the run with these causes.
    async fn put_aside(&self, slot: &Slot, causes: Vec<String>) -> Result<Option<Job>, Error> {
        let address = self.address().await.unwrap_or_else(|_| String::from("/"));
        tracing::error!(?causes, run = %self.run.key, address, "parking a step; its run fails");
        let attempt = self.taken.ready_step.failed + 1;
        let failed = Failed { address: address.into(), attempt, causes, started: false };
        let park = |state: RunState| {
            let next = if state.phase == Phase::Running { Phase::Failing } else { state.phase };
            step::park(&self.run.plan, state, &self.taken, Why::Failed(failed.clone()), next)
        };
        let committed = self.commit(slot, &[], Some(EventKind::DidFail(failed.clone())), park).await?;
        self.worker.shared.runs.read_run(self.run.plan.keys.run).await?;
        Ok(committed.next())
    }

    /// Parks a step of a run that has stopped, unchanged.
    pub(crate) async fn stand_back(&self, slot: &Slot) -> Result<Option<Job>, Error> {
        // The cached state may be old.
        self.worker.shared.runs.read_run(self.run.plan.keys.run).await?;
        let phase = self.run.state().phase;
        if phase.dispatches() || !phase.is_open() {
            self.pause_and_give_back().await?;
            return Ok(None);
        }
        let park = |state: RunState| step::park(&self.run.plan, state, &self.taken, Why::NotStarted, state.phase);
        self.commit(slot, &[], None, park).await.map(WorkCommit::next)
    }

    /// Gives the step back after a pause: it cannot be performed here now.
    pub(crate) async fn pause_and_give_back(&self) -> Result<(), Error> {
        const PAUSE_MS: u64 = 50;
        self.worker.shared.world.sleep(PAUSE_MS).await;
        self.give_back().await
    }

    /// Gives the step back: deletes its claim, so that any worker can claim it.
    pub(crate) async fn give_back(&self) -> Result<(), Error> {
        self.worker.alive.release(self.taken.claim.fence);
        self.worker.shared.kernel.give_back(&self.taken.claim).await
    }

    /// The address of the step.
    pub(crate) async fn address(&self) -> Result<String, Error> {
        let plan = &self.run.plan;
        let place = self.worker.shared.runs.place(&self.run, self.taken.step.frame, self.taken.step.index).await?;
        Ok(match plan.program.blocks[self.taken.ready_step.block as usize].nodes.get(self.taken.step.node as usize) {
            Some(node) => place.address(&node.path),
            None => place.address(&[]),
        })
    }
}

/// The first failure among inputs.
pub(crate) fn failure(inputs: &[rows::Held]) -> Option<&Arc<str>> {
    inputs.iter().find_map(|input| match &input.outcome {
        Outcome::Failed(why) => Some(why),
        Outcome::Value(_) | Outcome::None => None,
    })
}
