//! Logs of steps, kept with the run where several machines work on it: a row per step, with the end of its last
//! attempt's output. The row is written while the step is ours, before it commits, so that no row outlives a run that
//! is gone; it is removed with the run's history.

use super::Work;
use crate::{Error, RunHistory};
use futures_util::future::BoxFuture;
use onceflow_core::protocol::{ids::StepId, keys, rows};
use serde::{Deserialize, Serialize};

/// The bytes of output that are kept of a failed step, and of one that did not fail.
const FAILED_BYTES_MAX: usize = 64 << 10;
const DONE_BYTES_MAX: usize = 4 << 10;

/// Steps of a run whose logs this worker keeps; logs of failed steps are always kept.
const DONE_MAX: u64 = 1000;

/// The log of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLog {
    /// The address of the step.
    pub address: String,
    /// The attempt that wrote it.
    pub attempt: u32,
    /// The machine it ran on.
    pub host: String,
    /// The attempt failed.
    pub has_failed: bool,
    /// The end of its output.
    pub text: Vec<u8>,
}

/// Keeps the log of an attempt. A log that cannot be written is dropped: it is not worth a failure.
pub(super) async fn keep_log(work: &Work<'_>, attempt: u32, has_failed: bool, mut text: Vec<u8>) -> Result<(), Error> {
    let shared = work.shared();
    let run = work.run.plan.keys.run;
    if !has_failed && work.worker.announcement.done_of(run) >= DONE_MAX {
        return Ok(());
    }
    let most = if has_failed { FAILED_BYTES_MAX } else { DONE_BYTES_MAX };
    text.drain(..text.len().saturating_sub(most));
    let (address, about) = (work.address().await?, shared.options.about.clone().unwrap_or_default());
    let key = keys::logs(run).key(name(&address, work.taken.step));
    let log = StepLog { address, attempt, host: about.host, has_failed, text };
    let mut batch = work.taken.claim.holding(shared.shard());
    batch.put(key, rows::write(&log));
    if let Err(error) = shared.records.commit(batch).await {
        tracing::debug!(%error, "failed to keep the log of a step; dropping it");
    }
    Ok(())
}

/// The name of the row: the address, cut to fit, so that rows sort by it.
fn name(address: &str, step: StepId) -> Vec<u8> {
    const ADDRESS_BYTES_MAX: usize = 400;
    let address = &address.as_bytes()[..address.len().min(ADDRESS_BYTES_MAX)];
    [address, &[0], &step.to_bytes()].concat()
}

impl<'a> RunHistory<'a> {
    /// The logs of the run's steps, in the order of their addresses, where workers kept them.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn logs(self) -> BoxFuture<'a, Result<Vec<StepLog>, Error>> {
        Box::pin(async move {
            let rows = self.handle.shared.kernel.all_rows(keys::logs(self.handle.id()), b"").await?;
            Ok(rows.iter().filter_map(|(_, row)| rows::read(row)).collect())
        })
    }
}
