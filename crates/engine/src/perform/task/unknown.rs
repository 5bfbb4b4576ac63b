//! An at-most-once step that was started, and whose outcome is unknown. Its own check may find out, the worker that
//! started it may still commit its result; else the run waits for an operator (`onceflow resolve`).

use super::super::Work;
use crate::{
    Error, data,
    events::EventKind,
    handle::noted,
    kernel::{Job, OutsideCommit, WorkCommit},
    runs::Run,
    shared::Shared,
    task::{Step, Verdict},
    worker::Slot,
};
use futures_util::FutureExt;
use onceflow_core::{
    Digest, Fence, Key, Row,
    model::program::NodeOp,
    payload::Outcome,
    protocol::{
        claim::{self, WorkClaim},
        ids::StepId,
        memo::memo_of,
        premise::Premise,
        rows::{Frame, Held, Parked, Phase, Received, RunState, Why},
        run,
        step::{self, Taken},
    },
};
use onceflow_store::values::ValueChange;
use std::sync::Arc;

impl Work<'_> {
    /// Asks the task's own check for the outcome of the body that was started.
    pub(super) async fn verify(&self, inputs: &[Held]) -> Result<Verdict, Error> {
        let NodeOp::Task(task) = &self.taken.node(&self.run.plan).op else { return Ok(Verdict::Unknown) };
        let Ok(body) = self.body(*task) else { return Ok(Verdict::Unknown) };
        let scratch = self.scratch().without_checks();
        let _heartbeat = self.heartbeat(false);
        let loaded = data::load_all(&self.worker.shared.values, inputs, Some(&scratch)).await?;
        let step = Step {
            at: self.at(None, inputs).await?,
            attempt: self.taken.ready_step.failed + 1,
            resumed: self.taken.ready_step.resumed.clone().map(Arc::new),
            tx: None,
            reserved: None,
            aside: None,
        };
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body.verify(step, loaded)));
        let Ok(Some(verdict)) = asked else { return Ok(Verdict::Unknown) };
        let verdict = std::panic::AssertUnwindSafe(verdict).catch_unwind().await.unwrap_or(Verdict::Unknown);
        Ok(match verdict {
            // The outputs it reports must fit the task.
            Verdict::Done(given) => self.complete(*task, given).map_or(Verdict::Unknown, Verdict::Done),
            verdict => verdict,
        })
    }

    /// Parks the step as unknown: the run waits for an operator to report the outcome.
    pub(super) async fn park_unknown(&self, slot: &Slot, started: Fence) -> Result<Option<Job>, Error> {
        let address = self.address().await?;
        let why = Why::Unknown { started, address: address.as_str().into() };
        let park = |state: RunState| step::park(&self.run.plan, state, &self.taken, why.clone(), state.phase);
        self.commit_outcome(slot, &[], Some(EventKind::DidMarkUnknown { address }), park).await.map(WorkCommit::next)
    }

    /// Commits the result of an at-most-once body whose claim was lost meanwhile: the result is valid until an operator
    /// reports another outcome. Until the step is parked its ready row bears the mark of this worker, and the result
    /// goes into one batch with it, whichever worker has claimed the step since; after that the parked row takes the
    /// result.
    pub(super) async fn commit_late(
        &self,
        outcomes: &[Outcome],
        changes: &[ValueChange],
        memo: Option<&Digest>,
    ) -> Result<(), Error> {
        let (shared, plan) = (&self.worker.shared, &self.run.plan);
        while shared.runs.see_state(&self.run).await? && self.run.state().phase.is_open() {
            let Some((taken, claim, row)) = self.marked_as_started().await? else { break };
            let memo = match memo {
                Some(memo) if self.kept(Some(memo)).await?.is_none() => Some(memo),
                _ => None,
            };
            let mut draft = step::commit_late(plan, self.run.state(), &taken, (claim, row), outcomes);
            if let Some(memo) = memo {
                step::keep(plan, &mut draft, memo, outcomes);
            }
            // Refused if the state, the claim or the row changed: all three are read again.
            if let OutsideCommit::Applied(position) = shared.commit_outside(draft, changes).await? {
                self.worker.announcement.count_done(plan.keys.run);
                self.got_on(self.taken.frame.shape, self.taken.step.node);
                let address = self.address_if_wanted().await.unwrap_or_default();
                self.tell_in_order(position, EventKind::DidCommit { address }).await;
                return Ok(());
            }
        }
        self.resolve_parked(outcomes, changes).await
    }

    /// The step where it stands now, with its claim and its ready row, if that row says that this worker started the
    /// body.
    async fn marked_as_started(&self) -> Result<Option<(Taken, Option<Row>, Row)>, Error> {
        let shared = &self.worker.shared;
        let mut keys = vec![self.taken.claim.ready_key()];
        keys.extend(crate::worker::unserved::elsewhere(&self.run, &self.taken));
        for key in keys {
            let rows = [claim::claim_key(&key), key.clone()];
            let mut found = shared.records.get(shared.shard(), &rows).await?;
            let (Some(row), claim) = (found.pop().flatten(), found.pop().flatten()) else { continue };
            let ready_step = step::ready_step(&row);
            if ready_step.is_some_and(|ready_step| ready_step.started == Some(self.taken.claim.fence)) {
                let claimed = WorkClaim { queue: key.group, ..self.taken.claim.clone() };
                return Ok(Some((Taken { claim: claimed, ..self.taken.clone() }, claim, row)));
            }
        }
        Ok(None)
    }

    /// Resolves a step that is parked as unknown with the result of its body, unless an outcome was reported before.
    async fn resolve_parked(&self, outcomes: &[Outcome], changes: &[ValueChange]) -> Result<(), Error> {
        let shared = &self.worker.shared;
        let key = self.run.plan.keys.parked(self.taken.step);
        let Some(row) = shared.row(key).await? else { return Ok(()) };
        let parked = onceflow_core::protocol::rows::read::<Parked>(&row);
        if let Some(parked) = parked
            && matches!(parked.why, Why::Unknown { started, .. } if started == self.taken.claim.fence)
        {
            shared.decide_done(&self.run, (self.taken.step, &row, &parked), outcomes, changes, None).await?;
        }
        Ok(())
    }
}

/// The outcome of a step may still be reported: not while the run is undone or removed.
pub(crate) fn may_decide(phase: Phase) -> bool {
    matches!(phase, Phase::Running | Phase::Failing | Phase::Waiting | Phase::Cancelling)
}

/// The memo of a parked step, if its run keeps memos.
fn memo_of_parked(
    run: &Run,
    (step, parked): (StepId, &Parked),
    frame: &Arc<Frame>,
    inbox: &[Received],
    fence: Fence,
) -> Option<Digest> {
    let (Some(_), Some(address)) = (run.header.keep_ms, parked.why.awaited()) else { return None };
    let (plan, ready_step) = (&run.plan, parked.ready_step.clone());
    let (queue, name) =
        (plan.queue(ready_step.block, step.node), step.queue_name(plan.keys.run, ready_step.generation));
    // Parked, so it has no ready row, and a claim of nobody.
    let claim = WorkClaim { queue, name, fence, row: Row::default() };
    let taken = Taken { step, claim, ready_step, frame: frame.clone(), inbox: inbox.to_vec() };
    let node = taken.node(plan);
    Some(memo_of(&plan.program, node, address, &taken.inputs(plan, &node.inputs)?))
}

impl Shared {
    /// Commits outputs for a parked step whose outcome was unknown. False if it was decided otherwise before.
    pub(crate) async fn decide_done(
        &self,
        run: &Run,
        (step, row, parked): (StepId, &Row, &Parked),
        outcomes: &[Outcome],
        changes: &[ValueChange],
        note: Option<Key>,
    ) -> Result<bool, Error> {
        let Some(frame) = self.runs.frame(run, step.frame).await? else { return Ok(false) };
        let inbox = self.inbox(run, step).await?;
        let memo = memo_of_parked(run, (step, parked), &frame, &inbox, self.kernel.fences.next());
        loop {
            if !may_decide(run.state().phase) {
                return Ok(false);
            }
            let draft = run::decided(&run.plan, run.state(), step, (row, parked), &frame, &inbox, outcomes);
            let mut draft = noted(draft, note.as_ref());
            // The outputs count as computed, and are kept like that.
            let keeps = match &memo {
                Some(memo) => self.row(run.plan.keys.memo(memo)).await?.is_none(),
                None => false,
            };
            if let (Some(memo), true) = (&memo, keeps) {
                step::keep(&run.plan, &mut draft, memo, outcomes);
            }
            match self.commit_outside(draft, changes).await? {
                OutsideCommit::Applied(_) => {
                    self.runs.read_run(run.plan.keys.run).await?;
                    self.signals.progress(run.plan.keys.run).notify_waiters();
                    return Ok(true);
                }
                OutsideCommit::Refused(key) => match Premise::of(&key) {
                    Premise::State => {
                        let seen = run.state();
                        self.runs.read_run(run.plan.keys.run).await?;
                        if run.state() == seen {
                            return Ok(false);
                        }
                    }
                    // The step was decided, or the same report was made before, for this step or another.
                    Premise::Parked | Premise::Report | Premise::Claim => return Ok(false),
                    // The same memo was kept meanwhile, or a value was put: read it again.
                    Premise::Memo | Premise::Other => {}
                },
            }
        }
    }

    /// The deliveries to a step.
    async fn inbox(&self, run: &Run, step: StepId) -> Result<Vec<onceflow_core::protocol::rows::Received>, Error> {
        let rows = self.all_rows(run.plan.keys.rows.clone(), run.plan.keys.inbox(step).as_bytes()).await?;
        let read =
            |(_, row): &(_, Row)| onceflow_core::protocol::rows::read(row).ok_or_else(|| Error::damaged("an arrival"));
        rows.iter().map(read).collect()
    }
}
