//! Lowers a scope to its action. Commands and expressions in it see one name, `message`; the first message is the record
//! of the step's inputs.

mod call;

use super::{
    action::event_name,
    files::LoadedFiles,
    http,
    references::{Allowed, References},
    texts::{TaskInputs, TaskTexts},
};
use crate::{
    limits::SCOPE_BYTES_MAX,
    source::{Span, Text},
    syntax::{
        MapKey,
        diagram::IMPLICIT_CANCEL,
        fields::FieldReader,
        http::HttpDecl,
        outs::OutputPlace,
        scope::{DeliveryDecl, OpDecl, OpWork, ScopeDecl, TargetDecl, TaskDecl, TrimDecl},
        step::StepDecl,
    },
    words,
};
use onceflow_core::model::{Retry, Type};
use onceflow_exec::action::{
    Action, Capture, Command, FileCleanup, FileDelivery, FileOp, FileTask, FileTrim, FileWork, MessageTarget,
    ScopeAction, Script,
};
use std::collections::BTreeSet;

/// Words for targets that are no operation.
const WORDS: [&str; 3] = ["terminate", "cancel", "dispose"];

/// The names of one scope; a nested scope has names of its own.
struct ScopeNames<'a> {
    ops: BTreeSet<&'a str>,
    buffers: BTreeSet<&'a str>,
}

impl<'a> ScopeNames<'a> {
    fn of(decl: &'a ScopeDecl) -> Self {
        ScopeNames {
            ops: decl.ops.iter().map(|op| op.name.name.as_str()).collect(),
            buffers: decl.buffers.iter().map(|(name, _)| name.name.as_str()).collect(),
        }
    }
}

/// A step with a scope that is being lowered. Its expressions see one name, `message`.
struct ScopeLowering<'r> {
    references: References<'r>,
    /// The flow files, for flows that it calls.
    files: &'r mut LoadedFiles,
}

/// Lowers a scope to its action; `None` after reporting a problem. `references` sees the inputs of the step.
pub(super) fn lower(
    references: References<'_>,
    files: &mut LoadedFiles,
    step: &StepDecl,
    decl: &ScopeDecl,
) -> Option<Action> {
    let References { reader, flow, graphs, aliases: inputs } = references;
    let before = reader.report.len();
    check_keys(reader, step, inputs);
    let message = [(String::from("message"), Type::Json)];
    let references = References { reader, flow, graphs, aliases: &message };
    let mut scope = ScopeLowering { references, files };
    let action = scope.scope_action(decl).filter(|_| reader.report.len() == before)?;
    for (at, fault) in action.check().err().unwrap_or_default() {
        let whose = match at.trim_end_matches('/') {
            "" => String::from("the scope"),
            nested => format!("the scope of `{nested}`"),
        };
        let span = nested_span(decl, &at).unwrap_or(decl.span);
        reader.say(span, "OF0142", format!("{whose} cannot run: {fault}"), "");
    }
    let action = Action::Scope(action);
    let bytes = action.to_params().len();
    if bytes > SCOPE_BYTES_MAX {
        let message =
            format!("the scope has {bytes} bytes, with all flows that it calls; it has at most {SCOPE_BYTES_MAX}");
        reader.say(decl.span, "OF0142", message, "make large flows steps before or after the scope");
        return None;
    }
    Some(action)
}

/// Reports keys of the step that mean nothing for a scope.
fn check_keys(reader: FieldReader<'_>, step: &StepDecl, inputs: &[(String, Type)]) {
    let how = &step.how;
    let says_how = how.effect.is_some() || how.shell.is_some() || !how.env.is_empty() || !how.secrets.is_empty();
    if says_how || step.undo.is_some() || how.timeout_ms.is_some() || how.retry != Retry::default() {
        let hint = "leave `effect`, `shell`, `env`, `secrets`, `undo`, `retry` and `timeout` out; `deadline` bounds a scope, and its cleanup flows undo it";
        reader.say(step.span, "OF0113", "a step with a scope does nothing itself", hint);
    }
    if let Some(used) = step.uses.first() {
        let hint = "`in: { NAME: … }` names the fields of the first message";
        reader.say(used.span, "OF0106", "`in` of a scope must be a map, but a list stands here", hint);
    }
    for out in step.outs.iter().filter(|out| !matches!(out.from, OutputPlace::Default)) {
        let hint = format!("`{}: {}` is the field of that name of the result", out.name.name, out.shape.ty());
        reader.say(out.name.span, "OF0113", "a scope gives fields of its result, and streams", hint);
    }
    for (key, _) in &step.ins {
        if inputs.iter().any(|(name, ty)| *name == key.name && has_files(ty)) {
            let hint = "give its path as text, or make it a step before the scope";
            reader.say(key.span, "OF0142", "messages of a scope cannot hold files yet", hint);
        }
    }
    for out in step.outs.iter().filter(|out| has_files(&out.shape.ty())) {
        reader.say(out.name.span, "OF0142", "messages of a scope cannot hold files yet", "");
    }
}

impl ScopeLowering<'_> {
    fn say(&self, span: Span, code: &'static str, message: impl Into<String>, hint: impl Into<String>) {
        self.references.reader.say(span, code, message, hint);
    }

    /// The texts of one task, which take `message` only.
    fn texts<'t>(&'t mut self, takes: &'t mut TaskInputs) -> TaskTexts<'t> {
        let References { reader, flow, graphs, aliases } = &mut self.references;
        TaskTexts { references: References { reader: *reader, flow, graphs, aliases }, takes }
    }

    /// Lowers a scope, outermost or nested; `None` after reporting a problem.
    fn scope_action(&mut self, decl: &ScopeDecl) -> Option<ScopeAction> {
        let names = ScopeNames::of(decl);
        for name in decl.ops.iter().map(|op| &op.name).chain(decl.buffers.iter().map(|(name, _)| name)) {
            let is_both = names.ops.contains(&*name.name) && names.buffers.contains(&*name.name);
            if WORDS.contains(&name.name.as_str()) || is_both {
                let hint = "operations and buffers of a scope have different names, and none is called `terminate`, `cancel` or `dispose`";
                self.say(name.span, "OF0109", format!("the name `{}` is taken", name.name), hint);
            }
        }
        let mut ops = Vec::new();
        for op in &decl.ops {
            ops.extend(self.file_op(op, &names));
        }
        let mut cleanups = Vec::new();
        for cleanup in &decl.cleanups {
            let task = self.task_of_scope(&cleanup.task);
            let with = self.buffer_names(&cleanup.with, &names);
            let (name, on, timeout_ms) = (cleanup.name.name.clone(), cleanup.on, cleanup.timeout_ms);
            cleanups.extend(task.map(|task| FileCleanup { name, on, with, task, timeout_ms }));
        }
        let start = decl.start.as_ref().and_then(|start| self.target(start, &names));
        Some(ScopeAction {
            start: start?,
            buffers: decl.buffers.iter().map(|(name, keep)| (name.name.clone(), *keep)).collect(),
            ops,
            cleanups,
            deadline_ms: decl.deadline_ms,
            rounds_max: decl.rounds_max,
            uninterruptible: decl.uninterruptible,
        })
    }

    fn file_op(&mut self, op: &OpDecl, names: &ScopeNames<'_>) -> Option<FileOp> {
        let before = self.references.reader.report.len();
        let work = self.work_of_op(op, names);
        let is_whole = self.references.reader.report.len() == before;
        let target = |decl: &Option<TargetDecl>| match decl {
            Some(decl) => self.target(decl, names).map(Some),
            None => Some(None),
        };
        let (next, other) = (target(&op.next), target(&op.other));
        let work = work?;
        let known: Vec<String> = work.tasks().into_iter().flat_map(|(_, task)| streams(task)).collect();
        let mut found = Vec::new();
        for (key, decl) in &op.streams {
            // A nested scope with a problem may lack the operation that sends.
            if is_whole && !known.contains(&key.name) {
                let hint = words::meant(&key.name, known.iter().map(String::as_str));
                self.say(key.span, "OF0116", format!("the nested scope has no stream `{}`", key.name), hint);
            }
            found.extend(self.target(decl, names).map(|target| (key.name.clone(), target)));
        }
        let (next, other) = (next?.unwrap_or(MessageTarget::Dispose), other?);
        let delivery = op.delivery.as_ref().map(|delivery| self.delivery(delivery));
        Some(FileOp { name: op.name.name.clone(), work, next, other, streams: found, delivery })
    }

    fn delivery(&mut self, decl: &DeliveryDecl) -> FileDelivery {
        let mut expression = |text: &Option<Text>| text.as_ref().and_then(|text| self.scope_expression(text));
        FileDelivery {
            serial_by: expression(&decl.serial_by),
            preempt: expression(&decl.preempt),
            ensure: expression(&decl.ensure),
        }
    }

    fn work_of_op(&mut self, op: &OpDecl, names: &ScopeNames<'_>) -> Option<FileWork> {
        Some(match &op.work {
            OpWork::Task(task) => FileWork::Task(self.task_of_scope(task)?),
            OpWork::Inject { choose, among } => {
                let mut tasks = Vec::new();
                for (name, task) in among {
                    tasks.extend(self.task_of_scope(task).map(|task| (name.name.clone(), task)));
                }
                FileWork::Inject { choose: self.scope_expression(choose)?, among: tasks }
            }
            OpWork::Expr(text) => FileWork::Expr(self.scope_expression(text)?),
            OpWork::When(text) => FileWork::When(self.scope_expression(text)?),
            OpWork::Match { on, cases } => {
                let cases = self.parts(cases, names);
                FileWork::Match { on: self.scope_expression(on)?, cases }
            }
            OpWork::Spread(text) => FileWork::Spread(self.scope_expression(text)?),
            OpWork::Collect { min, max } => FileWork::Collect { min: *min, max: *max },
            OpWork::Join { buffers, clone } => {
                let (buffers, clone) = self.some_of(buffers, clone, "joined", names);
                FileWork::Join { buffers, clone }
            }
            OpWork::Listen { buffers, take } => {
                let (buffers, take) = self.some_of(buffers, take, "listened to", names);
                FileWork::Listen { buffers, take }
            }
            OpWork::Access { buffers, take } => {
                let (buffers, take) = self.some_of(buffers, take, "accessed", names);
                FileWork::Access { buffers, take }
            }
            OpWork::Push { buffer, value } => {
                let value = match value {
                    Some(value) => Some(self.scope_expression(value)?),
                    None => None,
                };
                FileWork::Push { buffer: self.buffer_names(std::slice::from_ref(buffer), names).pop()?, value }
            }
            OpWork::Split(parts) => FileWork::Split(self.parts(parts, names)),
            OpWork::Unzip(targets) => {
                FileWork::Unzip(targets.iter().filter_map(|target| self.target(target, names)).collect())
            }
            OpWork::Open(list) => FileWork::Open(self.buffer_names(list, names)),
            OpWork::Close(list) => FileWork::Close(self.buffer_names(list, names)),
            OpWork::Gate { buffers, open } => {
                let buffers = self.buffer_names(buffers, names);
                FileWork::Gate { buffers, open: self.scope_expression(open)? }
            }
            OpWork::Trim(part) => FileWork::Trim(match part {
                TrimDecl::Only(op) => FileTrim::Only(self.part_of_scope(op, names)?),
                TrimDecl::From(op) => FileTrim::From(self.part_of_scope(op, names)?),
                TrimDecl::Between(from, to) => {
                    let (from, to) = (self.part_of_scope(from, names), self.part_of_scope(to, names));
                    FileTrim::Between(from?, to?)
                }
            }),
            OpWork::Watch(list) => {
                FileWork::Watch(list.iter().filter_map(|name| self.op_of_scope(name, names)).collect())
            }
            OpWork::Sleep(ms) => FileWork::Sleep(*ms),
            OpWork::Wait(event) => FileWork::Wait(event_name(self.references.reader, event)?),
        })
    }

    fn task_of_scope(&mut self, task: &TaskDecl) -> Option<FileTask> {
        Some(match task {
            TaskDecl::Run(run) => FileTask::Run(self.scope_command(run)),
            TaskDecl::Script { interpreter, code } => FileTask::Script(Script {
                interpreter: interpreter.clone(),
                code: code.text.clone(),
                outputs: vec![Capture::Stdout],
                env: Default::default(),
                secrets: vec![],
            }),
            TaskDecl::Http(http) => FileTask::Http(self.scope_http(http)?),
            TaskDecl::Call(call) => FileTask::Call(Box::new(self.scope_call(call)?)),
            TaskDecl::Scope(nested) => FileTask::Scope(Box::new(self.scope_action(nested)?)),
        })
    }

    fn parts(&self, parts: &[(MapKey, TargetDecl)], names: &ScopeNames<'_>) -> Vec<(String, MessageTarget)> {
        let part = |(key, target): &(MapKey, TargetDecl)| Some((key.name.clone(), self.target(target, names)?));
        parts.iter().filter_map(part).collect()
    }

    /// Buffers, and some of them.
    fn some_of(&self, all: &[Text], some: &[Text], what: &str, names: &ScopeNames<'_>) -> (Vec<String>, Vec<String>) {
        let (all, some_names) = (self.buffer_names(all, names), self.buffer_names(some, names));
        for text in some.iter().filter(|text| some_names.contains(&text.text) && !all.contains(&text.text)) {
            let hint = format!("it is one of {}", words::list(all.iter().map(String::as_str)));
            self.say(text.span, "OF0116", format!("buffer `{}` is not {what} here", text.text), hint);
        }
        (all, some_names)
    }

    fn buffer_names(&self, list: &[Text], names: &ScopeNames<'_>) -> Vec<String> {
        let known = |text: &&Text| {
            let is_known = names.buffers.contains(&*text.text);
            if !is_known {
                let hint = words::meant(&text.text, names.buffers.iter().copied());
                self.say(text.span, "OF0116", format!("there is no buffer `{}` here", text.text), hint);
            }
            is_known
        };
        list.iter().filter(known).map(|text| text.text.clone()).collect()
    }

    fn op_of_scope(&self, text: &Text, names: &ScopeNames<'_>) -> Option<String> {
        if !names.ops.contains(&*text.text) {
            let hint = words::meant(&text.text, names.ops.iter().copied());
            self.say(text.span, "OF0116", format!("there is no operation `{}` here", text.text), hint);
            return None;
        }
        Some(text.text.clone())
    }

    /// An operation or a buffer.
    fn part_of_scope(&self, text: &Text, names: &ScopeNames<'_>) -> Option<String> {
        if names.buffers.contains(&*text.text) { Some(text.text.clone()) } else { self.op_of_scope(text, names) }
    }

    fn target(&self, target: &TargetDecl, names: &ScopeNames<'_>) -> Option<MessageTarget> {
        match target {
            TargetDecl::All(targets) => {
                let targets: Vec<_> = targets.iter().map(|target| self.target(target, names)).collect();
                targets.into_iter().collect::<Option<_>>().map(MessageTarget::All)
            }
            TargetDecl::Push(buffer) => {
                self.buffer_names(std::slice::from_ref(buffer), names).pop().map(MessageTarget::Push)
            }
            TargetDecl::Stream(name) => Some(MessageTarget::Stream(name.text.clone())),
            TargetDecl::Name(name) => match name.text.as_str() {
                "terminate" => Some(MessageTarget::Terminate),
                "cancel" => Some(MessageTarget::Cancel),
                "dispose" => Some(MessageTarget::Dispose),
                IMPLICIT_CANCEL => Some(MessageTarget::ImplicitCancel),
                op if names.ops.contains(op) => Some(MessageTarget::Op(op.to_owned())),
                buffer if names.buffers.contains(buffer) => Some(MessageTarget::Push(buffer.to_owned())),
                other => {
                    let hint = words::meant(other, names.ops.iter().copied().chain(WORDS));
                    self.say(name.span, "OF0116", format!("there is no operation `{other}` here"), hint);
                    None
                }
            },
        }
    }

    fn scope_command(&mut self, run: &Text) -> Command {
        let mut takes = TaskInputs::default();
        let shell = self.references.flow.shell.clone().unwrap_or_default();
        let mut texts = self.texts(&mut takes);
        let template = texts.template(run, Allowed { out: None, step: true, secrets: true });
        texts.check_shell(run, &template, &shell);
        self.only_messages(run.span, &takes);
        let secrets = takes.secrets;
        Command { run: template, shell, outputs: vec![Capture::Stdout], env: Default::default(), secrets }
    }

    /// Lowers a call over HTTP: the body of its answer is the message.
    fn scope_http(&mut self, http: &HttpDecl) -> Option<onceflow_exec::action::Http> {
        let mut takes = TaskInputs::default();
        let mut call = http::call(&mut self.texts(&mut takes), http);
        self.only_messages(http.url.span, &takes);
        call.outputs = vec![Capture::Json(String::from("body"))];
        call.secrets = takes.secrets;
        if let Some(onceflow_exec::action::HttpBody::File(_)) = call.body {
            let hint = "give its content as `text` or `json`, or make the call a step of the flow";
            self.say(http.url.span, "OF0142", "messages of a scope hold no files, so none can be sent", hint);
        }
        Some(call)
    }

    fn scope_expression(&mut self, text: &Text) -> Option<String> {
        let mut takes = TaskInputs::default();
        let source = self.texts(&mut takes).hole(text, 0..text.text.len(), Allowed::default())?;
        self.only_messages(text.span, &takes);
        Some(source)
    }

    fn only_messages(&self, span: Span, takes: &TaskInputs) {
        for take in takes.all.iter().filter(|take| take.path[0] != "message") {
            let name = take.path.join(".");
            let hint = format!("give it to the first message: `in: {{ {}: {name} }}`", take.path[take.path.len() - 1]);
            self.say(span, "OF0116", format!("operations of a scope see `message` only, not `{name}`"), hint);
        }
    }
}

fn streams(task: &FileTask) -> Vec<String> {
    match task {
        FileTask::Scope(nested) => nested.streams(),
        FileTask::Run(_) | FileTask::Script(_) | FileTask::Http(_) | FileTask::Call(_) => vec![],
    }
}

/// The place of the nested scope that a fault names by the way to it.
fn nested_span(decl: &ScopeDecl, at: &str) -> Option<Span> {
    let (name, below) = at.split_once('/')?;
    let ops = decl.ops.iter().filter(|op| op.name.name == name).flat_map(|op| match &op.work {
        OpWork::Task(task) => vec![task],
        OpWork::Inject { among, .. } => among.iter().map(|(_, task)| task).collect(),
        _ => vec![],
    });
    let cleanups = decl.cleanups.iter().filter(|cleanup| cleanup.name.name == name).map(|cleanup| &cleanup.task);
    let mut nested = ops.chain(cleanups).filter_map(|task| match task {
        TaskDecl::Scope(nested) => Some(nested),
        _ => None,
    });
    let nested = nested.next()?;
    nested_span(nested, below).or(Some(nested.span))
}

fn has_files(ty: &Type) -> bool {
    let words = ty.to_string();
    ["file", "dir"].iter().any(|word| words.split(|letter: char| !letter.is_alphanumeric()).any(|part| part == *word))
}
