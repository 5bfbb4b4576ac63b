//! Values as expressions see them: a file is a map `{path, name, stem, ext}`, a directory `{path, name, files}`.

use super::{
    Mismatch, PortValue,
    conform::{self, Encoding},
};
use cel::objects::{Key, Map, Value as Cel};
use onceflow_core::model::Type;
use std::{collections::HashMap, path::Path, sync::Arc};

impl PortValue {
    /// The value as expressions see it.
    pub fn to_cel(&self) -> Cel {
        match self {
            PortValue::Null => Cel::Null,
            PortValue::Bool(value) => Cel::Bool(*value),
            PortValue::Int(value) => Cel::Int(*value),
            PortValue::Float(value) => Cel::Float(*value),
            PortValue::Text(text) => Cel::from(text.as_str()),
            PortValue::Bytes(bytes) => Cel::Bytes(Arc::new(bytes.clone())),
            PortValue::List(elements) => Cel::List(Arc::new(elements.iter().map(PortValue::to_cel).collect())),
            PortValue::Record(fields) => map(fields.iter().map(|(name, field)| (name.as_str(), field.to_cel()))),
            PortValue::File(file) => map([
                ("path", path(&file.path)),
                ("name", Cel::from(file.name.as_str())),
                ("stem", Cel::from(file.stem())),
                ("ext", Cel::from(file.ext())),
            ]),
            PortValue::Directory(directory) => map([
                ("path", path(&directory.path)),
                ("name", Cel::from(directory.name())),
                (
                    "files",
                    Cel::List(Arc::new(
                        directory.files.iter().map(|file| PortValue::from(file.clone()).to_cel()).collect(),
                    )),
                ),
            ]),
        }
    }

    /// Converts the result of an expression. Maps with the shape of files or directories become such.
    ///
    /// # Errors
    /// If it is a value that only expressions know, such as a function or a type.
    pub fn from_cel(cel: &Cel) -> Result<PortValue, Mismatch> {
        Ok(match cel {
            Cel::Null => PortValue::Null,
            Cel::Bool(value) => PortValue::Bool(*value),
            Cel::Int(value) => PortValue::Int(*value),
            Cel::UInt(value) => i64::try_from(*value)
                .map(PortValue::Int)
                .map_err(|_| Mismatch::new(Type::Int, format!("{value}, which is too large,")))?,
            Cel::Float(value) => PortValue::Float(*value),
            Cel::String(text) => PortValue::text(text.as_str()),
            Cel::Bytes(bytes) => PortValue::Bytes(bytes.to_vec()),
            Cel::List(elements) => {
                let element = |(at, element)| {
                    PortValue::from_cel(element).map_err(|wrong: Mismatch| wrong.inside(&format!("[{at}]")))
                };
                PortValue::List(elements.iter().enumerate().map(element).collect::<Result<_, _>>()?)
            }
            Cel::Map(map) => from_map(map)?,
            other => {
                let found = format!("a {}, which only expressions know,", other.type_of());
                return Err(Mismatch::new("a value", found));
            }
        })
    }

    /// Converts the result of an expression to a value of a type.
    ///
    /// # Errors
    /// If it is not of this type.
    pub fn from_cel_as(cel: &Cel, ty: &Type) -> Result<PortValue, Mismatch> {
        PortValue::from_cel(cel)?.conform(ty)
    }

    /// Converts the value to a type.
    ///
    /// # Errors
    /// If it is not of this type.
    pub fn conform(self, ty: &Type) -> Result<PortValue, Mismatch> {
        conform::conform(self, ty, Encoding::Typed)
    }
}

fn from_map(map: &Map) -> Result<PortValue, Mismatch> {
    // The order of the hash map does not matter: the result is a sorted map.
    #[expect(clippy::iter_over_hash_type, reason = "collected into a sorted map")]
    let fields = {
        let mut fields = std::collections::BTreeMap::new();
        for (key, value) in map.map.iter() {
            let name = key.to_string();
            let value = PortValue::from_cel(value).map_err(|wrong| wrong.inside(&format!(".{name}")))?;
            fields.insert(name, value);
        }
        fields
    };
    let is = |names: &[&str]| fields.len() == names.len() && names.iter().all(|name| fields.contains_key(*name));
    let special = match () {
        () if is(&["ext", "name", "path", "stem"]) => conform::file(&fields).map(PortValue::from),
        () if is(&["files", "name", "path"]) => conform::directory(&fields).map(PortValue::from),
        () => None,
    };
    Ok(special.unwrap_or(PortValue::Record(fields)))
}

fn path(path: &Path) -> Cel {
    Cel::from(&*path.to_string_lossy())
}

fn map<'a>(fields: impl IntoIterator<Item = (&'a str, Cel)>) -> Cel {
    let map: HashMap<Key, Cel> = fields.into_iter().map(|(name, value)| (Key::from(name), value)).collect();
    Cel::Map(Map { map: Arc::new(map) })
}
