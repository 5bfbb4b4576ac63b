//! Reads the steps of a stream.

use super::{
    NamedExpressions, OnError, StreamStepDecl, StreamWorkDecl, TableDecl, TableOrigin,
    combines::{self, SHORT},
    duration, on_error, one_of,
};
use crate::{
    stream::{
        call::CallDecl,
        given::{self, PathText},
        windows,
    },
    syntax::{
        MapKey, NodeKind, YamlNode,
        fields::{FieldReader, Fields},
        step::words_of,
    },
    types,
};
use onceflow_stream::window::Windowing;

const WORK: &[&str] = &["map", "flat_map", "once", "combine", "join", "enrich", "call"];

/// Runs that a step calls and that are open at a time, in each partition; unless the file says otherwise, and at most.
const CALLS: usize = 16;
const CALLS_MAX: i64 = 10_000;

/// Work that goes by a key.
const KEYED: &[&str] = &["combine", "join", "enrich"];

pub(super) fn step<'a>(reader: FieldReader<'a>, name: &'a MapKey, mut fields: Fields<'a>) -> Option<StreamStepDecl> {
    let from = fields.get("from").map(|node| words_of(reader, node, "`from`")).unwrap_or_default();
    let filter = fields.text("filter");
    // The filter is taken already: here it is only a word of the message that there is no work.
    let works: Vec<&'static str> = ["filter"].iter().chain(WORK).chain(SHORT).copied().collect();
    let is_plain = (from.len() > 1 || filter.is_some()) && !works.iter().any(|key| fields.has(key));
    let kind = if is_plain { None } else { one_of(&mut fields, name, &works) };
    let key = fields.get("key").map(|node| expressions(reader, node, "`key`"));
    let window = fields.take("window");
    let (ins, at_most) = (fields.take("in"), fields.take("at_most"));
    let on_error = on_error(&mut fields);
    if from.is_empty() {
        fields.missing("`from`", "`from: NAME` says what it reads: a source or a step");
    }
    fields.finish();
    let of = kind.map_or("filter", |(of, _)| of.name.as_str());
    let combines = of == "combine" || SHORT.contains(&of);
    let goes_with = |is_given: bool, what: &str, of: &str| {
        if is_given {
            let message = format!("step `{}` has `{what}`, which goes with {of}", name.name);
            reader.say(name.span, "OF0113", message, "");
        }
    };
    if let Some((window, _)) = window.filter(|_| !combines) {
        let message = format!("step `{}` has a `window`, which goes with `combine`", name.name);
        reader.say(window.span, "OF0113", message, "");
    }
    goes_with(key.is_some() && !combines && !KEYED.contains(&of), "key", "`combine`, `join` and `enrich`");
    for (given, _) in [ins, at_most].into_iter().flatten().filter(|_| of != "call") {
        let message = format!("step `{}` has `{}`, which goes with `call`", name.name, given.name);
        reader.say(given.span, "OF0113", message, "");
    }
    if of == "call" && on_error == OnError::Divert {
        let hint = "`skip` leaves a run that failed to its history";
        reader.say(name.span, "OF0113", format!("step `{}` calls a flow, so it cannot divert", name.name), hint);
    }
    let work = match kind {
        None if is_plain => StreamWorkDecl::Merge,
        None => return None,
        Some((_, node)) if of == "call" => {
            StreamWorkDecl::Call(call(reader, node, ins.map(|(_, node)| node), at_most)?)
        }
        Some((of, node)) if combines => {
            let windowing = match window {
                Some((_, node)) => windows::read(reader, node)?,
                None => Windowing::global(),
            };
            let fields = match of.name.as_str() {
                "combine" => combines::fields(reader, node),
                _ => combines::short(reader, of, node).into_iter().collect(),
            };
            if fields.is_empty() && reader.report.is_empty() {
                reader.say(of.span, "OF0105", "`combine` gives nothing", "`combine: { hits: count }`");
            }
            combines::check_merges(reader, &fields, windowing);
            StreamWorkDecl::Combine { key: key.unwrap_or_default(), windowing, fields }
        }
        Some((of, node)) => work(reader, name, (of, node), key)?,
    };
    Some(StreamStepDecl { name: name.clone(), from, filter, work, on_error })
}

fn call(
    reader: FieldReader<'_>,
    node: &YamlNode,
    ins: Option<&YamlNode>,
    at_most: Option<(&MapKey, &YamlNode)>,
) -> Option<CallDecl> {
    let flow = reader.text(node, "`call`")?;
    let ins = ins.map(|node| crate::syntax::step::expressions(reader, node, "`in`", true));
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
) -> Option<StreamWorkDecl> {
    Some(match of.name.as_str() {
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
        "enrich" => {
            let mut fields = reader.fields(node, "`enrich`")?;
            let found = one_of(&mut fields, of, &["file", "from"]);
            let (table_key, ty) = (fields.text("key"), fields.get("record").and_then(|node| types::read(reader, node)));
            if table_key.is_none() {
                fields.missing("`key`", "`enrich: { file: users.csv, key: record.id }`");
            }
            fields.finish();
            let (what, node) = found?;
            let from = match what.name.as_str() {
                "file" => match given::path(reader, reader.text(node, "`file`")?)? {
                    PathText::Literal(path) => TableOrigin::File(path),
                    PathText::Given(hole) => TableOrigin::Given(hole),
                },
                _ => TableOrigin::Stream(reader.text(node, "`from`")?),
            };
            if let (TableOrigin::Stream(_), Some(_)) = (&from, &ty) {
                let message = "the rows of a table from a stream have the type of its records";
                reader.say(of.span, "OF0113", message, "`record` goes with `file`");
            }
            let [key, table_key] = keys(reader, name, key, table_key, "enrich")?;
            StreamWorkDecl::Enrich { key, table: TableDecl { from, key: table_key, ty: ty.map(|decl| decl.ty()) } }
        }
        _ => {
            let mut fields = reader.fields(node, "`join`")?;
            let (with, other_key) = (fields.text("from"), fields.text("key"));
            let range = windows::join_range(&mut fields);
            if with.is_none() || other_key.is_none() {
                fields.missing("`from` and `key`", "`join: { from: orders, key: record.user, window: 10m }`");
            }
            fields.finish();
            let [key, other_key] = keys(reader, name, key, other_key, "join")?;
            StreamWorkDecl::Join { key, with: with?, other_key, range: range? }
        }
    })
}

/// The keys of a step's own records, and of the others.
fn keys(
    reader: FieldReader<'_>,
    name: &MapKey,
    key: Option<NamedExpressions>,
    other: Option<crate::source::Text>,
    of: &str,
) -> Option<[crate::source::Text; 2]> {
    let Some([(None, key)]) = key.as_deref() else {
        let hint = format!("`key: record.user` is that of its own records, `{of}: {{ key: … }}` that of the others");
        reader.say(name.span, "OF0105", format!("step `{}` has no key", name.name), hint);
        return None;
    };
    Some([key.clone(), other?])
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
