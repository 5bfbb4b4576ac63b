//! Reads the ends of a stream: its sources and its sinks.

use super::{
    HORIZON_MS, IDLE_MS, OnError, RecordOrigin, RecordTarget, StreamSinkDecl, StreamSourceDecl, duration, flag, format,
    on_error, one_of,
};
use crate::{
    stream::windows,
    syntax::{
        MapKey, YamlNode,
        fields::{FieldReader, Fields, clipped},
    },
    types,
};
use onceflow_stream::{HttpPayload, HttpSink};
use std::net::{Ipv4Addr, SocketAddr};

pub(super) fn source<'a>(
    reader: FieldReader<'a>,
    name: &'a MapKey,
    mut fields: Fields<'a>,
) -> Option<StreamSourceDecl> {
    let kind = one_of(&mut fields, name, &["file", "stdin", "generate", "http"]);
    let (id, horizon) = (fields.text("id"), fields.get("horizon"));
    let follow = flag(&mut fields, "follow");
    let idle_ms = fields.get("idle").and_then(|node| reader.duration(node, "`idle`"));
    let count = fields.get("count").and_then(|node| reader.int(node, "`count`", 0, i64::MAX));
    let every_ms = fields.get("every").and_then(|node| reader.duration(node, "`every`"));
    let (format, ty) = (format(&mut fields), fields.get("record").and_then(|node| types::read(reader, node)));
    let time = fields.text("time");
    let disorder = fields.get("out_of_order").and_then(|node| duration(reader, node, "`out_of_order`"));
    let on_error = on_error(&mut fields);
    fields.finish();
    let (key, node) = kind?;
    let only = |is_given: bool, what: &str, of: &str| {
        if is_given && key.name != of {
            let message = format!("source `{}` has `{what}`, which goes with `{of}`", name.name);
            reader.say(name.span, "OF0113", message, "");
        }
    };
    only(follow || idle_ms.is_some(), if follow { "follow" } else { "idle" }, "file");
    only(count.is_some() || every_ms.is_some(), if count.is_some() { "count" } else { "every" }, "generate");
    only(id.is_some() || horizon.is_some(), if id.is_some() { "id" } else { "horizon" }, "http");
    if key.name == "http" && on_error == OnError::Skip {
        let message = format!("source `{}` has `on_error: skip`, which does not go with `http`", name.name);
        reader.say(name.span, "OF0113", message, "a client is told what is wrong with its records");
    }
    let origin = match key.name.as_str() {
        "http" => {
            let address = address(reader, node)?;
            let horizon_ms = match horizon {
                Some(node) => windows::positive(reader, node, "`horizon`", duration(reader, node, "`horizon`")?)?,
                None => HORIZON_MS,
            };
            RecordOrigin::Http { address, id, horizon_ms }
        }
        "file" => {
            let pattern = reader.text(node, "`file`")?;
            RecordOrigin::Files { pattern, follow, idle_ms: idle_ms.unwrap_or(IDLE_MS) }
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
fn address(reader: FieldReader<'_>, node: &YamlNode) -> Option<SocketAddr> {
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
            format!("every client that reaches {address} can send records: the source asks for no password"),
        );
    }
    Some(address)
}

fn must_be_true(reader: FieldReader<'_>, node: &YamlNode, what: &str) {
    if reader.bool(node, what) == Some(false) {
        reader.say(node.span, "OF0112", format!("{what} can only be true"), "leave it out otherwise");
    }
}

pub(super) fn sink<'a>(reader: FieldReader<'a>, name: &'a MapKey, mut fields: Fields<'a>) -> Option<StreamSinkDecl> {
    let from = fields.text("from");
    let kind = one_of(&mut fields, name, &["file", "stdout", "http"]);
    let send = fields.get("send").map(|node| (node, reader.word(node, "`send`", &["record", "lines"])));
    let format = format(&mut fields);
    if from.is_none() {
        fields.missing("`from`", "`from: NAME` says what it writes: a source or a step");
    }
    fields.finish();
    let (key, node) = kind?;
    if let Some((send, _)) = send.filter(|_| key.name != "http") {
        reader.say(send.span, "OF0113", format!("sink `{}` has `send`, which goes with `http`", name.name), "");
    }
    let to = match key.name.as_str() {
        "file" => RecordTarget::File(reader.text(node, "`file`")?),
        "http" => {
            let url = reader.text(node, "`http`")?;
            if let Err(why) = HttpSink::new(&url.text, "") {
                reader.say(url.span, "OF0111", why, "`http: https://example.org/records`");
                return None;
            }
            let payload = match send {
                Some((_, Some("lines"))) => HttpPayload::Lines,
                _ => HttpPayload::Record,
            };
            RecordTarget::Http { url, payload }
        }
        _ => {
            must_be_true(reader, node, "`stdout`");
            RecordTarget::Stdout
        }
    };
    Some(StreamSinkDecl { name: name.clone(), from: from?, format, to })
}
