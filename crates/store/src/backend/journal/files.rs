//! A directory of files, as embedded stores see one. Narrow, so that a test can stand in for the disk: lose what was
//! not synced, tear, fill up, fail.

use crate::fs::{make_private, make_private_directory, sync_directory};
use std::{
    fs, io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::PathBuf,
};

/// A flat directory.
pub trait Files: Send + Sync + 'static {
    /// The names of its files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens a file that is there.
    fn open(&self, name: &str) -> io::Result<Box<dyn StoreFile>>;
    /// Makes a file that does not exist yet. It may be gone after a crash until [`Files::sync`] returned.
    fn create(&self, name: &str) -> io::Result<Box<dyn StoreFile>>;
    /// Renames a file, replacing a file of the new name. Atomic; durable after [`Files::sync`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Durable after [`Files::sync`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Waits until all files made, renamed and removed will stay so after a crash.
    fn sync(&self) -> io::Result<()>;
    /// The path of a file, for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// An open file of a store's directory. Closed when dropped.
#[expect(clippy::len_without_is_empty, reason = "no caller asks whether a file is empty")]
pub trait StoreFile: Send + Sync {
    /// The length of the file.
    fn len(&self) -> io::Result<u64>;
    /// Reads as many bytes as fit into the buffer; fewer only at the end of the file.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes all of it, making the file longer where needed.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Makes the file so long: cut, or with zeros at its end.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Waits until all written bytes will outlive a crash. After an error it is unknown which will, and a second sync
    /// may falsely succeed; so it is never retried.
    fn sync(&self) -> io::Result<()>;
}

/// A store's directory in the file system.
#[derive(Clone, Debug)]
pub struct StoreDirectory {
    path: PathBuf,
}

impl StoreDirectory {
    /// Opens the directory, made if it does not exist (with its parents). Only its user can enter it: permissions of
    /// others on an existing one are removed.
    pub fn at(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        if path.is_dir() {
            if let Err(error) = make_private(&path) {
                tracing::warn!(%error, path = %path.display(), "others can read the store, and this cannot be changed");
            }
        } else {
            make_private_directory(&path)?;
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                sync_directory(parent)?;
            }
        }
        Ok(StoreDirectory { path })
    }
}

impl Files for StoreDirectory {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        Ok(Box::new(fs::File::options().read(true).write(true).open(self.path.join(name))?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        let mut options = fs::File::options();
        options.read(true).write(true).create_new(true).mode(0o600);
        Ok(Box::new(options.open(self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        sync_directory(&self.path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl StoreFile for fs::File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            match FileExt::read_at(self, &mut into[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        fs::File::set_len(self, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
