//! Signals between the parts of an engine: that a run got on, that something is due, and that the engine closes.

use onceflow_core::protocol::ids::RunId;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};
use tokio::sync::Notify;

/// Signals for callers that wait for runs.
const BELLS: usize = 256;

/// The signals of an engine.
pub(crate) struct Signals {
    /// Signal that a run got an output or ended. Several, so that of a thousand waiting callers few are woken.
    progress: Box<[Notify]>,
    /// Signals that a run was cancelled here, or has a new plan.
    pub(crate) look: Notify,
    /// Signals that a removal was scheduled.
    pub(crate) due: Notify,
    /// Signals that another process may have set a timer, or made one due.
    pub(crate) heard: Notify,
    /// Tells that the engine is closed, also to tasks that outlive it.
    pub(crate) closing: Arc<Closing>,
    /// The callers that wait for runs.
    waiting: AtomicUsize,
}

/// Tells that an engine is closed, or that the last of its parts was dropped.
#[derive(Default)]
pub(crate) struct Closing {
    rings: Notify,
    closed: AtomicBool,
}

impl Closing {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Ends when the engine is closed.
    pub(crate) async fn closed(&self) {
        let mut rings = std::pin::pin!(self.rings.notified());
        rings.as_mut().enable();
        if !self.is_closed() {
            rings.await;
        }
    }

    fn close(&self) {
        self.closed.store(true, SeqCst);
        self.rings.notify_waiters();
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.closing.close();
    }
}

/// A caller that waits for a run, until it is dropped.
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Signals {
    pub(crate) fn new() -> Self {
        Signals {
            progress: (0..BELLS).map(|_| Notify::new()).collect(),
            look: Notify::new(),
            due: Notify::new(),
            heard: Notify::new(),
            closing: Arc::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Closes the engine: everything that waits returns.
    pub(crate) fn close(&self) {
        self.closing.close();
        self.due.notify_waiters();
        self.due.notify_one();
        self.ring_all();
    }

    /// Counts a caller that waits for a run.
    pub(crate) fn begin_waiting(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, SeqCst);
        Waiting(&self.waiting)
    }

    /// The callers that wait for runs.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// The store has changed: every part of the engine looks at what it waits for.
    pub(crate) fn store_changed(&self) {
        self.ring_all();
        self.look.notify_one();
        self.heard.notify_one();
    }

    /// Wakes every caller that waits for any run.
    pub(crate) fn ring_all(&self) {
        self.progress.iter().for_each(Notify::notify_waiters);
    }

    /// Signals that this run got an output or ended, and that the engine closes.
    pub(crate) fn progress(&self, run: RunId) -> &Notify {
        // Ids of runs are random.
        &self.progress[usize::from(run.0[0]) % BELLS]
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closing.is_closed()
    }
}
