//! Objects in an object store, through the `object_store` crate: memory here, S3 behind the feature `s3`.
//!
//! ```text
//! objects/<name>      whole objects; put with "create only", by one request or by completing an upload
//! unfinished/<name>   holds the id of the upload at work on <name>; gone when it is whole
//! ```
//!
//! The note under `unfinished` is written before the first part, so an upload left by a crash can be found and
//! aborted: what can leak is an upload without parts, which takes no room.

#[cfg(feature = "s3")]
mod s3;
mod upload;

#[cfg(feature = "s3")]
pub use s3::S3;

use super::{
    Blobs, ByteStream, Chunks, ContentInfo, Error, Listed, ObjectName, ObjectState, Page,
    content::{adopt_by_copying, digest, in_pieces, of_len},
};
use crate::world::BoxFuture;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{
    Error as StoreError, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
    memory::InMemory, path::Path as StorePath,
};
use onceflow_core::limits::LIST_OBJECTS_MAX;
use std::{collections::BTreeMap, ops::Range, path::Path, sync::Arc};
use upload::Uploads;

/// A store of objects in an object store.
#[derive(Clone)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    uploads: Option<Uploads>,
    prefix: StorePath,
    place: Arc<str>,
}

impl Objects {
    /// An empty store in memory.
    pub fn memory() -> Self {
        let store = Arc::new(InMemory::new());
        Objects { store, uploads: None, prefix: StorePath::default(), place: "memory".into() }
    }

    fn object(&self, name: ObjectName) -> StorePath {
        self.prefix.clone().join("objects").join(name.to_string())
    }

    fn note(&self, name: ObjectName) -> StorePath {
        self.prefix.clone().join("unfinished").join(name.to_string())
    }

    async fn write(&self, name: ObjectName, content: ByteStream) -> Result<ContentInfo, Error> {
        let mut parts = Parts::of(in_pieces(content), self.uploads.as_ref().map_or(usize::MAX, Uploads::part_bytes));
        let first = parts.next(name).await?;
        let created = match &self.uploads {
            Some(uploads) if !parts.ended => self.upload(uploads, name, first, &mut parts).await,
            _ => self.put(name, first).await,
        }?;
        let stored = parts.hashing.info();
        match created {
            Created::Yes => Ok(stored),
            taken => self.compare(name, stored, taken).await,
        }
    }

    async fn put(&self, name: ObjectName, content: PutPayload) -> Result<Created, Error> {
        match self.store.put_opts(&self.object(name), content, PutMode::Create.into()).await {
            Ok(_) => Ok(Created::Yes),
            Err(why @ StoreError::AlreadyExists { .. }) => Ok(Created::Taken(why.to_string())),
            Err(error) => Err(self.changing(&error)),
        }
    }

    /// Compares with the object that has taken the name: it is of an earlier try of ours whose reply was lost, or
    /// another.
    async fn compare(&self, name: ObjectName, stored: ContentInfo, taken: Created) -> Result<ContentInfo, Error> {
        let chunks = match (self.read_range(name, None).await, taken) {
            // Taken, and not there: it was stored or deleted meanwhile.
            (Err(Error::Missing { .. }), Created::Taken(why)) => return Err(Error::unknown(&self.place, why)),
            (read, _) => read?,
        };
        if digest(chunks).await? == stored {
            return Ok(stored);
        }
        Err(Error::Exists { name, place: self.place.clone() })
    }

    async fn read_range(&self, name: ObjectName, range: Option<Range<u64>>) -> Result<Chunks, Error> {
        let out_of_range = |range, len| Error::Range { name, place: self.place.clone(), range, len };
        // An empty or reversed range cannot be expressed in a request; neither can a start at the very end.
        if let Some(range) = range.clone().filter(|range| range.is_empty()) {
            let len = self.len(name).await?;
            return super::within(Some(range), len).map(|_| stream::empty().boxed()).map_err(|r| out_of_range(r, len));
        }
        let options = GetOptions { range: range.clone().map(GetRange::Bounded), ..GetOptions::default() };
        let found = match (self.store.get_opts(&self.object(name), options).await, range.clone()) {
            (Ok(found), _) => found,
            (Err(error @ StoreError::NotFound { .. }), _) | (Err(error), None) => {
                return Err(self.reading(name, &error));
            }
            // Each store has its own way to say that the range is beyond the end.
            (Err(error), Some(range)) => match self.len(name).await? {
                len if range.end > len => return Err(out_of_range(range, len)),
                _ => return Err(self.reading(name, &error)),
            },
        };
        let range = super::within(range, found.meta.size).map_err(|range| out_of_range(range, found.meta.size))?;
        let (place, failed) = (self.place.clone(), self.clone());
        let chunks = in_pieces(found.into_stream().map_err(move |error| failed.reading(name, &error))).boxed();
        Ok(of_len(chunks, name, place, range.end - range.start))
    }

    async fn len(&self, name: ObjectName) -> Result<u64, Error> {
        match self.store.head(&self.object(name)).await {
            Ok(meta) => Ok(meta.size),
            Err(error) => Err(self.reading(name, &error)),
        }
    }

    async fn remove(&self, path: &StorePath) -> Result<(), Error> {
        match self.store.delete(path).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.changing(&error)),
        }
    }

    /// Lists unfinished objects first: one that is completed meanwhile is then seen in one of the two.
    async fn page(&self, after: Option<ObjectName>, limit: usize) -> Result<Page, Error> {
        let mut found = BTreeMap::new();
        if self.uploads.is_some() {
            self.names("unfinished", after, limit + 1, |name, _| _ = found.insert(name, ObjectState::Unfinished))
                .await?;
        }
        self.names("objects", after, limit + 1, |name, len| _ = found.insert(name, ObjectState::Whole { len })).await?;
        let more = found.len() > limit;
        let objects = found.into_iter().take(limit).map(|(name, state)| Listed { name, state }).collect();
        Ok(Page { objects, more })
    }

    async fn names(
        &self,
        under: &str,
        after: Option<ObjectName>,
        limit: usize,
        mut tell: impl FnMut(ObjectName, u64),
    ) -> Result<(), Error> {
        let under = self.prefix.clone().join(under);
        let listing = match after {
            Some(after) => self.store.list_with_offset(Some(&under), &under.clone().join(after.to_string())),
            None => self.store.list(Some(&under)),
        };
        let named = |meta: ObjectMeta| Some((meta.location.filename()?.parse().ok()?, meta.size));
        let mut named = listing.try_filter_map(|meta| std::future::ready(Ok(named(meta)))).take(limit);
        while let Some((name, len)) = named.try_next().await.map_err(|error| Error::unavailable(&self.place, error))? {
            tell(name, len);
        }
        Ok(())
    }

    fn reading(&self, name: ObjectName, error: &StoreError) -> Error {
        match error {
            StoreError::NotFound { .. } => Error::Missing { name, place: self.place.clone() },
            _ => Error::unavailable(&self.place, error),
        }
    }

    /// The error for a change that was not confirmed: it may have happened, unless access was denied.
    fn changing(&self, error: &StoreError) -> Error {
        match error {
            StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
                Error::unavailable(&self.place, error)
            }
            _ => Error::unknown(&self.place, error),
        }
    }
}

/// The result of creating an object under a name.
enum Created {
    Yes,
    /// The store says that the name is taken.
    Taken(String),
    /// The upload is gone: completed by a request whose reply was lost, or aborted by `delete`.
    Gone,
}

/// Content cut into the parts of an upload, digested as they are cut.
pub(super) struct Parts {
    content: ByteStream,
    part_bytes: usize,
    /// The bytes that did not fit into the last part.
    left: Bytes,
    pub(super) ended: bool,
    pub(super) hashing: super::Hashing,
}

impl Parts {
    pub(super) fn of(content: ByteStream, part_bytes: usize) -> Self {
        Parts { content, part_bytes, left: Bytes::new(), ended: false, hashing: super::Hashing::default() }
    }

    /// The next part. All but the last have exactly `part_bytes`: some stores want them equal.
    pub(super) async fn next(&mut self, name: ObjectName) -> Result<PutPayload, Error> {
        let (mut part, mut room) = (Vec::new(), self.part_bytes);
        while room > 0 {
            if self.left.is_empty() {
                match self.content.try_next().await.map_err(|error| Error::content(name, error))? {
                    Some(piece) => self.left = piece,
                    None => {
                        self.ended = true;
                        break;
                    }
                }
            }
            let piece = self.left.split_to(self.left.len().min(room));
            self.hashing.update(&piece);
            room -= piece.len();
            part.push(piece);
        }
        Ok(part.into_iter().collect())
    }
}

impl Blobs for Objects {
    fn create(&self, name: ObjectName, content: ByteStream) -> BoxFuture<'_, Result<ContentInfo, Error>> {
        Box::pin(self.write(name, content))
    }

    fn adopt<'a>(&'a self, name: ObjectName, path: &'a Path) -> BoxFuture<'a, Result<ContentInfo, Error>> {
        Box::pin(adopt_by_copying(self, &self.place, name, path))
    }

    fn read(&self, name: ObjectName, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Chunks, Error>> {
        Box::pin(self.read_range(name, range))
    }

    fn size(&self, name: ObjectName) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(self.len(name))
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            if let Some(uploads) = &self.uploads {
                self.abandon(uploads, name).await?;
            }
            self.remove(&self.object(name)).await
        })
    }

    fn list(&self, after: Option<ObjectName>, limit: usize) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(self.page(after, limit.min(LIST_OBJECTS_MAX)))
    }
}

#[cfg(test)]
mod tests;
