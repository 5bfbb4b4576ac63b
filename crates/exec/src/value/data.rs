//! Values as the engine stores them: MessagePack with named fields, lists element by element, files as files. The bytes
//! are those that the typed crate writes, so that a flow file and Rust can share a port.

use super::{
    DirectoryValue, FileValue, Mismatch, PortValue,
    conform::{Encoding, conform},
};
use bytes::{BufMut, BytesMut};
use onceflow_core::model::Type;
use onceflow_engine::task::{Data, DataList, FileData};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use std::{collections::BTreeMap, fmt};

impl PortValue {
    /// Decodes the value that was stored in a port of this type.
    ///
    /// # Errors
    /// If it is not of this type.
    pub fn from_data(data: Data, ty: &Type) -> Result<PortValue, Mismatch> {
        match (ty, data) {
            (Type::Option(_), Data::None) | (Type::Unit, Data::None | Data::Bytes(_)) => Ok(PortValue::Null),
            (Type::Json, Data::None) => Ok(PortValue::Null),
            (Type::Option(inner), Data::Bytes(bytes)) if *bytes == NIL && **inner != Type::Bytes => Ok(PortValue::Null),
            (Type::Option(inner), data) => PortValue::from_data(data, inner),
            (Type::Bytes, Data::Bytes(bytes)) => Ok(PortValue::Bytes(bytes.to_vec())),
            (ty, Data::Bytes(bytes)) => conform(read(&bytes, ty)?, ty, Encoding::Typed),
            (Type::Directory, Data::List(files)) => {
                files.into_iter().map(file).collect::<Result<_, _>>().map(directory)
            }
            (Type::List(inner), Data::List(elements)) => list(elements, inner),
            (Type::Record(types), Data::List(parts)) => record(parts, types),
            (Type::Json, Data::List(elements)) => list(elements, &Type::Json),
            (Type::File, data @ Data::File(_)) => file(data).map(PortValue::from),
            (ty, data) => Err(Mismatch::new(ty, kind(&data))),
        }
    }

    /// Encodes the value for a port of this type. Equal values give equal data.
    ///
    /// # Errors
    /// If it is not of this type.
    pub fn into_data(self, ty: &Type) -> Result<Data, Mismatch> {
        Ok(encode(conform(self, ty, Encoding::Typed)?, ty, &mut BytesMut::new()))
    }
}

/// MessagePack's nil.
const NIL: [u8; 1] = [0xc0];

fn kind(data: &Data) -> &'static str {
    match data {
        Data::Bytes(_) => "a single value",
        Data::List(_) => "a list",
        Data::File(_) => "a file",
        Data::None => "nothing",
    }
}

fn read(bytes: &[u8], ty: &Type) -> Result<PortValue, Mismatch> {
    let any: Any = rmp_serde::from_slice(bytes).map_err(|error| {
        let found = format!("bytes that cannot be read ({error})");
        Mismatch::new(ty, found)
    })?;
    Ok(any.0)
}

fn file(data: Data) -> Result<FileValue, Mismatch> {
    match data {
        Data::File(file) => Ok(FileValue { name: file.name, path: file.path }),
        other => Err(Mismatch::new("the files of a directory", kind(&other))),
    }
}

fn directory(mut files: Vec<FileValue>) -> PortValue {
    files.sort_by(|a, b| a.name.cmp(&b.name));
    DirectoryValue { path: Default::default(), files }.into()
}

fn list(elements: DataList, inner: &Type) -> Result<PortValue, Mismatch> {
    let element = |(at, data)| PortValue::from_data(data, inner).map_err(|wrong| wrong.inside(&format!("[{at}]")));
    elements.into_iter().enumerate().map(element).collect::<Result<_, _>>().map(PortValue::List)
}

/// Decodes a record that holds files. Its fields are stored one by one: name, value, name, value.
fn record(parts: DataList, types: &BTreeMap<String, Type>) -> Result<PortValue, Mismatch> {
    let mut fields = BTreeMap::new();
    let mut parts = parts.into_iter();
    while let (Some(name), value) = (parts.next(), parts.next()) {
        let (PortValue::Text(name), Some(value)) = (PortValue::from_data(name, &Type::Text)?, value) else {
            return Err(Mismatch::new("a record", "a list of another shape"));
        };
        if let Some(ty) = types.get(&name) {
            let value = PortValue::from_data(value, ty).map_err(|wrong| wrong.inside(&format!(".{name}")))?;
            fields.insert(name, value);
        }
    }
    conform(PortValue::Record(fields), &Type::Record(types.clone()), Encoding::Typed)
}

/// The type is written as one piece of MessagePack.
fn is_plain(ty: &Type) -> bool {
    match ty {
        Type::File | Type::Directory | Type::Bytes => false,
        Type::List(inner) | Type::Option(inner) => is_plain(inner),
        Type::Record(fields) => fields.values().all(is_plain),
        _ => true,
    }
}

/// Encodes a value that is of the type. The elements of lists share the memory of `shared`: one allocation each would
/// take more than most of them.
fn encode(value: PortValue, ty: &Type, shared: &mut BytesMut) -> Data {
    match (ty, value) {
        (Type::Option(_), PortValue::Null) => Data::None,
        (Type::Option(inner), value) => encode(value, inner, shared),
        (Type::Unit, _) => Data::Bytes(bytes::Bytes::new()),
        (Type::Bytes, PortValue::Bytes(bytes)) => Data::Bytes(bytes.into()),
        (_, PortValue::File(file)) => give(*file),
        (_, PortValue::Directory(directory)) => Data::List(directory.files.into_iter().map(give).collect()),
        (Type::List(inner), PortValue::List(elements)) => {
            Data::List(elements.into_iter().map(|element| encode(element, inner, shared)).collect())
        }
        (Type::Record(types), PortValue::Record(fields)) if !is_plain(ty) => {
            let mut parts = Vec::with_capacity(fields.len() * 2);
            for (name, value) in fields {
                let ty = &types[&name];
                parts.push(write(&PortValue::Text(name), shared));
                parts.push(encode(value, ty, shared));
            }
            Data::List(parts.into())
        }
        (ty, value) => {
            let has_files = matches!(ty, Type::File | Type::Directory | Type::Bytes);
            assert!(!has_files, "a value of type {ty} is written as text: its bytes would be lost with their path");
            write(&value, shared)
        }
    }
}

fn give(file: FileValue) -> Data {
    FileData::new(file.name, file.path).into()
}

fn write(value: &PortValue, shared: &mut BytesMut) -> Data {
    rmp_serde::encode::write_named(&mut shared.writer(), &Plain(value)).expect("a plain value can always be written");
    Data::Bytes(shared.split().freeze())
}

/// A value without files, to be written.
struct Plain<'a>(&'a PortValue);

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            PortValue::Null => serializer.serialize_unit(),
            PortValue::Bool(value) => serializer.serialize_bool(*value),
            PortValue::Int(value) => serializer.serialize_i64(*value),
            PortValue::Float(value) => serializer.serialize_f64(*value),
            PortValue::Text(text) => serializer.serialize_str(text),
            PortValue::Bytes(bytes) => serializer.serialize_bytes(bytes),
            PortValue::List(elements) => serializer.collect_seq(elements.iter().map(Plain)),
            PortValue::Record(fields) => {
                serializer.collect_map(fields.iter().map(|(name, field)| (name, Plain(field))))
            }
            // Where a type is known only by its name, a file is encoded as its name.
            PortValue::File(file) => serializer.serialize_str(&file.name),
            PortValue::Directory(directory) => serializer.collect_seq(directory.files.iter().map(|file| &file.name)),
        }
    }
}

/// Any value of MessagePack or JSON.
pub(super) struct Any(pub(super) PortValue);

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyVisitor).map(Any)
    }
}

struct AnyVisitor;

impl<'de> Visitor<'de> for AnyVisitor {
    type Value = PortValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<PortValue, E> {
        Ok(PortValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<PortValue, E> {
        Ok(PortValue::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<PortValue, E> {
        Ok(i64::try_from(value).map_or(PortValue::Float(value as f64), PortValue::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<PortValue, E> {
        Ok(PortValue::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<PortValue, E> {
        Ok(PortValue::text(value))
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<PortValue, E> {
        Ok(PortValue::Bytes(value.to_vec()))
    }

    fn visit_unit<E>(self) -> Result<PortValue, E> {
        Ok(PortValue::Null)
    }

    fn visit_none<E>(self) -> Result<PortValue, E> {
        Ok(PortValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<PortValue, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<PortValue, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<PortValue, A::Error> {
        let mut elements = Vec::new();
        while let Some(Any(element)) = seq.next_element()? {
            elements.push(element);
        }
        Ok(PortValue::List(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PortValue, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((Any(key), Any(value))) = map.next_entry()? {
            let key = match key {
                PortValue::Text(text) => text,
                PortValue::Int(number) => number.to_string(),
                PortValue::Bool(value) => value.to_string(),
                other => return Err(de::Error::custom(format!("a map has {} as a key", other.describe()))),
            };
            fields.insert(key, value);
        }
        Ok(PortValue::Record(fields))
    }
}
