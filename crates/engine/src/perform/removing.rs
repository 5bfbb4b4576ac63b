//! Removes the rows of an ended run, in small batches, and folds the run when none are left.

use super::{Job, Work, folding::fold, notes::FailureNotes, task::cancel_suspended};
use crate::{Error, kernel::WorkCommit, run_rows::NOTED, shared::Shared};
use onceflow_core::{
    ValueChange,
    limits::REMOVE_ROWS_MAX,
    model::Program,
    protocol::{
        claim,
        draft::Draft,
        ids::{FrameId, RunId, StepId, TEARDOWN},
        keys::{Keys, SETTINGS},
        rows::{self, ReadyStep, RunState},
        run,
    },
};
use onceflow_store::records::Scan;
use std::sync::Arc;

/// Removes all rows of the run, then the run.
pub(super) async fn tear_down(work: &Work<'_>) -> Result<Option<Job>, Error> {
    assert_eq!(work.taken.step.node, TEARDOWN, "a run is removed by the one step that is made for it");
    let Some(_) = work.shared().runs.read_run(work.run.plan.keys.run).await? else { return Ok(None) };
    let (shared, plan, state) = (work.shared(), &work.run.plan, work.run.state());
    // A large run takes longer to remove than a claim stands.
    let ours = work.heartbeat(false);
    let failed = work.rows().failures().await?;
    // The record that remains reports the failures, so they are noted before the failed steps go.
    FailureNotes::of(work).add_failures(&failed).await?;
    cancel_suspended(work.shared(), plan).await?;
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
        if !shared.commit_outside(draft, &[]).await?.is_applied() && !shared.kernel.is_ours(&work.taken.claim).await? {
            return Ok(None);
        }
    }
    drop(ours);
    if state.phase.expires() {
        return vanish(work, state).await;
    }
    let (failed, undone) = work.rows().noted().await?;
    let status = run::removed_status(state.phase, failed, undone);
    fold(work, state, status, vec![], (&[], &[])).await
}

/// Removes the frame of a run whose history has ended, and the run with it.
async fn vanish(work: &Work<'_>, state: RunState) -> Result<Option<Job>, Error> {
    let (shared, plan, header) = (work.shared(), &work.run.plan, &work.run.header);
    let now = shared.records.now().await?;
    let decide = |state: RunState| run::vanish(plan, state, &work.taken, &work.taken.frame, header, now);
    let committed = work.commit_as_seen(state, &[], None, decide).await?;
    let WorkCommit::Committed { next, .. } = committed else { return Ok(None) };
    shared.runs.forget(plan.keys.run);
    shared.runs.was_removed(plan.keys.run);
    shared.signals.progress(plan.keys.run).notify_waiters();
    shared.signals.due.notify_one();
    Ok(next)
}

/// Removes the rows of a generation that is not valid any more.
pub(super) async fn remove_plan(
    shared: &Shared,
    job: &Job,
    run: RunId,
    step: StepId,
    ready_step: &ReadyStep,
) -> Result<Option<Job>, Error> {
    let programs: Vec<_> = ready_step.inputs.iter().filter_map(|received| received.outcome.value()?.stored()).collect();
    let Some(program) = programs.first() else { return Err(Error::damaged("a plan without a program")) };
    let program = shared.values.read_all(&program.id).await?;
    let program: Program = rows::read(&program).ok_or_else(|| Error::damaged("the program of a plan"))?;
    let plan = shared.runs.plan(Keys::new(run, ready_step.generation), Arc::new(program));
    cancel_suspended(shared, &plan).await?;
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
    for (key, other, ready_step) in shared.queues().ready_steps(&plan).await? {
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
