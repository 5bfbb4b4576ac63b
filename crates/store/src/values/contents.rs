//! The bytes of values, wherever they lie: in a row, in an object, in a file of the user's. A reader need not know which.

use super::{
    Content, Error, Integrity, ValueId,
    whole::{broken, wanted},
};
use crate::blobs::{Chunks, content::read_checked};
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use std::ops::Range;

/// Reads the bytes of values, and hands out only those that were stored.
#[derive(Clone, Copy)]
pub struct ValueBytes<'a> {
    pub(super) integrity: Integrity<'a>,
}

impl ValueBytes<'_> {
    /// All bytes of a value, in memory: see [`Values::read_all`](super::Values::read_all).
    pub(super) async fn all(self, id: &ValueId) -> Result<Bytes, Error> {
        let Integrity { rows, sources, .. } = self.integrity;
        let (name, len) = match rows.get(id).await?.content {
            Content::Inline(bytes) => return Ok(bytes.into()),
            Content::Gathered { .. } => {
                return Err(Error::Senseless(format!("value {id} is a list, and has no bytes")));
            }
            Content::Source(source) => return sources.read(source).await,
            Content::Object { name, len } => (name, len),
        };
        let mut chunks = read_checked(&**self.integrity.blobs()?, name, wanted(id, len)?).await.map_err(broken(id))?;
        let mut all = BytesMut::with_capacity(usize::try_from(len).unwrap_or(0));
        while let Some(chunk) = chunks.try_next().await.map_err(broken(id))? {
            all.extend_from_slice(&chunk);
        }
        Ok(all.freeze())
    }

    /// Reads a blob or a file by reference, or a range of its bytes. Something must hold the value meanwhile. The value
    /// is checked first, as by [`Integrity::check`]; the stream of a whole blob also ends with
    /// [`blobs::Error::Damaged`](crate::blobs::Error::Damaged) if the bytes are not those stored, so a reader that must
    /// not act on wrong bytes waits for the end.
    ///
    /// # Errors
    /// [`Senseless`](Error::Senseless) if the value is neither.
    pub async fn stream(self, id: &ValueId, range: Option<Range<u64>>) -> Result<Chunks, Error> {
        let Integrity { rows, sources, .. } = self.integrity;
        match rows.get(id).await?.content {
            Content::Object { name, len } => {
                self.integrity.check_object(id, name, len).await?;
                let blobs = self.integrity.blobs()?;
                let read = match range {
                    None => read_checked(&**blobs, name, wanted(id, len)?).await,
                    range => blobs.read(name, range).await,
                };
                read.map_err(broken(id))
            }
            Content::Source(source) => sources.stream(source, range).await,
            Content::Inline(_) | Content::Gathered { .. } => Err(Error::Senseless(format!("value {id} is no blob"))),
        }
    }
}
