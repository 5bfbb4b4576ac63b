//! Who attends a run: the process that has the run's file under `workers/` locked. The kernel lets go of the lock when
//! that process ends, however it ends; so a file that can be locked was left by one that is gone.
//!
//! What the file says is for others to read: who it is, for what, and whether the run was started. It is removed by
//! whoever holds its lock, so whoever gets a lock looks whether the file is still the one at the path. Only files of the
//! user whose directory it is count, and nobody else can open them.

use crate::fault::Fault;
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// What a process says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notice {
    /// Its number.
    pub(crate) pid: u32,
    /// The run it attends.
    pub(crate) key: String,
    /// Under which name it claims steps.
    pub(crate) incarnation: String,
    /// Whether the run is started, so that its state in the store is that of this attempt.
    pub(crate) started: bool,
}

impl Notice {
    /// Under which name it claims steps.
    pub(crate) fn claims(&self) -> Option<u128> {
        u128::from_str_radix(&self.incarnation, 16).ok()
    }
}

/// This process attends a run while it has this.
#[derive(Debug)]
pub(crate) struct Attending {
    file: File,
    path: PathBuf,
    pub(crate) notice: Notice,
}

/// Who attends a run.
#[derive(Debug)]
pub(crate) enum Presence {
    /// This process, from now on. If another one did and is gone, what it had said.
    Mine(Attending, Option<Notice>),
    /// Another one. For a moment it may not have said who it is.
    Other(Option<Notice>),
}

fn directory(store: &Path) -> PathBuf {
    store.join("workers")
}

fn path(store: &Path, key: &str) -> PathBuf {
    directory(store).join(&blake3::hash(key.as_bytes()).to_hex()[..16])
}

/// Takes the place beside a run, if it is free.
///
/// # Errors
/// If the store's directory cannot be written.
pub(crate) fn attend(store: &Path, notice: Notice) -> Result<Presence, Fault> {
    let path = path(store, &notice.key);
    let taken = take(&path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory(store));
            made.and_then(|()| take(&path))
        }
        _ => Err(error),
    });
    match taken.map_err(Fault::store("lock", &path))? {
        Taken::Held(notice) => Ok(Presence::Other(notice)),
        Taken::Free(file, before) => {
            let mut attending = Attending { file, path, notice };
            attending.write()?;
            Ok(Presence::Mine(attending, before))
        }
    }
}

/// Who attends a run now, without taking the place.
pub(crate) fn look(store: &Path, key: &str) -> Option<Notice> {
    let mut file = open_own(&path(store, key))?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(read(&mut file).unwrap_or_default()),
        _ => None,
    }
}

/// What all have said: those who are there, and those who are gone.
pub(crate) fn all(store: &Path) -> (Vec<Notice>, Vec<Notice>) {
    let (mut there, mut gone) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(directory(store)).into_iter().flatten().flatten() {
        let Some(mut file) = open_own(&entry.path()) else { continue };
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => there.extend(read(&mut file)),
            _ => gone.extend(read(&mut file)),
        }
    }
    (there, gone)
}

/// What those who are gone had said; their files go.
pub(crate) fn sweep(store: &Path) -> Vec<Notice> {
    let entries = std::fs::read_dir(directory(store)).map(|entries| entries.flatten().collect::<Vec<_>>());
    let mut gone = Vec::new();
    for entry in entries.unwrap_or_default() {
        let Ok(mut file) = File::options().read(true).write(true).open(entry.path()) else { continue };
        if file.try_lock().is_ok() && is_at(&file, &entry.path()) {
            gone.extend(read(&mut file));
            drop(std::fs::remove_file(entry.path()));
        }
    }
    gone
}

/// Opens a file, if it is there and belongs to the user whose directory it is in: nobody else's lock counts.
fn open_own(path: &Path) -> Option<File> {
    let owner = path.parent()?.metadata().ok()?.uid();
    let there = path.symlink_metadata().ok()?;
    (there.is_file() && there.uid() == owner).then(|| File::open(path).ok())?
}

enum Taken {
    Free(File, Option<Notice>),
    Held(Option<Notice>),
}

fn take(path: &Path) -> io::Result<Taken> {
    // Who only looks holds it for a moment; that is no reason to believe that somebody attends the run.
    const LOOKS: usize = 20;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(3);
    let mut held = 0;
    loop {
        let mut options = File::options();
        let mut file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        if file.metadata()?.permissions().mode() & 0o077 != 0 {
            // Left by an earlier version: whoever can open it can lock it.
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
        match file.try_lock() {
            Ok(()) if is_at(&file, path) => {
                let before = read(&mut file);
                return Ok(Taken::Free(file, before));
            }
            // It was removed between opening and locking it.
            Ok(()) => {}
            Err(TryLockError::WouldBlock) if held < LOOKS => {
                held += 1;
                std::thread::sleep(PAUSE);
            }
            Err(TryLockError::WouldBlock) => return Ok(Taken::Held(read(&mut file))),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

fn read(file: &mut File) -> Option<Notice> {
    const NOTICE_BYTES_MAX: u64 = 64 * 1024;
    let mut text = Vec::new();
    file.rewind().ok()?;
    file.take(NOTICE_BYTES_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

impl Attending {
    /// Says under which name it claims steps.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn claims_as(&mut self, incarnation: u128) -> Result<(), Fault> {
        self.notice.incarnation = format!("{incarnation:032x}");
        self.write()
    }

    /// Says that the run is started.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn started(&mut self) -> Result<(), Fault> {
        self.notice.started = true;
        self.write()
    }

    fn write(&mut self) -> Result<(), Fault> {
        let text = serde_json::to_vec(&self.notice).expect("a notice is plain data");
        let mut write = || {
            self.file.rewind()?;
            self.file.write_all(&text)?;
            self.file.set_len(text.len() as u64)
        };
        write().map_err(Fault::store("write", &self.path))
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        // Whoever opened it meanwhile sees that it is not at its path any more.
        drop(std::fs::remove_file(&self.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(key: &str) -> Notice {
        Notice { pid: std::process::id(), key: key.into(), ..Notice::default() }
    }

    fn mine(store: &Path, key: &str) -> (Attending, Option<Notice>) {
        match attend(store, notice(key)).unwrap() {
            Presence::Mine(attending, before) => (attending, before),
            Presence::Other(other) => panic!("attended by {other:?}"),
        }
    }

    #[test]
    fn one_attends_a_run_and_the_others_know_who() {
        let store = tempfile::tempdir().unwrap();
        let (mut first, before) = mine(store.path(), "a");
        assert!(before.is_none() && look(store.path(), "b").is_none());
        let Presence::Other(Some(other)) = attend(store.path(), notice("a")).unwrap() else { panic!("not attended") };
        assert_eq!((other, look(store.path(), "a")), (notice("a"), Some(notice("a"))));
        first.claims_as(7).and_then(|()| first.started()).unwrap();
        assert!(look(store.path(), "a").is_some_and(|notice| notice.started && notice.claims() == Some(7)));
        let (other, _) = mine(store.path(), "b");
        assert!(sweep(store.path()).is_empty(), "both are there");
        drop((first, other));
        assert_eq!(std::fs::read_dir(directory(store.path())).unwrap().count(), 0, "nothing is left");
        drop(mine(store.path(), "a"));
    }

    #[test]
    fn what_the_dead_have_left_is_found_and_goes() {
        let store = tempfile::tempdir().unwrap();
        let (attending, _) = mine(store.path(), "a");
        let path = attending.path.clone();
        let said = std::fs::read(&path).unwrap();
        drop(attending);
        std::fs::write(&path, said).unwrap();
        assert_eq!(all(store.path()), (vec![], vec![notice("a")]));
        let (attending, before) = mine(store.path(), "a");
        assert_eq!(before, Some(notice("a")));
        assert_eq!(all(store.path()), (vec![notice("a")], vec![]));
        std::fs::write(directory(store.path()).join("torn"), "{\"pid\":").unwrap();
        assert_eq!(sweep(store.path()), []);
        assert_eq!(std::fs::read_dir(directory(store.path())).unwrap().count(), 1);
        drop(attending);
    }
}
