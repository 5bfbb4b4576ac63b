//! What a step gives, and where that is found.

use super::{Key, Node, What, fields::Reader};
use crate::{
    source::Text,
    types::{self, Shape},
};

/// An output of a leaf.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    pub(crate) name: Key,
    pub(crate) shape: Shape,
    pub(crate) from: From,
}

/// Where an output is found.
#[derive(Clone, Debug)]
pub(crate) enum From {
    /// Nothing was said.
    Default,
    Path(Text),
    Stdout,
    /// An expression over what was answered.
    Json(Text),
}

/// An output of a graph of steps: an expression, and its type if that was said.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) name: Key,
    pub(crate) value: Text,
    pub(crate) shape: Option<Shape>,
}

/// The outputs of a leaf.
pub(crate) fn read(reader: Reader<'_>, node: &Node) -> Vec<Out> {
    reader.entries(node, "`out`").iter().filter_map(|(key, node)| read_one(reader, key, node)).collect()
}

fn read_one(reader: Reader<'_>, name: &Key, node: &Node) -> Option<Out> {
    reader.member(&name.name, name.span, "an output");
    let out = |shape, from| Some(Out { name: name.clone(), shape, from });
    let What::Map(entries) = &node.what else {
        if node.is_null() {
            let message = format!("output `{}` has no type", name.name);
            reader.say(name.span, "OF0105", message, format!("`{}: file`, for example", name.name));
            return out(Shape::UNCLEAR, From::Stdout);
        }
        return match types::read(reader, node) {
            Some(shape) => out(shape, From::Default),
            None => out(Shape::UNCLEAR, From::Stdout),
        };
    };
    if entries.iter().any(|(key, _)| key.name == "type") {
        return read_long(reader, name, node);
    }
    let [(key, value)] = entries.as_slice() else {
        let hint = "`{ file: name.txt }`, `{ int: stdout }`, or `{ type: T, path: … }`";
        reader.say(node.span, "OF0106", format!("output `{}` cannot be understood", name.name), hint);
        return out(Shape::UNCLEAR, From::Stdout);
    };
    let said = Text { text: key.name.clone(), span: key.span, style: crate::source::Style::Plain };
    let Some(shape) = types::read_text(reader, &said) else { return out(Shape::UNCLEAR, From::Stdout) };
    let Some(value) = reader.text(value, &format!("`{}`", key.name)) else { return out(shape, From::Stdout) };
    let from = match is_path(&shape) {
        true => From::Path(value),
        false if value.text == "stdout" => From::Stdout,
        false => From::Json(value),
    };
    out(shape, from)
}

fn read_long(reader: Reader<'_>, name: &Key, node: &Node) -> Option<Out> {
    let mut fields = reader.fields(node, format!("output `{}`", name.name))?;
    let shape = fields.get("type").and_then(|node| types::read(reader, node));
    let (path, json) = (fields.text("path"), fields.text("json"));
    fields.finish();
    let from = match (path, json) {
        (Some(path), None) => From::Path(path),
        (None, Some(json)) if json.text == "stdout" => From::Stdout,
        (None, Some(json)) => From::Json(json),
        (None, None) => From::Default,
        (Some(_), Some(json)) => {
            reader.say(
                json.span,
                "OF0113",
                format!("output `{}` has `path` and `json`", name.name),
                "it has one place",
            );
            return None;
        }
    };
    Some(Out { name: name.clone(), shape: shape.unwrap_or(Shape::UNCLEAR), from })
}

/// Whether values of this type are found as files.
pub(crate) fn is_path(shape: &Shape) -> bool {
    use onceflow_core::model::Type;
    match shape {
        Shape::Plain(ty) => matches!(ty, Type::File | Type::Directory),
        Shape::List(inner) | Shape::Option(inner) => is_path(inner),
        Shape::Enum(_) | Shape::Record(_) => false,
    }
}

/// The outputs of a graph: `name: reference`, `name: CEL`, or `name: { TYPE: CEL }`.
pub(crate) fn read_given(reader: Reader<'_>, node: &Node, what: &str) -> Vec<Given> {
    let mut found = Vec::new();
    for (name, node) in reader.entries(node, what) {
        reader.member(&name.name, name.span, "an output");
        let (shape, node) = match &node.what {
            What::Map(entries) if entries.len() == 1 => {
                let (key, value) = &entries[0];
                let said = Text { text: key.name.clone(), span: key.span, style: crate::source::Style::Plain };
                (types::read_text(reader, &said), value)
            }
            _ => (None, node),
        };
        if let Some(value) = reader.text(node, &format!("output `{}`", name.name)) {
            found.push(Given { name: name.clone(), value, shape });
        }
    }
    found
}
