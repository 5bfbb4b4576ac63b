//! Removes runs that have ended, and what is due.

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
    /// Forgets a run that has ended; its key is free then, and what it held goes: outputs, record, kept values, logs.
    /// Durable when it returns; whether there was one.
    ///
    /// # Errors
    /// [`Error::Refused`] if it has not ended.
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
                    // A crash from here on leaves the row that says what is to go.
                    shared.remove_superseded(&due.name, key.as_bytes(), finished.run).await?;
                    shared.records.durable(committed.position).await?;
                    return Ok(true);
                }
            }
        })
    }

    /// The keys of runs of which something would be removed now, because its time has come.
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

    /// The runs of which this engine has removed everything since it was asked last, so that whoever keeps something beside
    /// the store can do the same. Of very many only some: what is beside the store can also be compared with it.
    pub fn take_removed(&self) -> Vec<RunId> {
        self.shared.take_removed()
    }

    /// Removes what is due and reclaims what nothing holds, for at most so long; whether nothing is left to do now. Stopping
    /// half-way leaves only what the next call finds.
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

    /// Removes what remains of runs whose time has come, and of workers that are long gone, now instead of when an engine
    /// at work gets to it.
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
