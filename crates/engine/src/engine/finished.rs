//! Removes the remains of runs when they are due: the row of a finished run when its history ends, kept values when
//! `keep` does, and all rows of a failed run that was not retried when its history ends.

use crate::{Error, shared::Shared};
use futures_util::future::select;
use onceflow_core::{
    Batch, Name, Row, Timestamp,
    limits::REMOVE_ROWS_MAX,
    protocol::{
        draft::stored,
        ids::{Generation, RunId},
        keys::{self, Keys},
        rows::{self, Head, Memo, Phase, RunState},
        run::{self, Due},
    },
};
use onceflow_store::{records::Scan, values::ValueChange};
use std::sync::Arc;

/// The longest sleep between two looks: another process may have finished a run.
const LOOK_MS: u64 = 60_000;

/// The least time between two looks because the store has changed: a timer may have been set by a process that is gone.
const HEARD_MS: u64 = 1000;

impl Shared {
    /// Wakes suspended steps and removes what is due, and sleeps until the next deadline: the one sleeper for both.
    pub(super) async fn keep_house(self: Arc<Self>) {
        while !self.signals.is_closed() {
            let (pause, changed) = match self.until_due().await {
                Ok(pause_ms) => (pause_ms, self.signals.due.notified()),
                Err(error) => {
                    tracing::warn!(%error, "failed to do what is due; retrying in 1 s");
                    (1000, self.signals.due.notified())
                }
            };
            // Nothing that another process did is in such a hurry, but a deadline of this one is.
            let heard = async {
                self.world.sleep(HEARD_MS).await;
                self.signals.heard.notified().await;
            };
            let heard = std::pin::pin!(heard);
            select(self.world.sleep(pause), select(std::pin::pin!(changed), heard)).await;
        }
    }

    /// Does everything that is due; returns the milliseconds until the next deadline.
    async fn until_due(&self) -> Result<u64, Error> {
        let wakes = self.fire_timers().await?;
        let removes = self.remove_due().await?;
        let pause = |next: Option<Timestamp>, now| next.map_or(LOOK_MS, |next| next.ms_since(now).clamp(1, LOOK_MS));
        let removes_ms = pause(removes, self.values.trusted_now().await.unwrap_or(Timestamp::ZERO));
        Ok(removes_ms.min(pause(wakes, self.records.now().await?)))
    }

    /// Removes everything that is due; returns the next deadline.
    pub(crate) async fn remove_due(&self) -> Result<Option<Timestamp>, Error> {
        loop {
            let now = self.values.trusted_now().await?;
            let page = self.records.scan(self.shard(), Scan::of(keys::dues(), 1)).await?;
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
                Due::Superseded(run) => self.remove_superseded(name, key, run).await?,
            }
        }
    }

    async fn forget_run(&self, due: &Name, key: &[u8], run: RunId) -> Result<(), Error> {
        let mut batch = Batch::new(self.shard());
        let due = keys::dues().key(due);
        batch.require_present(due.clone()).delete(due);
        let head = keys::heads().key(key);
        let seen = self.row(head.clone()).await?;
        let found = seen.as_deref().and_then(rows::read::<Head>);
        let now = self.values.trusted_now().await?;
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
        if self.records.commit(batch).await?.is_applied() && !lives {
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
            if self.commit_outside(draft, &[]).await?.is_applied() {
                run.set_state(RunState { phase: Phase::Expired, ..run.state() });
            }
            return Ok(());
        }
        let mut batch = Batch::new(self.shard());
        let due = keys::dues().key(due);
        batch.require_present(due.clone()).delete(due);
        let _again_if_refused = self.records.commit(batch).await?;
        Ok(())
    }

    /// Removes the kept values of a run, unless it is active again; then they go with that generation.
    async fn forget_kept(&self, due: &Name, key: &[u8], run: RunId) -> Result<(), Error> {
        let due = keys::dues().key(due);
        let keys = Keys::new(run, Generation(0));
        let row = self.row(keys::heads().key(key)).await?;
        let head = row.as_deref().and_then(rows::read::<Head>);
        let now = self.values.trusted_now().await?;
        let lives = match head {
            Some(Head::Active(active)) => active == run,
            Some(Head::Finished(finished)) if finished.run == run => {
                finished.header.keep_ms.is_some_and(|keep| finished.ended.plus_ms(keep) > now)
            }
            _ => false,
        };
        if !lives {
            self.remove_all_kept(&keys).await?;
        }
        let mut batch = Batch::new(self.shard());
        batch.require_present(due.clone()).delete(due);
        let _again_if_refused = self.records.commit(batch).await?;
        Ok(())
    }

    pub(super) async fn remove_all_kept(&self, keys: &Keys) -> Result<(), Error> {
        loop {
            let page = self.records.scan(self.shard(), Scan::of(keys.kept.clone(), REMOVE_ROWS_MAX)).await?;
            if page.rows.is_empty() {
                return Ok(());
            }
            self.remove_kept(keys, &page.rows).await?;
        }
    }

    /// Removes some rows of kept values, and releases the values.
    pub(super) async fn remove_kept(&self, keys: &Keys, rows: &[(Name, Row)]) -> Result<(), Error> {
        let mut batch = Batch::new(self.shard());
        let mut changes = Vec::new();
        for (name, row) in rows {
            let key = keys.kept.key(name);
            batch.require_present(key.clone()).delete(key);
            let memo = if name.as_bytes().first() == Some(&b'm') { rows::read::<Memo>(row) } else { None };
            for (port, outcome) in memo.iter().flat_map(|memo| memo.outputs.iter().enumerate()) {
                if let Some(stored) = stored(outcome) {
                    let edge = keys.kept_edge(name.as_bytes(), port as u16);
                    changes.push(ValueChange::clear(edge, stored.clone()));
                }
            }
            if batch.ops.len() + 3 * changes.len() > onceflow_core::limits::REMOVE_OPS_MAX {
                break;
            }
        }
        self.values.add_changes(&mut batch, &changes).await?;
        if let onceflow_store::CommitResult::Applied(committed) = self.records.commit(batch).await? {
            self.values.notify_committed(&committed);
        }
        Ok(())
    }
}

impl Shared {
    /// Reclaims values that nothing refers to any more, until the engine closes.
    pub(super) async fn reclaim(self: Arc<Self>) {
        let closed = async {
            loop {
                let progress = self.signals.progress(RunId([0; 8])).notified();
                if self.signals.is_closed() {
                    return;
                }
                progress.await;
            }
        };
        let reclaim = self.values.clone().reclaim_forever();
        if let futures_util::future::Either::Left((error, _)) =
            select(std::pin::pin!(reclaim), std::pin::pin!(closed)).await
        {
            tracing::error!(%error, "values are not reclaimed any more");
        }
    }
}
