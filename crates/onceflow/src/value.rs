//! Values that travel between tasks: their Rust types, the kernel's types for them, and their encoding.
//!
//! Equal values must become equal bytes, or a resumed run would believe that an input has changed. Everything here
//! does, a `HashMap` too; a type of your own does unless serde writes something in it without an order: use a
//! `BTreeMap` there.

mod describe;
mod file;
mod list;
mod scalar;

pub use describe::{TypeOf, UnknownType, described, named};
pub use file::{Directory, File};
pub(crate) use list::NIL;
pub use scalar::{Element, decode_serde, encode_serde};

use onceflow_core::model::Type;
use onceflow_engine::task::Data;

/// A type whose values can travel between tasks.
///
/// Numbers, `bool`, `String`, [`Bytes`](crate::Bytes), `()`, `PathBuf`, `Duration`, `SystemTime`,
/// [`Timestamp`](crate::Timestamp), [`File`], [`Directory`], and `Vec`, `Option`, maps, sets and tuples of these do
/// (the keys of a `HashMap` need an order, in which it is written). A type of your own does with a derive:
///
/// ```
/// use onceflow::{Value, model::Type};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Value)]
/// struct Order {
///     id: String,
///     cents: u64,
/// }
///
/// assert_eq!(Order::ty().to_string(), "{ cents: int, id: text }");
/// assert_eq!(Vec::<Order>::ty(), Type::list(Order::ty()));
/// ```
///
/// The derive needs serde's `Serialize` and `Deserialize`. A struct with named fields is a record that other tools can
/// look into; an enum, a tuple struct, and a struct that any `#[serde(..)]` attribute reshapes are known by their
/// names.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel between tasks",
    label = "not a value",
    note = "give a type of your own `#[derive(serde::Serialize, serde::Deserialize, onceflow::Value)]`"
)]
pub trait Value: Sized + Send + 'static {
    /// The kernel's type for this type. Two ports are connected only if these fit.
    fn ty() -> Type;

    /// The value as it is stored. Equal values give equal data.
    fn encode(self) -> Result<Data, Error>;

    /// The value that was stored.
    fn decode(data: Data) -> Result<Self, Error>;
}

/// A value that can be written down in a flow: all but files and directories, which a flow takes as inputs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be written down in a flow",
    label = "not a constant",
    note = "files and directories come into a flow as its inputs"
)]
pub trait Literal: Value {}

/// The reason why a value could not be encoded, or not be decoded as the requested type.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Serde refused to write it.
    #[error("a value of type {ty} could not be written")]
    Write {
        /// The Rust type.
        ty: &'static str,
        /// Serde's error.
        source: rmp_serde::encode::Error,
    },
    /// The bytes are not those of such a value.
    #[error("the stored bytes are no value of type {ty}")]
    Read {
        /// The Rust type.
        ty: &'static str,
        /// Serde's error.
        source: rmp_serde::decode::Error,
    },
    /// A list where one value was wanted, a file where bytes were wanted, and so on.
    #[error("a value of type {ty} was wanted, but {found} is there")]
    Kind {
        /// The Rust type.
        ty: &'static str,
        /// The kind of data found.
        found: &'static str,
    },
}

impl Error {
    /// `data` is not the kind of data that a `T` is stored as.
    fn kind<T>(data: &Data) -> Self {
        let found = match data {
            Data::Bytes(_) => "a single value",
            Data::List(_) => "a list",
            Data::File(_) => "a file",
            Data::None => "nothing",
        };
        Error::Kind { ty: std::any::type_name::<T>(), found }
    }
}
