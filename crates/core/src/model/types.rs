//! The types of ports: the check compares them so that a wrong connection is found before anything runs.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// The type of a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Type {
    /// No content: only says that a step is done.
    Unit,
    /// True or false.
    Bool,
    /// An integer.
    Int,
    /// A floating-point number.
    Float,
    /// Text.
    Text,
    /// Bytes, uninterpreted.
    Bytes,
    /// A file: a name and its content.
    File,
    /// A directory: files by their relative paths.
    Directory,
    /// Any JSON value. Accepts every type but files, directories, bytes and named types, also nested.
    Json,
    /// Elements of one type, in order.
    List(#[serde(deserialize_with = "super::program::nested::deeper")] Box<Type>),
    /// Named fields.
    Record(#[serde(deserialize_with = "super::program::nested::deeper")] BTreeMap<String, Type>),
    /// A value or none. Accepts whatever its inner type accepts.
    Option(#[serde(deserialize_with = "super::program::nested::deeper")] Box<Type>),
    /// A user-defined type, identified by its name.
    Named(String),
}

impl Type {
    /// Returns the type of lists of `of`.
    pub fn list(of: Type) -> Self {
        Type::List(Box::new(of))
    }

    /// Returns the option of `of`.
    pub fn option(of: Type) -> Self {
        Type::Option(Box::new(of))
    }

    /// A port of this type can be fed by one of type `given`.
    pub fn accepts(&self, given: &Type) -> bool {
        match (self, given) {
            (Type::Option(wanted), Type::Option(given)) | (Type::List(wanted), Type::List(given)) => {
                wanted.accepts(given)
            }
            (Type::Option(wanted), given) => wanted.accepts(given),
            (Type::Record(wanted), Type::Record(given)) => {
                let field = |(name, ty): (&String, &Type)| given.get(name).is_some_and(|given| ty.accepts(given));
                wanted.iter().all(field)
            }
            (Type::Json, given) => given.is_json(),
            (wanted, given) => wanted == given,
        }
    }

    /// Every value of the type can be written as JSON.
    fn is_json(&self) -> bool {
        match self {
            Type::Unit | Type::Bool | Type::Int | Type::Float | Type::Text | Type::Json => true,
            Type::Bytes | Type::File | Type::Directory | Type::Named(_) => false,
            Type::List(inner) | Type::Option(inner) => inner.is_json(),
            Type::Record(fields) => fields.values().all(Type::is_json),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Unit => f.write_str("unit"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Float => f.write_str("float"),
            Type::Text => f.write_str("text"),
            Type::Bytes => f.write_str("bytes"),
            Type::File => f.write_str("file"),
            Type::Directory => f.write_str("dir"),
            Type::Json => f.write_str("json"),
            Type::List(inner) => write!(f, "list<{inner}>"),
            Type::Option(inner) => write!(f, "option<{inner}>"),
            Type::Named(name) => f.write_str(name),
            Type::Record(fields) => {
                f.write_str("{ ")?;
                for (at, (name, ty)) in fields.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    write!(f, "{comma}{name}: {ty}")?;
                }
                f.write_str(" }")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_takes_its_own_type_and_what_is_narrower() {
        let record = |fields: &[(&str, Type)]| {
            Type::Record(fields.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone())).collect())
        };
        assert!(Type::option(Type::Int).accepts(&Type::Int));
        assert!(!Type::Int.accepts(&Type::option(Type::Int)));
        assert!(Type::list(Type::option(Type::Int)).accepts(&Type::list(Type::Int)));
        assert!(record(&[("a", Type::Int)]).accepts(&record(&[("a", Type::Int), ("b", Type::Text)])));
        assert!(!record(&[("a", Type::Int), ("b", Type::Text)]).accepts(&record(&[("a", Type::Int)])));
        assert!(Type::Json.accepts(&record(&[("a", Type::list(Type::Text))])));
        assert!(!Type::Json.accepts(&Type::File));
        assert!(!Type::Float.accepts(&Type::Int));
    }
}
