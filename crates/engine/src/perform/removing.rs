//! Removes the rows of an ended run, in small batches, and folds the run when none are left.

use super::{Job, Work, ending::failures};
use crate::{
    Error,
    kernel::WorkCommit,
    worker::{Slot, Worker},
};
use noted::{NOTED, Noted};
use onceflow_core::{
    ValueChange,
    limits::REMOVE_ROWS_MAX,
    model::Program,
    protocol::{
        claim,
        draft::Draft,
        ids::{FrameId, RunId, StepId},
        keys::{Keys, SETTINGS},
        rows::{self, Failed, ReadyStep, RunState},
        run,
    },
};
use onceflow_store::records::Scan;
use std::sync::Arc;

impl Work<'_> {
    /// Removes all rows of the run, then the run.
    pub(super) async fn tear_down(&self, slot: &Slot) -> Result<Option<Job>, Error> {
        let Some(_) = self.worker.shared.runs.read_run(self.run.plan.keys.run).await? else { return Ok(None) };
        let (shared, plan, state) = (&self.worker.shared, &self.run.plan, self.run.state());
        // A large run takes longer to remove than a claim stands.
        let ours = self.heartbeat(false);
        let failed = failures(&self.parked().await?);
        // The record that remains reports the failures, so they are noted before the failed steps go.
        self.note_failures(&failed).await?;
        self.worker.cancel_suspended(plan).await?;
        // A worker that resumes this after a crash needs the frame of the run, as for any step; it goes with the run.
        let frame = plan.keys.frame(FrameId::ROOT).name;
        loop {
            let scan = Scan::of(plan.keys.rows.clone(), REMOVE_ROWS_MAX);
            let page = shared.records.scan(shared.shard(), scan).await?;
            // The state names the settings until the run is gone.
            let stays =
                |name: &onceflow_core::Name| name.as_bytes() == NOTED || name.as_bytes() == SETTINGS || *name == frame;
            let rows: Vec<_> = page.rows.into_iter().filter(|(name, _)| !stays(name)).collect();
            if rows.is_empty() && !page.more {
                break;
            }
            let draft = run::remove(plan, &rows);
            if !shared.commit_outside(draft, &[]).await?.is_applied()
                && !shared.kernel.is_ours(&self.taken.claim).await?
            {
                return Ok(None);
            }
        }
        drop(ours);
        if state.phase.expires() {
            return self.vanish(slot, state).await;
        }
        let noted = shared.row(plan.keys.rows.key(NOTED)).await?;
        let (failed, undone) = noted.as_deref().and_then(rows::read::<Noted>).unwrap_or_default();
        let status = run::removed_status(state.phase, failed, undone);
        self.fold(slot, state, status, vec![], Some(&self.taken.frame), (&[], &[])).await
    }

    /// Removes the frame of a run whose history has ended, and the run with it.
    async fn vanish(&self, slot: &Slot, state: RunState) -> Result<Option<Job>, Error> {
        let (shared, plan, header) = (&self.worker.shared, &self.run.plan, &self.run.header);
        let now = shared.records.now().await?;
        let decide = |state: RunState| run::vanish(plan, state, &self.taken, &self.taken.frame, header, now);
        let committed = self.commit_as_seen(slot, state, &[], None, decide).await?;
        let WorkCommit::Committed { next, .. } = committed else { return Ok(None) };
        shared.runs.forget(plan.keys.run);
        shared.runs.was_removed(plan.keys.run);
        shared.signals.progress(plan.keys.run).notify_waiters();
        shared.signals.due.notify_one();
        Ok(next)
    }

    /// Notes failures of the run.
    pub(super) async fn note_failures(&self, failed: &[Failed]) -> Result<(), Error> {
        self.add_to_notes(|noted| {
            for failed in failed
                .iter()
                .filter(|failed| !noted.0.contains(failed))
                .take(FAILURES_MAX.saturating_sub(noted.0.len()))
                .cloned()
                .collect::<Vec<_>>()
            {
                noted.0.push(failed);
            }
        })
        .await
    }

    /// Notes a step that could not be undone.
    pub(super) async fn note_not_undone(&self, failed: Failed) -> Result<(), Error> {
        self.add_to_notes(|noted| {
            noted.1.retain(|other| other.address != failed.address);
            noted.1.push(failed.clone());
        })
        .await
    }

    /// Forgets that a step could not be undone: its compensation is retried.
    pub(super) async fn note_tried_again(&self, address: &str) -> Result<(), Error> {
        self.add_to_notes(|noted| noted.1.retain(|other| *other.address != *address)).await
    }

    async fn add_to_notes(&self, add: impl Fn(&mut Noted)) -> Result<(), Error> {
        let (shared, plan) = (&self.worker.shared, &self.run.plan);
        let key = plan.keys.rows.key(NOTED);
        loop {
            let seen = shared.row(key.clone()).await?;
            let mut noted = seen.as_deref().and_then(rows::read::<Noted>).unwrap_or_default();
            let before = noted.clone();
            add(&mut noted);
            if noted == before {
                return Ok(());
            }
            // Requires the claim: a worker that was too slow would write it for a run that is gone.
            let mut batch = self.taken.claim.holding(shared.shard());
            batch.require_seen(key.clone(), seen).put(key.clone(), rows::write(&noted));
            if shared.records.commit(batch).await?.is_applied() || !shared.kernel.is_ours(&self.taken.claim).await? {
                return Ok(());
            }
        }
    }
}

/// Failures noted per run: enough to see what went wrong.
const FAILURES_MAX: usize = 100;

pub(crate) mod noted {
    //! The failures of a run while it is undone and removed.

    use onceflow_core::protocol::rows::Failed;

    /// The name of the row.
    pub(crate) const NOTED: &[u8] = b"x";

    /// The failures, and the steps that could not be undone.
    pub(crate) type Noted = (Vec<Failed>, Vec<Failed>);
}

impl Worker {
    /// Removes the rows of a generation that is not valid any more.
    pub(super) async fn remove_plan(
        &self,
        job: &Job,
        run: RunId,
        step: StepId,
        ready_step: &ReadyStep,
    ) -> Result<Option<Job>, Error> {
        let shared = &self.shared;
        let programs: Vec<_> =
            ready_step.inputs.iter().filter_map(|received| received.outcome.value()?.stored()).collect();
        let Some(program) = programs.first() else { return Err(Error::damaged("a plan without a program")) };
        let program = shared.values.read_all(&program.id).await?;
        let program: Program = rows::read(&program).ok_or_else(|| Error::damaged("the program of a plan"))?;
        let plan = shared.runs.plan(Keys::new(run, ready_step.generation), Arc::new(program));
        self.cancel_suspended(&plan).await?;
        loop {
            let scan = Scan::of(plan.keys.rows.clone(), REMOVE_ROWS_MAX);
            let page = shared.records.scan(shared.shard(), scan).await?;
            let rows: Vec<_> = page.rows.into_iter().filter(|(name, _)| name.as_bytes() != SETTINGS).collect();
            if rows.is_empty() && !page.more {
                break;
            }
            // Refused if another worker does the same; then its rows are gone.
            let _again = shared.commit_outside(run::remove(&plan, &rows), &[]).await?;
        }
        // Settings say in which queues steps of the plan may stand, so they go after these.
        let settings = shared.row(plan.keys.settings()).await?;
        settings.as_deref().and_then(rows::read).into_iter().for_each(|settings| plan.set_settings(settings));
        for (key, other, ready_step) in shared.ready_steps(&plan).await? {
            if other != step {
                let mut draft = Draft::of_new_run(&plan);
                draft.batch.require_present(key.clone());
                run::release_ticket(&plan, &mut draft, other, &ready_step);
                draft.batch.delete(claim::claim_key(&key)).delete(claim::deadline_key(&key)).delete(key);
                let _again = shared.commit_outside(draft, &[]).await?;
            }
        }
        let mut draft = Draft::of_new_run(&plan);
        draft.batch = job.claim.drop_work(shared.shard());
        draft.batch.delete(plan.keys.settings());
        for (name, stored) in run::program_edges(&plan).into_iter().zip(programs) {
            draft.changes.push(ValueChange::clear(name, stored.id.clone()));
        }
        let _not_ours_if_refused = shared.commit_outside(draft, &[]).await?;
        Ok(None)
    }
}
