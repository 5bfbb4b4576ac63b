//! Reads a diagram of crossflow (JSON, version 0.1.x) as a flow: one step with a scope. Its request is the input `request`,
//! its response the output `result`, its streams are lists. A node's builder is the name of a task in
//! `extensions.onceflow.tasks`, where a task is written as in a scope, or as `{ expr: … }`.

mod op;
mod section;

use super::{
    MapKey, NodeKind, YamlNode,
    fields::FieldReader,
    flow::{FlowDecl, InputDecl},
    kinds::StepKind,
    outs::{LeafOutput, OutputDecl, OutputPlace},
    scope::{OpDecl, OpWork, ScopeDecl, TargetDecl, TaskDecl, take_task},
    step::{StepDecl, StepSettings},
};
use crate::{
    source::{ScalarQuoting, Span, Text},
    types::TypeDecl,
    words,
};
use onceflow_core::model::Type;
use onceflow_exec::action::KeepEntries;
use std::collections::{BTreeMap, BTreeSet};

/// The name of the one step, and of the input and the output.
const STEP: &str = "diagram";
const REQUEST: &str = "request";
const RESULT: &str = "result";

/// The target that cancels because of an error. No operation can be called so.
pub(crate) const IMPLICIT_CANCEL: &str = "<implicit cancel>";

/// The version of diagrams that can be read.
const VERSION: &str = "0.1";

/// The file is a diagram: it has a version, a start and operations, and is not called a flow.
pub(crate) fn is(root: &YamlNode) -> bool {
    let NodeKind::Map(entries) = &root.what else { return false };
    let has = |name: &str| entries.iter().any(|(key, _)| key.name == name);
    has("version") && has("start") && has("ops") && !has("flow")
}

/// Reads a diagram; `None` if it is none at all. The flow is called as the file is.
pub(crate) fn read<'a>(reader: FieldReader<'a>, root: &'a YamlNode) -> Option<FlowDecl> {
    let mut fields = reader.fields(root, "a diagram")?;
    fields.span = Span::new(root.span.start(), root.span.start());
    let version = fields.text("version");
    if let Some(version) = version.filter(|version| !version.text.starts_with(VERSION)) {
        let message = format!("a diagram of version `{}` cannot be read", version.text);
        reader.say(version.span, "OF0144", message, "those of version 0.1 can");
    }
    let tasks = fields.get("extensions").map(|node| read_tasks(reader, node)).unwrap_or_default();
    let templates = fields.get("templates").map(|node| reader.entries(node, "`templates`")).unwrap_or_default();
    let description = fields.text("description").map(|text| text.text);
    let on_error = fields.get("on_implicit_error");
    for ignored in ["script_environments", "default_trace", "input_examples", "$schema"] {
        let _of_the_editor_or_checked_where_it_is_used = fields.take(ignored);
    }
    let (start, ops) = (fields.get("start"), fields.get("ops"));
    fields.finish();
    let mut diagram = Diagram { reader, tasks, templates, used: BTreeSet::new(), depth: 0 };
    let mut region = Region { ops: vec![], buffers: vec![], streams: BTreeSet::new() };
    let scope = diagram.region(root.span, (start?, ops?), &Place::outermost(), on_error, &mut region);
    diagram.unused_tasks();
    Some(flow(reader, root.span, description, wrapped(scope?), region.streams))
}

/// A task that nodes refer to by their builder.
#[derive(Clone)]
pub(super) enum BuilderTask {
    Task(TaskDecl),
    Expr(Text),
}

/// A diagram that is being read.
struct Diagram<'a> {
    reader: FieldReader<'a>,
    tasks: BTreeMap<String, (Span, BuilderTask)>,
    templates: &'a [(MapKey, YamlNode)],
    /// Tasks that a node refers to.
    used: BTreeSet<String>,
    /// Templates around the one that is being read.
    depth: usize,
}

/// The operations of one scope, as they are collected.
struct Region {
    ops: Vec<OpDecl>,
    buffers: Vec<(MapKey, KeepEntries)>,
    streams: BTreeSet<String>,
}

/// The names that operations of one map see: of the scope itself, or of a section in it.
struct Place<'a> {
    /// Stands before the names of a section's operations.
    prefix: String,
    names: BTreeMap<&'a str, &'a YamlNode>,
    /// Where the outputs of a section lead.
    outputs: BTreeMap<String, TargetDecl>,
}

impl Place<'_> {
    fn outermost() -> Self {
        Place { prefix: String::new(), names: BTreeMap::new(), outputs: BTreeMap::new() }
    }
}

fn read_tasks<'a>(reader: FieldReader<'a>, node: &'a YamlNode) -> BTreeMap<String, (Span, BuilderTask)> {
    let mut found = BTreeMap::new();
    let ours = reader.entries(node, "`extensions`").iter().find(|(key, _)| key.name == "onceflow");
    let Some(mut fields) = ours.and_then(|(_, node)| reader.fields(node, "`extensions.onceflow`")) else {
        return found;
    };
    for (key, node) in fields.get("tasks").map(|node| reader.entries(node, "`tasks`")).unwrap_or_default() {
        let what = format!("task `{}`", key.name);
        let Some(mut fields) = reader.fields(node, what.clone()) else { continue };
        fields.span = key.span;
        let task = match fields.text("expr") {
            Some(text) => Some(BuilderTask::Expr(text)),
            None => take_task(&mut fields, &what).map(BuilderTask::Task),
        };
        fields.finish();
        found.extend(task.map(|task| (key.name.clone(), (key.span, task))));
    }
    fields.finish();
    found
}

impl<'a> Diagram<'a> {
    /// Reads a scope: the outermost one, or a nested one.
    fn region(
        &mut self,
        span: Span,
        (start, ops): (&'a YamlNode, &'a YamlNode),
        around: &Place<'a>,
        on_error: Option<&'a YamlNode>,
        region: &mut Region,
    ) -> Option<ScopeDecl> {
        let entries = self.reader.entries(ops, "`ops`");
        let names = entries.iter().map(|(key, node)| (key.name.as_str(), node)).collect();
        let place = Place { prefix: around.prefix.clone(), names, outputs: BTreeMap::new() };
        let on_error = on_error.and_then(|node| self.target(node, &place));
        for (key, node) in entries {
            self.operation(key, node, &place, on_error.as_ref(), region);
        }
        let start = self.target(start, &place);
        Some(ScopeDecl {
            span,
            start,
            buffers: std::mem::take(&mut region.buffers),
            ops: std::mem::take(&mut region.ops),
            cleanups: vec![],
            deadline_ms: None,
            rounds_max: None,
            uninterruptible: false,
        })
    }

    /// Reads a target: a name, `{ "builtin": … }`, or `{ SECTION: SLOT }`.
    fn target(&self, node: &YamlNode, place: &Place<'_>) -> Option<TargetDecl> {
        let named = |name: &str| TargetDecl::Name(text(name, node.span));
        let NodeKind::Map(entries) = &node.what else {
            let name = self.reader.text(node, "a target")?;
            return self.name(&name, place);
        };
        let [(key, value)] = entries.as_slice() else {
            let hint = "`\"NAME\"`, `{ \"builtin\": \"terminate\" }` or `{ \"SECTION\": \"SLOT\" }`";
            self.reader.say(node.span, "OF0106", "a target cannot be understood", hint);
            return None;
        };
        if key.name == "builtin" {
            let builtins = ["terminate", "dispose", "cancel", "implicit_cancel"];
            return Some(named(match self.reader.word(value, "`builtin`", &builtins)? {
                "implicit_cancel" => IMPLICIT_CANCEL,
                word => word,
            }));
        }
        let slot = self.reader.text(value, "a slot")?;
        self.slot(key, &slot, place)
    }

    /// A name: of an operation, a buffer, a stream, or an output of the section.
    fn name(&self, name: &Text, place: &Place<'_>) -> Option<TargetDecl> {
        if let Some(target) = place.outputs.get(&name.text) {
            return Some(target.clone());
        }
        let Some(node) = place.names.get(name.text.as_str()) else {
            let hint = words::meant(&name.text, place.names.keys().copied());
            self.reader.say(name.span, "OF0116", format!("there is no operation `{}` here", name.text), hint);
            return None;
        };
        let full = text(&format!("{}{}", place.prefix, name.text), name.span);
        Some(match field(node, "type").as_deref() {
            Some("buffer") => TargetDecl::Push(full),
            Some("stream_out") => TargetDecl::Stream(text(&field(node, "name")?, name.span)),
            _ => TargetDecl::Name(full),
        })
    }

    fn unused_tasks(&self) {
        for (name, (span, _)) in self.tasks.iter().filter(|(name, _)| !self.used.contains(*name)) {
            self.reader.warn(*span, format!("no node of the diagram has the builder `{name}`"));
        }
    }
}

/// The scope with its first message taken from the step's inputs, and its result put into one field.
fn wrapped(mut scope: ScopeDecl) -> ScopeDecl {
    let span = scope.span;
    let free = |wanted: &str| {
        let is_taken = |name: &str| scope.ops.iter().any(|op| op.name.name == name);
        let mut names = std::iter::once(wanted.to_owned()).chain((2..).map(|number| format!("{wanted}_{number}")));
        names.find(|name| !is_taken(name)).unwrap_or_default()
    };
    let (first, last) = (free(REQUEST), free(RESULT));
    let op = |name: &str, expr: &str, next| OpDecl {
        name: key(name, span),
        work: OpWork::Expr(text(expr, span)),
        next,
        other: None,
        streams: vec![],
        delivery: None,
    };
    let to_last = |target: &mut TargetDecl| rename(target, "terminate", &last);
    scope.start.iter_mut().for_each(to_last);
    for declared in &mut scope.ops {
        declared.next.iter_mut().chain(&mut declared.other).for_each(to_last);
        declared.streams.iter_mut().for_each(|(_, target)| to_last(target));
        match &mut declared.work {
            OpWork::Split(parts) | OpWork::Match { cases: parts, .. } => {
                parts.iter_mut().for_each(|(_, target)| to_last(target));
            }
            OpWork::Unzip(targets) => targets.iter_mut().for_each(to_last),
            _ => {}
        }
    }
    let begin = op(&first, &format!("message.{REQUEST}"), scope.start.take());
    let end = op(&last, &format!("{{'{RESULT}': message}}"), Some(TargetDecl::Name(text("terminate", span))));
    scope.ops.extend([begin, end]);
    scope.start = Some(TargetDecl::Name(text(&first, span)));
    scope
}

fn rename(target: &mut TargetDecl, from: &str, to: &str) {
    match target {
        TargetDecl::Name(name) if name.text == from => to.clone_into(&mut name.text),
        TargetDecl::All(targets) => targets.iter_mut().for_each(|target| rename(target, from, to)),
        _ => {}
    }
}

fn flow(
    reader: FieldReader<'_>,
    span: Span,
    description: Option<String>,
    scope: ScopeDecl,
    streams: BTreeSet<String>,
) -> FlowDecl {
    let json = || TypeDecl::Plain(Type::Json);
    let stem = std::path::Path::new(reader.source.file()).file_stem();
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' };
    let name: String = stem.map_or(STEP.into(), |stem| stem.to_string_lossy()).chars().map(plain).take(100).collect();
    let out = |name: &str, shape| LeafOutput { name: key(name, span), shape, from: OutputPlace::Default };
    let lists = streams.iter().map(|name| out(name, TypeDecl::List(Box::new(json()))));
    let outs: Vec<_> = std::iter::once(out(RESULT, json())).chain(lists).collect();
    let given = |out: &LeafOutput| OutputDecl {
        name: out.name.clone(),
        value: text(&format!("{STEP}.{}", out.name.name), span),
        shape: None,
    };
    let outputs = outs.iter().map(given).collect();
    let step = StepDecl {
        name: key(STEP, span),
        span,
        kind: StepKind::Scope(Box::new(scope)),
        ins: vec![(key(REQUEST, span), text(&format!("inputs.{REQUEST}"), span))],
        uses: vec![],
        outs,
        gives: vec![],
        each: None,
        at_most: None,
        when: None,
        repeat: None,
        attempt: false,
        after: vec![],
        undo: None,
        how: StepSettings::default(),
    };
    let request = InputDecl {
        name: key(REQUEST, span),
        shape: json(),
        default: None,
        help: Some(String::from("The request, as JSON.")),
    };
    FlowDecl {
        name: text(&name, span),
        description,
        inputs: vec![request],
        secrets: vec![],
        env: vec![],
        shell: None,
        keep_ms: None,
        history_ms: None,
        finish_independent: false,
        store_inputs: false,
        results_mode: None,
        steps: vec![step],
        outputs,
    }
}

fn key(name: &str, span: Span) -> MapKey {
    MapKey { name: name.to_owned(), span }
}

fn text(text: &str, span: Span) -> Text {
    Text { text: text.to_owned(), span, style: ScalarQuoting::Quoted }
}

/// The text of a key of a map, without a problem if it is missing.
fn field(node: &YamlNode, name: &str) -> Option<String> {
    let NodeKind::Map(entries) = &node.what else { return None };
    let (_, value) = entries.iter().find(|(key, _)| key.name == name)?;
    value.text().map(|text| text.text)
}
