//! The step that is performed: its identity, its commits and events, and the ways in which it is given back, parked or
//! failed. The kinds of steps (the files beside this one) decide which of these happens.

use super::task::shortened;
use crate::{
    Error,
    data::Scratch,
    error::SOURCE_CHANGED,
    events::EventKind,
    kernel::{Asked, Heartbeat, Job, WorkCommit},
    run_rows::RunRows,
    runs::Run,
    seams,
    shared::Shared,
    worker::{Slot, Whose, Worker},
};
use onceflow_core::{
    model::{
        program::{Node, NodeIndex, ROOT},
        wiring::Consumer,
    },
    payload::Outcome,
    protocol::{
        draft::Draft,
        ids::StepId,
        rows::{Failed, Phase, RunState, Shape, Why},
        step::{self, Taken},
    },
};
use onceflow_store::{Position, values::ValueChange};
use std::sync::Arc;

/// A step while it is performed.
pub(crate) struct Work<'a> {
    pub(crate) worker: &'a Worker,
    /// Its slot: the next step is claimed for it, and it rests while the step waits.
    pub(crate) slot: &'a Slot,
    pub(crate) run: Arc<Run>,
    pub(crate) taken: Taken,
    pub(crate) position: Position,
}

/// The events of a commit, in their order.
#[derive(Clone)]
pub(crate) struct CommitEvents {
    pub(crate) first: Option<EventKind>,
    /// The commit also begins the next iteration of a loop.
    pub(crate) turn: Option<EventKind>,
}

impl From<Option<EventKind>> for CommitEvents {
    fn from(first: Option<EventKind>) -> Self {
        CommitEvents { first, turn: None }
    }
}

impl Work<'_> {
    /// Commits, and claims the next step with it. A step that cannot commit because its run is frozen or went on is given
    /// back, after a pause: it would be claimed again at once.
    pub(crate) async fn commit<'a>(
        &'a self,
        changes: &[ValueChange],
        what: Option<EventKind>,
        decide: impl Fn(RunState) -> Draft<'a>,
    ) -> Result<WorkCommit, Error> {
        let committed = self.commit_and_hold(changes, what.into(), decide).await?;
        if matches!(committed, WorkCommit::Lost) {
            self.pause_and_give_back().await?;
        }
        Ok(committed)
    }

    /// As [`Work::commit`], but a step that cannot commit keeps its claim.
    async fn commit_and_hold<'a>(
        &'a self,
        changes: &[ValueChange],
        what: CommitEvents,
        decide: impl Fn(RunState) -> Draft<'a>,
    ) -> Result<WorkCommit, Error> {
        let committed = self
            .commit_and_tell(what, async |asked| {
                self.shared().commit(&self.run, &self.taken, asked, changes, decide).await
            })
            .await?;
        if matches!(committed, WorkCommit::Lost) {
            tracing::debug!(step = ?self.taken.step, "dropping a commit: another worker has the step, or the run went on");
        }
        Ok(committed)
    }

    /// Commits, with a claim on the next step, and tells the events of the commit in the order of the commits.
    async fn commit_and_tell(
        &self,
        what: CommitEvents,
        commit: impl AsyncFnOnce(Option<&Asked>) -> Result<WorkCommit, Error>,
    ) -> Result<WorkCommit, Error> {
        let asked = self.worker.claim_next(self.slot);
        let events = &self.shared().events;
        let order = if what.first.is_some() { events.order_if_wanted().await } else { None };
        let committed = commit(asked.as_ref()).await?;
        if let WorkCommit::Committed { position, .. } = &committed
            && order.is_some()
        {
            what.first.into_iter().chain(what.turn).for_each(|what| self.tell(*position, what));
        }
        Ok(committed)
    }

    /// As [`Work::commit`], for the outcome of a body: while the run is frozen for a new plan, the outcome waits. The plan
    /// may be refused, and then the run goes on as it was, with this outcome: it is not computed again, and that of an
    /// at-most-once body could not be.
    pub(crate) async fn commit_outcome<'a>(
        &'a self,
        changes: &[ValueChange],
        what: impl Into<CommitEvents>,
        decide: impl Fn(RunState) -> Draft<'a>,
    ) -> Result<WorkCommit, Error> {
        let what = what.into();
        loop {
            let committed = self.commit_and_hold(changes, what.clone(), &decide).await?;
            if !matches!(committed, WorkCommit::Lost) || !Box::pin(self.until_thawed()).await? {
                return Ok(committed);
            }
        }
    }

    /// Waits while the run is frozen; the step keeps its claim, and gives its places to others. False if the run was not
    /// frozen, or still is when the worker has to stop.
    pub(super) async fn until_thawed(&self) -> Result<bool, Error> {
        const LOOK_MS: u64 = 50;
        /// Looks while the worker stops: far more than a plan takes, unless its planner was killed.
        const LOOKS_MAX: usize = 100;
        let (shared, mut looks, mut resting) = (self.shared(), 0, None);
        while shared.runs.see_state(&self.run).await? && self.run.state().phase == Phase::Frozen {
            if self.worker.is_stopping() && looks >= LOOKS_MAX {
                return Ok(false);
            }
            resting.get_or_insert_with(|| self.worker.capacity.rest(self.slot));
            shared.world.sleep(LOOK_MS).await;
            looks += 1;
        }
        Ok(looks > 0)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.worker.shared
    }

    /// The rows of the run's generation.
    pub(crate) fn rows(&self) -> RunRows<'_> {
        self.shared().rows_of(&self.run.plan.keys)
    }

    /// Watches over the work on the step. Only the loss of the claim stops it, unless `stops`.
    pub(crate) fn heartbeat(&self, stops: bool) -> Heartbeat<'_, Whose> {
        let keys = &self.run.plan.keys;
        let whose = Whose { run: keys.run, generation: keys.generation, ends_with_run: stops };
        self.worker.alive.watch(self.taken.claim.fence, stops, whose)
    }

    /// Watches over work on the step that goes on after its run was cancelled: an interrupt of the worker stops it.
    pub(super) fn heartbeat_after_run(&self) -> Heartbeat<'_, Whose> {
        let keys = &self.run.plan.keys;
        let whose = Whose { run: keys.run, generation: keys.generation, ends_with_run: false };
        self.worker.alive.watch(self.taken.claim.fence, true, whose)
    }

    fn tell(&self, position: Position, what: EventKind) {
        self.shared().events.tell(position, &self.run, what);
    }

    /// Sends an event that belongs to no commit, after the events of all earlier commits.
    pub(crate) async fn tell_in_order(&self, position: Position, what: EventKind) {
        let events = &self.shared().events;
        if let Some(_order) = events.order_if_wanted().await {
            self.tell(position, what);
        }
    }

    /// Commits a decision that holds in one state only. If the state has changed the step is given back, and the run is
    /// settled again.
    pub(super) async fn commit_as_seen<'a>(
        &'a self,
        seen: RunState,
        changes: &[ValueChange],
        what: Option<EventKind>,
        decide: impl Fn(RunState) -> Draft<'a>,
    ) -> Result<WorkCommit, Error> {
        let decision = decide(seen).into();
        let kernel = &self.shared().kernel;
        let commit =
            async |asked: Option<&Asked>| kernel.commit_once(&self.taken.claim, asked, changes, decision).await;
        let committed = self.commit_and_tell(what.into(), commit).await?;
        if matches!(committed, WorkCommit::Lost | WorkCommit::DecideAgain) {
            self.shared().runs.read_run(self.run.plan.keys.run).await?;
            self.give_back().await?;
        }
        Ok(committed)
    }

    /// Commits the outputs of a node.
    pub(super) async fn give(&self, outputs: &[Outcome], what: Option<EventKind>) -> Result<Option<Job>, Error> {
        let commit = |state: RunState| step::commit(&self.run.plan, state, &self.taken, outputs);
        let committed = self.commit_outcome(&[], what, commit).await?;
        self.got_on(self.taken.frame.shape, self.taken.step.node);
        Ok(committed.next())
    }

    /// Wakes callers that wait for outputs of the run, if this node gives one.
    pub(super) fn got_on(&self, shape: Shape, node: NodeIndex) {
        let plan = &self.run.plan;
        let targets = || plan.wiring.blocks[ROOT as usize].targets(node);
        if matches!(shape, Shape::Run) && targets().iter().any(|target| target.to == Consumer::End) {
            self.shared().signals.progress(plan.keys.run).notify_waiters();
        }
    }

    /// An input of the step is missing. If the step is still ours, rows were lost; else another worker has it.
    pub(super) async fn missing_input(&self) -> Result<Option<Job>, Error> {
        if !self.shared().kernel.is_ours(&self.taken.claim).await? {
            return Ok(None);
        }
        let address = self.address().await?;
        Err(Error::damaged(format!("an input of {address} in run `{}` is missing", self.run.key)))
    }

    /// Fails the step for good: delivers the failure if something around the step handles it, else parks the step until
    /// the run is retried.
    pub(super) async fn fail(&self, attempt: u32, causes: Vec<String>) -> Result<Option<Job>, Error> {
        self.fail_as(attempt, causes, false).await
    }

    /// As [`Work::fail`]; `started` if the body of an at-most-once step may have run.
    pub(super) async fn fail_as(&self, attempt: u32, causes: Vec<String>, started: bool) -> Result<Option<Job>, Error> {
        assert!(attempt > 0, "attempts are counted from 1: the first one has failed");
        let plan = &self.run.plan;
        let node = self.taken.node(plan);
        let failed = Failed { address: self.address().await?.into(), attempt, causes: shortened(causes), started };
        let what = EventKind::DidFail(failed.clone());
        // A handler cannot make up for changed inputs of the run.
        let is_changed = failed.causes.first().is_some_and(|cause| cause.starts_with(SOURCE_CHANGED));
        if seams::delivers_failure((self.taken.frame.guarded || node.attempt) && !is_changed) {
            let why = format!("{}: {}", failed.address, failed.causes.join(": ")).into();
            return self.give(&step::failed_outputs(node, &why), Some(what)).await;
        }
        self.park_failed(failed, Some(what)).await
    }

    /// Parks the step until the run is retried.
    pub(super) async fn park_failed(&self, failed: Failed, what: Option<EventKind>) -> Result<Option<Job>, Error> {
        let plan = &self.run.plan;
        let park = |state: RunState| {
            let next = if self.run.finish_independent() || state.phase != Phase::Running {
                state.phase
            } else {
                Phase::Failing
            };
            step::park(plan, state, &self.taken, Why::Failed(failed.clone()), next)
        };
        let committed = self.commit_outcome(&[], what, park).await?;
        if !self.run.finish_independent() {
            self.shared().runs.read_run(plan.keys.run).await?;
        }
        Ok(committed.next())
    }

    /// Parks a step of a run that has stopped, unchanged.
    pub(crate) async fn stand_back(&self) -> Result<Option<Job>, Error> {
        // The cached state may be old.
        self.shared().runs.read_run(self.run.plan.keys.run).await?;
        let phase = self.run.state().phase;
        if phase.dispatches() || !phase.is_open() {
            self.pause_and_give_back().await?;
            return Ok(None);
        }
        let park = |state: RunState| step::park(&self.run.plan, state, &self.taken, Why::NotStarted, state.phase);
        self.commit(&[], None, park).await.map(WorkCommit::next)
    }

    /// Gives the step back after a pause: it cannot be performed here now.
    pub(crate) async fn pause_and_give_back(&self) -> Result<(), Error> {
        const PAUSE_MS: u64 = 50;
        self.shared().world.sleep(PAUSE_MS).await;
        self.give_back().await
    }

    /// Gives the step back: deletes its claim, so that any worker can claim it.
    pub(crate) async fn give_back(&self) -> Result<(), Error> {
        self.worker.alive.release(&self.taken.claim.name, self.taken.claim.fence);
        self.shared().kernel.give_back(&self.taken.claim).await
    }

    /// The address of the step.
    pub(crate) async fn address(&self) -> Result<String, Error> {
        let plan = &self.run.plan;
        let place = self.shared().runs.place(&self.run, self.taken.step.frame, self.taken.step.index).await?;
        Ok(match plan.program.blocks[self.taken.ready_step.block as usize].nodes.get(self.taken.step.node as usize) {
            Some(node) => place.address(&node.path),
            None => place.address(&[]),
        })
    }

    /// The address of the step, empty if no subscriber of events needs it.
    pub(super) async fn address_if_wanted(&self) -> Result<String, Error> {
        if self.shared().events.wanted() { self.address().await } else { Ok(String::new()) }
    }

    /// The event that an iteration of a loop begins, if a subscriber of events needs it. `opener` opened the loop.
    pub(super) async fn did_turn(
        &self,
        opener: StepId,
        node: &Node,
        iteration: u32,
    ) -> Result<Option<EventKind>, Error> {
        let shared = self.shared();
        if !shared.events.wanted() {
            return Ok(None);
        }
        let place = shared.runs.place(&self.run, opener.frame, opener.index).await?;
        Ok(Some(EventKind::DidTurn { address: place.address(&node.path), iteration }))
    }

    /// Reports why the step is held up.
    pub(crate) async fn tell_held_up(&self, why: &str) {
        let address = self.address().await.unwrap_or_else(|_| String::from("/"));
        tracing::warn!(run = %self.run.key, address, "a step is held up: {why}");
        let what = EventKind::HeldUp { address, why: why.to_owned() };
        self.tell_in_order(self.shared().records.position(), what).await;
    }

    /// Counts and reports a lost step: another worker has it, because the heartbeats of this one came too late.
    pub(super) async fn was_taken(&self) -> Result<(), Error> {
        self.worker.announcement.count_lost();
        let shared = self.shared();
        if shared.events.wanted() {
            // Its frame may be gone by now.
            let address = self.address().await.unwrap_or_default();
            self.tell_in_order(shared.records.position(), EventKind::DidLose { address }).await;
        }
        Ok(())
    }

    /// The directory for files of this attempt.
    pub(super) fn scratch(&self) -> Scratch {
        Scratch::new(self.taken.claim.fence, self.shared().small.clone())
    }
}
