//! Flows that records call. The key of a call's run is made of its id, so a call that begins again meets its run; the run
//! begins only while the call's row is there, so a worker that lost its partition cannot begin a run that ended long ago;
//! and its history goes when its result is durable in the pipeline.

use super::call::{CallFailure, CallTarget, RecordCall};
use crate::{data::StreamData, error::StreamError};
use onceflow_core::model::CheckedFlow;
use onceflow_engine::{Engine, Error, Handle, RunStatus, Start, Summary, task::Data};
use onceflow_store::BoxFuture;
use std::sync::Arc;

/// The pause before something is tried again that the store refused.
const PAUSE_MS: u64 = 500;

/// The longest time until a run that waits for an operator or an event is looked at again.
const LOOK_MS: u64 = 1000;

/// Values of a flow's inputs or outputs, by name.
pub type NamedData = Vec<(String, Data)>;

/// The fate of a record whose run failed, or was cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailedCall {
    /// The pipeline stops. Run again, it starts the same run again, which retries its failed steps.
    #[default]
    Stop,
    /// The record is left out, and counted as skipped. The run keeps its history.
    Skip,
}

/// Calls a flow for each record.
pub struct FlowCalls<T, U> {
    engine: Engine,
    flow: CheckedFlow,
    classes: Arc<dyn Fn(&str) -> Vec<(String, String)> + Send + Sync>,
    step: String,
    prefix: String,
    on_failure: FailedCall,
    inputs: Arc<dyn Fn(&T) -> Result<NamedData, CallFailure> + Send + Sync>,
    output: Arc<dyn Fn(T, NamedData) -> Result<U, CallFailure> + Send + Sync>,
}

impl<T, U> Clone for FlowCalls<T, U> {
    fn clone(&self) -> Self {
        FlowCalls {
            engine: self.engine.clone(),
            flow: self.flow.clone(),
            classes: self.classes.clone(),
            step: self.step.clone(),
            prefix: self.prefix.clone(),
            on_failure: self.on_failure,
            inputs: self.inputs.clone(),
            output: self.output.clone(),
        }
    }
}

/// Returns the beginning of the keys of runs that a step of a pipeline calls; the call's id follows.
pub fn run_prefix(pipeline: &str, step: &str) -> String {
    format!("{pipeline}/{step}/")
}

/// A run of this key was called by a step of this pipeline.
pub fn is_called_by(pipeline: &str, key: &str) -> bool {
    let rest = key.strip_prefix(pipeline).and_then(|rest| rest.strip_prefix('/'));
    let id = rest.and_then(|rest| rest.rsplit_once('/')).map(|(_, id)| id);
    id.is_some_and(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl<T: StreamData + Sync, U: StreamData> FlowCalls<T, U> {
    /// Creates the calls of a step, a run of `flow` for each record. `engine` runs them, and must be on the pipeline's
    /// store; `inputs` makes the inputs of a run from its record, and `output` the result from its outputs.
    pub fn new(
        engine: Engine,
        flow: CheckedFlow,
        (pipeline, step): (&str, &str),
        inputs: impl Fn(&T) -> Result<NamedData, CallFailure> + Send + Sync + 'static,
        output: impl Fn(T, NamedData) -> Result<U, CallFailure> + Send + Sync + 'static,
    ) -> Self {
        FlowCalls {
            engine,
            flow,
            classes: Arc::new(|_| Vec::new()),
            step: step.to_owned(),
            prefix: run_prefix(pipeline, step),
            on_failure: FailedCall::Stop,
            inputs: Arc::new(inputs),
            output: Arc::new(output),
        }
    }

    /// Sets how a record is treated whose run failed.
    #[must_use]
    pub fn on_failure(self, on_failure: FailedCall) -> Self {
        FlowCalls { on_failure, ..self }
    }

    /// Sets the classes of workers that take the steps of a run, by its key (see [`Start::classes`]).
    #[must_use]
    pub fn classes(self, classes: impl Fn(&str) -> Vec<(String, String)> + Send + Sync + 'static) -> Self {
        FlowCalls { classes: Arc::new(classes), ..self }
    }

    fn failure(&self, run: &str, message: String) -> CallFailure {
        match self.on_failure {
            FailedCall::Skip => CallFailure::Skip,
            FailedCall::Stop => {
                CallFailure::Stop(StreamError::Call { name: self.step.clone(), run: run.to_owned(), message })
            }
        }
    }

    async fn run(&self, call: RecordCall, record: T) -> Result<U, CallFailure> {
        let key = format!("{}{}", self.prefix, call.id);
        let mut start = Start::new(&key, self.flow.clone());
        start.classes = (self.classes)(&key);
        start.inputs = (self.inputs)(&record)?;
        start.while_there = vec![call.open_row.clone()];
        let outputs = loop {
            match self.outputs(&start).await {
                Ok(Ok(outputs)) => break outputs,
                Ok(Err(summary)) => return Err(self.failure(&key, summary.to_string())),
                Err(Error::Unwanted { .. }) => return Err(CallFailure::Unwanted),
                // The process leaves; the next one calls again.
                Err(Error::Closed) => std::future::pending().await,
                Err(error) if may_pass(&error) => {
                    tracing::warn!(%error, key, "the store failed; calling again in {PAUSE_MS} ms");
                    call.world.sleep(PAUSE_MS).await;
                }
                Err(error) => return Err(self.failure(&key, error.to_string())),
            }
        };
        (self.output)(record, outputs)
    }

    /// Runs the flow, or meets the run, until it has ended; `Err` inside is a run without outputs.
    async fn outputs(&self, start: &Start) -> Result<Result<NamedData, Box<Summary>>, Error> {
        let handle = self.engine.start(start.clone()).await?;
        let summary = loop {
            let summary = handle.wait().await?;
            if summary.status != RunStatus::Waiting {
                break summary;
            }
            handle.until_changed(LOOK_MS).await?;
        };
        if summary.status != RunStatus::Done {
            return Ok(Err(Box::new(summary)));
        }
        let mut outputs = Vec::new();
        for (name, _) in &summary.outputs {
            outputs.push((name.clone(), handle.output(name).await?));
        }
        Ok(Ok(outputs))
    }

    async fn let_go(&self, key: &str) -> Result<(), Error> {
        let handle: Handle = match self.engine.find(key).await {
            Err(Error::NoRun(_)) => return Ok(()),
            found => found?,
        };
        match handle.summary().await {
            Err(Error::NoRun(_)) => Ok(()),
            summary => self.engine.forget(&summary?).await.map(drop),
        }
    }
}

/// The store did not answer, so the same may succeed later.
fn may_pass(error: &Error) -> bool {
    use onceflow_store::Error as Store;
    matches!(error, Error::Busy { .. } | Error::Store(Store::Unavailable(_) | Store::Unknown(_) | Store::Full(_)))
}

impl<T: StreamData + Sync, U: StreamData> CallTarget<T> for FlowCalls<T, U> {
    type Out = U;

    fn call(&self, call: RecordCall, record: T) -> BoxFuture<'static, Result<U, CallFailure>> {
        let calls = self.clone();
        Box::pin(async move { calls.run(call, record).await })
    }

    fn forget(&self, call: RecordCall) -> BoxFuture<'static, ()> {
        let calls = self.clone();
        Box::pin(async move {
            let key = format!("{}{}", calls.prefix, call.id);
            loop {
                match calls.let_go(&key).await {
                    Ok(()) => return,
                    Err(Error::Closed) => std::future::pending().await,
                    Err(error) if may_pass(&error) => call.world.sleep(PAUSE_MS).await,
                    Err(error) => {
                        tracing::warn!(%error, key, "failed to remove the run of a call; its history ends by itself");
                        return;
                    }
                }
            }
        })
    }
}
