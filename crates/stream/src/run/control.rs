//! The hand on a running pipeline: asks its workers in this process to drain.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::Notify;

/// Asks the workers of a pipeline in this process to stop. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct StreamControl(Arc<ControlState>);

#[derive(Debug, Default)]
struct ControlState {
    drains: AtomicBool,
    /// Rings when a partition has committed, when a source has something new, and when workers are to drain.
    bell: Notify,
}

impl StreamControl {
    /// Takes no further records from sources, finishes those that were taken, and gives the partitions back. The
    /// pipeline goes on from there when it is run again; windows that are open stay open.
    pub fn drain(&self) {
        self.0.drains.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Wakes workers that wait for something to do: a source that gets records from outside calls it.
    pub fn ring(&self) {
        self.0.bell.notify_waiters();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.0.drains.load(Ordering::SeqCst)
    }

    pub(crate) fn rung(&self) -> tokio::sync::futures::Notified<'_> {
        self.0.bell.notified()
    }
}
