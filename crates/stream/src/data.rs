//! The data that flows: any type that can be encoded, cloned and sent.

use postcard::ser_flavors::Flavor;
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
    postcard::serialize_with_flavor(value, Appended(bytes)).unwrap_or_else(|error| {
        panic!("a {} cannot be encoded: {error}", std::any::type_name::<T>());
    })
}

/// Appends slices at once; postcard's own flavors take them byte by byte.
struct Appended(Vec<u8>);

impl Flavor for Appended {
    type Output = Vec<u8>;

    #[inline]
    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    #[inline]
    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
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
