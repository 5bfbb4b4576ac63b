//! Lowers a leaf to the action of its executor.

use super::{
    Lowering,
    expression::{Allowed, TaskInputs},
};
use crate::{
    source::Text,
    syntax::{
        NodeKind, YamlNode,
        http::{HttpBodyDecl, HttpDecl},
        kinds::StepKind,
        outs::{LeafOutput, OutputPlace, is_path},
        step::StepDecl,
    },
};
use onceflow_core::model::Type;
use onceflow_exec::{
    action::{self, Action, Capture, Command, HttpBody, JsonTemplate, Script, Template},
    expr::{self, infer},
    shell, template,
};
use std::collections::BTreeMap;

impl Lowering<'_> {
    /// Lowers a command, a script or an HTTP call to its action; `None` after reporting a problem.
    pub(super) fn action(&mut self, step: &StepDecl, takes: &mut TaskInputs) -> Option<Action> {
        let outs: Vec<_> = step.outs.iter().map(|out| out.name.name.clone()).collect();
        let all = Allowed { out: Some(&outs), step: true, secrets: true };
        Some(match &step.kind {
            StepKind::Run(run) => {
                let shell = step.how.shell.clone().or_else(|| self.flow.shell.clone()).unwrap_or_default();
                let run_template = self.template(run, all, takes);
                self.check_shell(run, &run_template, &shell);
                let env = self.env(step, all, takes);
                let outputs = self.captures(step, takes);
                let secrets = self.secrets(step, takes);
                Action::Command(Command { run: run_template, shell, outputs, env, secrets })
            }
            StepKind::Script { interpreter, code } => {
                self.no_shell(step, "a script");
                let env = self.env(step, all, takes);
                let outputs = self.captures(step, takes);
                let secrets = self.secrets(step, takes);
                // The code of a script has no holes: it reads its inputs from JSON, so all inputs are listed in `in`.
                let (interpreter, code) = (interpreter.clone(), code.text.clone());
                Action::Script(Script { interpreter, code, outputs, env, secrets })
            }
            StepKind::Http(http) => {
                self.no_shell(step, "a call over HTTP");
                self.http(step, http, takes)
            }
            StepKind::Wait(event) => self.wait(step, event)?,
            StepKind::Scope(scope) => self.scope(step, scope)?,
            StepKind::Expr(_) | StepKind::Flow(_) | StepKind::Steps(_) | StepKind::Choose(_) => return None,
        })
    }

    /// Lowers a wait. It executes nothing, so of the execution settings it has only a timeout.
    fn wait(&self, step: &StepDecl, event: &Text) -> Option<Action> {
        let how = &step.how;
        let says_how = how.effect.is_some() || how.shell.is_some() || !how.env.is_empty();
        if says_how || !how.secrets.is_empty() || step.undo.is_some() {
            let hint = "leave `effect`, `shell`, `env`, `secrets` and `undo` out";
            self.say(step.span, "OF0113", "a step that waits does nothing itself", hint);
        }
        for out in step.outs.iter().filter(|out| !matches!(out.from, OutputPlace::Default)) {
            let hint = format!("`{}: {}`", out.name.name, out.shape.ty());
            self.say(out.name.span, "OF0113", "what an event brings is given as it is sent", hint);
        }
        Some(Action::Wait(action::Wait { event: self.event(event)? }))
    }

    /// Reads the name of an event.
    pub(super) fn event(&self, event: &Text) -> Option<String> {
        if event.text.trim().is_empty() || event.text.contains(char::is_control) {
            self.say(event.span, "OF0105", "`wait` names no event", "`wait: approved`");
            return None;
        }
        Some(event.text.trim().to_owned())
    }

    fn no_shell(&self, step: &StepDecl, what: &str) {
        if step.how.shell.is_some() {
            self.say(step.span, "OF0113", format!("{what} is read by no shell"), "leave `shell` out");
        }
        if matches!(step.kind, StepKind::Http(_)) && !step.how.env.is_empty() {
            self.say(step.how.env[0].0.span, "OF0113", format!("{what} has no environment"), "leave `env` out");
        }
    }

    fn env(&mut self, step: &StepDecl, allowed: Allowed<'_>, takes: &mut TaskInputs) -> BTreeMap<String, Template> {
        let flow = self.flow;
        let mut env = BTreeMap::new();
        for (key, text) in flow.env.iter().chain(&step.how.env) {
            env.insert(key.name.clone(), text.clone());
        }
        env.into_iter().map(|(name, text)| (name, self.template(&text, allowed, takes))).collect()
    }

    /// Returns the secrets that expressions refer to, and those that are listed.
    fn secrets(&mut self, step: &StepDecl, takes: &TaskInputs) -> Vec<String> {
        let mut names = takes.secrets.clone();
        for secret in &step.how.secrets {
            if !self.flow.secrets.iter().any(|other| other.text == secret.text) {
                let hint = format!("add `secrets: [{}]` to the flow", secret.text);
                self.say(secret.span, "OF0126", format!("the secret `{}` is not declared", secret.text), hint);
            }
            names.push(secret.text.clone());
        }
        names.sort();
        names.dedup();
        names
    }

    fn captures(&mut self, step: &StepDecl, takes: &mut TaskInputs) -> Vec<Capture> {
        let plain =
            step.outs.iter().filter(|out| matches!(out.from, OutputPlace::Default) && !is_path(&out.shape)).count();
        step.outs.iter().map(|out| self.capture(step, out, plain == 1, takes)).collect()
    }

    /// Determines the place of an output; `alone` means that it is the only output, of those that are no files, without
    /// a declared place.
    fn capture(&mut self, step: &StepDecl, out: &LeafOutput, alone: bool, takes: &mut TaskInputs) -> Capture {
        let name = &out.name.name;
        match &out.from {
            OutputPlace::Path(text) => Capture::Path(self.path(text, out, takes)),
            OutputPlace::Stdout => Capture::Stdout,
            OutputPlace::Json(text) => {
                self.answer(text, matches!(step.kind, StepKind::Http(_)));
                Capture::Json(text.text.clone())
            }
            OutputPlace::Default if matches!(out.shape.required().ty(), Type::List(_)) && is_path(&out.shape) => {
                let message = format!("where are the files of output `{name}`?");
                self.say(
                    out.name.span,
                    "OF0122",
                    message,
                    format!("`{name}: {{ \"{}\": \"*.txt\" }}`", out.shape.ty()),
                );
                Capture::Stdout
            }
            OutputPlace::Default if out.shape.ty() == Type::Unit => {
                let message = format!("output `{name}` of type unit says nothing");
                self.say(out.name.span, "OF0122", message, "leave it out: every step without outputs gives `done`");
                Capture::Stdout
            }
            OutputPlace::Default if is_path(&out.shape) => Capture::Path(Template::text(name.clone())),
            OutputPlace::Default => match &step.kind {
                StepKind::Http(_) => Capture::Json(format!("body.{name}")),
                StepKind::Run(_) if alone => Capture::Stdout,
                _ => Capture::Json(name.clone()),
            },
        }
    }

    /// Lowers the name or pattern of an output: below the work directory, and not in the directory of inputs.
    fn path(&mut self, text: &Text, out: &LeafOutput, takes: &mut TaskInputs) -> Template {
        let template = self.template(text, Allowed::default(), takes);
        let said = |why: &str, hint: &str| {
            let message =
                format!("`{}` cannot be the name of an output: {why}", crate::syntax::fields::clipped(&text.text));
            self.say(text.span, "OF0121", message, hint);
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
                    let span = self.source.inside(text, wrong.span);
                    self.say(span, "OF0115", format!("`{}` is not an expression: {}", text.text, wrong.message), "");
                }
            }
            Ok(compiled) => {
                for reference in compiled.references().iter().filter(|_| is_http) {
                    if !matches!(reference.path[0].as_str(), "status" | "headers" | "body") {
                        let span = self.source.inside(text, reference.span.clone());
                        let message = format!("an answer has no `{}`", reference.path[0]);
                        let hint = format!("it has `status`, `headers`, `body`: `body.{}`?", reference.path.join("."));
                        self.say(span, "OF0116", message, hint);
                    }
                }
                self.typed(text, 0..text.text.len(), &|_| None);
            }
        }
    }

    fn http(&mut self, step: &StepDecl, http: &HttpDecl, takes: &mut TaskInputs) -> Action {
        let mut call = self.http_call(http, takes);
        call.outputs = self.captures(step, takes);
        call.secrets = self.secrets(step, takes);
        Action::Http(call)
    }

    /// Lowers the request of a call, and which answers are good.
    pub(super) fn http_call(&mut self, http: &HttpDecl, takes: &mut TaskInputs) -> action::Http {
        let plain = Allowed { out: None, step: true, secrets: false };
        let secret = Allowed { secrets: true, ..plain };
        let url = self.template(&http.url, plain, takes);
        let begins = |prefix: &str| http.url.text.starts_with(prefix);
        if !(begins("http://") || begins("https://") || begins("${{")) {
            let message = format!("`{}` is not a URL", crate::syntax::fields::clipped(&http.url.text));
            self.say(http.url.span, "OF0136", message, "it begins with `http://` or `https://`");
        }
        let headers = http.headers.iter().map(|(key, text)| (key.name.clone(), self.template(text, secret, takes)));
        let headers = headers.collect();
        let body = match &http.body {
            None => None,
            Some(HttpBodyDecl::Text(text)) => Some(HttpBody::Text(self.template(text, plain, takes))),
            Some(HttpBodyDecl::Json(node)) => Some(HttpBody::Json(self.json(node, plain, takes))),
            Some(HttpBodyDecl::File(text)) => {
                let bound = self.bind(text, 0..text.text.len(), plain);
                let ty = bound.as_ref().and_then(|bound| bound.ty.clone());
                if let Some(ty) = ty.filter(|ty| *ty != Type::File && infer::field(ty, "stem").is_none()) {
                    self.say(text.span, "OF0136", format!("`file` sends a file, but this is {ty}"), "");
                }
                bound.map(|bound| {
                    bound.takes.all.into_iter().for_each(|take| takes.add(take));
                    HttpBody::File(bound.source)
                })
            }
        };
        let key_header = http.key_header.clone().unwrap_or_else(action::key_header);
        let accept = if http.accept.is_empty() { action::accept() } else { http.accept.clone() };
        action::Http {
            method: http.method.clone(),
            url,
            headers,
            body,
            key_header,
            accept,
            outputs: vec![],
            secrets: vec![],
        }
    }

    fn json(&mut self, node: &YamlNode, allowed: Allowed<'_>, takes: &mut TaskInputs) -> JsonTemplate {
        match &node.what {
            NodeKind::List(items) => {
                JsonTemplate::List(items.iter().map(|item| self.json(item, allowed, takes)).collect())
            }
            NodeKind::Map(entries) => {
                let field = |(key, value): &(_, YamlNode)| -> (String, JsonTemplate) {
                    let key: &crate::syntax::MapKey = key;
                    (key.name.clone(), self.json(value, allowed, takes))
                };
                JsonTemplate::Record(entries.iter().map(field).collect())
            }
            NodeKind::Scalar(..) => match (node.to_json(), node.text()) {
                (serde_json::Value::String(_), Some(text)) => JsonTemplate::Text(self.template(&text, allowed, takes)),
                (json, _) => JsonTemplate::Literal(json),
            },
        }
    }

    /// Reports holes at places of the shell's text where no value can go.
    pub(super) fn check_shell(&self, text: &Text, bound: &Template, shell: &action::Shell) {
        let (Ok(parsed), Err(refused)) = (template::parse(&text.text), shell::scan(bound, shell.dialect())) else {
            return;
        };
        for refused in refused {
            let span = parsed.spans.get(refused.part).cloned().unwrap_or(0..text.text.len());
            self.say(self.source.inside(text, span), "OF0119", refused.message, refused.hint);
        }
    }
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '[', '{'])
}
