//! Values that are one piece of bytes: numbers, text, bytes, tuples, maps, and whatever serde can write.

use super::{Error, Literal, Value};
use bytes::Bytes;
use onceflow_core::model::Type;
use onceflow_engine::task::Data;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    any::type_name,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::{BuildHasher, Hash},
    path::PathBuf,
    time::{Duration, SystemTime},
};

/// Writes a value as MessagePack with named fields, so that a record may gain a field and old data still be read.
pub fn encode_serde<T: Serialize>(value: &T) -> Result<Data, Error> {
    let bytes = rmp_serde::to_vec_named(value).map_err(|source| Error::Write { ty: type_name::<T>(), source })?;
    // Without the room that serde reserved, which is larger than most values.
    Ok(Data::Bytes(bytes.into_boxed_slice().into()))
}

/// Reads what [`encode_serde`] wrote.
pub fn decode_serde<T: DeserializeOwned>(data: Data) -> Result<T, Error> {
    match data {
        Data::Bytes(bytes) => {
            rmp_serde::from_slice(&bytes).map_err(|source| Error::Read { ty: type_name::<T>(), source })
        }
        other => Err(Error::kind::<T>(&other)),
    }
}

/// A value that serde writes: `[generics] Rust type => kernel type`.
macro_rules! by_serde {
    ($([$($generics:tt)*] $rust:ty => $kernel:expr;)*) => {$(
        impl<$($generics)*> Value for $rust {
            fn ty() -> Type {
                $kernel
            }

            fn encode(self) -> Result<Data, Error> {
                encode_serde(&self)
            }

            fn decode(data: Data) -> Result<Self, Error> {
                decode_serde(data)
            }
        }

        impl<$($generics)*> Literal for $rust {}
    )*};
}

by_serde! {
    [] bool => Type::Bool;
    [] i8 => Type::Int;
    [] i16 => Type::Int;
    [] i32 => Type::Int;
    [] i64 => Type::Int;
    [] isize => Type::Int;
    [] u8 => Type::Int;
    [] u16 => Type::Int;
    [] u32 => Type::Int;
    [] u64 => Type::Int;
    [] usize => Type::Int;
    [] f32 => Type::Float;
    [] f64 => Type::Float;
    [] String => Type::Text;
    // Serde writes a tuple as an array, so it is no record with fields; it fits its like and nothing else.
    [A: Element] (A,) => tuple(&[A::ty()]);
    [A: Element, B: Element] (A, B) => tuple(&[A::ty(), B::ty()]);
    [A: Element, B: Element, C: Element] (A, B, C) => tuple(&[A::ty(), B::ty(), C::ty()]);
    [A: Element, B: Element, C: Element, D: Element] (A, B, C, D) => tuple(&[A::ty(), B::ty(), C::ty(), D::ty()]);
    [K: Element + Ord, V: Element] BTreeMap<K, V> => Type::Named(format!("map<{}, {}>", K::ty(), V::ty()));
    [K: Element + Ord] BTreeSet<K> => Type::Named(format!("set<{}>", K::ty()));
    // A path, not what is there: that is a `File`. One that is not UTF-8 cannot be written.
    [] PathBuf => Type::Text;
    // As serde writes them, so that other tools can read them.
    [] Duration => record(&["secs", "nanos"]);
    [] SystemTime => record(&["secs_since_epoch", "nanos_since_epoch"]);
    // Milliseconds since 1970.
    [] crate::Timestamp => Type::Int;
}

/// A record of whole numbers.
fn record(fields: &[&str]) -> Type {
    Type::Record(fields.iter().map(|field| ((*field).into(), Type::Int)).collect())
}

/// A map, or a set, without an order: written in the order of its keys, as a `BTreeMap` is, so that equal ones are
/// equal bytes.
macro_rules! in_order {
    ($([$($generics:tt)*] $rust:ty => $ordered:ty, $written:ty;)*) => {$(
        impl<$($generics)*> Value for $rust {
            fn ty() -> Type {
                <$ordered>::ty()
            }

            fn encode(self) -> Result<Data, Error> {
                encode_serde(&self.iter().collect::<$written>())
            }

            fn decode(data: Data) -> Result<Self, Error> {
                <$ordered>::decode(data).map(|ordered| ordered.into_iter().collect())
            }
        }

        impl<$($generics)*> Literal for $rust {}
    )*};
}

in_order! {
    [K: Element + Ord + Hash, V: Element, S: BuildHasher + Default + Send + 'static] HashMap<K, V, S>
        => BTreeMap<K, V>, BTreeMap<&K, &V>;
    [K: Element + Ord + Hash, S: BuildHasher + Default + Send + 'static] HashSet<K, S> => BTreeSet<K>, BTreeSet<&K>;
}

/// A value that may be inside a tuple or a map.
pub trait Element: Value + Serialize + DeserializeOwned {}

impl<T: Value + Serialize + DeserializeOwned> Element for T {}

fn tuple(parts: &[Type]) -> Type {
    let parts: Vec<_> = parts.iter().map(ToString::to_string).collect();
    Type::Named(format!("({})", parts.join(", ")))
}

impl Value for () {
    fn ty() -> Type {
        Type::Unit
    }

    fn encode(self) -> Result<Data, Error> {
        Ok(Data::Bytes(Bytes::new()))
    }

    fn decode(data: Data) -> Result<Self, Error> {
        match data {
            Data::Bytes(bytes) if bytes.is_empty() => Ok(()),
            other => Err(Error::kind::<Self>(&other)),
        }
    }
}

impl Literal for () {}

impl Value for Bytes {
    fn ty() -> Type {
        Type::Bytes
    }

    fn encode(self) -> Result<Data, Error> {
        Ok(Data::Bytes(self))
    }

    fn decode(data: Data) -> Result<Self, Error> {
        match data {
            Data::Bytes(bytes) => Ok(bytes),
            other => Err(Error::kind::<Self>(&other)),
        }
    }
}

impl Literal for Bytes {}

impl<T: Value> Value for Box<T> {
    fn ty() -> Type {
        T::ty()
    }

    fn encode(self) -> Result<Data, Error> {
        T::encode(*self)
    }

    fn decode(data: Data) -> Result<Self, Error> {
        T::decode(data).map(Box::new)
    }
}

impl<T: Literal> Literal for Box<T> {}
