//! Housekeeping while an engine works: suspended steps are woken at their deadlines, remains that are due are removed,
//! and values that nothing refers to are reclaimed.

use super::{finished::DueRemoval, timers::Timers};
use crate::{Error, shared::Shared};
use futures_util::future::{Either, select};
use onceflow_core::{Timestamp, protocol::ids::RunId};
use std::sync::Arc;

/// The longest sleep between two looks: another process may have finished a run.
const LOOK_MS: u64 = 60_000;

/// The least time between two looks because the store has changed: a timer may have been set by a process that is gone.
const HEARD_MS: u64 = 1000;

/// Wakes suspended steps and removes what is due, and sleeps until the next deadline: the one sleeper for both.
pub(super) async fn keep_house(shared: Arc<Shared>) {
    while !shared.signals.is_closed() {
        let (pause, changed) = match until_due(&shared).await {
            Ok(pause_ms) => (pause_ms, shared.signals.due.notified()),
            Err(error) => {
                tracing::warn!(%error, "failed to wake steps or remove runs that are due; retrying in 1 s");
                (1000, shared.signals.due.notified())
            }
        };
        // Nothing that another process did is in such a hurry, but a deadline of this one is.
        let heard = async {
            shared.world.sleep(HEARD_MS).await;
            shared.signals.heard.notified().await;
        };
        let heard = std::pin::pin!(heard);
        select(shared.world.sleep(pause), select(std::pin::pin!(changed), heard)).await;
    }
}

/// Does everything that is due; returns the milliseconds until the next deadline.
async fn until_due(shared: &Shared) -> Result<u64, Error> {
    let wakes = Timers::of(shared).fire_due().await?;
    let removes = DueRemoval::of(shared).remove().await?;
    let pause = |next: Option<Timestamp>, now| next.map_or(LOOK_MS, |next| next.ms_since(now).clamp(1, LOOK_MS));
    let removes_ms = pause(removes, shared.values.trusted_now().await.unwrap_or(Timestamp::ZERO));
    Ok(removes_ms.min(pause(wakes, shared.records.now().await?)))
}

/// Reclaims values that nothing refers to any more, until the engine closes.
pub(super) async fn reclaim(shared: Arc<Shared>) {
    let closed = async {
        loop {
            let progress = shared.signals.progress(RunId([0; 8])).notified();
            if shared.signals.is_closed() {
                return;
            }
            progress.await;
        }
    };
    let reclaim = shared.values.clone().reclaim_forever();
    if let Either::Left((error, _)) = select(std::pin::pin!(reclaim), std::pin::pin!(closed)).await {
        tracing::error!(%error, "reclaiming has ended; unused values stay until another worker reclaims them");
    }
}
