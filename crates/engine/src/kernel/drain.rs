//! Drains a worker: it claims nothing more, and what it has is waited for.

use futures_util::future::{Either, select};
use onceflow_store::World;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};
use tokio::sync::Notify;

/// Counts the work in progress, and knows whether more may be claimed.
#[derive(Default)]
pub(crate) struct Drain {
    stopping: AtomicBool,
    busy: AtomicUsize,
    /// Signals that nothing more is to be claimed, and then that work has ended.
    pub(crate) stopped: Notify,
    ended: Notify,
}

/// Counts as work in progress until dropped, also if it panicked.
pub(crate) struct Busy(Arc<Drain>);

impl Drop for Busy {
    fn drop(&mut self) {
        let before = self.0.busy.fetch_sub(1, SeqCst);
        assert!(before > 0, "work ended that was not counted when it began");
        self.0.ended.notify_waiters();
        if self.0.is_stopping() {
            self.0.stopped.notify_waiters();
        }
    }
}

impl Drain {
    /// Counts work that begins.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, SeqCst);
        Busy(self.clone())
    }

    /// Nothing more is claimed from now on.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.stopped.notify_waiters();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// The work in progress.
    pub(crate) fn busy(&self) -> usize {
        self.busy.load(SeqCst)
    }

    /// Nothing is claimed any more, and nothing is in progress.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_stopping() && self.busy() == 0
    }

    /// Stops, and waits until nothing is in progress. `told` names what is waited for, for the log.
    pub(crate) async fn drain(&self, world: &dyn World, told: impl Fn() -> String) {
        /// The interval at which it logs the work it waits for.
        const TELL_MS: u64 = 10_000;
        self.stop();
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            let busy = self.busy();
            if busy == 0 {
                return;
            }
            if let Either::Right(_) = select(ended, world.sleep(TELL_MS)).await {
                tracing::warn!(steps = busy, "closing waits for steps that have not ended: {}", told());
            }
        }
    }
}
