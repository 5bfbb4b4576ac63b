//! Bytes as values, whatever their size: small ones in a row, large ones in a blob. A reader need not know which.

use super::{
    Content, Error, Value, ValueChange, ValueId, Values,
    limits::INLINE_VALUE_BYTES_MAX,
    whole::{broken, wanted},
};
use crate::blobs::{self, content::read_checked};
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use onceflow_core::{Digest, payload::Stored};

impl Values {
    /// Returns the change that puts these bytes, and the value they become: up to [`INLINE_VALUE_BYTES_MAX`] an inline
    /// value, beyond that a blob, which is uploaded when this returns and reclaimed unless the change is committed.
    ///
    /// Inline values cost no I/O, and are not shared with equal ones: finding those would take a read.
    pub async fn put_bytes(&self, bytes: impl Into<Bytes>) -> Result<(ValueChange, Stored), Error> {
        let bytes = bytes.into();
        if bytes.len() <= INLINE_VALUE_BYTES_MAX {
            return Ok(self.put_inline(bytes.into()));
        }
        Ok(self.upload(blobs::content::from_bytes(bytes)).await?.into_change())
    }

    /// The change that puts these bytes as an inline value.
    pub(super) fn put_inline(&self, bytes: Vec<u8>) -> (ValueChange, Stored) {
        let stored = Stored { id: self.fresh_id(), digest: Digest::of(&bytes), len: bytes.len() as u64 };
        let value = Value { refs: vec![], content: Content::Inline(bytes) };
        (ValueChange::Put { id: stored.id.clone(), value }, stored)
    }

    /// Reads all bytes of an inline value or a blob into memory. Something must hold the value meanwhile.
    ///
    /// # Errors
    /// [`Senseless`](Error::Senseless) for a gathered list; [`Broken`](Error::Broken) if an object is not what its name
    /// says.
    pub async fn read_all(&self, id: &ValueId) -> Result<Bytes, Error> {
        let (name, len) = match self.get(id).await?.content {
            Content::Inline(bytes) => return Ok(bytes.into()),
            Content::Gathered { .. } => {
                return Err(Error::Senseless(format!("value {id} is a list, and has no bytes")));
            }
            Content::Source(source) => return self.read_source(source).await,
            Content::Object { name, len } => (name, len),
        };
        let mut chunks = read_checked(&**self.blobs()?, name, wanted(id, len)?).await.map_err(broken(id))?;
        let mut all = BytesMut::with_capacity(usize::try_from(len).unwrap_or(0));
        while let Some(chunk) = chunks.try_next().await.map_err(broken(id))? {
            all.extend_from_slice(&chunk);
        }
        Ok(all.freeze())
    }
}
