//! Removes the remains of runs when they are due: the row of a finished run when its history ends, kept values when
//! `keep` does, and all rows of a failed run that was not retried when its history ends.

use super::{kept::KeptValues, superseded::remove_superseded};
use crate::{Error, kernel::Kernel, runs::Runs, shared::Shared};
use onceflow_core::{
    Batch, Name, Timestamp,
    protocol::{
        ids::{Generation, RunId},
        keys::{self, Keys},
        rows::{self, Head, Phase, RunState},
        run::{self, Due},
    },
};
use onceflow_store::records::Scan;

/// The removal of the remains of runs that are due.
pub(crate) struct DueRemoval<'a> {
    kernel: &'a Kernel,
    runs: &'a Runs,
}

impl<'a> DueRemoval<'a> {
    pub(crate) fn of(shared: &'a Shared) -> Self {
        DueRemoval { kernel: &shared.kernel, runs: &shared.runs }
    }

    /// Removes everything that is due; returns the next deadline.
    pub(crate) async fn remove(&self) -> Result<Option<Timestamp>, Error> {
        loop {
            let now = self.kernel.values.trusted_now().await?;
            let page = self.kernel.records.scan(self.kernel.shard, Scan::of(keys::dues(), 1)).await?;
            let Some((name, row)) = page.rows.first() else { return Ok(None) };
            let (deadline, key) = keys::of_due(name.as_bytes()).ok_or_else(|| Error::damaged("what is due"))?;
            if deadline > now {
                return Ok(Some(deadline));
            }
            // Other tasks may have waited long enough for this thread.
            onceflow_store::world::yield_now().await;
            match rows::read::<Due>(row).ok_or_else(|| Error::damaged("what is due"))? {
                Due::History(run) => self.forget_run(name, key, run).await?,
                Due::Keep(run) => self.forget_kept(name, key, run).await?,
                Due::Failed(run) => self.expire(name, deadline, run).await?,
                Due::Superseded(run) => remove_superseded(self.kernel, self.runs, name, key, run).await?,
            }
        }
    }

    async fn forget_run(&self, due: &Name, key: &[u8], run: RunId) -> Result<(), Error> {
        let mut batch = Batch::new(self.kernel.shard);
        let due = keys::dues().key(due);
        batch.require_present(due.clone()).delete(due);
        let head = keys::heads().key(key);
        let seen = self.kernel.row(head.clone()).await?;
        let found = seen.as_deref().and_then(rows::read::<Head>);
        let now = self.kernel.values.trusted_now().await?;
        // The run may be active again, or have ended again later.
        let lives = match &found {
            Some(Head::Active(active)) => *active == run,
            Some(Head::Finished(finished)) if finished.run == run => {
                finished.ended.plus_ms(finished.header.history_ms) > now
            }
            _ => false,
        };
        if !lives {
            batch.require_seen(head.clone(), seen);
            run::delete_history(&mut batch, run);
            if matches!(found, Some(Head::Finished(finished)) if finished.run == run) {
                batch.delete(head);
            }
        }
        // After a refused batch the row is read again.
        if self.kernel.records.commit(batch).await?.is_applied() && !lives {
            self.runs.was_removed(run);
        }
        Ok(())
    }

    /// Expires a failed run if it still stands as it did when its removal was scheduled. Workers then remove its rows.
    async fn expire(&self, due: &Name, until: Timestamp, id: RunId) -> Result<(), Error> {
        let run = match self.runs.read_run(id).await {
            Err(error) if error.is_damage() => {
                tracing::error!(%error, run = %id, "a run that failed cannot be removed");
                None
            }
            run => run?,
        };
        if let Some(run) = run.filter(|run| run.state().phase == Phase::Failed { until }) {
            let draft = run::turn(&run.plan, run.state(), Phase::Expired);
            if self.kernel.commit_outside(draft.into(), &[]).await?.is_applied() {
                run.set_state(RunState { phase: Phase::Expired, ..run.state() });
            }
            return Ok(());
        }
        let mut batch = Batch::new(self.kernel.shard);
        let due = keys::dues().key(due);
        batch.require_present(due.clone()).delete(due);
        let _again_if_refused = self.kernel.records.commit(batch).await?;
        Ok(())
    }

    /// Removes the kept values of a run, unless it is active again; then they go with that generation.
    async fn forget_kept(&self, due: &Name, key: &[u8], run: RunId) -> Result<(), Error> {
        let due = keys::dues().key(due);
        let keys = Keys::new(run, Generation(0));
        let row = self.kernel.row(keys::heads().key(key)).await?;
        let head = row.as_deref().and_then(rows::read::<Head>);
        let now = self.kernel.values.trusted_now().await?;
        let lives = match head {
            Some(Head::Active(active)) => active == run,
            Some(Head::Finished(finished)) if finished.run == run => {
                finished.header.keep_ms.is_some_and(|keep| finished.ended.plus_ms(keep) > now)
            }
            _ => false,
        };
        if !lives {
            KeptValues::new(self.kernel, &keys).remove_all().await?;
        }
        let mut batch = Batch::new(self.kernel.shard);
        batch.require_present(due.clone()).delete(due);
        let _again_if_refused = self.kernel.records.commit(batch).await?;
        Ok(())
    }
}
