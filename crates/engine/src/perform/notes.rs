//! The failures of a run while it is undone and removed, in a row of the run: the steps that failed go before the run
//! ends, and its record lists them.

use super::Work;
use crate::{
    Error,
    run_rows::{NOTED, Noted},
};
use onceflow_core::protocol::rows::{self, Failed};

/// Failures noted per run: enough to see what went wrong.
const FAILURES_MAX: usize = 100;

/// The notes, as a step of the end of the run changes them.
pub(super) struct FailureNotes<'a> {
    work: &'a Work<'a>,
}

impl<'a> FailureNotes<'a> {
    pub(super) fn of(work: &'a Work<'a>) -> Self {
        FailureNotes { work }
    }

    /// Notes failures of the run.
    pub(super) async fn add_failures(&self, failed: &[Failed]) -> Result<(), Error> {
        self.change(|noted| {
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
    pub(super) async fn add_not_undone(&self, failed: Failed) -> Result<(), Error> {
        self.change(|noted| {
            noted.1.retain(|other| other.address != failed.address);
            noted.1.push(failed.clone());
        })
        .await
    }

    /// Forgets that a step could not be undone: its compensation is retried.
    pub(super) async fn forget_not_undone(&self, address: &str) -> Result<(), Error> {
        self.change(|noted| noted.1.retain(|other| *other.address != *address)).await
    }

    async fn change(&self, add: impl Fn(&mut Noted)) -> Result<(), Error> {
        let (shared, plan) = (self.work.shared(), &self.work.run.plan);
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
            let mut batch = self.work.taken.claim.holding(shared.shard());
            batch.require_seen(key.clone(), seen).put(key.clone(), rows::write(&noted));
            if shared.records.commit(batch).await?.is_applied()
                || !shared.kernel.is_ours(&self.work.taken.claim).await?
            {
                return Ok(());
            }
        }
    }
}
