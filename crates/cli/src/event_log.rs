//! The event log of a run, which the store keeps, as commands read it; and events as `--json` prints them.

mod line;
mod reported;

pub(crate) use line::{Counts, Line, told};
pub(crate) use reported::{outputs_text, reported_fate, reported_json, reported_text};

use crate::{fault::Fault, progress::Progress, words};
use onceflow_engine::{Event, EventKind, EventLogOptions, EventLogReader, Handle};

/// The settings of the event logs that engines of this command write: helpers that a step was lowered to are left out.
pub(crate) const OPTIONS: EventLogOptions = EventLogOptions { is_hidden: words::is_helper, name: words::step };

/// Returns the milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Reads an event log, and continues as it grows.
pub(crate) struct Reader(EventLogReader);

impl Reader {
    /// Begins with the first entry.
    pub(crate) fn open(handle: &Handle) -> Self {
        Reader(handle.history().event_log())
    }

    /// Returns the lines added since the last call.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn more(&mut self) -> Result<Vec<Line>, Fault> {
        Ok(self.0.more().await?.into_iter().map(Line::of).collect())
    }

    /// The last line that was read says that the run is at rest, or there is no log at all.
    pub(crate) fn is_at_end(&self) -> bool {
        self.0.is_at_end() || self.0.is_empty()
    }
}

/// Returns all lines of the event log of a run.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn lines(handle: &Handle) -> Result<Vec<Line>, Fault> {
    Reader::open(handle).more().await
}

/// Returns the progress of a run, from its event log.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn progress(handle: &Handle) -> Result<Progress, Fault> {
    let mut progress = Progress::default();
    for line in lines(handle).await? {
        progress.read(&line);
    }
    Ok(progress)
}

/// Passes on the events of one run as they arrive, until the channel closes.
pub(crate) async fn follow(
    mut events: tokio::sync::mpsc::UnboundedReceiver<Event>,
    key: String,
    mut seen: impl FnMut(u64, &EventKind),
) {
    while let Some(event) = events.recv().await {
        if *event.run == *key {
            seen(now_ms(), &event.kind);
        }
    }
}
