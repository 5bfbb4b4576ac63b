//! The registration of a worker: one small row that says who it is, what it takes and when it sent its last heartbeat.
//! The row is written when something in it changes and a few times per lease, and deleted when the worker leaves.
//!
//! A registration stands for one lease after its last heartbeat, as long as the worker's claims. After that others
//! delete it; a worker that was only slow registers again. Where processes share a directory of lock files
//! ([`Options::locks`](crate::Options::locks)), the lock decides instead, and a killed worker is noticed at once.
//!
//! No step is started or refused because of a registration; it decides where steps wait whose task no worker offers,
//! and who [attends](crate::engine::attend) a run.

use super::Worker;
use crate::{
    Error,
    engine::attend::Attended,
    options::About,
    shared::{Shared, lock},
};
use futures_util::future::select;
use onceflow_core::{
    Batch, Key, Name, Timestamp,
    limits::SCAN_ROWS_MAX,
    protocol::{ids::RunId, keys, rows},
};
use onceflow_store::{
    alive::{self, LockDirectory},
    records::Scan,
    values::limits::UPLOAD_MS_MAX,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::Ordering::SeqCst},
};

/// The longest time between a change and the registration that says so.
const CHANGED_MS: u64 = 1000;

/// Runs whose tasks are counted one by one.
const RUNS_MAX: usize = 64;

/// The row of a worker. The heartbeat and the lease stand first, so that other versions can tell when it is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Registration {
    pub(crate) seen: Timestamp,
    pub(crate) lease_ms: u64,
    pub(crate) started: Timestamp,
    pub(crate) about: About,
    /// Classes, and how many of their steps it runs at a time, if that is bounded.
    pub(crate) classes: Vec<(String, Option<u64>)>,
    /// Tasks, with their versions; a task without one runs in any version.
    pub(crate) tasks: Vec<(String, Option<String>)>,
    pub(crate) draining: bool,
    pub(crate) counts: Counts,
    /// The writer of its large values, so that uploads it did not commit are deleted when it is gone.
    pub(crate) writer: u128,
    /// The directory in which it holds a lock file while its process lives.
    pub(crate) locks: Option<LockDirectory>,
    /// It takes steps. Otherwise it only writes large values, and sends no heartbeats.
    pub(crate) works: bool,
}

/// The heartbeat was sent then, for so long: the lease has ended.
fn is_over((seen, lease_ms): (Timestamp, u64), now: Timestamp) -> bool {
    seen.plus_ms(lease_ms) <= now
}

/// Counters of a worker's tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Committed tasks.
    pub(crate) done: u64,
    /// Steps that others took over because its heartbeats came too late.
    pub(crate) lost: u64,
    /// Committed tasks by run, of the last few runs.
    pub(crate) runs: BTreeMap<RunId, u64>,
}

/// This worker's registration: what it counts, and the row as it was last written.
#[derive(Default)]
pub(crate) struct Announcement {
    counts: Mutex<Counts>,
    row: tokio::sync::Mutex<Written>,
}

#[derive(Default)]
struct Written {
    /// The registration, and when it was written on this machine's clock.
    last: Option<(Registration, Timestamp)>,
    /// The worker has left: nothing more is written.
    has_left: bool,
}

impl Announcement {
    /// Counts a task that took effect.
    pub(crate) fn count_done(&self, run: RunId) {
        let mut counts = lock(&self.counts);
        counts.done += 1;
        *counts.runs.entry(run).or_default() += 1;
        if counts.runs.len() > RUNS_MAX {
            let other = counts.runs.keys().copied().find(|other| *other != run);
            other.map(|other| counts.runs.remove(&other));
        }
    }

    /// The number of tasks of a run that took effect here.
    pub(crate) fn done_of(&self, run: RunId) -> u64 {
        lock(&self.counts).runs.get(&run).copied().unwrap_or(0)
    }

    /// Counts a step that another worker took over.
    pub(crate) fn count_lost(&self) {
        lock(&self.counts).lost += 1;
    }
}

impl Worker {
    /// Keeps the registration of this worker until it has stopped and has no step left.
    pub(super) async fn announce(self: Arc<Self>) {
        let pause_ms = CHANGED_MS.min(self.every_ms());
        loop {
            let mut stopped = std::pin::pin!(self.drain.stopped.notified());
            stopped.as_mut().enable();
            if self.drain.is_drained() {
                return;
            }
            match self.register().await {
                Ok(false) => {}
                Ok(true) => {
                    if let Err(error) = self.shared.tidy_workers().await {
                        tracing::debug!(%error, "failed to delete registrations of workers that are gone; retrying");
                    }
                }
                Err(error) => tracing::warn!(
                    %error,
                    "failed to write the registration of worker {:032x}; retrying in {pause_ms} ms",
                    self.shared.kernel.fences.incarnation()
                ),
            }
            select(self.shared.world.sleep(pause_ms), stopped).await;
        }
    }

    fn every_ms(&self) -> u64 {
        (self.shared.options.lease_ms / 3).max(1)
    }

    /// Writes the registration, if it changed or a heartbeat is due; true in the latter case.
    pub(crate) async fn register(&self) -> Result<bool, Error> {
        let Some(about) = &self.shared.options.about else { return Ok(false) };
        let mut written = self.announcement.row.lock().await;
        if written.has_left {
            return Ok(false);
        }
        let now = self.shared.world.clock();
        let (last, at) = written.last.as_ref().map_or((None, now), |(last, at)| (Some(last), *at));
        let is_due = last.is_none() || now < at || now.ms_since(at) >= self.every_ms();
        let registration = self.registration(about, last)?;
        if !is_due && last == Some(&registration) {
            return Ok(false);
        }
        let seen = self.shared.records.now().await?;
        let started = last.map_or(seen, |last| last.started);
        let registration = Registration { seen, started, ..registration };
        let mut batch = Batch::new(self.shared.shard());
        batch.put(self.registration_key(), rows::write(&registration));
        let _applied = self.shared.records.commit(batch).await?;
        written.last = Some((registration, now));
        drop(written);
        if self.shared.options.is_shared() {
            if self.look_for_unserved().await? {
                self.capacity.ring();
            }
            self.tidy_unserved().await?;
        }
        Ok(is_due)
    }

    /// The registration as it would be now, with the times of the last one.
    fn registration(&self, about: &About, last: Option<&Registration>) -> Result<Registration, Error> {
        let (seen, started) = last.map_or((Timestamp::ZERO, Timestamp::ZERO), |last| (last.seen, last.started));
        let locks = match last {
            Some(last) => last.locks.clone(),
            None => self.shared.hold_lock()?,
        };
        Ok(Registration {
            seen,
            lease_ms: self.shared.options.lease_ms,
            started,
            about: about.clone(),
            classes: self.capacity.classes(),
            tasks: lock(&self.shared.tasks).offers(),
            draining: self.is_stopping(),
            counts: lock(&self.announcement.counts).clone(),
            writer: self.shared.values.writer(),
            locks,
            works: true,
        })
    }

    fn registration_key(&self) -> Key {
        keys::workers().key(self.shared.kernel.fences.incarnation().to_be_bytes())
    }

    /// Deletes the registration, and with it the place beside a run.
    pub(crate) async fn leave(&self) {
        let Some(about) = &self.shared.options.about else { return };
        let mut written = self.announcement.row.lock().await;
        written.has_left = true;
        let incarnation = self.shared.kernel.fences.incarnation();
        if let Err(error) = self.shared.unregister(incarnation, about).await {
            tracing::debug!(%error, "failed to delete the registration of worker {incarnation:032x}; it ends with its lease");
        }
    }
}

impl Shared {
    /// Takes this engine's lock file, if it has one, for as long as the engine is open.
    fn hold_lock(&self) -> Result<Option<LockDirectory>, Error> {
        if !self.options.locks {
            return Ok(None);
        }
        self.small.hold_lock()?;
        Ok(LockDirectory::at(&self.options.scratch))
    }

    /// Registers this engine as a writer of large values, if it is not registered as a worker: uploads that it does not
    /// commit are deleted when its process has ended, or, where that cannot be seen, after the longest time that an
    /// upload may take.
    pub(crate) async fn register_writer(&self) -> Result<(), onceflow_store::values::Error> {
        let locks = match self.hold_lock() {
            Ok(Some(locks)) => locks,
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::warn!(%error, "failed to lock a file; if this process is killed, its uploads stay for a day");
                return Ok(());
            }
        };
        let seen = self.records.now().await?;
        let registration = Registration {
            seen,
            lease_ms: UPLOAD_MS_MAX,
            started: seen,
            about: About::default(),
            classes: vec![],
            tasks: vec![],
            draining: false,
            counts: Counts::default(),
            writer: self.values.writer(),
            locks: Some(locks),
            works: false,
        };
        let key = keys::workers().key(self.kernel.fences.incarnation().to_be_bytes());
        let mut batch = Batch::new(self.shard());
        batch.require_absent(key.clone()).put(key, rows::write(&registration));
        // Refused if it is registered already.
        if self.records.commit(batch).await?.is_applied() {
            self.is_writer.store(true, SeqCst);
        }
        Ok(())
    }

    /// Deletes the registration of a writer that never worked.
    pub(crate) async fn leave_writers(&self) {
        let incarnation = self.kernel.fences.incarnation();
        if self.is_writer.swap(false, SeqCst)
            && let Err(error) = self.unregister(incarnation, &About::default()).await
        {
            tracing::debug!(%error, "failed to delete the registration of writer {incarnation:032x}; others will");
        }
    }

    /// All registrations, by worker. Those of another version may not be readable.
    pub(crate) async fn registrations(&self) -> Result<Vec<(Name, onceflow_core::Row)>, Error> {
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

    /// The worker is gone: its process has ended, or, where that cannot be seen from here, its lease has.
    pub(crate) fn is_gone(&self, incarnation: u128, worker: &Registration, now: Timestamp) -> bool {
        match self.has_ended(incarnation, worker) {
            Some(has_ended) => has_ended,
            None => is_over((worker.seen, worker.lease_ms), now),
        }
    }

    /// The process of a worker has ended; `None` if its lock file is not in a directory that this process sees.
    pub(crate) fn has_ended(&self, incarnation: u128, worker: &Registration) -> Option<bool> {
        let theirs = worker.locks.as_ref().filter(|_| self.options.locks)?;
        if LockDirectory::at(&self.options.scratch).as_ref() != Some(theirs) {
            return None;
        }
        let path = self.options.scratch.join(crate::data::lock_name(incarnation));
        alive::has_ended(&path).inspect_err(|error| tracing::debug!(%error, ?path, "failed to look at a lock")).ok()
    }

    /// Deletes the registrations of workers that are gone, and uploads they did not commit; returns their number.
    pub(crate) async fn tidy_workers(&self) -> Result<usize, Error> {
        let all = self.registrations().await?;
        if all.is_empty() {
            return Ok(0);
        }
        let (now, mut gone) = (self.records.now().await?, 0);
        for (name, row) in all {
            let Some(incarnation) = incarnation(&name) else { continue };
            let Some(worker) = rows::read::<Registration>(&row) else {
                // Another version wrote it: only its lease can be read.
                if rows::read::<(Timestamp, u64)>(&row).is_none_or(|lease| is_over(lease, now)) {
                    let mut batch = Batch::new(self.shard());
                    let key = keys::workers().key(&name);
                    batch.require_equals(key.clone(), row).delete(key);
                    gone += usize::from(self.records.commit(batch).await?.is_applied());
                }
                continue;
            };
            if self.is_gone(incarnation, &worker, now) {
                // First the uploads: a process that stops here leaves the registration to the next one.
                self.values.abandon_writer(worker.writer).await?;
                gone += usize::from(self.unregister_if(incarnation, &worker.about, Some(row)).await?);
            }
        }
        Ok(gone)
    }

    /// Deletes a registration, and the place its worker has beside a run.
    pub(crate) async fn unregister(&self, incarnation: u128, about: &About) -> Result<(), Error> {
        self.unregister_if(incarnation, about, None).await.map(drop)
    }

    async fn unregister_if(
        &self,
        incarnation: u128,
        about: &About,
        unchanged: Option<onceflow_core::Row>,
    ) -> Result<bool, Error> {
        let mut batch = Batch::new(self.shard());
        let key = keys::workers().key(incarnation.to_be_bytes());
        if let Some(row) = unchanged {
            batch.require_equals(key.clone(), row);
        }
        batch.delete(key);
        let is_deleted = self.records.commit(batch).await?.is_applied();
        if let Some(run) = about.run.as_deref().filter(|_| is_deleted) {
            self.delete_attended(run, |attended: &Attended| attended.by == incarnation).await?;
        }
        Ok(is_deleted)
    }
}

/// The worker whose registration has this name.
pub(crate) fn incarnation(name: &Name) -> Option<u128> {
    Some(u128::from_be_bytes(name.as_bytes().try_into().ok()?))
}
