//! Reads the ends of a stream: its sources and its sinks.

use super::{
    DatabaseDecl, HORIZON_MS, IDLE_MS, OnError, RecordOrigin, RecordTarget, SqlDecl, StreamSinkDecl, StreamSourceDecl,
    duration, flag, format, on_error, one_of,
};
use crate::{
    source::Text,
    stream::{
        given::{self, GivenUse, PathText},
        secret::{self, SecretTemplate},
        windows,
    },
    syntax::{
        MapKey, YamlNode,
        fields::{FieldReader, Fields, clipped},
        step::words_of,
    },
    types,
};
use onceflow_stream::{DatedName, HttpPayload, HttpSink};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Component, Path, PathBuf},
};

pub(super) fn source<'a>(
    reader: FieldReader<'a>,
    name: &'a MapKey,
    mut fields: Fields<'a>,
    secrets: &[Text],
) -> Option<StreamSourceDecl> {
    let kind = one_of(&mut fields, name, &["file", "directory", "stdin", "generate", "http"]);
    let subdirectories = flag(&mut fields, "subdirectories");
    let (id, horizon) = (fields.text("id"), fields.get("horizon"));
    let required = fields.get("headers").map(|node| headers(reader, node, secrets));
    let follow = flag(&mut fields, "follow");
    let idle_ms = fields.get("idle").and_then(|node| reader.duration(node, "`idle`"));
    let count = fields.get("count").and_then(|node| reader.int(node, "`count`", 0, i64::MAX));
    let every_ms = fields.get("every").and_then(|node| reader.duration(node, "`every`"));
    let (format, ty) = (format(&mut fields), fields.get("record").and_then(|node| types::read(reader, node)));
    let time = fields.text("time");
    let lateness = fields.get("lateness").map(|node| duration(reader, node, "`lateness`"));
    let earlier_name = fields.take("out_of_order");
    if let Some((key, _)) = earlier_name {
        match lateness {
            None => reader.warn(key.span, String::from("`out_of_order` is called `lateness` now")),
            Some(_) => {
                reader.say(key.span, "OF0113", "`out_of_order` is an earlier name of `lateness`", "leave it out");
            }
        }
    }
    let disorder =
        lateness.or_else(|| earlier_name.map(|(_, node)| duration(reader, node, "`out_of_order`"))).flatten();
    let on_error = on_error(&mut fields);
    fields.finish();
    let (key, node) = kind?;
    let only = |is_given: bool, what: &str, of: &str| {
        let is_it = key.name == of || of == "file" && key.name == "directory";
        if is_given && !is_it {
            let message = format!("source `{}` has `{what}`, which goes with `{of}`", name.name);
            reader.say(name.span, "OF0113", message, "");
        }
    };
    only(follow || idle_ms.is_some(), if follow { "follow" } else { "idle" }, "file");
    only(subdirectories, "subdirectories", "directory");
    only(count.is_some() || every_ms.is_some(), if count.is_some() { "count" } else { "every" }, "generate");
    only(id.is_some() || horizon.is_some(), if id.is_some() { "id" } else { "horizon" }, "http");
    only(required.is_some(), "headers", "http");
    if key.name == "http" && on_error != OnError::Stop {
        let message = format!("source `{}` has `on_error`, which does not go with `http`", name.name);
        reader.say(name.span, "OF0113", message, "a client is told what is wrong with its records");
    }
    let origin = match key.name.as_str() {
        "http" => {
            let headers = required.unwrap_or_default();
            let address = address(reader, node, !headers.is_empty())?;
            let horizon_ms = match horizon {
                Some(node) => windows::positive(reader, node, "`horizon`", duration(reader, node, "`horizon`")?)?,
                None => HORIZON_MS,
            };
            RecordOrigin::Http { address, id, horizon_ms, headers }
        }
        "file" | "directory" => {
            let idle_ms = idle_ms.unwrap_or(IDLE_MS);
            let of = if key.name == "file" { GivenUse::Lines } else { GivenUse::Directory };
            match given::path(reader, reader.text(node, &format!("`{}`", key.name))?)? {
                PathText::Given(_) if follow => {
                    let message = format!("source `{}` reads what it is given to its end", name.name);
                    reader.say(name.span, "OF0113", message, "leave `follow` out");
                    return None;
                }
                PathText::Given(hole) => RecordOrigin::Given { hole, of, subdirectories },
                PathText::Literal(pattern) if of == GivenUse::Lines => RecordOrigin::Files { pattern, follow, idle_ms },
                PathText::Literal(path) => RecordOrigin::Directory { path, subdirectories, follow, idle_ms },
            }
        }
        "stdin" => {
            must_be_true(reader, node, "`stdin`");
            RecordOrigin::Stdin
        }
        _ => RecordOrigin::Generate {
            record: reader.text(node, "`generate`")?,
            count: count.and_then(|count| u64::try_from(count).ok()),
            every_ms: every_ms.unwrap_or(0),
        },
    };
    let ty = ty.map(|decl| decl.ty());
    Some(StreamSourceDecl {
        name: name.clone(),
        origin,
        format,
        ty,
        time,
        out_of_order_ms: disorder.unwrap_or(0),
        on_error,
    })
}

/// Reads where a source listens: a port, on this machine only, or an address with a port.
fn address(reader: FieldReader<'_>, node: &YamlNode, asks: bool) -> Option<SocketAddr> {
    let text = reader.text(node, "`http`")?;
    let port = text.text.parse::<u16>().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let Ok(address) = port.or_else(|_| text.text.replace("localhost:", "127.0.0.1:").parse::<SocketAddr>()) else {
        let hint = "a port, `8080`, for clients on this machine; or an address with a port, `0.0.0.0:8080`";
        reader.say(node.span, "OF0111", format!("`http` cannot be `{}`", clipped(&text.text)), hint);
        return None;
    };
    if !address.ip().is_loopback() {
        reader.warn(
            node.span,
            match asks {
                true => {
                    format!("what clients send to {address}, their secret too, is not encrypted: put a proxy in front")
                }
                false => {
                    format!("every client that reaches {address} can send records: the source asks for no password")
                }
            },
        );
    }
    Some(address)
}

fn must_be_true(reader: FieldReader<'_>, node: &YamlNode, what: &str) {
    if reader.bool(node, what) == Some(false) {
        reader.say(node.span, "OF0112", format!("{what} can only be true"), "leave it out otherwise");
    }
}

/// The keys of sinks that go with one kind only.
const SINK_KEYS: &[(&str, &[&str])] = &[
    ("send", &["http"]),
    ("headers", &["http"]),
    ("password", &["postgres"]),
    ("table", &["sqlite", "postgres"]),
    ("key", &["sqlite", "postgres"]),
];

pub(super) fn sink<'a>(
    reader: FieldReader<'a>,
    name: &'a MapKey,
    mut fields: Fields<'a>,
    secrets: &[Text],
) -> Option<StreamSinkDecl> {
    let from = fields.text("from");
    let kind = one_of(&mut fields, name, &["file", "stdout", "http", "sqlite", "postgres"]);
    for (only, of) in SINK_KEYS {
        if fields.has(only) && kind.is_some_and(|(kind, _)| !of.contains(&kind.name.as_str())) {
            let of = crate::words::list(of.iter().copied());
            reader.say(name.span, "OF0113", format!("sink `{}` has `{only}`, which goes with {of}", name.name), "");
        }
    }
    let send = fields.get("send").and_then(|node| reader.word(node, "`send`", &["record", "lines"]));
    let headers = fields.get("headers").map(|node| headers(reader, node, secrets)).unwrap_or_default();
    let password = fields.text("password").and_then(|text| secret::read(reader, &text, secrets));
    let table = fields.text("table");
    let key = fields.get("key").map(|node| words_of(reader, node, "`key`")).unwrap_or_default();
    let has_format = fields.has("format");
    let format = format(&mut fields);
    if from.is_none() {
        fields.missing("`from`", "`from: NAME` says what it writes: a source or a step");
    }
    let is_sql = kind.is_some_and(|(kind, _)| matches!(kind.name.as_str(), "sqlite" | "postgres"));
    if is_sql && table.is_none() {
        fields.missing("`table`", "`table: counts` says where its records go, a row each");
    }
    if is_sql && has_format {
        reader.say(name.span, "OF0113", format!("sink `{}` has a `format`, and writes rows", name.name), "");
    }
    fields.finish();
    let (kind, node) = kind?;
    let to = match kind.name.as_str() {
        "file" => file(reader, &reader.text(node, "`file`")?)?,
        "http" => {
            let url = reader.text(node, "`http`")?;
            if let Err(why) = HttpSink::new(&url.text, "") {
                reader.say(url.span, "OF0111", why, "`http: https://example.org/records`");
                return None;
            }
            let payload = if send == Some("lines") { HttpPayload::Lines } else { HttpPayload::Record };
            RecordTarget::Http { url, payload, headers }
        }
        "sqlite" => {
            let database = DatabaseDecl::Sqlite(reader.text(node, "`sqlite`")?);
            RecordTarget::Sql(SqlDecl { database, table: table?, key })
        }
        "postgres" => {
            let database = DatabaseDecl::Postgres(reader.text(node, "`postgres`")?, password);
            RecordTarget::Sql(SqlDecl { database, table: table?, key })
        }
        _ => {
            must_be_true(reader, node, "`stdout`");
            RecordTarget::Stdout
        }
    };
    Some(StreamSinkDecl { name: name.clone(), from: from?, format, to })
}

/// Refuses two sinks of one file: each would take the bytes of the other for its own.
pub(super) fn check_files(reader: FieldReader<'_>, sinks: &[StreamSinkDecl]) {
    for (at, sink) in sinks.iter().enumerate() {
        let shares = |before: &&StreamSinkDecl| match (&before.to, &sink.to) {
            (RecordTarget::File(one), RecordTarget::File(other)) => one == other,
            (RecordTarget::File(file), RecordTarget::Dated(dated))
            | (RecordTarget::Dated(dated), RecordTarget::File(file)) => dated.is_name(file),
            (RecordTarget::Dated(one), RecordTarget::Dated(other)) => one.meets(other),
            _ => false,
        };
        if let Some(before) = sinks[..at].iter().find(shares) {
            let message = format!("sinks `{}` and `{}` write to the same file", before.name.name, sink.name.name);
            let hint = "a file for each; or one sink of a step that reads both: `from: [a, b]`";
            reader.say(sink.name.span, "OF0113", message, hint);
        }
    }
}

/// Reads the name of a file, which may have a date.
fn file(reader: FieldReader<'_>, text: &Text) -> Option<RecordTarget> {
    // `./a` and `a` are one file.
    let path: PathBuf = Path::new(&text.text).components().filter(|part| *part != Component::CurDir).collect();
    let name = path.to_str().expect("a part of a text is a text");
    match DatedName::parse(name) {
        Ok(Some(dated)) => Some(RecordTarget::Dated(dated)),
        Ok(None) => Some(RecordTarget::File(DatedName::unescaped(name))),
        Err(why) => {
            let hint = "`top-%Y%m%d.jsonl` has year, month and day of its records, `%H`, `%M` and `%S` are hour, minute \
                        and second, and `%%` is `%`";
            reader.say(
                text.span,
                "OF0165",
                format!("`{}` cannot be the name of files: {why}", clipped(&text.text)),
                hint,
            );
            None
        }
    }
}

fn headers(reader: FieldReader<'_>, node: &YamlNode, secrets: &[Text]) -> Vec<(String, SecretTemplate)> {
    let one = |(key, node): &(MapKey, YamlNode)| {
        if let Err(why) = HttpSink::is_header(&key.name) {
            reader.say(key.span, "OF0108", why, "`headers: { Authorization: Bearer … }`");
            return None;
        }
        let text = reader.text(node, &format!("header `{}`", key.name))?;
        Some((key.name.clone(), secret::read(reader, &text, secrets)?))
    };
    reader.entries(node, "`headers`").iter().filter_map(one).collect()
}
