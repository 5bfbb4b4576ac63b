//! Events of runs, for listeners: facts, in the order of their commits, published only once they are durable. Tests,
//! logs and pages read the same events.
//!
//! An event is true, but two workers may publish it: a worker whose reply was lost and which finds the step gone cannot
//! know that another committed it.

use crate::{RunStatus, event_log::LogQueue, runs::Run, task::Used};
use onceflow_core::protocol::{ids::RunId, rows::Failed};
use onceflow_store::{Position, Records, World};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use tokio::sync::mpsc;

/// An event in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The run's key.
    pub run: Arc<str>,
    /// The kind of event, with its details.
    pub kind: EventKind,
}

/// The kinds of events. Event logs contain them: new kinds go to the end.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum EventKind {
    /// The run was started, or got a new plan.
    DidStart {
        /// The generation of the plan.
        generation: u32,
    },
    /// User code is about to run.
    WillRun {
        /// The address of the step.
        address: String,
        /// The number of the attempt, from 1.
        attempt: u32,
    },
    /// An each begins to iterate over its list.
    DidOpen {
        /// The address of the each.
        address: String,
        /// Elements of the list.
        elements: u32,
    },
    /// A loop begins another iteration.
    DidTurn {
        /// The address of the loop.
        address: String,
        /// The number of the iteration that begins, from 0.
        iteration: u32,
    },
    /// A step took effect.
    DidCommit {
        /// The address of the step.
        address: String,
    },
    /// A step committed the outputs it gave before; its code did not run.
    DidReuse {
        /// The address of the step.
        address: String,
    },
    /// An attempt is over, with its usage; an event with its outcome follows.
    DidUse {
        /// The address of the step.
        address: String,
        /// From 1.
        attempt: u32,
        /// Processor time and memory.
        used: Used,
    },
    /// An attempt failed.
    DidFail(Failed),
    /// The outcome of a step is not known; an operator must report it.
    DidMarkUnknown {
        /// The address of the step.
        address: String,
    },
    /// A step waits for an event from outside.
    WillWait {
        /// The address of the step.
        address: String,
    },
    /// Another worker took the step over, because heartbeats of this one came too late; its outputs here are dropped.
    DidLose {
        /// The address of the step; empty if it is not known any more.
        address: String,
    },
    /// A cause outside its body keeps a step from being performed or from ending: the store does not accept its
    /// outputs, or a thread that cannot be stopped has not returned.
    HeldUp {
        /// The address of the step.
        address: String,
        /// The cause, and when the step is tried again.
        why: String,
    },
    /// A step was undone.
    DidUndo {
        /// The address of the step.
        address: String,
    },
    /// The run ended, or is at rest.
    DidEnd {
        /// Its status.
        how: RunStatus,
    },
    /// A cleanup of the step's scope failed. The outcome of the step, or of its run, stands.
    CleanupFailed {
        /// The address of the step.
        address: String,
        /// The cleanup, and why it failed.
        why: String,
    },
}

impl EventKind {
    /// The address of the step that the event is about.
    pub fn address(&self) -> Option<&str> {
        match self {
            EventKind::WillRun { address, .. }
            | EventKind::DidOpen { address, .. }
            | EventKind::DidTurn { address, .. }
            | EventKind::DidCommit { address }
            | EventKind::DidReuse { address }
            | EventKind::DidUse { address, .. }
            | EventKind::DidMarkUnknown { address }
            | EventKind::WillWait { address }
            | EventKind::DidLose { address }
            | EventKind::HeldUp { address, .. }
            | EventKind::CleanupFailed { address, .. }
            | EventKind::DidUndo { address } => Some(address),
            EventKind::DidFail(failed) => Some(&failed.address),
            EventKind::DidStart { .. } | EventKind::DidEnd { .. } => None,
        }
    }
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.run, self.kind)
    }
}

impl std::fmt::Display for EventKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EventKind::DidStart { generation: 0 } => f.write_str("did start"),
            EventKind::DidStart { generation } => write!(f, "did start again, with plan {generation}"),
            EventKind::WillRun { address, attempt: 1 } => write!(f, "will run {address}"),
            EventKind::WillRun { address, attempt } => write!(f, "will run {address}, attempt {attempt}"),
            EventKind::DidOpen { address, elements } => write!(f, "did open {address}: {elements} elements"),
            EventKind::DidTurn { address, iteration } => write!(f, "did begin iteration {iteration} of {address}"),
            EventKind::DidCommit { address } => write!(f, "did commit {address}"),
            EventKind::DidReuse { address } => write!(f, "did reuse {address}"),
            EventKind::DidUse { address, used: Used { cpu_ms, peak_bytes: None }, .. } => {
                write!(f, "{address} used {cpu_ms} ms of processors")
            }
            EventKind::DidUse { address, used: Used { cpu_ms, peak_bytes: Some(bytes) }, .. } => {
                write!(f, "{address} used {cpu_ms} ms of processors and {bytes} bytes of memory")
            }
            EventKind::DidFail(failed) => f.write_str(&crate::error::failures(std::slice::from_ref(failed))),
            EventKind::DidMarkUnknown { address } => write!(f, "did lose track of {address}"),
            EventKind::WillWait { address } => write!(f, "will wait for what is sent to {address}"),
            EventKind::DidLose { address } => write!(f, "did lose {address} to another worker"),
            EventKind::HeldUp { address, why } => write!(f, "{address} is held up: {why}"),
            EventKind::DidUndo { address } => write!(f, "did undo {address}"),
            EventKind::CleanupFailed { address, why } => write!(f, "{address}: {why}; its outcome stands"),
            EventKind::DidEnd { how } => write!(f, "did end: {how}"),
        }
    }
}

type Listener = mpsc::UnboundedSender<Event>;

/// An event that waits until it is durable.
struct Told {
    position: Position,
    event: Event,
    run: RunId,
    plan: u32,
    /// The time on this machine's clock.
    ms: u64,
}

/// Publishes events to listeners, and to the event logs of runs.
pub(crate) struct Events {
    world: Arc<dyn World>,
    /// Event logs are written, so events are wanted also without listeners.
    is_logged: bool,
    listeners: Mutex<Vec<Listener>>,
    listening: AtomicUsize,
    /// Held from a commit to its being queued, so that the queue has the order of the commits.
    order: tokio::sync::Mutex<()>,
    queue: Mutex<Option<mpsc::UnboundedSender<Told>>>,
}

impl Events {
    pub(crate) fn new(world: Arc<dyn World>, is_logged: bool) -> Arc<Self> {
        let (listeners, listening, order, queue) = Default::default();
        Arc::new(Events { world, is_logged, listeners, listening, order, queue })
    }

    /// At least one listener is subscribed, or events are logged.
    pub(crate) fn wanted(&self) -> bool {
        self.is_logged || self.listening.load(Relaxed) > 0
    }

    /// Holds back other events until the guard is dropped, if there are listeners.
    pub(crate) async fn order_if_wanted(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if self.wanted() { Some(self.order.lock().await) } else { None }
    }

    pub(crate) fn listen(&self) -> mpsc::UnboundedReceiver<Event> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut listeners = self.listeners.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        listeners.push(sender);
        self.listening.store(listeners.len(), Relaxed);
        receiver
    }

    /// Publishes an event of a run once everything up to `position` is durable.
    pub(crate) fn tell(&self, position: Position, run: &Run, kind: EventKind) {
        let queue = self.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(queue) = queue.as_ref() {
            let (event, ms) = (Event { run: run.key.clone(), kind }, self.world.clock().as_ms());
            let keys = &run.plan.keys;
            // The queue has no receiver any more when the engine has closed.
            let _closed = queue.send(Told { position, event, run: keys.run, plan: keys.generation.0, ms });
        }
    }

    /// Publishes queued events in order, and logs them; ends when [`Events::close`] was called.
    pub(crate) fn run(self: &Arc<Self>, records: Arc<dyn Records>, log: LogQueue) -> impl Future<Output = ()> + use<> {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        *self.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(sender);
        let events = self.clone();
        async move {
            while let Some(Told { position, event, run, plan, ms }) = receiver.recv().await {
                if let Err(error) = records.durable(position).await {
                    tracing::error!(%error, "dropping events: the commit may not be durable");
                    break;
                }
                log.log((run, &event.run, plan), ms, &event.kind);
                events.publish(&event);
            }
            // Listeners see the end.
            events.listeners.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
        }
    }

    fn publish(&self, event: &Event) {
        let mut listeners = self.listeners.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        listeners.retain(|listener| listener.send(event.clone()).is_ok());
        self.listening.store(listeners.len(), Relaxed);
    }

    pub(crate) fn close(&self) {
        self.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    }
}
