//! Removes everything below a directory that is held open. A link is removed, never its target; files below another
//! mount stay. An entry that cannot be removed does not keep the rest from being removed, and is named in the error.

use super::{Dir, at, refused, single};
use rustix::{
    fs::{self, AtFlags, FileType, Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Directories that are open at a time. Deeper ones are moved up first, so that neither descriptors nor the stack run
/// out.
const DEPTH_MAX: usize = 32;

/// Rounds of moving up: 32 levels each, far beyond the longest path of any system.
const ROUNDS_MAX: usize = 10_000;

/// Removes the entry at a path, and all below it. The directory that contains it is opened as the path says.
///
/// # Errors
/// If something had to be left. A path that does not exist is no error.
pub fn remove(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(refused(path, "is not removed"));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    gone_is_fine(Dir::open(parent).and_then(|parent| parent.remove(name)))
}

/// Removes the entry at a path below `root`, and all below it, without following a link below `root`.
///
/// # Errors
/// If something had to be left. A path that does not exist is no error.
pub fn remove_beneath(root: &Path, path: &Path) -> io::Result<()> {
    let Some(name) = path.file_name() else { return Err(refused(path, "is not removed")) };
    let parent = Dir::open(root).and_then(|root| root.beneath(path.parent().unwrap_or(Path::new(""))));
    gone_is_fine(parent.and_then(|parent| parent.remove(name)))
}

fn gone_is_fine(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

impl Dir {
    /// Removes a name, and all below it if it is a directory.
    ///
    /// # Errors
    /// If something had to be left. A name that does not exist is no error.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = single(name.as_ref())?;
        let (mut todo, mut first) = (Moved(vec![name.to_owned()]), Ok(()));
        for _ in 0..ROUNDS_MAX {
            let Some(next) = todo.0.pop() else { return first };
            first = first.and(self.remove_deep(&next, 0, self, &mut todo));
        }
        Err(refused(&self.path.join(name), "is too deep"))
    }

    /// Removes everything in this directory but the names in `keep`.
    ///
    /// # Errors
    /// The first entry that had to be left.
    pub fn empty(&self, keep: &[&str]) -> io::Result<()> {
        let mut first = Ok(());
        for entry in self.entries()?.into_iter().filter(|entry| !keep.iter().any(|keep| entry.name == *keep)) {
            first = first.and(self.remove(&entry.name));
        }
        first
    }

    fn remove_deep(&self, name: &OsStr, depth: usize, top: &Dir, moved: &mut Moved) -> io::Result<()> {
        let error = match self.unlink(name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // A directory: Linux says the first, others the second.
            Err(error @ (Errno::ISDIR | Errno::PERM)) => at(&self.path.join(name), error),
            Err(error) => return Err(at(&self.path.join(name), error)),
        };
        // Most directories are empty.
        match self.unlink(name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR) => return Err(error),
            Err(_) => {}
        }
        let inner = self.enter(name)?;
        if depth >= DEPTH_MAX {
            let up = OsString::from(format!(".onceflow-deep-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed)));
            self.rename(name, top, &up)?;
            moved.0.push(up);
            return Ok(());
        }
        inner.clear(depth + 1, top, moved)?;
        // Only an empty directory is removed, so it does no harm if the name passed to another one meanwhile.
        match self.unlink(name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(at(&self.path.join(name), error)),
        }
    }

    /// Removes all names while reading them: a directory may have many.
    fn clear(&self, depth: usize, top: &Dir, moved: &mut Moved) -> io::Result<()> {
        let mut first = Ok(());
        let mut reading = fs::Dir::read_from(&self.fd).map_err(|error| at(&self.path, error))?;
        while let Some(entry) = reading.read() {
            let entry = entry.map_err(|error| at(&self.path, error))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                first = first.and(self.remove_deep(name, depth, top, moved));
            }
        }
        first
    }

    /// Unlinks a name. A step may have removed the write permission of its directory: that is restored first.
    fn unlink(&self, name: &OsStr, flags: AtFlags) -> rustix::io::Result<()> {
        match fs::unlinkat(&self.fd, name, flags) {
            Err(Errno::ACCESS) if fs::fchmod(&self.fd, Mode::RWXU).is_ok() => fs::unlinkat(&self.fd, name, flags),
            done => done,
        }
    }

    /// As [`Dir::child`], also of a directory that may not be read.
    fn enter(&self, name: &OsStr) -> io::Result<Dir> {
        match self.child(name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.permit(name)?;
                self.child(name)
            }
            entered => entered,
        }
    }

    /// Makes a directory readable. Its mode is changed through a descriptor that identifies it.
    fn permit(&self, name: &OsStr) -> io::Result<()> {
        let path = self.path.join(name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::openat(&self.fd, name, flags, Mode::empty()).map_err(|error| at(&path, error))?;
        let there = Dir::new(fd, path)?;
        if !self.id.is_same_mount(&there.id) || FileType::from_raw_mode(there.mode()?) != FileType::Directory {
            return Err(refused(&there.path, "is another mount; it is not entered"));
        }
        let through = format!("/proc/self/fd/{}", there.fd.as_raw_fd());
        fs::chmod(through, Mode::RWXU).map_err(|error| at(&there.path, error))
    }
}

/// Directories that were too deep, by their names at the top.
struct Moved(Vec<OsString>);

static NUMBER: AtomicU64 = AtomicU64::new(0);
