//! The outputs of a step, and their places.

use super::{MapKey, NodeKind, YamlNode, fields::FieldReader};
use crate::{
    source::Text,
    types::{self, TypeDecl},
};

/// An output of a leaf.
#[derive(Clone, Debug)]
pub(crate) struct LeafOutput {
    pub(crate) name: MapKey,
    pub(crate) shape: TypeDecl,
    pub(crate) from: OutputPlace,
}

/// The place of an output.
#[derive(Clone, Debug)]
pub(crate) enum OutputPlace {
    /// No place was declared.
    Default,
    Path(Text),
    Stdout,
    /// An expression over the answer.
    Json(Text),
}

/// An output of a graph of steps: an expression, and its type if that is declared.
#[derive(Clone, Debug)]
pub(crate) struct OutputDecl {
    pub(crate) name: MapKey,
    pub(crate) value: Text,
    pub(crate) shape: Option<TypeDecl>,
}

/// Reads the outputs of a leaf.
pub(crate) fn read(reader: FieldReader<'_>, node: &YamlNode) -> Vec<LeafOutput> {
    reader.entries(node, "`out`").iter().filter_map(|(key, node)| read_one(reader, key, node)).collect()
}

fn read_one(reader: FieldReader<'_>, name: &MapKey, node: &YamlNode) -> Option<LeafOutput> {
    reader.member(&name.name, name.span, "an output");
    let out = |shape, from| Some(LeafOutput { name: name.clone(), shape, from });
    let NodeKind::Map(entries) = &node.what else {
        if node.is_null() {
            let message = format!("output `{}` has no type", name.name);
            reader.say(name.span, "OF0105", message, format!("`{}: file`, for example", name.name));
            return out(TypeDecl::UNCLEAR, OutputPlace::Stdout);
        }
        return match types::read(reader, node) {
            Some(shape) => out(shape, OutputPlace::Default),
            None => out(TypeDecl::UNCLEAR, OutputPlace::Stdout),
        };
    };
    if entries.iter().any(|(key, _)| key.name == "type") {
        return read_long(reader, name, node);
    }
    let [(key, value)] = entries.as_slice() else {
        let hint = "`{ file: name.txt }`, `{ int: stdout }`, or `{ type: T, path: … }`";
        reader.say(node.span, "OF0106", format!("output `{}` cannot be understood", name.name), hint);
        return out(TypeDecl::UNCLEAR, OutputPlace::Stdout);
    };
    let said = Text { text: key.name.clone(), span: key.span, style: crate::source::ScalarQuoting::Plain };
    let Some(shape) = types::read_text(reader, &said) else { return out(TypeDecl::UNCLEAR, OutputPlace::Stdout) };
    let Some(value) = reader.text(value, &format!("`{}`", key.name)) else { return out(shape, OutputPlace::Stdout) };
    let from = match is_path(&shape) {
        true => OutputPlace::Path(value),
        false if value.text == "stdout" => OutputPlace::Stdout,
        false => OutputPlace::Json(value),
    };
    out(shape, from)
}

fn read_long(reader: FieldReader<'_>, name: &MapKey, node: &YamlNode) -> Option<LeafOutput> {
    let mut fields = reader.fields(node, format!("output `{}`", name.name))?;
    let shape = fields.get("type").and_then(|node| types::read(reader, node));
    let (path, json) = (fields.text("path"), fields.text("json"));
    fields.finish();
    let from = match (path, json) {
        (Some(path), None) => OutputPlace::Path(path),
        (None, Some(json)) if json.text == "stdout" => OutputPlace::Stdout,
        (None, Some(json)) => OutputPlace::Json(json),
        (None, None) => OutputPlace::Default,
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
    Some(LeafOutput { name: name.clone(), shape: shape.unwrap_or(TypeDecl::UNCLEAR), from })
}

/// Values of this type are found as files.
pub(crate) fn is_path(shape: &TypeDecl) -> bool {
    use onceflow_core::model::Type;
    match shape {
        TypeDecl::Plain(ty) => matches!(ty, Type::File | Type::Directory),
        TypeDecl::List(inner) | TypeDecl::Option(inner) => is_path(inner),
        TypeDecl::Enum(_) | TypeDecl::Record(_) => false,
    }
}

/// Reads the outputs of a graph: `name: reference`, `name: CEL`, or `name: { TYPE: CEL }`.
pub(crate) fn read_given(reader: FieldReader<'_>, node: &YamlNode, what: &str) -> Vec<OutputDecl> {
    let mut found = Vec::new();
    for (name, node) in reader.entries(node, what) {
        reader.member(&name.name, name.span, "an output");
        let (shape, node) = match &node.what {
            NodeKind::Map(entries) if entries.len() == 1 => {
                let (key, value) = &entries[0];
                let said = Text { text: key.name.clone(), span: key.span, style: crate::source::ScalarQuoting::Plain };
                (types::read_text(reader, &said), value)
            }
            _ => (None, node),
        };
        if let Some(value) = reader.text(node, &format!("output `{}`", name.name)) {
            found.push(OutputDecl { name: name.clone(), value, shape });
        }
    }
    found
}
