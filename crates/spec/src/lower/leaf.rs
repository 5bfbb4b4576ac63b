//! Lowers leaves, the steps with an action of their own: the task, its inputs, and its undo.

use super::{
    Lowering,
    action::LeafAction,
    digest,
    references::{Allowed, References},
    task,
    texts::{Take, TaskInputs, TaskTexts},
};
use crate::{
    source::Text,
    syntax::{
        MapKey,
        kinds::{StepKind, StreamPlace},
        step::StepDecl,
    },
};
use onceflow_core::model::{Port, Type, task::DONE};
use onceflow_exec::action::{Action, Expr};

/// A leaf that is being lowered, with the inputs found so far.
pub(super) struct Leaf<'l, 'a> {
    pub(super) lowering: &'l mut Lowering<'a>,
    pub(super) step: &'l StepDecl,
    /// The name of its module.
    pub(super) name: &'l str,
    /// Names that the step gives to its inputs.
    aliases: Vec<(String, Type)>,
    pub(super) takes: TaskInputs,
}

impl<'l, 'a> Leaf<'l, 'a> {
    pub(super) fn new(lowering: &'l mut Lowering<'a>, step: &'l StepDecl, name: &'l str) -> Self {
        Leaf { lowering, step, name, aliases: vec![], takes: TaskInputs::default() }
    }

    /// Lowers the leaf to a module; returns the outputs of the module, or `None` after reporting a problem.
    pub(super) fn lower(mut self) -> Option<Vec<Port>> {
        let (step, reader) = (self.step, self.lowering.reader);
        let before = reader.report.len();
        // A file is given its inputs under the names that it has for them.
        if !matches!(step.kind, StepKind::Stream(StreamPlace::File(_))) {
            self.bind_aliases();
        }
        let aliased = self.takes.clone();
        let made = match &step.kind {
            StepKind::Expr(all) => self.expressions(all),
            StepKind::Stream(place) => self.stream(place),
            _ => self.action(step).map(|action| (action, ports(step))),
        };
        let undo = step.undo.as_ref().map(|undo| (undo, self.action(undo)));
        self.wait_for_others();
        // A reference to an alias gets the source of the alias.
        for take in &mut self.takes.all {
            if let Some(alias) = aliased.all.iter().find(|alias| alias.path == take.path) {
                take.from.clone_from(&alias.from);
            }
        }
        let (action, outputs) = made?;
        if reader.report.len() > before && !matches!(step.kind, StepKind::Expr(_)) {
            return Some(or_done(outputs));
        }
        let class = &self.lowering.files.class;
        let mut spec = task::spec(&action, self.takes.ports(), outputs.clone(), &step.how, class);
        if let StepKind::Expr(_) = step.kind {
            spec.depends = Some(digest::depends(&action, &spec.inputs));
        }
        if let Some((undo, Some(action))) = undo {
            let mut undo = task::spec(&action, self.takes.ports(), vec![], &undo.how, class);
            // The undo runs on the same class of workers as the task.
            undo.class.clone_from(&spec.class);
            spec.compensation = Some(Box::new(undo));
        }
        self.lowering.graphs.top().add_task(self.name, spec, &self.takes, reader.origin(step.span), step.attempt);
        Some(or_done(outputs))
    }

    /// Resolves the references of an expression of this leaf.
    pub(super) fn references(&mut self) -> References<'_> {
        References { aliases: &self.aliases, ..self.lowering.references() }
    }

    /// Lowers the step, or its undo, to the action of an executor; `None` after reporting a problem.
    fn action(&mut self, step: &StepDecl) -> Option<Action> {
        let Lowering { reader, flow, files, graphs, .. } = &mut *self.lowering;
        let references = References { reader: *reader, flow, graphs, aliases: &self.aliases };
        LeafAction { step, texts: TaskTexts { references, takes: &mut self.takes }, files }.lower()
    }

    /// Binds the aliases of a step: inputs to which it gives names of its own.
    fn bind_aliases(&mut self) {
        let reader = self.lowering.reader;
        for text in &self.step.uses {
            let bound = self.lowering.references().bind(text, 0..text.text.len(), Allowed::default());
            let Some(bound) = bound else { continue };
            match bound.plain {
                Some(take) => self.takes.add(take),
                None => {
                    let hint = "`in: { NAME: expression }` gives what is computed a name";
                    reader.say(text.span, "OF0106", "a list of `in` holds references only", hint);
                }
            }
        }
        for (key, text) in &self.step.ins {
            if text.text != key.name {
                self.lowering.name_is_free(&key.name, key.span);
            }
            let made = format!("{}-in-{}", self.name, key.name);
            let Some((from, ty)) = self.lowering.value(text, 0..text.text.len(), &made, None) else {
                self.aliases.push((key.name.clone(), Type::Json));
                continue;
            };
            self.aliases.push((key.name.clone(), ty.clone()));
            self.takes.add(Take { path: vec![key.name.clone()], ty, from, origin: reader.origin(text.span) });
        }
    }

    /// Adds an output of every step in `after` as an input, so that the leaf waits for it; the value is not used.
    fn wait_for_others(&mut self) {
        for after in self.lowering.after.clone() {
            let origin = self.lowering.reader.origin(after.span);
            let Some(first) = self.first_output(&after) else { continue };
            if let Ok(found) = self.lowering.graphs.lookup(&[after.text.clone(), first], &origin) {
                let path = vec![String::from("after"), after.text.clone()];
                self.takes.add(Take { path, ty: found.ty, from: found.from, origin });
            }
        }
    }

    fn first_output(&mut self, after: &Text) -> Option<String> {
        let hint = "it names steps: `after: [prepare]`";
        match self.lowering.graphs.outputs_of(&after.text) {
            Some(outputs) if outputs.is_empty() => {
                let message = format!("step `{}` gives nothing that could be waited for", after.text);
                self.lowering.reader.say(after.span, "OF0134", message, "give it an `out`");
                None
            }
            Some(outputs) => outputs.into_iter().next(),
            None => {
                self.lowering.reader.say(after.span, "OF0116", format!("there is no step `{}` here", after.text), hint);
                None
            }
        }
    }

    /// Lowers the expressions of a step to its action and outputs; `None` after reporting a problem.
    fn expressions(&mut self, all: &[(Option<MapKey>, Text)]) -> Option<(Action, Vec<Port>)> {
        let step = self.step;
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
                    self.lowering.reader.say(text.span, "OF0113", "one expression cannot be several outputs", hint);
                    return None;
                }
            };
            let bound = self.references().bind(text, 0..text.text.len(), Allowed::default());
            let wanted = out.map(|out| out.shape.ty());
            let Some(bound) = bound else { continue };
            let Some(ty) = self.references().expression_type(&bound, wanted.as_ref(), text.span) else { continue };
            bound.takes.all.into_iter().for_each(|take| self.takes.add(take));
            outputs.push(Port::new(name, ty));
            sources.push(bound.source);
        }
        for out in &step.outs {
            let given =
                |(name, _): &(Option<MapKey>, Text)| name.as_ref().is_none_or(|name| name.name == out.name.name);
            if !all.iter().any(given) {
                let message = format!("nothing computes output `{}`", out.name.name);
                self.lowering.reader.say(
                    out.name.span,
                    "OF0105",
                    message,
                    format!("`expr: {{ {}: … }}`", out.name.name),
                );
            }
        }
        (sources.len() == all.len()).then_some((Action::Expr(Expr { outputs: sources }), outputs))
    }
}

fn ports(step: &StepDecl) -> Vec<Port> {
    step.outs.iter().map(|out| Port::new(out.name.name.clone(), out.shape.ty())).collect()
}

fn or_done(outputs: Vec<Port>) -> Vec<Port> {
    if outputs.is_empty() { vec![Port::new(DONE, Type::Unit)] } else { outputs }
}
