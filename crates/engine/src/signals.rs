//! Signals between the parts of an engine: that a run got on, that something is due, and that the engine closes.

use onceflow_core::protocol::ids::RunId;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
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
    /// Signals that the engine closes.
    pub(crate) closing: Notify,
    /// The callers that wait for runs.
    waiting: AtomicUsize,
    closed: AtomicBool,
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
            closing: Notify::new(),
            waiting: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Closes the engine: everything that waits returns.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.due.notify_waiters();
        self.due.notify_one();
        self.closing.notify_waiters();
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
        self.closed.load(SeqCst)
    }
}
