//! An HTTP call: its address, its content, and the accepted statuses.

use super::{MapKey, NodeKind, YamlNode, fields::FieldReader};
use crate::source::{Span, Text};
use onceflow_exec::action::StatusRange;

/// A declared HTTP call.
#[derive(Clone, Debug)]
pub(crate) struct HttpDecl {
    pub(crate) method: String,
    pub(crate) url: Text,
    pub(crate) headers: Vec<(MapKey, Text)>,
    pub(crate) body: Option<HttpBodyDecl>,
    pub(crate) key_header: Option<String>,
    pub(crate) accept: Vec<StatusRange>,
}

/// The body of the request.
#[derive(Clone, Debug)]
pub(crate) enum HttpBodyDecl {
    /// JSON whose texts may have holes.
    Json(YamlNode),
    Text(Text),
    /// An expression that gives a file.
    File(Text),
}

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

pub(crate) fn read(reader: FieldReader<'_>, node: &YamlNode) -> Option<HttpDecl> {
    let mut fields = reader.fields(node, "`http`")?;
    let method = fields.get("method").and_then(|node| reader.word(node, "`method`", METHODS));
    let url = fields.text("url");
    let headers = fields.get("headers").map(|node| read_headers(reader, node)).unwrap_or_default();
    let (json, text, file) = (fields.take("json"), fields.take("text"), fields.take("file"));
    let key_header = fields.get("key_header").and_then(|node| header_name(reader, node));
    let accept = fields.get("accept").map(|node| read_accept(reader, node)).unwrap_or_default();
    if url.is_none() {
        fields.missing("`url`", "");
    }
    fields.finish();
    let several = [json, text, file].into_iter().flatten().collect::<Vec<_>>();
    if several.len() > 1 {
        reader.say(several[1].0.span, "OF0136", "a call sends one of `json`, `text` and `file`", "");
    }
    let body = match (json, text, file) {
        (Some((_, node)), ..) => Some(HttpBodyDecl::Json(node.clone())),
        (_, Some((_, node)), _) => reader.text(node, "`text`").map(HttpBodyDecl::Text),
        (_, _, Some((_, node))) => reader.text(node, "`file`").map(HttpBodyDecl::File),
        _ => None,
    };
    let method = method.unwrap_or(if body.is_some() { "POST" } else { "GET" }).to_owned();
    Some(HttpDecl { method, url: url?, headers, body, key_header, accept })
}

fn is_header(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn check_header(reader: FieldReader<'_>, name: &str, span: Span) {
    if !is_header(name) {
        reader.say(span, "OF0136", format!("`{name}` cannot be the name of a header"), "");
    }
}

fn header_name(reader: FieldReader<'_>, node: &YamlNode) -> Option<String> {
    let text = reader.text(node, "`key_header`")?;
    check_header(reader, &text.text, text.span);
    Some(text.text)
}

fn read_headers(reader: FieldReader<'_>, node: &YamlNode) -> Vec<(MapKey, Text)> {
    let mut found = Vec::new();
    for (key, node) in reader.entries(node, "`headers`") {
        check_header(reader, &key.name, key.span);
        found.extend(reader.text(node, &format!("`{}`", key.name)).map(|text| (key.clone(), text)));
    }
    found
}

fn read_accept(reader: FieldReader<'_>, node: &YamlNode) -> Vec<StatusRange> {
    let nodes = match &node.what {
        NodeKind::List(nodes) => nodes.as_slice(),
        _ => std::slice::from_ref(node),
    };
    nodes.iter().filter_map(|node| read_status(reader, node)).collect()
}

fn read_status(reader: FieldReader<'_>, node: &YamlNode) -> Option<StatusRange> {
    let text = reader.text(node, "`accept`")?;
    let status = |text: &str| text.trim().parse::<u16>().ok().filter(|status| (100..600).contains(status));
    let range = match text.text.split_once('-') {
        Some((from, to)) => status(from).zip(status(to)),
        None => status(&text.text).map(|status| (status, status)),
    };
    match range.filter(|(from, to)| from <= to) {
        Some((from, to)) => Some(StatusRange { from, to }),
        None => {
            let message = format!("`{}` is not a status", text.text);
            reader.say(node.span, "OF0111", message, "`404`, or a range: `200-299`");
            None
        }
    }
}
