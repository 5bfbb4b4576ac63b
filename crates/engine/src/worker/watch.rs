//! Sends the heartbeats of a worker, and watches the states of runs whose bodies run here, so that a cancel ends them at
//! once, also one by another process.

use super::Worker;
use crate::{Error, engine::SAFETY_MS};
use futures_util::future::select;
use onceflow_core::{
    limits::GET_KEYS_MAX,
    protocol::{
        ids::{Generation, RunId},
        keys::Keys,
        rows::{self, Phase, RunState},
    },
};
use std::{collections::BTreeSet, pin::pin, sync::Arc};

/// The run of a step, and what may stop its work.
#[derive(Clone, Copy)]
pub(crate) struct Whose {
    pub(crate) run: RunId,
    pub(crate) generation: Generation,
    /// The work ends when its run is cancelled.
    pub(crate) ends_with_run: bool,
}

impl Whose {
    /// The run, in this state, goes on without the work.
    fn is_over(self, run: RunId, state: Option<RunState>) -> bool {
        let goes_on = state.is_some_and(|state| {
            // A frozen run may resume as it was.
            let is_open = matches!(state.phase, Phase::Running | Phase::Failing | Phase::Frozen);
            state.generation == self.generation && is_open
        });
        self.run == run && self.ends_with_run && !goes_on
    }
}

impl Worker {
    /// Sends heartbeats, and frees abandoned steps, three times in a lease.
    ///
    /// They are sent from the service thread of the [world](onceflow_store::World::service), so that a body that blocks
    /// its thread does not stop them.
    pub(super) async fn stay_alive(self: Arc<Self>) {
        let pause_ms = (self.shared.options.lease_ms / 3).max(1);
        let mut pause = self.shared.world.sleep(pause_ms);
        loop {
            let stopped = self.drain.stopped.notified();
            if self.drain.is_drained() {
                return;
            }
            select(pause, pin!(stopped)).await;
            // The pause begins here, so that a slow store does not make heartbeats rarer.
            pause = self.shared.world.sleep(pause_ms);
            let renewed = self.alive.renew(&self.shared.kernel).await;
            let freed = self.free_abandoned().await;
            if let Err(error) = renewed.and(freed) {
                tracing::warn!(%error, "failed to send heartbeats; retrying in {pause_ms} ms");
            }
        }
    }

    /// Frees steps of workers whose deadlines have passed.
    pub(crate) async fn free_abandoned(&self) -> Result<usize, Error> {
        self.alive.take_over(&self.shared.kernel, self.capacity.all_queues()).await
    }

    /// Reads the states while bodies run that can be told to end: when the first of them begins to listen, and whenever the
    /// store has changed.
    pub(super) async fn watch_runs(self: Arc<Self>) {
        loop {
            let stopped = self.drain.stopped.notified();
            if self.drain.is_drained() {
                return;
            }
            if self.alive.is_idle() {
                select(pin!(self.alive.began.notified()), pin!(stopped)).await;
                if self.alive.is_idle() {
                    continue;
                }
            } else {
                let (look, stopped) = (pin!(self.shared.signals.look.notified()), pin!(stopped));
                select(self.shared.world.sleep(SAFETY_MS), select(look, stopped)).await;
            }
            if let Err(error) = self.look_at_runs().await {
                tracing::debug!(%error, "failed to read run states; retrying");
            }
        }
    }

    async fn look_at_runs(&self) -> Result<(), Error> {
        let runs: BTreeSet<_> = self.alive.running(|whose| whose.ends_with_run.then_some(whose.run));
        let runs: Vec<_> = runs.into_iter().take(GET_KEYS_MAX).collect();
        if runs.is_empty() {
            return Ok(());
        }
        let keys: Vec<_> = runs.iter().map(|run| Keys::new(*run, Generation(0)).state()).collect();
        let found = self.shared.records.get(self.shared.shard(), &keys).await?;
        for (run, row) in runs.into_iter().zip(found) {
            let state = row.as_deref().and_then(rows::read::<RunState>);
            if let (Some(known), Some(state)) = (self.shared.runs.known(run), state)
                && known.plan.keys.generation == state.generation
            {
                // Settings that cannot be read now are read before the next commit.
                if self.shared.runs.read_settings(&known.plan, state).await? {
                    known.set_state(state);
                }
            }
            self.alive.end(|whose| whose.is_over(run, state));
        }
        Ok(())
    }
}
