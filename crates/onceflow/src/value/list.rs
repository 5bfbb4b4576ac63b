//! Lists, whose elements are stored one by one so that an each can hand them out, and options.

use super::{Error, Literal, Value};
use onceflow_core::model::Type;
use onceflow_engine::task::Data;

impl<T: Value> Value for Vec<T> {
    fn ty() -> Type {
        Type::list(T::ty())
    }

    fn encode(self) -> Result<Data, Error> {
        self.into_iter().map(T::encode).collect::<Result<_, _>>().map(Data::List)
    }

    fn decode(data: Data) -> Result<Self, Error> {
        match data {
            Data::List(elements) => elements.into_iter().map(T::decode).collect(),
            other => Err(Error::kind::<Self>(&other)),
        }
    }
}

impl<T: Literal> Literal for Vec<T> {}

/// The encoding of none among the elements of a list, where every element needs one.
pub(crate) const NIL: &[u8] = &[0xc0];

/// An option of an option is one option: there is only one kind of nothing between tasks, so `Some(None)` arrives as
/// `None`.
impl<T: Value> Value for Option<T> {
    fn ty() -> Type {
        match T::ty() {
            inner @ Type::Option(_) => inner,
            inner => Type::option(inner),
        }
    }

    fn encode(self) -> Result<Data, Error> {
        self.map_or(Ok(Data::None), T::encode)
    }

    fn decode(data: Data) -> Result<Self, Error> {
        match data {
            Data::None => Ok(None),
            Data::Bytes(bytes) if *bytes == *NIL => Ok(T::decode(Data::Bytes(bytes)).ok()),
            some => T::decode(some).map(Some),
        }
    }
}

impl<T: Literal> Literal for Option<T> {}
