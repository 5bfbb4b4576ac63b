//! Lets a key be used for another run: what has ended is not remembered any more.

use super::Engine;
use crate::Error;
use futures_util::future::BoxFuture;
use onceflow_core::{
    Batch,
    protocol::{
        keys,
        rows::{self, Head},
    },
};
use onceflow_store::Outcome;

impl Engine {
    /// Forgets a run that has ended; its key is free then. What it held goes when it would have gone. Durable when it
    /// returns; whether there was one.
    ///
    /// # Errors
    /// [`Error::Refused`] if it has not ended.
    pub fn forget<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let shared = &self.shared;
            loop {
                let head = keys::heads().key(key);
                let Some(row) = shared.row(head.clone()).await? else { return Ok(false) };
                match rows::read::<Head>(&row) {
                    Some(Head::Finished(_)) => {}
                    Some(Head::Active(_)) => {
                        return Err(Error::Refused { key: key.to_owned(), why: String::from("has not ended") });
                    }
                    None => return Err(Error::damaged(format!("the row of run `{key}`"))),
                }
                let mut batch = Batch::new(shared.shard());
                batch.require_equals(head.clone(), row).delete(head);
                if let Outcome::Applied(committed) = shared.records.commit(batch).await? {
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
            let now = self.shared.records.now().await?;
            let rows = self.shared.all_rows(keys::dues(), b"").await?;
            let due = |name: &[u8]| match keys::of_due(name) {
                Some((deadline, key)) if deadline <= now => Some(String::from_utf8_lossy(key).into_owned()),
                _ => None,
            };
            Ok(rows.iter().filter_map(|(name, _)| due(name.as_bytes())).collect())
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
