//! The executor of steps that wait for an event: it does nothing, and says that somebody outside will say what the step
//! gives. The engine puts the step aside until then.

use onceflow_engine::task::{Attempt, Body, Data, Failure, Step, Verdict};
use onceflow_store::BoxFuture;

/// Waits.
pub(crate) struct EventWait;

impl Body for EventWait {
    fn start(&self, _: Step, _: Vec<Data>) -> Attempt {
        Attempt::Done(Err(Failure { not_done: true, ..Failure::open("it waits for an event") }))
    }

    /// Whoever began to wait and is gone has done nothing.
    fn verify(&self, _: Step, _: Vec<Data>) -> Option<BoxFuture<'static, Verdict>> {
        Some(Box::pin(async { Verdict::NotDone }))
    }
}
