//! Checks that a value is of a type; a mismatch names the place. The few lossless conversions are made here.

use super::{DirectoryValue, FileValue, Mismatch, PortValue};
use base64::{Engine, prelude::BASE64_STANDARD};
use onceflow_core::model::Type;
use std::collections::BTreeMap;

/// The encoding a value comes from, which determines how values without a JSON form are represented.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// JSON: text stands for bytes (base64), files and directories (their paths).
    Json,
    /// Each value has its own type.
    Typed,
}

/// Converts a value to this type. Fields that the type does not have are left out.
pub(super) fn conform(value: PortValue, ty: &Type, source: Encoding) -> Result<PortValue, Mismatch> {
    let json = source == Encoding::Json;
    match (ty, value) {
        (Type::Option(_), PortValue::Null) => Ok(PortValue::Null),
        (Type::Option(inner), value) => conform(value, inner, source),
        (Type::Unit, PortValue::Null) => Ok(PortValue::Null),
        (Type::Bool, value @ PortValue::Bool(_))
        | (Type::Int, value @ PortValue::Int(_))
        | (Type::Float, value @ PortValue::Float(_))
        | (Type::Text, value @ PortValue::Text(_))
        | (Type::Bytes, value @ PortValue::Bytes(_))
        | (Type::File, value @ PortValue::File(_))
        | (Type::Directory, value @ PortValue::Directory(_)) => Ok(value),
        (Type::Float, PortValue::Int(value)) => Ok(PortValue::Float(value as f64)),
        (Type::Int, PortValue::Float(value)) if value.fract() == 0.0 && value.abs() <= EXACT_MAX => {
            Ok(PortValue::Int(value as i64))
        }
        (Type::Bytes, PortValue::Text(text)) if json => BASE64_STANDARD
            .decode(&text)
            .map(PortValue::Bytes)
            .map_err(|error| Mismatch::new("bytes as base64", format!("text that is not ({error})"))),
        (Type::File, PortValue::Text(path)) if json => FileValue::from_path(path).map(PortValue::from),
        (Type::Directory, PortValue::Text(path)) if json => DirectoryValue::read(&path)
            .map(PortValue::from)
            .map_err(|error| Mismatch::new(ty, format!("`{path}`, which cannot be read ({error}),"))),
        (Type::File, PortValue::Record(fields)) => file(&fields).map(PortValue::from).ok_or_else(|| {
            Mismatch::new(ty, format!("{}, without `path` and `name`,", PortValue::Record(fields).describe()))
        }),
        (Type::Directory, PortValue::Record(fields)) => directory(&fields).map(PortValue::from).ok_or_else(|| {
            Mismatch::new(ty, format!("{}, without `path` and `files`,", PortValue::Record(fields).describe()))
        }),
        (Type::List(inner), PortValue::List(elements)) => list(elements, inner, source),
        (Type::Record(types), PortValue::Record(fields)) => record(fields, types, source),
        (Type::Json, value) => plain(value, ty),
        (Type::Named(_), value) => Ok(value),
        (ty, value) => Err(Mismatch::new(ty, value.describe())),
    }
}

/// Whole numbers up to this are exact in a float.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

fn list(elements: Vec<PortValue>, inner: &Type, source: Encoding) -> Result<PortValue, Mismatch> {
    let element = |(at, value)| conform(value, inner, source).map_err(|wrong| wrong.inside(&format!("[{at}]")));
    elements.into_iter().enumerate().map(element).collect::<Result<_, _>>().map(PortValue::List)
}

fn record(
    mut fields: BTreeMap<String, PortValue>,
    types: &BTreeMap<String, Type>,
    source: Encoding,
) -> Result<PortValue, Mismatch> {
    let mut record = BTreeMap::new();
    for (name, ty) in types {
        let inside = |wrong: Mismatch| wrong.inside(&format!(".{name}"));
        let value = match (fields.remove(name), ty) {
            (Some(value), ty) => conform(value, ty, source).map_err(inside)?,
            (None, Type::Option(_) | Type::Unit) => PortValue::Null,
            (None, ty) => return Err(inside(Mismatch::new(ty, "no such field is"))),
        };
        record.insert(name.clone(), value);
    }
    Ok(PortValue::Record(record))
}

/// Checks that JSON can represent the value, including all nested values.
fn plain(value: PortValue, ty: &Type) -> Result<PortValue, Mismatch> {
    match &value {
        PortValue::Bytes(_) | PortValue::File(_) | PortValue::Directory(_) => {
            return Err(Mismatch::new(ty, value.describe()));
        }
        PortValue::Float(number) if !number.is_finite() => {
            return Err(Mismatch::new(ty, format!("{}, which JSON cannot say,", value.describe())));
        }
        PortValue::List(elements) => {
            for (at, element) in elements.iter().enumerate() {
                check_plain(element, ty).map_err(|wrong| wrong.inside(&format!("[{at}]")))?;
            }
        }
        PortValue::Record(fields) => {
            for (name, field) in fields {
                check_plain(field, ty).map_err(|wrong| wrong.inside(&format!(".{name}")))?;
            }
        }
        _ => {}
    }
    Ok(value)
}

fn check_plain(value: &PortValue, ty: &Type) -> Result<(), Mismatch> {
    match value {
        PortValue::Bytes(_) | PortValue::File(_) | PortValue::Directory(_) | PortValue::Float(_) => {
            plain(value.clone(), ty).map(|_| ())
        }
        PortValue::List(elements) => elements.iter().try_for_each(|element| check_plain(element, ty)),
        PortValue::Record(fields) => fields.values().try_for_each(|field| check_plain(field, ty)),
        _ => Ok(()),
    }
}

/// Converts the map that stands for a file in expressions.
pub(super) fn file(fields: &BTreeMap<String, PortValue>) -> Option<FileValue> {
    match (fields.get("path")?, fields.get("name")?) {
        (PortValue::Text(path), PortValue::Text(name)) => Some(FileValue { name: name.clone(), path: path.into() }),
        _ => None,
    }
}

/// Converts the map that stands for a directory in expressions.
pub(super) fn directory(fields: &BTreeMap<String, PortValue>) -> Option<DirectoryValue> {
    let (PortValue::Text(path), PortValue::List(files)) = (fields.get("path")?, fields.get("files")?) else {
        return None;
    };
    let files = files.iter().map(|entry| match entry {
        PortValue::File(file) => Some(FileValue::clone(file)),
        PortValue::Record(fields) => file(fields),
        _ => None,
    });
    Some(DirectoryValue { path: path.into(), files: files.collect::<Option<_>>()? })
}
