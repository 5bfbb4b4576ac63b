//! Listens to the store for changes by other processes: the one place where an engine waits for them, on behalf of callers
//! that wait for runs, of bodies whose runs may be cancelled, and of timers.

use crate::shared::Shared;
use futures_util::future::{Either, select};
use onceflow_core::Timestamp;
use std::{pin::pin, sync::Arc};

/// The least time between two looks at an embedded store: a busy store changes thousands of times a second.
const GAP_MS: u64 = 20;

/// The same for a server that many processes look at.
const SERVER_GAP_MS: u64 = 100;

/// Waiting callers that add a millisecond to the gap: each of them reads its run.
const CALLERS_PER_MS: u64 = 4;

/// The pause before a store that did not answer is asked again.
const RETRY_MS: u64 = 500;

/// The longest time that anything relies on being woken, for servers whose messages can be lost without a trace.
pub(crate) const SAFETY_MS: u64 = 10_000;

impl Shared {
    /// Wakes the parts of this engine when the store has changed, until the engine closes or is dropped: this holds the
    /// store, and not the engine.
    pub(super) fn listen(self: &Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        let (records, world, shard) = (self.records.clone(), self.world.clone(), self.shard());
        let (engine, closing) = (Arc::downgrade(self), self.signals.closing.clone());
        let gap_ms = if records.server().is_some() { SERVER_GAP_MS } else { GAP_MS };
        async move {
            while !closing.is_closed() {
                // Callers that looked before this position look again; any change after it ends the wait.
                let seen = records.position();
                let Some(shared) = engine.upgrade() else { return };
                shared.signals.store_changed();
                let callers = shared.signals.waiting() as u64;
                drop(shared);
                let changed = records.wait(shard, seen, Timestamp::NEVER);
                let pause_ms = match select(changed, pin!(closing.closed())).await {
                    Either::Left((Ok(()), _)) => gap_ms + callers / CALLERS_PER_MS,
                    Either::Left((Err(error), _)) => {
                        tracing::debug!(%error, "failed to wait for changes of the store; retrying in {RETRY_MS} ms");
                        RETRY_MS
                    }
                    Either::Right(_) => return,
                };
                select(world.sleep(pause_ms), pin!(closing.closed())).await;
            }
        }
    }
}
