//! Copies of all rows of a pipeline under another prefix: savepoints, and pipelines that begin from one. A copy is made in
//! small batches and becomes visible with the last one, which is the caller's. Until then a row says that it is being made,
//! with a lease: the rows of a copy whose maker has died are found by it and deleted.

use super::{
    installed::{InstalledPlan, InstalledStage},
    keys::{Station, StreamKeys},
    meta::Meta,
    partition::SHARD,
    status::delete_station_into,
};
use crate::{data, error::StreamError};
use onceflow_core::{Batch, Group, Key, Row, limits::SCAN_ROWS_MAX};
use onceflow_store::{
    Records,
    records::{Scan, get_one},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A copy is given up this long after the last batch of its maker.
const COPY_LEASE_MS: u64 = 30_000;

/// Rows that are read at a time: few enough for one batch on every store.
const ROWS_AT_ONCE: usize = 256;

/// Bytes of rows in one batch, unless a single row is larger.
const COPIED_BYTES: usize = 1 << 20;

/// The row of a copy that is being made, or deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CopyRow {
    /// Random: a maker that finds another number here has lost the copy.
    maker: u128,
    until_ms: u64,
    /// The plan whose rows are copied.
    plan: Vec<u8>,
}

/// All copies that are being made, by the prefix of their rows.
fn copies() -> Group {
    Group::rows("stream-copies")
}

/// A copy that this process is making.
pub(super) struct Copying<'a> {
    records: &'a dyn Records,
    from: &'a StreamKeys,
    to: &'a StreamKeys,
    plan: &'a InstalledPlan,
    row: CopyRow,
    stored: Row,
    /// Rows that were copied, and their bytes.
    pub(super) copied: (u64, u64),
}

impl<'a> Copying<'a> {
    /// Begins a copy; `None` if another process makes one in the same place.
    pub(super) async fn begin(
        records: &'a dyn Records,
        (from, to): (&'a StreamKeys, &'a StreamKeys),
        plan: &'a InstalledPlan,
        maker: u128,
    ) -> Result<Option<Self>, StreamError> {
        let until_ms = records.now().await?.plus_ms(COPY_LEASE_MS).as_ms();
        let row = CopyRow { maker, until_ms, plan: plan.to_row().to_vec() };
        let stored = Row::from(data::encode(&row));
        let mut batch = Batch::new(SHARD);
        batch.require_absent(to.copy()).put(to.copy(), stored.clone());
        let has_begun = records.commit(batch).await?.is_applied();
        Ok(has_begun.then_some(Copying { records, from, to, plan, row, stored, copied: (0, 0) }))
    }

    /// Copies the rows of all partitions, whose meta rows are given as they are to be in the copy. Inboxes and outboxes are
    /// empty: the pipeline is quiet. The parts of sinks stay with the pipeline that wrote them.
    pub(super) async fn copy(&mut self, metas: &BTreeMap<Station, Meta>) -> Result<(), StreamError> {
        let (from, to) = (self.from, self.to);
        // The meta rows first: they name the groups of catalogs, by which an unfinished copy is deleted.
        for (station, meta) in metas {
            self.put(vec![(to.meta(*station), meta.to_row())]).await?;
            if let Some(row) = get_one(self.records, SHARD, from.published(*station)).await? {
                self.put(vec![(to.published(*station), row)]).await?;
            }
        }
        for (station, meta) in metas {
            let mut groups = vec![(from.state(*station), to.state(*station))];
            groups.extend(meta.catalog_groups(from, *station).into_iter().zip(meta.catalog_groups(to, *station)));
            for (from, to) in groups {
                self.copy_group(from, &to).await?;
            }
        }
        Ok(())
    }

    async fn copy_group(&mut self, from: Group, to: &Group) -> Result<(), StreamError> {
        let mut after = None;
        loop {
            let page = self.records.scan(SHARD, Scan::of(from.clone(), ROWS_AT_ONCE).after(after)).await?;
            after = page.rows.last().map(|(name, _)| name.clone());
            let (mut rows, mut bytes) = (Vec::new(), 0);
            for (name, row) in page.rows {
                bytes += row.len();
                rows.push((Key { group: to.clone(), name }, row));
                if bytes >= COPIED_BYTES {
                    self.put(std::mem::take(&mut rows)).await?;
                    bytes = 0;
                }
            }
            self.put(rows).await?;
            if !page.more {
                return Ok(());
            }
        }
    }

    /// Puts some rows, and renews the lease.
    async fn put(&mut self, rows: Vec<(Key, Row)>) -> Result<(), StreamError> {
        if rows.is_empty() {
            return Ok(());
        }
        self.copied.0 += rows.len() as u64;
        self.copied.1 += rows.iter().map(|(_, row)| row.len() as u64).sum::<u64>();
        let until_ms = self.records.now().await?.plus_ms(COPY_LEASE_MS).as_ms();
        let row = CopyRow { until_ms, ..self.row.clone() };
        let stored = Row::from(data::encode(&row));
        let mut batch = Batch::new(SHARD);
        batch.require_equals(self.to.copy(), self.stored.clone()).put(self.to.copy(), stored.clone());
        for (key, row) in rows {
            batch.put(key, row);
        }
        if !self.records.commit(batch).await?.is_applied() {
            return Err(StreamError::CopyLost);
        }
        (self.row, self.stored) = (row, stored);
        Ok(())
    }

    /// Ends the copy in the batch that makes it visible.
    pub(super) fn finish_into(&self, batch: &mut Batch) {
        batch.require_equals(self.to.copy(), self.stored.clone()).delete(self.to.copy());
    }

    /// Deletes what was copied.
    pub(super) async fn give_up(self) -> Result<(), StreamError> {
        delete(self.records, self.to, self.plan, self.stored).await
    }
}

/// Adds the row that lets the rows of a finished copy be deleted, to the batch by which it becomes invisible.
pub(super) fn doom_into(batch: &mut Batch, keys: &StreamKeys, plan: &InstalledPlan) {
    let row = CopyRow { maker: 0, until_ms: 0, plan: plan.to_row().to_vec() };
    batch.put(keys.copy(), Row::from(data::encode(&row)));
}

/// Deletes the rows of copies whose makers have died.
pub(super) async fn sweep(records: &dyn Records) -> Result<(), StreamError> {
    let now_ms = records.now().await?.as_ms();
    for (name, row) in records.scan(SHARD, Scan::of(copies(), SCAN_ROWS_MAX)).await?.rows {
        let copy: CopyRow =
            data::decode(&row).map_err(|_| StreamError::Damaged("the row of a copy cannot be decoded"))?;
        if copy.until_ms > now_ms {
            continue;
        }
        // From here on its maker is refused.
        let fenced = Row::from(data::encode(&CopyRow { maker: copy.maker.wrapping_add(1), ..copy.clone() }));
        let key = Key { group: copies(), name: name.clone() };
        let mut batch = Batch::new(SHARD);
        batch.require_equals(key.clone(), row).put(key, fenced.clone());
        if records.commit(batch).await?.is_applied() {
            let keys = StreamKeys::of_prefix(&String::from_utf8_lossy(name.as_bytes()));
            match InstalledPlan::from_row(keys.prefix(), &Row::from(copy.plan)) {
                Ok(plan) => delete(records, &keys, &plan, fenced).await?,
                Err(error) => tracing::warn!(%error, "failed to delete an unfinished copy of a pipeline; it stays"),
            }
        }
    }
    Ok(())
}

/// Deletes all rows of a copy, and last the row that says that it is being made.
async fn delete(
    records: &dyn Records,
    keys: &StreamKeys,
    plan: &InstalledPlan,
    stored: Row,
) -> Result<(), StreamError> {
    for station in plan.stages.iter().flat_map(InstalledStage::stations) {
        let mut batch = Batch::new(SHARD);
        batch.require_equals(keys.copy(), stored.clone());
        delete_station_into(&mut batch, records, keys, station).await?;
        batch.delete(keys.meta(station)).delete(keys.published(station));
        if !records.commit(batch).await?.is_applied() {
            return Ok(());
        }
    }
    let mut batch = Batch::new(SHARD);
    batch.require_equals(keys.copy(), stored).delete(keys.copy());
    let _refused_if_deleted_by_another = records.commit(batch).await?;
    Ok(())
}

impl StreamKeys {
    /// The row that says that a copy is being made to here.
    pub(super) fn copy(&self) -> Key {
        copies().key(self.prefix())
    }
}
