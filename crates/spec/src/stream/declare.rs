//! Reads a stream file into declarations. Names are not resolved yet.

mod ends;

use super::{call::CallDecl, windows};
use crate::{
    source::{ScalarQuoting, Span, Text},
    syntax::{
        MapKey, NodeKind, YamlNode,
        fields::{FieldReader, Fields},
        flow::file_name,
        step::words_of,
    },
    words,
};
use onceflow_core::model::Type;
use onceflow_stream::{HttpPayload, step::join::JoinRange, window::Windowing};
use std::net::SocketAddr;

/// The declarations of a stream file.
pub(super) struct StreamDecl {
    pub(super) name: Text,
    pub(super) description: Option<String>,
    pub(super) partitions: u16,
    pub(super) bundle_records: Option<usize>,
    /// The names of all sources and steps, also of those that cannot be read.
    pub(super) names: Vec<MapKey>,
    pub(super) sources: Vec<StreamSourceDecl>,
    pub(super) steps: Vec<StreamStepDecl>,
    pub(super) sinks: Vec<StreamSinkDecl>,
}

/// The fate of a record for which an expression fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OnError {
    #[default]
    Stop,
    Skip,
}

/// How a line is read as a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LineFormat {
    #[default]
    Json,
    Text,
}

/// A source.
pub(super) struct StreamSourceDecl {
    pub(super) name: MapKey,
    pub(super) origin: RecordOrigin,
    pub(super) format: LineFormat,
    /// The type of its records, if it is declared.
    pub(super) ty: Option<Type>,
    pub(super) time: Option<Text>,
    pub(super) out_of_order_ms: i64,
    pub(super) on_error: OnError,
}

/// Where the records of a source come from.
#[derive(Clone, Debug)]
pub(super) enum RecordOrigin {
    Files { pattern: Text, follow: bool, idle_ms: u64 },
    Stdin,
    Generate { record: Text, count: Option<u64>, every_ms: u64 },
    Http { address: SocketAddr, id: Option<Text>, horizon_ms: i64 },
}

/// A step.
pub(super) struct StreamStepDecl {
    pub(super) name: MapKey,
    pub(super) from: Vec<Text>,
    pub(super) work: StreamWorkDecl,
    pub(super) on_error: OnError,
}

/// Expressions, by the names of the fields they give; a single one without a name is the whole.
pub(super) type NamedExpressions = Vec<(Option<MapKey>, Text)>;

/// The work of a step.
pub(super) enum StreamWorkDecl {
    Merge,
    Filter(Text),
    Map(NamedExpressions),
    FlatMap(Text),
    Once { id: Text, horizon_ms: i64 },
    Combine { key: NamedExpressions, windowing: Windowing, fields: Vec<(MapKey, CombineDecl)> },
    Join { key: Text, with: Text, other_key: Text, range: JoinRange },
    Call(CallDecl),
}

/// A field of a combine.
pub(super) struct CombineDecl {
    pub(super) kind: CombineKind,
    /// The combined value; for `top` the value to sort by.
    pub(super) of: Option<Text>,
}

/// The kinds of combines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CombineKind {
    Count,
    Sum,
    Min,
    Max,
    Mean,
    Distinct,
    Top(usize),
}

/// A sink.
pub(super) struct StreamSinkDecl {
    pub(super) name: MapKey,
    pub(super) from: Text,
    pub(super) format: LineFormat,
    pub(super) to: RecordTarget,
}

/// Where the records of a sink go.
#[derive(Clone, Debug)]
pub(super) enum RecordTarget {
    File(Text),
    Stdout,
    Http { url: Text, payload: HttpPayload },
}

/// Partitions of a stage, at most: each has rows of its own in the store.
const PARTITIONS_MAX: i64 = 256;

/// Partitions of a stage, unless the file says otherwise.
const PARTITIONS: u16 = 4;

/// Records of a commit, at most: they are in memory together.
const BUNDLE_MAX: i64 = 1_000_000;

/// Records of a `top`, at most: they are kept together in one row.
const TOP_MAX: i64 = 1000;

/// How long the ids of clients' records are remembered, unless the file says otherwise.
const HORIZON_MS: i64 = 60 * 60 * 1000;

/// How long a file may be silent before it no longer holds the watermark back.
const IDLE_MS: u64 = 10_000;

/// Reads a stream from a tree; `None` if the tree is no stream at all.
pub(super) fn read(reader: FieldReader<'_>, root: &YamlNode) -> Option<StreamDecl> {
    let mut fields = reader.fields(root, "a stream file")?;
    fields.span = Span::new(root.span.start(), root.span.start());
    let name = fields.text("stream");
    match &name {
        Some(name) => file_name(reader, name, "a stream"),
        None => fields.missing("name", "`stream: NAME` comes first"),
    }
    let unnamed = || Text { text: "stream".into(), span: root.span, style: ScalarQuoting::Plain };
    let partitions = fields.get("partitions").and_then(|node| reader.int(node, "`partitions`", 1, PARTITIONS_MAX));
    let bundle = fields.get("bundle").and_then(|node| reader.int(node, "`bundle`", 1, BUNDLE_MAX));
    let (sources, steps) = (fields.get("sources"), fields.get("steps"));
    let stream = StreamDecl {
        name: name.unwrap_or_else(unnamed),
        description: fields.text("description").map(|text| text.text),
        partitions: partitions.and_then(|count| u16::try_from(count).ok()).unwrap_or(PARTITIONS),
        bundle_records: bundle.and_then(|records| usize::try_from(records).ok()),
        names: [sources, steps].into_iter().flatten().flat_map(keys).collect(),
        sources: each(reader, sources, "`sources`", ends::source),
        steps: each(reader, steps, "`steps`", step),
        sinks: each(reader, fields.get("sinks"), "`sinks`", ends::sink),
    };
    if reader.report.is_empty() {
        if stream.sources.is_empty() {
            fields.missing("sources", "`sources: { lines: { file: \"*.jsonl\" } }`");
        }
        let calls = stream.steps.iter().any(|step| matches!(step.work, StreamWorkDecl::Call(_)));
        if stream.sinks.is_empty() && !calls {
            fields.missing("sinks", "`sinks: { out: { from: STEP, file: out.jsonl } }`");
        }
    }
    fields.finish();
    Some(stream)
}

fn keys(node: &YamlNode) -> Vec<MapKey> {
    match &node.what {
        NodeKind::Map(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
        _ => Vec::new(),
    }
}

fn each<'a, T>(
    reader: FieldReader<'a>,
    node: Option<&'a YamlNode>,
    what: &str,
    read: impl Fn(FieldReader<'a>, &'a MapKey, Fields<'a>) -> Option<T>,
) -> Vec<T> {
    let Some(node) = node else { return Vec::new() };
    let one = |(key, node): &'a (MapKey, YamlNode)| {
        let of = &what[1..what.len() - 2];
        reader.member(&key.name, key.span, &format!("a {of}"));
        let mut fields = reader.fields(node, format!("{of} `{}`", key.name))?;
        fields.span = key.span;
        read(reader, key, fields)
    };
    reader.entries(node, what).iter().filter_map(one).collect()
}

/// Takes the one of these keys that is there; `None` after reporting that none is, or several are.
fn one_of<'a>(fields: &mut Fields<'a>, name: &MapKey, keys: &[&'static str]) -> Option<(&'a MapKey, &'a YamlNode)> {
    let found: Vec<_> = keys.iter().filter_map(|key| fields.take(key)).collect();
    let all = words::list(keys.iter().copied());
    match found[..] {
        [one] => Some(one),
        [] => {
            fields.missing("part that says what it is", &format!("it is one of {all}"));
            None
        }
        [(first, _), (second, _), ..] => {
            let message = format!("`{}` has `{}` and `{}` at once", name.name, first.name, second.name);
            fields.reader.say(second.span, "OF0113", message, format!("it is one of {all}"));
            None
        }
    }
}

fn on_error(fields: &mut Fields<'_>) -> OnError {
    let reader = fields.reader;
    let word = fields.get("on_error").and_then(|node| reader.word(node, "`on_error`", &["stop", "skip"]));
    if word == Some("skip") { OnError::Skip } else { OnError::Stop }
}

fn format(fields: &mut Fields<'_>) -> LineFormat {
    let reader = fields.reader;
    let word = fields.get("format").and_then(|node| reader.word(node, "`format`", &["json", "text"]));
    if word == Some("text") { LineFormat::Text } else { LineFormat::Json }
}

/// Reads a duration as the typed layer has it.
pub(super) fn duration(reader: FieldReader<'_>, node: &YamlNode, what: &str) -> Option<i64> {
    reader.duration(node, what).and_then(|ms| i64::try_from(ms).ok())
}

fn flag(fields: &mut Fields<'_>, name: &'static str) -> bool {
    let reader = fields.reader;
    fields.get(name).and_then(|node| reader.bool(node, &format!("`{name}`"))).unwrap_or(false)
}

const WORK: &[&str] = &["filter", "map", "flat_map", "once", "combine", "join", "call"];

/// Runs that a step calls and that are open at a time, in each partition; unless the file says otherwise, and at most.
const CALLS: usize = 16;
const CALLS_MAX: i64 = 10_000;

fn step<'a>(reader: FieldReader<'a>, name: &'a MapKey, mut fields: Fields<'a>) -> Option<StreamStepDecl> {
    let from = fields.get("from").map(|node| words_of(reader, node, "`from`")).unwrap_or_default();
    let is_merge = from.len() > 1 && !WORK.iter().any(|key| fields.has(key));
    let kind = if is_merge { None } else { one_of(&mut fields, name, WORK) };
    let key = fields.get("key").map(|node| expressions(reader, node, "`key`"));
    let window = fields.take("window");
    let ins = fields.take("in");
    let at_most = fields.take("at_most");
    let on_error = on_error(&mut fields);
    if from.is_empty() {
        fields.missing("`from`", "`from: NAME` says what it reads: a source or a step");
    }
    fields.finish();
    let work = match kind {
        None if is_merge => StreamWorkDecl::Merge,
        None => return None,
        Some((of, node)) => {
            let keyed = matches!(of.name.as_str(), "combine" | "join");
            if let Some((window, _)) = window.filter(|_| of.name != "combine") {
                let message = format!("step `{}` has a `window`, which goes with `combine`", name.name);
                reader.say(window.span, "OF0113", message, "");
            }
            if key.is_some() && !keyed {
                let message = format!("step `{}` has a `key`, which goes with `combine` and `join`", name.name);
                reader.say(name.span, "OF0113", message, "");
            }
            for (given, _) in [ins, at_most].into_iter().flatten().filter(|_| of.name != "call") {
                let message = format!("step `{}` has `{}`, which goes with `call`", name.name, given.name);
                reader.say(given.span, "OF0113", message, "");
            }
            match of.name.as_str() {
                "call" => StreamWorkDecl::Call(call(reader, node, ins.map(|(_, node)| node), at_most)?),
                _ => work(reader, name, (of, node), key, window)?,
            }
        }
    };
    Some(StreamStepDecl { name: name.clone(), from, work, on_error })
}

fn call(
    reader: FieldReader<'_>,
    node: &YamlNode,
    ins: Option<&YamlNode>,
    at_most: Option<(&MapKey, &YamlNode)>,
) -> Option<CallDecl> {
    let flow = reader.text(node, "`call`")?;
    let ins = ins.map(|node| crate::syntax::step::expressions(reader, node, "`in`", true)).unwrap_or_default();
    let at_most = match at_most {
        Some((_, node)) => usize::try_from(reader.int(node, "`at_most`", 1, CALLS_MAX)?).ok()?,
        None => CALLS,
    };
    Some(CallDecl { flow, ins, at_most })
}

fn work(
    reader: FieldReader<'_>,
    name: &MapKey,
    (of, node): (&MapKey, &YamlNode),
    key: Option<NamedExpressions>,
    window: Option<(&MapKey, &YamlNode)>,
) -> Option<StreamWorkDecl> {
    Some(match of.name.as_str() {
        "filter" => StreamWorkDecl::Filter(reader.text(node, "`filter`")?),
        "flat_map" => StreamWorkDecl::FlatMap(reader.text(node, "`flat_map`")?),
        "map" => StreamWorkDecl::Map(expressions(reader, node, "`map`")),
        "once" => {
            let mut fields = reader.fields(node, "`once`")?;
            let (id, horizon) = (fields.text("id"), fields.get("horizon"));
            let horizon_ms = horizon.and_then(|node| duration(reader, node, "`horizon`"));
            if id.is_none() || horizon.is_none() {
                fields.missing("`id` and `horizon`", "`once: { id: record.id, horizon: 1h }`");
            }
            fields.finish();
            let horizon_ms = windows::positive(reader, horizon?, "`horizon`", horizon_ms?)?;
            StreamWorkDecl::Once { id: id?, horizon_ms }
        }
        "combine" => {
            let windowing = match window {
                Some((_, node)) => windows::read(reader, node)?,
                None => Windowing::global(),
            };
            let fields = combines(reader, node);
            if fields.is_empty() && reader.report.is_empty() {
                reader.say(of.span, "OF0105", "`combine` gives nothing", "`combine: { hits: count }`");
            }
            StreamWorkDecl::Combine { key: key.unwrap_or_default(), windowing, fields }
        }
        _ => {
            let mut fields = reader.fields(node, "`join`")?;
            let (with, other_key) = (fields.text("from"), fields.text("key"));
            let range = windows::join_range(&mut fields);
            if with.is_none() || other_key.is_none() {
                fields.missing("`from` and `key`", "`join: { from: orders, key: record.user, window: 10m }`");
            }
            fields.finish();
            let Some([(None, key)]) = key.as_deref() else {
                let hint = "`key: record.user` is that of its own records, `join: { key: … }` that of the others";
                reader.say(name.span, "OF0105", format!("step `{}` joins by no key", name.name), hint);
                return None;
            };
            StreamWorkDecl::Join { key: key.clone(), with: with?, other_key: other_key?, range: range? }
        }
    })
}

/// Reads one expression, or several by their names.
fn expressions(reader: FieldReader<'_>, node: &YamlNode, what: &str) -> NamedExpressions {
    if let NodeKind::Scalar(..) = node.what {
        return reader.text(node, what).map(|text| (None, text)).into_iter().collect();
    }
    let one = |(key, node): &(MapKey, YamlNode)| {
        reader.member(&key.name, key.span, "a field");
        Some((Some(key.clone()), reader.text(node, &format!("`{}`", key.name))?))
    };
    reader.entries(node, what).iter().filter_map(one).collect()
}

const COMBINES: &[&str] = &["sum", "min", "max", "mean", "distinct", "top"];

fn combines(reader: FieldReader<'_>, node: &YamlNode) -> Vec<(MapKey, CombineDecl)> {
    let one = |(key, node): &(MapKey, YamlNode)| {
        reader.member(&key.name, key.span, "a field");
        if let NodeKind::Scalar(..) = node.what {
            reader.word(node, &format!("`{}`", key.name), &["count"])?;
            return Some((key.clone(), CombineDecl { kind: CombineKind::Count, of: None }));
        }
        let mut fields = reader.fields(node, format!("field `{}`", key.name))?;
        fields.span = key.span;
        let found = one_of(&mut fields, key, COMBINES);
        let by = fields.text("by");
        fields.finish();
        let (kind, node) = found?;
        let kind = match kind.name.as_str() {
            "top" => CombineKind::Top(usize::try_from(reader.int(node, "`top`", 1, TOP_MAX)?).ok()?),
            "sum" => CombineKind::Sum,
            "min" => CombineKind::Min,
            "max" => CombineKind::Max,
            "mean" => CombineKind::Mean,
            _ => CombineKind::Distinct,
        };
        let is_top = matches!(kind, CombineKind::Top(_));
        if is_top != by.is_some() {
            let hint = "`{ top: 10, by: record.count }`: the ten records with the largest counts";
            let message = if is_top { "`top` sorts `by` something" } else { "`by` goes with `top`" };
            reader.say(key.span, "OF0113", message, hint);
            return None;
        }
        let of = if is_top { by } else { Some(reader.text(node, &format!("`{}`", key.name))?) };
        Some((key.clone(), CombineDecl { kind, of }))
    };
    reader.entries(node, "`combine`").iter().filter_map(one).collect()
}
