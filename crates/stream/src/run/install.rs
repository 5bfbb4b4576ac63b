//! Puts the plan of a pipeline into the store: that of a new one with its first rows, that of a changed one in the place of
//! the earlier one, in one batch with everything that the change means for stored rows. The batch requires the row of every
//! partition as it was read, so a bundle of the earlier plan happens before it or never.

use super::{
    copies,
    desired::Desired,
    installed::{InstalledEdge, InstalledPlan, InstalledStage},
    keys::{self, Station, StreamKeys},
    meta::Meta,
    options::EdgeMode,
    partition::SHARD,
    status::delete_station_into,
    worker_row,
};
use crate::{
    error::StreamError,
    identity::Stamper,
    upgrade::{ConflictCause, StepConflict, Upgraded, upgrade},
};
use onceflow_core::{Batch, Group, Key, Row, limits::GET_KEYS_MAX};
use onceflow_store::{
    Records,
    records::{Scan, get_one},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// The rows of partitions, with their content.
type Metas = BTreeMap<Station, (Option<Row>, Meta)>;

/// Installs a plan, a new one with this batch, or finds it installed. Returns it with the numbers that its stages and edges
/// have in the store.
pub(crate) async fn install(
    first: Batch,
    records: &dyn Records,
    name: &str,
    wanted: InstalledPlan,
    drops: &BTreeSet<String>,
    locks: Option<&Path>,
) -> Result<InstalledPlan, StreamError> {
    let keys = StreamKeys::new(name);
    loop {
        let rows = records.get(SHARD, &[keys.plan(), keys.desired()]).await?;
        let [row, desired] = <[_; 2]>::try_from(rows).map_err(|_| StreamError::Damaged("rows are missing"))?;
        if Desired::from_row(desired.as_ref())?.is_cancelled {
            return Err(StreamError::Cancelled { name: name.to_owned() });
        }
        let Some(row) = row else {
            copies::sweep(records).await?;
            if records.commit(first_rows(first.clone(), &keys, name, &wanted)).await?.is_applied() {
                return Ok(wanted);
            }
            if get_one(records, SHARD, keys.copy()).await?.is_some() {
                return Err(StreamError::CopyLost);
            }
            if get_one(records, SHARD, keys.plan()).await?.is_none() {
                return Err(StreamError::Removed { name: name.to_owned() });
            }
            continue;
        };
        let old = InstalledPlan::from_row(name, &row)?;
        let upgraded = upgrade(&old, wanted.clone(), drops);
        if matches!(&upgraded, Ok(upgraded) if upgraded.plan == old) {
            return Ok(old);
        }
        if get_one(records, SHARD, keys.result()).await?.is_some() {
            return Err(StreamError::EndedOtherwise { name: name.to_owned() });
        }
        let changed = |conflicts| StreamError::Changed { name: name.to_owned(), conflicts };
        let upgraded = upgraded.map_err(changed)?;
        if worker_row::read(records, &keys, locks).await?.live() > 0 {
            return Err(StreamError::AtWork { name: name.to_owned() });
        }
        let change = PlanChange { records, keys: &keys, old: &old, upgraded: &upgraded };
        let batch = change.batch(row).await?.map_err(changed)?;
        let committed = records.commit(batch).await?;
        records.durable(committed.position()).await?;
        if committed.is_applied() {
            tracing::info!(stream = name, "the pipeline has changed, and goes on with the state of the earlier one");
            return Ok(upgraded.plan);
        }
    }
}

/// The rows of a pipeline that runs for the first time: its plan, and a queue row for every partition.
fn first_rows(mut batch: Batch, keys: &StreamKeys, name: &str, plan: &InstalledPlan) -> Batch {
    batch.require_absent(keys.plan()).require_absent(keys.copy()).put(keys.plan(), plan.to_row());
    batch.put(keys::pipelines().key(name), Row::default());
    for station in plan.stages.iter().flat_map(InstalledStage::stations) {
        batch.put(keys.queue().key(station.to_bytes()), keys.ready_row());
    }
    batch
}

/// A changed plan, on its way into the store.
struct PlanChange<'a> {
    records: &'a dyn Records,
    keys: &'a StreamKeys,
    old: &'a InstalledPlan,
    upgraded: &'a Upgraded,
}

impl PlanChange<'_> {
    /// Returns the batch that puts the changed plan in the place of the earlier one, or the steps that cannot go on.
    async fn batch(&self, old_row: Row) -> Result<Result<Batch, Vec<StepConflict>>, StreamError> {
        let (keys, plan) = (self.keys, &self.upgraded.plan);
        let metas = self.metas().await?;
        let conflicts = self.conflicts(&metas).await?;
        if !conflicts.is_empty() {
            return Ok(Err(conflicts));
        }
        let mut batch = Batch::new(SHARD);
        batch.require_equals(keys.plan(), old_row).require_absent(keys.result()).put(keys.plan(), plan.to_row());
        for (station, (row, _)) in &metas {
            batch.require_seen(keys.meta(*station), row.clone());
        }
        for station in self.removed().flat_map(InstalledStage::stations) {
            delete_station_into(&mut batch, self.records, keys, station).await?;
            batch.delete(keys.meta(station)).delete(keys.published(station));
            for group in [keys.queue(), keys.queue().claims(), keys.queue().deadlines()] {
                batch.delete(group.key(station.to_bytes()));
            }
        }
        // A stamp of a new sender must not look like one that was reclaimed long ago.
        let stamper = metas.values().map(|(_, meta)| meta.stamper).max_by_key(Stamper::next_possible);
        for stage in &plan.stages {
            let earlier = self.old.stage(stage.id);
            for station in stage.stations() {
                let mut meta = match (earlier, metas.get(&station)) {
                    (Some(earlier), Some((_, meta))) => self.carried(meta, earlier, stage),
                    _ => {
                        batch.put(keys.queue().key(station.to_bytes()), keys.ready_row());
                        let stamper = stamper.unwrap_or_default();
                        Meta { stamper, ..Meta::new(1, &self.destinations(stage), stage.sinks().count()) }
                    }
                };
                self.hear_of_ended(&metas, station, &mut meta);
                batch.put(keys.meta(station), meta.to_row());
            }
        }
        Ok(Ok(batch))
    }

    fn removed(&self) -> impl Iterator<Item = &InstalledStage> {
        self.old.stages.iter().filter(|stage| self.upgraded.removed.contains(&stage.id))
    }

    /// Reads the rows of all partitions of the earlier plan.
    async fn metas(&self) -> Result<Metas, StreamError> {
        let mut metas = Metas::new();
        for stage in &self.old.stages {
            let stations: Vec<Station> = stage.stations().collect();
            for stations in stations.chunks(GET_KEYS_MAX) {
                let wanted: Vec<Key> = stations.iter().map(|station| self.keys.meta(*station)).collect();
                for (station, row) in stations.iter().zip(self.records.get(SHARD, &wanted).await?) {
                    let meta = match &row {
                        Some(row) => Meta::from_row(row)?,
                        None => Meta::new(1, &destinations(self.old, stage), stage.sinks().count()),
                    };
                    metas.insert(*station, (row, meta));
                }
            }
        }
        Ok(metas)
    }

    /// For each edge that leaves a stage of the changed plan, the partitions it leads to.
    fn destinations(&self, stage: &InstalledStage) -> Vec<usize> {
        destinations(&self.upgraded.plan, stage)
    }

    /// The row of a partition that goes on: places of edges and sinks move with their names.
    fn carried(&self, meta: &Meta, earlier: &InstalledStage, stage: &InstalledStage) -> Meta {
        let edges_before: Vec<u16> = outputs(self.old, earlier).map(|edge| edge.id).collect();
        let edges = outputs(&self.upgraded.plan, stage).map(|edge| edge.id);
        let next_seq = edges.zip(self.destinations(stage)).map(|(edge, count)| {
            let before = edges_before.iter().position(|id| *id == edge);
            before.map_or_else(|| vec![0; count], |at| meta.next_seq[at].clone())
        });
        let place = |sink: &str| {
            let before = earlier.sinks().position(|own| own == sink);
            before.map(|at| meta.chunks[at]).unwrap_or_default()
        };
        Meta { next_seq: next_seq.collect(), chunks: stage.sinks().map(place).collect(), ..meta.clone() }
    }

    /// A sender that has sent its last block sends none on an edge that is new.
    fn hear_of_ended(&self, metas: &Metas, to: Station, meta: &mut Meta) {
        let is_new = |edge: u16| self.old.edges.iter().all(|own| own.id != edge);
        for edge in self.upgraded.plan.edges.iter().filter(|edge| edge.to.0 == to.stage && is_new(edge.id)) {
            let senders = metas.iter().filter(|(station, (_, meta))| station.stage == edge.from.0 && meta.end_sent);
            meta.ended_senders.extend(senders.map(|(station, _)| (edge.id, station.partition)));
        }
    }

    /// Returns the steps that cannot go on because of the rows that they have.
    async fn conflicts(&self, metas: &Metas) -> Result<Vec<StepConflict>, StreamError> {
        let mut conflicts = Vec::new();
        let mut add = |stage: &InstalledStage, cause: ConflictCause| {
            let conflict = StepConflict { step: stage.first().name.clone(), cause };
            if !conflicts.contains(&conflict) {
                conflicts.push(conflict);
            }
        };
        let plan = &self.upgraded.plan;
        let is_lost = |edge: u16| plan.edges.iter().all(|own| own.id != edge);
        for stage in &self.old.stages {
            let now = plan.stage(stage.id);
            // Those who drop the state of a step drop the records on their way to it.
            let is_dropped = now.is_none() && stage.steps.iter().any(|step| step.has_rows());
            if is_dropped {
                continue;
            }
            for edge in self.old.edges.iter().filter(|edge| edge.to.0 == stage.id && is_lost(edge.id)) {
                for station in stage.stations() {
                    if self.has_rows(self.keys.inbox(station), &edge.id.to_be_bytes()).await? {
                        add(stage, ConflictCause::InFlight);
                    }
                }
            }
            let moves_sinks = now.is_none_or(|now| !stage.sinks().eq(now.sinks().take(stage.sinks().count())));
            let loses_edge = outputs(self.old, stage).any(|edge| is_lost(edge.id));
            let is_retry = self.old.edge_mode == EdgeMode::Retry;
            for station in stage.stations().filter(|_| moves_sinks || loses_edge && is_retry) {
                let has_parts = moves_sinks && self.has_rows(self.keys.sink_parts(station), &[]).await?;
                if has_parts || self.has_rows(self.keys.outbox(station), &[]).await? {
                    add(stage, ConflictCause::InFlight);
                }
            }
        }
        for edge in plan.edges.iter().filter(|edge| self.old.edges.iter().all(|own| own.id != edge.id)) {
            let has_ended = |stage: u16, all: bool| {
                let mut of =
                    metas.iter().filter(|(station, _)| station.stage == stage).map(|(_, (_, meta))| meta.has_ended);
                if all { of.next().is_some_and(|first| first && of.all(|ended| ended)) } else { of.any(|ended| ended) }
            };
            if has_ended(edge.to.0, false)
                && !has_ended(edge.from.0, true)
                && let Some(stage) = plan.stage(edge.to.0)
            {
                add(stage, ConflictCause::Ended);
            }
        }
        Ok(conflicts)
    }

    async fn has_rows(&self, group: Group, prefix: &[u8]) -> Result<bool, StreamError> {
        let page = self.records.scan(SHARD, Scan::of(group, 1).prefix(prefix)).await?;
        Ok(!page.rows.is_empty())
    }
}

fn outputs<'a>(plan: &'a InstalledPlan, stage: &InstalledStage) -> impl Iterator<Item = &'a InstalledEdge> {
    let stage = stage.id;
    plan.edges.iter().filter(move |edge| edge.from.0 == stage)
}

fn destinations(plan: &InstalledPlan, stage: &InstalledStage) -> Vec<usize> {
    let partitions = |edge: &InstalledEdge| plan.stage(edge.to.0).map_or(0, |to| usize::from(to.partitions));
    outputs(plan, stage).map(partitions).collect()
}
