//! The identity of a process that writes values: names that no other writer uses, and its registration where other
//! processes can detect its end.

use super::{
    Content, Error, Hold, Value, ValueChange, ValueId, blob, roots,
    rows::{Tried, ValueRows},
};
use crate::{
    blobs::{Blobs, ObjectName},
    records::Scan,
    world::BoxFuture,
};
use onceflow_core::{Batch, Digest, Fence, Fences, payload::Stored};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering::SeqCst},
};

/// Registers a writer where other processes can detect its end.
pub type Enlisting = Box<dyn Fn() -> BoxFuture<'static, Result<(), Error>> + Send + Sync>;

/// A process that writes values.
pub(super) struct ValueWriter {
    fences: Fences,
    /// This writer is registered where its end can be detected.
    is_enlisted: AtomicBool,
    enlisting: OnceLock<Enlisting>,
}

impl ValueWriter {
    pub(super) fn new(fences: Fences) -> Self {
        ValueWriter { fences, is_enlisted: AtomicBool::new(false), enlisting: OnceLock::new() }
    }

    /// The part that all names of this writer begin with.
    pub(super) fn incarnation(&self) -> u128 {
        self.fences.incarnation()
    }

    pub(super) fn fence(&self) -> Fence {
        self.fences.next()
    }

    /// An id for a new value, unique for ever.
    pub(super) fn fresh_id(&self) -> ValueId {
        ValueId::of_fence(self.fence())
    }

    /// A name for a new object, unique for ever.
    pub(super) fn fresh_object(&self) -> ObjectName {
        ObjectName::new(self.fence())
    }

    /// The change that puts these bytes as an inline value.
    pub(super) fn put_inline(&self, bytes: Vec<u8>) -> (ValueChange, Stored) {
        let stored = Stored { id: self.fresh_id(), digest: Digest::of(&bytes), len: bytes.len() as u64 };
        let value = Value { refs: vec![], content: Content::Inline(bytes) };
        (ValueChange::Put { id: stored.id.clone(), value }, stored)
    }

    /// Sets how this writer is registered; only the first call counts.
    pub(super) fn enlist_with(&self, enlisting: Enlisting) {
        let _first_counts = self.enlisting.set(enlisting);
    }

    /// Registers this process as a writer before it writes, so that its uploads are not taken for those of a dead
    /// process.
    pub(super) async fn enlist(&self, blobs: Option<&Arc<dyn Blobs>>) -> Result<(), Error> {
        if let Some(blobs) = blobs.filter(|_| !self.is_enlisted.load(SeqCst)) {
            blobs.enlist(self.incarnation()).await?;
            if let Some(enlisting) = self.enlisting.get().filter(|_| !blobs.knows_writers()) {
                enlisting().await?;
            }
            self.is_enlisted.store(true, SeqCst);
        }
        Ok(())
    }
}

/// Turns the uploads and holds of a writer that has ended into garbage: see
/// [`Values::abandon_writer`](super::Values::abandon_writer).
pub(super) async fn abandon(rows: &ValueRows, writer: u128) -> Result<(), Error> {
    roots::clear(rows, &Hold::prefix_of(writer), |_| true).await?;
    loop {
        let scan = Scan::of(rows.keys.uploads.clone(), blob::OBJECTS_MAX).prefix(writer.to_be_bytes());
        let page = rows.records.scan(rows.shard, scan).await?;
        let mut batch = Batch::new(rows.shard);
        for (name, row) in &page.rows {
            blob::abandon_upload(&rows.keys, &mut batch, name, row.clone());
        }
        // Refused if another process did the same, or the upload was committed, meanwhile.
        if batch.ops.is_empty() || matches!(rows.try_commit(&batch).await?, Tried::Applied(_)) && !page.more {
            return Ok(());
        }
    }
}
