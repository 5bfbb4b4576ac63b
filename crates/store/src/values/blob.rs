//! Blobs as values. A blob is a value named by the digest of its bytes, which lie in an object; other values refer to
//! it as to any value, and it is counted and swept like any.
//!
//! The object's life cycle is ordered so that a crash leaves only objects that a row names:
//!
//! ```text
//! uploads/object   written, durable, before the first byte        (its writer ended, or its time did: it becomes an unlink)
//! object           stored, durable
//! value            put by an update: the row goes with it, or, if the blob is there already, becomes an unlink
//! unlink/object    written by the batch that sweeps the value     (durable before the object is touched)
//! object           deleted, then the row
//! ```
//!
//! An object's name is made from a fence and never used again, so deleting it twice deletes nothing else.

use super::{Content, Error, Integrity, Value, ValueChange, ValueId, keys::Keys, limits, writer::ValueWriter};
use crate::{
    blobs::{self, ContentInfo, ObjectName},
    records::commit_durably,
};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use onceflow_core::{Batch, Fence, Name, Row, payload::Stored};
use std::path::Path;

/// Objects looked at by one batch.
pub(super) const OBJECTS_MAX: usize = 64;

/// An object that is stored, and that no value names yet. [`Upload::change`] puts the blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    name: ObjectName,
    info: ContentInfo,
}

impl Upload {
    /// The id of the blob it becomes: the digest of its bytes.
    pub fn id(&self) -> ValueId {
        ValueId::of_blob(self.info.digest)
    }

    /// The length and digest of the bytes.
    pub fn info(&self) -> ContentInfo {
        self.info
    }

    /// The change that puts the blob. The blob names the object just uploaded, or the one that is stored already.
    pub fn change(&self) -> ValueChange {
        let content = Content::Object { name: self.name, len: self.info.len };
        ValueChange::Put { id: self.id(), value: Value { refs: vec![], content } }
    }

    pub(super) fn into_change(self) -> (ValueChange, Stored) {
        (self.change(), Stored { id: self.id(), digest: self.info.digest, len: self.info.len })
    }
}

/// The objects of a writer, which become blobs.
#[derive(Clone, Copy)]
pub struct Uploads<'a> {
    pub(super) integrity: Integrity<'a>,
    pub(super) writer: &'a ValueWriter,
}

impl Uploads<'_> {
    /// The change that puts these bytes: see [`Values::put_bytes`](super::Values::put_bytes).
    pub(super) async fn put_bytes(self, bytes: Bytes) -> Result<(ValueChange, Stored), Error> {
        if bytes.len() <= limits::INLINE_VALUE_BYTES_MAX {
            return Ok(self.writer.put_inline(bytes.into()));
        }
        Ok(self.upload(blobs::content::from_bytes(bytes)).await?.into_change())
    }

    /// Stores bytes as an object. Unless an update puts the blob, the object is deleted after this process ends, where
    /// that can be detected ([`Blobs::has_ended`](blobs::Blobs::has_ended)), or after [`UPLOAD_MS_MAX`](limits::UPLOAD_MS_MAX).
    pub async fn upload(&self, content: blobs::ByteStream) -> Result<Upload, Error> {
        let name = self.announce().await?;
        let info = match self.integrity.blobs()?.create(name, content).await {
            Err(lost @ blobs::Error::Unknown { .. }) => self.confirm(name, lost).await?,
            answered => answered?,
        };
        self.integrity.mend(&ValueId::of_blob(info.digest)).await?;
        Ok(Upload { name, info })
    }

    /// Moves a file into the store as a blob; it is no longer at its path afterwards.
    pub async fn adopt(&self, path: &Path) -> Result<Upload, Error> {
        let name = self.announce().await?;
        let info = match self.integrity.blobs()?.adopt(name, path).await {
            Err(lost @ blobs::Error::Unknown { .. }) => self.adopt_again(name, path, lost).await?,
            answered => answered?,
        };
        self.integrity.mend(&ValueId::of_blob(info.digest)).await?;
        Ok(Upload { name, info })
    }

    /// Adopts a file again under the same name, because the answer to the first call was lost.
    async fn adopt_again(&self, name: ObjectName, path: &Path, lost: blobs::Error) -> Result<ContentInfo, Error> {
        for _ in 0..limits::REPLIES_LOST_MAX {
            match self.integrity.blobs()?.adopt(name, path).await {
                Ok(stored) => return Ok(stored),
                Err(blobs::Error::Unknown { .. }) => {}
                // The file is no longer at its path, so it was taken.
                Err(blobs::Error::Content { .. }) => return self.confirm(name, lost).await,
                Err(_) => break,
            }
        }
        Err(lost.into())
    }

    /// Stores an object again under its name, because the answer to the first call was lost. An object under the name
    /// is whole, and storing the same bytes again confirms it; the source cannot give its bytes twice, so they are read
    /// from the object.
    async fn confirm(&self, name: ObjectName, lost: blobs::Error) -> Result<ContentInfo, Error> {
        let blobs = self.integrity.blobs()?;
        for _ in 0..limits::REPLIES_LOST_MAX {
            let Ok(chunks) = blobs.read(name, None).await else { break };
            match blobs.create(name, chunks.map_err(std::io::Error::other).boxed()).await {
                Ok(stored) => return Ok(stored),
                Err(blobs::Error::Unknown { .. }) => {}
                Err(_) => break,
            }
        }
        Err(lost.into())
    }

    /// Durably records that an object of this name may be written.
    async fn announce(&self) -> Result<ObjectName, Error> {
        let rows = self.integrity.rows;
        self.writer.enlist(Some(self.integrity.blobs()?)).await?;
        let name = self.writer.fresh_object();
        let deadline = rows.records.now().await?.plus_ms(limits::UPLOAD_MS_MAX);
        let mut batch = Batch::new(rows.shard);
        batch.put(rows.keys.upload(name), Row::new(deadline.to_sortable()));
        let _applied = commit_durably(&*rows.records, batch).await?;
        Ok(name)
    }
}

/// Queues the object of an upload for deletion.
pub(super) fn abandon_upload(keys: &Keys, batch: &mut Batch, name: &Name, row: Row) {
    let key = keys.uploads.key(name);
    batch.require_equals(key.clone(), row).delete(key);
    batch.put(keys.unlink.key(name), Row::default());
}

/// The object that a row of `uploads` or `unlink` is about.
pub(super) fn object(name: &Name) -> Option<ObjectName> {
    Fence::from_bytes(name.as_bytes()).map(ObjectName::new)
}
