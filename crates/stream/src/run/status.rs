//! Pipelines as others see them: which there are in a store, how far their stages are, and their removal. Reads the rows
//! that bundles commit, so every count is of whole bundles.

use super::{
    desired::Desired,
    installed::{InstalledPlan, InstalledStage},
    keys::{self, Station, StreamKeys},
    meta::{CatalogSize, Counts, Meta},
    partition::SHARD,
    quiet, waiting,
    worker::StreamResult,
    worker_row,
};
use crate::{data, error::StreamError, event_time::EventTime, pipeline::of_step};
use onceflow_core::{Batch, Key, limits::SCAN_ROWS_MAX};
use onceflow_store::{
    Records,
    records::{Scan, get_one},
};
use std::path::Path;

/// A stage of a pipeline at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageStatus {
    /// The names of its steps.
    pub name: String,
    /// Its partitions.
    pub partitions: u16,
    /// The counts of all its partitions together.
    pub counts: Counts,
    /// The earliest watermark of its partitions: no result on time is earlier.
    pub watermark: EventTime,
    /// How far its watermark is behind the furthest one of the pipeline, in milliseconds of event time; `None` before
    /// it has one, and after its end.
    pub lag_ms: Option<i64>,
    /// The system lag: how long the oldest input that no durable bundle has consumed waits, in milliseconds; 0 if none
    /// waits. `None` for a source, whose input is outside.
    pub system_lag_ms: Option<u64>,
    /// The size of its catalogs.
    pub catalog: CatalogSize,
    /// Its partitions that have ended.
    pub ended: u16,
}

impl StageStatus {
    fn new(name: String, partitions: u16) -> Self {
        StageStatus {
            name,
            partitions,
            counts: Counts::default(),
            watermark: EventTime::MAX,
            lag_ms: None,
            system_lag_ms: None,
            catalog: CatalogSize::default(),
            ended: 0,
        }
    }
}

/// Where a pipeline is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPhase {
    /// It works, or does as soon as it has a worker.
    Running,
    /// It is paused, and records that were read are still on their way.
    Pausing,
    /// It is paused, and nothing is on its way.
    Paused,
    /// All its workers drain.
    Draining,
    /// It was given up.
    Cancelled,
    /// All inputs have ended, and all output is written.
    Ended,
}

/// A pipeline at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStatus {
    /// Where it is in its life.
    pub phase: StreamPhase,
    /// Its stages.
    pub stages: Vec<StageStatus>,
    /// All inputs have ended, and all output is written.
    pub has_ended: bool,
    /// Workers that live: their process does, or, where that cannot be seen from here, their lease has not ended.
    pub workers: usize,
}

/// Returns the names of the pipelines in a store, but for those of steps of flows.
///
/// # Errors
/// If the store does not answer.
pub async fn pipelines(records: &dyn Records) -> Result<Vec<String>, StreamError> {
    let mut names = pipelines_of(records, "").await?;
    names.retain(|name| !name.starts_with(of_step::PREFIX));
    Ok(names)
}

/// Returns the names of the pipelines in a store that begin so.
pub(crate) async fn pipelines_of(records: &dyn Records, prefix: &str) -> Result<Vec<String>, StreamError> {
    let (mut names, mut after) = (Vec::new(), None);
    loop {
        let scan = Scan::of(keys::pipelines(), SCAN_ROWS_MAX).prefix(prefix).after(after);
        let page = records.scan(SHARD, scan).await?;
        names.extend(page.rows.iter().map(|(name, _)| String::from_utf8_lossy(name.as_bytes()).into_owned()));
        after = page.rows.into_iter().next_back().map(|(name, _)| name);
        if !page.more {
            return Ok(names);
        }
    }
}

/// Returns how far a pipeline is; `None` if the store has none of this name. With the directory of
/// [`Pipeline::locks`](crate::Pipeline::locks), workers that were killed on this machine do not count.
///
/// # Errors
/// If the store does not answer, or its rows are damaged.
pub async fn status(
    records: &dyn Records,
    name: &str,
    locks: Option<&Path>,
) -> Result<Option<StreamStatus>, StreamError> {
    let keys = StreamKeys::new(name);
    let Some(row) = get_one(records, SHARD, keys.plan()).await? else { return Ok(None) };
    let plan = InstalledPlan::from_row(name, &row)?;
    let installed = &plan.stages;
    if let Some(row) = get_one(records, SHARD, keys.result()).await? {
        let result: StreamResult = data::decode(&row)?;
        let stage = |(stage, counts): (&InstalledStage, Counts)| StageStatus {
            counts,
            ended: stage.partitions,
            ..StageStatus::new(stage.name(), stage.partitions)
        };
        let counts = result.stages.into_iter().map(|stage| stage.counts);
        let stages = installed.iter().zip(counts).map(stage).collect();
        return Ok(Some(StreamStatus { stages, phase: StreamPhase::Ended, has_ended: true, workers: 0 }));
    }
    let waiting = waiting::since(records, &keys, &plan).await?;
    let now_ms = records.now().await?.as_ms();
    let mut stages = Vec::new();
    for stage in installed {
        let stations: Vec<Key> = stage.stations().map(|station| keys.meta(station)).collect();
        let system_lag_ms = plan.edges.iter().any(|edge| edge.to.0 == stage.id).then(|| {
            let oldest_ms = waiting.get(&stage.id).map(|oldest| oldest.0 / 1000);
            oldest_ms.map_or(0, |oldest_ms| now_ms.saturating_sub(oldest_ms))
        });
        let mut of = StageStatus { system_lag_ms, ..StageStatus::new(stage.name(), stage.partitions) };
        for row in records.get(SHARD, &stations).await? {
            let Some(row) = row else {
                of.watermark = EventTime::MIN;
                continue;
            };
            let meta = Meta::from_row(&row)?;
            of.counts.add(&meta.counts);
            of.catalog.add(meta.catalog);
            of.watermark = of.watermark.min(meta.watermark_out);
            of.ended += u16::from(meta.has_ended);
        }
        stages.push(of);
    }
    let has_moment = |time: EventTime| time != EventTime::MIN && time != EventTime::MAX;
    let furthest = stages.iter().map(|stage| stage.watermark).filter(|time| has_moment(*time)).max();
    for stage in &mut stages {
        let watermark = Some(stage.watermark).filter(|time| has_moment(*time));
        stage.lag_ms = furthest.zip(watermark).map(|(furthest, own)| furthest.0.saturating_sub(own.0));
    }
    let live = worker_row::read(records, &keys, locks).await?.live;
    let desired = Desired::from_row(get_one(records, SHARD, keys.desired()).await?.as_ref())?;
    let phase = match desired {
        Desired { is_cancelled: true, .. } => StreamPhase::Cancelled,
        _ if !live.is_empty() && live.iter().all(|began| desired.drains(*began)) => StreamPhase::Draining,
        Desired { is_paused: true, .. } if quiet::is_quiet(records, &keys, &plan).await? => StreamPhase::Paused,
        Desired { is_paused: true, .. } => StreamPhase::Pausing,
        _ => StreamPhase::Running,
    };
    Ok(Some(StreamStatus { phase, stages, has_ended: false, workers: live.len() }))
}

/// Removes a pipeline and everything it has in the store, so that one of its name begins anew; false if there is none.
/// Files and other sinks stay as they are. Stopped in the middle, it can be repeated.
///
/// # Errors
/// If workers are at work on it, or the store does not answer.
pub async fn remove(records: &dyn Records, name: &str, locks: Option<&Path>) -> Result<bool, StreamError> {
    let keys = StreamKeys::new(name);
    let is_at_rest = get_one(records, SHARD, keys.result()).await?.is_some();
    if !is_at_rest && worker_row::read(records, &keys, locks).await?.live() > 0 {
        return Err(StreamError::AtWork { name: name.to_owned() });
    }
    discard(records, name).await
}

/// Removes a pipeline as [`remove`] does, though workers may be at work on it: they lose their partitions first, and end
/// with [`StreamError::Removed`].
pub(crate) async fn discard(records: &dyn Records, name: &str) -> Result<bool, StreamError> {
    let keys = StreamKeys::new(name);
    let Some(row) = get_one(records, SHARD, keys.plan()).await? else { return Ok(false) };
    let queue = keys.queue();
    let mut batch = Batch::new(SHARD);
    for group in [queue.claims(), queue.deadlines(), queue] {
        batch.delete_group(group);
    }
    let _always_applied = records.commit(batch).await?;
    for station in InstalledPlan::from_row(name, &row)?.stages.iter().flat_map(InstalledStage::stations) {
        let mut batch = Batch::new(SHARD);
        delete_station_into(&mut batch, records, &keys, station).await?;
        let _always_applied = records.commit(batch).await?;
    }
    let mut batch = Batch::new(SHARD);
    for group in [keys.workers(), keys.rows()] {
        batch.delete_group(group);
    }
    batch.delete(keys::pipelines().key(name));
    let committed = records.commit(batch).await?;
    records.durable(committed.position()).await?;
    Ok(true)
}

/// Deletes everything that a partition has, but for its rows in the group of the pipeline and in the queue.
pub(super) async fn delete_station_into(
    batch: &mut Batch,
    records: &dyn Records,
    keys: &StreamKeys,
    station: Station,
) -> Result<(), StreamError> {
    for group in [keys.inbox(station), keys.outbox(station), keys.state(station), keys.sink_parts(station)] {
        batch.delete_group(group);
    }
    if let Some(row) = get_one(records, SHARD, keys.meta(station)).await? {
        for group in Meta::from_row(&row)?.catalog_groups(keys, station) {
            batch.delete_group(group);
        }
    }
    Ok(())
}
