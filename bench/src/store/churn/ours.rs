//! Ours: all pairs in one batch, and the wait for it; or, overlapping, the wait for the pairs before.

use super::{Store, gone, name, row};
use crate::journal::{Ours, SHARD};
use onceflow_core::{Batch, Group, Row};
use onceflow_store::{Position, Records};
use std::ops::Range;
use tokio::runtime::Runtime;

pub(super) struct Churned<'a> {
    runtime: &'a Runtime,
    ours: Ours,
    group: Group,
    overlaps: bool,
    /// What the last pairs were decided at, if no caller has waited for it yet.
    last: Option<Position>,
}

impl<'a> Churned<'a> {
    pub(super) fn new(runtime: &'a Runtime, ours: Ours, overlaps: bool) -> Self {
        Churned { runtime, ours, group: Group::rows("churn"), overlaps, last: None }
    }
}

impl Store for Churned<'_> {
    fn pairs(&mut self, keys: Range<u64>, live: u64) -> anyhow::Result<()> {
        let mut batch = Batch::new(SHARD);
        for number in keys {
            batch.put(self.group.key(name(number)), Row::new(row(number)));
            if let Some(gone) = gone(number, live) {
                batch.delete(self.group.key(gone));
            }
        }
        self.runtime.block_on(async {
            let position = self.ours.commit_all([batch].into_iter()).await?;
            let wait_for = if self.overlaps { self.last.replace(position) } else { Some(position) };
            Ok(self.ours.journal.durable(wait_for.unwrap_or_default()).await?)
        })
    }

    fn rows(&self) -> anyhow::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let (rows, _) = self.ours.journal.state().durable_after(None, usize::MAX);
        Ok(rows.into_iter().map(|(_, key, row)| (key.name.as_bytes().to_vec(), row.to_vec())).collect())
    }
}
