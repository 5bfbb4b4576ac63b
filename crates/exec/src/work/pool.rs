//! A pool of work directories. On many file systems, creating and removing a few directories costs more than everything
//! else about a small command; so a directory that is as empty as a new one is reused under a new name.
//!
//! A directory is reused only if nothing is left of the command that worked there: no process in its group, no process
//! that holds its output open. A process that left its group and closed both could still write there unnoticed.

use super::{INPUTS, TEMPORARY};
use crate::home;
use onceflow_store::tree::{Dir, Id};
use rustix::fs::FileType;
use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Directories kept per run; no machine has more at work at a time.
const FREE_MAX: usize = 64;

/// Directories that wait to be reused, by their parent directory.
#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<BTreeMap<PathBuf, Vec<Free>>>,
    given: AtomicU64,
    /// The mode (permissions) of a newly created directory.
    mode: OnceLock<u32>,
}

/// A directory that waits to be reused: its name, and its identity to recognise it by.
struct Free {
    name: String,
    id: Id,
}

impl Pool {
    /// Creates or reuses a directory that holds only empty directories for inputs and temporary files. It is locked.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken: no two callers, of whatever process, get the same directory.
    pub(crate) fn make(&self, parent: &Dir, name: &str) -> io::Result<Dir> {
        let free = self.lock().get_mut(parent.path()).and_then(Vec::pop);
        let (kept, made) = match free.and_then(|free| self.again(parent, free)) {
            Some(again) => again,
            None => self.fresh(parent, self.free_name())?,
        };
        match parent.rename(&kept, parent, name) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.keep(parent, kept, made);
                return Err(error);
            }
            // Some file systems cannot rename directories.
            Err(_) => {
                remove(parent, &kept);
                return self.fresh(parent, name.to_owned()).map(|(_, made)| made);
            }
        }
        let made = made.moved_to(parent.path().join(name));
        match made.is_at(parent, name) {
            true => Ok(made),
            false => Err(io::Error::other(format!("{} was replaced while it was made", made.path().display()))),
        }
    }

    /// Creates a directory and locks it before it is renamed, so that a process that removes unlocked directories does
    /// not see it unlocked under its final name.
    fn fresh(&self, parent: &Dir, name: String) -> io::Result<(String, Dir)> {
        let made = parent.create(&name)?;
        if !made.try_lock()? {
            return Err(io::Error::other(format!("{} is locked by another process", made.path().display())));
        }
        made.create(TEMPORARY)?;
        made.create(INPUTS)?;
        let mode = made.mode()?;
        self.mode.get_or_init(|| mode);
        Ok((name, made))
    }

    /// Reopens a pooled directory, if it is still the one that was emptied, and empty.
    fn again(&self, parent: &Dir, free: Free) -> Option<(String, Dir)> {
        let kept = parent.child(&free.name).ok().filter(|kept| kept.id() == free.id)?;
        if kept.try_lock().unwrap_or(false) && self.is_new(&kept).unwrap_or(false) {
            return Some((free.name, kept));
        }
        remove(parent, &free.name);
        None
    }

    fn free_name(&self) -> String {
        format!("{}{}-{}", home::FREE, std::process::id(), self.given.fetch_add(1, Relaxed))
    }

    fn keep(&self, parent: &Dir, name: String, work: Dir) {
        assert!(name.starts_with(home::FREE), "{name} is pooled under the name of a step that may look into it");
        let free = Free { name, id: work.id() };
        // Unlocked before the pool can hand it out.
        drop(work);
        self.lock().entry(parent.path().to_owned()).or_default().push(free);
    }

    /// Takes back a directory whose work is done: it is pooled or removed. If its name belongs to another entry by now,
    /// both are left in place, and a message about that is returned.
    pub(crate) fn give(&self, parent: &Dir, name: &str, work: Dir) -> Option<String> {
        if !work.is_at(parent, name) {
            return replaced(parent, name);
        }
        if let Err(error) = self.empty(&work) {
            return Some(error.to_string());
        }
        let to = self.free_name();
        let has_room = || self.lock().get(parent.path()).is_none_or(|free| free.len() < FREE_MAX);
        if has_room() && self.is_new(&work).unwrap_or(false) && parent.rename(name, parent, &to).is_ok() {
            self.keep(parent, to, work);
            return None;
        }
        parent.remove(name).err().map(|error| error.to_string())
    }

    /// Empties a directory, but keeps those for inputs and temporary files, emptied, if they are still directories.
    fn empty(&self, work: &Dir) -> io::Result<()> {
        let mut keep = Vec::new();
        for name in [TEMPORARY, INPUTS] {
            if let Ok(inner) = work.child(name) {
                inner.empty(&[])?;
                keep.push(name);
            }
        }
        work.empty(&keep)
    }

    /// The directory looks as if newly created.
    fn is_new(&self, work: &Dir) -> io::Result<bool> {
        let entries = work.entries()?;
        let mut is_new = entries.len() == 2 && self.mode.get() == Some(&work.mode()?);
        for entry in entries {
            is_new = is_new && (entry.name == TEMPORARY || entry.name == INPUTS) && entry.kind == FileType::Directory;
            if is_new {
                let inner = work.child(&entry.name)?;
                is_new = self.mode.get() == Some(&inner.mode()?) && inner.entries()?.is_empty();
            }
        }
        Ok(is_new)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<PathBuf, Vec<Free>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the message for a work directory whose name belongs to another entry by now; `None` if the name is free.
pub(super) fn replaced(parent: &Dir, name: &str) -> Option<String> {
    let kind = onceflow_store::tree::kind(&parent.stat(name).ok()?);
    let path = parent.path().join(name);
    let is = onceflow_store::tree::called(kind);
    Some(format!("{}: the step put {is} in place of its work directory; neither was removed", path.display()))
}

fn remove(parent: &Dir, name: &str) {
    if let Err(error) = parent.remove(name) {
        home::log_left(&error);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (path, kept) in std::mem::take(&mut *self.lock()) {
            let Ok(parent) = Dir::open(&path) else { continue };
            for free in kept {
                if parent.child(&free.name).is_ok_and(|there| there.id() == free.id) {
                    remove(&parent, &free.name);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        os::unix::fs::{MetadataExt, PermissionsExt},
        path::Path,
    };

    fn entries(path: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_directory_that_is_used_again_is_as_empty_as_a_new_one_or_is_not_used_again() {
        // All links lead to a directory of this test.
        let directory = tempfile::tempdir().unwrap();
        let canary = directory.path().join("canary");
        fs::create_dir(&canary).and(fs::write(canary.join("bird"), "sings")).unwrap();
        let to_canary = |path: &Path| std::os::unix::fs::symlink(&canary, path).unwrap();
        let left: [(&str, &dyn Fn(&Path)); 7] = [
            ("nothing", &|_| {}),
            ("files", &|path| fs::write(path.join("in/x"), "").and(fs::write(path.join(".tmp/x"), "")).unwrap()),
            ("a tree", &|path| {
                fs::create_dir_all(path.join("in/a/b")).and(fs::write(path.join("in/a/b/c"), "")).unwrap();
            }),
            ("a link", &|path| to_canary(&path.join("link"))),
            ("other rights", &|path| fs::set_permissions(path.join("in"), fs::Permissions::from_mode(0o700)).unwrap()),
            ("no directory for inputs", &|path| fs::remove_dir(path.join("in")).unwrap()),
            ("a link for a directory", &|path| {
                fs::remove_dir(path.join("in")).unwrap();
                to_canary(&path.join("in"));
            }),
        ];
        let parent = directory.path().join("work");
        fs::create_dir(&parent).unwrap();
        let held = Dir::open(&parent).unwrap();
        for (what, leave) in left {
            let pool = Pool::default();
            let (one, two) = (parent.join("one.1"), parent.join("two.1"));
            let work = pool.make(&held, "one.1").unwrap();
            leave(&one);
            assert_eq!(pool.give(&held, "one.1", work), None);
            assert!(!one.exists(), "{what}");
            let work = pool.make(&held, "two.1").unwrap();
            assert_eq!(work.path(), two);
            assert_eq!(pool.make(&held, "two.1").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(entries(&two), [".tmp", "in"], "{what}");
            assert!(entries(&two.join("in")).is_empty() && entries(&two.join(".tmp")).is_empty(), "{what}");
            let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode();
            assert!(mode(&two) == mode(&two.join("in")) && mode(&two) == mode(&two.join(".tmp")), "{what}");
            assert_eq!(pool.give(&held, "two.1", work), None);
            drop(pool);
            assert!(entries(&parent).is_empty(), "{what}: {:?}", entries(&parent));
        }
        assert_eq!(entries(&canary), ["bird"]);
    }
}
