//! An at-most-once step that was started, and whose outcome is unknown. Its own check may find out, the worker that
//! started it may still commit its result; else the run waits for an operator (`onceflow resolve`).

use super::{
    TaskStep,
    body::{at, body_of, complete},
};
use crate::{
    Error, data,
    events::EventKind,
    handle::noted,
    kernel::{Job, OutsideCommit, WorkCommit},
    perform::{Work, memo::StepMemo},
    runs::Run,
    shared::Shared,
    task::{Step, Verdict},
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
        rows::{Frame, Parked, Phase, Received, RunState, Why},
        run,
        step::{self, Taken},
    },
};
use onceflow_store::values::ValueChange;
use std::sync::Arc;

impl TaskStep<'_> {
    /// Asks the task's own check for the outcome of the body that was started.
    pub(super) async fn verify(&self) -> Result<Verdict, Error> {
        let NodeOp::Task(task) = &self.work.taken.node(&self.work.run.plan).op else { return Ok(Verdict::Unknown) };
        let Ok(body) = body_of(self.work, *task) else { return Ok(Verdict::Unknown) };
        let scratch = self.work.scratch().without_checks();
        let _heartbeat = self.work.heartbeat(false);
        let loaded = data::load_all(&self.work.shared().values, &self.inputs, Some(&scratch)).await?;
        let ready_step = &self.work.taken.ready_step;
        let resumed = ready_step.resumed.clone().map(Arc::new);
        let step = Step { resumed, ..Step::new(at(self.work, &self.inputs).await?, *task, ready_step.failed + 1) };
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body.verify(step, loaded)));
        let Ok(Some(verdict)) = asked else { return Ok(Verdict::Unknown) };
        let verdict = std::panic::AssertUnwindSafe(verdict).catch_unwind().await.unwrap_or(Verdict::Unknown);
        Ok(match verdict {
            // The outputs it reports must fit the task.
            Verdict::Done(given) => {
                complete(&self.work.run.plan.program, *task, given).map_or(Verdict::Unknown, Verdict::Done)
            }
            verdict => verdict,
        })
    }

    /// Parks the step as unknown: the run waits for an operator to report the outcome.
    pub(super) async fn park_unknown(&self, started: Fence) -> Result<Option<Job>, Error> {
        let address = self.work.address().await?;
        let why = Why::Unknown { started, address: address.as_str().into() };
        let park = |state: RunState| step::park(&self.work.run.plan, state, &self.work.taken, why.clone(), state.phase);
        self.work.commit_outcome(&[], Some(EventKind::DidMarkUnknown { address }), park).await.map(WorkCommit::next)
    }
}

/// The result of an at-most-once body whose claim was lost before it could be committed.
pub(super) struct LateResult<'a> {
    pub(super) work: &'a Work<'a>,
    pub(super) outcomes: &'a [Outcome],
    pub(super) changes: &'a [ValueChange],
    pub(super) memo: &'a StepMemo<'a>,
}

impl LateResult<'_> {
    /// Commits the result, which is valid until an operator reports another outcome. Until the step is parked its ready row bears the mark of this worker, and the result
    /// goes into one batch with it, whichever worker has claimed the step since; after that the parked row takes the
    /// result.
    pub(super) async fn commit(&self) -> Result<(), Error> {
        let (shared, plan) = (self.work.shared(), &self.work.run.plan);
        while shared.runs.see_state(&self.work.run).await? && self.work.run.state().phase.is_open() {
            let Some((taken, claim, row)) = self.marked_as_started().await? else { break };
            let memo = self.memo.if_not_kept().await?;
            let mut draft = step::commit_late(plan, self.work.run.state(), &taken, (claim, row), self.outcomes);
            if let Some(memo) = memo {
                step::keep(plan, &mut draft, memo, self.outcomes);
            }
            // Refused if the state, the claim or the row changed: all three are read again.
            if let OutsideCommit::Applied(position) = shared.commit_outside(draft, self.changes).await? {
                self.work.worker.announcement.count_done(plan.keys.run);
                self.work.got_on(self.work.taken.frame.shape, self.work.taken.step.node);
                let address = self.work.address_if_wanted().await.unwrap_or_default();
                self.work.tell_in_order(position, EventKind::DidCommit { address }).await;
                return Ok(());
            }
        }
        self.resolve_parked().await
    }

    /// The step where it stands now, with its claim and its ready row, if that row says that this worker started the
    /// body.
    async fn marked_as_started(&self) -> Result<Option<(Taken, Option<Row>, Row)>, Error> {
        let shared = self.work.shared();
        let mut keys = vec![self.work.taken.claim.ready_key()];
        keys.extend(crate::worker::unserved::elsewhere(&self.work.run, &self.work.taken));
        for key in keys {
            let rows = [claim::claim_key(&key), key.clone()];
            let mut found = shared.records.get(shared.shard(), &rows).await?;
            let (Some(row), claim) = (found.pop().flatten(), found.pop().flatten()) else { continue };
            let ready_step = step::ready_step(&row);
            if ready_step.is_some_and(|ready_step| ready_step.started == Some(self.work.taken.claim.fence)) {
                let claimed = WorkClaim { queue: key.group, ..self.work.taken.claim.clone() };
                return Ok(Some((Taken { claim: claimed, ..self.work.taken.clone() }, claim, row)));
            }
        }
        Ok(None)
    }

    /// Resolves a step that is parked as unknown with the result of its body, unless an outcome was reported before.
    async fn resolve_parked(&self) -> Result<(), Error> {
        let shared = self.work.shared();
        let key = self.work.run.plan.keys.parked(self.work.taken.step);
        let Some(row) = shared.row(key).await? else { return Ok(()) };
        let parked = onceflow_core::protocol::rows::read::<Parked>(&row);
        if let Some(parked) = parked
            && matches!(parked.why, Why::Unknown { started, .. } if started == self.work.taken.claim.fence)
        {
            let step = (self.work.taken.step, &row, &parked);
            decide_done(shared, &self.work.run, step, self.outcomes, self.changes, None).await?;
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
    // Parked, so it has no ready row, and a claim that no worker holds.
    let claim = WorkClaim { queue, name, fence, row: Row::default() };
    let taken = Taken { step, claim, ready_step, frame: frame.clone(), inbox: inbox.to_vec() };
    let node = taken.node(plan);
    Some(memo_of(&plan.program, node, address, &taken.inputs(plan, &node.inputs)?))
}

/// Commits outputs for a parked step whose outcome was unknown. False if it was decided otherwise before.
pub(crate) async fn decide_done(
    shared: &Shared,
    run: &Run,
    (step, row, parked): (StepId, &Row, &Parked),
    outcomes: &[Outcome],
    changes: &[ValueChange],
    note: Option<Key>,
) -> Result<bool, Error> {
    let Some(frame) = shared.runs.frame(run, step.frame).await? else { return Ok(false) };
    let inbox = shared.rows_of(&run.plan.keys).inbox(step).await?;
    let memo = memo_of_parked(run, (step, parked), &frame, &inbox, shared.kernel.fences.next());
    loop {
        if !may_decide(run.state().phase) {
            return Ok(false);
        }
        let draft = run::decided(&run.plan, run.state(), step, (row, parked), &frame, &inbox, outcomes);
        let mut draft = noted(draft, note.as_ref());
        // The outputs count as computed, and are kept like that.
        let keeps = match &memo {
            Some(memo) => shared.row(run.plan.keys.memo(memo)).await?.is_none(),
            None => false,
        };
        if let (Some(memo), true) = (&memo, keeps) {
            step::keep(&run.plan, &mut draft, memo, outcomes);
        }
        match shared.commit_outside(draft, changes).await? {
            OutsideCommit::Applied(_) => {
                shared.runs.read_run(run.plan.keys.run).await?;
                shared.signals.progress(run.plan.keys.run).notify_waiters();
                return Ok(true);
            }
            OutsideCommit::Refused(key) => match Premise::of(&key) {
                Premise::State => {
                    let seen = run.state();
                    shared.runs.read_run(run.plan.keys.run).await?;
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
