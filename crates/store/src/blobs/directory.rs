//! Objects as files of a directory. Relies on hard links, which every file system made for Linux or macOS has.
//!
//! ```text
//! objects/<name>            whole objects; a file appears here by one `link`, after its content was synced
//! unfinished/<name>.<try>   being written, or left by a crash; `list` reports them, `delete` removes them
//! writers/<writer>          locked by the process that writes as this one, if the store is one machine's
//! verified                  which of them were read for their digest; a hint, see `verified`
//! ```
//!
//! The order that makes a crash harmless: write and sync `unfinished`, link into `objects` (which refuses an existing
//! name, as a rename would not), sync `objects`, unlink `unfinished`. Both directories are made and synced when the
//! store is opened, and are flat, so no later write depends on a directory that might not be durable.
//!
//! It does not use `object_store`'s `LocalFileSystem` (0.14.2), because of what its source says: a multipart upload
//! ends with a rename, which replaces what was there; deletes are never synced, also not with `with_fsync(true)`;
//! staging files (`<name>#1`) that a crash leaves are hidden from its `list` and never swept; `list` has no
//! order; and a file from outside cannot be taken in without copying it.

mod adopt;
mod layout;
mod unfinished;
mod writers;

pub(super) use adopt::{open_regular, unreadable};
pub(super) use unfinished::digest_open;

use super::{
    Blobs, ByteStream, Chunks, ContentInfo, Error, Listed, ObjectName, ObjectState, Page,
    content::{from_file, in_pieces, of_len},
    verified::Hints,
};
use crate::fs::{remove_if_there, sync_directory};
use crate::{
    blocking::{blocking, blocking_unless_given_up},
    world::BoxFuture,
};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use layout::{Layout, len_of};
use onceflow_core::limits::{CHUNK_BYTES_MAX, LIST_OBJECTS_MAX};
use std::{
    fs::File,
    io::{ErrorKind::NotFound, Seek, SeekFrom},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};
use unfinished::Unfinished;
use writers::Writers;

/// A store of objects in a local directory. Any number of processes may share it.
#[derive(Clone, Debug)]
pub struct DirectoryBlobs {
    layout: Layout,
    /// Known where all writers are processes of one machine.
    writers: Option<Arc<Writers>>,
    hints: Arc<Hints>,
}

impl DirectoryBlobs {
    /// Opens the store in `root`, and makes missing directories.
    ///
    /// # Errors
    /// When the directories cannot be made and synced.
    pub async fn open(root: impl Into<PathBuf>) -> Result<Self, Error> {
        let layout = Layout::new(root.into());
        blocking(move || {
            layout.make()?;
            let hints = Arc::new(Hints::new(layout.root.join("verified"), layout.objects.clone()));
            Ok(DirectoryBlobs { layout, writers: None, hints })
        })
        .await
    }

    /// [`DirectoryBlobs::open`], for a store that only processes of this machine write to: the kernel then tells that a
    /// writer has ended, not a clock.
    ///
    /// # Errors
    /// As [`DirectoryBlobs::open`].
    pub async fn open_here(root: impl Into<PathBuf>) -> Result<Self, Error> {
        let directory = DirectoryBlobs::open(root).await?;
        let path = directory.layout.root.join("writers");
        let writers = blocking(move || Ok::<_, Error>(Writers::at(path))).await?;
        Ok(DirectoryBlobs { writers: Some(Arc::new(writers)), ..directory })
    }

    async fn write(&self, name: ObjectName, content: ByteStream) -> Result<ContentInfo, Error> {
        let layout = self.layout.clone();
        let mut unfinished = blocking(move || Unfinished::begin(layout, name)).await?;
        let mut content = in_pieces(content);
        loop {
            let gathered = gather(&mut content).await.map_err(|error| Error::content(name, error))?;
            if gathered.is_empty() {
                let (hints, object) = (self.hints.clone(), self.layout.object(name));
                let publish = move || {
                    let before = unfinished.look();
                    let stored = unfinished.publish()?;
                    hints.remember(&object, before, stored);
                    Ok(stored)
                };
                return blocking(publish).await;
            }
            unfinished = blocking(move || unfinished.write(&gathered)).await?;
        }
    }
}

/// The next pieces, about one chunk of them; none at the end.
async fn gather(content: &mut ByteStream) -> std::io::Result<Vec<Bytes>> {
    let (mut gathered, mut len) = (Vec::new(), 0);
    while len < CHUNK_BYTES_MAX {
        let Some(piece) = content.try_next().await? else { break };
        len += piece.len();
        gathered.push(piece);
    }
    Ok(gathered)
}

impl Blobs for DirectoryBlobs {
    fn create(&self, name: ObjectName, content: ByteStream) -> BoxFuture<'_, Result<ContentInfo, Error>> {
        Box::pin(self.write(name, content))
    }

    fn adopt<'a>(&'a self, name: ObjectName, path: &'a Path) -> BoxFuture<'a, Result<ContentInfo, Error>> {
        Box::pin(async move {
            let (layout, from, hints) = (self.layout.clone(), path.to_owned(), self.hints.clone());
            let linked = blocking_unless_given_up(move |given_up| adopt::link(&layout, name, &from, &hints, &given_up));
            match linked.await? {
                adopt::Linked::ContentInfo(stored) => Ok(stored),
                adopt::Linked::Elsewhere(file, len) => {
                    let stored = self.write(name, from_file(file, len)).await?;
                    adopt::remove(&self.layout, path).await?;
                    Ok(stored)
                }
            }
        })
    }

    fn read(&self, name: ObjectName, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Chunks, Error>> {
        let (layout, place) = (self.layout.clone(), self.layout.place.clone());
        Box::pin(async move {
            let (file, len) = blocking(move || open_at(&layout, name, range)).await?;
            let failed = place.clone();
            let chunks = from_file(file, len).map_err(move |error| Error::io(&failed, &error));
            Ok(of_len(chunks.boxed(), name, place, len))
        })
    }

    fn size(&self, name: ObjectName) -> BoxFuture<'_, Result<u64, Error>> {
        let layout = self.layout.clone();
        Box::pin(blocking(move || len_of(&layout.object(name)).map_err(|error| layout.error(name, &error))))
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<(), Error>> {
        let (layout, hints) = (self.layout.clone(), self.hints.clone());
        Box::pin(blocking(move || {
            delete(&layout, name)?;
            hints.forget_if_empty();
            Ok(())
        }))
    }

    fn enlist(&self, writer: u128) -> BoxFuture<'_, Result<(), Error>> {
        let (writers, place) = (self.writers.clone(), self.layout.place.clone());
        Box::pin(blocking(move || match writers {
            Some(writers) => writers.enlist(writer).map_err(|error| Error::io(&place, &error)),
            None => Ok(()),
        }))
    }

    fn knows_writers(&self) -> bool {
        self.writers.is_some()
    }

    fn has_ended(&self, writer: u128) -> BoxFuture<'_, Result<bool, Error>> {
        let (writers, place) = (self.writers.clone(), self.layout.place.clone());
        Box::pin(blocking(move || match writers {
            Some(writers) => writers.has_ended(writer).map_err(|error| Error::io(&place, &error)),
            None => Ok(false),
        }))
    }

    fn local(&self, name: ObjectName) -> Option<PathBuf> {
        Some(self.layout.object(name))
    }

    fn check(&self, name: ObjectName, stored: ContentInfo) -> BoxFuture<'_, Result<(), Error>> {
        let (layout, hints) = (self.layout.clone(), self.hints.clone());
        Box::pin(blocking(move || check(&layout, &hints, name, stored)))
    }

    fn list(&self, after: Option<ObjectName>, limit: usize) -> BoxFuture<'_, Result<Page, Error>> {
        let layout = self.layout.clone();
        Box::pin(blocking(move || list(&layout, after, limit.min(LIST_OBJECTS_MAX))))
    }
}

/// The object's file at the beginning of the range, and how many bytes to read.
fn open_at(layout: &Layout, name: ObjectName, range: Option<Range<u64>>) -> Result<(File, u64), Error> {
    let failed = |error| layout.error(name, &error);
    let mut file = File::open(layout.object(name)).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    let range = super::within(range, len).map_err(|range| layout.out_of_range(name, range, len))?;
    file.seek(SeekFrom::Start(range.start)).map_err(failed)?;
    Ok((file, range.end - range.start))
}

/// Checks the length first, which costs least. Anything but a regular file is not what was stored, wherever it leads.
fn check(layout: &Layout, hints: &Hints, name: ObjectName, stored: ContentInfo) -> Result<(), Error> {
    let path = layout.object(name);
    let metadata = std::fs::symlink_metadata(&path).map_err(|error| layout.error(name, &error))?;
    if !metadata.is_file() {
        return Err(Error::damaged(name, &layout.place, "it is no regular file"));
    }
    if metadata.len() != stored.len {
        return Err(Error::of_other_length(name, stored.len, metadata.len()));
    }
    let found = hints.stored(&path).map_err(|error| layout.error(name, &error))?;
    if found == stored { Ok(()) } else { Err(Error::of_other_content(name, stored, found)) }
}

/// Deletes unfinished files first: a writer that loses its file cannot link it any more.
fn delete(layout: &Layout, name: ObjectName) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::io(&layout.place, &error);
    layout.clear_unfinished(name).map_err(failed)?;
    remove_if_there(&layout.object(name)).map_err(failed)?;
    // Also when the file was gone already: the process that removed it may have crashed before this.
    sync_directory(&layout.objects).map_err(|error| Error::unknown(&layout.place, error))
}

/// Lists unfinished files first: one that is published meanwhile is then seen in one of the two.
fn list(layout: &Layout, after: Option<ObjectName>, limit: usize) -> Result<Page, Error> {
    let failed = |error: std::io::Error| Error::io(&layout.place, &error);
    let mut first = First { after, limit, found: Default::default() };
    layout.unfinished_names(|name| first.see(name, false)).map_err(failed)?;
    layout.object_names(|name| first.see(name, true)).map_err(failed)?;
    let more = first.found.len() > limit;
    let mut objects = Vec::with_capacity(limit.min(first.found.len()));
    for (name, whole) in first.found.into_iter().take(limit) {
        match state(layout, name, whole) {
            Ok(state) => objects.push(Listed { name, state }),
            Err(error) if error.kind() == NotFound => {} // Deleted since.
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(Page { objects, more })
}

fn state(layout: &Layout, name: ObjectName, whole: bool) -> std::io::Result<ObjectState> {
    if whole { len_of(&layout.object(name)).map(|len| ObjectState::Whole { len }) } else { Ok(ObjectState::Unfinished) }
}

/// The first names after `after`: `limit` of them, and one more to know that there are more.
struct First {
    after: Option<ObjectName>,
    limit: usize,
    found: std::collections::BTreeMap<ObjectName, bool>,
}

impl First {
    fn see(&mut self, name: ObjectName, whole: bool) {
        if self.after.is_some_and(|after| name <= after) {
            return;
        }
        *self.found.entry(name).or_default() |= whole;
        if self.found.len() > self.limit + 1 {
            self.found.pop_last();
        }
    }
}
