//! A worker: takes partitions, works on them in turn, and gives some back when others come. Any number of workers, in
//! one process or several, share the partitions of a pipeline; when one is killed, the others take over its partitions.

use super::{
    Runtime,
    claim::{self, PartitionClaim},
    desired::Desired,
    installed::InstalledStage,
    layout,
    meta::{ChunkPlace, Counts, Meta, Published},
    partition::{Advance, Partition, SHARD, Stop},
    quiet,
    sink_bytes::SinkTotal,
    worker_row::{self, WorkerRow, WorkerRows},
};
use crate::{data, error::StreamError};
use futures_util::{
    FutureExt,
    future::{Either, select},
};
use onceflow_core::{Batch, Fences, Key, Timestamp, limits::SCAN_ROWS_MAX};
use onceflow_store::{
    BoxFuture, Error,
    alive::{Alive, LockDirectory},
    records::{Scan, get_one},
};
use serde::{Deserialize, Serialize};
use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
};

/// The least time between two looks at the desired state by a worker that rests.
const LOOK_GAP_MS: u64 = 20;

/// The counts of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageCounts {
    /// The names of its steps.
    pub name: String,
    /// The counts of all its partitions together.
    pub counts: Counts,
}

/// The counts of a pipeline that has ended, or was drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamResult {
    /// The counts of every stage.
    pub stages: Vec<StageCounts>,
    /// All sources have ended and everything is written; false after a drain: the pipeline goes on when it is run again.
    pub has_ended: bool,
    /// The bytes that every sink was given, once the pipeline has ended.
    pub sinks: Vec<SinkTotal>,
}

pub(crate) struct Worker {
    runtime: Arc<Runtime>,
    fences: Fences,
    /// Claimed partitions; one without memory is read when its turn comes.
    held: Vec<(PartitionClaim, Option<Partition>)>,
    heartbeat_at: Timestamp,
    /// The lock file by which others know that this process lives.
    alive: Option<Alive>,
    /// This worker's part of the partitions.
    share: usize,
    /// It began at this time of the store's clock.
    began: Timestamp,
    /// The desired state of the pipeline, as this worker last read it.
    desired: Desired,
    /// Ends when a batch rings on the store: the desired state may have changed. `None` to read it in any case.
    bell: Option<BoxFuture<'static, ()>>,
}

impl Worker {
    pub(crate) fn new(runtime: Arc<Runtime>) -> Self {
        let fences = Fences::new(runtime.world.random());
        let alive = worker_row::lock(runtime.locks.as_deref(), fences.incarnation());
        let (held, heartbeat_at, began) = (Vec::new(), Timestamp::ZERO, Timestamp::NEVER);
        Worker { runtime, fences, held, heartbeat_at, alive, share: 1, began, desired: Desired::default(), bell: None }
    }

    /// Works until the pipeline has ended.
    pub(crate) async fn run(&mut self) -> Result<StreamResult, StreamError> {
        if let Some(result) = finish(&self.runtime).await? {
            return Ok(result);
        }
        self.began = self.runtime.records.now().await?;
        loop {
            match self.turn().await {
                Ok(None) => {}
                Ok(Some(result)) => {
                    self.leave().await?;
                    return Ok(result);
                }
                Err(error @ (StreamError::Cancelled { .. } | StreamError::Superseded { .. })) => {
                    self.leave().await?;
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives all partitions back, and deletes the row that announces this worker.
    async fn leave(&mut self) -> Result<(), StreamError> {
        for (claim, _) in std::mem::take(&mut self.held) {
            claim.release(&*self.runtime.records, &self.runtime.keys).await?;
        }
        let mut batch = Batch::new(SHARD);
        batch.delete(self.runtime.keys.worker(self.fences.incarnation()));
        let committed = self.runtime.records.commit(batch).await?;
        Ok(self.runtime.records.durable(committed.position()).await?)
    }

    /// One turn of every partition; answers the result once the pipeline has ended.
    async fn turn(&mut self) -> Result<Option<StreamResult>, StreamError> {
        let runtime = self.runtime.clone();
        let rung = runtime.control.rung();
        match self.look_at_desired().await {
            Err(StreamError::Store(error)) => self.forget(&error)?,
            looked => looked?,
        }
        if self.desired.is_cancelled {
            return Err(StreamError::Cancelled { name: runtime.name.clone() });
        }
        // Partitions that take nothing more from sources at the beginning of this turn have nothing left after an idle one.
        let (drains, pauses) =
            (runtime.control.is_draining() || self.desired.drains(self.began), self.desired.is_paused);
        runtime.holds_sources.store(drains || pauses, Relaxed);
        runtime.is_paused.store(pauses, Relaxed);
        match self.keep_claims().await {
            Ok(true) => {}
            Ok(false) => return Err(StreamError::Removed { name: runtime.name.clone() }),
            Err(error) => self.forget(&error)?,
        }
        // The last stages first: they make room for the others.
        self.held.sort_by_key(|(claim, _)| std::cmp::Reverse(claim.station));
        let (mut has_worked, rested) = self.advance_all(true).await?;
        if !has_worked && rested {
            (has_worked, _) = self.advance_all(false).await?;
        }
        if has_worked {
            tokio::task::yield_now().await;
            return Ok(None);
        }
        match finish(&runtime).await {
            Ok(None) => {}
            Err(StreamError::Store(error)) => self.forget(&error)?,
            ended => return ended,
        }
        // Calls, and writes to slow sinks, go on to their end.
        let waits = self.held.iter_mut().filter_map(|(_, memory)| memory.as_mut()).any(Partition::waits_outside);
        if drains && !waits {
            return Ok(Some(StreamResult { stages: counts(&runtime).await?, has_ended: false, sinks: Vec::new() }));
        }
        let is_quiet = pauses && !waits && self.is_quiet().await?;
        // In a quiet pipeline that is paused there is nothing to look for but the desired state.
        let ms = if is_quiet { runtime.options.lease_ms / 3 } else { runtime.options.idle_ms };
        self.rest(select(Box::pin(rung), runtime.world.sleep(ms))).await?;
        Ok(None)
    }

    /// Nothing of the pipeline is on its way.
    async fn is_quiet(&mut self) -> Result<bool, StreamError> {
        let runtime = self.runtime.clone();
        let is_quiet = quiet::is_quiet(&*runtime.records, &runtime.keys, &runtime.installed).await;
        match is_quiet {
            Err(StreamError::Store(error)) => self.forget(&error).map(|()| false),
            is_quiet => is_quiet,
        }
    }

    /// Waits for the end of a rest, or until something else is desired.
    async fn rest(&mut self, mut rest: impl Future + Unpin) -> Result<(), StreamError> {
        let before = self.desired;
        while self.desired == before {
            let Some(bell) = &mut self.bell else {
                rest.await;
                return Ok(());
            };
            if let Either::Left(_) = select(&mut rest, bell).await {
                return Ok(());
            }
            self.bell = None;
            // A store that others work on rings all the time, and any may ring for no reason.
            let gap = self.runtime.world.sleep(LOOK_GAP_MS);
            if let Either::Left(_) = select(&mut rest, gap).await {
                return Ok(());
            }
            match self.look_at_desired().await {
                Err(StreamError::Store(error)) => self.forget(&error)?,
                looked => looked?,
            }
        }
        Ok(())
    }

    /// Reads the desired state if a batch has rung since it was last read.
    async fn look_at_desired(&mut self) -> Result<(), StreamError> {
        if self.bell.as_mut().is_some_and(|bell| bell.now_or_never().is_none()) {
            return Ok(());
        }
        self.bell = None;
        let (records, key) = (self.runtime.records.clone(), self.runtime.keys.desired());
        let seen = records.position();
        self.desired = Desired::from_row(get_one(&*records, SHARD, key).await?.as_ref())?;
        self.bell = Some(Box::pin(async move {
            // A store that cannot wait for a ring is asked again with the next heartbeat.
            if records.wait(SHARD, seen, Timestamp::NEVER).await.is_err() {
                std::future::pending::<()>().await;
            }
        }));
        Ok(())
    }

    /// One bundle of every partition, but for those that rest if they may. Answers whether any has worked, and whether any
    /// rests.
    async fn advance_all(&mut self, may_rest: bool) -> Result<(bool, bool), StreamError> {
        let (mut has_worked, mut rested, mut at) = (false, false, 0);
        let now = self.runtime.world.clock();
        while at < self.held.len() {
            if may_rest && self.held[at].1.as_ref().is_some_and(|partition| partition.rests(now)) {
                rested = true;
                at += 1;
                continue;
            }
            match self.advance(at).await? {
                Some(Advance::Ended) => {
                    self.held.remove(at);
                    has_worked = true;
                    continue;
                }
                Some(Advance::Worked) => has_worked = true,
                Some(Advance::Idle) | None => {}
            }
            at += 1;
        }
        Ok((has_worked, rested))
    }

    /// One bundle of a partition; `None` if it was lost, or failed in a way that is tried again.
    async fn advance(&mut self, at: usize) -> Result<Option<Advance>, StreamError> {
        let runtime = self.runtime.clone();
        let (claim, memory) = &mut self.held[at];
        let stage = runtime.place_in_plan(claim.station.stage);
        let work = async {
            let partition = match memory {
                Some(partition) => partition,
                None => memory.insert(Partition::load(runtime, claim.clone()).await?),
            };
            partition.advance().await
        };
        let stop = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(Ok(advance)) => return Ok(Some(advance)),
            Ok(Err(stop)) => stop,
            Err(panic) => {
                let message = panic.downcast_ref::<&str>().map(ToString::to_string);
                let message = message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                return Err(StreamError::Panicked { stage, message });
            }
        };
        match stop {
            Stop::Lost => {
                tracing::info!(stage, partition = claim.station.partition, "another worker has the partition");
                self.held.remove(at);
                Ok(None)
            }
            Stop::Oversized { records_max } => {
                let fewer = records_max.min(self.runtime.options.bundle_records) / 2;
                tracing::info!(
                    stage,
                    fewer,
                    "the state of a bundle does not fit a batch; taking fewer records at a time"
                );
                let mut lowered = self.runtime.lowered_bundles.lock().unwrap_or_else(PoisonError::into_inner);
                lowered.insert(claim.station, fewer.max(1));
                drop(lowered);
                *memory = None;
                Ok(None)
            }
            Stop::Failed(StreamError::Store(error)) => {
                self.held[at].1 = None;
                self.forget(&error)?;
                Ok(None)
            }
            Stop::Failed(error) => Err(error),
        }
    }

    /// Drops all memory after a failure of the store that may pass; others end the worker.
    fn forget(&mut self, error: &Error) -> Result<(), StreamError> {
        match error {
            Error::Unavailable(_) | Error::Unknown(_) | Error::Full(_) => {
                tracing::warn!(%error, "the store failed; its partitions are read again");
                self.held.iter_mut().for_each(|(_, memory)| *memory = None);
                Ok(())
            }
            Error::Invalid(_) | Error::Damaged(_) | Error::Lost(_) => Err(StreamError::Store(error.clone())),
        }
    }

    /// Sends heartbeats when they are due, frees partitions of dead workers, and takes or gives back partitions so that
    /// every worker has its share. False if the pipeline was removed.
    async fn keep_claims(&mut self) -> Result<bool, Error> {
        let (runtime, lease_ms) = (self.runtime.clone(), self.runtime.options.lease_ms);
        let (records, keys) = (&*runtime.records, &runtime.keys);
        let now = records.now().await?;
        if now >= self.heartbeat_at {
            let until = now.plus_ms(lease_ms);
            let mut announce = Batch::new(SHARD);
            let locks = self.alive.as_ref().and(runtime.locks.as_deref()).and_then(LockDirectory::at);
            let row = WorkerRow { until_ms: until.as_ms(), began_ms: self.began.as_ms(), locks };
            announce.put(keys.worker(self.fences.incarnation()), row.to_row());
            // Else a worker that hears of the removal late would leave its row behind.
            announce.require_present(keys.plan());
            if !records.commit(announce).await?.is_applied() {
                return Ok(false);
            }
            let mut kept = Vec::new();
            for (claim, memory) in std::mem::take(&mut self.held) {
                if claim.renew(records, keys, until).await? {
                    kept.push((claim, memory));
                }
            }
            self.held = kept;
            let workers = worker_row::read(records, keys, runtime.locks.as_deref()).await?;
            claim::free_expired(records, keys, now, &workers.killed).await?;
            self.share = count_share(&runtime, workers).await?;
            self.heartbeat_at = now.plus_ms(lease_ms / 3);
            self.bell = None;
            while self.held.len() > self.share {
                let (claim, _) = self.held.pop().expect("there are more than the share");
                claim.release(records, keys).await?;
            }
        }
        while self.held.len() < self.share {
            match PartitionClaim::take(records, keys, &self.fences, lease_ms).await? {
                Some(claim) => self.held.push((claim, None)),
                None => break,
            }
        }
        Ok(true)
    }
}

/// Returns how many of the partitions that have not ended one of the workers should have; deletes the rows of workers
/// that are gone.
async fn count_share(runtime: &Runtime, workers: WorkerRows) -> Result<usize, Error> {
    let (records, keys) = (&runtime.records, &runtime.keys);
    let live = workers.live();
    for (name, row) in workers.gone {
        let key = Key { group: keys.workers(), name };
        let mut batch = Batch::new(SHARD);
        batch.require_equals(key.clone(), row).delete(key);
        let _refused_if_renewed = records.commit(batch).await?;
    }
    let open = records.scan(SHARD, Scan::of(keys.queue(), SCAN_ROWS_MAX)).await?.rows.len();
    Ok(open.div_ceil(live.max(1)).max(1))
}

/// Answers the result if every partition has ended; the first worker to see it folds all rows into the result.
async fn finish(runtime: &Runtime) -> Result<Option<StreamResult>, StreamError> {
    let (records, keys) = (&*runtime.records, &runtime.keys);
    if let Some(row) = get_one(records, SHARD, keys.result()).await? {
        return Ok(Some(data::decode(&row)?));
    }
    let stations: Vec<_> = layout::stations(&runtime.stages).collect();
    let published: Vec<Key> = stations.iter().map(|station| keys.published(*station)).collect();
    for row in records.get(SHARD, &published).await? {
        if !Published::from_row(row.as_ref()).is_some_and(|published| published.has_ended) {
            return Ok(None);
        }
    }
    let metas: Vec<Key> = stations.iter().map(|station| keys.meta(*station)).collect();
    let stages = counts(runtime).await?;
    let mut sinks = Vec::new();
    for (station, row) in stations.iter().zip(records.get(SHARD, &metas).await?) {
        let stage = &runtime.stages[usize::from(station.stage)];
        let places = row.map(|row| Meta::from_row(&row)).transpose()?.map(|meta| meta.chunks).unwrap_or_default();
        let total = |(sink, place): (&String, ChunkPlace)| {
            SinkTotal::new(sink.clone(), station.partition, stage.partitions, place)
        };
        sinks.extend(stage.sinks.iter().zip(places).map(total));
    }
    let mut batch = Batch::new(SHARD);
    batch.require_absent(keys.result()).require_equals(keys.plan(), runtime.plan_row.clone());
    for meta in &metas {
        batch.require_present(meta.clone());
    }
    for key in metas.into_iter().chain(published) {
        batch.delete(key);
    }
    batch.delete_group(keys.workers()).delete(keys.desired());
    let result = StreamResult { stages, has_ended: true, sinks };
    batch.put(keys.result(), data::encode(&result));
    let committed = records.commit(batch).await?;
    records.durable(committed.position()).await?;
    Ok(committed.is_applied().then_some(result))
}

/// Returns the counts of all stages, as far as their bundles are committed.
async fn counts(runtime: &Runtime) -> Result<Vec<StageCounts>, StreamError> {
    let none = |stage: &InstalledStage| StageCounts { name: stage.name(), counts: Counts::default() };
    let mut stages: Vec<StageCounts> = runtime.installed.stages.iter().map(none).collect();
    let stations: Vec<_> = layout::stations(&runtime.stages).collect();
    let metas: Vec<Key> = stations.iter().map(|station| runtime.keys.meta(*station)).collect();
    for (station, row) in stations.iter().zip(runtime.records.get(SHARD, &metas).await?) {
        if let Some(row) = row {
            stages[runtime.place_in_plan(station.stage)].counts.add(&Meta::from_row(&row)?.counts);
        }
    }
    Ok(stages)
}
