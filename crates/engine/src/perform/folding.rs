//! Folds a run that has ended into one row, its outputs and its sealed record.

use super::{Job, Work};
use crate::{Error, RunStatus, events::EventKind, kernel::WorkCommit};
use onceflow_core::{
    Name, Row, Timestamp,
    payload::{Outcome, Stored},
    protocol::{
        ids::Generation,
        rows::{self, Finished, Header, Received, RunState, Status},
        run::{self, Fold},
    },
};
use onceflow_store::values::ValueChange;

/// Folds the run, in the state in which that was decided: a run that was cancelled in between is settled again. The
/// outputs that arrived and these registrations go with its rows.
pub(super) async fn fold(
    work: &Work<'_>,
    state: RunState,
    status: Status,
    outputs: Vec<(String, Outcome)>,
    (arrived, registrations): (&[Received], &[(Name, Row)]),
) -> Result<Option<Job>, Error> {
    let (shared, plan) = (work.shared(), &work.run.plan);
    let now = shared.records.now().await?;
    let how = RunStatus::from(&status);
    assert!(how.has_ended(), "run {} is folded while it is {how}", plan.keys.run);
    let (change, sealed) = seal(work, &status).await?;
    let header = work.run.header.clone();
    let fold = Fold {
        history_until: history_end(&header, now),
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
        let mut draft = run::fold(plan, state, &work.taken, Some(&work.taken.frame), &fold);
        run::release_outputs(plan, &mut draft, arrived);
        for (name, row) in registrations {
            run::drop_row(plan, &mut draft, name, row);
        }
        draft
    };
    let committed = work.commit_as_seen(state, &[change], Some(EventKind::DidEnd { how }), decide).await?;
    let WorkCommit::Committed { next, .. } = committed else { return Ok(None) };
    shared.runs.forget(plan.keys.run);
    shared.signals.progress(plan.keys.run).notify_waiters();
    shared.signals.due.notify_one();
    Ok(next)
}

/// The end of the history of a run that ends now.
pub(super) fn history_end(header: &Header, now: Timestamp) -> Timestamp {
    /// The shortest history: a caller that waits for the run, here or in another process, must be able to read its
    /// outputs.
    const HISTORY_MS_MIN: u64 = 2_000;
    now.plus_ms(header.history_ms.max(HISTORY_MS_MIN))
}

/// Stores the sealed record of a run: everything that can be asked beside its result.
async fn seal(work: &Work<'_>, status: &Status) -> Result<(ValueChange, Stored), Error> {
    let once_only = crate::engine::summary::once_only_of(work.shared(), &work.run).await?;
    let bytes = rows::write(&(&work.run.header, status, once_only));
    Ok(work.shared().values.put_bytes(bytes.to_vec()).await?)
}
