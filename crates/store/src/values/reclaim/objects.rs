//! Deletes objects that no value names any more, and turns uploads and holds of writers that have ended into garbage.

use super::{Error, ReclaimCall, Round};
use crate::{
    blobs::{Blobs, ObjectName},
    records::Scan,
    values::{
        EdgeName,
        blob::{OBJECTS_MAX, abandon_upload, object},
        hold::Hold,
        rows::ValueRows,
    },
};
use onceflow_core::{Batch, Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

impl ReclaimCall<'_> {
    /// Deletes objects that nothing names, or finds uploads that were abandoned; `None` if there are neither.
    pub(super) async fn unlink(
        &mut self,
        touch_max: usize,
        next: &mut Option<Timestamp>,
    ) -> Result<Option<Round>, Error> {
        let ValueRows { keys, records, shard, .. } = &self.values.rows;
        let Some(blobs) = &self.values.blobs else { return Ok(None) };
        let unlink = self.page(&keys.unlink, touch_max.min(OBJECTS_MAX)).await?;
        if unlink.rows.is_empty() {
            return self.abandon(next).await;
        }
        // The rows read must outlive a crash before an object is deleted because of them.
        if crate::seams::waits_before_unlink() {
            records.durable(records.position()).await?;
        }
        let mut batch = Batch::new(*shard);
        for (name, _) in &unlink.rows {
            if let Some(object) = object(name) {
                blobs.delete(object).await?;
            }
            batch.delete(keys.unlink.key(name));
        }
        let round = self.commit(batch, Round::Did(unlink.rows.len())).await?;
        if let Round::Did(_) = round {
            self.done.objects_unlinked += unlink.rows.len() as u64;
        }
        Ok(Some(round))
    }

    /// Queues the objects of uploads for deletion whose writer has ended or whose time is over, and releases what dead
    /// writers had put ahead of a batch.
    async fn abandon(&self, next: &mut Option<Timestamp>) -> Result<Option<Round>, Error> {
        let ValueRows { keys, records, shard, .. } = &self.values.rows;
        let mut dead = Dead { blobs: self.values.integrity().blobs()?, known: BTreeMap::new() };
        if dead.blobs.knows_writers() && self.let_go_of_the_dead(&mut dead).await? {
            return Ok(Some(Round::Did(0)));
        }
        let uploads = self.values.rows.all_rows(&keys.uploads).await?;
        if uploads.is_empty() {
            return Ok(None);
        }
        let now = records.now().await?;
        let mut batch = Batch::new(*shard);
        for (name, row) in uploads {
            let deadline = Timestamp::from_sortable(&row).unwrap_or(Timestamp::ZERO);
            let writer = object(&name).map(ObjectName::made_by);
            if deadline > now && !dead.wrote(writer).await? {
                *next = Some(next.unwrap_or(Timestamp::NEVER).min(deadline));
            } else if batch.requires.len() < OBJECTS_MAX {
                abandon_upload(keys, &mut batch, &name, row);
            }
        }
        if batch.ops.is_empty() {
            return Ok(None);
        }
        self.commit(batch, Round::Did(0)).await.map(Some)
    }

    /// Clears the holds of dead writers. Returns true if there were any.
    async fn let_go_of_the_dead(&self, dead: &mut Dead<'_>) -> Result<bool, Error> {
        let ValueRows { keys, records, shard, .. } = &self.values.rows;
        let mut writers = BTreeSet::new();
        let mut after = None;
        loop {
            let scan = Scan::of(keys.edges.clone(), OBJECTS_MAX).prefix(Hold::row_prefix()).after(after);
            let page = records.scan(*shard, scan).await?;
            after = page.rows.last().map(|(name, _)| name.clone());
            let named = page.rows.iter().filter_map(|(name, _)| EdgeName::from_row_name(name.as_bytes()));
            writers.extend(named.filter_map(|edge| Hold::writer(&edge)));
            if !page.more {
                break;
            }
        }
        let mut cleared = 0;
        for writer in writers {
            if dead.wrote(Some(writer)).await? {
                cleared += self.values.clear_roots(&Hold::prefix_of(writer), |_| true).await?;
            }
        }
        Ok(cleared > 0)
    }
}

/// The writers that have ended, each looked up once.
struct Dead<'a> {
    blobs: &'a Arc<dyn Blobs>,
    known: BTreeMap<u128, bool>,
}

impl Dead<'_> {
    async fn wrote(&mut self, writer: Option<u128>) -> Result<bool, Error> {
        let Some(writer) = writer else { return Ok(false) };
        if let Some(known) = self.known.get(&writer) {
            return Ok(*known);
        }
        let ended = self.blobs.has_ended(writer).await?;
        self.known.insert(writer, ended);
        Ok(ended)
    }
}
