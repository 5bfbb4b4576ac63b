//! Lowers a scope to its action. Commands and expressions in it see one name, `message`; the first message is the record
//! of the step's inputs.

use super::{
    Lowering,
    expression::{Allowed, TaskInputs},
};
use crate::{
    source::Text,
    syntax::{
        outs::OutputPlace,
        scope::{OpDecl, OpWork, ScopeDecl, TargetDecl},
        step::StepDecl,
    },
    words,
};
use onceflow_core::model::Type;
use onceflow_exec::action::{Action, Capture, Command, FileCleanup, FileOp, FileWork, MessageTarget, ScopeAction};
use std::collections::BTreeSet;

/// Words for targets that are no operation.
const WORDS: [&str; 3] = ["terminate", "cancel", "dispose"];

impl Lowering<'_> {
    /// Lowers a scope; `None` after reporting a problem.
    pub(super) fn scope(&mut self, step: &StepDecl, decl: &ScopeDecl) -> Option<Action> {
        let before = self.report.len();
        self.scope_keys(step);
        let own = std::mem::replace(&mut self.aliases, vec![(String::from("message"), Type::Json)]);
        let names: BTreeSet<&str> = decl.ops.iter().map(|op| op.name.name.as_str()).collect();
        let buffers: BTreeSet<&str> = decl.buffers.iter().map(|(name, _)| name.name.as_str()).collect();
        for name in decl.ops.iter().map(|op| &op.name).chain(decl.buffers.iter().map(|(name, _)| name)) {
            let is_taken =
                WORDS.contains(&name.name.as_str()) || (names.contains(&*name.name) && buffers.contains(&*name.name));
            if is_taken {
                let hint = "operations and buffers of a scope have different names, and none is called `terminate`, `cancel` or `dispose`";
                self.say(name.span, "OF0109", format!("the name `{}` is taken", name.name), hint);
            }
        }
        let mut ops = Vec::new();
        for op in &decl.ops {
            ops.extend(self.file_op(op, &names, &buffers));
        }
        let mut cleanups = Vec::new();
        for cleanup in &decl.cleanups {
            let run = self.scope_command(&cleanup.run);
            cleanups.push(FileCleanup {
                name: cleanup.name.name.clone(),
                on: cleanup.on,
                with: self.buffer_names(&cleanup.with, &buffers),
                run,
                timeout_ms: cleanup.timeout_ms,
            });
        }
        let start = decl.start.as_ref().and_then(|start| self.target(start, &names, &buffers));
        self.aliases = own;
        let action = ScopeAction {
            start: start?,
            buffers: decl.buffers.iter().map(|(name, keep)| (name.name.clone(), *keep)).collect(),
            ops,
            cleanups,
            deadline_ms: decl.deadline_ms,
            rounds_max: decl.rounds_max,
        };
        if self.report.len() > before {
            return None;
        }
        for fault in action.check().err().unwrap_or_default() {
            self.say(decl.span, "OF0142", format!("the scope cannot run: {fault}"), "");
        }
        Some(Action::Scope(action))
    }

    /// Reports keys of the step that mean nothing for a scope.
    fn scope_keys(&self, step: &StepDecl) {
        let how = &step.how;
        let says_how = how.effect.is_some() || how.shell.is_some() || !how.env.is_empty() || !how.secrets.is_empty();
        if says_how || step.undo.is_some() || how.timeout_ms.is_some() {
            let hint = "leave `effect`, `shell`, `env`, `secrets`, `undo` and `timeout` out; `deadline` bounds a scope, and its cleanup flows undo it";
            self.say(step.span, "OF0113", "a step with a scope does nothing itself", hint);
        }
        if let Some(used) = step.uses.first() {
            let hint = "`in: { NAME: … }` names the fields of the first message";
            self.say(used.span, "OF0106", "`in` of a scope must be a map, but a list stands here", hint);
        }
        for out in step.outs.iter().filter(|out| !matches!(out.from, OutputPlace::Default)) {
            let hint = format!("`{}: {}` is the field of that name of the result", out.name.name, out.shape.ty());
            self.say(out.name.span, "OF0113", "a scope gives fields of its result, and streams", hint);
        }
        for (key, _) in &step.ins {
            if self.aliases.iter().any(|(name, ty)| *name == key.name && has_files(ty)) {
                let hint = "give its path as text, or make it a step before the scope";
                self.say(key.span, "OF0142", "messages of a scope cannot hold files yet", hint);
            }
        }
        for out in step.outs.iter().filter(|out| has_files(&out.shape.ty())) {
            self.say(out.name.span, "OF0142", "messages of a scope cannot hold files yet", "");
        }
    }

    fn file_op(&mut self, op: &OpDecl, names: &BTreeSet<&str>, buffers: &BTreeSet<&str>) -> Option<FileOp> {
        let work = match &op.work {
            OpWork::Run(run) => FileWork::Run(self.scope_command(run)),
            OpWork::Expr(text) => FileWork::Expr(self.scope_expression(text)?),
            OpWork::When(text) => FileWork::When(self.scope_expression(text)?),
            OpWork::Spread(text) => FileWork::Spread(self.scope_expression(text)?),
            OpWork::Collect { min, max } => FileWork::Collect { min: *min, max: *max },
            OpWork::Join(list) => FileWork::Join(self.buffer_names(list, buffers)),
            OpWork::Listen(list) => FileWork::Listen(self.buffer_names(list, buffers)),
            OpWork::Open(list) => FileWork::Open(self.buffer_names(list, buffers)),
            OpWork::Close(list) => FileWork::Close(self.buffer_names(list, buffers)),
            OpWork::Sleep(ms) => FileWork::Sleep(*ms),
            OpWork::Split(parts) => {
                let mut found = Vec::new();
                for (key, target) in parts {
                    found.push((key.name.clone(), self.target(target, names, buffers)?));
                }
                FileWork::Split(found)
            }
        };
        let next = match &op.next {
            Some(next) => self.target(next, names, buffers)?,
            None => MessageTarget::Dispose,
        };
        let other = match &op.other {
            Some(other) => Some(self.target(other, names, buffers)?),
            None => None,
        };
        Some(FileOp { name: op.name.name.clone(), work, next, other })
    }

    fn buffer_names(&self, list: &[Text], buffers: &BTreeSet<&str>) -> Vec<String> {
        let known = |text: &&Text| {
            let is_known = buffers.contains(&*text.text);
            if !is_known {
                let hint = words::meant(&text.text, buffers.iter().copied());
                self.say(text.span, "OF0116", format!("there is no buffer `{}` here", text.text), hint);
            }
            is_known
        };
        list.iter().filter(known).map(|text| text.text.clone()).collect()
    }

    fn target(&self, target: &TargetDecl, names: &BTreeSet<&str>, buffers: &BTreeSet<&str>) -> Option<MessageTarget> {
        match target {
            TargetDecl::All(targets) => {
                let targets: Vec<_> = targets.iter().map(|target| self.target(target, names, buffers)).collect();
                targets.into_iter().collect::<Option<_>>().map(MessageTarget::All)
            }
            TargetDecl::Push(buffer) => {
                self.buffer_names(std::slice::from_ref(buffer), buffers).pop().map(MessageTarget::Push)
            }
            TargetDecl::Stream(name) => Some(MessageTarget::Stream(name.text.clone())),
            TargetDecl::Name(name) => match name.text.as_str() {
                "terminate" => Some(MessageTarget::Terminate),
                "cancel" => Some(MessageTarget::Cancel),
                "dispose" => Some(MessageTarget::Dispose),
                op if names.contains(op) => Some(MessageTarget::Op(op.to_owned())),
                buffer if buffers.contains(buffer) => Some(MessageTarget::Push(buffer.to_owned())),
                other => {
                    let hint = words::meant(other, names.iter().copied().chain(WORDS));
                    self.say(name.span, "OF0116", format!("there is no operation `{other}` here"), hint);
                    None
                }
            },
        }
    }

    fn scope_command(&mut self, run: &Text) -> Command {
        let mut takes = TaskInputs::default();
        let shell = self.flow.shell.clone().unwrap_or_default();
        let template = self.template(run, Allowed { out: None, step: true, secrets: false }, &mut takes);
        self.check_shell(run, &template, &shell);
        self.only_messages(run, &takes);
        Command { run: template, shell, outputs: vec![Capture::Stdout], env: Default::default(), secrets: vec![] }
    }

    fn scope_expression(&mut self, text: &Text) -> Option<String> {
        let mut takes = TaskInputs::default();
        let source = self.hole(text, 0..text.text.len(), Allowed::default(), &mut takes)?;
        self.only_messages(text, &takes);
        Some(source)
    }

    fn only_messages(&self, text: &Text, takes: &TaskInputs) {
        for take in takes.all.iter().filter(|take| take.path[0] != "message") {
            let name = take.path.join(".");
            let hint = format!("give it to the first message: `in: {{ {}: {name} }}`", take.path[take.path.len() - 1]);
            self.say(text.span, "OF0116", format!("operations of a scope see `message` only, not `{name}`"), hint);
        }
    }
}

fn has_files(ty: &Type) -> bool {
    let words = ty.to_string();
    ["file", "dir"].iter().any(|word| words.split(|letter: char| !letter.is_alphanumeric()).any(|part| part == *word))
}
