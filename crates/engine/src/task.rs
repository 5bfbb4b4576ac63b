//! What user code looks like to the engine: data in, data out, or a failure that says what went wrong. The typed face
//! of this is the crate `onceflow`.

use bytes::Bytes;
use onceflow_core::model::TaskSpec;
use onceflow_store::BoxFuture;
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

/// A value as a task sees it: all of it, wherever it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// One value, in the user's encoding.
    Bytes(Bytes),
    /// The elements of a list, in order.
    List(Vec<Data>),
    /// A file. A directory is a list of them, named by their relative paths.
    File(FileData),
    /// No value, where the port's type is an option.
    None,
}

/// A file that a task was given or gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileData {
    /// What it is called.
    pub name: String,
    /// Where its content is. A file given by a task is taken from there: it is not at that path any more afterwards.
    /// One given to a task is read-only, and is there until the task ends.
    pub path: PathBuf,
}

/// What a body knows about the step it runs for.
#[derive(Clone, Debug)]
pub struct Step {
    /// The same for every attempt at this step, and for no other step: what to give to others so that they do it once.
    pub key: String,
    /// Where it sits in the run.
    pub address: String,
    /// From 1.
    pub attempt: u32,
    /// The rows of the flow, for tasks that are transactional.
    pub tx: Option<Tx>,
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong, and below it, what caused that.
    pub causes: Vec<String>,
    /// Another attempt would fail as well.
    pub is_final: bool,
    /// Nothing was done, so that even an `at_most_once` task may be tried again.
    pub not_done: bool,
}

impl Failure {
    /// A failure that another attempt may not have.
    pub fn new(what: impl Into<String>) -> Self {
        Failure { causes: vec![what.into()], is_final: false, not_done: false }
    }

    /// An error and all that caused it.
    pub fn from_error(error: &(dyn std::error::Error + 'static)) -> Self {
        let chain = std::iter::successors(Some(error), |error| error.source());
        Failure { causes: chain.map(ToString::to_string).collect(), is_final: false, not_done: false }
    }

    /// The same, but no other attempt follows.
    pub fn finally(mut self) -> Self {
        self.is_final = true;
        self
    }
}

/// A task's code. Outputs are as many as the spec has (none for a task without outputs).
pub trait Body: Send + Sync + 'static {
    /// Starts an attempt.
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt;
}

/// An attempt, started.
pub enum Attempt {
    /// Done already.
    Done(Result<Vec<Data>, Failure>),
    /// A future; it is dropped when the attempt is given up.
    Async(BoxFuture<'static, Result<Vec<Data>, Failure>>),
    /// Code that blocks its thread.
    Blocking(Box<dyn FnOnce() -> Result<Vec<Data>, Failure> + Send>),
}

/// The rows of a flow's own that a transactional body reads and writes. Writes ride in the step's commit; if a row that
/// was read has changed by then, the body runs again.
#[derive(Clone)]
pub struct Tx {
    pub(crate) _inner: Arc<()>,
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tx")
    }
}

/// The tasks a worker can run, by name.
#[derive(Clone, Default)]
pub struct Tasks {
    tasks: BTreeMap<String, (TaskSpec, Arc<dyn Body>)>,
}

impl Tasks {
    /// None yet.
    pub fn new() -> Self {
        Tasks::default()
    }

    /// One more. A task of the same name is replaced.
    pub fn add(&mut self, spec: TaskSpec, body: Arc<dyn Body>) {
        self.tasks.insert(spec.name.clone(), (spec, body));
    }

    /// The task of this name.
    pub fn get(&self, name: &str) -> Option<&(TaskSpec, Arc<dyn Body>)> {
        self.tasks.get(name)
    }

    /// Those of another set as well.
    pub fn extend(&mut self, other: &Tasks) {
        self.tasks.extend(other.tasks.iter().map(|(name, task)| (name.clone(), task.clone())));
    }
}
