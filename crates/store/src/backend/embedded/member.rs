//! The processes that have a directory open, owner and guests: each has a lock file ([`alive`](crate::alive)) under
//! `members/`. So a member lives exactly as long as its file exists and is locked, however its process ends.
//!
//! Only files of this user count: a lock of another user does not make a process count as living.

use crate::{
    alive::{self, Alive, Processes},
    fs::{make_private, make_private_directory},
    sync::{Mutex, lock},
};
use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

/// Where the files are.
pub(super) const NAME: &str = "members";

/// This process, as long as it has the directory open.
pub(super) struct Member {
    pub(super) id: u128,
    alive: Mutex<Option<Alive>>,
}

impl Member {
    /// Becomes a member under an id that no member had before.
    pub(super) fn join(dir: &Path, id: u128) -> io::Result<Self> {
        let members = dir.join(NAME);
        match members.is_dir() {
            true => make_private(&members)?,
            false => make_private_directory(&members)?,
        }
        Ok(Member { id, alive: Mutex::new(Some(Processes::of(members).begin(id)?)) })
    }

    /// Is no member any more: from now on, whatever this process has claimed is void.
    pub(super) fn leave(&self) {
        drop(lock(&self.alive).take());
    }
}

fn members(dir: &Path) -> Processes {
    Processes::of(dir.join(NAME))
}

/// The member is alive. The file of a dead one is removed.
pub(super) fn is_alive(dir: &Path, id: u128) -> bool {
    is_held(&members(dir).path(id))
}

/// The members that live, but for one. The files of dead ones are removed.
pub(super) fn others(dir: &Path, me: u128) -> io::Result<Vec<u128>> {
    let mut living = members(dir).living(|path| Ok(!is_held(path)))?;
    living.retain(|id| *id != me);
    Ok(living)
}

/// A process of this user holds the lock of a file. If none does, the file is removed.
fn is_held(path: &Path) -> bool {
    let held = is_own(path).and_then(|is_own| Ok(is_own && !alive::has_ended(path)?));
    held.unwrap_or_else(|error| {
        tracing::warn!(%error, path = %path.display(), "cannot look whether a process is gone; it counts as alive");
        true
    })
}

/// The file is a plain one of the user who has the directory, to which no other user may write.
fn is_own(path: &Path) -> io::Result<bool> {
    let (file, members) = match (fs::symlink_metadata(path), path.parent().map(fs::metadata).transpose()?) {
        (Err(error), _) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        (file, members) => (file?, members),
    };
    Ok(file.is_file() && members.is_some_and(|members| members.uid() == file.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn join(dir: &Path, id: u128) -> Member {
        Member::join(dir, id).unwrap()
    }

    #[test]
    fn a_member_lives_until_it_leaves_or_its_lock_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (join(dir.path(), 1), join(dir.path(), 2));
        assert_eq!(others(dir.path(), 1).unwrap(), [2]);
        two.leave();
        assert!(others(dir.path(), 1).unwrap().is_empty() && !is_alive(dir.path(), 2));
        // As a killed process leaves it: the file stays, and no process has it locked.
        fs::write(members(dir.path()).path(3), "").unwrap();
        fs::write(dir.path().join(NAME).join(format!("{}{:032x}", alive::NEW, 4)), "").unwrap();
        assert!(is_alive(dir.path(), 1) && others(dir.path(), 1).unwrap().is_empty());
        drop(one);
        assert_eq!(fs::read_dir(dir.path().join(NAME)).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn member_files_of_other_users_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let member = join(dir.path(), 1);
        let (target, link) = (dir.path().join("target"), members(dir.path()).path(5));
        fs::write(&target, "canary").unwrap();
        let held = File::open(&target).unwrap();
        held.try_lock().unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(!is_alive(dir.path(), 5), "a link to the lock of another process");
        assert_eq!(fs::read_to_string(&target).unwrap(), "canary");
        drop(member);
    }
}
