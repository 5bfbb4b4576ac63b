//! Watches the states of runs whose bodies run here, so that a cancel ends them at once, also one by another process.

use super::Worker;
use crate::Error;
use futures_util::future::select;
use onceflow_core::{
    limits::GET_KEYS_MAX,
    protocol::{
        ids::Generation,
        keys::Keys,
        rows::{self, State},
    },
};
use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering::SeqCst},
};

/// The interval at which states are read: a body ends this long after another process cancelled its run at the latest,
/// sooner than people notice, at the price of a row or two read.
const LOOK_MS: u64 = 250;

impl Worker {
    /// Reads the states while bodies run.
    pub(super) async fn watch_runs(self: Arc<Self>) {
        loop {
            let stopped = self.stopped.notified();
            if self.is_stopping() && self.busy.load(SeqCst) == 0 {
                return;
            }
            if self.alive.is_idle() {
                select(pin!(self.alive.began.notified()), pin!(stopped)).await;
                continue;
            }
            let (look, stopped) = (pin!(self.shared.look.notified()), pin!(stopped));
            select(self.shared.world.sleep(LOOK_MS), select(look, stopped)).await;
            if let Err(error) = self.look_at_runs().await {
                tracing::debug!(%error, "failed to read run states; retrying");
            }
        }
    }

    async fn look_at_runs(&self) -> Result<(), Error> {
        let runs: Vec<_> = self.alive.runs().into_iter().take(GET_KEYS_MAX).collect();
        if runs.is_empty() {
            return Ok(());
        }
        let keys: Vec<_> = runs.iter().map(|run| Keys::new(*run, Generation(0)).state()).collect();
        let found = self.shared.records.get(self.shared.shard(), &keys).await?;
        for (run, row) in runs.into_iter().zip(found) {
            let state = row.as_deref().and_then(rows::read::<State>);
            if let (Some(known), Some(state)) = (self.shared.known(run), state)
                && known.plan.keys.generation == state.generation
            {
                known.set_state(state);
            }
            self.alive.end_those_of(run, state);
        }
        Ok(())
    }
}
