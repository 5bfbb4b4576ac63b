//! Wakes the reclaim loop of this process when there is something to reclaim, or something ends earlier.

use super::Keys;
use crate::wake::Bell;
use onceflow_core::{Batch, Op};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A bell, and how often it was rung.
#[derive(Default)]
pub(super) struct News {
    rung: AtomicU64,
    bell: Bell,
}

impl News {
    /// Whether a batch leaves garbage, a debt or a deadline in any case.
    pub(super) fn concerns(&self, keys: &Keys, batch: &Batch) -> bool {
        batch.ops.iter().any(|op| match op {
            Op::Put(key, _) => [&keys.zero, &keys.owed, &keys.due, &keys.unlink].contains(&&key.group),
            _ => false,
        })
    }

    pub(super) fn ring(&self) {
        self.rung.fetch_add(1, SeqCst);
        self.bell.ring();
    }

    pub(super) fn seen(&self) -> u64 {
        self.rung.load(SeqCst)
    }

    /// Ends when it was rung after `seen`.
    pub(super) async fn after(&self, seen: u64) {
        self.bell.until(|| (self.seen() != seen).then_some(())).await;
    }
}
