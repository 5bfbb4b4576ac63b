//! Removes runs that have ended, and remains that are due.

use super::Engine;
use crate::Error;
use futures_util::future::{BoxFuture, Either, select};
use onceflow_core::{
    Batch,
    protocol::{
        ids::RunId,
        keys,
        rows::{self, Head},
        run,
    },
};
use onceflow_store::CommitResult;
use std::pin::pin;

impl Engine {
    /// Removes a run that has ended; its key is free then, and everything it held goes: outputs, record, kept values,
    /// logs. Durable when it returns; true if there was such a run.
    ///
    /// # Errors
    /// [`Error::Refused`] if the run has not ended.
    pub fn forget<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let shared = &self.shared;
            loop {
                let head = keys::heads().key(key);
                let Some(row) = shared.row(head.clone()).await? else { return Ok(false) };
                let finished = match rows::read::<Head>(&row) {
                    Some(Head::Finished(finished)) => finished,
                    Some(Head::Active(_)) => {
                        return Err(Error::Refused { key: key.to_owned(), why: String::from("has not ended") });
                    }
                    None => return Err(Error::damaged(format!("the row of run `{key}`"))),
                };
                let mut batch = Batch::new(shared.shard());
                batch.require_equals(head.clone(), row).delete(head);
                let due = run::supersede(&mut batch, &finished, shared.records.now().await?);
                if let CommitResult::Applied(committed) = shared.records.commit(batch).await? {
                    // A crash from here on leaves the row that schedules the removal.
                    shared.remove_superseded(&due.name, key.as_bytes(), finished.run).await?;
                    shared.records.durable(committed.position).await?;
                    return Ok(true);
                }
            }
        })
    }

    /// The keys of runs of which something is due for removal now.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn due(&self) -> BoxFuture<'_, Result<Vec<String>, Error>> {
        Box::pin(async move {
            let now = self.shared.values.trusted_now().await?;
            let rows = self.shared.all_rows(keys::dues(), b"").await?;
            let due = |name: &[u8]| match keys::of_due(name) {
                Some((deadline, key)) if deadline <= now => Some(String::from_utf8_lossy(key).into_owned()),
                _ => None,
            };
            Ok(rows.iter().filter_map(|(name, _)| due(name.as_bytes())).collect())
        })
    }

    /// The runs that this engine has removed completely since the last call, so that a caller that keeps data beside
    /// the store can remove that too. Of very many only some are listed: data beside the store can also be compared
    /// with it.
    pub fn take_removed(&self) -> Vec<RunId> {
        self.shared.runs.take_removed()
    }

    /// Removes what is due and reclaims unreferenced values, for at most `ms_max` milliseconds; true if nothing is left
    /// to do now. Stopping half-way leaves only work that the next call finds.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn clean_up(&self, ms_max: u64) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(async move {
            let shared = &self.shared;
            let cleaning = async {
                shared.remove_due().await?;
                shared.values.reclaim_all().await?;
                Ok(true)
            };
            match select(pin!(cleaning), shared.world.sleep(ms_max)).await {
                Either::Left((cleaned, _)) => cleaned,
                Either::Right(_) => Ok(false),
            }
        })
    }

    /// Removes the remains of runs that are due, and registrations of workers that are gone, now instead of when a
    /// working engine gets to it.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn remove_due(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.shared.tidy_workers().await?;
            self.shared.remove_due().await.map(drop)
        })
    }
}
