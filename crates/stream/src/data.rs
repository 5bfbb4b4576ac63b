//! The data that flows: any type that can be encoded, cloned and sent.

use serde::{Serialize, de::DeserializeOwned};

/// A record's key or value. Implemented for every type that fits.
pub trait StreamData: Serialize + DeserializeOwned + Clone + Send + 'static {}

impl<T: Serialize + DeserializeOwned + Clone + Send + 'static> StreamData for T {}

/// Encodes a value.
///
/// # Panics
/// If its `Serialize` fails: such a type cannot be stored.
pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    encode_into(Vec::new(), value)
}

/// Encodes a value behind the bytes that are there.
pub(crate) fn encode_into<T: Serialize>(bytes: Vec<u8>, value: &T) -> Vec<u8> {
    postcard::to_extend(value, bytes).unwrap_or_else(|error| {
        panic!("a {} cannot be encoded: {error}", std::any::type_name::<T>());
    })
}

/// Decodes a value that [`encode`] wrote.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadValue> {
    postcard::from_bytes(bytes).map_err(|error| BadValue { of: std::any::type_name::<T>(), error })
}

/// Reads bytes of a fixed length.
pub(crate) fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], BadValue> {
    let error = postcard::Error::DeserializeUnexpectedEnd;
    bytes.try_into().map_err(|_| BadValue { of: std::any::type_name::<[u8; N]>(), error })
}

/// Stored bytes that are not a value of the type that reads them.
#[derive(Clone, Debug, thiserror::Error)]
#[error("stored bytes are no {of} ({error}); did its type change?")]
pub struct BadValue {
    of: &'static str,
    error: postcard::Error,
}
