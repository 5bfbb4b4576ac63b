//! Work directories that are used again. On many file systems, to make and remove a few directories costs more than all
//! else about a small command; so one that is as empty as a new one is handed on under a new name.
//!
//! It is handed on only if nothing was left of the command that worked there: no process in its group, nobody who holds
//! its output open. A process that left its group and closed both could still write there; so could one before.

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

/// Directories kept per run; more are not at work at a time on any machine.
const FREE_MAX: usize = 64;

/// Directories that wait to be used again, by the directory they are in.
#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<BTreeMap<PathBuf, Vec<Free>>>,
    given: AtomicU64,
    /// What a directory that was just made lets whom do.
    mode: OnceLock<u32>,
}

/// A directory that waits to be used again: what it is called, and which one that was.
struct Free {
    name: String,
    id: Id,
}

impl Pool {
    /// Makes a directory with nothing in it but empty ones for inputs and temporary files. It is locked.
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

    /// A new one. Whoever removes directories that nobody has locked does not see it under another name before it is.
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

    /// One that was used before, if it is still the one that was emptied, and empty.
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
        let free = Free { name, id: work.id() };
        // Unlocked before others can have it.
        drop(work);
        self.lock().entry(parent.path().to_owned()).or_default().push(free);
    }

    /// The work is done: the directory waits for the next, or goes. If its name belongs to something else by now, both are
    /// left as they are: answers what is to be said of that.
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

    /// Empties a directory, and those for inputs and temporary files if they are what they were.
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

    /// Whether it is as one that was just made.
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

/// What is said of a work directory whose name is not its own any more. One that is gone needs no word.
pub(super) fn replaced(parent: &Dir, name: &str) -> Option<String> {
    let kind = onceflow_store::tree::kind(&parent.stat(name).ok()?);
    let path = parent.path().join(name);
    let is = onceflow_store::tree::called(kind);
    Some(format!("{}: the step put {is} in place of its work directory; neither was removed", path.display()))
}

fn remove(parent: &Dir, name: &str) {
    if let Err(error) = parent.remove(name) {
        home::left(&error);
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
        // Links lead to a directory of this test's own, and nowhere else.
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
