//! A run as users see it: typed outputs as soon as they exist, the result, a way to stop it.

mod start;

pub use start::Start;

use crate::{
    Engine, Error, Resolution, RunStatus, Summary,
    flow::Flow,
    port::{Output, Ports},
    task::Data,
    value::Value,
};
use onceflow_core::payload::Outcome;
use onceflow_engine::Handle;
use std::{marker::PhantomData, path::Path, sync::Arc};

/// A run of a flow that gives `O`. Dropping it changes nothing: the run goes on. One that was started without a key is
/// forgotten when it is done and the last clone of this is dropped.
///
/// The handle answers only for the inputs the run was started with: if the same key is started with others, it fails
/// with [`Error::Superseded`].
pub struct Run<O> {
    engine: Engine,
    handle: Handle,
    /// The names of the flow's outputs, in order.
    outputs: Arc<[String]>,
    gives: PhantomData<fn() -> O>,
}

impl<O: Ports> Run<O> {
    pub(crate) fn new<I: Ports>(engine: Engine, flow: &Flow<I, O>, handle: Handle) -> Self {
        Run::of(engine, flow.graph().outputs.iter().map(|port| port.name.clone()).collect(), handle)
    }

    fn of(engine: Engine, outputs: Arc<[String]>, handle: Handle) -> Self {
        Run { engine, handle, outputs, gives: PhantomData }
    }

    /// The key of the run.
    pub fn key(&self) -> &str {
        self.handle.key()
    }

    /// Waits for one output: it may be there long before the run is done, and also when the run fails elsewhere.
    ///
    /// ```
    /// # use onceflow::prelude::*;
    /// # #[task] fn preview(text: String) -> String { text }
    /// # #[task] fn print(text: String) -> u64 { text.len() as u64 }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onceflow::Error> {
    /// # let flow = Flow::new("book", ["text"], ["preview", "pages"], |f, text: Port<String>| {
    /// #     (f.add(preview(text)), f.add(print(text)))
    /// # });
    /// # let engine = Engine::in_memory();
    /// let run = engine.start(&flow, "Once upon a time".into()).await?;
    /// let (preview, pages) = flow.outputs();
    /// let text: String = run.output(&preview).await?;
    /// let pages: u64 = run.output(&pages).await?;
    /// # assert_eq!((text.as_str(), pages), ("Once upon a time", 16));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Run`] if it will not come unless the run is started again, with all that failed.
    pub async fn output<T: Value>(&self, output: &Output<T>) -> Result<T, Error> {
        self.decode(self.load(output.name(), None).await?, T::decode)
    }

    /// [`Run::output`], where there are files in it: they are put into a directory, and stay there. None of their names
    /// may be taken in it.
    ///
    /// # Errors
    /// As [`Run::output`], and if a file cannot be written.
    pub async fn output_into<T: Value>(&self, output: &Output<T>, directory: impl AsRef<Path>) -> Result<T, Error> {
        self.decode(self.load(output.name(), Some(directory.as_ref())).await?, T::decode)
    }

    /// Waits for the end, and gives all outputs.
    ///
    /// # Errors
    /// [`Error::Run`] if the run failed, was cancelled, or waits for an operator; with all failures.
    pub async fn result(&self) -> Result<O::Values, Error> {
        self.all(None).await
    }

    /// [`Run::result`], where there are files in it: they are put into a directory, each output's into one of its name.
    ///
    /// # Errors
    /// As [`Run::result`], and if a file cannot be written.
    pub async fn result_into(&self, directory: impl AsRef<Path>) -> Result<O::Values, Error> {
        self.all(Some(directory.as_ref())).await
    }

    async fn all(&self, directory: Option<&Path>) -> Result<O::Values, Error> {
        let there = self.done().await?;
        let mut all = Vec::with_capacity(self.outputs.len());
        for name in self.outputs.iter() {
            if !there.iter().any(|(output, _)| output == name) {
                return Err(Error::NotAsked { key: self.key().into(), output: name.clone() });
            }
            let directory = directory.map(|directory| directory.join(name));
            all.push(self.load(name, directory.as_deref()).await?);
        }
        self.decode(all, |all| O::decode(&mut all.into_iter()))
    }

    /// Waits until the run is done; any other end is an error.
    async fn done(&self) -> Result<Vec<(String, Outcome)>, Error> {
        let summary = self.handle.wait().await?;
        match summary.status {
            RunStatus::Done => Ok(summary.outputs),
            _ => Err(Error::run(self.key(), summary)),
        }
    }

    async fn load(&self, output: &str, directory: Option<&Path>) -> Result<Data, Error> {
        let error = match self.handle.outputs().output_into(output, directory).await {
            Ok(data) => return Ok(data),
            Err(error) => error,
        };
        match error {
            onceflow_engine::Error::Failed(_)
            | onceflow_engine::Error::Refused { .. }
            | onceflow_engine::Error::NoOutput { .. } => {}
            error => return Err(error.into()),
        }
        // The error gives the reason in a sentence; the summary has all of it.
        let summary = self.handle.summary().await?;
        match summary.status {
            RunStatus::Done => Err(Error::NotAsked { key: self.key().into(), output: output.into() }),
            status if status.is_at_rest() => Err(Error::run(self.key(), summary)),
            // The run has been resumed meanwhile.
            _ => Err(error.into()),
        }
    }

    fn decode<D, T>(&self, data: D, decode: impl FnOnce(D) -> Result<T, crate::value::Error>) -> Result<T, Error> {
        decode(data).map_err(|source| Error::Output { key: self.key().into(), source })
    }

    /// Waits until the run is at rest ([`RunStatus::is_at_rest`]). A run that failed is no error here.
    ///
    /// # Errors
    /// If its history has ended, or the store does not answer.
    pub async fn wait(&self) -> Result<Summary, Error> {
        Ok(self.handle.wait().await?)
    }

    /// The run's status, and what it came to so far.
    ///
    /// # Errors
    /// If its history has ended, or the store does not answer.
    pub async fn summary(&self) -> Result<Summary, Error> {
        Ok(self.handle.summary().await?)
    }

    /// Stops the run: steps in flight may end, others are not started, and what was done is undone by the tasks that
    /// were named for it. Ends when that is durably decided; [`Run::wait`] waits for the rest.
    ///
    /// # Errors
    /// If it has ended already.
    pub async fn cancel(&self) -> Result<(), Error> {
        Ok(self.handle.cancel().await?)
    }

    /// Tries again what failed, or what could not be undone; how many steps that are. Some engine that has the tasks of
    /// the flow must be at work for anything to happen.
    ///
    /// # Errors
    /// If the run has ended, or waits for an operator to report the outcome of a step.
    pub async fn retry(&self) -> Result<usize, Error> {
        Ok(self.handle.retry(None).await?)
    }

    /// Gives up what could not be undone, of which the summary of the run names the steps: the run ends, and its key
    /// can be started again. How many steps that are.
    ///
    /// # Errors
    /// If the run has ended, or nothing of it failed to be undone.
    pub async fn abandon(&self) -> Result<usize, Error> {
        Ok(self.handle.abandon().await?)
    }

    /// Reports the outcome of an at-most-once step whose outcome is not known: [`Summary::undecided`] names them. For a
    /// run that could not be undone, decides about an undo: done by hand, tried again, or given up.
    ///
    /// # Errors
    /// If there is no such step, or its outcome was already reported.
    pub async fn resolve(&self, address: &str, resolution: Resolution) -> Result<(), Error> {
        Ok(self.handle.resolve(address, resolution).await?)
    }

    /// The engine that works on it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

impl<O> Clone for Run<O> {
    fn clone(&self) -> Self {
        let Run { engine, handle, outputs, gives } = self;
        Run { engine: engine.clone(), handle: handle.clone(), outputs: outputs.clone(), gives: *gives }
    }
}

impl<O> std::fmt::Debug for Run<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Run({})", self.handle.key())
    }
}
