//! A scope of a flow file, as the program carries it.

mod call;
mod plan;

use super::{Command, Http, Script};
pub use call::{CallGiven, CallInput, FileCall};
use onceflow_core::scope::{Scope, ScopeFault};
pub(crate) use plan::{OpCode, ScopePlan};
use serde::{Deserialize, Serialize};

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
    /// The end of the parent is deferred until the session has ended by itself.
    #[serde(default)]
    pub uninterruptible: bool,
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
    /// Where the failure of a task goes, the message of a `when` that does not hold, that of a `match` without its case,
    /// and the rest of a `split`.
    pub other: Option<MessageTarget>,
    /// Where the streams of a nested scope go, by their names.
    #[serde(default)]
    pub streams: Vec<(String, MessageTarget)>,
    /// How messages are delivered to its task; all at once without it.
    #[serde(default)]
    pub delivery: Option<FileDelivery>,
}

/// The delivery of messages one at a time. Expressions see `message`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDelivery {
    /// An expression for the label: one at a time of each; without it, one at a time.
    pub serial_by: Option<String>,
    /// A truth: the message takes the place of those before it.
    pub preempt: Option<String>,
    /// A truth: no message takes the place of this one.
    pub ensure: Option<String>,
}

/// The work of an operation. Expressions see `message`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileWork {
    /// Work outside of the session.
    Task(FileTask),
    /// One of several tasks; the message says which.
    Inject {
        /// An expression for the name of the task.
        choose: String,
        /// The tasks, by name.
        among: Vec<(String, FileTask)>,
    },
    /// Evaluates an expression.
    Expr(String),
    /// Decides by a truth.
    When(String),
    /// Decides by a word.
    Match {
        /// An expression for the word.
        on: String,
        /// Where the message goes, by the word.
        cases: Vec<(String, MessageTarget)>,
    },
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
    Join {
        /// The buffers.
        buffers: Vec<String>,
        /// Those of them whose entry is copied and stays.
        clone: Vec<String>,
    },
    /// A record of all entries of these buffers, whenever one changes.
    Listen {
        /// The buffers.
        buffers: Vec<String>,
        /// Those of them whose entries are taken.
        take: Vec<String>,
    },
    /// The message, with all entries of these buffers.
    Access {
        /// The buffers.
        buffers: Vec<String>,
        /// Those of them whose entries are taken.
        take: Vec<String>,
    },
    /// Puts a value into a buffer, and passes the message on.
    Push {
        /// The buffer.
        buffer: String,
        /// An expression for the value; the message itself without it.
        value: Option<String>,
    },
    /// A message for each of these fields, or elements by their number.
    Split(Vec<(String, MessageTarget)>),
    /// A message for each element of a list, in order.
    Unzip(Vec<MessageTarget>),
    /// Opens buffers for their readers.
    Open(Vec<String>),
    /// Closes buffers for their readers.
    Close(Vec<String>),
    /// Opens buffers for their readers, or closes them.
    Gate {
        /// The buffers.
        buffers: Vec<String>,
        /// A truth: they are opened.
        open: String,
    },
    /// Cleans a part of the scope, then passes the message on.
    Trim(FileTrim),
    /// A record of the operation and the reason, whenever one of these operations gives nothing.
    Watch(Vec<String>),
    /// Passes the message on after so many milliseconds.
    Sleep(u64),
    /// Waits for an event from outside, and gives its value.
    Wait(String),
}

/// Work outside of the session, also that of a cleanup flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileTask {
    /// Starts a command; the text it prints is the message, as JSON if it is JSON.
    Run(Command),
    /// Runs code in an interpreter, which reads the message; what it prints is the message, as JSON if it is JSON.
    Script(Script),
    /// Calls a server; the body of its answer is the message.
    Http(Http),
    /// Runs a flow; a record of its outputs is the message.
    Call(Box<FileCall>),
    /// Enters a nested scope.
    Scope(Box<ScopeAction>),
}

/// A part of a scope that is cleaned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileTrim {
    /// One operation.
    Only(String),
    /// An operation and all that it leads to.
    From(String),
    /// All operations on a way from the first to the second.
    Between(String, String),
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
    /// As [`MessageTarget::Cancel`], for errors only: a session that can reach nothing else is unreachable.
    ImplicitCancel,
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
    /// Its work.
    pub task: FileTask,
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

impl FileWork {
    /// The parts of a message that have targets of their own, by their labels.
    pub fn parts(&self) -> Vec<(String, &MessageTarget)> {
        match self {
            FileWork::Split(parts) | FileWork::Match { cases: parts, .. } => {
                parts.iter().map(|(name, target)| (name.clone(), target)).collect()
            }
            FileWork::Unzip(parts) => parts.iter().enumerate().map(|(at, target)| (at.to_string(), target)).collect(),
            _ => vec![],
        }
    }

    /// The tasks of the operation, each with its name if it is one of several.
    pub fn tasks(&self) -> Vec<(Option<&str>, &FileTask)> {
        match self {
            FileWork::Task(task) => vec![(None, task)],
            FileWork::Inject { among, .. } => among.iter().map(|(name, task)| (Some(name.as_str()), task)).collect(),
            _ => vec![],
        }
    }

    fn tasks_mut(&mut self) -> Vec<&mut FileTask> {
        match self {
            FileWork::Task(task) => vec![task],
            FileWork::Inject { among, .. } => among.iter_mut().map(|(_, task)| task).collect(),
            _ => vec![],
        }
    }
}

impl ScopeAction {
    /// Checks the scope: nothing leads to its end, two collects on one cycle, and so on. Names are resolved already.
    ///
    /// # Errors
    /// All faults, each of a nested scope with the name of its operation.
    pub fn check(&self) -> Result<(), Vec<(String, ScopeFault)>> {
        let own = Scope::check(self.plan().draft).err().unwrap_or_default();
        let mut faults: Vec<_> = own.into_iter().map(|fault| (String::new(), fault)).collect();
        let of_ops = self.ops.iter().flat_map(|op| op.work.tasks().into_iter().map(|(_, task)| (&op.name, task)));
        for (name, task) in of_ops.chain(self.cleanups.iter().map(|cleanup| (&cleanup.name, &cleanup.task))) {
            if let FileTask::Scope(nested) = task {
                let below = nested.check().err().unwrap_or_default();
                faults.extend(below.into_iter().map(|(at, fault)| (format!("{name}/{at}"), fault)));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    pub(crate) fn plan(&self) -> ScopePlan {
        plan::of(self)
    }

    /// All targets, of operations and of the start.
    pub fn targets(&self) -> Vec<&MessageTarget> {
        let mut found = vec![&self.start];
        for op in &self.ops {
            found.push(&op.next);
            found.extend(&op.other);
            found.extend(op.streams.iter().map(|(_, target)| target));
            found.extend(op.work.parts().into_iter().map(|(_, target)| target));
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

    /// An operation or a cleanup flow calls a flow.
    pub(crate) fn calls(&self) -> bool {
        let of_ops = self.ops.iter().flat_map(|op| op.work.tasks()).map(|(_, task)| task);
        of_ops.chain(self.cleanups.iter().map(|cleanup| &cleanup.task)).any(|task| match task {
            FileTask::Call(_) => true,
            FileTask::Scope(nested) => nested.calls(),
            FileTask::Run(_) | FileTask::Script(_) | FileTask::Http(_) => false,
        })
    }

    /// Forgets the names of secrets, which no result depends on.
    pub(crate) fn clear_secrets(&mut self) {
        let of_ops = self.ops.iter_mut().flat_map(|op| op.work.tasks_mut());
        for task in of_ops.chain(self.cleanups.iter_mut().map(|cleanup| &mut cleanup.task)) {
            match task {
                FileTask::Run(command) => command.secrets.clear(),
                FileTask::Script(script) => script.secrets.clear(),
                FileTask::Http(http) => http.secrets.clear(),
                FileTask::Call(call) => call.clear_library(),
                FileTask::Scope(nested) => nested.clear_secrets(),
            }
        }
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
