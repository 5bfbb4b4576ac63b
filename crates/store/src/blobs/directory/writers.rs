//! The writers of objects: each has a file that tells that its process is alive ([`alive`](crate::alive)). So the
//! unfinished objects of a dead writer are detected at once, and not by their age.

use crate::alive::{self, Alive, Processes};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

/// The writers of this process, and those of others.
#[derive(Debug)]
pub(super) struct Writers {
    all: Processes,
    ours: Mutex<BTreeMap<u128, Alive>>,
}

impl Writers {
    /// Opens the writers of a directory, which may not exist yet. Deletes the files of dead writers.
    pub(super) fn at(directory: PathBuf) -> Self {
        let writers = Writers { all: Processes::of(directory), ours: Mutex::default() };
        if let Err(error) = writers.all.living(alive::has_ended)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(%error, "files of writers that have ended are left");
        }
        writers
    }

    /// Registers this process as `writer` from now on.
    pub(super) fn enlist(&self, writer: u128) -> io::Result<()> {
        let mut ours = self.ours.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(entry) = ours.entry(writer) {
            entry.insert(self.all.begin(writer)?);
        }
        Ok(())
    }

    /// The writer has ended. Its file is removed.
    pub(super) fn has_ended(&self, writer: u128) -> io::Result<bool> {
        if self.ours.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&writer) {
            return Ok(false);
        }
        alive::has_ended(&self.all.path(writer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_writer_that_has_ended_is_known_and_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("writers");
        let (one, two) = (Writers::at(path.clone()), Writers::at(path.clone()));
        one.enlist(1).unwrap();
        one.enlist(1).unwrap();
        assert!(!one.has_ended(1).unwrap() && !two.has_ended(1).unwrap());
        assert!(two.has_ended(2).unwrap(), "one that never was");
        // Killed: the lock goes, the file stays.
        drop(one);
        fs::write(two.all.path(1), "").unwrap();
        assert!(two.has_ended(1).unwrap());
        two.enlist(3).unwrap();
        fs::write(two.all.path(4), "").unwrap();
        let three = Writers::at(path.clone());
        assert!(!three.has_ended(3).unwrap());
        drop(two);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    }
}
