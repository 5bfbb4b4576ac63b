//! A store of objects that may hold only so many bytes. An object that would exceed the limit is refused as
//! [`Error::Full`], naming the limit, before or while it is stored; nothing is left of it.
//!
//! Usage is measured by listing: exactly when the limit is near, and else now and then, so that storing an object costs
//! the same however many there are. Objects of other writers are seen by the next measurement, so the limit may be
//! exceeded by what they store between two of them.

use super::{Blobs, ByteStream, Chunks, ContentInfo, Error, ObjectName, ObjectState, Page};
use crate::{blocking::blocking, world::BoxFuture};
use bytes::Bytes;
use futures_util::StreamExt;
use onceflow_core::limits::LIST_OBJECTS_MAX;
use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

/// Objects stored before it is measured again, though far from the limit: this many, and one for each [`SHARE`] there are.
const UPLOADS_MIN: u64 = 64;
const SHARE: u64 = 8;

/// Objects of at most so many bytes together.
pub struct Limited {
    blobs: Arc<dyn Blobs>,
    bytes_max: u64,
    used: Arc<Mutex<Used>>,
}

/// Bytes of stored objects, as last counted.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// Bytes of all objects, including those being stored now.
    bytes: u64,
    /// Number of objects at the last measurement.
    objects: u64,
    /// Objects stored since.
    uploads: u64,
    /// Usage was measured, and nothing has happened since that makes it doubtful.
    is_known: bool,
}

impl Used {
    /// Usage has to be measured before the next object.
    fn is_old(&self, bytes_max: u64) -> bool {
        !self.is_known || self.uploads >= UPLOADS_MIN + self.objects / SHARE || self.bytes > bytes_max / 4 * 3
    }
}

impl Limited {
    /// Limits these blobs to `bytes_max` in total.
    pub fn new(blobs: Arc<dyn Blobs>, bytes_max: u64) -> Self {
        Limited { blobs, bytes_max, used: Arc::default() }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        lock(&self.used)
    }

    /// Measures usage, if that is due. An object being stored meanwhile counts by its last measured part only.
    async fn look(&self) -> Result<(), Error> {
        if !self.used().is_old(self.bytes_max) {
            return Ok(());
        }
        let (mut bytes, mut objects, mut after) = (0, 0, None);
        loop {
            let page = self.blobs.list(after, LIST_OBJECTS_MAX).await?;
            after = page.objects.last().map(|listed| listed.name);
            for listed in &page.objects {
                if let ObjectState::Whole { len } = listed.state {
                    (bytes, objects) = (bytes + len, objects + 1);
                }
            }
            if !page.more || after.is_none() {
                break;
            }
        }
        *self.used() = Used { bytes, objects, uploads: 0, is_known: true };
        Ok(())
    }

    fn full(&self) -> Error {
        let used = self.used().bytes;
        let why = format!("a store may have {} bytes here (`bytes_max`), and has {used}", self.bytes_max);
        Error::Full { place: "the store".into(), why: why.into() }
    }
}

/// The bytes counted for an object; they are subtracted again when this is dropped before the object is stored.
struct Counted {
    used: Arc<Mutex<Used>>,
    bytes: AtomicU64,
    is_stored: bool,
}

impl Counted {
    fn of(limited: &Limited) -> Self {
        Counted { used: limited.used.clone(), bytes: AtomicU64::new(0), is_stored: false }
    }

    /// Counts so many bytes more, if there is room.
    fn take(&self, bytes_max: u64, len: u64) -> bool {
        let mut used = lock(&self.used);
        let bytes = used.bytes.checked_add(len).filter(|bytes| *bytes <= bytes_max);
        if let Some(bytes) = bytes {
            used.bytes = bytes;
            self.bytes.fetch_add(len, SeqCst);
        }
        bytes.is_some()
    }

    fn stored(mut self) {
        self.is_stored = true;
        lock(&self.used).uploads += 1;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if !self.is_stored {
            let mut used = lock(&self.used);
            used.bytes = used.bytes.saturating_sub(self.bytes.load(SeqCst));
            used.is_known = false;
        }
    }
}

fn lock(used: &Mutex<Used>) -> MutexGuard<'_, Used> {
    used.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Blobs for Limited {
    fn create(&self, name: ObjectName, content: ByteStream) -> BoxFuture<'_, Result<ContentInfo, Error>> {
        Box::pin(async move {
            self.look().await?;
            let (counted, bytes_max) = (Arc::new(Counted::of(self)), self.bytes_max);
            let is_full = Arc::new(AtomicBool::new(false));
            let (count, refused) = (Arc::downgrade(&counted), is_full.clone());
            let piece = move |piece: io::Result<Bytes>| {
                let piece = piece?;
                // Once the count is dropped, no caller waits for the object any more.
                let is_taken = count.upgrade().is_some_and(|count| count.take(bytes_max, piece.len() as u64));
                refused.fetch_or(!is_taken, SeqCst);
                let full = || io::Error::new(io::ErrorKind::StorageFull, "the store's limit is reached");
                if is_taken { Ok(piece) } else { Err(full()) }
            };
            let stored = self.blobs.create(name, content.map(piece).boxed()).await;
            match (stored, Arc::into_inner(counted)) {
                (Ok(stored), counted) => {
                    counted.into_iter().for_each(Counted::stored);
                    Ok(stored)
                }
                (Err(error), counted) => {
                    drop(counted);
                    Err(if is_full.load(SeqCst) { self.full() } else { error })
                }
            }
        })
    }

    fn adopt<'a>(&'a self, name: ObjectName, path: &'a Path) -> BoxFuture<'a, Result<ContentInfo, Error>> {
        Box::pin(async move {
            self.look().await?;
            let from = path.to_owned();
            // The store itself refuses a path that is not a file with a length.
            let len = blocking(move || std::fs::symlink_metadata(from).map_or(0, |file| file.len())).await;
            let counted = Counted::of(self);
            if !counted.take(self.bytes_max, len) {
                return Err(self.full());
            }
            let stored = self.blobs.adopt(name, path).await?;
            counted.stored();
            Ok(stored)
        })
    }

    fn read(&self, name: ObjectName, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Chunks, Error>> {
        self.blobs.read(name, range)
    }

    fn size(&self, name: ObjectName) -> BoxFuture<'_, Result<u64, Error>> {
        self.blobs.size(name)
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<(), Error>> {
        self.used().is_known = false;
        self.blobs.delete(name)
    }

    fn enlist(&self, writer: u128) -> BoxFuture<'_, Result<(), Error>> {
        self.blobs.enlist(writer)
    }

    fn knows_writers(&self) -> bool {
        self.blobs.knows_writers()
    }

    fn has_ended(&self, writer: u128) -> BoxFuture<'_, Result<bool, Error>> {
        self.blobs.has_ended(writer)
    }

    fn local(&self, name: ObjectName) -> Option<PathBuf> {
        self.blobs.local(name)
    }

    fn check(&self, name: ObjectName, stored: ContentInfo) -> BoxFuture<'_, Result<(), Error>> {
        self.blobs.check(name, stored)
    }

    fn list(&self, after: Option<ObjectName>, limit: usize) -> BoxFuture<'_, Result<Page, Error>> {
        self.blobs.list(after, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blobs::{Objects, content::from_bytes};
    use onceflow_core::Fences;

    #[tokio::test]
    async fn an_upload_over_the_store_limit_is_refused_and_leaves_nothing() {
        let (objects, fences) = (Arc::new(Objects::memory()), Fences::new(1));
        let limited = Limited::new(objects.clone(), 100);
        let name = || ObjectName::new(fences.next());
        let first = name();
        limited.create(first, from_bytes("x".repeat(60))).await.unwrap();
        let refused = limited.create(name(), from_bytes("y".repeat(41))).await.unwrap_err();
        assert!(matches!(refused, Error::Full { .. }), "{refused}");
        assert!(refused.to_string().contains("100 bytes here (`bytes_max`), and has 60"), "{refused}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "z".repeat(41)).unwrap();
        assert!(matches!(limited.adopt(name(), file.path()).await, Err(Error::Full { .. })));
        assert!(file.path().exists(), "what is not taken stays where it is");
        limited.create(name(), from_bytes("y".repeat(40))).await.unwrap();
        assert_eq!(objects.list(None, 10).await.unwrap().objects.len(), 2);
        limited.delete(first).await.unwrap();
        limited.adopt(name(), file.path()).await.unwrap();
    }

    #[tokio::test]
    async fn uploads_of_other_writers_count_towards_the_limit() {
        let (objects, fences) = (Arc::new(Objects::memory()), Fences::new(1));
        let (one, two) = (Limited::new(objects.clone(), 100), Limited::new(objects, 100));
        let name = || ObjectName::new(fences.next());
        one.create(name(), from_bytes("x".repeat(80))).await.unwrap();
        assert!(matches!(two.create(name(), from_bytes("x".repeat(21))).await, Err(Error::Full { .. })));
        two.create(name(), from_bytes("x".repeat(20))).await.unwrap();
        assert!(matches!(one.create(name(), from_bytes("x")).await, Err(Error::Full { .. })));
    }
}
