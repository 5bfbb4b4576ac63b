//! The engine's interface to user code: a task takes data and returns data, or a failure with its causes. The crate
//! `onceflow` wraps this in types.

mod failure;
mod list;
mod open_work;
mod tasks;

pub use crate::tx::{FlowRows, Message, Tx};
use crate::{
    resources::{Need, Resources},
    shared::lock,
    worker::Reserved,
};
use bytes::Bytes;
pub use failure::Failure;
pub(crate) use list::ElementBuilder;
pub use list::{DataList, IntoElements};
use onceflow_core::Digest;
use onceflow_core::model::{InstancePath, Program, TaskSpec, program::NodeOp};
pub use onceflow_core::protocol::rows::Resumed;
use onceflow_core::protocol::{ids::RunId, rows::Held};
use onceflow_store::BoxFuture;
pub use onceflow_store::values::FileStat;
use onceflow_store::values::SourceFile;
pub use open_work::{EndLeftOpen, EndOpenWork, OpenWork};
use std::{
    any::Any,
    path::PathBuf,
    sync::{Arc, Mutex},
    task::Poll,
};
pub use tasks::{Conflict, Tasks};

/// A value as a task sees it: all of it, wherever it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// One value, in the user's encoding.
    Bytes(Bytes),
    /// The elements of a list, in order.
    List(DataList),
    /// A file. A directory is a list of them, named by their relative paths. Boxed, so that an element of a list of
    /// millions is not as large as a file.
    File(Box<FileData>),
    /// No value, where the port's type is an option.
    None,
}

impl From<FileData> for Data {
    fn from(file: FileData) -> Self {
        Data::File(Box::new(file))
    }
}

const _: () = assert!(size_of::<Data>() <= 40, "an element of a list of millions is no larger than its bytes");

/// A file that a task was given or gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileData {
    /// The file's name.
    pub name: String,
    /// The path of its content. A file that a task returns is moved away from this path. A file that a task is given is
    /// read-only and stays there until the task ends; it may be the store's own object, so the last component of the
    /// path says nothing.
    pub path: PathBuf,
    /// Digest and length of the content, if the caller knows them: an input is then compared without being read. If the
    /// file has to be stored, its content must match.
    pub known: Option<KnownContent>,
    /// The file is the user's own, at its own path. As an input of a run: the file stays where it is and the store only
    /// refers to it; the caller promises that all workers find it there. As an input of a task: `path` is the user's
    /// file, and the task must not write to it. The file may change while the task reads it: the engine checks when the
    /// task is done, and commits nothing if it did.
    pub by_reference: bool,
    /// The result of `stat` when the digest in `known` was taken, and whether the file was at rest by then
    /// ([`FileStat::is_settled`]). Without it the digest of a file by reference is taken again.
    pub facts: Option<(FileStat, bool)>,
}

/// The content of a file, as far as it identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownContent {
    /// BLAKE3 of its bytes.
    pub digest: Digest,
    /// The number of bytes.
    pub len: u64,
}

impl FileData {
    /// A file of which only the path is known.
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

/// The step that a body runs for, as the body sees it. Cheap to clone.
#[derive(Clone)]
pub struct Step {
    pub(crate) at: Arc<At>,
    /// The task: its index in the program.
    pub(crate) task: u32,
    /// The place of the task among those that are fused into the step.
    pub(crate) fused: Option<u16>,
    pub(crate) attempt: u32,
    /// The suspended attempt that this one continues.
    pub(crate) resumed: Option<Arc<Resumed>>,
    pub(crate) tx: Option<Tx>,
    /// The resources of the machine that the step has reserved.
    pub(crate) reserved: Option<Arc<Mutex<Option<Reserved>>>>,
    /// Receives the log, usage and timeout causes of the body, if the engine collects them.
    pub(crate) aside: Option<Arc<Aside>>,
}

/// Reports of a body beside its outputs, for people: log, usage, causes of a timeout.
#[derive(Default)]
pub(crate) struct Aside {
    pub(crate) wants_log: bool,
    pub(crate) wrote: Mutex<Option<Vec<u8>>>,
    pub(crate) used: Mutex<Option<Used>>,
    /// Cleanups that failed beside the outcome.
    pub(crate) failed_cleanups: Mutex<Vec<String>>,
    /// Causes to add to the failure if the attempt is ended by its timeout.
    pub(crate) last_words: Mutex<Vec<String>>,
}

/// The code of a step that took longer than its timeout; its page is in `docs/errors`.
pub const TIMEOUT: &str = "OF0321";

/// Resources of the machine that an attempt used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Used {
    /// Processor time of all processes that it started and waited for.
    pub cpu_ms: u64,
    /// The most memory that one of its processes held at a time; `None` if unknown.
    pub peak_bytes: Option<u64>,
}

/// The position of a step in its run and program; tasks that are fused share it.
pub(crate) struct At {
    pub(crate) run: RunId,
    pub(crate) inputs: Vec<Held>,
    pub(crate) place: InstancePath,
    pub(crate) program: Arc<Program>,
    /// The block and node in the program; of a compensation, which has none, a block that does not exist.
    pub(crate) node: (u32, u32),
    pub(crate) resources: Arc<Resources>,
    /// The part of the step, for a body that consists of others.
    pub(crate) part: Option<StepPart>,
}

/// A part of a step, which has a key and a task of its own.
#[derive(Clone)]
pub(crate) struct StepPart {
    /// Stands behind the address of the step; `None` for the step itself, as it was when it opened a session.
    name: Option<String>,
    key: String,
    spec: Arc<TaskSpec>,
}

impl Step {
    /// The idempotency key of the step: the same for every attempt at it, and for no other step. Give it to other
    /// systems so that they perform a request once.
    pub fn key(&self) -> String {
        if let Some(part) = &self.at.part {
            return part.key.clone();
        }
        // Derived from address and inputs: a step that a new plan runs again on the same inputs has the same key.
        let mut hasher = blake3::Hasher::new_derive_key("onceflow step key");
        hasher.update(&self.at.run.0).update(self.address().as_bytes());
        for input in &self.at.inputs {
            hasher.update(input.outcome.digest().as_bytes());
        }
        hasher.finalize().to_hex()[..32].to_owned()
    }

    /// The step's address in the run: `/align[3]/sort`.
    pub fn address(&self) -> String {
        self.at.address(self.fused)
    }

    /// The task as the flow specifies it: for bodies that serve many tasks. `None` for a step that belongs to no run.
    pub fn spec(&self) -> Option<&TaskSpec> {
        if let Some(part) = &self.at.part {
            return Some(&part.spec);
        }
        self.at.program.tasks.get(self.task as usize)
    }

    /// A part of the step, for a body that starts other bodies: with a task and an idempotency key of its own, and its
    /// name behind the address of the step.
    #[must_use]
    pub fn part(&self, name: &str, key: String, spec: TaskSpec) -> Step {
        let At { run, inputs, place, program, node, resources, .. } = &*self.at;
        let at = At {
            run: *run,
            inputs: inputs.clone(),
            place: place.clone(),
            program: program.clone(),
            node: *node,
            resources: resources.clone(),
            part: Some(StepPart { name: Some(name.to_owned()), key, spec: spec.into() }),
        };
        Step { fused: self.fused, ..Step::new(Arc::new(at), self.task, self.attempt) }
    }

    /// A step of an earlier plan, which is in no program any more, with the session that it has opened as its key.
    pub(crate) fn of_open_session(
        (run, resources): (RunId, Arc<Resources>),
        (address, session): (&str, &str),
        task: TaskSpec,
    ) -> Self {
        let at = At {
            run,
            inputs: vec![],
            place: InstancePath { call: address.to_owned(), numbers: vec![] },
            program: Arc::new(Program { blocks: vec![], tasks: vec![], constants: vec![] }),
            node: (u32::MAX, 0),
            resources,
            part: Some(StepPart { name: None, key: session.to_owned(), spec: task.into() }),
        };
        Step::new(Arc::new(at), 0, 1)
    }

    /// It is a part of a step, or a step of an earlier plan: it has a key and a task of its own.
    pub(crate) fn is_part(&self) -> bool {
        self.at.part.is_some()
    }

    pub(crate) fn resources(&self) -> Arc<Resources> {
        self.at.resources.clone()
    }

    /// Reports a problem that does not change the outcome of the step: an event of the run says it, and `show`.
    pub fn report_failed_cleanup(&self, why: String) {
        if let Some(aside) = &self.aside {
            lock(&aside.failed_cleanups).push(why);
        }
    }

    /// The run it belongs to.
    pub fn run(&self) -> RunId {
        self.at.run
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The suspended attempt that this one continues: its handle, and whether its deadline has passed. `None` for an
    /// attempt that begins.
    pub fn resumed(&self) -> Option<&Resumed> {
        self.resumed.as_deref()
    }

    /// The body should report its log with [`Step::set_log`]: true on a store that several machines share, where the
    /// log can be read nowhere else.
    pub fn wants_log(&self) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.wants_log)
    }

    /// Sets the log of the attempt: the text that the body wrote for people, or the end of it. The log is written just
    /// before the step's outcome is committed, and kept as long as the run's history: see
    /// [`RunHistory::logs`](crate::RunHistory::logs). The last call counts.
    pub fn set_log(&self, text: Vec<u8>) {
        if let Some(aside) = &self.aside {
            *lock(&aside.wrote) = Some(text);
        }
    }

    /// Sets causes to report if the attempt exceeds its timeout: call it when the body is dropped; they are added to
    /// the failure.
    pub fn set_timeout_causes(&self, causes: Vec<String>) {
        if let Some(aside) = &self.aside {
            *lock(&aside.last_words) = causes;
        }
    }

    /// Sets the resources that the attempt used, if the body measured them. They are published as an event and not kept
    /// in the store. The last call counts.
    pub fn set_usage(&self, used: Used) {
        if let Some(aside) = &self.aside {
            *lock(&aside.used) = Some(used);
        }
    }

    /// The rows of the flow, for transactional tasks.
    pub fn tx(&self) -> Option<&Tx> {
        self.tx.as_ref()
    }

    /// Releases the machine's resources that the step reserved, when the body only has to hand over its outputs. A step
    /// that waits for them may start, and does so before this returns.
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
        let at = At {
            run: RunId(key),
            inputs: vec![],
            place: InstancePath::root(),
            program: Arc::new(program),
            node: (0, 0),
            resources: Arc::default(),
            part: None,
        };
        Step::new(Arc::new(at), 0, attempt)
    }

    pub(crate) fn new(at: Arc<At>, task: u32, attempt: u32) -> Self {
        Step { at, task, fused: None, attempt, resumed: None, tx: None, reserved: None, aside: None }
    }

    /// The engine's resource of this type: see [`Options::resources`](crate::Options::resources).
    pub fn resource<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.at.resources.get()
    }
}

impl At {
    pub(crate) fn address(&self, fused: Option<u16>) -> String {
        match self.part.as_ref().and_then(|part| part.name.as_ref()) {
            Some(name) => format!("{}/{name}", self.step_address(fused)),
            None => self.step_address(fused),
        }
    }

    fn step_address(&self, fused: Option<u16>) -> String {
        let (block, node) = self.node;
        let node = self.program.blocks.get(block as usize).and_then(|block| block.nodes.get(node as usize));
        let path = match (node.map(|node| &node.op), fused) {
            (Some(NodeOp::Fused(tasks)), Some(at)) => &tasks[usize::from(at)].path,
            _ => match node {
                Some(node) => &node.path,
                // A compensation has the address of the step that it undoes.
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

/// A task's code. It returns as many outputs as the spec has (none for a task without outputs).
pub trait Body: Any + Send + Sync {
    /// Starts an attempt.
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt;

    /// The resources that the body takes. A working engine that lacks one refuses the task.
    fn needs(&self) -> Vec<Need> {
        vec![]
    }

    /// The body of this task waits for steps that it has caused to run. It reserves nothing of the machine, and its places are
    /// those of other steps until it ends: they could not begin otherwise. False by default.
    fn waits_for_steps(&self, spec: &TaskSpec) -> bool {
        let _ = spec;
        false
    }

    /// Ends what a suspended attempt has left outside, because its run was cancelled, failed for good or has a new plan.
    /// It may be called several times, also after the attempt has ended by itself. Does nothing by default.
    fn cancel<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        let _ = handle;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Steps of the body may have [`OpenWork`], which is ended by [`Body::end_left_open`], or by the engine's
    /// [`EndOpenWork`]. False by default.
    fn opens_work(&self) -> bool {
        false
    }

    /// Ends a session, or other work, that the step has opened in the store and will not go on with, because its run ends or has a new
    /// plan. The step is as it was when it opened the session; perhaps another process did, perhaps this is called
    /// several times. The run ends only after it. Answers the cleanups that failed; they are reported. A failure that is
    /// not final is tried again. `None`, the default, if the body leaves nothing open.
    fn end_left_open(&self, step: Step) -> Option<BoxFuture<'static, Result<Vec<String>, Failure>>> {
        let _ = step;
        None
    }

    /// Finds out the outcome of an interrupted attempt of an at-most-once task, whose worker is gone. `None` if the
    /// body has no way to find out.
    fn verify(&self, step: Step, inputs: Vec<Data>) -> Option<BoxFuture<'static, Verdict>> {
        let _ = (step, inputs);
        None
    }
}

/// The outcome of an interrupted attempt, as far as its task can find out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The attempt was done, with these outputs.
    Done(Vec<Data>),
    /// The attempt was not done and never will be: the step may be tried again.
    NotDone,
    /// The task cannot tell.
    Unknown,
}

/// A started attempt.
pub enum Attempt {
    /// Finished already.
    Done(Result<Vec<Data>, Failure>),
    /// Suspended already: the attempt goes on outside.
    Suspended(Suspension),
    /// A future that ends with outputs or suspended; dropped when the attempt is given up.
    Suspending(BoxFuture<'static, Result<AttemptEnd, Failure>>),
    /// A future; dropped when the attempt is given up.
    Async(BoxFuture<'static, Result<Vec<Data>, Failure>>),
    /// Code that blocks its thread and cannot be stopped: an attempt that is given up is over when the thread has
    /// returned.
    Blocking(Box<dyn FnOnce() -> Result<Vec<Data>, Failure> + Send>),
    /// Code that blocks its thread, and is harmless if it continues while another attempt runs or after the engine was
    /// closed: its thread is abandoned when the attempt is given up.
    Abandonable(Box<dyn FnOnce() -> Result<Vec<Data>, Failure> + Send>),
}

/// How an attempt ended that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// With these outputs.
    Done(Vec<Data>),
    /// Suspended: the attempt goes on outside.
    Suspended(Suspension),
}

/// An attempt that goes on outside of the engine: an event is awaited, or a job runs elsewhere. Until it is woken the step
/// holds no slot, no heartbeat and no memory; the handle stands in the store. The outputs are reported with
/// [`Handle::resolve`](crate::Handle::resolve), or the attempt is taken up again: the body is started with
/// [`Step::resumed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspension {
    /// Names what the body has left outside: the worker that takes up the attempt knows nothing else of it.
    pub handle: String,
    /// The attempt is taken up again after so many milliseconds.
    pub timeout_ms: Option<u64>,
}
