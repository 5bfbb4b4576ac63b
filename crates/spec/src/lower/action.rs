//! Lowers a leaf to the action of its executor.

use super::{files::LoadedFiles, http, references::Allowed, scope, texts::TaskTexts};
use crate::{
    source::Text,
    syntax::{
        fields::{FieldReader, clipped},
        kinds::StepKind,
        outs::{LeafOutput, OutputPlace, is_path},
        step::StepDecl,
    },
};
use onceflow_core::model::Type;
use onceflow_exec::{
    action::{self, Action, Capture, Command, Script, Template},
    expr,
};
use std::collections::BTreeMap;

/// A step, or an undo, that is being lowered to its action.
pub(super) struct LeafAction<'r> {
    pub(super) step: &'r StepDecl,
    pub(super) texts: TaskTexts<'r>,
    /// The flow files, for scopes that call others.
    pub(super) files: &'r mut LoadedFiles,
}

impl<'r> LeafAction<'r> {
    fn reader(&self) -> FieldReader<'r> {
        self.texts.references.reader
    }

    /// Lowers a command, a script or an HTTP call to its action; `None` after reporting a problem.
    pub(super) fn lower(mut self) -> Option<Action> {
        let step = self.step;
        let outs: Vec<_> = step.outs.iter().map(|out| out.name.name.clone()).collect();
        let all = Allowed { out: Some(&outs), step: true, secrets: true };
        Some(match &step.kind {
            StepKind::Run(run) => {
                let shell =
                    step.how.shell.clone().or_else(|| self.texts.references.flow.shell.clone()).unwrap_or_default();
                let run_template = self.texts.template(run, all);
                self.texts.check_shell(run, &run_template, &shell);
                let env = self.env(all);
                let outputs = self.captures();
                let secrets = self.secrets();
                Action::Command(Command { run: run_template, shell, outputs, env, secrets })
            }
            StepKind::Script { interpreter, code } => {
                self.no_shell("a script");
                let env = self.env(all);
                let outputs = self.captures();
                let secrets = self.secrets();
                // The code of a script has no holes: it reads its inputs from JSON, so all inputs are listed in `in`.
                let (interpreter, code) = (interpreter.clone(), code.text.clone());
                Action::Script(Script { interpreter, code, outputs, env, secrets })
            }
            StepKind::Http(http) => {
                self.no_shell("a call over HTTP");
                let mut call = http::call(&mut self.texts, http);
                call.outputs = self.captures();
                call.secrets = self.secrets();
                Action::Http(call)
            }
            StepKind::Wait(event) => self.wait(event)?,
            StepKind::Scope(scope) => scope::lower(self.texts.references, self.files, step, scope)?,
            StepKind::Expr(_) | StepKind::Stream(_) | StepKind::Flow(_) | StepKind::Steps(_) | StepKind::Choose(_) => {
                return None;
            }
        })
    }

    /// Lowers a wait. It executes nothing, so of the execution settings it has only a timeout.
    fn wait(&self, event: &Text) -> Option<Action> {
        let step = self.step;
        let how = &step.how;
        let says_how = how.effect.is_some() || how.shell.is_some() || !how.env.is_empty();
        if says_how || !how.secrets.is_empty() || step.undo.is_some() {
            let hint = "leave `effect`, `shell`, `env`, `secrets` and `undo` out";
            self.reader().say(step.span, "OF0113", "a step that waits does nothing itself", hint);
        }
        for out in step.outs.iter().filter(|out| !matches!(out.from, OutputPlace::Default)) {
            let hint = format!("`{}: {}`", out.name.name, out.shape.ty());
            self.reader().say(out.name.span, "OF0113", "what an event brings is given as it is sent", hint);
        }
        Some(Action::Wait(action::Wait { event: event_name(self.reader(), event)? }))
    }

    fn no_shell(&self, what: &str) {
        let step = self.step;
        if step.how.shell.is_some() {
            self.reader().say(step.span, "OF0113", format!("{what} is read by no shell"), "leave `shell` out");
        }
        if matches!(step.kind, StepKind::Http(_)) && !step.how.env.is_empty() {
            self.reader().say(
                step.how.env[0].0.span,
                "OF0113",
                format!("{what} has no environment"),
                "leave `env` out",
            );
        }
    }

    fn env(&mut self, allowed: Allowed<'_>) -> BTreeMap<String, Template> {
        let flow = self.texts.references.flow;
        let mut env = BTreeMap::new();
        for (key, text) in flow.env.iter().chain(&self.step.how.env) {
            env.insert(key.name.clone(), text.clone());
        }
        env.into_iter().map(|(name, text)| (name, self.texts.template(&text, allowed))).collect()
    }

    /// Returns the secrets that expressions refer to, and those that are listed.
    fn secrets(&self) -> Vec<String> {
        let mut names = self.texts.takes.secrets.clone();
        for secret in &self.step.how.secrets {
            if !self.texts.references.flow.secrets.iter().any(|other| other.text == secret.text) {
                let hint = format!("add `secrets: [{}]` to the flow", secret.text);
                self.reader().say(secret.span, "OF0126", format!("the secret `{}` is not declared", secret.text), hint);
            }
            names.push(secret.text.clone());
        }
        names.sort();
        names.dedup();
        names
    }

    fn captures(&mut self) -> Vec<Capture> {
        let step = self.step;
        let plain =
            step.outs.iter().filter(|out| matches!(out.from, OutputPlace::Default) && !is_path(&out.shape)).count();
        step.outs.iter().map(|out| self.capture(out, plain == 1)).collect()
    }

    /// Determines the place of an output; `alone` means that it is the only output, of those that are no files, without
    /// a declared place.
    fn capture(&mut self, out: &LeafOutput, alone: bool) -> Capture {
        let name = &out.name.name;
        match &out.from {
            OutputPlace::Path(text) => Capture::Path(self.path(text, out)),
            OutputPlace::Stdout => Capture::Stdout,
            OutputPlace::Json(text) => {
                self.answer(text, matches!(self.step.kind, StepKind::Http(_)));
                Capture::Json(text.text.clone())
            }
            OutputPlace::Default if matches!(out.shape.required().ty(), Type::List(_)) && is_path(&out.shape) => {
                let message = format!("where are the files of output `{name}`?");
                self.reader().say(
                    out.name.span,
                    "OF0122",
                    message,
                    format!("`{name}: {{ \"{}\": \"*.txt\" }}`", out.shape.ty()),
                );
                Capture::Stdout
            }
            OutputPlace::Default if out.shape.ty() == Type::Unit => {
                let message = format!("output `{name}` of type unit says nothing");
                self.reader().say(
                    out.name.span,
                    "OF0122",
                    message,
                    "leave it out: every step without outputs gives `done`",
                );
                Capture::Stdout
            }
            OutputPlace::Default if is_path(&out.shape) => Capture::Path(Template::text(name.clone())),
            OutputPlace::Default => match &self.step.kind {
                StepKind::Http(_) => Capture::Json(format!("body.{name}")),
                StepKind::Run(_) if alone => Capture::Stdout,
                _ => Capture::Json(name.clone()),
            },
        }
    }

    /// Lowers the name or pattern of an output: below the work directory, and not in the directory of inputs.
    fn path(&mut self, text: &Text, out: &LeafOutput) -> Template {
        let template = self.texts.template(text, Allowed::default());
        let said = |why: &str, hint: &str| {
            let message = format!("`{}` cannot be the name of an output: {why}", clipped(&text.text));
            self.reader().say(text.span, "OF0121", message, hint);
        };
        let plain: String = template
            .0
            .iter()
            .map(|part| match part {
                action::TemplatePart::Text(text) => text.as_str(),
                action::TemplatePart::Hole(_) => "x",
            })
            .collect();
        let inside = "outputs lie in the work directory of the step, where commands start";
        if plain.starts_with('/') {
            said("it begins with `/`", inside);
        } else if plain.split('/').any(|part| part == "..") {
            said("it leads out of the work directory", inside);
        } else if plain.is_empty() || plain.contains('\0') || plain.trim() == "." {
            said("it names nothing", inside);
        } else if plain == "in" || plain.starts_with("in/") {
            said("`in/` holds the inputs", inside);
        } else if is_pattern(&plain) {
            if let Err(error) = globset::Glob::new(&plain) {
                said(&error.kind().to_string(), "");
            } else if !matches!(out.shape.required().ty(), Type::List(_) | Type::File | Type::Directory) {
                said("a pattern may match several files", "");
            }
        } else if matches!(out.shape.required().ty(), Type::List(_)) && template.as_text().is_some() {
            said("it names one file, but the output is a list", "a pattern names several: `*.txt`");
        }
        template
    }

    /// Checks an expression over an answer: its names are those of the answer.
    fn answer(&self, text: &Text, is_http: bool) {
        match expr::compile(&text.text) {
            Err(wrong) => {
                if let Some(wrong) = wrong.into_iter().next() {
                    let span = self.reader().source.inside(text, wrong.span);
                    self.reader().say(
                        span,
                        "OF0115",
                        format!("`{}` is not an expression: {}", text.text, wrong.message),
                        "",
                    );
                }
            }
            Ok(compiled) => {
                for reference in compiled.references().iter().filter(|_| is_http) {
                    if !matches!(reference.path[0].as_str(), "status" | "headers" | "body") {
                        let span = self.reader().source.inside(text, reference.span.clone());
                        let message = format!("an answer has no `{}`", reference.path[0]);
                        let hint = format!("it has `status`, `headers`, `body`: `body.{}`?", reference.path.join("."));
                        self.reader().say(span, "OF0116", message, hint);
                    }
                }
                self.texts.references.typed(text, 0..text.text.len(), &|_| None);
            }
        }
    }
}

/// Reads the name of an event.
pub(super) fn event_name(reader: FieldReader<'_>, event: &Text) -> Option<String> {
    if event.text.trim().is_empty() || event.text.contains(char::is_control) {
        reader.say(event.span, "OF0105", "`wait` names no event", "`wait: approved`");
        return None;
    }
    Some(event.text.trim().to_owned())
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '[', '{'])
}
