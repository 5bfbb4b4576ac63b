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
    options::About,
    registry::{Counts, Registration, registration_key},
    shared::lock,
};
use futures_util::future::select;
use onceflow_core::{
    Batch, Timestamp,
    protocol::{ids::RunId, rows},
};
use std::sync::{Arc, Mutex};

/// The longest time between a change and the registration that says so.
const CHANGED_MS: u64 = 1000;

/// Runs whose tasks are counted one by one.
const RUNS_MAX: usize = 64;

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
                    if let Err(error) = self.shared.registry.tidy().await {
                        tracing::debug!(%error, "failed to delete registrations of workers that are gone; retrying");
                    }
                }
                Err(error) => tracing::warn!(
                    %error,
                    "failed to write the registration of worker {:032x}; retrying in {pause_ms} ms",
                    self.shared.registry.incarnation()
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
        batch.put(registration_key(self.shared.registry.incarnation()), rows::write(&registration));
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
            None => self.shared.registry.hold_lock()?,
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

    /// Deletes the registration, and with it the place beside a run.
    pub(crate) async fn leave(&self) {
        let Some(about) = &self.shared.options.about else { return };
        let mut written = self.announcement.row.lock().await;
        written.has_left = true;
        let incarnation = self.shared.registry.incarnation();
        if let Err(error) = self.shared.registry.unregister(incarnation, about).await {
            tracing::debug!(%error, "failed to delete the registration of worker {incarnation:032x}; it ends with its lease");
        }
    }
}
