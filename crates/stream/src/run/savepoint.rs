//! Savepoints: copies of a quiet pipeline under a name of their own, from which other pipelines begin. A savepoint is there
//! when its row is, which is put last; so is a pipeline that begins from one.

use super::{
    copies::{Copying, doom_into, sweep},
    desired::Desired,
    installed::{InstalledPlan, InstalledStage},
    keys::{self, Station, StreamKeys},
    meta::{ChunkPlace, Counts, Meta},
    partition::SHARD,
    quiet::is_quiet,
};
use crate::{data, error::StreamError};
use onceflow_core::{Batch, Key, Row, limits::SCAN_ROWS_MAX};
use onceflow_store::{
    Records, World,
    records::{Scan, commit_durably, get_one},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A savepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Savepoint {
    /// Its name.
    pub name: String,
    /// The pipeline it is of.
    pub stream: String,
    /// When it was made, in milliseconds since 1970.
    pub made_ms: u64,
    /// The rows it has.
    pub rows: u64,
    /// The bytes of those rows.
    pub bytes: u64,
}

/// The row of a savepoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavepointRow {
    stream: String,
    made_ms: u64,
    copied: (u64, u64),
    plan: Vec<u8>,
}

impl SavepointRow {
    fn from_row(row: &Row) -> Result<Self, StreamError> {
        data::decode(row).map_err(|_| StreamError::Damaged("the row of a savepoint cannot be decoded"))
    }

    fn named(self, name: &str) -> Savepoint {
        let SavepointRow { stream, made_ms, copied: (rows, bytes), .. } = self;
        Savepoint { name: name.to_owned(), stream, made_ms, rows, bytes }
    }
}

fn key(name: &str) -> Key {
    keys::savepoints().key(name)
}

/// Returns the savepoints of a store.
///
/// # Errors
/// If the store does not answer, or its rows are damaged.
pub async fn savepoints(records: &dyn Records) -> Result<Vec<Savepoint>, StreamError> {
    sweep(records).await?;
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = records.scan(SHARD, Scan::of(keys::savepoints(), SCAN_ROWS_MAX).after(after)).await?;
        after = page.rows.last().map(|(name, _)| name.clone());
        for (name, row) in page.rows {
            found.push(SavepointRow::from_row(&row)?.named(&String::from_utf8_lossy(name.as_bytes())));
        }
        if !page.more {
            return Ok(found);
        }
    }
}

/// Makes a savepoint of a pipeline: its positions, states, timers and catalogs, all of the same moment. The pipeline must be
/// quiet, as it is when it is [paused](crate::pause), or drained; it is refused if it is not, or works meanwhile. Stopped
/// in the middle, nothing is there, and the rows that were copied are deleted by the next call that looks for savepoints.
///
/// # Errors
/// If there is no such pipeline, or it is not quiet; if there is a savepoint of this name; or if the store does not answer.
pub async fn make_savepoint(
    records: &dyn Records,
    world: &dyn World,
    stream: &str,
    name: &str,
) -> Result<Savepoint, StreamError> {
    sweep(records).await?;
    let (from, to) = (StreamKeys::new(stream), StreamKeys::of_savepoint(name));
    let rows = records.get(SHARD, &[from.plan(), from.result(), from.desired(), key(name)]).await?;
    let [plan_row, result, desired, existing] =
        <[_; 4]>::try_from(rows).map_err(|_| StreamError::Damaged("rows are missing"))?;
    let plan_row = plan_row.ok_or_else(|| StreamError::Unknown { name: stream.to_owned() })?;
    if result.is_some() {
        return Err(StreamError::Ended { name: stream.to_owned() });
    }
    if Desired::from_row(desired.as_ref())?.is_cancelled {
        return Err(StreamError::Cancelled { name: stream.to_owned() });
    }
    if existing.is_some() {
        return Err(StreamError::SavepointExists { name: name.to_owned() });
    }
    let plan = InstalledPlan::from_row(stream, &plan_row)?;
    let rows = meta_rows(records, &from, &plan).await?;
    if !is_quiet(records, &from, &plan).await? {
        return Err(StreamError::NotQuiet { name: stream.to_owned() });
    }
    let metas = rows.iter().filter_map(|(station, row)| Some((*station, Meta::from_row(row.as_ref()?))));
    let metas = metas.map(|(station, meta)| Ok((station, meta?))).collect::<Result<BTreeMap<_, _>, StreamError>>()?;
    let copying = Copying::begin(records, (&from, &to), &plan, world.random()).await?;
    let Some(mut copying) = copying else { return Err(StreamError::CopyLost) };
    copying.copy(&metas).await?;
    let made_ms = records.now().await?.as_ms();
    let row = SavepointRow { stream: stream.to_owned(), made_ms, copied: copying.copied, plan: plan_row.to_vec() };
    let mut batch = Batch::new(SHARD);
    // Every bundle replaces its partition's row: none was committed since the rows were read.
    batch.require_equals(from.plan(), plan_row).require_absent(from.result()).require_absent(key(name));
    for (station, row) in rows {
        batch.require_seen(from.meta(station), row);
    }
    copying.finish_into(&mut batch);
    batch.put(key(name), Row::from(data::encode(&row)));
    if commit_durably(records, batch).await?.is_applied() {
        return Ok(row.named(name));
    }
    copying.give_up().await?;
    Err(StreamError::NotQuiet { name: stream.to_owned() })
}

/// Puts a new pipeline into the store that begins where a savepoint was made: [run](crate::Pipeline::run) under this name, it
/// goes on from there. Its counts begin at zero, and its sinks at their beginning: they are given what comes
/// after the savepoint. A pipeline with other steps than those of the savepoint goes on as a changed one does.
///
/// # Errors
/// If there is no such savepoint, or a pipeline of this name is there; or if the store does not answer.
pub async fn begin_from_savepoint(
    records: &dyn Records,
    world: &dyn World,
    name: &str,
    stream: &str,
) -> Result<(), StreamError> {
    sweep(records).await?;
    let (from, to) = (StreamKeys::of_savepoint(name), StreamKeys::new(stream));
    let Some(row) = get_one(records, SHARD, key(name)).await? else {
        return Err(StreamError::NoSavepoint { name: name.to_owned() });
    };
    if get_one(records, SHARD, to.plan()).await?.is_some() {
        return Err(StreamError::Exists { name: stream.to_owned() });
    }
    let plan_row = Row::from(SavepointRow::from_row(&row)?.plan);
    let plan = InstalledPlan::from_row(stream, &plan_row)?;
    let mut metas = BTreeMap::new();
    for (station, row) in meta_rows(records, &from, &plan).await? {
        if let Some(row) = row {
            let meta = Meta::from_row(&row)?;
            let chunks = vec![ChunkPlace::default(); meta.chunks.len()];
            metas.insert(station, Meta { chunks, counts: Counts::default(), ..meta });
        }
    }
    let copying = Copying::begin(records, (&from, &to), &plan, world.random()).await?;
    let Some(mut copying) = copying else { return Err(StreamError::CopyLost) };
    copying.copy(&metas).await?;
    let mut batch = Batch::new(SHARD);
    batch.require_absent(to.plan()).require_equals(key(name), row);
    copying.finish_into(&mut batch);
    batch.put(to.plan(), plan_row).put(keys::pipelines().key(stream), Row::default());
    for station in plan.stages.iter().flat_map(InstalledStage::stations) {
        if !metas.get(&station).is_some_and(|meta| meta.has_ended) {
            batch.put(to.queue().key(station.to_bytes()), to.ready_row());
        }
    }
    if commit_durably(records, batch).await?.is_applied() {
        return Ok(());
    }
    copying.give_up().await?;
    Err(StreamError::CopyLost)
}

/// Removes a savepoint; false if there is none. Pipelines that began from it go on.
///
/// # Errors
/// If the store does not answer, or its rows are damaged.
pub async fn remove_savepoint(records: &dyn Records, name: &str) -> Result<bool, StreamError> {
    let Some(row) = get_one(records, SHARD, key(name)).await? else { return Ok(false) };
    let plan = InstalledPlan::from_row(name, &Row::from(SavepointRow::from_row(&row)?.plan))?;
    let mut batch = Batch::new(SHARD);
    batch.require_equals(key(name), row).delete(key(name));
    doom_into(&mut batch, &StreamKeys::of_savepoint(name), &plan);
    let removed = commit_durably(records, batch).await?.is_applied();
    sweep(records).await?;
    Ok(removed)
}

/// Reads the rows of all partitions.
async fn meta_rows(
    records: &dyn Records,
    keys: &StreamKeys,
    plan: &InstalledPlan,
) -> Result<Vec<(Station, Option<Row>)>, StreamError> {
    let mut rows = Vec::new();
    for stage in &plan.stages {
        let stations: Vec<Station> = stage.stations().collect();
        let wanted: Vec<Key> = stations.iter().map(|station| keys.meta(*station)).collect();
        rows.extend(stations.into_iter().zip(records.get(SHARD, &wanted).await?));
    }
    Ok(rows)
}
