//! The event log of a run, in the store: workers write it, any process that shares the store reads it. It is
//! informational: no decision of the engine rests on it, and it goes with the run's history.
//!
//! Every worker has blocks of its own, so no row is written by two. Events are logged once they are durable, some at a
//! time and beside the commits of steps. The log is bounded: when it is full, events are counted and no longer listed.
//! When the run ends, a long log is sealed into a value, so that a finished run holds one row.

mod counts;
mod reader;
mod rows;
mod seal;
mod sink;
#[cfg(test)]
mod tests;
mod writer;

pub use counts::{Unlisted, UnlistedCounts};
pub use reader::EventLogReader;
pub(crate) use rows::{SealedLog, SealedRow};
pub(crate) use seal::release_sealed_events;

use crate::{
    Error, RunHistory,
    events::EventKind,
    runs::Run,
    shared::{Shared, lock},
};
use futures_util::future::BoxFuture;
use onceflow_core::protocol::{
    ids::RunId,
    keys,
    rows::{Head, read},
};
use rows::{Logged, LoggedEvent};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, watch};

/// Settings of the event logs that an engine writes.
#[derive(Clone, Copy, Debug)]
pub struct EventLogOptions {
    /// Tells whether an address is of a step that users do not know of: its events are not logged, unless it fails.
    pub is_hidden: fn(&str) -> bool,
    /// Returns the name of the step at an address: addresses of one name are counted as one step.
    pub name: fn(&str) -> String,
}

impl Default for EventLogOptions {
    fn default() -> Self {
        EventLogOptions { is_hidden: |_| false, name: str::to_owned }
    }
}

/// An entry of an event log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The time on the store's clock, in milliseconds since 1970.
    pub ms: u64,
    /// The generation of the plan it happened under.
    pub plan: u32,
    /// The host name of the worker that logged it.
    pub host: Arc<str>,
    /// The content.
    pub kind: LogEntryKind,
}

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEntryKind {
    /// An event.
    Event(EventKind),
    /// The outcome of a waiting step was reported from outside.
    Reported {
        /// The address of the step.
        address: String,
        /// The outcome.
        outcome: ReportedOutcome,
    },
    /// A worker began to attend the run: the one that attended it before is gone.
    Resumed,
    /// Events that are not listed.
    Unlisted(UnlistedCounts),
}

/// The outcome of a waiting step, as it was reported by an operator or by sending the event that the step waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportedOutcome {
    /// The step was done.
    Done {
        /// The event, if the step waited for one.
        event: Option<String>,
        /// Its outputs, by name, as the caller writes them.
        outputs: Vec<(String, String)>,
    },
    /// The step was not done, and runs again.
    Redo,
    /// The step failed, for this reason.
    Failed(String),
}

/// An entry on its way to the log of its run.
struct Entry {
    run: RunId,
    key: Arc<str>,
    event: LoggedEvent,
}

/// The door to the event logs that an engine writes; closed if it writes none.
#[derive(Default)]
pub(crate) struct EventLogs {
    queue: Mutex<Option<mpsc::UnboundedSender<Entry>>>,
    done: Mutex<Option<watch::Receiver<bool>>>,
    /// The attendance that began, until the run goes on: the run, its plan and the time.
    attended: Mutex<Option<(RunId, u32, u64)>>,
}

/// Passes events that are durable on to the logs, in order, until it is dropped.
pub(crate) struct LogQueue(Option<mpsc::UnboundedSender<Entry>>);

impl LogQueue {
    pub(crate) fn log(&self, (run, key, plan): (RunId, &Arc<str>, u32), ms: u64, what: &EventKind) {
        if let Some(queue) = &self.0 {
            let event = LoggedEvent { ms, plan, what: Logged::Event(what.clone()) };
            // The log has no receiver any more when the runtime of the engine is gone.
            let _closed = queue.send(Entry { run, key: key.clone(), event });
        }
    }
}

impl EventLogs {
    /// Begins to write logs.
    fn open(&self) -> (mpsc::UnboundedReceiver<Entry>, watch::Sender<bool>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (done, is_done) = watch::channel(false);
        *lock(&self.queue) = Some(sender);
        *lock(&self.done) = Some(is_done);
        (receiver, done)
    }

    /// Another way into the logs.
    pub(crate) fn queue(&self) -> LogQueue {
        LogQueue(lock(&self.queue).clone())
    }

    fn is_open(&self) -> bool {
        lock(&self.queue).is_some()
    }

    fn log(&self, run: RunId, key: &str, event: LoggedEvent) {
        if let Some(queue) = &*lock(&self.queue) {
            let _closed = queue.send(Entry { run, key: key.into(), event });
        }
    }

    /// Notes that this engine begins to attend a run that another one worked on; the log says so when the run goes on.
    pub(crate) async fn note_attendance(&self, shared: &Shared, key: &str) -> Result<(), Error> {
        if !self.is_open() {
            return Ok(());
        }
        let Some(Head::Active(run)) = shared.row(keys::heads().key(key)).await?.as_deref().and_then(read) else {
            return Ok(());
        };
        let is_logged = !shared.kernel.all_rows(keys::events(run), keys::EVENT_HEADERS).await?.is_empty();
        if let Some(known) = shared.runs.read_run(run).await?.filter(|_| is_logged) {
            let plan = known.state().generation.0;
            *lock(&self.attended) = Some((run, plan, shared.world.clock().as_ms()));
        }
        Ok(())
    }

    /// Logs that this engine goes on with the run that it attends.
    pub(crate) fn log_resumed(&self, key: &str) {
        let attended = lock(&self.attended).take();
        if let Some((run, plan, ms)) = attended {
            self.log(run, key, LoggedEvent { ms, plan, what: Logged::Resumed });
        }
    }

    /// Logs an event that no worker tells: an operator caused it.
    pub(crate) fn log_outside(&self, ms: u64, run: &Run, what: EventKind) {
        let plan = run.plan.keys.generation.0;
        let event = LoggedEvent { ms, plan, what: Logged::Event(what) };
        self.log(run.plan.keys.run, &run.key, event);
    }

    /// Takes no further entries. The logs end once all [queues](LogQueue) are dropped too.
    pub(crate) fn close(&self) {
        lock(&self.queue).take();
    }

    /// Waits until everything that was logged is written, after [`EventLogs::close`].
    pub(crate) async fn closed(&self) {
        let done = lock(&self.done).clone();
        if let Some(mut done) = done {
            // An error means that the task was dropped with its runtime.
            let _gone = done.wait_for(|is_done| *is_done).await;
        }
    }
}

/// Writes event logs in a task of its own, if the engine is to keep them.
pub(crate) fn write_event_logs(shared: &Arc<Shared>) {
    if let Some(options) = shared.options.event_log {
        let (entries, done) = shared.event_logs.open();
        let writer = writer::Writer::new(shared.clone(), options);
        shared.world.spawn("onceflow event logs", Box::pin(writer.run(entries, done)));
    }
}

impl<'a> RunHistory<'a> {
    /// Reads the event log of the run, and continues as it grows. Needs no engine that writes logs.
    pub fn event_log(self) -> EventLogReader {
        EventLogReader::new(self.handle.clone())
    }

    /// Logs the outcome of a waiting step that was [reported](crate::Handle::resolve); written when the engine closes, at the
    /// latest. Does nothing if this engine writes no logs.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn log_report(self, address: &'a str, outcome: ReportedOutcome) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let ms = self.handle.shared.world.clock().as_ms();
            let plan = self.handle.summary().await?.generation;
            let what = Logged::Reported { address: address.to_owned(), outcome };
            self.handle.shared.event_logs.log(self.handle.id(), self.handle.key(), LoggedEvent { ms, plan, what });
            Ok(())
        })
    }
}
