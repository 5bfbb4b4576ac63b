//! Lock files of processes: each is locked by the process that made it, and the kernel releases the lock when that process
//! ends, however it ends. So the owner of something left behind is known to be dead at once, and not from the age of a file
//! or from a process number that another process may have by now.
//!
//! A file gets its name when it is locked already. It is removed by the process that made it, or by the first that finds it
//! unlocked; a process without a file has ended.

use crate::fs::remove_if_there;
use rustix::{fs::OFlags, io::Errno};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// How the names of files begin that are not locked yet, or were left before they were.
pub const NEW: &str = "new-";

/// The lock file of this process: the process counts as alive under the file's name until this is dropped.
#[derive(Debug)]
pub struct Alive {
    path: PathBuf,
    _locked: File,
}

impl Alive {
    /// Makes and locks a file of this name in a directory, which is made if it is not there.
    ///
    /// # Errors
    /// If the file cannot be made or locked.
    pub fn begin(directory: &Path, name: &str) -> io::Result<Self> {
        let (path, new) = (directory.join(name), directory.join(format!("{NEW}{name}")));
        loop {
            fs::create_dir_all(directory)?;
            let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&new)?;
            // A sweeper holds the lock for a moment, and may have removed the file: then it has to be made again.
            file.lock()?;
            match fs::rename(&new, &path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                renamed => return renamed.map(|()| Alive { path, _locked: file }),
            }
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        // A file that stays is unlocked, and the next process that looks at it removes it.
        let _ = remove_if_there(&self.path);
    }
}

/// The processes that have an id and a lock file in one directory: the members of a store, the writers of objects.
#[derive(Clone, Debug)]
pub(crate) struct Processes {
    directory: PathBuf,
}

impl Processes {
    /// The processes with files in a directory, which need not exist yet.
    pub(crate) fn of(directory: PathBuf) -> Self {
        Processes { directory }
    }

    /// The lock file of a process.
    pub(crate) fn path(&self, id: u128) -> PathBuf {
        self.directory.join(name(id))
    }

    /// Makes the lock file of this process, under an id that no process had before.
    ///
    /// # Errors
    /// As [`Alive::begin`].
    pub(crate) fn begin(&self, id: u128) -> io::Result<Alive> {
        Alive::begin(&self.directory, &name(id))
    }

    /// The processes for which `has_ended` is false, and that have a file. Files of processes that were killed before they
    /// had locked theirs are removed.
    ///
    /// # Errors
    /// If the directory cannot be read, or as `has_ended`.
    pub(crate) fn living(&self, has_ended: impl Fn(&Path) -> io::Result<bool>) -> io::Result<Vec<u128>> {
        let mut living = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let (entry, file_name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
            let Some(text) = file_name.to_str() else { continue };
            match u128::from_str_radix(text, 16) {
                Ok(id) if text == name(id) => living.extend((!has_ended(&entry)?).then_some(id)),
                _ if text.starts_with(NEW) => drop(has_ended(&entry)?),
                _ => {}
            }
        }
        Ok(living)
    }
}

/// The name of the file of a process.
fn name(id: u128) -> String {
    format!("{id:032x}")
}

/// A directory of lock files, told apart from that of any other machine or container: a lock is only evidence to a process
/// that sees the same directory through the same kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockDirectory {
    boot: String,
    device: u64,
    inode: u64,
}

impl LockDirectory {
    /// The directory at a path; `None` if it is not there, or the system does not say which kernel this is.
    pub fn at(path: &Path) -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let directory = fs::metadata(path).ok()?;
        Some(LockDirectory { boot: boot.trim().to_owned(), device: directory.dev(), inode: directory.ino() })
    }
}

/// The process that made this file has ended: the file is unlocked, and is removed, or it is not there. A link in its place
/// was made by no process of ours, and is left alone.
///
/// # Errors
/// If the file cannot be opened or locked.
pub fn has_ended(path: &Path) -> io::Result<bool> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let file = match File::options().read(true).custom_flags(flags.cast_signed()).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => return Ok(true),
        file => file?,
    };
    match file.try_lock_shared() {
        Ok(()) => remove_if_there(path).map(|()| true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
