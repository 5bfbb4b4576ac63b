//! The events of an engine, as a stream.

use onceflow_engine::Event;
use tokio::sync::mpsc::UnboundedReceiver;

/// The events in the runs of an engine. Ends when the engine is closed.
///
/// No event is lost and no run waits: events that are not taken are kept in memory, so take them, or drop this.
#[derive(Debug)]
pub struct Events {
    receiver: UnboundedReceiver<Event>,
}

impl Events {
    pub(super) fn new(receiver: UnboundedReceiver<Event>) -> Self {
        Events { receiver }
    }

    /// Waits for the next event; `None` after the last.
    pub async fn next(&mut self) -> Option<Event> {
        self.receiver.recv().await
    }

    /// Returns the next event, if it is there already.
    pub fn ready(&mut self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }
}
