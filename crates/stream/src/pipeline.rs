//! Pipelines: typed steps, connected in Rust. A connection of the wrong type does not compile.
//!
//! | module | owns |
//! |---|---|
//! | `typed` | streams and keyed streams, and the steps on them |
//! | [`lines`], [`tail`] | lines of standard input, and of files that grow and are rotated |
//! | [`call`] | work outside of the pipeline that a record causes |
//! | [`flow_call`] | a run of a flow for each record |
//! | [`http_ingest`], [`http_sink`] | records that clients send, and records sent to a server |
//! | `http_guard` | headers that clients' requests must have, such as a token |
//! | [`dated`] | files with dates in their names |
//! | [`sql`] | rows of a database, in one transaction with the position |
//! | [`of_step`] | a pipeline that is the work of a step of a flow |
//! | [`secret`] | passwords and tokens of sinks |
//! | `source`, [`sink`] | where records come from and go to, with their contracts |
//! | `compile` | planned stages as programs |
//! | `type_name` | names of types in plans |

pub mod call;
mod compile;
mod content;
pub mod dated;
pub mod flow_call;
mod http_guard;
pub mod http_ingest;
pub mod http_sink;
pub mod lines;
pub mod of_step;
pub mod secret;
pub mod sink;
pub mod source;
pub mod sql;
pub mod tail;
mod type_name;
mod typed;

use crate::{
    error::StreamError,
    plan::{PlanOptions, StepFacts, StepKind, StreamPlan, plan},
    run::{
        chain::{AnyPush, StageProgram},
        control::StreamControl,
        install::install,
        options::StreamOptions,
        partition::SHARD,
        transport::{MemoryTransport, Transport},
        worker::{StreamResult, Worker},
    },
};
use onceflow_core::Batch;
use onceflow_store::{BoxFuture, Records, World};
use sink::StreamSink;
use source::SourceProgram;
use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};
pub use typed::{KeyedStream, RecordFailure, Stream};

/// The work of a step, without its types.
#[derive(Clone)]
pub(crate) enum StepWork {
    Source {
        splits: u16,
        open: Arc<dyn Fn(u16, Option<&[u8]>, AnyPush) -> Result<Box<dyn SourceProgram>, StreamError> + Send + Sync>,
    },
    Stateless {
        /// The step, in front of the next one.
        make: Arc<dyn Fn(AnyPush) -> AnyPush + Send + Sync>,
        /// The program of a stage that begins with it.
        program: Arc<dyn Fn(AnyPush) -> Box<dyn StageProgram> + Send + Sync>,
    },
    Stateful {
        /// For each input, makes the sender in front of the shuffle, from the number of its edge and whether the step
        /// was lifted in front of the shuffle.
        senders: Vec<Arc<dyn Fn(usize, bool) -> AnyPush + Send + Sync>>,
        program: Arc<dyn Fn(AnyPush, bool) -> Box<dyn StageProgram> + Send + Sync>,
    },
    Sink {
        /// The step that encodes records for the sink of this number.
        make: Arc<dyn Fn(usize) -> AnyPush + Send + Sync>,
        program: Arc<dyn Fn(AnyPush) -> Box<dyn StageProgram> + Send + Sync>,
        sink: Arc<dyn StreamSink>,
    },
}

/// A step: the planner's view of it, its work, and what can be done with its output.
#[derive(Clone)]
pub(crate) struct StepNode {
    pub(crate) facts: StepFacts,
    pub(crate) work: StepWork,
    pub(crate) fan_out: fn(Vec<AnyPush>) -> AnyPush,
    /// Sends its output, without a key, on an edge.
    pub(crate) sender: fn(usize) -> AnyPush,
}

pub(crate) type Steps = Arc<Mutex<Vec<StepNode>>>;

/// A pipeline: sources, steps and sinks under a name. Running it again under the same name on the same store continues
/// where it was.
pub struct Pipeline {
    name: String,
    steps: Steps,
    planning: PlanOptions,
    options: StreamOptions,
    transport: Arc<dyn Transport>,
    control: StreamControl,
    locks: Option<PathBuf>,
    drops: BTreeSet<String>,
}

impl Pipeline {
    /// Creates an empty pipeline.
    pub fn new(name: impl Into<String>) -> Self {
        Pipeline {
            name: name.into(),
            steps: Steps::default(),
            planning: PlanOptions::default(),
            options: StreamOptions::default(),
            transport: Arc::new(MemoryTransport::default()),
            control: StreamControl::default(),
            locks: None,
            drops: BTreeSet::new(),
        }
    }

    /// Sets how it runs.
    #[must_use]
    pub fn options(self, options: StreamOptions) -> Self {
        Pipeline { options, ..self }
    }

    /// Sets how it is planned.
    #[must_use]
    pub fn planning(self, planning: PlanOptions) -> Self {
        Pipeline { planning, ..self }
    }

    /// Sets the way that retry edges take; all workers of the pipeline must share it.
    #[must_use]
    pub fn transport(self, transport: Arc<dyn Transport>) -> Self {
        Pipeline { transport, ..self }
    }

    /// Keeps a lock file for each worker in this directory while its process lives. So the others on this machine know at
    /// once, and not only when a lease ends, that a worker was killed; all must name the same directory.
    #[must_use]
    pub fn locks(self, directory: impl Into<PathBuf>) -> Self {
        Pipeline { locks: Some(directory.into()), ..self }
    }

    /// Lets the state of this step go, if the store has an earlier pipeline of the same name with such a step and this one
    /// has none: positions of a source, state of keys, the places of a sink. May be called for several steps.
    #[must_use]
    pub fn drop_state_of(mut self, step: impl Into<String>) -> Self {
        self.drops.insert(step.into());
        self
    }

    /// Returns the hand on its workers in this process.
    pub fn control(&self) -> StreamControl {
        self.control.clone()
    }

    /// Returns the stages it runs as, what was lifted and fused, and why not.
    pub fn explain(&self) -> StreamPlan {
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        plan(&steps.iter().map(|step| step.facts.clone()).collect::<Vec<_>>(), self.planning)
    }

    /// Runs one worker of the pipeline until its sources have ended and everything is written, or until it was asked to
    /// [drain](StreamControl::drain). Call it several times,
    /// in one process or several, to have more workers. A pipeline that has ended gives its result again.
    ///
    /// If the store has a pipeline of this name with other steps, this one goes on with its state, step by step by their
    /// names: a step whose state depends on nothing that has changed keeps it, a new one begins empty. Records that the
    /// earlier steps have sent are not sent again.
    ///
    /// # Errors
    /// If user code panicked, a source or sink failed, or the store is damaged; [`StreamError::Changed`] if a step cannot go
    /// on with the state that the store has.
    pub fn run(
        &self,
        records: Arc<dyn Records>,
        world: Arc<dyn World>,
    ) -> BoxFuture<'static, Result<StreamResult, StreamError>> {
        self.run_from(Batch::new(SHARD), records, world)
    }

    /// Runs a worker as [`Pipeline::run`] does. A pipeline that runs for the first time is installed by this batch, so that
    /// it is not if the batch is refused: that is [`StreamError::Removed`].
    pub(crate) fn run_from(
        &self,
        first: Batch,
        records: Arc<dyn Records>,
        world: Arc<dyn World>,
    ) -> BoxFuture<'static, Result<StreamResult, StreamError>> {
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (name, planned, drops) = (self.name.clone(), self.explain(), self.drops.clone());
        let shared = (self.transport.clone(), self.control.clone(), self.locks.clone());
        let options = self.options;
        Box::pin(async move {
            let wanted = compile::installed(&steps, &planned, options);
            let installed = install(first, &*records, &name, wanted, &drops, shared.2.as_deref()).await?;
            let runtime = compile::compile(name, steps, (planned, installed), options, shared, records, world);
            Worker::new(Arc::new(runtime)).run().await
        })
    }

    fn add(&self, step: StepNode) -> usize {
        add(&self.steps, step)
    }
}

/// Adds a step.
pub(crate) fn add(steps: &Steps, step: StepNode) -> usize {
    let mut steps = steps.lock().unwrap_or_else(PoisonError::into_inner);
    steps.push(step);
    steps.len() - 1
}

/// The planner's view of a step.
pub(crate) fn facts<T>(name: &str, kind: StepKind, inputs: Vec<usize>) -> StepFacts {
    let output = type_name::name_of::<T>();
    StepFacts { name: name.to_owned(), kind, inputs, is_break: false, gives_late: false, output, state: Vec::new() }
}
