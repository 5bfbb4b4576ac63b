//! Whether a value is of a type; if it is not, where. The few conversions that lose nothing are made here.

use super::{DirectoryValue, FileValue, Mismatch, Value};
use base64::{Engine, prelude::BASE64_STANDARD};
use onceflow_core::model::Type;
use std::collections::BTreeMap;

/// Where a value comes from, and so what stands for what JSON cannot say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// JSON: text stands for bytes (base64), files and directories (their paths).
    Json,
    /// It says what it is.
    Typed,
}

/// The value, as one of this type. Fields that the type does not have are left out.
pub(super) fn conform(value: Value, ty: &Type, source: Source) -> Result<Value, Mismatch> {
    let json = source == Source::Json;
    match (ty, value) {
        (Type::Option(_), Value::Null) => Ok(Value::Null),
        (Type::Option(inner), value) => conform(value, inner, source),
        (Type::Unit, Value::Null) => Ok(Value::Null),
        (Type::Bool, value @ Value::Bool(_))
        | (Type::Int, value @ Value::Int(_))
        | (Type::Float, value @ Value::Float(_))
        | (Type::Text, value @ Value::Text(_))
        | (Type::Bytes, value @ Value::Bytes(_))
        | (Type::File, value @ Value::File(_))
        | (Type::Directory, value @ Value::Directory(_)) => Ok(value),
        (Type::Float, Value::Int(value)) => Ok(Value::Float(value as f64)),
        (Type::Int, Value::Float(value)) if value.fract() == 0.0 && value.abs() <= EXACT_MAX => {
            Ok(Value::Int(value as i64))
        }
        (Type::Bytes, Value::Text(text)) if json => BASE64_STANDARD
            .decode(&text)
            .map(Value::Bytes)
            .map_err(|error| Mismatch::new("bytes as base64", format!("text that is not ({error})"))),
        (Type::File, Value::Text(path)) if json => FileValue::from_path(path).map(Value::File),
        (Type::Directory, Value::Text(path)) if json => DirectoryValue::read(&path)
            .map(Value::Directory)
            .map_err(|error| Mismatch::new(ty, format!("`{path}`, which cannot be read ({error}),"))),
        (Type::File, Value::Record(fields)) => file(&fields).map(Value::File).ok_or_else(|| {
            Mismatch::new(ty, format!("{}, without `path` and `name`,", Value::Record(fields).describe()))
        }),
        (Type::Directory, Value::Record(fields)) => directory(&fields).map(Value::Directory).ok_or_else(|| {
            Mismatch::new(ty, format!("{}, without `path` and `files`,", Value::Record(fields).describe()))
        }),
        (Type::List(inner), Value::List(elements)) => list(elements, inner, source),
        (Type::Record(types), Value::Record(fields)) => record(fields, types, source),
        (Type::Json, value) => plain(value, ty),
        (Type::Named(_), value) => Ok(value),
        (ty, value) => Err(Mismatch::new(ty, value.describe())),
    }
}

/// Whole numbers up to here are exact in a float.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

fn list(elements: Vec<Value>, inner: &Type, source: Source) -> Result<Value, Mismatch> {
    let element = |(at, value)| conform(value, inner, source).map_err(|wrong| wrong.inside(&format!("[{at}]")));
    elements.into_iter().enumerate().map(element).collect::<Result<_, _>>().map(Value::List)
}

fn record(
    mut fields: BTreeMap<String, Value>,
    types: &BTreeMap<String, Type>,
    source: Source,
) -> Result<Value, Mismatch> {
    let mut record = BTreeMap::new();
    for (name, ty) in types {
        let inside = |wrong: Mismatch| wrong.inside(&format!(".{name}"));
        let value = match (fields.remove(name), ty) {
            (Some(value), ty) => conform(value, ty, source).map_err(inside)?,
            (None, Type::Option(_) | Type::Unit) => Value::Null,
            (None, ty) => return Err(inside(Mismatch::new(ty, "no such field is"))),
        };
        record.insert(name.clone(), value);
    }
    Ok(Value::Record(record))
}

/// What JSON can say, all the way down.
fn plain(value: Value, ty: &Type) -> Result<Value, Mismatch> {
    match &value {
        Value::Bytes(_) | Value::File(_) | Value::Directory(_) => return Err(Mismatch::new(ty, value.describe())),
        Value::Float(number) if !number.is_finite() => {
            return Err(Mismatch::new(ty, format!("{}, which JSON cannot say,", value.describe())));
        }
        Value::List(elements) => {
            for (at, element) in elements.iter().enumerate() {
                check_plain(element, ty).map_err(|wrong| wrong.inside(&format!("[{at}]")))?;
            }
        }
        Value::Record(fields) => {
            for (name, field) in fields {
                check_plain(field, ty).map_err(|wrong| wrong.inside(&format!(".{name}")))?;
            }
        }
        _ => {}
    }
    Ok(value)
}

fn check_plain(value: &Value, ty: &Type) -> Result<(), Mismatch> {
    match value {
        Value::Bytes(_) | Value::File(_) | Value::Directory(_) | Value::Float(_) => {
            plain(value.clone(), ty).map(|_| ())
        }
        Value::List(elements) => elements.iter().try_for_each(|element| check_plain(element, ty)),
        Value::Record(fields) => fields.values().try_for_each(|field| check_plain(field, ty)),
        _ => Ok(()),
    }
}

/// A file as expressions see it.
pub(super) fn file(fields: &BTreeMap<String, Value>) -> Option<FileValue> {
    match (fields.get("path")?, fields.get("name")?) {
        (Value::Text(path), Value::Text(name)) => Some(FileValue { name: name.clone(), path: path.into() }),
        _ => None,
    }
}

/// A directory as expressions see it.
pub(super) fn directory(fields: &BTreeMap<String, Value>) -> Option<DirectoryValue> {
    let (Value::Text(path), Value::List(files)) = (fields.get("path")?, fields.get("files")?) else { return None };
    let files = files.iter().map(|entry| match entry {
        Value::File(file) => Some(file.clone()),
        Value::Record(fields) => file(fields),
        _ => None,
    });
    Some(DirectoryValue { path: path.into(), files: files.collect::<Option<_>>()? })
}
