//! Streams that are steps of flows: `stream: FILE`, or the stream itself. What such a stream reads is given to it and ends;
//! what it writes are files, the outputs of the step.

mod body;

pub use body::executor;

use super::{
    check::{self, CheckedNode, CheckedWork},
    declare::{self, RecordOrigin, RecordTarget, StreamDecl, StreamWorkDecl, TableOrigin},
    given::{GivenUse, InputHole},
};
use crate::{
    FlowInput,
    source::Span,
    syntax::{NodeKind, YamlNode, fields::FieldReader},
    words,
};
use onceflow_core::model::{Port, Type};
use std::collections::BTreeMap;

/// The output of every such step that has its counts.
pub(crate) const FIGURES: &str = "figures";

/// The code of a stream that cannot be a step.
const NOT_A_STEP: &str = "OF0168";

/// The keys of a stream file that say nothing about what the stream gives.
const ASIDE: [&str; 3] = ["stream", "description", "inputs"];

/// A stream that is a step.
pub(crate) struct StepStream {
    declared: StreamDecl,
}

/// A hole of a stream, with the name under which its value is given.
pub(crate) struct NamedHole<'a> {
    pub(crate) name: String,
    pub(crate) hole: &'a InputHole,
    pub(crate) of: GivenUse,
}

impl StepStream {
    /// Reads a stream file; `None` if it is no stream at all.
    pub(crate) fn of_file(reader: FieldReader<'_>, root: &YamlNode) -> Option<Self> {
        declare::read(reader, root).map(|declared| StepStream { declared })
    }

    /// Reads a stream that stands in a step; `None` if it is no stream at all.
    pub(crate) fn inline(reader: FieldReader<'_>, node: &YamlNode, span: Span) -> Option<Self> {
        declare::read_inline(reader, node, span).map(|declared| StepStream { declared })
    }

    /// Returns the inputs that its file declares.
    pub(crate) fn inputs(&self) -> &[FlowInput] {
        &self.declared.inputs
    }

    /// Returns its holes.
    pub(crate) fn holes(&self) -> Vec<NamedHole<'_>> {
        holes(&self.declared)
    }

    /// Reports everything that is wrong with it, and why it cannot be a step.
    pub(crate) fn check(&self, reader: FieldReader<'_>) {
        must_be_step(reader, &self.declared);
        check::run(reader, &self.declared);
    }

    /// Returns what the step gives: the files of the sinks, and the counts.
    pub(crate) fn ports(&self) -> Vec<Port> {
        let sink = |sink: &declare::StreamSinkDecl| {
            let ty = match sink.to {
                RecordTarget::Dated(_) => Type::list(Type::File),
                _ => Type::File,
            };
            Port::new(sink.name.name.clone(), ty)
        };
        let figures = Port::new(FIGURES, Type::Record(StepFigures::default().types()));
        self.declared.sinks.iter().map(sink).chain([figures]).collect()
    }

    /// Returns the stream as one line, without what says nothing about its results: comments, layout, what it is called, and
    /// what its inputs are called.
    pub(crate) fn to_text(&self, node: &YamlNode) -> String {
        let holes: Vec<Span> = self.holes().iter().map(|hole| hole.hole.text.span).collect();
        let mut text = String::new();
        match &node.what {
            NodeKind::Map(entries) => {
                let kept = entries.iter().filter(|(key, _)| !ASIDE.contains(&key.name.as_str()));
                map(kept, &holes, &mut text);
            }
            _ => write(node, &holes, &mut text),
        }
        text
    }
}

fn map<'a>(entries: impl Iterator<Item = &'a (crate::syntax::MapKey, YamlNode)>, holes: &[Span], text: &mut String) {
    text.push('{');
    for (at, (key, value)) in entries.enumerate() {
        text.push_str(if at > 0 { ", " } else { "" });
        text.push_str(&serde_json::Value::from(key.name.as_str()).to_string());
        text.push_str(": ");
        write(value, holes, text);
    }
    text.push('}');
}

fn write(node: &YamlNode, holes: &[Span], text: &mut String) {
    match &node.what {
        NodeKind::Map(entries) => map(entries.iter(), holes, text),
        NodeKind::List(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                text.push_str(if at > 0 { ", " } else { "" });
                write(item, holes, text);
            }
            text.push(']');
        }
        NodeKind::Scalar(..) if holes.contains(&node.span) => text.push_str("\"${{ given }}\""),
        NodeKind::Scalar(plain, _) => match node.to_json() {
            quoted @ serde_json::Value::String(_) => text.push_str(&quoted.to_string()),
            serde_json::Value::Null => text.push_str("null"),
            // As it was written: `1.10` may be a text where it stands.
            _ => text.push_str(plain),
        },
    }
}

/// Returns the holes of a stream.
pub(super) fn holes(declared: &StreamDecl) -> Vec<NamedHole<'_>> {
    let sources = declared.sources.iter().filter_map(|source| match &source.origin {
        RecordOrigin::Given { hole, of, .. } => Some(NamedHole { name: source.name.name.clone(), hole, of: *of }),
        _ => None,
    });
    let tables = declared.steps.iter().filter_map(|step| match &step.work {
        StreamWorkDecl::Enrich { table, .. } => match &table.from {
            TableOrigin::Given(hole) => Some(NamedHole { name: step.name.name.clone(), hole, of: GivenUse::Table }),
            _ => None,
        },
        _ => None,
    });
    sources.chain(tables).collect()
}

/// Checks the holes of a stream file: each names one of its inputs.
pub(crate) fn input_of<'a>(
    reader: FieldReader<'_>,
    inputs: &'a [FlowInput],
    hole: &NamedHole<'_>,
) -> Option<&'a FlowInput> {
    let span = hole.hole.span(reader);
    let Some(name) = hole.hole.source().strip_prefix("inputs.") else {
        let message = format!("`{}` is no input of the stream", hole.hole.source());
        reader.say(span, "OF0116", message, "`${{ inputs.log }}`, with `inputs: { log: file }` in the stream");
        return None;
    };
    let Some(input) = inputs.iter().find(|input| input.name == name) else {
        let meant = words::meant(name, inputs.iter().map(|input| input.name.as_str()));
        let hint = if inputs.is_empty() { format!("add `inputs: {{ {name}: file }}` to the stream") } else { meant };
        reader.say(span, "OF0116", format!("the stream has no input `{name}`"), hint);
        return None;
    };
    fits(reader, hole, &input.ty).then_some(input)
}

/// The value of a hole can be used there; reports if it cannot.
pub(crate) fn fits(reader: FieldReader<'_>, hole: &NamedHole<'_>, ty: &Type) -> bool {
    let is_fit = hole.of.takes(ty);
    if !is_fit {
        let message = format!("{} is wanted, but `{}` is {ty}", hole.of.wanted(), hole.hole.source());
        reader.say(hole.hole.span(reader), "OF0130", message, "");
    }
    is_fit
}

/// Reports why a stream cannot be a step: what it reads is not given to it, or does not end; what it does is not done when
/// the step commits its files.
pub(super) fn must_be_step(reader: FieldReader<'_>, declared: &StreamDecl) {
    let say = |span: Span, message: String, hint: &str| reader.say(span, NOT_A_STEP, message, hint);
    let given = "`file: ${{ inputs.log }}`: what a step reads is given to it, so that it runs again when that changes";
    for source in &declared.sources {
        let (name, span) = (&source.name.name, source.name.span);
        match &source.origin {
            RecordOrigin::Given { .. } | RecordOrigin::Generate { count: Some(_), .. } => {}
            RecordOrigin::Files { follow: true, .. } | RecordOrigin::Directory { follow: true, .. } => {
                say(span, format!("source `{name}` follows files, so the step would never end"), given);
            }
            RecordOrigin::Files { pattern, .. } => {
                say(pattern.span, format!("source `{name}` of a step reads files that are not given to it"), given);
            }
            RecordOrigin::Directory { path, .. } => {
                let given = "`directory: ${{ inputs.logs }}`: what a step reads is given to it";
                say(path.span, format!("source `{name}` of a step reads files that are not given to it"), given);
            }
            RecordOrigin::Stdin => {
                say(span, format!("source `{name}` reads standard input, which a step does not have"), given);
            }
            RecordOrigin::Generate { count: None, .. } => {
                let message = format!("source `{name}` has no `count`, so the step would never end");
                say(span, message, "`count: 1000` ends it");
            }
            RecordOrigin::Http { .. } => {
                let hint = "run the stream by itself, `onceflow run FILE`; it may call a flow for each record";
                say(span, format!("source `{name}` waits for clients, so the step would never end"), hint);
            }
        }
    }
    for step in &declared.steps {
        let name = &step.name.name;
        match &step.work {
            StreamWorkDecl::Call(_) => {
                let hint = "run the stream by itself; or write the records to a file, and call the flow in an `each`";
                say(step.name.span, format!("step `{name}` calls a flow, and its stream is a step itself"), hint);
            }
            StreamWorkDecl::Enrich { table, .. } => {
                if let TableOrigin::File(path) = &table.from {
                    let hint = "`file: ${{ inputs.users }}`";
                    say(path.span, format!("step `{name}` reads a table that is not given to it"), hint);
                }
            }
            _ => {}
        }
    }
    for sink in &declared.sinks {
        let (name, span) = (&sink.name.name, sink.name.span);
        match &sink.to {
            RecordTarget::File(path) if path.contains('/') || path == "." || path == ".." => {
                say(span, format!("sink `{name}` of a step names a directory"), "its file is an output of the step");
            }
            RecordTarget::File(_) => {}
            RecordTarget::Dated(_) => {}
            _ => {
                let hint = "write a file, `file: out.jsonl`, and let another step send it";
                say(span, format!("sink `{name}` of a step writes no file"), hint);
            }
        }
        if *name == FIGURES {
            say(span, format!("`{FIGURES}` are the counts of the step"), "give the sink another name");
        }
    }
}

/// The name of the file that a sink of a step writes; `None` if it writes several.
pub(super) fn file_of(node: &CheckedNode) -> Option<&str> {
    match &node.work {
        CheckedWork::Sink { to: RecordTarget::File(path), .. } => Some(path),
        _ => None,
    }
}

/// The counts of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepFigures {
    /// Records that sources gave.
    pub(super) records_in: u64,
    /// Records that sinks wrote.
    pub(super) records_out: u64,
    /// Records that came after their window.
    pub(super) late: u64,
    /// Records that were left out, because they could not be read or computed.
    pub(super) skipped: u64,
}

impl StepFigures {
    /// Returns them by name.
    pub(super) fn fields(&self) -> [(&'static str, u64); 4] {
        let StepFigures { records_in, records_out, late, skipped } = *self;
        [("records_in", records_in), ("records_out", records_out), ("late", late), ("skipped", skipped)]
    }

    fn types(&self) -> BTreeMap<String, Type> {
        self.fields().map(|(name, _)| (name.to_owned(), Type::Int)).into()
    }
}
