//! Work directories that are used again. On many file systems, to make and remove a few directories costs more than all
//! else about a small command; so one that is as empty as a new one is handed on under a new name.
//!
//! It is handed on only if nothing was left of the command that worked there: no process in its group, nobody who holds
//! its output open. A process that left its group and closed both could still write there; so could one before.

use super::{INPUTS, TEMPORARY};
use crate::home;
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
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
    free: Mutex<BTreeMap<PathBuf, Vec<PathBuf>>>,
    given: AtomicU64,
    /// What a directory that was just made lets whom do.
    mode: OnceLock<u32>,
}

impl Pool {
    /// Makes `path` a directory with nothing in it but empty ones for inputs and temporary files.
    pub(crate) fn make(&self, path: &Path) -> io::Result<()> {
        let parent = path.parent().expect("a work directory is in one");
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).get_mut(parent).and_then(Vec::pop);
        if let Some(free) = free
            && fs::rename(&free, path).is_ok()
        {
            return Ok(());
        }
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(parent)?;
                fs::create_dir(path)?;
            }
            made => made?,
        }
        fs::create_dir(path.join(TEMPORARY))?;
        fs::create_dir(path.join(INPUTS))?;
        let mode = fs::symlink_metadata(path)?.mode();
        self.mode.get_or_init(|| mode);
        Ok(())
    }

    /// The work is done: the directory waits for the next, or goes.
    pub(crate) fn give(&self, path: &Path) {
        let parent = path.parent().expect("a work directory is in one");
        let has_room = || {
            let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.get(parent).is_none_or(|free| free.len() < FREE_MAX)
        };
        let number = self.given.fetch_add(1, Relaxed);
        let to = parent.join(format!("{}{}-{number}", home::FREE, std::process::id()));
        if has_room() && self.empty(path).unwrap_or(false) && fs::rename(path, &to).is_ok() {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.entry(parent.to_owned()).or_default().push(to);
        } else {
            home::remove(path, TEMPORARY);
        }
    }

    /// Empties a directory; whether it is as one that was just made.
    fn empty(&self, path: &Path) -> io::Result<bool> {
        let (mut kept, mut is_new) = (0, self.is_new(path)?);
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let is_directory = entry.file_type()?.is_dir();
            if is_directory && (entry.file_name() == TEMPORARY || entry.file_name() == INPUTS) {
                is_new &= self.is_new(&entry.path())?;
                for inner in fs::read_dir(entry.path())? {
                    remove(&inner?)?;
                }
                kept += 1;
            } else {
                remove(&entry)?;
            }
        }
        Ok(is_new && kept == 2)
    }

    fn is_new(&self, directory: &Path) -> io::Result<bool> {
        Ok(self.mode.get() == Some(&fs::symlink_metadata(directory)?.mode()))
    }
}

fn remove(entry: &fs::DirEntry) -> io::Result<()> {
    match entry.file_type()?.is_dir() {
        true => fs::remove_dir_all(entry.path()),
        false => fs::remove_file(entry.path()),
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let free = self.free.get_mut().unwrap_or_else(PoisonError::into_inner);
        for free in free.values().flatten() {
            home::remove(free, TEMPORARY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

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
        let left: [(&str, fn(&Path)); 7] = [
            ("nothing", |_| {}),
            ("files", |path| fs::write(path.join("in/x"), "").and(fs::write(path.join(".tmp/x"), "")).unwrap()),
            ("a tree", |path| {
                fs::create_dir_all(path.join("in/a/b")).and(fs::write(path.join("in/a/b/c"), "")).unwrap();
            }),
            ("a link", |path| std::os::unix::fs::symlink("/etc", path.join("etc")).unwrap()),
            ("other rights", |path| fs::set_permissions(path.join("in"), fs::Permissions::from_mode(0o700)).unwrap()),
            ("no directory for inputs", |path| fs::remove_dir(path.join("in")).unwrap()),
            ("a link for a directory", |path| {
                fs::remove_dir(path.join("in")).unwrap();
                std::os::unix::fs::symlink("/etc", path.join("in")).unwrap();
            }),
        ];
        let directory = tempfile::tempdir().unwrap();
        let parent = directory.path().join("work");
        for (what, leave) in left {
            let pool = Pool::default();
            let (one, two) = (parent.join("one.1"), parent.join("two.1"));
            pool.make(&one).unwrap();
            leave(&one);
            pool.give(&one);
            assert!(!one.exists(), "{what}");
            pool.make(&two).unwrap();
            assert_eq!(entries(&two), [".tmp", "in"], "{what}");
            assert!(entries(&two.join("in")).is_empty() && entries(&two.join(".tmp")).is_empty(), "{what}");
            let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode();
            assert!(mode(&two) == mode(&two.join("in")) && mode(&two) == mode(&two.join(".tmp")), "{what}");
            pool.give(&two);
            drop(pool);
            assert!(entries(&parent).is_empty(), "{what}: {:?}", entries(&parent));
        }
        assert!(Path::new("/etc/passwd").exists());
    }
}
