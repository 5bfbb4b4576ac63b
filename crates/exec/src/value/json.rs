//! Values as JSON: a file or directory is its path, bytes are base64.

use super::{
    Mismatch, PortValue,
    conform::{Encoding, conform},
    data::Any,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use onceflow_core::model::Type;
use serde::{Serialize, Serializer};
use serde_json::Value as Json;
use std::path::Path;

impl PortValue {
    /// Converts JSON to a value of a type. Paths are taken as they are.
    ///
    /// # Errors
    /// If it is not of this type, or a directory cannot be read.
    pub fn from_json(json: Json, ty: &Type) -> Result<PortValue, Mismatch> {
        conform(untyped(json), ty, Encoding::Json)
    }

    /// Parses JSON to a value, without a tree of JSON between them.
    ///
    /// # Errors
    /// If it is not JSON.
    pub fn parse_json(text: &[u8]) -> Result<PortValue, serde_json::Error> {
        serde_json::from_slice::<Any>(text).map(|any| any.0)
    }

    /// The value in JSON.
    pub fn to_json(&self) -> Json {
        self.to_json_in(Path::new(""))
    }

    /// The value in JSON; paths below `base` are relative to it.
    pub fn to_json_in(&self, base: &Path) -> Json {
        serde_json::to_value(self.as_json_in(base)).expect("every value can be written as JSON")
    }

    /// The value, to be written as JSON.
    pub fn as_json(&self) -> AsJson<'_> {
        self.as_json_in(Path::new(""))
    }

    /// The value, to be written as JSON; paths below `base` are relative to it.
    pub fn as_json_in<'a>(&'a self, base: &'a Path) -> AsJson<'a> {
        AsJson { value: self, base }
    }
}

/// A value to be written as JSON: without a tree of JSON in memory, in which a number takes 72 bytes.
#[derive(Clone, Copy)]
pub struct AsJson<'a> {
    value: &'a PortValue,
    base: &'a Path,
}

impl Serialize for AsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let inner = |value| AsJson { value, base: self.base };
        match self.value {
            PortValue::Null => serializer.serialize_unit(),
            PortValue::Bool(value) => serializer.serialize_bool(*value),
            PortValue::Int(value) => serializer.serialize_i64(*value),
            PortValue::Float(value) => serializer.serialize_f64(*value),
            PortValue::Text(text) => serializer.serialize_str(text),
            PortValue::Bytes(bytes) => serializer.serialize_str(&BASE64_STANDARD.encode(bytes)),
            PortValue::List(elements) => serializer.collect_seq(elements.iter().map(inner)),
            PortValue::Record(fields) => {
                serializer.collect_map(fields.iter().map(|(name, field)| (name, inner(field))))
            }
            PortValue::File(file) => serializer.serialize_str(&relative(&file.path, self.base)),
            PortValue::Directory(directory) => serializer.serialize_str(&relative(&directory.path, self.base)),
        }
    }
}

/// Formats a path for a command: relative if it is below `base`, and never looking like an option.
pub(crate) fn relative(path: &Path, base: &Path) -> String {
    let below = match base.as_os_str().is_empty() {
        true => path,
        false => path.strip_prefix(base).unwrap_or(path),
    };
    let text = below.to_string_lossy();
    match text.starts_with('-') {
        true => format!("./{text}"),
        false => text.into_owned(),
    }
}

/// Converts JSON to a value without a type to convert to.
pub(super) fn untyped(json: Json) -> PortValue {
    match json {
        Json::Null => PortValue::Null,
        Json::Bool(value) => PortValue::Bool(value),
        Json::Number(number) => match number.as_i64() {
            Some(value) => PortValue::Int(value),
            None => PortValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => PortValue::Text(text),
        Json::Array(elements) => {
            // Collected in place: the room of the larger JSON values is given back.
            let mut elements: Vec<_> = elements.into_iter().map(untyped).collect();
            elements.shrink_to_fit();
            PortValue::List(elements)
        }
        Json::Object(fields) => {
            PortValue::Record(fields.into_iter().map(|(name, field)| (name, untyped(field))).collect())
        }
    }
}
