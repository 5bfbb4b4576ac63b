//! The processes that have a directory open, owner and guests: each holds the kernel's lock on a file of its own under
//! `members/`. The kernel releases it when the process ends, however it ends. So a member lives exactly as long as its
//! file exists and is locked, and a file that can be locked was left by a process that is gone.
//!
//! Only files of this user count: a lock of another user does not make a process count as living.

use crate::{
    fs::{make_private, make_private_directory, remove_if_there},
    sync::{Mutex, lock},
};
use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Where the files are.
pub(super) const NAME: &str = "members";

/// How the name of a file ends that is not locked yet.
const UNTIL_LOCKED: &str = ".new";

/// How often another process may clear away a file between making and locking it.
const TRIES_MAX: usize = 100;

/// This process, as long as it has the directory open.
pub(super) struct Member {
    pub(super) id: u128,
    path: PathBuf,
    file: Mutex<Option<File>>,
}

impl Member {
    /// Becomes a member. `random` gives ids that nobody had before.
    pub(super) fn join(dir: &Path, random: impl Fn() -> u128) -> io::Result<Self> {
        let members = dir.join(NAME);
        match members.is_dir() {
            true => make_private(&members)?,
            false => make_private_directory(&members)?,
        }
        for _ in 0..TRIES_MAX {
            let id = random();
            let path = members.join(name(id));
            let fresh = members.join(format!("{}{UNTIL_LOCKED}", name(id)));
            let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&fresh)?;
            // A process that removes the files of dead members may have been faster than we at either.
            if file.try_lock().is_ok() && fs::rename(&fresh, &path).is_ok() && is_at(&file, &path) {
                return Ok(Member { id, path, file: Mutex::new(Some(file)) });
            }
            remove_if_there(&fresh)?;
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "cannot lock a file of our own in `members`"))
    }

    /// Is no member any more: from now on, whatever this process has claimed is void.
    pub(super) fn leave(&self) {
        if let Some(file) = lock(&self.file).take() {
            if let Err(error) = remove_if_there(&self.path) {
                tracing::debug!(%error, path = %self.path.display(), "left a file that the next owner removes");
            }
            drop(file);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.leave();
    }
}

fn name(id: u128) -> String {
    format!("{id:032x}")
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

/// The member is alive. The file of a dead one is removed.
pub(super) fn is_alive(dir: &Path, id: u128) -> bool {
    let path = dir.join(NAME).join(name(id));
    match open_own(&path) {
        Ok(Some(file)) => is_locked(&file, &path),
        Ok(None) => false,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "cannot look whether a process is gone; it counts as alive");
            true
        }
    }
}

/// The members that live, but for one. What the others left is removed.
pub(super) fn others(dir: &Path, me: u128) -> io::Result<Vec<u128>> {
    let mut alive = Vec::new();
    for entry in fs::read_dir(dir.join(NAME))? {
        let entry = entry?;
        let file_name = entry.file_name();
        let Some(text) = file_name.to_str() else { continue };
        match u128::from_str_radix(text, 16) {
            Ok(id) if text == name(id) => alive.extend((id != me && is_alive(dir, id)).then_some(id)),
            // Killed between making its file and locking it.
            _ if text.ends_with(UNTIL_LOCKED) => {
                if let Ok(Some(file)) = open_own(&entry.path()) {
                    is_locked(&file, &entry.path());
                }
            }
            _ => {}
        }
    }
    Ok(alive)
}

/// Opens a file if it is a plain one of this user.
fn open_own(path: &Path) -> io::Result<Option<File>> {
    let there = fs::symlink_metadata(path)?;
    let members = path.parent().map(fs::metadata).transpose()?;
    // The directory is ours: it was made, or opened, by this user, and nobody else may write to it.
    if !there.is_file() || members.is_none_or(|members| members.uid() != there.uid()) {
        return Ok(None);
    }
    File::options().read(true).write(true).open(path).map(Some)
}

/// A process holds the lock; if none does, the file is removed.
fn is_locked(file: &File, path: &Path) -> bool {
    match file.try_lock() {
        Ok(()) => {
            if is_at(file, path)
                && let Err(error) = remove_if_there(path)
            {
                tracing::debug!(%error, path = %path.display(), "cannot remove what a process left that is gone");
            }
            false
        }
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(error)) => {
            tracing::warn!(%error, path = %path.display(), "cannot look whether a process is gone; it counts as alive");
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(dir: &Path, id: u128) -> Member {
        Member::join(dir, || id).unwrap()
    }

    #[test]
    fn a_member_lives_until_it_leaves_or_its_lock_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (join(dir.path(), 1), join(dir.path(), 2));
        assert_eq!(others(dir.path(), 1).unwrap(), [2]);
        two.leave();
        assert!(others(dir.path(), 1).unwrap().is_empty() && !is_alive(dir.path(), 2));
        // As a killed process leaves it: the file stays, and nobody has it locked.
        fs::write(dir.path().join(NAME).join(name(3)), "").unwrap();
        fs::write(dir.path().join(NAME).join(format!("{}{UNTIL_LOCKED}", name(4))), "").unwrap();
        assert!(is_alive(dir.path(), 1) && others(dir.path(), 1).unwrap().is_empty());
        drop(one);
        assert_eq!(fs::read_dir(dir.path().join(NAME)).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn member_files_of_other_users_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let member = join(dir.path(), 1);
        let (target, link) = (dir.path().join("target"), dir.path().join(NAME).join(name(5)));
        fs::write(&target, "canary").unwrap();
        let held = File::open(&target).unwrap();
        held.try_lock().unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(!is_alive(dir.path(), 5), "a link to somebody else's lock");
        assert_eq!(fs::read_to_string(&target).unwrap(), "canary");
        drop(member);
    }
}
