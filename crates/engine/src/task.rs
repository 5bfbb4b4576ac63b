//! What user code looks like to the engine: data in, data out, or a failure that says what went wrong. The typed face
//! of this is the crate `onceflow`.

mod failure;

pub use crate::tx::{FlowRows, Message, Tx};
use crate::{
    resources::{Need, Resources},
    shared::lock,
    worker::Reserved,
};
use bytes::Bytes;
pub use failure::Failure;
use onceflow_core::Digest;
use onceflow_core::model::{InstancePath, Program, TaskSpec, program::NodeOp};
use onceflow_core::protocol::{ids::RunId, rows::Held};
use onceflow_store::BoxFuture;
pub use onceflow_store::values::FileStat;
use onceflow_store::values::SourceFile;
use std::{
    any::Any,
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    task::Poll,
};

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
    /// One given to a task is read-only, and is there until the task ends; it may be the store's own, so its last part
    /// says nothing.
    pub path: PathBuf,
    /// What it holds, if the caller knows: then an input is not read to find out whether it has changed. When it has to be
    /// stored, it must be so.
    pub known: Option<KnownContent>,
    /// It is the user's own file, at its own path. Of an input of a run: it stays where it is and the store only refers to
    /// it; whoever gives it promises that all workers find it there. Of what a task is given: its path is that of the user's
    /// file, and it must not be written to. Nobody promises that it does not change while the task reads it: that is found
    /// out when the task is done, and nothing is committed then.
    pub by_reference: bool,
    /// What `stat` told when the digest in `known` was taken, and whether the file was at rest by then
    /// ([`FileStat::is_settled`]). Without it the digest of a file by reference is taken again.
    pub facts: Option<(FileStat, bool)>,
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownContent {
    /// BLAKE3 of its bytes.
    pub digest: Digest,
    /// How many.
    pub len: u64,
}

impl FileData {
    /// A file of which nothing is known but where it is.
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        FileData { name: name.into(), path: path.into(), known: None, by_reference: false, facts: None }
    }

    /// The same file, which stays where it is: see [`FileData::by_reference`].
    #[must_use]
    pub fn by_reference(mut self) -> Self {
        self.by_reference = true;
        self
    }

    /// The file as the store refers to it, if its content and facts are known.
    pub(crate) fn source(&self) -> Option<SourceFile> {
        let (known, (stat, is_settled)) = (self.known?, self.facts?);
        let path = std::path::absolute(&self.path).ok()?;
        self.by_reference.then_some(SourceFile { path, digest: known.digest, stat, is_settled })
    }
}

/// What a body knows about the step it runs for. Cheap to clone.
#[derive(Clone)]
pub struct Step {
    pub(crate) at: Arc<At>,
    pub(crate) attempt: u32,
    pub(crate) tx: Option<Tx>,
    /// What it has of the machine.
    pub(crate) reserved: Option<Arc<Mutex<Option<Reserved>>>>,
    /// Where to say what is told beside what the body gives, if somebody wants to know.
    pub(crate) aside: Option<Arc<Aside>>,
}

/// What a body tells beside what it gives: talk, for people.
#[derive(Default)]
pub(crate) struct Aside {
    pub(crate) wants_log: bool,
    pub(crate) wrote: Mutex<Option<Vec<u8>>>,
    pub(crate) used: Mutex<Option<Used>>,
    /// What there is to say about an attempt that is ended from outside.
    pub(crate) last_words: Mutex<Vec<String>>,
}

/// The code of a step that took longer than its timeout; its page is in `docs/errors`.
pub const TIMEOUT: &str = "OF0321";

/// What an attempt used of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Time of processors, of all that it started and waited for.
    pub cpu_ms: u64,
    /// The most memory that one of its processes held at a time; `None` if that is not known.
    pub peak_bytes: Option<u64>,
}

/// Where a step is.
pub(crate) struct At {
    pub(crate) run: RunId,
    pub(crate) inputs: Vec<Held>,
    pub(crate) place: InstancePath,
    pub(crate) program: Arc<Program>,
    pub(crate) path: Path,
    /// Index into the program's tasks.
    pub(crate) task: u32,
    pub(crate) resources: Arc<Resources>,
}

/// Which path of the program: a node's, or that of a task inside a fused one.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    pub(crate) block: u32,
    pub(crate) node: u32,
    pub(crate) fused: Option<u16>,
}

impl Step {
    /// The same for every attempt at this step, and for no other step: what to give to others so that they do it once.
    pub fn key(&self) -> String {
        // Where it is, and what it is given; so a step that a new plan runs again for the same has the same key.
        let mut hasher = blake3::Hasher::new_derive_key("onceflow step key");
        hasher.update(&self.at.run.0).update(self.address().as_bytes());
        for input in &self.at.inputs {
            hasher.update(input.outcome.digest().as_bytes());
        }
        hasher.finalize().to_hex()[..32].to_owned()
    }

    /// Where it sits in the run: `/align[3]/sort`.
    pub fn address(&self) -> String {
        self.at.address()
    }

    /// What the flow says about the task: for bodies that serve many of them. `None` for a step that belongs to no run.
    pub fn spec(&self) -> Option<&TaskSpec> {
        self.at.program.tasks.get(self.at.task as usize)
    }

    /// The run it belongs to.
    pub fn run(&self) -> RunId {
        self.at.run
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether what the body writes shall be told by [`Step::set_log`]: on a store that several machines share, where nobody
    /// else sees it.
    pub fn wants_log(&self) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.wants_log)
    }

    /// What the body wrote for people, or the end of it. It goes with the step's outcome, and is there as long as the
    /// run's history: see [`Handle::logs`](crate::Handle::logs). The last call counts.
    pub fn set_log(&self, text: Vec<u8>) {
        if let Some(aside) = &self.aside {
            *lock(&aside.wrote) = Some(text);
        }
    }

    /// What there is to say about the attempt if it is ended from outside, because it took too long: called when the body is
    /// dropped, and told with the failure.
    pub fn set_timeout_causes(&self, causes: Vec<String>) {
        if let Some(aside) = &self.aside {
            *lock(&aside.last_words) = causes;
        }
    }

    /// What the attempt used of the machine, if the body measured that. It is told as it is known, and not kept in the
    /// store. The last call counts.
    pub fn set_usage(&self, used: Used) {
        if let Some(aside) = &self.aside {
            *lock(&aside.used) = Some(used);
        }
    }

    /// The rows of the flow, for tasks that are transactional.
    pub fn tx(&self) -> Option<&Tx> {
        self.tx.as_ref()
    }

    /// The body needs the machine no more: what is left is to hand over what it made. Whoever waits for the machine may
    /// start, and does so before this returns.
    pub async fn release_resources(&self) {
        let Some(reserved) = self.reserved.as_ref().and_then(|reserved| lock(reserved).take()) else { return };
        drop(reserved);
        let mut others_had_their_turn = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut others_had_their_turn, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// A step that belongs to no run, for tests of bodies.
    pub fn detached(key: [u8; 8], attempt: u32) -> Self {
        let program = Program { blocks: vec![], tasks: vec![], constants: vec![] };
        let path = Path { block: 0, node: 0, fused: None };
        let at = At {
            run: RunId(key),
            inputs: vec![],
            place: InstancePath::root(),
            program: Arc::new(program),
            path,
            task: 0,
            resources: Arc::default(),
        };
        Step { at: Arc::new(at), attempt, tx: None, reserved: None, aside: None }
    }

    /// What the engine has of this type for its tasks: see [`Options::resources`](crate::Options::resources).
    pub fn resource<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.at.resources.get()
    }
}

impl At {
    pub(crate) fn address(&self) -> String {
        let node = self.program.blocks.get(self.path.block as usize);
        let node = node.and_then(|block| block.nodes.get(self.path.node as usize));
        let path = match (node.map(|node| &node.op), self.path.fused) {
            (Some(NodeOp::Fused(tasks)), Some(at)) => &tasks[usize::from(at)].path,
            _ => match node {
                Some(node) => &node.path,
                // A compensation is where the step is that it undoes.
                None => return self.place.address(&[]),
            },
        };
        self.place.address(path)
    }
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Step({} attempt {})", self.address(), self.attempt)
    }
}

/// A task's code. Outputs are as many as the spec has (none for a task without outputs).
pub trait Body: Any + Send + Sync {
    /// Starts an attempt.
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt;

    /// What it takes from the engine's resources. An engine that works and lacks one refuses the task.
    fn needs(&self) -> Vec<Need> {
        vec![]
    }

    /// For a task that must not start twice: finds out what became of an attempt nobody has heard of any more. `None` if
    /// there is no way to.
    fn verify(&self, step: Step, inputs: Vec<Data>) -> Option<BoxFuture<'static, Verdict>> {
        let _ = (step, inputs);
        None
    }
}

/// What became of an attempt nobody has heard of any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was done, and gave this.
    Done(Vec<Data>),
    /// It was not done, and never will be: it may be tried again.
    NotDone,
    /// Nobody can tell.
    Unknown,
}

/// An attempt, started.
pub enum Attempt {
    /// Done already.
    Done(Result<Vec<Data>, Failure>),
    /// A future; it is dropped when the attempt is given up.
    Async(BoxFuture<'static, Result<Vec<Data>, Failure>>),
    /// Code that blocks its thread. Nothing can stop that: an attempt that is given up is over when the thread has returned.
    Blocking(Box<dyn FnOnce() -> Result<Vec<Data>, Failure> + Send>),
    /// Code that blocks its thread, and does no harm if it goes on while another attempt runs, or after the engine was closed:
    /// its thread is left to itself when the attempt is given up.
    Abandonable(Box<dyn FnOnce() -> Result<Vec<Data>, Failure> + Send>),
}

/// A task with its code.
type Offered = (TaskSpec, Arc<dyn Body>);

/// The tasks a worker can run, by name and version.
#[derive(Clone, Default)]
pub struct Tasks {
    /// Several versions of one name may be there, for runs that were planned for them.
    tasks: BTreeMap<String, Vec<Offered>>,
    /// Those that can run any task of their name, whatever its version and ports.
    executors: BTreeMap<String, Arc<dyn Body>>,
}

/// Two different tasks have one name and version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "two different tasks are called `{name}`, version {version}: one would silently stand in for the other; give one \
     another name, or another version"
)]
pub struct Conflict {
    /// What they are called.
    pub name: String,
    /// The version both have.
    pub version: String,
}

impl Tasks {
    /// None yet.
    pub fn new() -> Self {
        Tasks::default()
    }

    /// One more. A task of the same name and version is replaced.
    pub fn add(&mut self, spec: TaskSpec, body: Arc<dyn Body>) {
        let versions = self.tasks.entry(spec.name.clone()).or_default();
        versions.retain(|(known, _)| known.version != spec.version);
        versions.push((spec, body));
    }

    /// Code that runs any task of this name as the flow describes it: see [`Step::spec`]. One of the same name is replaced.
    pub fn add_executor(&mut self, name: impl Into<String>, body: Arc<dyn Body>) {
        self.executors.insert(name.into(), body);
    }

    /// The executor of this name.
    pub fn executor(&self, name: &str) -> Option<&Arc<dyn Body>> {
        self.executors.get(name)
    }

    /// The first task that takes something which is not among these, and what that is.
    pub(crate) fn missing_resource(&self, resources: &Resources) -> Option<(String, Need)> {
        self.tasks.values().flatten().find_map(|(spec, body)| {
            let need = body.needs().into_iter().find(|need| !resources.has(need))?;
            Some((spec.name.clone(), need))
        })
    }

    /// The classes of all tasks.
    pub fn classes(&self) -> impl Iterator<Item = String> {
        self.tasks.values().flatten().map(|(spec, _)| spec.class.clone())
    }

    /// What is here, by name: with its version, or none if it runs any.
    pub(crate) fn offers(&self) -> Vec<(String, Option<String>)> {
        let tasks = self.tasks.values().flatten().map(|(spec, _)| (spec.name.clone(), Some(spec.version.clone())));
        self.executors.keys().map(|name| (name.clone(), None)).chain(tasks).collect()
    }

    /// Whether code for this task is here.
    pub(crate) fn offer(&self, name: &str, version: &str) -> bool {
        self.executors.contains_key(name) || self.version(name, version).is_some()
    }

    /// The task of this name; of several versions, the one that was added last.
    pub fn get(&self, name: &str) -> Option<&(TaskSpec, Arc<dyn Body>)> {
        self.tasks.get(name)?.last()
    }

    /// The task of this name and version.
    pub fn version(&self, name: &str, version: &str) -> Option<&(TaskSpec, Arc<dyn Body>)> {
        self.tasks.get(name)?.iter().find(|(spec, _)| spec.version == version)
    }

    /// Those of another set as well; all of them, or none.
    ///
    /// # Errors
    /// If a different task of the same name and version is here already.
    pub fn extend(&mut self, other: &Tasks) -> Result<(), Conflict> {
        let others = || other.tasks.values().flatten();
        for (spec, body) in others() {
            let known = self.version(&spec.name, &spec.version);
            if known.is_some_and(|(known, code)| known != spec || !is_same(code, body)) {
                return Err(Conflict { name: spec.name.clone(), version: spec.version.clone() });
            }
        }
        self.executors.extend(other.executors.clone());
        for (spec, body) in others() {
            if self.version(&spec.name, &spec.version).is_none() {
                self.add(spec.clone(), body.clone());
            }
        }
        Ok(())
    }
}

/// Whether two bodies are one: the same object, or of one type that has only one value.
fn is_same(a: &Arc<dyn Body>, b: &Arc<dyn Body>) -> bool {
    let only_value = size_of_val(&**a) == 0 && (**a).type_id() == (**b).type_id();
    Arc::ptr_eq(a, b) || only_value
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Known<const N: usize>;
    impl<const N: usize> Body for Known<N> {
        fn start(&self, _: Step, _: Vec<Data>) -> Attempt {
            Attempt::Done(Ok(vec![]))
        }
    }

    struct Told(u8);
    impl Body for Told {
        fn start(&self, _: Step, _: Vec<Data>) -> Attempt {
            Attempt::Done(Err(Failure::new(self.0.to_string())))
        }
    }

    fn set(version: &str, body: Arc<dyn Body>) -> Tasks {
        let mut tasks = Tasks::new();
        let mut spec = TaskSpec::new("t", vec![], vec![]);
        spec.version = version.into();
        tasks.add(spec, body);
        tasks
    }

    #[test]
    fn two_bodies_under_one_name_and_version_are_refused() {
        let conflict = Err(Conflict { name: "t".into(), version: "1".into() });
        let told: Arc<dyn Body> = Arc::new(Told(1));
        let cases: [(Arc<dyn Body>, &str, Arc<dyn Body>, Result<(), Conflict>); 6] = [
            (Arc::new(Known::<1>), "1", Arc::new(Known::<1>), Ok(())),
            (Arc::new(Known::<1>), "1", Arc::new(Known::<2>), conflict.clone()),
            (Arc::new(Known::<1>), "2", Arc::new(Known::<2>), Ok(())),
            (told.clone(), "1", told.clone(), Ok(())),
            (told.clone(), "1", Arc::new(Told(1)), conflict.clone()),
            (Arc::new(Known::<1>), "1", told, conflict),
        ];
        for (at, (known, version, more, expected)) in cases.into_iter().enumerate() {
            let mut tasks = set("1", known);
            assert_eq!(tasks.extend(&set(version, more)), expected, "case {at}");
            let kept = tasks.version("t", "1").is_some();
            assert!(kept && tasks.get("t").is_some_and(|(spec, _)| expected.is_err() || spec.version == version));
        }
    }
}
