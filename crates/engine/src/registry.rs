//! The registrations of workers and writers: a row for each, which others read to see who is there, and delete when it is
//! gone. Whose steps a gone worker had is not decided here: its claims end by themselves (`kernel/heartbeat.rs`).

use crate::{
    Attendant, Error, Options, WorkerInfo, data::SmallFiles, engine::attend::Attended, kernel::Kernel, options::About,
};
use onceflow_core::{
    Batch, Key, Name, Row, Timestamp,
    protocol::{ids::RunId, keys, rows},
};
use onceflow_store::{
    alive::{self, LockDirectory},
    values::limits::UPLOAD_MS_MAX,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

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

/// The registrations of a store, and this engine's own.
pub(crate) struct Registry {
    kernel: Arc<Kernel>,
    /// Holds this engine's lock file.
    small: Arc<SmallFiles>,
    /// The directory of lock files, if processes can see by them which others have ended.
    locks: Option<PathBuf>,
    /// This engine is registered as a writer of large values that does not work.
    is_writer: AtomicBool,
}

impl Registry {
    pub(crate) fn new(kernel: Arc<Kernel>, small: Arc<SmallFiles>, options: &Options) -> Self {
        let locks = options.locks.then(|| options.scratch.clone());
        Registry { kernel, small, locks, is_writer: AtomicBool::new(false) }
    }

    /// The unique and permanent id of this engine.
    pub(crate) fn incarnation(&self) -> u128 {
        self.kernel.fences.incarnation()
    }

    /// Takes this engine's lock file, if it has one, for as long as the engine is open.
    pub(crate) fn hold_lock(&self) -> Result<Option<LockDirectory>, Error> {
        let Some(locks) = &self.locks else { return Ok(None) };
        self.small.hold_lock()?;
        Ok(LockDirectory::at(locks))
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
        let seen = self.kernel.records.now().await?;
        let registration = Registration {
            seen,
            lease_ms: UPLOAD_MS_MAX,
            started: seen,
            about: About::default(),
            classes: vec![],
            tasks: vec![],
            draining: false,
            counts: Counts::default(),
            writer: self.kernel.values.writer(),
            locks: Some(locks),
            works: false,
        };
        let key = registration_key(self.incarnation());
        let mut batch = Batch::new(self.kernel.shard);
        batch.require_absent(key.clone()).put(key, rows::write(&registration));
        // Refused if it is registered already.
        if self.kernel.records.commit(batch).await?.is_applied() {
            self.is_writer.store(true, SeqCst);
        }
        Ok(())
    }

    /// Deletes the registration of a writer that never worked.
    pub(crate) async fn leave_writers(&self) {
        let incarnation = self.incarnation();
        if self.is_writer.swap(false, SeqCst)
            && let Err(error) = self.unregister(incarnation, &About::default()).await
        {
            tracing::debug!(%error, "failed to delete the registration of writer {incarnation:032x}; others will");
        }
    }

    /// All registrations, by worker. Those of another version may not be readable.
    async fn all(&self) -> Result<Vec<(Name, Row)>, Error> {
        self.kernel.all_rows(keys::workers(), b"").await
    }

    /// The registration of a worker, if it is there and readable.
    pub(crate) async fn of(&self, incarnation: u128) -> Result<Option<Registration>, Error> {
        let row = self.kernel.row(registration_key(incarnation)).await?;
        Ok(row.as_deref().and_then(rows::read))
    }

    /// The registered workers that are not gone, without their steps.
    pub(crate) async fn workers(&self) -> Result<Vec<WorkerInfo>, Error> {
        self.workers_that(|incarnation, worker, now| !self.is_gone(incarnation, worker, now)).await
    }

    /// The registered workers whose process has ended, as far as that is seen from here.
    pub(crate) async fn ended_workers(&self) -> Result<Vec<WorkerInfo>, Error> {
        self.workers_that(|incarnation, worker, _| self.has_ended(incarnation, worker) == Some(true)).await
    }

    async fn workers_that(
        &self,
        is_wanted: impl Fn(u128, &Registration, Timestamp) -> bool,
    ) -> Result<Vec<WorkerInfo>, Error> {
        let all = self.all().await?;
        if all.is_empty() {
            return Ok(vec![]);
        }
        let now = self.kernel.records.now().await?;
        let info = |(name, row): &(Name, Row)| {
            let (incarnation, worker) = incarnation(name).zip(rows::read::<Registration>(row))?;
            let is_wanted = worker.works && is_wanted(incarnation, &worker, now);
            is_wanted.then(|| WorkerInfo::of(incarnation, worker, now))
        };
        Ok(all.iter().filter_map(info).collect())
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
        let (theirs, locks) = worker.locks.as_ref().zip(self.locks.as_ref())?;
        if LockDirectory::at(locks).as_ref() != Some(theirs) {
            return None;
        }
        let path = locks.join(crate::data::lock_name(incarnation));
        alive::has_ended(&path).inspect_err(|error| tracing::debug!(%error, ?path, "failed to look at a lock")).ok()
    }

    /// Deletes the registrations of workers that are gone, and uploads they did not commit; returns their number.
    pub(crate) async fn tidy(&self) -> Result<usize, Error> {
        let all = self.all().await?;
        if all.is_empty() {
            return Ok(0);
        }
        let (now, mut gone) = (self.kernel.records.now().await?, 0);
        for (name, row) in all {
            let Some(incarnation) = incarnation(&name) else { continue };
            let Some(worker) = rows::read::<Registration>(&row) else {
                // Another version wrote it: only its lease can be read.
                if rows::read::<(Timestamp, u64)>(&row).is_none_or(|lease| is_over(lease, now)) {
                    let mut batch = Batch::new(self.kernel.shard);
                    let key = keys::workers().key(&name);
                    batch.require_equals(key.clone(), row).delete(key);
                    gone += usize::from(self.kernel.records.commit(batch).await?.is_applied());
                }
                continue;
            };
            if self.is_gone(incarnation, &worker, now) {
                // First the uploads: a process that stops here leaves the registration to the next one.
                self.kernel.values.abandon_writer(worker.writer).await?;
                gone += usize::from(self.unregister_if(incarnation, &worker.about, Some(row)).await?);
            }
        }
        Ok(gone)
    }

    /// Deletes a registration, and the place its worker has beside a run.
    pub(crate) async fn unregister(&self, incarnation: u128, about: &About) -> Result<(), Error> {
        self.unregister_if(incarnation, about, None).await.map(drop)
    }

    async fn unregister_if(&self, incarnation: u128, about: &About, unchanged: Option<Row>) -> Result<bool, Error> {
        let mut batch = Batch::new(self.kernel.shard);
        let key = registration_key(incarnation);
        if let Some(row) = unchanged {
            batch.require_equals(key.clone(), row);
        }
        batch.delete(key);
        let is_deleted = self.kernel.records.commit(batch).await?.is_applied();
        if let Some(run) = about.run.as_deref().filter(|_| is_deleted) {
            self.delete_attended(run, |attended: &Attended| attended.by == incarnation).await?;
        }
        Ok(is_deleted)
    }

    /// The worker that attends a run, unless it is gone.
    pub(crate) async fn attendant(&self, attended: &Attended) -> Result<Option<Attendant>, Error> {
        let Some(worker) = self.of(attended.by).await? else { return Ok(None) };
        let now = self.kernel.records.now().await?;
        let worker = (!self.is_gone(attended.by, &worker, now)).then(|| WorkerInfo::of(attended.by, worker, now));
        Ok(worker.map(|worker| Attendant { worker, has_started: attended.has_started }))
    }

    /// Deletes the row of an attended run if it names such a worker.
    async fn delete_attended(&self, run: &str, is_its: impl Fn(&Attended) -> bool) -> Result<(), Error> {
        let key = keys::attended().key(run);
        if let Some(row) = self.kernel.row(key.clone()).await?
            && rows::read::<Attended>(&row).is_none_or(|attended| is_its(&attended))
        {
            let mut batch = Batch::new(self.kernel.shard);
            batch.require_equals(key.clone(), row).delete(key);
            let _refused_if_taken_over = self.kernel.records.commit(batch).await?;
        }
        Ok(())
    }
}

/// The row of a worker's registration.
pub(crate) fn registration_key(incarnation: u128) -> Key {
    keys::workers().key(incarnation.to_be_bytes())
}

/// The worker whose registration has this name.
fn incarnation(name: &Name) -> Option<u128> {
    Some(u128::from_be_bytes(name.as_bytes().try_into().ok()?))
}
