//! Removes what an ended run left, in small steps, and folds it when nothing is left.

use super::{Job, Work, ending::failures};
use crate::{Error, worker::Seat};
use onceflow_core::{
    limits::REMOVE_ROWS_MAX,
    protocol::{
        ids::FrameId,
        rows::{self, Failed},
        run,
    },
};
use onceflow_store::records::Scan;

impl Work<'_> {
    /// Removes all rows of the run, then the run.
    pub(super) async fn tear_down(&self, seat: &Seat) -> Result<Option<Job>, Error> {
        let Some(_) = self.worker.shared.read_run(self.run.plan.keys.run).await? else { return Ok(None) };
        let (shared, plan, state) = (&self.worker.shared, &self.run.plan, self.run.state());
        let failed = failures(&self.parked().await?);
        // The failures are told by what remains, so they are written down before the steps that failed go.
        self.note_failures(&failed).await?;
        // Whoever goes on with this after a crash needs the frame of the run, as for any step; it goes with the run.
        let frame = plan.keys.frame(FrameId::ROOT).name;
        loop {
            let scan = Scan::of(plan.keys.rows.clone(), REMOVE_ROWS_MAX);
            let page = shared.records.scan(shared.shard(), scan).await?;
            let rows: Vec<_> =
                page.rows.into_iter().filter(|(name, _)| name.as_bytes() != NOTED && *name != frame).collect();
            if rows.is_empty() && !page.more {
                break;
            }
            let draft = run::remove(plan, state, &rows);
            if shared.commit_outside(draft, &[]).await?.is_err() && !shared.is_ours(&self.taken).await? {
                return Ok(None);
            }
        }
        let noted = shared.row(plan.keys.rows.key(NOTED)).await?;
        let (failed, undone) = noted.as_deref().and_then(rows::read::<Noted>).unwrap_or_default();
        let status = run::removed_status(state.phase, failed, undone);
        self.fold(seat, status, vec![], Some(&self.taken.frame), &[]).await
    }

    /// Adds to what is told of the failures of a run.
    pub(super) async fn note_failures(&self, failed: &[Failed]) -> Result<(), Error> {
        self.add_to_notes(|noted| {
            for failed in
                failed.iter().filter(|failed| !noted.0.contains(failed)).take(FAILURES_MAX).cloned().collect::<Vec<_>>()
            {
                noted.0.push(failed);
            }
        })
        .await
    }

    /// Adds to what could not be undone.
    pub(super) async fn note_not_undone(&self, failed: Failed) -> Result<(), Error> {
        self.add_to_notes(|noted| {
            if !noted.1.contains(&failed) {
                noted.1.push(failed.clone());
            }
        })
        .await
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
            let mut batch = onceflow_core::Batch::new(shared.shard());
            batch.require_seen(key.clone(), seen).put(key.clone(), rows::write(&noted));
            if shared.records.commit(batch).await?.is_applied() {
                return Ok(());
            }
        }
    }
}

/// Failures that are told of a run: enough to see what went wrong.
const FAILURES_MAX: usize = 100;

/// The row that says what went wrong, while a run is removed.
const NOTED: &[u8] = b"x";

type Noted = (Vec<Failed>, Vec<Failed>);
