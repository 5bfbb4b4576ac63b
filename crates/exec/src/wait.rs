//! The executor of steps that wait for an event: it does nothing, and says that somebody outside will say what the step
//! gives. The engine puts the step aside until then.

use onceflow_engine::task::{Attempt, Body, Data, Failure, Step};

/// Waits.
pub(crate) struct Waits;

impl Body for Waits {
    fn start(&self, _: Step, _: Vec<Data>) -> Attempt {
        Attempt::Done(Err(Failure::open("it waits for an event")))
    }
}
