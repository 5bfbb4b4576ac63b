//! The operations of the machine that a scope of a flow file becomes. Operations of the file keep their names; those that
//! are added have a name with a sign that no name in a file can have.

use super::{CleanupOn, FileOp, FileTask, FileTrim, FileWork, KeepEntries, MessageTarget, ScopeAction};
use onceflow_core::scope::{
    BufferKeep, CleanupFlow, CleanupWhen, Distribution, GateAction, JoinInput, OpId, OpKind, Operation, ScopeDraft,
    ScopeSettings, TaskMode, TrimSpan,
};
use std::collections::BTreeMap;

/// The code that an operation of the machine needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpCode {
    /// None.
    Nothing,
    /// The inline code of an operation of the file.
    Of(usize),
    /// A task of an operation of the file.
    Task(usize, usize),
    /// Gives the failure of the operation that it watches.
    Failure,
}

/// The operations of the machine, and their code.
pub(crate) struct ScopePlan {
    pub(crate) draft: ScopeDraft,
    pub(crate) codes: Vec<OpCode>,
    /// The buffers, by name.
    pub(crate) buffers: BTreeMap<String, OpId>,
}

/// Plans a scope whose names are resolved.
pub(super) fn of(action: &ScopeAction) -> ScopePlan {
    Planning::new(action).finish()
}

struct Planning<'a> {
    action: &'a ScopeAction,
    plan: ScopePlan,
    named: BTreeMap<String, OpId>,
}

impl<'a> Planning<'a> {
    fn new(action: &'a ScopeAction) -> Self {
        let ScopeAction { uninterruptible, deadline_ms, rounds_max, .. } = *action;
        let settings = ScopeSettings { uninterruptible, deadline_ms, rounds_max };
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
        // Trims and watches refer to operations after them, so numbers come first.
        let first = self.plan.draft.ops.len();
        let numbers = self.action.ops.iter().zip(first..).map(|(op, at)| (op.name.clone(), op_id(at)));
        self.named = numbers.collect();
        for (at, op) in self.action.ops.iter().enumerate() {
            let (kind, ports) = self.kind(op);
            let code = match op.work {
                FileWork::Open(_) | FileWork::Close(_) | FileWork::Trim(_) => OpCode::Nothing,
                FileWork::Task(_) => OpCode::Task(at, 0),
                _ => OpCode::Of(at),
            };
            self.add(&op.name, kind, code, ports);
        }
        for (at, op) in self.action.ops.iter().enumerate() {
            self.connect(at, op);
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

    fn kind(&self, op: &FileOp) -> (OpKind, usize) {
        match &op.work {
            FileWork::Task(task) => task_kind(task),
            FileWork::Sleep(_) | FileWork::Wait(_) => (OpKind::Task { mode: TaskMode::Async, streams: 0 }, 1),
            FileWork::Expr(_) => (OpKind::Task { mode: TaskMode::Blocking, streams: 0 }, 1),
            FileWork::When(_) => (OpKind::Distribute(Distribution::Fork), 2),
            FileWork::Match { cases, .. } => (OpKind::Distribute(Distribution::Fork), cases.len() + 1),
            // A fork has two ports at least; the last one is never taken.
            FileWork::Inject { among, .. } => (OpKind::Distribute(Distribution::Fork), among.len() + 1),
            FileWork::Spread(_) => (OpKind::Distribute(Distribution::Spread), 1),
            FileWork::Split(parts) => (OpKind::Distribute(Distribution::Split), parts.len() + 1),
            FileWork::Unzip(parts) => (OpKind::Distribute(Distribution::Unzip), parts.len()),
            FileWork::Collect { min, max } => (OpKind::Collect { min: *min, max: *max }, 1),
            FileWork::Join { buffers, clone } => {
                let input = |name: &String| {
                    let buffer = self.plan.buffers.get(name).copied()?;
                    Some(JoinInput { buffer, by_clone: clone.contains(name) })
                };
                (OpKind::Join { inputs: buffers.iter().filter_map(input).collect() }, 1)
            }
            FileWork::Listen { buffers, .. } => {
                (OpKind::Listen { buffers: self.buffers(buffers), own_writes: false }, 1)
            }
            FileWork::Access { buffers, .. } => (OpKind::Access { buffers: self.buffers(buffers) }, 1),
            FileWork::Push { buffer, .. } => {
                (OpKind::Access { buffers: self.buffers(std::slice::from_ref(buffer)) }, 1)
            }
            FileWork::Open(names) => (OpKind::Gate { buffers: self.buffers(names), action: GateAction::Open }, 1),
            FileWork::Close(names) => (OpKind::Gate { buffers: self.buffers(names), action: GateAction::Close }, 1),
            FileWork::Gate { buffers, .. } => {
                (OpKind::Gate { buffers: self.buffers(buffers), action: GateAction::Dynamic }, 1)
            }
            FileWork::Trim(part) => (OpKind::Trim { span: self.span(part) }, 1),
            FileWork::Watch(names) => {
                let of = names.iter().filter_map(|name| self.named.get(name).copied());
                (OpKind::Watch { of: of.collect() }, 1)
            }
        }
    }

    fn span(&self, part: &FileTrim) -> TrimSpan {
        let unknown = OpId(u32::MAX);
        let op =
            |name: &String| self.named.get(name).or_else(|| self.plan.buffers.get(name)).copied().unwrap_or(unknown);
        match part {
            FileTrim::Only(name) => TrimSpan::Point(op(name)),
            FileTrim::From(name) => TrimSpan::Downstream(op(name)),
            FileTrim::Between(first, last) => TrimSpan::Between(op(first), op(last)),
        }
    }

    fn connect(&mut self, at: usize, op: &FileOp) {
        let id = self.named[&op.name];
        let next = self.target(&op.next, &op.name);
        let mut outputs = Vec::new();
        for (label, target) in op.work.parts() {
            outputs.push(self.target(target, &format!("{}.{label}", op.name)));
        }
        match &op.work {
            FileWork::Task(task) => outputs = self.task_outputs(op, task, next),
            FileWork::Inject { among, .. } => {
                let mut tasks = vec![id];
                for (branch, (name, task)) in among.iter().enumerate() {
                    let (kind, _) = task_kind(task);
                    let after = self.task_outputs(op, task, next);
                    let task = self.add(&format!("{}:{name}", op.name), kind, OpCode::Task(at, branch), 0);
                    self.plan.draft.ops[task.at()].outputs = after;
                    outputs.push(Some(task));
                    tasks.push(task);
                }
                outputs.push(None);
                self.failures(op, tasks);
            }
            FileWork::When(_) => {
                let other = op.other.as_ref().and_then(|other| self.target(other, &format!("{}!", op.name)));
                outputs = vec![next, other];
            }
            FileWork::Split(_) | FileWork::Match { .. } => {
                outputs.push(op.other.as_ref().and_then(|other| self.target(other, &format!("{}!", op.name))));
            }
            FileWork::Unzip(_) => {}
            _ => outputs = vec![next],
        }
        self.plan.draft.ops[id.at()].outputs = outputs;
        if matches!(op.work, FileWork::Task(_)) {
            self.failures(op, vec![id]);
        }
    }

    /// The outputs of a task: its result, then its streams.
    fn task_outputs(&mut self, op: &FileOp, task: &FileTask, next: Option<OpId>) -> Vec<Option<OpId>> {
        let mut outputs = vec![next];
        for stream in streams_of(task) {
            let target = op.streams.iter().find(|(name, _)| *name == stream).map(|(_, target)| target);
            outputs.push(target.and_then(|target| self.target(target, &format!("{}~{stream}", op.name))));
        }
        outputs
    }

    /// Sends the failures of these operations where `err` says.
    fn failures(&mut self, op: &FileOp, of: Vec<OpId>) {
        if let Some(other) = &op.other {
            let target = self.target(other, &format!("{}!", op.name));
            let watch = self.add(&format!("{}?", op.name), OpKind::Watch { of }, OpCode::Failure, 0);
            self.plan.draft.ops[watch.at()].outputs = vec![target];
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
            MessageTarget::ImplicitCancel => self.once(&shared("implicit cancel"), OpKind::Cancel { implicit: true }),
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

fn op_id(at: usize) -> OpId {
    OpId(u32::try_from(at).expect("a file has fewer operations"))
}

/// The streams of a task, in order.
fn streams_of(task: &FileTask) -> Vec<String> {
    match task {
        FileTask::Scope(nested) => nested.streams(),
        FileTask::Run(_) | FileTask::Script(_) | FileTask::Http(_) | FileTask::Call(_) => vec![],
    }
}

fn task_kind(task: &FileTask) -> (OpKind, usize) {
    let streams = streams_of(task).len();
    let mode = match task {
        FileTask::Run(_) | FileTask::Script(_) | FileTask::Http(_) | FileTask::Call(_) => TaskMode::Async,
        FileTask::Scope(_) => TaskMode::Flow,
    };
    (OpKind::Task { mode, streams: u32::try_from(streams).expect("a file has fewer streams") }, 1 + streams)
}
