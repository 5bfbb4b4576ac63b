//! Ours: every pair its own batch, one wait for all.

use super::{Store, gone, name, row};
use crate::store::journal::{Ours, SHARD};
use onceflow_core::{Batch, Group, Row};
use std::ops::Range;
use tokio::runtime::Runtime;

pub(super) struct Churned<'a> {
    runtime: &'a Runtime,
    ours: Ours,
    group: Group,
}

impl<'a> Churned<'a> {
    pub(super) fn new(runtime: &'a Runtime, ours: Ours) -> Self {
        Churned { runtime, ours, group: Group::rows("churn") }
    }
}

impl Store for Churned<'_> {
    fn pairs(&mut self, keys: Range<u64>, live: u64) -> anyhow::Result<()> {
        let batches = keys.map(|number| {
            let mut batch = Batch::new(SHARD);
            batch.put(self.group.key(name(number)), Row::new(row(number)));
            if let Some(gone) = gone(number, live) {
                batch.delete(self.group.key(gone));
            }
            batch
        });
        self.runtime.block_on(self.ours.commit_all(batches))
    }

    fn rows(&self) -> anyhow::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let (rows, _) = self.ours.journal.state().durable_after(None, usize::MAX);
        Ok(rows.into_iter().map(|(_, key, row)| (key.name.as_bytes().to_vec(), row.to_vec())).collect())
    }
}
