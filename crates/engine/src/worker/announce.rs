//! Says that this worker is there: one small row, written when something about it changes and a few times in the life of
//! a lease, removed when it leaves. A row says how long it stands without another: as long as the worker's claims. After
//! that it counts no more, and the others remove it; one that was only slow says it again.
//!
//! The row is for people. Nothing is decided by it but where steps wait whose task nobody offers.

use super::Worker;
use crate::{
    Error,
    options::About,
    shared::{Shared, lock},
};
use futures_util::future::select;
use onceflow_core::{
    Batch, Key, Name, Timestamp,
    limits::SCAN_ROWS_MAX,
    protocol::{ids::RunId, keys, rows},
};
use onceflow_store::records::Scan;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::Ordering::SeqCst},
};

/// How often it looks whether there is something new to say.
const LOOK_MS: u64 = 1000;

/// Runs whose steps are counted apart.
const RUNS_MAX: usize = 64;

/// What a worker says. When it was said stands first, so that those who know nothing else of it can tell how old it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Said {
    pub(crate) seen: Timestamp,
    pub(crate) lease_ms: u64,
    pub(crate) started: Timestamp,
    pub(crate) about: About,
    /// Classes, and how many of their steps it has at a time, if that is bounded.
    pub(crate) classes: Vec<(String, Option<u64>)>,
    /// Tasks, with their version; those without one it runs in any.
    pub(crate) tasks: Vec<(String, Option<String>)>,
    pub(crate) draining: bool,
    pub(crate) did: Did,
    /// As what it writes large values, so that those it did not come to commit go when it is dead.
    pub(crate) writer: u128,
}

impl Said {
    /// Whether nobody need believe it any more.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        is_over((self.seen, self.lease_ms), now)
    }
}

/// Whether what was said then, for so long, is over.
fn is_over((seen, lease_ms): (Timestamp, u64), now: Timestamp) -> bool {
    seen.plus_ms(lease_ms) <= now
}

/// What a worker did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Did {
    /// Tasks that took effect.
    pub(crate) done: u64,
    /// Steps that were taken from it, because it was too slow to say it lives.
    pub(crate) lost: u64,
    /// Tasks that took effect, by run: of the last few runs.
    pub(crate) runs: BTreeMap<RunId, u64>,
}

/// What is known here of what this worker says.
#[derive(Default)]
pub(crate) struct Saying {
    did: Mutex<Did>,
    /// Whether it has left: then it says nothing more.
    left: tokio::sync::Mutex<bool>,
}

impl Saying {
    /// A task took effect.
    pub(crate) fn did(&self, run: RunId) {
        let mut did = lock(&self.did);
        did.done += 1;
        *did.runs.entry(run).or_default() += 1;
        if did.runs.len() > RUNS_MAX {
            let other = did.runs.keys().copied().find(|other| *other != run);
            other.map(|other| did.runs.remove(&other));
        }
    }

    /// How many tasks of a run took effect here.
    pub(crate) fn done_of(&self, run: RunId) -> u64 {
        lock(&self.did).runs.get(&run).copied().unwrap_or(0)
    }

    /// A step was taken from it.
    pub(crate) fn lost(&self) {
        lock(&self.did).lost += 1;
    }
}

impl Worker {
    /// Says that it is there, until it has nothing to do any more.
    pub(super) async fn announce(self: Arc<Self>) {
        let Some(about) = self.shared.options.about.clone() else { return };
        let every_ms = (self.shared.options.lease_ms / 3).max(1);
        let pause_ms = LOOK_MS.min(every_ms);
        let (mut before, mut at): (Option<Said>, _) = (None, self.shared.world.clock());
        loop {
            let mut stopped = std::pin::pin!(self.stopped.notified());
            stopped.as_mut().enable();
            if self.is_stopping() && self.busy.load(SeqCst) == 0 {
                return;
            }
            let now = self.shared.world.clock();
            let is_due = before.is_none() || now < at || now.ms_since(at) >= every_ms;
            match self.say(&about, before.as_ref(), is_due).await {
                Ok(Some(said)) => (before, at) = (Some(said), now),
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "that this worker is there could not be said"),
            }
            if is_due && let Err(error) = self.shared.tidy_workers().await {
                tracing::debug!(%error, "what workers that are gone have said is left");
            }
            select(self.shared.world.sleep(pause_ms), stopped).await;
        }
    }

    /// Says it, if there is something new or it is time to.
    async fn say(&self, about: &About, before: Option<&Said>, is_due: bool) -> Result<Option<Said>, Error> {
        let said = self.said(about, before);
        if !is_due && before == Some(&said) {
            return Ok(None);
        }
        let left = self.saying.left.lock().await;
        if *left {
            return Ok(None);
        }
        let seen = self.shared.records.now().await?;
        let started = before.map_or(seen, |before| before.started);
        let said = Said { seen, started, ..said };
        let mut batch = Batch::new(self.shared.shard());
        batch.put(self.name(), rows::write(&said));
        let _applied = self.shared.records.commit(batch).await?;
        drop(left);
        if self.look_for_unserved().await? {
            self.capacity.ring();
        }
        self.tidy_unserved().await?;
        Ok(Some(said))
    }

    /// What there is to say, as of the last time.
    fn said(&self, about: &About, before: Option<&Said>) -> Said {
        let did = lock(&self.saying.did).clone();
        let (seen, started) = before.map_or((Timestamp::ZERO, Timestamp::ZERO), |before| (before.seen, before.started));
        let tasks = lock(&self.shared.tasks).offers();
        Said {
            seen,
            lease_ms: self.shared.options.lease_ms,
            started,
            about: about.clone(),
            classes: self.capacity.classes(),
            tasks,
            draining: self.is_stopping(),
            did,
            writer: self.shared.values.writer(),
        }
    }

    fn name(&self) -> Key {
        keys::workers().key(self.shared.fences.incarnation().to_be_bytes())
    }

    /// It is not there any more.
    pub(crate) async fn leave(&self) {
        if self.shared.options.about.is_none() {
            return;
        }
        let mut left = self.saying.left.lock().await;
        *left = true;
        let mut batch = Batch::new(self.shared.shard());
        batch.delete(self.name());
        if let Err(error) = self.shared.records.commit(batch).await {
            tracing::debug!(%error, "that this worker has left could not be said; others will see");
        }
    }
}

impl Shared {
    /// All that workers have said, by their names. What another version said may not be readable.
    pub(crate) async fn workers_said(&self) -> Result<Vec<(Name, onceflow_core::Row)>, Error> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let scan = Scan::of(keys::workers(), SCAN_ROWS_MAX).after(after);
            let page = self.records.scan(self.shard(), scan).await?;
            after = page.rows.last().map(|(name, _)| name.clone());
            found.extend(page.rows);
            if !page.more {
                return Ok(found);
            }
        }
    }

    /// Removes what workers have said that are gone; how many there were.
    pub(crate) async fn tidy_workers(&self) -> Result<usize, Error> {
        let all = self.workers_said().await?;
        if all.is_empty() {
            return Ok(0);
        }
        let (now, mut gone) = (self.records.now().await?, 0);
        for (name, row) in all {
            if rows::read::<(Timestamp, u64)>(&row).is_none_or(|said| is_over(said, now)) {
                // First what it left: whoever is stopped here leaves the row to the next one.
                if let Some(said) = rows::read::<Said>(&row) {
                    self.values.abandon_writer(said.writer).await?;
                }
                let mut batch = Batch::new(self.shard());
                let key = keys::workers().key(&name);
                batch.require_equals(key.clone(), row).delete(key);
                gone += usize::from(self.records.commit(batch).await?.is_applied());
            }
        }
        Ok(gone)
    }
}
