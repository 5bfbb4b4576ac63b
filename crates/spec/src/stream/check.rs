//! Resolves the names of a stream file, orders its steps, and gives every stream the type of its records.

mod node;

pub(super) use node::{CheckedNode, CheckedOrigin, CheckedTable, CheckedWork, NodeOutput, StreamInput};

use super::{
    call,
    combine::{CheckedFold, FieldCombine, StreamCombine},
    declare::{
        CombineDecl, CombineKind, FoldDecl, LineFormat, NamedExpressions, OnError, RecordOrigin, RecordTarget, SqlDecl,
        StreamDecl, StreamSinkDecl, StreamSourceDecl, StreamStepDecl, StreamWorkDecl, TableDecl, TableOrigin,
    },
    expression::{ACC, ERROR, NUMBER, OTHER, RECORD, RecordExpression},
    table,
};
use crate::{
    source::{Span, Text},
    syntax::{MapKey, fields::FieldReader},
    words,
};
use onceflow_core::model::Type;
use onceflow_exec::expr::Bindings;
use onceflow_stream::window::{WindowKind, Windowing};
use std::collections::BTreeMap;

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
            (LineFormat::Text, RecordOrigin::Generate { .. }) | (LineFormat::Json, _) => Type::Json,
            (LineFormat::Text, _) => Type::Text,
        };
        let mut ty = source.ty.clone().unwrap_or(untyped);
        let origin = match &source.origin {
            RecordOrigin::Stdin => CheckedOrigin::Stdin,
            RecordOrigin::Http { address, id, horizon_ms, headers } => {
                let id = match id {
                    Some(id) => match self.expression(id, &ty) {
                        Some(id) => Some(id),
                        None => return,
                    },
                    None => None,
                };
                CheckedOrigin::Http { address: *address, id, horizon_ms: *horizon_ms, headers: headers.clone() }
            }
            RecordOrigin::Files { pattern, follow, idle_ms } => {
                CheckedOrigin::Files { pattern: pattern.text.clone(), follow: *follow, idle_ms: *idle_ms }
            }
            RecordOrigin::Given { subdirectories, .. } => CheckedOrigin::Given { subdirectories: *subdirectories },
            RecordOrigin::Directory { path, subdirectories, follow, idle_ms } => CheckedOrigin::Directory {
                path: path.text.clone(),
                subdirectories: *subdirectories,
                follow: *follow,
                idle_ms: *idle_ms,
            },
            RecordOrigin::Generate { record, count, every_ms } => {
                let Some(record) = RecordExpression::check(reader, record, &[(NUMBER, &Type::Int)]) else { return };
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
        let on_error = source.on_error;
        self.add(CheckedNode { name, inputs: Vec::new(), filter: None, work, ty, on_error }, true);
    }

    fn expression(&self, text: &Text, ty: &Type) -> Option<RecordExpression> {
        RecordExpression::check(self.reader, text, &[(RECORD, ty)])
    }

    /// Checks a step if everything it reads was checked, or is not there.
    fn step_if_ready(&mut self, step: &StreamStepDecl) -> bool {
        let reads: Vec<&Text> = reads_of(step).collect();
        let waits = |text: &&Text| {
            !self.numbers.contains_key(read_name(text)) && self.broken.iter().any(|it| it == read_name(text))
        };
        if reads.iter().any(waits) {
            return false;
        }
        let inputs: Vec<Option<StreamInput>> = reads.iter().map(|text| self.input(text)).collect();
        let Some(inputs) = inputs.into_iter().collect::<Option<Vec<StreamInput>>>() else { return true };
        let ty = self.read_type(&inputs[..step.from.len()]);
        // The work is checked though the filter is wrong.
        let filter = step.filter.as_ref().map(|text| {
            let filter = self.expression(text, &ty)?;
            filter.must_be(self.reader, text, &[Type::Bool], "OF0125").then_some(filter)
        });
        if let Some((work, ty)) = self.work(step, &inputs, ty)
            && let Some(filter) = filter.map_or(Some(None), |filter| filter.map(Some))
        {
            let (name, on_error) = (step.name.name.clone(), step.on_error);
            self.add(CheckedNode { name, inputs, filter, work, ty, on_error }, true);
        }
        true
    }

    /// Returns the output that a text names: `counts`, `counts.late`; `None` after reporting that there is none.
    fn input(&self, text: &Text) -> Option<StreamInput> {
        let node = self.number(text)?;
        let Some((_, side)) = text.text.split_once('.') else {
            return Some(StreamInput { node, output: NodeOutput::Main });
        };
        let of = &self.nodes[node];
        let has = |output: NodeOutput| match output {
            NodeOutput::Main => true,
            NodeOutput::Late => matches!(of.work, CheckedWork::Combine { .. }),
            NodeOutput::Rejects => of.filter.is_some(),
            NodeOutput::Errors => of.on_error == OnError::Divert,
        };
        let sides = || NodeOutput::SIDES.iter().filter(|(_, output)| has(*output));
        if let Some((_, output)) = sides().find(|(name, _)| *name == side) {
            return Some(StreamInput { node, output: *output });
        }
        let hint = match side {
            "errors" => String::from("it has one with `on_error: divert`"),
            "rejects" => String::from("a step with a `filter` has one"),
            "late" => String::from("a step that combines over windows has one"),
            side => words::meant(side, sides().map(|(name, _)| *name)),
        };
        self.reader.say(text.span, "OF0117", format!("`{}` has no output `{side}`", of.name), hint);
        None
    }

    /// Returns the type of what an output gives.
    fn output_type(&self, input: StreamInput) -> Type {
        let node = &self.nodes[input.node];
        match input.output {
            NodeOutput::Main => node.ty.clone(),
            NodeOutput::Late | NodeOutput::Rejects => self.read_type(node.own_inputs()),
            NodeOutput::Errors => record([(String::from(RECORD), Type::Json), (String::from(ERROR), Type::Text)]),
        }
    }

    /// Returns the number of a node that is read; `None` after reporting that there is none.
    fn number(&self, text: &Text) -> Option<usize> {
        let name = read_name(text);
        let number = self.numbers.get(name).copied();
        if number.is_none() && !self.broken.iter().any(|broken| broken == name) {
            let known = self.numbers.keys().chain(&self.broken).map(String::as_str);
            let message = format!("there is no source or step `{name}`");
            self.reader.say(text.span, "OF0116", message, words::meant(name, known));
        }
        number
    }

    /// Reports steps that read one another in a circle; steps behind one that has a problem wait without being wrong.
    fn circle(&self, left: &[&StreamStepDecl]) {
        let find = |name: &str| left.iter().find(|step| step.name.name == name);
        for first in left {
            let mut path = vec![*first];
            while let Some(next) = path.last().and_then(|step| reads_of(step).find_map(|from| find(read_name(from)))) {
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
    fn read_type(&self, inputs: &[StreamInput]) -> Type {
        let mut types = inputs.iter().map(|input| self.output_type(*input));
        let Some(first) = types.next() else { return Type::Json };
        if types.all(|ty| ty == first) { first } else { Type::Json }
    }

    fn work(&self, step: &StreamStepDecl, inputs: &[StreamInput], ty: Type) -> Option<(CheckedWork, Type)> {
        let reader = self.reader;
        Some(match &step.work {
            StreamWorkDecl::Merge => (CheckedWork::Merge, ty),
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
                let other = self.output_type(*inputs.last()?);
                let keys = [self.expression(key, &ty), self.expression(other_key, &other)];
                let [Some(left), Some(right)] = keys else { return None };
                let joined = record([(String::from("left"), ty), (String::from("right"), other)]);
                (CheckedWork::Join { keys: [left, right], range: *range }, joined)
            }
            StreamWorkDecl::Enrich { key, table } => self.enrich(key, table, inputs, ty)?,
        })
    }

    fn enrich(&self, key: &Text, table: &TableDecl, inputs: &[StreamInput], ty: Type) -> Option<(CheckedWork, Type)> {
        let (checked, row) = match &table.from {
            TableOrigin::Stream(_) => (CheckedTable::Stream, self.output_type(*inputs.last()?)),
            TableOrigin::File(path) => {
                let row = table.ty.clone().unwrap_or(Type::Json);
                table::check(self.reader, path)?;
                (CheckedTable::File { path: path.text.clone(), ty: row.clone() }, row)
            }
            TableOrigin::Given(_) => {
                let row = table.ty.clone().unwrap_or(Type::Json);
                (CheckedTable::Given { ty: row.clone() }, row)
            }
        };
        let keys = [self.expression(key, &ty), self.expression(&table.key, &row)];
        let [Some(own), Some(of_row)] = keys else { return None };
        let row = if let Type::Json | Type::Option(_) = row { row } else { Type::option(row) };
        let enriched = record([(String::from(RECORD), ty), (String::from(table::ROW), row)]);
        Some((CheckedWork::Enrich { keys: [own, of_row], table: checked }, enriched))
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
        let fold = match &field.fold {
            Some(fold) => Some(self.fold(fold, ty)?),
            None => None,
        };
        Some(FieldCombine { name: name.name.clone(), kind: field.kind, of, fold })
    }

    fn fold(&self, fold: &FoldDecl, ty: &Type) -> Option<CheckedFold> {
        let (reader, json) = (self.reader, &Type::Json);
        let start = RecordExpression::check(reader, &fold.start, &[]);
        let add = RecordExpression::check(reader, &fold.add, &[(ACC, json), (RECORD, ty)]);
        let merge =
            fold.merge.as_ref().map(|merge| RecordExpression::check(reader, merge, &[(ACC, json), (OTHER, json)]));
        let merge = match merge {
            Some(merge) => Some(merge?),
            None => None,
        };
        let start_value = start?.eval(&Bindings::new());
        match start_value {
            Ok(start) => Some(CheckedFold::new(start, add?, merge, fold.is_lawful)),
            Err(why) => {
                reader.say(fold.start.span, "OF0115", why, "`start: 0`, `start: \"{'n': 0}\"`");
                None
            }
        }
    }

    fn sink(&mut self, sink: &StreamSinkDecl) {
        let Some(from) = self.input(&sink.from) else { return };
        let ty = self.output_type(from);
        if sink.format == LineFormat::Text && !matches!(ty, Type::Text | Type::Json) {
            let message = format!("a line of text is wanted, but the records of `{}` are {ty}", sink.from.text);
            self.reader.say(sink.from.span, "OF0130", message, "`map` makes a text of a record; or `format: json`");
        }
        if let RecordTarget::Sql(sql) = &sink.to
            && !self.sql(sink, sql, &ty)
        {
            return;
        }
        let work = CheckedWork::Sink { to: sink.to.clone(), format: sink.format };
        let name = sink.name.name.clone();
        let on_error = OnError::Stop;
        self.add(CheckedNode { name, inputs: vec![from], filter: None, work, ty, on_error }, false);
    }

    /// Checks that the records of a sink are rows of its table.
    fn sql(&self, sink: &StreamSinkDecl, sql: &SqlDecl, ty: &Type) -> bool {
        let before = self.reader.report.len();
        if let Some((code, why, hint)) = super::sql::problem(&sql.database) {
            self.reader.say(sink.name.span, code, why, hint);
        }
        match ty {
            Type::Json => {}
            Type::Record(fields) => {
                for key in sql.key.iter().filter(|key| !fields.contains_key(&key.text)) {
                    let message = format!("the records of `{}` have no field `{}`", sink.from.text, key.text);
                    let hint = words::meant(&key.text, fields.keys().map(String::as_str));
                    self.reader.say(key.span, "OF0117", message, hint);
                }
            }
            ty => {
                let message = format!("a row needs fields, but the records of `{}` are {ty}", sink.from.text);
                self.reader.say(sink.from.span, "OF0130", message, "`map: { field: … }` makes a record with fields");
            }
        }
        self.reader.report.len() == before
    }

    fn warn_unread(&self, stream: &StreamDecl) {
        let names = stream.sources.iter().map(|source| &source.name).chain(stream.steps.iter().map(|step| &step.name));
        for name in names {
            let Some(number) = self.numbers.get(&name.name) else { continue };
            let calls = matches!(self.nodes[*number].work, CheckedWork::Call(_));
            let is_read = |output: Option<NodeOutput>| {
                let mut inputs = self.nodes.iter().flat_map(|node| &node.inputs);
                inputs.any(|input| input.node == *number && output.is_none_or(|output| input.output == output))
            };
            if !calls && !is_read(None) {
                self.reader.warn(name.span, format!("nothing reads `{}`", name.name));
            }
            if self.nodes[*number].on_error == OnError::Divert && !is_read(Some(NodeOutput::Errors)) {
                let message = format!("`{0}` diverts what fails, and nothing reads `{0}.errors`", name.name);
                let hint = format!(
                    "`sinks: {{ bad: {{ from: {}.errors, file: bad.jsonl }} }}`, or `on_error: skip`",
                    name.name
                );
                self.reader.say(name.span, "OF0113", message, hint);
            }
        }
    }
}

/// Returns the name of the source or step whose output a text names.
fn read_name(text: &Text) -> &str {
    text.text.split_once('.').map_or(&*text.text, |(name, _)| name)
}

/// Everything that a step reads, the other side of a join last.
fn reads_of(step: &StreamStepDecl) -> impl Iterator<Item = &Text> {
    let joined = match &step.work {
        StreamWorkDecl::Join { with, .. } => Some(with),
        StreamWorkDecl::Enrich { table: TableDecl { from: TableOrigin::Stream(with), .. }, .. } => Some(with),
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
