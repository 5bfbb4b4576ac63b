//! A step that may have work open in the store, beside its run.

use super::Step;
use std::ops::Deref;

/// The step of a task, which may have work open in the store while it runs, such as a pipeline of `onceflow-stream`: an
/// attempt that comes after a kill goes on with it, and the engine ends it if none comes. It is a [`Step`] otherwise.
///
/// An engine that works on such a task needs to know how to end the work: `Engine::builder().state(ends_step_pipelines())`
/// for pipelines. Without it the flow is refused before anything runs. Parameters of this type stand before the inputs.
#[derive(Clone, Debug)]
pub struct OpenStep(Step);

impl OpenStep {
    #[doc(hidden)]
    pub fn new(step: &Step) -> Self {
        OpenStep(step.clone())
    }
}

impl Deref for OpenStep {
    type Target = Step;

    fn deref(&self) -> &Step {
        &self.0
    }
}
