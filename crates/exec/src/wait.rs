//! The executor of steps that wait for an event: it does nothing but report that the outputs will come from outside.
//! The engine parks the step until then.

use onceflow_engine::task::{Attempt, Body, Data, Failure, Step, Verdict};
use onceflow_store::BoxFuture;

/// The executor that waits for events.
pub(crate) struct EventWait;

impl Body for EventWait {
    fn start(&self, _: Step, _: Vec<Data>) -> Attempt {
        Attempt::Done(Err(Failure { not_done: true, ..Failure::open("it waits for an event") }))
    }

    /// An interrupted wait has had no effect, so it counts as not done.
    fn verify(&self, _: Step, _: Vec<Data>) -> Option<BoxFuture<'static, Verdict>> {
        Some(Box::pin(async { Verdict::NotDone }))
    }
}
