//! Settles a run that has no step in flight: decides how it goes on, and folds it when it is done.

use super::{Job, Work};
use crate::{Error, RunStatus, error::DAMAGE, events::EventKind, kernel::WorkCommit, seams, worker::Slot};
use onceflow_core::{
    Name, Row,
    limits::{REMOVE_ROWS_MAX, SCAN_ROWS_MAX},
    payload::Stored,
    protocol::{
        ids::{END, Generation, SETTLE, StepId, TEARDOWN, UNDO},
        keys::Keys,
        rows::{self, Failed, Finished, Frame, Parked, Phase, Received, RunState, Status, Undo, Why},
        run::{self, Ending, Fold},
    },
};
use onceflow_store::{records::Scan, values::ValueChange};
use std::sync::Arc;

impl Work<'_> {
    /// Decides how the run goes on.
    pub(super) async fn settle(&self, slot: &Slot) -> Result<Option<Job>, Error> {
        debug_assert_eq!(self.taken.step.node, SETTLE, "only one step settles");
        // The cached state may be old.
        let Some(_) = self.worker.shared.runs.read_run(self.run.plan.keys.run).await? else { return Ok(None) };
        let (plan, state) = (&self.run.plan, self.run.state());
        if let Some(live) = seams::in_flight(self.worker.shared.row(plan.keys.live()).await?) {
            return self.too_early(slot, state, live).await;
        }
        let arrived = self.outputs_arrived().await?;
        let outputs = run::outputs(plan, &self.taken.frame, &arrived);
        let parked = self.parked().await?;
        let whys: Vec<_> = parked.iter().map(|(_, _, parked)| parked.why.clone()).collect();
        let registered = self.registrations().await?;
        let undos = seams::first_to_undo(&registered).map(|(number, _)| *number);
        let next = match run::ending(state.phase, outputs.is_some(), &whys, undos.is_some()) {
            Ending::Done => return self.finish(slot, state, outputs.expect("all outputs are there"), &arrived).await,
            Ending::Leave => return self.leave(slot, state).await,
            Ending::Unpark => return self.unpark(slot, state, &parked).await,
            Ending::Wait => (Phase::Waiting, Some(RunStatus::Waiting), None),
            Ending::Fail => (self.failed(state).await?, Some(RunStatus::Failed), None),
            Ending::Undo(phase) => {
                (phase, None, Some(StepId { index: undos.unwrap_or_default(), ..StepId::of_run(UNDO) }))
            }
            Ending::Remove(phase) => (phase, None, Some(StepId::of_run(TEARDOWN))),
            // The reads were not one snapshot: an operator reported the outcome of a step in between.
            Ending::Damaged if !self.is_stuck().await? => {
                self.give_back().await?;
                return Ok(None);
            }
            Ending::Damaged => {
                tracing::error!(run = %self.run.key, "{}: nothing is left to do, and not all outputs are there", DAMAGE);
                (self.failed(state).await?, Some(RunStatus::Failed), None)
            }
        };
        let (phase, end, follow) = next;
        let decide = |state: RunState| {
            let mut draft = run::change_phase(plan, state, &self.taken, phase);
            // The parked step that decided this must still be parked: an operator may have reported its outcome
            // meanwhile.
            if let Some((step, row, _)) = parked.iter().find(|(_, _, parked)| decides(phase, &parked.why)) {
                draft.batch.require_equals(plan.keys.parked(*step), row.clone());
            }
            seams::require_none_in_flight(&mut draft.batch, plan.keys.live());
            if let Some((last, _)) = registered.last() {
                draft.batch.require_absent(plan.keys.undo(last + 1));
            }
            if let Some(step) = follow {
                let ready_step = draft.ready_step(0, vec![]);
                let op = draft.ready(step, &onceflow_core::protocol::keys::internal_queue(), &ready_step);
                draft.batch.ops.push(op);
            }
            draft
        };
        let what = end.map(|how| EventKind::DidEnd { how });
        let committed = self.commit_as_seen(slot, state, &[], what, decide).await?;
        if let WorkCommit::Committed { .. } = committed {
            self.run.set_state(RunState { phase, ..state });
            if phase.is_failed() {
                self.worker.shared.signals.due.notify_one();
            }
            self.worker.shared.signals.progress(self.run.plan.keys.run).notify_waiters();
        }
        Ok(committed.next())
    }

    /// No step is in flight, none is parked, and outputs are missing: nothing can change that any more.
    async fn is_stuck(&self) -> Result<bool, Error> {
        let (shared, plan) = (&self.worker.shared, &self.run.plan);
        // One scan reads both: the counter stands just before the parked steps.
        let scan = Scan::of(plan.keys.rows.clone(), 1).after(Some(Name::new("k")));
        let page = shared.records.scan(shared.shard(), scan).await?;
        let goes_on = page.rows.first().is_some_and(|(name, _)| matches!(name.as_bytes().first(), Some(b'l' | b'p')));
        if goes_on {
            return Ok(false);
        }
        Ok(run::outputs(plan, &self.taken.frame, &self.outputs_arrived().await?).is_none())
    }

    /// The phase of a failed run, which can be retried until its history ends. A run that had failed already keeps its
    /// end.
    async fn failed(&self, state: RunState) -> Result<Phase, Error> {
        if state.phase.is_failed() {
            return Ok(state.phase);
        }
        let now = self.worker.shared.records.now().await?;
        Ok(Phase::Failed { until: self.history_end(now) })
    }

    /// Leaves the run as it is: another step or an operator acts next.
    async fn leave(&self, slot: &Slot, state: RunState) -> Result<Option<Job>, Error> {
        let decide = |state: RunState| self.taken.leaving(&self.run.plan, state);
        Ok(self.commit_as_seen(slot, state, &[], None, decide).await?.next())
    }

    /// Leaves a run that has steps in flight after all: the last of them settles it again. Requires that they still
    /// are.
    async fn too_early(&self, slot: &Slot, state: RunState, live: Row) -> Result<Option<Job>, Error> {
        let plan = &self.run.plan;
        let decide = |state: RunState| {
            let mut draft = self.taken.leaving(plan, state);
            seams::require_in_flight(&mut draft.batch, plan.keys.live(), live.clone());
            draft
        };
        Ok(self.commit_as_seen(slot, state, &[], None, decide).await?.next())
    }

    /// Commits a decision that holds in one state only. If the state has changed the step is given back, and the run is
    /// settled again.
    pub(super) async fn commit_as_seen<'a>(
        &'a self,
        slot: &Slot,
        seen: RunState,
        changes: &[ValueChange],
        what: Option<EventKind>,
        decide: impl Fn(RunState) -> onceflow_core::protocol::draft::Draft<'a>,
    ) -> Result<WorkCommit, Error> {
        let asked = self.worker.claim_next(slot);
        let shared = &self.worker.shared;
        let order = if what.is_some() { shared.events.order_if_wanted().await } else { None };
        let committed =
            shared.kernel.commit_once(&self.taken.claim, asked.as_ref(), changes, decide(seen).into()).await?;
        match &committed {
            WorkCommit::Committed { position, .. } => {
                if let (Some(what), true) = (what, order.is_some()) {
                    self.tell(*position, what);
                }
            }
            WorkCommit::Lost | WorkCommit::DecideAgain => {
                self.worker.shared.runs.read_run(self.run.plan.keys.run).await?;
                self.give_back().await?;
            }
        }
        Ok(committed)
    }

    /// The outputs of the run that have arrived.
    pub(super) async fn outputs_arrived(&self) -> Result<Vec<Received>, Error> {
        self.worker.shared.outputs_arrived(&self.run).await
    }

    /// The parked steps that matter most.
    pub(super) async fn parked(&self) -> Result<Vec<(StepId, Row, Parked)>, Error> {
        self.worker.shared.parked_first(&self.run).await
    }

    /// Puts parked steps back into their queues: the worker that began it did not finish.
    async fn unpark(
        &self,
        slot: &Slot,
        state: RunState,
        parked: &[(StepId, Row, Parked)],
    ) -> Result<Option<Job>, Error> {
        let some = &parked[..parked.len().min(REMOVE_ROWS_MAX / 2)];
        let plan = &self.run.plan;
        let decide = |state: RunState| {
            let mut draft = run::unpark(plan, state, some);
            // The claim on settling goes with it: when nothing is in flight again, it is settled again.
            let leaving = self.taken.leaving(plan, state);
            draft.batch.requires.extend(leaving.batch.requires.into_iter().skip(1));
            draft.batch.ops.extend(leaving.batch.ops);
            draft
        };
        Ok(self.commit_as_seen(slot, state, &[], None, decide).await?.next())
    }

    /// Folds a run whose outputs are all there.
    async fn finish(
        &self,
        slot: &Slot,
        state: RunState,
        outputs: Vec<(String, onceflow_core::payload::Outcome)>,
        arrived: &[Received],
    ) -> Result<Option<Job>, Error> {
        let registrations = self.last_registrations().await?;
        let frame = self.taken.frame.clone();
        let hidden = self.run.plan.program.blocks[0].outputs.iter().map(|output| output.hidden);
        let outputs = outputs.into_iter().zip(hidden).filter(|(_, hidden)| !hidden).map(|(output, _)| output).collect();
        self.fold(slot, state, Status::Done, outputs, Some(&frame), (arrived, &registrations)).await
    }

    /// Deletes the registrations of compensations, which are not needed any more, but for the last few. Those go with
    /// the run, so that a cancel that comes first still finds them.
    async fn last_registrations(&self) -> Result<Vec<(Name, Row)>, Error> {
        // The operations that a fold can spare beside all inputs and outputs of a run.
        const OPS_MAX: usize = 150;
        let (shared, plan) = (&self.worker.shared, &self.run.plan);
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

    /// Folds the run into one row and its outputs.
    pub(super) async fn fold(
        &self,
        slot: &Slot,
        state: RunState,
        status: Status,
        outputs: Vec<(String, onceflow_core::payload::Outcome)>,
        frame: Option<&Arc<Frame>>,
        (arrived, registrations): (&[Received], &[(Name, Row)]),
    ) -> Result<Option<Job>, Error> {
        let (shared, plan) = (&self.worker.shared, &self.run.plan);
        let now = shared.records.now().await?;
        let how = RunStatus::from(&status);
        let mut changes: Vec<ValueChange> = Vec::new();
        let sealed = self.seal(&status, &mut changes).await?;
        let header = self.run.header.clone();
        let fold = Fold {
            history_until: self.history_end(now),
            // Memos of an earlier generation go at once if this one keeps none.
            keep_until: match header.keep_ms {
                Some(ms) => Some(now.plus_ms(ms)),
                None => (plan.keys.generation > Generation(0)).then_some(now),
            },
            finished: Finished {
                run: plan.keys.run,
                generation: plan.keys.generation,
                status,
                header,
                ended: now,
                outputs,
                sealed: Some(sealed),
            },
        };
        let decide = |state: RunState| {
            let mut draft = run::fold(plan, state, &self.taken, frame.map(|frame| &**frame), &fold);
            run::release_outputs(plan, &mut draft, arrived);
            for (name, row) in registrations {
                run::drop_row(plan, &mut draft, name, row);
            }
            draft
        };
        // In the state it was decided in: a run that was cancelled in between is settled again.
        let what = Some(EventKind::DidEnd { how });
        let committed = self.commit_as_seen(slot, state, &changes, what, decide).await?;
        let WorkCommit::Committed { next, .. } = committed else { return Ok(None) };
        shared.runs.forget(plan.keys.run);
        shared.signals.progress(plan.keys.run).notify_waiters();
        shared.signals.due.notify_one();
        Ok(next)
    }

    /// The end of the history of a run that ends now.
    fn history_end(&self, now: onceflow_core::Timestamp) -> onceflow_core::Timestamp {
        /// The shortest history: a caller that waits for the run, here or in another process, must be able to read its
        /// outputs.
        const HISTORY_MS_MIN: u64 = 2_000;
        now.plus_ms(self.run.header.history_ms.max(HISTORY_MS_MIN))
    }

    /// Stores the sealed record of a run: everything that can be asked beside its result.
    async fn seal(&self, status: &Status, changes: &mut Vec<ValueChange>) -> Result<Stored, Error> {
        let once_only = crate::engine::summary::once_only_of(&self.worker.shared, &self.run).await?;
        let bytes = rows::write(&(&self.run.header, status, once_only));
        let (change, stored) = self.worker.shared.values.put_bytes(bytes.to_vec()).await?;
        changes.push(change);
        Ok(stored)
    }
}

impl crate::shared::Shared {
    /// The outputs of a run that have arrived.
    pub(crate) async fn outputs_arrived(&self, run: &crate::runs::Run) -> Result<Vec<Received>, Error> {
        let keys = &run.plan.keys;
        let scan = Scan::of(keys.rows.clone(), SCAN_ROWS_MAX).prefix(keys.inbox(StepId::of_run(END)));
        let page = self.records.scan(self.shard(), scan).await?;
        let read = |(_, row): &(Name, Row)| rows::read(row).ok_or_else(|| Error::damaged("an output of a run"));
        page.rows.iter().map(read).collect()
    }

    /// The parked steps that say most about a run: first failed and unknown ones, wherever they stand, then others;
    /// some of each.
    pub(crate) async fn parked_first(&self, run: &crate::runs::Run) -> Result<Vec<(StepId, Row, Parked)>, Error> {
        Ok(self.parked_first_of(&run.plan.keys).await?.0)
    }

    /// The same, and how many failed in all.
    pub(crate) async fn parked_first_of(&self, keys: &Keys) -> Result<(Vec<(StepId, Row, Parked)>, usize), Error> {
        const EACH_MAX: usize = 1000;
        let (mut telling, mut others, mut after, mut failed) = (Vec::new(), Vec::new(), None, 0);
        loop {
            let page = self.parked(keys, after, SCAN_ROWS_MAX).await?;
            let Some((last, ..)) = page.last() else { break };
            after = Some(*last);
            for parked in page {
                failed += usize::from(matches!(parked.2.why, Why::Failed(_)));
                let kind = if parked.2.why == Why::NotStarted { &mut others } else { &mut telling };
                if kind.len() < EACH_MAX {
                    kind.push(parked);
                }
            }
        }
        telling.append(&mut others);
        Ok((telling, failed))
    }

    /// The parked steps of a run with such a reason, in order; at most `max`.
    pub(crate) async fn parked_for(
        &self,
        keys: &Keys,
        is_it: impl Fn(&Why) -> bool,
        max: usize,
    ) -> Result<Vec<(StepId, Row, Parked)>, Error> {
        let (mut found, mut after) = (Vec::new(), None);
        while found.len() < max {
            let page = self.parked(keys, after, SCAN_ROWS_MAX).await?;
            let Some((last, ..)) = page.last() else { break };
            after = Some(*last);
            found.extend(page.into_iter().filter(|(_, _, parked)| is_it(&parked.why)));
        }
        found.truncate(max);
        Ok(found)
    }

    /// A page of the parked steps of a run, in order, after this one.
    pub(crate) async fn parked(
        &self,
        keys: &Keys,
        after: Option<StepId>,
        limit: usize,
    ) -> Result<Vec<(StepId, Row, Parked)>, Error> {
        let after = after.map(|step| keys.parked(step).name);
        let scan = Scan::of(keys.rows.clone(), limit).prefix(b"p").after(after);
        let page = self.records.scan(self.shard(), scan).await?;
        let read = |(name, row): &(Name, Row)| {
            let parked = StepId::from_bytes(&name.as_bytes()[1..]).zip(rows::read(row));
            let (step, parked) = parked.ok_or_else(|| Error::damaged("a step that was put aside"))?;
            Ok((step, row.clone(), parked))
        };
        page.rows.iter().map(read).collect()
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

/// The failures among parked steps.
pub(crate) fn failures(parked: &[(StepId, Row, Parked)]) -> Vec<Failed> {
    let failed = |(_, _, parked): &(_, _, Parked)| match &parked.why {
        Why::Failed(failed) => Some(failed.clone()),
        Why::NotStarted | Why::Unknown { .. } | Why::Suspended { .. } => None,
    };
    parked.iter().filter_map(failed).collect()
}
