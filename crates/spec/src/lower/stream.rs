//! Lowers steps that are streams. Holes in a stream that stands in the step refer to the names around it, those in a file
//! to the inputs that the file declares.

use super::{leaf::Leaf, references::Allowed, texts::Take};
use crate::{
    FlowInput,
    limits::FLOW_NODES_MAX,
    source::Text,
    stream::step::{self, NamedHole, StepStream},
    syntax::{self, NodeBudget, YamlNode, fields::FieldReader, kinds::StreamPlace},
    words,
};
use onceflow_core::model::Port;
use onceflow_exec::action::{Action, StreamAction};
use std::collections::BTreeMap;

impl Leaf<'_, '_> {
    /// Lowers a stream to its action and outputs; `None` after reporting a problem.
    pub(super) fn stream(&mut self, place: &StreamPlace) -> Option<(Action, Vec<Port>)> {
        self.check_stream_keys();
        match place {
            StreamPlace::Here(node) => self.stream_here(node),
            StreamPlace::File(file) => self.stream_file(file),
        }
    }

    /// Reports keys of the step that mean nothing for a stream.
    fn check_stream_keys(&self) {
        let (reader, step, how) = (self.lowering.reader, self.step, &self.step.how);
        let says_how = how.effect.is_some() || how.shell.is_some() || !how.env.is_empty() || !how.secrets.is_empty();
        if says_how || step.undo.is_some() {
            let hint = "leave `effect`, `shell`, `env`, `secrets` and `undo` out";
            reader.say(step.span, "OF0113", "a step that is a stream starts no command", hint);
        }
    }

    fn stream_here(&mut self, node: &YamlNode) -> Option<(Action, Vec<Port>)> {
        let reader = self.lowering.reader;
        let stream = StepStream::inline(reader, node, self.step.span)?;
        let mut given = BTreeMap::new();
        for named in stream.holes() {
            given.extend(self.hole(&named).map(|source| (named.name, source)));
        }
        stream.check(reader);
        Some((Action::Stream(StreamAction { stream: stream.to_text(node), given }), stream.ports()))
    }

    /// Resolves a hole, whose references become inputs of the step.
    fn hole(&mut self, named: &NamedHole<'_>) -> Option<String> {
        let reader = self.lowering.reader;
        let (text, range) = (&named.hole.text, named.hole.range.clone());
        let bound = self.references().bind(text, range, Allowed::default())?;
        let ty = self.references().expression_type(&bound, None, text.span)?;
        // One that has a problem is of no type.
        let root = named.hole.source().split('.').next().unwrap_or_default();
        if !self.lowering.graphs.is_unclear(root) {
            step::fits(reader, named, &ty);
        }
        bound.takes.all.into_iter().for_each(|take| self.takes.add(take));
        Some(bound.source)
    }

    fn stream_file(&mut self, file: &Text) -> Option<(Action, Vec<Port>)> {
        let from = self.lowering.reader;
        let source = match self.lowering.files.stream(from, file) {
            Ok(source) => source,
            Err((message, hint)) => {
                from.say(file.span, "OF0127", message, hint);
                return None;
            }
        };
        let reader = FieldReader { source: &source, report: from.report };
        let tree = syntax::parse(&source, NodeBudget { nodes: FLOW_NODES_MAX }, from.report)?;
        let stream = StepStream::of_file(reader, &tree)?;
        let mut given = BTreeMap::new();
        for named in stream.holes() {
            if step::input_of(reader, stream.inputs(), &named).is_some() {
                given.insert(named.name.clone(), named.hole.source().to_owned());
            }
        }
        stream.check(reader);
        for input in stream.inputs() {
            self.stream_input(file, input);
        }
        for (key, _) in &self.step.ins {
            if !stream.inputs().iter().any(|input| input.name == key.name) {
                let hint = words::meant(&key.name, stream.inputs().iter().map(|input| input.name.as_str()));
                from.say(key.span, "OF0128", format!("the stream `{}` has no input `{}`", file.text, key.name), hint);
            }
        }
        Some((Action::Stream(StreamAction { stream: stream.to_text(&tree), given }), stream.ports()))
    }

    /// Takes what the step gives to an input of the stream.
    fn stream_input(&mut self, file: &Text, input: &FlowInput) {
        let (step, reader) = (self.step, self.lowering.reader);
        let made = format!("{}-in-{}", self.name, input.name);
        let Some((_, text)) = step.ins.iter().find(|(key, _)| key.name == input.name) else {
            let message = format!("the stream of step `{}` needs the input `{}`", step.name.name, input.name);
            reader.say(step.span, "OF0129", message, format!("`in: {{ {}: … }}`; it is {}", input.name, input.ty));
            return;
        };
        let Some((from, given)) = self.lowering.value(text, 0..text.text.len(), &made, Some(&input.ty)) else { return };
        if !input.ty.accepts(&given) {
            let message = format!("input `{}` of `{}` is {}, but {given} is given", input.name, file.text, input.ty);
            reader.say(text.span, "OF0130", message, "");
            return;
        }
        let path = vec![String::from("inputs"), input.name.clone()];
        self.takes.add(Take { path, ty: input.ty.clone(), from, origin: reader.origin(text.span) });
    }
}
