//! Bytes as values, whatever their size: small ones in a row, large ones in a blob. Whoever reads them need not know
//! which.

use super::Weave;
use crate::{
    blobs::{self, content::read_checked},
    values::{
        Error, ValueId, Values,
        limits::INLINE_VALUE_BYTES_MAX,
        value::{Content, Digest, Value},
        whole::{broken, wanted},
    },
};
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;

impl Values {
    /// What puts these bytes: up to [`INLINE_VALUE_BYTES_MAX`] a value of their own, larger ones a blob, which is stored
    /// when this returns and goes again unless it is woven. Also the value's id, the bytes' BLAKE3 digest and how many
    /// there are.
    ///
    /// Small ones cost no I/O. They are not shared with equal ones: to find those would take a read.
    pub async fn put_bytes(&self, bytes: impl Into<Bytes>) -> Result<(Weave, ValueId, Digest, u64), Error> {
        let bytes = bytes.into();
        let len = bytes.len() as u64;
        if bytes.len() <= INLINE_VALUE_BYTES_MAX {
            let (id, digest) = (self.fresh_id(), *blake3::hash(&bytes).as_bytes());
            let value = Value { refs: vec![], content: Content::Inline(bytes.into()) };
            return Ok((Weave::Put { id: id.clone(), value }, id, digest, len));
        }
        let upload = self.upload(blobs::content::from_bytes(bytes)).await?;
        let (id, digest) = (upload.id(), upload.stored().digest.to_bytes());
        Ok((Weave::Blob(upload), id, digest, len))
    }

    /// All bytes of a value that is inline or a blob, in memory. Something must hold the value meanwhile.
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
