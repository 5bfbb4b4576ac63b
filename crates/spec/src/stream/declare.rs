//! Reads a stream file into declarations. Names are not resolved yet.

mod combines;
mod ends;
mod steps;

use super::{
    call::CallDecl,
    given::{GivenUse, InputHole},
    secret::SecretTemplate,
};
use crate::{
    FlowInput,
    inputs::defaults,
    source::{ScalarQuoting, Span, Text},
    syntax::{
        MapKey, NodeKind, YamlNode,
        fields::{FieldReader, Fields},
        flow::{self, file_name},
    },
    words,
};
pub(super) use combines::{CombineDecl, CombineKind, FoldDecl};
use onceflow_core::model::Type;
use onceflow_stream::{DatedName, HttpPayload, step::join::JoinRange, window::Windowing};
use std::net::SocketAddr;

/// The declarations of a stream file.
pub(super) struct StreamDecl {
    pub(super) name: Text,
    pub(super) description: Option<String>,
    /// The inputs that a step of a flow gives to it.
    pub(super) inputs: Vec<FlowInput>,
    pub(super) partitions: u16,
    pub(super) bundle_records: Option<usize>,
    /// Variables of the environment whose values its sources and sinks may use.
    pub(super) secrets: Vec<Text>,
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
    /// It goes to a side output, with the reason.
    Divert,
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
    Files {
        pattern: Text,
        follow: bool,
        idle_ms: u64,
    },
    Directory {
        path: Text,
        subdirectories: bool,
        follow: bool,
        idle_ms: u64,
    },
    /// A value that is given: a file, a list of files, or a directory.
    Given {
        hole: InputHole,
        of: GivenUse,
        subdirectories: bool,
    },
    Stdin,
    Generate {
        record: Text,
        count: Option<u64>,
        every_ms: u64,
    },
    Http {
        address: SocketAddr,
        id: Option<Text>,
        horizon_ms: i64,
        headers: Vec<(String, SecretTemplate)>,
    },
}

/// A step.
pub(super) struct StreamStepDecl {
    pub(super) name: MapKey,
    pub(super) from: Vec<Text>,
    /// Records for which it is false do not come to the work.
    pub(super) filter: Option<Text>,
    pub(super) work: StreamWorkDecl,
    pub(super) on_error: OnError,
}

/// Expressions, by the names of the fields they give; a single one without a name is the whole.
pub(super) type NamedExpressions = Vec<(Option<MapKey>, Text)>;

/// The work of a step.
pub(super) enum StreamWorkDecl {
    /// Nothing: what it reads is one stream, and filtered.
    Merge,
    Map(NamedExpressions),
    FlatMap(Text),
    Once {
        id: Text,
        horizon_ms: i64,
    },
    Combine {
        key: NamedExpressions,
        windowing: Windowing,
        fields: Vec<(MapKey, CombineDecl)>,
    },
    Join {
        key: Text,
        with: Text,
        other_key: Text,
        range: JoinRange,
    },
    Enrich {
        key: Text,
        table: TableDecl,
    },
    Call(CallDecl),
}

/// The table that a step looks up its records in.
pub(super) struct TableDecl {
    pub(super) from: TableOrigin,
    pub(super) key: Text,
    /// The type of its rows, if it is declared.
    pub(super) ty: Option<Type>,
}

/// Where the rows of a table come from.
pub(super) enum TableOrigin {
    /// A file: CSV, TSV, a list in JSON, or JSON on each line.
    File(Text),
    /// Such a file that is given.
    Given(InputHole),
    /// The latest record of each key.
    Stream(Text),
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
    File(String),
    Dated(DatedName),
    Stdout,
    Http { url: Text, payload: HttpPayload, headers: Vec<(String, SecretTemplate)> },
    Sql(SqlDecl),
}

/// A table of a database that a sink writes.
#[derive(Clone, Debug)]
pub(super) struct SqlDecl {
    pub(super) database: DatabaseDecl,
    pub(super) table: Text,
    pub(super) key: Vec<Text>,
}

/// A database.
#[derive(Clone, Debug)]
pub(super) enum DatabaseDecl {
    /// A file of SQLite, relative to the stream file.
    Sqlite(Text),
    /// A server, and the password.
    Postgres(Text, Option<SecretTemplate>),
}

/// Partitions of a stage, at most: each has rows of its own in the store.
const PARTITIONS_MAX: i64 = 256;

/// Partitions of a stage, unless the file says otherwise.
const PARTITIONS: u16 = 4;

/// Records of a commit, at most: they are in memory together.
const BUNDLE_MAX: i64 = 1_000_000;

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
    let inputs = fields.get("inputs").map(|node| flow::read_inputs(reader, node)).unwrap_or_default();
    let inputs = defaults::read(reader, &inputs);
    Some(read_parts(reader, fields, (name.unwrap_or_else(unnamed), inputs)))
}

/// Reads a stream that stands in a step of a flow; `None` if the node is no stream at all.
pub(super) fn read_inline(reader: FieldReader<'_>, node: &YamlNode, span: Span) -> Option<StreamDecl> {
    let mut fields = reader.fields(node, "a stream")?;
    fields.span = span;
    let name = Text { text: "stream".into(), span, style: ScalarQuoting::Plain };
    Some(read_parts(reader, fields, (name, Vec::new())))
}

fn read_parts<'a>(
    reader: FieldReader<'a>,
    mut fields: Fields<'a>,
    (name, inputs): (Text, Vec<FlowInput>),
) -> StreamDecl {
    let partitions = fields.get("partitions").and_then(|node| reader.int(node, "`partitions`", 1, PARTITIONS_MAX));
    let bundle = fields.get("bundle").and_then(|node| reader.int(node, "`bundle`", 1, BUNDLE_MAX));
    let secrets = fields.get("secrets").map(|node| crate::syntax::flow::read_secrets(reader, node)).unwrap_or_default();
    let (sources, steps) = (fields.get("sources"), fields.get("steps"));
    let stream = StreamDecl {
        name,
        inputs,
        description: fields.text("description").map(|text| text.text),
        partitions: partitions.and_then(|count| u16::try_from(count).ok()).unwrap_or(PARTITIONS),
        bundle_records: bundle.and_then(|records| usize::try_from(records).ok()),
        names: [sources, steps].into_iter().flatten().flat_map(keys).collect(),
        sources: each(reader, sources, "`sources`", |reader, name, fields| {
            ends::source(reader, name, fields, &secrets)
        }),
        steps: each(reader, steps, "`steps`", steps::step),
        sinks: each(reader, fields.get("sinks"), "`sinks`", |reader, name, fields| {
            ends::sink(reader, name, fields, &secrets)
        }),
        secrets: secrets.clone(),
    };
    ends::check_files(reader, &stream.sinks);
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
    stream
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
    let words = &["stop", "skip", "divert"];
    match fields.get("on_error").and_then(|node| reader.word(node, "`on_error`", words)) {
        Some("skip") => OnError::Skip,
        Some("divert") => OnError::Divert,
        _ => OnError::Stop,
    }
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
