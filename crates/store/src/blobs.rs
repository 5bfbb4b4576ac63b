//! The port for large bytes: objects that are written once, read in pieces, and deleted.
//!
//! The contract, which `testing::blobs` holds every implementation to:
//!
//! | question | answer |
//! |---|---|
//! | atomic? | an object is there with all its bytes or not at all, whatever stops `create` or `adopt` half-way |
//! | ordered? | calls for one name happen one after the other; nothing is promised between names |
//! | visible when? | to every later call, by anyone, once `create` or `adopt` has returned; `delete` likewise |
//! | durable when? | when the call returns: content *and* the entry that names it; also the deletion, as far as the store can say |
//! | idempotent? | all of it: the same content under the same name answers what the first try did, other content [`Error::Exists`]; a file that was adopted answers again; deleting what is gone is fine |
//! | when a reply is lost? | [`Error::Unknown`]: try again under the same name, it reads back and compares |
//! | in memory? | never more than a few chunks, or one part of an upload; no chunk read is larger than [`CHUNK_BYTES_MAX`](onceflow_core::limits::CHUNK_BYTES_MAX) |
//! | what does a crash leave? | nothing under the name; `list` reports an unfinished object, `delete` removes it |
//!
//! A name is made from a fence, so it is never reused, and only one writer ever uses it
//! (`docs/decisions/0003-objects-are-named-by-fence.md`). The record that names an object decides what it is; an object
//! without a record, whose writer is no longer at work, is an orphan that [`Blobs::list`] finds.
//!
//! | implementation | where | what it costs |
//! |---|---|---|
//! | [`DirectoryBlobs`] | a local directory | two fsyncs per object; a page of `list` reads the whole directory |
//! | [`Objects::memory`] | memory | gone with the process |
//! | `redis::RedisObjects` (feature `redis`) | the server that has the rows | its memory |
//! | `objects::S3` (feature `s3`) | an S3-compatible bucket | one request per object up to a part, else a multipart upload |

pub mod content;
mod digest;
pub mod directory;
mod error;
mod limited;
pub mod objects;
#[cfg(feature = "redis")]
pub mod redis;
pub mod verified;

pub use digest::Hashing;
pub use directory::DirectoryBlobs;
pub use error::Error;
pub use limited::Limited;
pub use objects::Objects;
pub use onceflow_core::{
    Digest,
    value::{BadName, ObjectName},
};

use crate::world::BoxFuture;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
};

/// The bytes to be stored, piece by piece. An error in the stream fails the call, and nothing is stored.
pub type ByteStream = BoxStream<'static, io::Result<Bytes>>;

/// The bytes of an object, piece by piece, in order. After an error there is nothing more.
pub type Chunks = BoxStream<'static, Result<Bytes, Error>>;

/// The length and digest of an object's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContentInfo {
    /// The number of bytes.
    pub len: u64,
    /// The digest of all bytes.
    pub digest: Digest,
}

/// The state of an object: readable or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// The object is stored, with so many bytes.
    Whole {
        /// The number of bytes.
        len: u64,
    },
    /// A writer is writing the object, or stopped doing so. Nothing can be read.
    Unfinished,
}

/// One object of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name, which tells the incarnation of its writer.
    pub name: ObjectName,
    /// Its state.
    pub state: ObjectState,
}

/// Some objects, in order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The objects.
    pub objects: Vec<Listed>,
    /// There may be more objects after the last one.
    pub more: bool,
}

/// A store of objects. Object-safe; share it as `Arc<dyn Blobs>`.
///
/// Dropping the future of `create` or `adopt` before the content has been read to its end stores nothing; after
/// that it is open whether the object is stored. Everything may be repeated.
pub trait Blobs: Send + Sync + 'static {
    /// Stores the bytes of the stream, under a name that is new.
    ///
    /// # Errors
    /// [`Error::Exists`] when the name holds other content; that stays as it was.
    fn create(&self, name: ObjectName, content: ByteStream) -> BoxFuture<'_, Result<ContentInfo, Error>>;

    /// Moves a file into the store: after this it is an object, and no longer at `path`. Where the store is a directory
    /// of the same file system nothing is copied. Until the object is stored, the file stays where it was.
    ///
    /// No process may write to the file from here on, also not through a handle opened before: the stored object would
    /// change with it.
    ///
    /// # Errors
    /// [`Error::Content`] when there is no such regular file; symbolic links are not followed.
    fn adopt<'a>(&'a self, name: ObjectName, path: &'a Path) -> BoxFuture<'a, Result<ContentInfo, Error>>;

    /// Reads an object, or a range of its bytes. A read under way may fail when the object is deleted meanwhile, but
    /// never ends early without an error.
    ///
    /// # Errors
    /// [`Error::Missing`], and [`Error::Range`] for bytes the object does not have.
    fn read(&self, name: ObjectName, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Chunks, Error>>;

    /// Returns the length of an object in bytes.
    ///
    /// # Errors
    /// [`Error::Missing`].
    fn size(&self, name: ObjectName) -> BoxFuture<'_, Result<u64, Error>>;

    /// Deletes an object and everything unfinished under its name. A writer still at work under it then stores nothing,
    /// if its content was not complete yet.
    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<(), Error>>;

    /// Registers this process as `writer`, the incarnation in the names of its objects, from now on until it ends.
    /// Repeating it does nothing. Only a registered writer can be known to be alive.
    fn enlist(&self, writer: u128) -> BoxFuture<'_, Result<(), Error>> {
        let _ = writer;
        Box::pin(std::future::ready(Ok(())))
    }

    /// The store can detect that a writer has ended.
    fn knows_writers(&self) -> bool {
        false
    }

    /// The writer is known to have ended, so that nothing it began will be completed. `false` where that cannot be
    /// detected.
    fn has_ended(&self, writer: u128) -> BoxFuture<'_, Result<bool, Error>> {
        let _ = writer;
        Box::pin(std::future::ready(Ok(false)))
    }

    /// Returns the path of an object's file, for stores that are directories of this machine. The file is read-only,
    /// and any holder of the value that names the object may read it there; no process may change it.
    fn local(&self, name: ObjectName) -> Option<PathBuf> {
        let _ = name;
        None
    }

    /// Verifies, at little cost, that an object is what its record says: it exists, with so many bytes; and, where
    /// objects are files of this machine, with this digest, for which a file is read once and again only when its
    /// `stat` differs ([`verified`]). Elsewhere the reader of the object verifies the digest
    /// ([`content::read_checked`]).
    ///
    /// # Errors
    /// [`Error::Missing`] and [`Error::Damaged`].
    fn check(&self, name: ObjectName, stored: ContentInfo) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let found = self.size(name).await?;
            if found == stored.len { Ok(()) } else { Err(Error::of_other_length(name, stored.len, found)) }
        })
    }

    /// Objects whose names come after `after`, in order, at most `limit` (and at most
    /// [`LIST_OBJECTS_MAX`](onceflow_core::limits::LIST_OBJECTS_MAX)). An object that is there from before the first page
    /// until after the last is on one of them. To list what one incarnation made, start after
    /// [`ObjectName::before_all_of`] it.
    fn list(&self, after: Option<ObjectName>, limit: usize) -> BoxFuture<'_, Result<Page, Error>>;
}

/// The range asked for, or everything, if the object has it; otherwise the range as the error.
fn within(range: Option<Range<u64>>, len: u64) -> Result<Range<u64>, Range<u64>> {
    let range = range.unwrap_or(0..len);
    if range.start <= range.end && range.end <= len { Ok(range) } else { Err(range) }
}
