//! Values as JSON: a file or directory is its path, bytes are base64.

use super::{
    Mismatch, PortValue,
    conform::{Encoding, conform},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use onceflow_core::model::Type;
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

    /// The value in JSON.
    pub fn to_json(&self) -> Json {
        self.to_json_in(Path::new(""))
    }

    /// The value in JSON; paths below `base` are relative to it.
    pub fn to_json_in(&self, base: &Path) -> Json {
        match self {
            PortValue::Null => Json::Null,
            PortValue::Bool(value) => Json::Bool(*value),
            PortValue::Int(value) => Json::from(*value),
            PortValue::Float(value) => Json::from(*value),
            PortValue::Text(text) => Json::from(text.as_str()),
            PortValue::Bytes(bytes) => Json::from(BASE64_STANDARD.encode(bytes)),
            PortValue::List(elements) => elements.iter().map(|element| element.to_json_in(base)).collect(),
            PortValue::Record(fields) => {
                let fields = fields.iter().map(|(name, field)| (name.clone(), field.to_json_in(base)));
                Json::Object(fields.collect())
            }
            PortValue::File(file) => Json::from(relative(&file.path, base)),
            PortValue::Directory(directory) => Json::from(relative(&directory.path, base)),
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
