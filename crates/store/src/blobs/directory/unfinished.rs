//! An object that is being written. It holds the only name of its file until it is published; dropped before, it
//! removes the file, and after a crash `list` finds the file.

use super::layout::Layout;
use crate::blobs::{ContentInfo, Error, Hashing, ObjectName, verified::Look};
use crate::{
    blocking::GivenUp,
    fs::{make_read_only, sync_directory},
};
use bytes::Bytes;
use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    path::{Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
};

/// A file under `unfinished`, and the bytes written to it so far.
pub(super) struct Unfinished {
    layout: Layout,
    name: ObjectName,
    path: PathBuf,
    file: File,
    hashing: Hashing,
}

impl Unfinished {
    pub(super) fn begin(layout: Layout, name: ObjectName) -> Result<Self, Error> {
        loop {
            let path = layout.next_try(name);
            match File::create_new(&path) {
                Ok(file) => return Ok(Unfinished { layout, name, path, file, hashing: Hashing::default() }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {} // Left by a process with our id.
                Err(error) => return Err(Error::io(&layout.place, &error)),
            }
        }
    }

    pub(super) fn write(mut self, pieces: &[Bytes]) -> Result<Self, Error> {
        for piece in pieces {
            self.hashing.update(piece);
            self.file.write_all(piece).map_err(|error| Error::io(&self.layout.place, &error))?;
        }
        Ok(self)
    }

    /// The `stat` of its file now.
    pub(super) fn look(&self) -> Option<Look> {
        self.file.metadata().ok().and_then(|metadata| Look::of(&metadata))
    }

    /// Publishes the file as an object, durably.
    pub(super) fn publish(self) -> Result<ContentInfo, Error> {
        make_read_only(&self.file);
        self.file.sync_all().map_err(|error| Error::io(&self.layout.place, &error))?;
        let stored = self.hashing.info();
        let linked = fs::hard_link(&self.path, self.layout.object(self.name));
        settle(&self.layout, self.name, linked, stored)?;
        // Removes earlier tries of the same writer, whose reply was lost or which were stopped. If this fails they are
        // deleted with the object.
        let _ = self.layout.clear_unfinished(self.name);
        Ok(stored)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Completes linking a synced file into `objects`, durably: it is fine when the object existed already with the same
/// content.
pub(super) fn settle(
    layout: &Layout,
    name: ObjectName,
    linked: io::Result<()>,
    stored: ContentInfo,
) -> Result<(), Error> {
    match linked {
        Ok(()) => {}
        Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {
            // Not found: another process deleted our file, because the object is whole or is not wanted.
            let found = digest(&layout.object(name)).map_err(|error| layout.error(name, &error))?;
            if found != stored {
                return Err(Error::Exists { name, place: layout.place.clone() });
            }
        }
        Err(error) => return Err(Error::io(&layout.place, &error)),
    }
    // Also when the object existed already: the process that linked it may have crashed before this.
    sync_directory(&layout.objects).map_err(|error| Error::unknown(&layout.place, error))
}

/// The length and digest of a file.
pub(super) fn digest(path: &Path) -> io::Result<ContentInfo> {
    digest_open(&mut File::open(path)?)
}

/// The length and digest of an open file, from its current offset.
pub(in crate::blobs) fn digest_open(file: &mut File) -> io::Result<ContentInfo> {
    digest_unless_given_up(file, &GivenUp::default())
}

/// The same; an error once the caller has stopped waiting.
pub(super) fn digest_unless_given_up(file: &mut File, given_up: &GivenUp) -> io::Result<ContentInfo> {
    // The buffer is no larger than the file: there may be many small ones.
    let room = file.metadata()?.len().saturating_add(1).clamp(512, 256 << 10) as usize;
    let (mut hashing, mut buffer) = (Hashing::default(), vec![0; room]);
    loop {
        if given_up.load(Relaxed) {
            return Err(io::Error::other("the caller has stopped waiting for its digest"));
        }
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hashing.info()),
            Ok(read) => hashing.update(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
