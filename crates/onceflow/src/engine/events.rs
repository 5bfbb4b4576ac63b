//! What happens, as a stream that is asked for the next.

use onceflow_engine::Event;
use tokio::sync::mpsc::UnboundedReceiver;

/// What happens in the runs of an engine. Ends when the engine is closed.
///
/// Nothing is lost and nothing waits: what is not taken is kept, so take it, or drop this.
#[derive(Debug)]
pub struct Events {
    receiver: UnboundedReceiver<Event>,
}

impl Events {
    pub(super) fn new(receiver: UnboundedReceiver<Event>) -> Self {
        Events { receiver }
    }

    /// Waits for the next; `None` after the last.
    pub async fn next(&mut self) -> Option<Event> {
        self.receiver.recv().await
    }

    /// The next, if it is there already.
    pub fn ready(&mut self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }
}
