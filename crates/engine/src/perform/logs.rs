//! What steps wrote for people, kept with the run where several machines work on it: a row per step, with the end of what
//! its last attempt wrote. It is written while the step is ours, before it commits, so none is left by a run that is gone;
//! and it goes when the run's history does.

use super::Work;
use crate::{Error, Handle};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Batch, Row,
    protocol::{ids::StepId, keys, rows},
};
use serde::{Deserialize, Serialize};

/// Bytes kept of a step that failed, and of one that did not.
const FAILED_BYTES_MAX: usize = 64 << 10;
const DONE_BYTES_MAX: usize = 4 << 10;

/// Steps of a run of whose rest this worker keeps what they wrote; what fails is always kept.
const DONE_MAX: u64 = 1000;

/// What a step wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLog {
    /// Where the step is.
    pub address: String,
    /// The attempt that wrote it.
    pub attempt: u32,
    /// The machine it ran on.
    pub host: String,
    /// Whether that attempt failed.
    pub has_failed: bool,
    /// The end of what it wrote.
    pub text: Vec<u8>,
}

impl Work<'_> {
    /// Keeps what an attempt wrote. It is talk: what cannot be written is left out.
    pub(super) async fn keep_log(&self, attempt: u32, has_failed: bool, mut text: Vec<u8>) -> Result<(), Error> {
        let shared = &self.worker.shared;
        let run = self.run.plan.keys.run;
        if !has_failed && self.worker.announcement.done_of(run) >= DONE_MAX {
            return Ok(());
        }
        let most = if has_failed { FAILED_BYTES_MAX } else { DONE_BYTES_MAX };
        text.drain(..text.len().saturating_sub(most));
        let (address, about) = (self.address().await?, shared.options.about.clone().unwrap_or_default());
        let key = keys::logs(run).key(name(&address, self.taken.step));
        let log = StepLog { address, attempt, host: about.host, has_failed, text };
        let mut batch = Batch::new(shared.shard());
        let claim = self.taken.queue.claims().key(&self.taken.name);
        batch.require_equals(claim, Row::new(self.taken.fence.to_bytes())).put(key, rows::write(&log));
        if let Err(error) = shared.records.commit(batch).await {
            tracing::debug!(%error, "what a step wrote is not kept");
        }
        Ok(())
    }
}

/// What the row is called: by the address, so that they come in its order, as far as that fits.
fn name(address: &str, step: StepId) -> Vec<u8> {
    const ADDRESS_BYTES_MAX: usize = 400;
    let address = &address.as_bytes()[..address.len().min(ADDRESS_BYTES_MAX)];
    [address, &[0], &step.to_bytes()].concat()
}

impl Handle {
    /// What steps of the run wrote, in the order of their addresses, where workers kept it.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn logs(&self) -> BoxFuture<'_, Result<Vec<StepLog>, Error>> {
        Box::pin(async move {
            let rows = self.shared.all_rows(keys::logs(self.id()), b"").await?;
            Ok(rows.iter().filter_map(|(_, row)| rows::read(row)).collect())
        })
    }
}
