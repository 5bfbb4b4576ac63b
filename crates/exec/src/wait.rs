//! The executor of steps that wait for an event: it suspends the attempt until the event brings the outputs, or the
//! timeout of the step has passed.

use onceflow_engine::task::{Attempt, Body, Data, Failure, Step, Suspension, TIMEOUT, Verdict};
use onceflow_store::BoxFuture;

/// The executor that waits for events.
pub(crate) struct EventWait;

impl Body for EventWait {
    fn start(&self, step: Step, _: Vec<Data>) -> Attempt {
        let timeout_ms = step.spec().and_then(|spec| spec.timeout_ms);
        match (step.resumed(), timeout_ms) {
            (Some(resumed), Some(ms)) if resumed.timed_out => {
                let why = format!("{TIMEOUT}: no event came within its timeout, {ms} ms");
                Attempt::Done(Err(Failure { not_done: true, ..Failure::new(why) }))
            }
            // Events are found by the address of the step, so the handle is not needed for them.
            _ => Attempt::Suspended(Suspension { handle: String::from("event"), timeout_ms }),
        }
    }

    /// An interrupted wait has had no effect, so it counts as not done.
    fn verify(&self, _: Step, _: Vec<Data>) -> Option<BoxFuture<'static, Verdict>> {
        Some(Box::pin(async { Verdict::NotDone }))
    }
}
