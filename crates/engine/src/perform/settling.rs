//! Settles a run that has no step in flight: decides how it goes on, and folds it when it is done.

use super::{Job, Work, folding, task::end_open_sessions};
use crate::{Error, RunStatus, error::DAMAGE, events::EventKind, kernel::WorkCommit, seams};
use onceflow_core::{
    Name, Row,
    limits::REMOVE_ROWS_MAX,
    protocol::{
        ids::{SETTLE, StepId, TEARDOWN, UNDO},
        rows::{self, Parked, Phase, Received, RunState, Status, Undo, Why},
        run::{self, Ending},
    },
};
use onceflow_store::records::Scan;

/// The decision on a run that has no step in flight.
pub(super) struct Settling<'a> {
    work: &'a Work<'a>,
    /// The state in which the run is settled: a decision holds in no other.
    state: RunState,
}

/// Decides how the run goes on.
pub(super) async fn settle(work: &Work<'_>) -> Result<Option<Job>, Error> {
    assert_eq!(work.taken.step.node, SETTLE, "a run is settled by the one step that is made for it");
    // The cached state may be old.
    let Some(_) = work.shared().runs.read_run(work.run.plan.keys.run).await? else { return Ok(None) };
    Settling { work, state: work.run.state() }.settle().await
}

impl Settling<'_> {
    async fn settle(&self) -> Result<Option<Job>, Error> {
        let (plan, state) = (&self.work.run.plan, self.state);
        if let Some(live) = seams::in_flight(self.work.shared().row(plan.keys.live()).await?) {
            return self.too_early(live).await;
        }
        let arrived = self.work.rows().arrived_outputs().await?;
        let outputs = run::outputs(plan, &self.work.taken.frame, &arrived);
        let (parked, _) = self.work.rows().parked_first().await?;
        let whys: Vec<_> = parked.iter().map(|(_, _, parked)| parked.why.clone()).collect();
        let registered = self.work.rows().registrations().await?;
        let undos = seams::first_to_undo(&registered).map(|registration| registration.number);
        let ending = run::ending(state.phase, outputs.is_some(), &whys, undos.is_some());
        let is_last = matches!(ending, Ending::Done | Ending::Undo(_) | Ending::Remove(_));
        if is_last && !Box::pin(end_open_sessions(self.work)).await? {
            self.work.pause_and_give_back().await?;
            return Ok(None);
        }
        let next = match ending {
            Ending::Done => return self.finish(outputs.expect("all outputs are there"), &arrived).await,
            Ending::Leave => return self.leave().await,
            Ending::Unpark => return self.unpark(&parked).await,
            Ending::Wait => (Phase::Waiting, Some(RunStatus::Waiting), None),
            Ending::Fail => (self.failed().await?, Some(RunStatus::Failed), None),
            Ending::Undo(phase) => {
                (phase, None, Some(StepId { index: undos.unwrap_or_default(), ..StepId::of_run(UNDO) }))
            }
            Ending::Remove(phase) => (phase, None, Some(StepId::of_run(TEARDOWN))),
            // The reads were not one snapshot: an operator reported the outcome of a step in between.
            Ending::Damaged if !self.is_stuck().await? => {
                self.work.give_back().await?;
                return Ok(None);
            }
            Ending::Damaged => {
                tracing::error!(run = %self.work.run.key, "{}: nothing is left to do, and not all outputs are there", DAMAGE);
                (self.failed().await?, Some(RunStatus::Failed), None)
            }
        };
        let (phase, end, follow) = next;
        let decide = |state: RunState| {
            let mut draft = run::change_phase(plan, state, &self.work.taken, phase);
            // The parked step that decided this must still be parked: an operator may have reported its outcome
            // meanwhile.
            if let Some((step, row, _)) = parked.iter().find(|(_, _, parked)| decides(phase, &parked.why)) {
                draft.batch.require_equals(plan.keys.parked(*step), row.clone());
            }
            seams::require_none_in_flight(&mut draft.batch, plan.keys.live());
            if let Some(last) = registered.last() {
                draft.batch.require_absent(plan.keys.undo(last.number + 1));
            }
            if let Some(step) = follow {
                let ready_step = draft.ready_step(0, vec![]);
                let op = draft.ready(step, &onceflow_core::protocol::keys::internal_queue(), &ready_step);
                draft.batch.ops.push(op);
            }
            draft
        };
        let what = end.map(|how| EventKind::DidEnd { how });
        let committed = self.work.commit_as_seen(self.state, &[], what, decide).await?;
        if let WorkCommit::Committed { .. } = committed {
            self.work.run.set_state(RunState { phase, ..state });
            if phase.is_failed() {
                self.work.shared().signals.due.notify_one();
            }
            self.work.shared().signals.progress(self.work.run.plan.keys.run).notify_waiters();
        }
        Ok(committed.next())
    }

    /// No step is in flight, none is parked, and outputs are missing: nothing can change that any more.
    async fn is_stuck(&self) -> Result<bool, Error> {
        let (shared, plan) = (self.work.shared(), &self.work.run.plan);
        // One scan reads both: the counter stands just before the parked steps.
        let scan = Scan::of(plan.keys.rows.clone(), 1).after(Some(Name::new("k")));
        let page = shared.records.scan(shared.shard(), scan).await?;
        let goes_on = page.rows.first().is_some_and(|(name, _)| matches!(name.as_bytes().first(), Some(b'l' | b'p')));
        if goes_on {
            return Ok(false);
        }
        Ok(run::outputs(plan, &self.work.taken.frame, &self.work.rows().arrived_outputs().await?).is_none())
    }

    /// The phase of a failed run, which can be retried until its history ends. A run that had failed already keeps its
    /// end.
    async fn failed(&self) -> Result<Phase, Error> {
        if self.state.phase.is_failed() {
            return Ok(self.state.phase);
        }
        let now = self.work.shared().records.now().await?;
        Ok(Phase::Failed { until: folding::history_end(&self.work.run.header, now) })
    }

    /// Leaves the run as it is: another step or an operator acts next.
    async fn leave(&self) -> Result<Option<Job>, Error> {
        let decide = |state: RunState| self.work.taken.leaving(&self.work.run.plan, state);
        Ok(self.work.commit_as_seen(self.state, &[], None, decide).await?.next())
    }

    /// Leaves a run that has steps in flight after all: the last of them settles it again. Requires that they still
    /// are.
    async fn too_early(&self, live: Row) -> Result<Option<Job>, Error> {
        let plan = &self.work.run.plan;
        let decide = |state: RunState| {
            let mut draft = self.work.taken.leaving(plan, state);
            seams::require_in_flight(&mut draft.batch, plan.keys.live(), live.clone());
            draft
        };
        Ok(self.work.commit_as_seen(self.state, &[], None, decide).await?.next())
    }

    /// Puts parked steps back into their queues: the worker that began it did not finish.
    async fn unpark(&self, parked: &[(StepId, Row, Parked)]) -> Result<Option<Job>, Error> {
        let some = &parked[..parked.len().min(REMOVE_ROWS_MAX / 2)];
        let plan = &self.work.run.plan;
        let decide = |state: RunState| {
            let mut draft = run::unpark(plan, state, some);
            // The claim on settling goes with it: when nothing is in flight again, it is settled again.
            let leaving = self.work.taken.leaving(plan, state);
            draft.batch.requires.extend(leaving.batch.requires.into_iter().skip(1));
            draft.batch.ops.extend(leaving.batch.ops);
            draft
        };
        Ok(self.work.commit_as_seen(self.state, &[], None, decide).await?.next())
    }

    /// Folds a run whose outputs are all there.
    async fn finish(
        &self,
        outputs: Vec<(String, onceflow_core::payload::Outcome)>,
        arrived: &[Received],
    ) -> Result<Option<Job>, Error> {
        let registrations = self.last_registrations().await?;
        let block = &self.work.run.plan.program.blocks[0];
        assert_eq!(outputs.len(), block.outputs.len(), "a run ends well that lacks an output of its flow");
        let hidden = block.outputs.iter().map(|output| output.hidden);
        let outputs = outputs.into_iter().zip(hidden).filter(|(_, hidden)| !hidden).map(|(output, _)| output).collect();
        folding::fold(self.work, self.state, Status::Done, outputs, (arrived, &registrations)).await
    }

    /// Deletes the registrations of compensations, which are not needed any more, but for the last few. Those go with
    /// the run, so that a cancel that comes first still finds them.
    async fn last_registrations(&self) -> Result<Vec<(Name, Row)>, Error> {
        // The operations that a fold can spare beside all inputs and outputs of a run.
        const OPS_MAX: usize = 150;
        let (shared, plan) = (self.work.shared(), &self.work.run.plan);
        loop {
            let scan = Scan::of(plan.keys.rows.clone(), REMOVE_ROWS_MAX).prefix(b"u");
            let page = shared.records.scan(shared.shard(), scan).await?;
            let mut ops = 0;
            let fits = |(_, row): &&(Name, Row)| {
                ops += 1 + 3 * rows::read::<Undo>(row).map_or(OPS_MAX, |undo| undo.inputs.len());
                ops <= OPS_MAX
            };
            let last = page.rows.iter().take_while(fits).count();
            if last == page.rows.len() {
                return Ok(page.rows);
            }
            let draft = run::remove(plan, &page.rows[last..]);
            let _again_if_refused = shared.commit_outside(draft, &[]).await?;
        }
    }
}

/// A step parked for that reason is why a run goes into this phase.
fn decides(phase: Phase, why: &Why) -> bool {
    match why {
        Why::Unknown { .. } | Why::Suspended { .. } => phase == Phase::Waiting,
        Why::Failed(_) => phase.is_failed() || phase == Phase::UndoingFailed,
        Why::NotStarted => false,
    }
}
