//! Our side: a journal in a directory of its own.

use anyhow::ensure;
use onceflow_bench::disk::{Counted, Written};
use onceflow_core::{Batch, Shard};
use onceflow_store::{
    Position, Records,
    backend::journal::{Journal, Options, Recovered},
    world::RealWorld,
};
use std::{path::Path, sync::Arc};
use tokio::runtime::Runtime;

/// The shard everything happens in.
pub(super) const SHARD: Shard = Shard(0);

/// An open journal, synced as by default.
pub(super) struct Ours {
    pub(super) journal: Arc<Journal>,
    pub(super) written: Arc<Written>,
    pub(super) recovered: Recovered,
}

impl Ours {
    /// Opens the journal in a directory, making one if there is none.
    pub(super) fn open(runtime: &Runtime, path: &Path) -> anyhow::Result<Ours> {
        let _inside = runtime.enter();
        let (files, written) = Counted::new(path)?;
        let (journal, recovered) = Journal::open(files, Options::default(), RealWorld::here())?;
        Ok(Ours { journal: Arc::new(journal), written, recovered })
    }

    /// Commits batches that nothing can refuse. Answers the position of the last, which may not be durable yet.
    pub(super) async fn commit_all(&self, batches: impl Iterator<Item = Batch>) -> anyhow::Result<Position> {
        let mut last = Position::default();
        for batch in batches {
            let outcome = self.journal.commit(batch).await?;
            ensure!(outcome.is_applied(), "a batch was refused: {outcome:?}");
            last = outcome.position();
        }
        Ok(last)
    }
}
