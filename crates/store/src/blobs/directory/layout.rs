//! The paths of a store's files, and the file operations that are safe to repeat.

use crate::{
    blobs::{Error, ObjectName},
    fs::{make_private_directory, remove_if_there, sync_directory},
};
use std::{
    fs,
    io::{self, ErrorKind::NotFound},
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64, atomic::Ordering::Relaxed},
};

/// The paths of a store, and its name in errors.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) root: PathBuf,
    pub(super) objects: PathBuf,
    pub(super) unfinished: PathBuf,
    pub(super) place: Arc<str>,
}

impl Layout {
    pub(super) fn new(root: PathBuf) -> Self {
        let place = format!("the blob directory {}", root.display()).into();
        Layout { objects: root.join("objects"), unfinished: root.join("unfinished"), root, place }
    }

    /// Makes the directories durably, with those above that may be as new. The `unfinished` directory is made last,
    /// when all others are on the disk: if it exists, there is nothing to do.
    pub(super) fn make(&self) -> Result<(), Error> {
        /// The store's own directories above this one: that of all shards, the store's, and what that was made in.
        const ABOVE: usize = 3;
        let make = || {
            if self.unfinished.is_dir() && self.objects.is_dir() {
                return Ok(());
            }
            make_private_directory(&self.objects)?;
            sync_directory(&self.root)?;
            for above in fs::canonicalize(&self.root)?.ancestors().skip(1).take(ABOVE) {
                let _ = sync_directory(above);
            }
            make_private_directory(&self.unfinished)
        };
        make().map_err(|error| Error::io(&self.place, &error))
    }

    pub(super) fn object(&self, name: ObjectName) -> PathBuf {
        self.objects.join(name.to_string())
    }

    /// A path that this process has not given out before; another one may have.
    pub(super) fn next_try(&self, name: ObjectName) -> PathBuf {
        static TRIES: AtomicU64 = AtomicU64::new(0);
        let try_ = TRIES.fetch_add(1, Relaxed);
        self.unfinished.join(format!("{name}.{}-{try_}", std::process::id()))
    }

    /// Calls `tell` with the names of all whole objects, in no order.
    pub(super) fn object_names(&self, tell: impl FnMut(ObjectName)) -> io::Result<()> {
        names(&self.objects, |file| file.parse().ok(), tell)
    }

    /// Calls `tell` with the names of unfinished objects, in no order, once for each try.
    pub(super) fn unfinished_names(&self, tell: impl FnMut(ObjectName)) -> io::Result<()> {
        names(&self.unfinished, |file| file.split_once('.')?.0.parse().ok(), tell)
    }

    /// Removes every try at an object.
    pub(super) fn clear_unfinished(&self, name: ObjectName) -> io::Result<()> {
        let begins = format!("{name}.");
        for entry in fs::read_dir(&self.unfinished)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(|file| file.starts_with(&begins)) {
                remove_if_there(&entry.path())?;
            }
        }
        Ok(())
    }

    /// The error for a system call on the file of an object.
    pub(super) fn error(&self, name: ObjectName, error: &io::Error) -> Error {
        match error.kind() {
            NotFound => Error::Missing { name, place: self.place.clone() },
            _ => Error::io(&self.place, error),
        }
    }

    pub(super) fn out_of_range(&self, name: ObjectName, range: Range<u64>, len: u64) -> Error {
        Error::Range { name, place: self.place.clone(), range, len }
    }
}

fn names(
    directory: &Path,
    name: impl Fn(&str) -> Option<ObjectName>,
    mut tell: impl FnMut(ObjectName),
) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let file = entry?.file_name();
        match file.to_str().and_then(&name) {
            Some(name) => tell(name),
            None => tracing::warn!(directory = %directory.display(), ?file, "skipping a file that is no object"),
        }
    }
    Ok(())
}

pub(super) fn len_of(path: &Path) -> io::Result<u64> {
    Ok(fs::metadata(path)?.len())
}
