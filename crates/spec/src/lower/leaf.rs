//! Lowers leaves, the steps with an action of their own: the task, its inputs, and its undo.

use super::{
    Lowering, digest,
    draft::port,
    expression::{Allowed, Take, TaskInputs},
};
use crate::{
    source::Text,
    syntax::{
        MapKey,
        kinds::StepKind,
        step::{StepDecl, StepSettings},
    },
};
use onceflow_core::model::{
    Effect, Module, Port, ResourceRequest, SourceLocation, TaskSpec, Type, graph::ModuleKind, task::DONE,
};
use onceflow_exec::action::{Action, Expr};

impl Lowering<'_> {
    pub(super) fn leaf(&mut self, step: &StepDecl, name: &str) -> Option<Vec<Port>> {
        let mut takes = TaskInputs::default();
        let before = self.report.len();
        self.aliases(step, name, &mut takes);
        let aliased = takes.clone();
        let made = match &step.kind {
            StepKind::Expr(all) => self.expr(step, all, &mut takes),
            _ => self.action(step, &mut takes).map(|action| (action, ports(step))),
        };
        let undo = step.undo.as_ref().map(|undo| (undo, self.action(undo, &mut takes)));
        self.aliases.clear();
        self.wait_for_others(&mut takes);
        // A reference to an alias gets the source of the alias.
        for take in &mut takes.all {
            if let Some(alias) = aliased.all.iter().find(|alias| alias.path == take.path) {
                take.from.clone_from(&alias.from);
            }
        }
        let (action, outputs) = made?;
        if self.report.len() > before && !matches!(step.kind, StepKind::Expr(_)) {
            return Some(or_done(outputs));
        }
        let mut spec = self.task(&action, takes.ports(), outputs.clone(), &step.how);
        if let StepKind::Expr(_) = step.kind {
            spec.depends = Some(digest::depends(&action, &spec.inputs));
        }
        if let Some((undo, Some(action))) = undo {
            let mut undo = self.task(&action, takes.ports(), vec![], &undo.how);
            // The undo runs on the same class of workers as the task.
            undo.class.clone_from(&spec.class);
            spec.compensation = Some(Box::new(undo));
        }
        let origin = self.origin(step.span);
        self.add_task(name, spec, &takes, origin, step.attempt);
        Some(or_done(outputs))
    }

    /// Binds the aliases of a step: inputs to which it gives names of its own.
    fn aliases(&mut self, step: &StepDecl, name: &str, takes: &mut TaskInputs) {
        for text in &step.uses {
            let Some(bound) = self.bind(text, 0..text.text.len(), Allowed::default()) else { continue };
            match bound.plain {
                Some(take) => takes.add(take),
                None => {
                    let hint = "`in: { NAME: expression }` gives what is computed a name";
                    self.say(text.span, "OF0106", "a list of `in` holds references only", hint);
                }
            }
        }
        let mut aliases = Vec::new();
        for (key, text) in &step.ins {
            if text.text != key.name {
                self.name_is_free(&key.name, key.span);
            }
            let made = format!("{name}-in-{}", key.name);
            let Some((from, ty)) = self.value(text, 0..text.text.len(), &made, None) else {
                aliases.push((key.name.clone(), Type::Json));
                continue;
            };
            aliases.push((key.name.clone(), ty.clone()));
            takes.add(Take { path: vec![key.name.clone()], ty, from, origin: self.origin(text.span) });
        }
        self.aliases = aliases;
    }

    /// Adds an output of every step in `after` as an input, so that the leaf waits for it; the value is not used.
    fn wait_for_others(&mut self, takes: &mut TaskInputs) {
        for after in self.after.clone() {
            let origin = self.origin(after.span);
            let Some(first) = self.first_output(&after) else { continue };
            if let Ok(found) = self.frames.lookup(&[after.text.clone(), first], &origin) {
                let path = vec![String::from("after"), after.text.clone()];
                takes.add(Take { path, ty: found.ty, from: found.from, origin });
            }
        }
    }

    fn first_output(&mut self, after: &Text) -> Option<String> {
        let hint = "it names steps: `after: [prepare]`";
        match self.frames.outputs_of(&after.text) {
            Some(outputs) if outputs.is_empty() => {
                let message = format!("step `{}` gives nothing that could be waited for", after.text);
                self.say(after.span, "OF0134", message, "give it an `out`");
                None
            }
            Some(outputs) => outputs.into_iter().next(),
            None => {
                self.say(after.span, "OF0116", format!("there is no step `{}` here", after.text), hint);
                None
            }
        }
    }

    fn expr(
        &mut self,
        step: &StepDecl,
        all: &[(Option<MapKey>, Text)],
        takes: &mut TaskInputs,
    ) -> Option<(Action, Vec<Port>)> {
        let (mut sources, mut outputs) = (Vec::new(), Vec::new());
        for (name, text) in all {
            let out = match name {
                Some(name) => step.outs.iter().find(|out| out.name.name == name.name),
                None => step.outs.first(),
            };
            let name = match (name, out, step.outs.as_slice()) {
                (Some(name), ..) => name.name.clone(),
                (None, Some(out), [_]) => out.name.name.clone(),
                (None, None, _) => String::from("value"),
                (None, ..) => {
                    let hint = "`expr: { a: …, b: … }` says which expression is which output";
                    self.say(text.span, "OF0113", "one expression cannot be several outputs", hint);
                    return None;
                }
            };
            let bound = self.bind(text, 0..text.text.len(), Allowed::default());
            let wanted = out.map(|out| out.shape.ty());
            let Some(bound) = bound else { continue };
            let Some(ty) = self.expression_type(&bound, wanted.as_ref(), text.span) else { continue };
            bound.takes.all.into_iter().for_each(|take| takes.add(take));
            outputs.push(Port::new(name, ty));
            sources.push(bound.source);
        }
        for out in &step.outs {
            let given =
                |(name, _): &(Option<MapKey>, Text)| name.as_ref().is_none_or(|name| name.name == out.name.name);
            if !all.iter().any(given) {
                let message = format!("nothing computes output `{}`", out.name.name);
                self.say(out.name.span, "OF0105", message, format!("`expr: {{ {}: … }}`", out.name.name));
            }
        }
        (sources.len() == all.len()).then_some((Action::Expr(Expr { outputs: sources }), outputs))
    }

    /// Makes the task of an executor.
    pub(super) fn task(&self, action: &Action, inputs: Vec<Port>, outputs: Vec<Port>, how: &StepSettings) -> TaskSpec {
        let version = digest::version(action, &inputs, &outputs, &how.version);
        let mut spec = TaskSpec::new(action.executor(), inputs, outputs);
        let is_process = matches!(action, Action::Command(_) | Action::Script(_));
        spec.version = version;
        spec.effect = how.effect.unwrap_or(match action {
            Action::Expr(_) => Effect::Pure,
            // An event is consumed once.
            Action::Wait(_) => Effect::AtMostOnce,
            // The end of the session is taken from the store with the step's commit.
            Action::Scope(_) => Effect::Transactional,
            Action::Command(_) | Action::Script(_) | Action::Http(_) => Effect::default(),
        });
        spec.retry = how.retry.clone();
        spec.timeout_ms = how.timeout_ms;
        spec.class = if how.labels.is_empty() { self.files.class.clone() } else { how.labels.join("+") };
        spec.resources = ResourceRequest {
            cpu_milli: how.cpu_milli.unwrap_or(if is_process { 1000 } else { 0 }),
            memory_bytes: how.memory_bytes.unwrap_or(0),
        };
        spec.params = action.to_params();
        spec
    }

    pub(super) fn add_task(
        &mut self,
        name: &str,
        spec: TaskSpec,
        takes: &TaskInputs,
        origin: SourceLocation,
        attempt: bool,
    ) {
        let top = self.frames.top();
        for take in &takes.all {
            top.connect(take.from.clone(), port(name, take.port()), take.origin.clone());
        }
        top.add(Module { name: name.to_owned(), kind: ModuleKind::Task(spec.into()), origin: Some(origin), attempt });
    }
}

fn ports(step: &StepDecl) -> Vec<Port> {
    step.outs.iter().map(|out| Port::new(out.name.name.clone(), out.shape.ty())).collect()
}

fn or_done(outputs: Vec<Port>) -> Vec<Port> {
    if outputs.is_empty() { vec![Port::new(DONE, Type::Unit)] } else { outputs }
}
