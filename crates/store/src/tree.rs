//! Directories held open by descriptor, for trees that a step may have tampered with. A path can lead elsewhere from one
//! call to the next; a descriptor cannot. So everything that is listed, taken, emptied or removed below a [`Dir`] is
//! reached from its descriptor, one name at a time: links are never followed, and another mount is never entered, also
//! not a bind mount of the same file system.
//!
//! A `Dir` is opened where trust begins, [`Dir::open`] on a path that the user configured (links on the way there are the
//! user's), and then only walked down. A refused entry is left as it is, and the error names its path.

mod remove;
mod resolve;

pub use remove::{remove, remove_beneath};
pub use resolve::{Astray, Spot};

use rustix::{
    fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
};

/// A directory held open.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
    id: Id,
}

/// The identity of a directory, whatever its name. Valid while the directory exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id {
    device: u64,
    inode: u64,
    /// 0 where the system does not say.
    mount: u64,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: OsString,
    /// The kind of the entry; a link counts as a link.
    pub kind: FileType,
}

const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

impl Dir {
    /// Opens a directory that the user named: links on the way are followed.
    ///
    /// # Errors
    /// If there is none, or it may not be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OPEN.difference(OFlags::NOFOLLOW);
        let fd = fs::open(path, flags, Mode::empty()).map_err(|error| at(path, error))?;
        Dir::new(fd, path.to_owned())
    }

    fn new(fd: OwnedFd, path: PathBuf) -> io::Result<Self> {
        let id = Id::of(&fd).map_err(|error| at(&path, error))?;
        Ok(Dir { fd, path, id })
    }

    /// Returns a second handle of the same directory.
    ///
    /// # Errors
    /// If the process has too many descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Dir { fd: self.fd.try_clone()?, path: self.path.clone(), id: self.id })
    }

    /// The path when it was opened: for messages, and for programs that are given a path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same directory, after it was moved to another path.
    #[must_use]
    pub fn moved_to(self, path: PathBuf) -> Self {
        Dir { path, ..self }
    }

    /// The identity of this directory.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Opens a directory in this one.
    ///
    /// # Errors
    /// If there is none of that name, it is a link or a file, or another file system is mounted there.
    pub fn child(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = single(name.as_ref())?;
        let path = self.path.join(name);
        let opened = fs::openat(&self.fd, name, OPEN, Mode::empty());
        let fd = opened.map_err(|error| match (error, self.stat(name)) {
            (Errno::NOTDIR | Errno::LOOP, Ok(stat)) if kind(&stat) == FileType::Symlink => {
                refused(&path, "is a link where a directory was expected; it is not followed")
            }
            _ => at(&path, error),
        })?;
        let inner = Dir::new(fd, path)?;
        match self.id.is_same_mount(&inner.id) {
            true => Ok(inner),
            false => Err(refused(&inner.path, "is another mount; it is not entered")),
        }
    }

    /// Opens a directory below this one, by names alone.
    ///
    /// # Errors
    /// As [`Dir::child`], of every directory on the way.
    pub fn beneath(&self, path: &Path) -> io::Result<Self> {
        names(path)?.into_iter().try_fold(self.try_clone()?, |dir, name| dir.child(name))
    }

    /// As [`Dir::beneath`]; makes missing directories.
    ///
    /// # Errors
    /// As [`Dir::child`], or if one cannot be made.
    pub fn make_beneath(&self, path: &Path) -> io::Result<Self> {
        names(path)?.into_iter().try_fold(self.try_clone()?, |dir, name| match dir.child(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match dir.create(name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => dir.child(name),
                made => made,
            },
            there => there,
        })
    }

    /// Makes a directory in this one.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the name: two callers never get the same directory.
    pub fn create(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = single(name.as_ref())?;
        fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o777)).map_err(|error| at(&self.path.join(name), error))?;
        self.child(name)
    }

    /// Returns all names in this directory but `.` and `..`, in no order.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut reading = fs::Dir::read_from(&self.fd).map_err(|error| at(&self.path, error))?;
        while let Some(entry) = reading.read() {
            let entry = entry.map_err(|error| at(&self.path, error))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => match self.stat(name) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    found => kind(&found?),
                },
                known => known,
            };
            entries.push(Entry { name: name.to_owned(), kind });
        }
        Ok(entries)
    }

    /// The `stat` of a name in this directory, without following a link.
    ///
    /// # Errors
    /// If there is none.
    pub fn stat(&self, name: impl AsRef<OsStr>) -> io::Result<Stat> {
        let name = single(name.as_ref())?;
        fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| at(&self.path.join(name), error))
    }

    /// This very directory has the name `name` in `parent`.
    pub fn is_at(&self, parent: &Dir, name: impl AsRef<OsStr>) -> bool {
        parent.child(name).is_ok_and(|there| there.id == self.id)
    }

    /// Opens a regular file in it for reading. A FIFO, a socket or a device is refused without being opened, and one that
    /// takes the file's place meanwhile does not block.
    ///
    /// # Errors
    /// If there is none, or it is anything but a regular file.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = single(name.as_ref())?;
        regular(&self.path.join(name), &self.stat(name)?)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = fs::openat(&self.fd, name, flags, Mode::empty()).map_err(|error| at(&self.path.join(name), error))?;
        let stat = fs::fstat(&fd).map_err(|error| at(&self.path.join(name), error))?;
        regular(&self.path.join(name), &stat)?;
        Ok(fd.into())
    }

    /// Makes a file in it, for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the name.
    pub fn create_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = single(name.as_ref())?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o666));
        Ok(fd.map_err(|error| at(&self.path.join(name), error))?.into())
    }

    /// Makes an empty file in it, for reading and writing, in place of whatever has the name. A link is replaced, not
    /// followed.
    ///
    /// # Errors
    /// If a directory has the name, or the file cannot be made.
    pub fn fresh_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = single(name.as_ref())?;
        match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => self.create_file(name),
            Err(error) => Err(at(&self.path.join(name), error)),
        }
    }

    /// Puts a file with this content in place of whatever has the name. A link is replaced, not followed; readers find
    /// the old content or the new.
    ///
    /// # Errors
    /// If a directory has the name, or the file cannot be written.
    pub fn replace_file(&self, name: impl AsRef<OsStr>, content: &[u8]) -> io::Result<()> {
        let name = single(name.as_ref())?;
        let mut new = name.to_owned();
        new.push(format!(".{}", std::process::id()));
        io::Write::write_all(&mut self.fresh_file(&new)?, content)?;
        fs::renameat(&self.fd, &*new, &self.fd, name).map_err(|error| at(&self.path.join(name), error))
    }

    /// Moves a name from here to another directory, where it must not be taken.
    ///
    /// # Errors
    /// If it is not there, the other is another mount, or the new name is taken.
    pub fn rename(&self, name: impl AsRef<OsStr>, to: &Dir, new: impl AsRef<OsStr>) -> io::Result<()> {
        let (name, new) = (single(name.as_ref())?, single(new.as_ref())?);
        let moved = match fs::renameat_with(&self.fd, name, &to.fd, new, RenameFlags::NOREPLACE) {
            // This file system cannot refuse to replace: the new name is looked up first.
            Err(Errno::INVAL | Errno::NOSYS) => match to.stat(new) {
                Ok(_) => Err(Errno::EXIST),
                Err(_) => fs::renameat(&self.fd, name, &to.fd, new),
            },
            moved => moved,
        };
        let moved = moved.map_err(|error| if error == Errno::NOTEMPTY { Errno::EXIST } else { error });
        moved.map_err(|error| at(&to.path.join(new), error))
    }

    /// Locks the directory until it is dropped; false if another `Dir`, of any process, has it locked.
    ///
    /// # Errors
    /// If the file system has no locks.
    pub fn try_lock(&self) -> io::Result<bool> {
        match fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(false),
            locked => locked.map(|()| true).map_err(|error| at(&self.path, error)),
        }
    }

    /// The present mode bits of the directory.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn mode(&self) -> io::Result<u32> {
        Ok(fs::fstat(&self.fd).map_err(|error| at(&self.path, error))?.st_mode)
    }

    /// The directory has no name any more: it was removed.
    pub fn is_removed(&self) -> bool {
        fs::fstat(&self.fd).is_ok_and(|stat| stat.st_nlink == 0)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Id {
    fn of(fd: &OwnedFd) -> rustix::io::Result<Self> {
        let stat = fs::fstat(fd)?;
        #[allow(clippy::unnecessary_cast, reason = "their widths differ between systems")]
        Ok(Id { device: stat.st_dev as u64, inode: stat.st_ino as u64, mount: mount(fd) })
    }

    /// Both are on the same mount. Where the system identifies mounts this detects bind mounts too.
    fn is_same_mount(&self, other: &Id) -> bool {
        match self.mount != 0 && other.mount != 0 {
            true => self.mount == other.mount,
            false => self.device == other.device,
        }
    }
}

#[cfg(target_os = "linux")]
fn mount(fd: &OwnedFd) -> u64 {
    let told = fs::statx(fd, c"", AtFlags::EMPTY_PATH, fs::StatxFlags::MNT_ID);
    told.ok().filter(|told| told.stx_mask & fs::StatxFlags::MNT_ID.bits() != 0).map_or(0, |told| told.stx_mnt_id)
}

#[cfg(not(target_os = "linux"))]
fn mount(_: &OwnedFd) -> u64 {
    0
}

/// The file type in a `stat`.
pub fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Opens a regular file that the user named, for reading: links are followed, a FIFO, a socket or a device is refused
/// without being opened.
///
/// # Errors
/// If there is none, or it is anything but a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let check = |stat: Stat| match kind(&stat) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Errno::ISDIR.into()),
        other => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {}, not a regular file", called(other))))
        }
    };
    check(fs::stat(path)?)?;
    let fd = fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    check(fs::fstat(&fd)?)?;
    Ok(fd.into())
}

fn regular(path: &Path, stat: &Stat) -> io::Result<()> {
    let is = match kind(stat) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => return Err(at(path, Errno::ISDIR)),
        other => called(other),
    };
    Err(refused(path, &format!("is {is}, not a regular file")))
}

/// The file type in words, for messages.
pub fn called(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "something unknown",
    }
}

fn at(path: &Path, error: Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), Refused { path: path.to_owned(), why: error.to_string() })
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, Refused { path: path.to_owned(), why: why.to_owned() })
}

#[derive(Debug, thiserror::Error)]
#[error("{} {why}", path.display())]
struct Refused {
    path: PathBuf,
    why: String,
}

/// Accepts a single name that leads nowhere else.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(only)), None) if only == name => Ok(name),
        _ => Err(refused(Path::new(name), "is no name of an entry of a directory")),
    }
}

fn names(path: &Path) -> io::Result<Vec<&OsStr>> {
    let name = |part| match part {
        Component::Normal(name) => Some(Ok(name)),
        Component::CurDir => None,
        _ => Some(Err(refused(path, "leads elsewhere"))),
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests;
