//! Removes runs that have ended, and remains that are due.

use super::{Engine, finished::DueRemoval, superseded::remove_superseded};
use crate::{Error, Summary};
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
    /// Removes a run that has ended, as it was seen; its key is free then, and everything it held goes: outputs, record,
    /// kept values, logs. Durable when it returns; true if there was such a run.
    ///
    /// The removal concerns the run of this summary alone: a run that took its place, or another plan of the same run,
    /// keeps all its rows, whenever it started. Of a start and a removal at the same time one comes first, and the other
    /// sees all of it.
    ///
    /// # Errors
    /// [`Error::Refused`] if the run has not ended, has changed since it was seen, or is attended by another worker.
    pub fn forget<'a>(&'a self, seen: &'a Summary) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let shared = &self.shared;
            let refused = |why: &str| Error::Refused { key: seen.key.clone(), why: why.to_owned() };
            loop {
                let head = keys::heads().key(&seen.key);
                let Some(row) = shared.row(head.clone()).await? else { return Ok(false) };
                let finished = match rows::read::<Head>(&row) {
                    Some(Head::Finished(finished)) => finished,
                    Some(Head::Active(id)) if id == seen.id && !seen.status.has_ended() => {
                        return Err(refused("has not ended"));
                    }
                    Some(Head::Active(_)) => return Err(Error::changed(&seen.key)),
                    None => return Err(Error::damaged(format!("the row of run `{}`", seen.key))),
                };
                if (finished.run, finished.generation.0) != (seen.id, seen.generation) {
                    return Err(Error::changed(&seen.key));
                }
                let attended = keys::attended().key(&seen.key);
                let (attendance, attendant) = self.attended_by_another(&attended).await?;
                if let Some(other) = attendant {
                    return Err(refused(&format!("is attended by process {}", other.worker.about.pid)));
                }
                let mut batch = Batch::new(shared.shard());
                batch.require_equals(head.clone(), row).delete(head).require_seen(attended, attendance);
                let due = run::supersede(&mut batch, &finished, shared.records.now().await?);
                if let CommitResult::Applied(committed) = shared.records.commit(batch).await? {
                    // A crash from here on leaves the row that schedules the removal.
                    let key = seen.key.as_bytes();
                    remove_superseded(&shared.kernel, &shared.runs, &due.name, key, finished.run).await?;
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
            let rows = self.shared.kernel.all_rows(keys::dues(), b"").await?;
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
                DueRemoval::of(shared).remove().await?;
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
            self.shared.registry.tidy().await?;
            DueRemoval::of(&self.shared).remove().await.map(drop)
        })
    }
}
