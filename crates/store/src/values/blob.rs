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

use super::{
    Content, Error, Tried, Value, ValueChange, ValueId, Values,
    hold::Hold,
    limits,
    whole::{broken, wanted},
};
use crate::{
    blobs::{self, Blobs, Chunks, ContentInfo, ObjectName},
    records::{Scan, commit_durably},
};
use futures_util::{StreamExt, TryStreamExt};
use onceflow_core::{Batch, Fence, Name, Row, payload::Stored};
use std::{
    ops::Range,
    path::Path,
    sync::{Arc, atomic::Ordering::SeqCst},
};

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

impl Values {
    /// Keeps the bytes of blobs in `blobs`, which must be this shard's own: an object that no row of the shard names is
    /// an orphan.
    pub fn with_blobs(self, blobs: Arc<dyn Blobs>) -> Self {
        Values { blobs: Some(blobs), ..self }
    }

    /// Stores bytes as an object. Unless an update puts the blob, the object is deleted after this process ends, where
    /// that can be detected ([`Blobs::has_ended`]), or after [`UPLOAD_MS_MAX`](limits::UPLOAD_MS_MAX).
    pub async fn upload(&self, content: blobs::ByteStream) -> Result<Upload, Error> {
        let name = self.announce().await?;
        let info = match self.blobs()?.create(name, content).await {
            Err(lost @ blobs::Error::Unknown { .. }) => self.confirm(name, lost).await?,
            answered => answered?,
        };
        self.mend(&ValueId::of_blob(info.digest)).await?;
        Ok(Upload { name, info })
    }

    /// Moves a file into the store as a blob; it is no longer at its path afterwards.
    pub async fn adopt(&self, path: &Path) -> Result<Upload, Error> {
        let name = self.announce().await?;
        let info = match self.blobs()?.adopt(name, path).await {
            Err(lost @ blobs::Error::Unknown { .. }) => self.adopt_again(name, path, lost).await?,
            answered => answered?,
        };
        self.mend(&ValueId::of_blob(info.digest)).await?;
        Ok(Upload { name, info })
    }

    /// Adopts a file again under the same name, because the answer to the first call was lost.
    async fn adopt_again(&self, name: ObjectName, path: &Path, lost: blobs::Error) -> Result<ContentInfo, Error> {
        for _ in 0..limits::REPLIES_LOST_MAX {
            match self.blobs()?.adopt(name, path).await {
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
        let blobs = self.blobs()?;
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

    /// Reads a blob or a file by reference, or a range of its bytes. Something must hold the value meanwhile. The value
    /// is checked first, as by [`Values::check`]; the stream of a whole blob also ends with [`blobs::Error::Damaged`]
    /// if the bytes are not those stored, so a reader that must not act on wrong bytes waits for the end.
    pub async fn read_blob(&self, id: &ValueId, range: Option<Range<u64>>) -> Result<Chunks, Error> {
        match self.get(id).await?.content {
            Content::Object { name, len } => {
                self.check_object(id, name, len).await?;
                let blobs = self.blobs()?;
                let read = match range {
                    None => blobs::content::read_checked(&**blobs, name, wanted(id, len)?).await,
                    range => blobs.read(name, range).await,
                };
                read.map_err(broken(id))
            }
            Content::Source(source) => self.stream_source(source, range).await,
            Content::Inline(_) | Content::Gathered { .. } => Err(Error::Senseless(format!("value {id} is no blob"))),
        }
    }

    pub(super) fn blobs(&self) -> Result<&Arc<dyn Blobs>, Error> {
        self.blobs.as_ref().ok_or_else(|| Error::Senseless("these values were opened without a blob store".into()))
    }

    /// Sets how this writer is registered before it writes for the first time, for blob stores that cannot detect the
    /// end of a writer. Only the first call counts.
    pub fn enlist_with(&self, enlisting: super::Enlisting) {
        let _first_counts = self.enlisting.set(enlisting);
    }

    /// Registers this process as a writer before it writes, so that its uploads are not taken for those of a dead
    /// process.
    pub(super) async fn enlist(&self) -> Result<(), Error> {
        let blobs = self.blobs.as_ref().filter(|_| !self.is_enlisted.load(SeqCst));
        if let Some(blobs) = blobs {
            blobs.enlist(self.fences.incarnation()).await?;
            if let Some(enlisting) = self.enlisting.get().filter(|_| !blobs.knows_writers()) {
                enlisting().await?;
            }
            self.is_enlisted.store(true, SeqCst);
        }
        Ok(())
    }

    /// Durably records that an object of this name may be written.
    async fn announce(&self) -> Result<ObjectName, Error> {
        self.blobs()?;
        self.enlist().await?;
        let name = ObjectName::new(self.fences.next());
        let deadline = self.records.now().await?.plus_ms(limits::UPLOAD_MS_MAX);
        let mut batch = Batch::new(self.shard);
        batch.put(self.keys.upload(name), Row::new(deadline.to_sortable()));
        let _applied = commit_durably(&*self.records, batch).await?;
        Ok(name)
    }

    /// The incarnation of this writer: its objects, and its leases on values put ahead, are named by it.
    pub fn writer(&self) -> u128 {
        self.fences.incarnation()
    }

    /// Turns the uploads of a writer that the caller knows to have ended, and the values it had put ahead of a batch,
    /// into garbage. If the writer lives after all, its batches that need any of them are refused.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn abandon_writer(&self, writer: u128) -> Result<(), Error> {
        self.clear_roots(&Hold::prefix_of(writer), |_| true).await?;
        loop {
            let scan = Scan::of(self.keys.uploads.clone(), OBJECTS_MAX).prefix(writer.to_be_bytes());
            let page = self.records.scan(self.shard, scan).await?;
            let mut batch = Batch::new(self.shard);
            for (name, row) in &page.rows {
                self.abandon_upload(&mut batch, name, row.clone());
            }
            // Refused if another process did the same, or the upload was committed, meanwhile.
            if batch.ops.is_empty() || matches!(self.try_commit(batch).await?, Tried::Applied(_)) && !page.more {
                return Ok(());
            }
        }
    }

    /// Queues the object of an upload for deletion.
    pub(super) fn abandon_upload(&self, batch: &mut Batch, name: &Name, row: Row) {
        let key = self.keys.uploads.key(name);
        batch.require_equals(key.clone(), row).delete(key);
        batch.put(self.keys.unlink.key(name), Row::default());
    }
}

/// The object that a row of `uploads` or `unlink` is about.
pub(super) fn object(name: &Name) -> Option<ObjectName> {
    Fence::from_bytes(name.as_bytes()).map(ObjectName::new)
}
