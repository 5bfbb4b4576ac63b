//! A scope of a flow file, as the program carries it, and the operations of the machine that it becomes.

use super::Command;
use onceflow_core::scope::{
    BufferKeep, CleanupFlow, CleanupWhen, Distribution, GateAction, JoinInput, OpId, OpKind, Operation, Scope,
    ScopeDraft, ScopeFault, ScopeSettings, TaskMode,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A scope: operations that pass messages, buffers, cleanup flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeAction {
    /// Where the first message goes: the record of the step's inputs.
    pub start: MessageTarget,
    /// Buffers.
    pub buffers: Vec<(String, KeepEntries)>,
    /// Operations.
    pub ops: Vec<FileOp>,
    /// Cleanup flows.
    pub cleanups: Vec<FileCleanup>,
    /// The session is cancelled after so many milliseconds.
    pub deadline_ms: Option<u64>,
    /// The session is cancelled when an operation on a cycle takes more messages.
    pub rounds_max: Option<u32>,
}

/// The entries that a buffer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepEntries {
    /// All.
    All,
    /// The newest so many.
    Last(u32),
    /// The first so many.
    First(u32),
}

/// An operation of a flow file's scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOp {
    /// Its name.
    pub name: String,
    /// The work it does.
    pub work: FileWork,
    /// Where its messages go.
    pub next: MessageTarget,
    /// Where the message of a failed `run` goes, that of a `when` that does not hold, and the rest of a `split`.
    pub other: Option<MessageTarget>,
}

/// The work of an operation. Expressions see `message`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileWork {
    /// Starts a command; the text it prints is the message, as JSON if it is JSON.
    Run(Command),
    /// Evaluates an expression.
    Expr(String),
    /// Decides by a truth.
    When(String),
    /// A message for each element of a list.
    Spread(String),
    /// Gathers messages into a list.
    Collect {
        /// At least so many.
        min: u32,
        /// Without waiting for more than so many.
        max: Option<u32>,
    },
    /// A record of one entry of each buffer.
    Join(Vec<String>),
    /// A record of all entries of these buffers, whenever one changes.
    Listen(Vec<String>),
    /// A message for each of these fields.
    Split(Vec<(String, MessageTarget)>),
    /// Opens buffers for their readers.
    Open(Vec<String>),
    /// Closes buffers for their readers.
    Close(Vec<String>),
    /// Passes the message on after so many milliseconds.
    Sleep(u64),
}

/// Where a message goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageTarget {
    /// To an operation.
    Op(String),
    /// The message is the result.
    Terminate,
    /// The session is cancelled, with the message as its reason.
    Cancel,
    /// Nowhere.
    Dispose,
    /// Into a buffer.
    Push(String),
    /// Out of the scope, by a stream.
    Stream(String),
    /// A copy to each.
    All(Vec<MessageTarget>),
}

/// A flow that runs when a session ends. Its message is a record of the entries of its buffers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCleanup {
    /// Its name.
    pub name: String,
    /// The ends it runs at.
    pub on: CleanupOn,
    /// The buffers whose entries it takes.
    pub with: Vec<String>,
    /// Its command.
    pub run: Command,
    /// It is cancelled after so many milliseconds.
    pub timeout_ms: Option<u64>,
}

/// The ends at which a cleanup flow runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CleanupOn {
    /// The session was cancelled.
    Cancel,
    /// The session has a result.
    Terminate,
    /// Either.
    Either,
}

/// The code that an operation of the machine needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpCode {
    /// None.
    Nothing,
    /// That of an operation of the file.
    Of(usize),
    /// Divides the result of a command from its failure.
    ByResult,
}

/// The operations of the machine, and their code.
pub(crate) struct ScopePlan {
    pub(crate) draft: ScopeDraft,
    pub(crate) codes: Vec<OpCode>,
    /// The buffers, by name.
    pub(crate) buffers: BTreeMap<String, OpId>,
}

impl ScopeAction {
    /// Checks the scope: nothing leads to its end, two collects on one cycle, and so on. Names are resolved already.
    ///
    /// # Errors
    /// All faults.
    pub fn check(&self) -> Result<(), Vec<ScopeFault>> {
        Scope::check(self.plan().draft).map(drop)
    }

    pub(crate) fn plan(&self) -> ScopePlan {
        Planning::new(self).finish()
    }

    /// All targets, of operations and of the start.
    pub fn targets(&self) -> Vec<&MessageTarget> {
        let mut found = vec![&self.start];
        for op in &self.ops {
            found.push(&op.next);
            found.extend(&op.other);
            if let FileWork::Split(parts) = &op.work {
                found.extend(parts.iter().map(|(_, target)| target));
            }
        }
        let mut all = Vec::new();
        while let Some(target) = found.pop() {
            match target {
                MessageTarget::All(targets) => found.extend(targets),
                target => all.push(target),
            }
        }
        all
    }

    /// Its commands.
    pub fn commands_mut(&mut self) -> impl Iterator<Item = &mut Command> {
        let ops = self.ops.iter_mut().filter_map(|op| match &mut op.work {
            FileWork::Run(command) => Some(command),
            _ => None,
        });
        ops.chain(self.cleanups.iter_mut().map(|cleanup| &mut cleanup.run))
    }

    /// The names of its streams, in order.
    pub fn streams(&self) -> Vec<String> {
        let streams = self.targets().into_iter().filter_map(|target| match target {
            MessageTarget::Stream(name) => Some(name.clone()),
            _ => None,
        });
        streams.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }
}

struct Planning<'a> {
    action: &'a ScopeAction,
    plan: ScopePlan,
    named: BTreeMap<String, OpId>,
}

impl<'a> Planning<'a> {
    fn new(action: &'a ScopeAction) -> Self {
        let settings =
            ScopeSettings { uninterruptible: false, deadline_ms: action.deadline_ms, rounds_max: action.rounds_max };
        let draft = ScopeDraft { streams: action.streams(), settings, ..ScopeDraft::default() };
        let plan = ScopePlan { draft, codes: vec![], buffers: BTreeMap::new() };
        Planning { action, plan, named: BTreeMap::new() }
    }

    fn add(&mut self, name: &str, kind: OpKind, code: OpCode, ports: usize) -> OpId {
        let id = OpId(u32::try_from(self.plan.draft.ops.len()).expect("a file has fewer operations"));
        self.plan.draft.ops.push(Operation { name: name.to_owned(), kind, outputs: vec![None; ports] });
        self.plan.codes.push(code);
        id
    }

    fn finish(mut self) -> ScopePlan {
        for (name, keep) in &self.action.buffers {
            let keep = match keep {
                KeepEntries::All => BufferKeep::All,
                KeepEntries::Last(most) => BufferKeep::Last(*most),
                KeepEntries::First(most) => BufferKeep::First(*most),
            };
            let id = self.add(name, OpKind::Buffer { keep }, OpCode::Nothing, 0);
            self.plan.buffers.insert(name.clone(), id);
        }
        for (at, op) in self.action.ops.iter().enumerate() {
            let (kind, ports) = self.kind(&op.work);
            let code = match op.work {
                FileWork::Open(_) | FileWork::Close(_) => OpCode::Nothing,
                _ => OpCode::Of(at),
            };
            let id = self.add(&op.name, kind, code, ports);
            self.named.insert(op.name.clone(), id);
        }
        for op in &self.action.ops {
            self.connect(op);
        }
        let start = self.target(&self.action.start, "start");
        self.plan.draft.start = start;
        for cleanup in &self.action.cleanups {
            let when = match cleanup.on {
                CleanupOn::Cancel => CleanupWhen::Cancelled,
                CleanupOn::Terminate => CleanupWhen::Terminated,
                CleanupOn::Either => CleanupWhen::Ended,
            };
            let buffers = self.buffers(&cleanup.with);
            let (name, timeout_ms) = (cleanup.name.clone(), cleanup.timeout_ms);
            self.plan.draft.cleanups.push(CleanupFlow { name, when, buffers, timeout_ms });
        }
        self.plan
    }

    fn buffers(&self, names: &[String]) -> Vec<OpId> {
        names.iter().filter_map(|name| self.plan.buffers.get(name).copied()).collect()
    }

    fn kind(&self, work: &FileWork) -> (OpKind, usize) {
        match work {
            FileWork::Run(_) | FileWork::Sleep(_) => (OpKind::Task { mode: TaskMode::Async, streams: 0 }, 1),
            FileWork::Expr(_) => (OpKind::Task { mode: TaskMode::Blocking, streams: 0 }, 1),
            FileWork::When(_) => (OpKind::Distribute(Distribution::Fork), 2),
            FileWork::Spread(_) => (OpKind::Distribute(Distribution::Spread), 1),
            FileWork::Split(parts) => (OpKind::Distribute(Distribution::Split), parts.len() + 1),
            FileWork::Collect { min, max } => (OpKind::Collect { min: *min, max: *max }, 1),
            FileWork::Join(names) => {
                let inputs = self.buffers(names).into_iter().map(|buffer| JoinInput { buffer, by_clone: false });
                (OpKind::Join { inputs: inputs.collect() }, 1)
            }
            FileWork::Listen(names) => (OpKind::Listen { buffers: self.buffers(names), own_writes: false }, 1),
            FileWork::Open(names) => (OpKind::Gate { buffers: self.buffers(names), action: GateAction::Open }, 1),
            FileWork::Close(names) => (OpKind::Gate { buffers: self.buffers(names), action: GateAction::Close }, 1),
        }
    }

    fn connect(&mut self, op: &FileOp) {
        let id = self.named[&op.name];
        let next = self.target(&op.next, &op.name);
        let other = op.other.as_ref().map(|other| self.target(other, &format!("{}!", op.name)));
        match (&op.work, other) {
            (FileWork::Run(_), Some(other)) => {
                let name = format!("{}?", op.name);
                let fork = self.add(&name, OpKind::Distribute(Distribution::Fork), OpCode::ByResult, 2);
                self.plan.draft.ops[id.at()].outputs[0] = Some(fork);
                self.plan.draft.ops[fork.at()].outputs = vec![next, other];
            }
            (FileWork::Split(parts), other) => {
                let mut outputs = Vec::new();
                for (part, target) in parts {
                    outputs.push(self.target(target, &format!("{}.{part}", op.name)));
                }
                outputs.push(other.flatten());
                self.plan.draft.ops[id.at()].outputs = outputs;
            }
            (FileWork::When(_), other) => self.plan.draft.ops[id.at()].outputs = vec![next, other.flatten()],
            _ => self.plan.draft.ops[id.at()].outputs[0] = next,
        }
    }

    /// The operation that a target is; `None` for nowhere.
    fn target(&mut self, target: &MessageTarget, of: &str) -> Option<OpId> {
        let shared = |name: &str| format!("<{name}>");
        Some(match target {
            MessageTarget::Op(name) => self.named.get(name).copied()?,
            MessageTarget::Push(buffer) => self.plan.buffers.get(buffer).copied()?,
            MessageTarget::Dispose => return None,
            MessageTarget::Terminate => self.once(&shared("terminate"), OpKind::Terminate),
            MessageTarget::Cancel => self.once(&shared("cancel"), OpKind::Cancel { implicit: false }),
            MessageTarget::Stream(name) => {
                let at = self.plan.draft.streams.iter().position(|stream| stream == name)?;
                let stream = u32::try_from(at).expect("a file has fewer streams");
                self.once(&shared(name), OpKind::StreamOut { stream })
            }
            MessageTarget::All(targets) => {
                let outputs: Vec<_> = targets.iter().map(|target| self.target(target, of)).collect();
                let id = self.add(&format!("{of}*"), OpKind::Clone, OpCode::Nothing, 0);
                self.plan.draft.ops[id.at()].outputs = outputs;
                id
            }
        })
    }

    fn once(&mut self, name: &str, kind: OpKind) -> OpId {
        match self.named.get(name) {
            Some(id) => *id,
            None => {
                let id = self.add(name, kind, OpCode::Nothing, 0);
                self.named.insert(name.to_owned(), id);
                id
            }
        }
    }
}
