//! The start of a run: its key, its inputs, its history.

use super::Run;
use crate::{
    Engine, Error, Timestamp,
    engine::ms,
    flow::Flow,
    port::{Input, Output, Ports},
    task::Tasks,
    value::Value,
};
use onceflow_core::plan::Explanation;
use onceflow_store::BoxFuture;
use std::{marker::PhantomData, sync::Arc, time::Duration};

/// A run about to be started; [awaiting](IntoFuture) it starts it. Made by [`Engine::start`].
#[must_use = "a start does nothing until it is awaited"]
pub struct Start<O> {
    engine: Engine,
    tasks: Tasks,
    outputs: Arc<[String]>,
    /// The run to start, for all outputs; or the mistakes of its flow, or the error of encoding its inputs. Its key is
    /// empty until one is given.
    start: Result<onceflow_engine::Start, Error>,
    /// The requested outputs; empty is all.
    only: Vec<String>,
    /// The history was given, so it does not end with the handle.
    has_history: bool,
    gives: PhantomData<fn() -> O>,
}

impl<O: Ports> Start<O> {
    pub(crate) fn new<I: Ports>(engine: Engine, flow: &Flow<I, O>, inputs: I::Values) -> Self {
        let start = engine.check(flow).and_then(|checked| match flow.encode(inputs) {
            Err(source) => Err(Error::Input { flow: flow.name().into(), source }),
            Ok(inputs) => Ok(onceflow_engine::Start { inputs, ..onceflow_engine::Start::new("", checked) }),
        });
        let outputs = flow.graph().outputs.iter().map(|port| port.name.clone()).collect();
        Start {
            engine,
            tasks: flow.tasks().clone(),
            outputs,
            start,
            only: vec![],
            has_history: false,
            gives: PhantomData,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut onceflow_engine::Start)) -> Self {
        if let Ok(start) = &mut self.start {
            change(start);
        }
        self
    }

    /// Sets the run's key. Starting the same key again is the same run, so take a key that stands for the work itself:
    /// `order-17`. Without this, the run has a key that no other has: after a crash only the engine can go on with it, and
    /// nothing is remembered of it once it is done and its [`Run`] is dropped.
    ///
    /// # Panics
    /// If the key is empty.
    #[track_caller]
    pub fn key(self, key: impl Into<String>) -> Self {
        let key = key.into();
        assert!(!key.is_empty(), "the key of a run is empty: leave `.key(..)` out if the run needs none");
        self.with(|start| start.key = key)
    }

    /// Gives an input another value than the one it has: for parameters that are seldom changed.
    ///
    /// ```
    /// # use onceflow::prelude::*;
    /// # #[task] fn scale(picture: String, width: u64) -> String { format!("{picture} {width} wide") }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onceflow::Error> {
    /// # let flow = Flow::new("scale", ["picture", "width"], ["small"], |f, (picture, width)| f.add(scale(picture, width)));
    /// # let engine = Engine::in_memory();
    /// let defaults = (String::from("cat.jpg"), 640);
    /// let (_, width) = flow.inputs();
    /// let run = engine.start(&flow, defaults).input(&width, 320).await?;
    /// # assert_eq!(run.result().await?, "cat.jpg 320 wide");
    /// # Ok(()) }
    /// ```
    pub fn input<T: Value>(mut self, input: &Input<T>, value: T) -> Self {
        match value.encode() {
            Err(source) => {
                let flow = self.start.as_ref().map_or_else(|_| String::new(), |start| start.flow.name().to_owned());
                self.start = self.start.and(Err(Error::Input { flow, source }));
                self
            }
            Ok(data) => self.with(|start| {
                // A name that the flow does not have is reported when the run is started.
                start.inputs.retain(|(name, _)| name != input.name());
                start.inputs.push((input.name().into(), data));
            }),
        }
    }

    /// Asks for this output only, or, said several times, for these: what no such output needs is not run.
    pub fn only<T: Value>(mut self, output: &Output<T>) -> Self {
        self.only.push(output.name().into());
        self
    }

    /// How long inner values outlive the run, so that a run with other inputs can reuse them. Not at all without this.
    pub fn keep(self, keep: Duration) -> Self {
        self.with(|start| start.keep_ms = Some(ms(keep)))
    }

    /// How long the result can be asked for, by [`Engine::find`] or by starting the same key again. Without this, a
    /// week; of a run without a key, as long as its [`Run`] is alive.
    pub fn history(mut self, history: Duration) -> Self {
        self.has_history = true;
        self.with(|start| start.history_ms = ms(history))
    }

    /// After a failure, goes on with what does not depend on it. Without this, nothing new is begun after one.
    pub fn finish_independent(self) -> Self {
        self.with(|start| start.finish_independent = true)
    }

    /// Explains what starting this would do, and why: every outermost step reused, run or skipped. Changes nothing.
    ///
    /// ```
    /// # use onceflow::prelude::*;
    /// # #[task(effect = pure)] fn measure(text: String) -> u64 { text.len() as u64 }
    /// # #[task(effect = pure)] fn add(a: u64, b: u64) -> u64 { a + b }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onceflow::Error> {
    /// # let flow = Flow::new("sum", ["text", "more"], ["sum"], |f, (text, more): (Port<String>, Port<u64>)| {
    /// #     let length = f.add(measure(text));
    /// #     f.add(add(length, more))
    /// # });
    /// # let engine = Engine::builder().fuse(false).in_memory();
    /// let day = std::time::Duration::from_secs(24 * 60 * 60);
    /// engine.start(&flow, ("some text".into(), 1)).key("sum").keep(day).await?.result().await?;
    /// let plan = engine.start(&flow, ("some text".into(), 2)).key("sum").keep(day).explain().await?;
    /// assert_eq!(plan.to_string(), "reuse /measure: kept\nrun /add: input b changed\n");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As starting it.
    pub async fn explain(self) -> Result<Explanation, Error> {
        let start = settled(&self.engine, self.start?, &self.only, self.has_history)?;
        Ok(self.engine.untyped().preview(start).await?.explanation)
    }

    /// When this start was first tried, by [`Engine::now`]. One that was tried longer ago than the history is refused:
    /// the run may have come and gone.
    pub fn first_tried(self, first_tried: Timestamp) -> Self {
        self.with(|start| start.first_tried = Some(first_tried))
    }
}

impl<O: Ports> IntoFuture for Start<O> {
    type Output = Result<Run<O>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Start { engine, tasks, outputs, start, only, has_history, .. } = self;
            let start = settled(&engine, start?, &only, has_history)?;
            engine.untyped().add_tasks(&tasks)?;
            let handle = engine.untyped().start(start).await?;
            Ok(Run::of(engine, outputs, handle))
        })
    }
}

/// The start, for the requested outputs. Without a key it is a run of its own, which is forgotten with its handle.
fn settled(
    engine: &Engine,
    mut start: onceflow_engine::Start,
    only: &[String],
    has_history: bool,
) -> Result<onceflow_engine::Start, Error> {
    if !only.is_empty() {
        start.flow = start.flow.only(only).map_err(onceflow_engine::Error::from)?;
    }
    if start.key.is_empty() {
        start.key = engine.untyped().fresh_key(start.flow.name());
        if !has_history {
            start.history_ms = onceflow_engine::KEYLESS_HISTORY_MS;
            start.ends_with_handle = true;
        }
    }
    Ok(start)
}
