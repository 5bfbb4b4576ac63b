//! Resolves the names of a stream file, orders its steps, and gives every stream the type of its records.

use super::{
    StreamPart,
    call::{self, CheckedCall},
    combine::{FieldCombine, StreamCombine},
    declare::{
        CombineDecl, CombineKind, LineFormat, NamedExpressions, OnError, RecordOrigin, RecordTarget, StreamDecl,
        StreamSinkDecl, StreamSourceDecl, StreamStepDecl, StreamWorkDecl,
    },
    expression::{NUMBER, RECORD, RecordExpression},
};
use crate::{
    source::{Span, Text},
    syntax::{MapKey, fields::FieldReader},
    words,
};
use onceflow_core::model::Type;
use onceflow_stream::{
    step::join::JoinRange,
    window::{WindowKind, Windowing},
};
use std::{collections::BTreeMap, net::SocketAddr};

/// A source, step or sink.
#[derive(Debug)]
pub(super) struct CheckedNode {
    pub(super) name: String,
    /// The numbers of the nodes it reads.
    pub(super) inputs: Vec<usize>,
    pub(super) work: CheckedWork,
    pub(super) ty: Type,
    pub(super) on_error: OnError,
}

/// The work of a node.
#[derive(Debug)]
pub(super) enum CheckedWork {
    Source { origin: CheckedOrigin, format: LineFormat, time: Option<RecordExpression>, out_of_order_ms: i64 },
    Merge,
    Filter(RecordExpression),
    Map(Vec<(Option<String>, RecordExpression)>),
    FlatMap(RecordExpression),
    Once { id: RecordExpression, horizon_ms: i64 },
    Combine { key: Vec<(String, RecordExpression)>, windowing: Windowing, combine: StreamCombine },
    Join { keys: [RecordExpression; 2], range: JoinRange },
    Call(CheckedCall),
    Sink { to: RecordTarget, format: LineFormat },
}

/// Where the records of a source come from.
#[derive(Clone, Debug)]
pub(super) enum CheckedOrigin {
    Files { pattern: String, follow: bool, idle_ms: u64 },
    Stdin,
    Generate { record: RecordExpression, count: Option<u64>, every_ms: u64 },
    Http { address: SocketAddr, id: Option<RecordExpression>, horizon_ms: i64 },
}

impl CheckedNode {
    pub(super) fn part(&self) -> StreamPart {
        let kind = match &self.work {
            CheckedWork::Source { origin: CheckedOrigin::Files { .. }, .. } => "file",
            CheckedWork::Source { origin: CheckedOrigin::Stdin, .. } => "stdin",
            CheckedWork::Source { origin: CheckedOrigin::Generate { .. }, .. } => "generate",
            CheckedWork::Source { origin: CheckedOrigin::Http { .. }, .. } => "http",
            CheckedWork::Merge => "merge",
            CheckedWork::Filter(_) => "filter",
            CheckedWork::Map(_) => "map",
            CheckedWork::FlatMap(_) => "flat_map",
            CheckedWork::Once { .. } => "once",
            CheckedWork::Combine { .. } => "combine",
            CheckedWork::Join { .. } => "join",
            CheckedWork::Call(_) => "call",
            CheckedWork::Sink { to: RecordTarget::File(_), .. } => "file",
            CheckedWork::Sink { to: RecordTarget::Stdout, .. } => "stdout",
            CheckedWork::Sink { to: RecordTarget::Http { .. }, .. } => "http",
        };
        let is_sink = matches!(self.work, CheckedWork::Sink { .. });
        let planned = if is_sink { sink_step(&self.name) } else { self.name.clone() };
        StreamPart { name: self.name.clone(), kind, inputs: self.inputs.clone(), is_sink, planned }
    }
}

/// Checks a stream. The result is of use only if no problem was reported.
pub(super) fn run(reader: FieldReader<'_>, stream: &StreamDecl) -> Vec<CheckedNode> {
    let mut check = StreamCheck { reader, nodes: Vec::new(), numbers: BTreeMap::new(), broken: Vec::new() };
    check.names(stream);
    for source in &stream.sources {
        check.source(source);
    }
    if let Some(second) = stream.sources.iter().filter(|it| matches!(it.origin, RecordOrigin::Stdin)).nth(1) {
        reader.say(second.name.span, "OF0113", "standard input can be read by one source only", "");
    }
    let mut left: Vec<&StreamStepDecl> = stream.steps.iter().collect();
    while !left.is_empty() {
        let before = left.len();
        left.retain(|step| !check.step_if_ready(step));
        if left.len() == before {
            check.circle(&left);
            break;
        }
    }
    for sink in &stream.sinks {
        check.sink(sink);
    }
    check.warn_unread(stream);
    check.nodes
}

struct StreamCheck<'a> {
    reader: FieldReader<'a>,
    nodes: Vec<CheckedNode>,
    numbers: BTreeMap<String, usize>,
    /// Names of sources and steps that are declared and have a problem, which was reported.
    broken: Vec<String>,
}

impl StreamCheck<'_> {
    fn names(&mut self, stream: &StreamDecl) {
        let mut seen: Vec<&str> = Vec::new();
        for name in &stream.names {
            if seen.contains(&name.name.as_str()) {
                let message = format!("`{}` is the name of a source already", name.name);
                self.reader.say(name.span, "OF0109", message, "sources and steps have names of their own");
            }
            seen.push(&name.name);
        }
        self.broken = seen.into_iter().map(str::to_owned).collect();
    }

    fn add(&mut self, node: CheckedNode, is_readable: bool) {
        if is_readable {
            self.broken.retain(|name| *name != node.name);
            self.numbers.insert(node.name.clone(), self.nodes.len());
        }
        self.nodes.push(node);
    }

    fn source(&mut self, source: &StreamSourceDecl) {
        let reader = self.reader;
        let untyped = match (source.format, &source.origin) {
            (LineFormat::Text, RecordOrigin::Files { .. } | RecordOrigin::Stdin | RecordOrigin::Http { .. }) => {
                Type::Text
            }
            _ => Type::Json,
        };
        let mut ty = source.ty.clone().unwrap_or(untyped);
        let origin = match &source.origin {
            RecordOrigin::Stdin => CheckedOrigin::Stdin,
            RecordOrigin::Http { address, id, horizon_ms } => {
                let id = match id {
                    Some(id) => match self.expression(id, &ty) {
                        Some(id) => Some(id),
                        None => return,
                    },
                    None => None,
                };
                CheckedOrigin::Http { address: *address, id, horizon_ms: *horizon_ms }
            }
            RecordOrigin::Files { pattern, follow, idle_ms } => {
                CheckedOrigin::Files { pattern: pattern.text.clone(), follow: *follow, idle_ms: *idle_ms }
            }
            RecordOrigin::Generate { record, count, every_ms } => {
                let Some(record) = RecordExpression::check(reader, record, (NUMBER, &Type::Int)) else { return };
                if source.ty.is_none() {
                    ty = record.ty.clone();
                }
                CheckedOrigin::Generate { record, count: *count, every_ms: *every_ms }
            }
        };
        // Steps are checked though the time is wrong.
        let time = source.time.as_ref().and_then(|text| {
            let time = self.expression(text, &ty)?;
            time.must_be(reader, text, &[Type::Int, Type::Text], "OF0130").then_some(time)
        });
        let work = CheckedWork::Source { origin, format: source.format, time, out_of_order_ms: source.out_of_order_ms };
        let name = source.name.name.clone();
        self.add(CheckedNode { name, inputs: Vec::new(), work, ty, on_error: source.on_error }, true);
    }

    fn expression(&self, text: &Text, ty: &Type) -> Option<RecordExpression> {
        RecordExpression::check(self.reader, text, (RECORD, ty))
    }

    /// Checks a step if everything it reads was checked, or is not there.
    fn step_if_ready(&mut self, step: &StreamStepDecl) -> bool {
        let reads: Vec<&Text> = reads_of(step).collect();
        let waits = |text: &&Text| !self.numbers.contains_key(&text.text) && self.broken.contains(&text.text);
        if reads.iter().any(waits) {
            return false;
        }
        let inputs: Vec<Option<usize>> = reads.iter().map(|text| self.number(text)).collect();
        let Some(inputs) = inputs.into_iter().collect::<Option<Vec<usize>>>() else { return true };
        if let Some((work, ty)) = self.work(step, &inputs) {
            let (name, on_error) = (step.name.name.clone(), step.on_error);
            self.add(CheckedNode { name, inputs, work, ty, on_error }, true);
        }
        true
    }

    /// Returns the number of a node that is read; `None` after reporting that there is none.
    fn number(&self, text: &Text) -> Option<usize> {
        let number = self.numbers.get(&text.text).copied();
        if number.is_none() && !self.broken.contains(&text.text) {
            let known = self.numbers.keys().chain(&self.broken).map(String::as_str);
            let message = format!("there is no source or step `{}`", text.text);
            self.reader.say(text.span, "OF0116", message, words::meant(&text.text, known));
        }
        number
    }

    /// Reports steps that read one another in a circle; steps behind one that has a problem wait without being wrong.
    fn circle(&self, left: &[&StreamStepDecl]) {
        let find = |name: &str| left.iter().find(|step| step.name.name == name);
        for first in left {
            let mut path = vec![*first];
            while let Some(next) = path.last().and_then(|step| reads_of(step).find_map(|from| find(&from.text))) {
                if next.name.name == first.name.name {
                    let names: Vec<_> = path.iter().rev().map(|step| step.name.name.as_str()).collect();
                    let message = format!("steps read one another in a circle: {}", words::list(names));
                    return self.reader.say(first.name.span, "OF0160", message, "a stream flows from its sources on");
                }
                if path.len() > left.len() {
                    break;
                }
                path.push(next);
            }
        }
    }

    /// The type of what a step reads: that of all its inputs, or anything.
    fn read_type(&self, inputs: &[usize]) -> Type {
        let first = &self.nodes[inputs[0]].ty;
        if inputs.iter().all(|input| self.nodes[*input].ty == *first) { first.clone() } else { Type::Json }
    }

    fn work(&self, step: &StreamStepDecl, inputs: &[usize]) -> Option<(CheckedWork, Type)> {
        let reader = self.reader;
        let from = &inputs[..step.from.len()];
        let ty = self.read_type(from);
        Some(match &step.work {
            StreamWorkDecl::Merge => (CheckedWork::Merge, ty),
            StreamWorkDecl::Filter(text) => {
                let filter = self.expression(text, &ty)?;
                filter.must_be(reader, text, &[Type::Bool], "OF0125").then_some(())?;
                (CheckedWork::Filter(filter), ty)
            }
            StreamWorkDecl::Map(fields) => {
                let fields = self.named(fields, &ty)?;
                let ty = match &fields[..] {
                    [(None, whole)] => whole.ty.clone(),
                    fields => record(fields.iter().filter_map(|(name, field)| Some((name.clone()?, field.ty.clone())))),
                };
                (CheckedWork::Map(fields), ty)
            }
            StreamWorkDecl::FlatMap(text) => {
                let list = self.expression(text, &ty)?;
                let inner = match &list.ty {
                    Type::List(inner) => (**inner).clone(),
                    Type::Json => Type::Json,
                    _ => {
                        list.must_be(reader, text, &[Type::list(Type::Json)], "OF0130");
                        return None;
                    }
                };
                (CheckedWork::FlatMap(list), inner)
            }
            StreamWorkDecl::Once { id, horizon_ms } => {
                (CheckedWork::Once { id: self.expression(id, &ty)?, horizon_ms: *horizon_ms }, ty)
            }
            StreamWorkDecl::Combine { key, windowing, fields } => {
                self.combine(step.name.span, key, *windowing, fields, &ty)?
            }
            StreamWorkDecl::Call(decl) => {
                let (call, ty) = call::check(reader, decl, &ty)?;
                (CheckedWork::Call(call), ty)
            }
            StreamWorkDecl::Join { key, other_key, range, .. } => {
                let other = self.nodes[*inputs.last()?].ty.clone();
                let keys = [self.expression(key, &ty), self.expression(other_key, &other)];
                let [Some(left), Some(right)] = keys else { return None };
                let joined = record([(String::from("left"), ty), (String::from("right"), other)]);
                (CheckedWork::Join { keys: [left, right], range: *range }, joined)
            }
        })
    }

    fn named(&self, fields: &NamedExpressions, ty: &Type) -> Option<Vec<(Option<String>, RecordExpression)>> {
        let one = |(name, text): &(Option<MapKey>, Text)| {
            Some((name.as_ref().map(|name| name.name.clone()), self.expression(text, ty)?))
        };
        let checked: Vec<_> = fields.iter().map(one).collect();
        checked.into_iter().collect()
    }

    fn combine(
        &self,
        span: Span,
        key: &NamedExpressions,
        windowing: Windowing,
        fields: &[(MapKey, CombineDecl)],
        ty: &Type,
    ) -> Option<(CheckedWork, Type)> {
        let key = self.named(key, ty);
        let fields: Vec<_> = fields.iter().map(|(name, field)| self.field(name, field, ty)).collect();
        let named = |(name, key): (Option<String>, RecordExpression)| {
            let own = name.unwrap_or_else(|| key.own_name().unwrap_or("key").to_owned());
            (own, key)
        };
        let key: Vec<_> = key?.into_iter().map(named).collect();
        let fields: Vec<FieldCombine> = fields.into_iter().collect::<Option<_>>()?;
        let mut given: Vec<(String, Type)> = key.iter().map(|(name, key)| (name.clone(), key.ty.clone())).collect();
        if windowing.kind != WindowKind::Global {
            given.extend(["start", "end"].map(|name| (name.to_owned(), Type::Int)));
        }
        if has_timing(&windowing) {
            given.push((String::from("timing"), Type::Text));
        }
        given.extend(fields.iter().map(|field| (field.name.clone(), field.ty(ty))));
        for (at, (name, _)) in given.iter().enumerate() {
            if given[..at].iter().any(|(other, _)| other == name) {
                let hint = "a result has the fields of its key, `start` and `end` of its window, and what is combined";
                self.reader.say(span, "OF0109", format!("its results would have two fields `{name}`"), hint);
                return None;
            }
        }
        let work = CheckedWork::Combine { key, windowing, combine: StreamCombine::new(fields) };
        Some((work, record(given)))
    }

    fn field(&self, name: &MapKey, field: &CombineDecl, ty: &Type) -> Option<FieldCombine> {
        let of = match &field.of {
            Some(text) => {
                let of = self.expression(text, ty)?;
                let numbers = [Type::Float, Type::Int, Type::option(Type::Float), Type::option(Type::Int)];
                if matches!(field.kind, CombineKind::Sum | CombineKind::Mean)
                    && !of.must_be(self.reader, text, &numbers, "OF0130")
                {
                    return None;
                }
                Some(of)
            }
            None => None,
        };
        Some(FieldCombine { name: name.name.clone(), kind: field.kind, of })
    }

    fn sink(&mut self, sink: &StreamSinkDecl) {
        let Some(from) = self.number(&sink.from) else { return };
        let ty = self.nodes[from].ty.clone();
        if sink.format == LineFormat::Text && !matches!(ty, Type::Text | Type::Json) {
            let message = format!("a line of text is wanted, but the records of `{}` are {ty}", sink.from.text);
            self.reader.say(sink.from.span, "OF0130", message, "`map` makes a text of a record; or `format: json`");
        }
        let work = CheckedWork::Sink { to: sink.to.clone(), format: sink.format };
        let name = sink.name.name.clone();
        self.add(CheckedNode { name, inputs: vec![from], work, ty, on_error: OnError::Stop }, false);
    }

    fn warn_unread(&self, stream: &StreamDecl) {
        let names = stream.sources.iter().map(|source| &source.name).chain(stream.steps.iter().map(|step| &step.name));
        for name in names {
            let Some(number) = self.numbers.get(&name.name) else { continue };
            let calls = matches!(self.nodes[*number].work, CheckedWork::Call(_));
            if !calls && !self.nodes.iter().any(|node| node.inputs.contains(number)) {
                self.reader.warn(name.span, format!("nothing reads `{}`", name.name));
            }
        }
    }
}

/// Everything that a step reads, the other side of a join last.
fn reads_of(step: &StreamStepDecl) -> impl Iterator<Item = &Text> {
    let joined = match &step.work {
        StreamWorkDecl::Join { with, .. } => Some(with),
        _ => None,
    };
    step.from.iter().chain(joined)
}

/// The name of a sink's step in the plan: a sink may be called as the step it writes.
pub(super) fn sink_step(name: &str) -> String {
    format!("to {name}")
}

/// A window may give several results, so that each says its place in the life of the window.
pub(super) fn has_timing(windowing: &Windowing) -> bool {
    windowing.trigger.early.is_some() || windowing.lateness_ms > 0
}

fn record(fields: impl IntoIterator<Item = (String, Type)>) -> Type {
    Type::Record(fields.into_iter().collect())
}
