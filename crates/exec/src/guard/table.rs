//! The table of what is to be ended with a process: a file below the store's directory, which the process and its guard
//! have locked together. The lock goes when both are gone; so a table that can be locked says what they left running.
//!
//! Which processes those are is only known where they were started: the file names the machine, when it was started, and
//! the namespace that numbers its processes.

use super::sweep;
use crate::home::LEFT;
use onceflow_store::tree::Dir;
use rustix::{
    fs::{FlockOperation, flock},
    process::Pid,
};
use std::{
    fs::{File, Permissions},
    io,
    os::{
        fd::AsFd,
        unix::fs::{FileExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Where tables are, in the store's directory.
const DIRECTORY: &str = "guards";

/// Bytes before the first entry: where the table is from, as text, then zeros.
const HEADER_BYTES: u64 = 512;

/// How often a table is made that others remove before it is locked.
const TRIES_MAX: usize = 100;

/// Bytes of an entry: the number of a group, or 0, and when its first process was started.
const ENTRY_BYTES: u64 = 16;

/// A group, and when its first process was started, in ticks since the machine was; 0 if that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessGroup {
    pub(super) id: Pid,
    pub(super) started: u64,
}

/// Our table.
pub(super) struct GroupTable {
    file: File,
    path: PathBuf,
    mark: String,
    /// Entries that are free, and how many there are.
    entries: Mutex<(Vec<u64>, u64)>,
}

impl GroupTable {
    /// An empty one, named by its mark and locked.
    pub(super) fn new(store: &Path, mark: &str) -> io::Result<Self> {
        let directory = Dir::open(store)?.make_beneath(Path::new(DIRECTORY))?;
        let path = directory.path().join(mark);
        let mut header = origin().into_bytes();
        header.resize(HEADER_BYTES as usize, 0);
        for _ in 0..TRIES_MAX {
            let file = directory.create_file(mark)?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            // Whoever looks for tables of the dead may have found it before it was locked, and then removes it.
            flock(&file, FlockOperation::LockExclusive)?;
            if is_at(&file, &path) {
                file.write_all_at(&header, 0).inspect_err(|_| drop(std::fs::remove_file(&path)))?;
                return Ok(GroupTable { file, path, mark: mark.to_owned(), entries: Mutex::default() });
            }
        }
        Err(io::Error::other("others remove the table of the guard again and again"))
    }

    /// The same file, and the same lock, for the guard.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Writes a group down; answers where.
    pub(super) fn enter(&self, group: Pid) -> u64 {
        let entry = {
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            entries.0.pop().unwrap_or_else(|| {
                entries.1 += 1;
                entries.1 - 1
            })
        };
        self.write(entry, i64::from(group.as_raw_nonzero().get()), sweep::started(group).unwrap_or(0));
        entry
    }

    /// The group has ended.
    pub(super) fn leave(&self, entry: u64) {
        self.write(entry, 0, 0);
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).0.push(entry);
    }

    fn write(&self, entry: u64, group: i64, started: u64) {
        let mut bytes = group.to_ne_bytes().to_vec();
        bytes.extend(started.to_ne_bytes());
        if let Err(error) = self.file.write_all_at(&bytes, HEADER_BYTES + entry * ENTRY_BYTES) {
            tracing::warn!(%error, "failed to tell the guard of a command: it may outlive this process if that is killed");
        }
    }

    pub(super) fn remove(&self) {
        remove_if_it_is(&self.file, &self.path);
    }
}

/// Where processes have the numbers they have: the machine, since when it runs, and the namespace.
fn origin() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let (host, boot) = (read("/proc/sys/kernel/hostname"), read("/proc/sys/kernel/random/boot_id"));
    let all = format!("{host}\n{boot}\n{}", space.display());
    all.chars().take(HEADER_BYTES as usize / 4).collect()
}

/// The groups in a table.
fn groups(table: &File) -> io::Result<Vec<ProcessGroup>> {
    let mut bytes = vec![0; usize::try_from(table.metadata()?.len().saturating_sub(HEADER_BYTES)).unwrap_or(0)];
    table.read_exact_at(&mut bytes, HEADER_BYTES)?;
    let entry = |entry: &[u8]| {
        let (group, started) = entry.split_at(8);
        let id = i32::try_from(i64::from_ne_bytes(group.try_into().ok()?)).ok().and_then(Pid::from_raw)?;
        Some(ProcessGroup { id, started: u64::from_ne_bytes(started.try_into().ok()?) })
    };
    Ok(bytes.chunks_exact(ENTRY_BYTES as usize).filter_map(entry).collect())
}

/// The groups in the guard's table, which is its standard output.
pub(super) fn groups_of_stdout() -> Vec<Pid> {
    let table = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let groups = table.and_then(|table| groups(&table)).unwrap_or_default();
    // While the first process of a group is there, its number is nobody else's; and afterwards, while the group is.
    let is_it = |group: &&ProcessGroup| sweep::started(group.id).is_none_or(|started| started == group.started);
    groups.iter().filter(is_it).map(|group| group.id).collect()
}

/// The guard has done its work: its table goes.
pub(super) fn remove_own(path: &Path) {
    if let Ok(table) = io::stdout().as_fd().try_clone_to_owned() {
        remove_if_it_is(&table.into(), path);
    }
}

/// This very file is at a path.
fn is_at(file: &File, path: &Path) -> bool {
    file.metadata().is_ok_and(|ours| {
        std::fs::symlink_metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()))
    })
}

/// The file at a path may be another's by now.
fn remove_if_it_is(file: &File, path: &Path) {
    if is_at(file, path)
        && let Err(error) = std::fs::remove_file(path)
    {
        tracing::warn!(%error, ?path, "failed to remove the table of a guard");
    }
}

/// Ends the commands of processes that were killed together with their guards, on this machine. Returns when they have
/// ended, so that whoever starts their steps again does not meet them. Costs a look into one small directory if there are
/// none.
pub fn end_left(store: &Path) {
    let Ok(directory) = Dir::open(store).and_then(|store| store.child(DIRECTORY)) else { return };
    for entry in directory.entries().unwrap_or_default() {
        let (Ok(table), Some(mark)) = (directory.open_file(&entry.name), entry.name.to_str()) else { continue };
        if flock(&table, FlockOperation::NonBlockingLockExclusive).is_ok() {
            end_all_in(&table, mark, &directory.path().join(mark));
        }
    }
}

fn end_all_in(table: &File, mark: &str, path: &Path) {
    let mut header = vec![0; HEADER_BYTES as usize];
    let Ok(()) = table.read_exact_at(&mut header, 0) else {
        // Its process was killed before it had started anything.
        return remove_if_it_is(table, path);
    };
    let header = String::from_utf8_lossy(&header).trim_end_matches('\0').to_owned();
    let ours = origin();
    let part = |text: &str, at: usize| text.split('\n').nth(at).unwrap_or_default().to_owned();
    if part(&header, 0) != part(&ours, 0) {
        // That machine does it.
        return;
    }
    if part(&header, 1) == part(&ours, 1) {
        if header != ours || mark.len() < 16 {
            return;
        }
        let is_it = |group: &&ProcessGroup| group.started != 0 && sweep::started(group.id) == Some(group.started);
        let groups: Vec<_> = groups(table).unwrap_or_default().iter().filter(is_it).map(|group| group.id).collect();
        if sweep::sweep(&groups, mark) {
            tracing::warn!(target: LEFT, "ended commands that had outlived a process which was killed with its guard");
        }
    }
    remove_if_it_is(table, path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_what_runs_and_goes_with_who_has_it_locked() {
        let store = tempfile::tempdir().unwrap();
        let mark = "0123456789abcdef0123";
        let table = GroupTable::new(store.path(), mark).unwrap();
        let us = rustix::process::getpid();
        let (one, two) = (table.enter(us), table.enter(us));
        table.leave(one);
        let started = sweep::started(us).unwrap();
        assert_eq!(groups(&table.file).unwrap(), [ProcessGroup { id: us, started }]);
        assert_eq!((table.enter(us), two), (0, 1), "entries are used again");
        end_left(store.path());
        assert!(table.path().exists(), "it is locked");
        // Started at another time, so it is another process: this one is left alone.
        table.write(0, i64::from(us.as_raw_nonzero().get()), started + 1);
        table.leave(1);
        let path = table.path().to_owned();
        drop(table);
        end_left(store.path());
        assert!(!path.exists());
    }

    #[test]
    fn a_table_of_another_machine_is_left_to_it_and_one_from_before_a_restart_goes() {
        let store = tempfile::tempdir().unwrap();
        let ours = origin();
        let mut parts: Vec<_> = ours.split('\n').collect();
        for (at, stays) in [(0, true), (1, false), (2, true)] {
            let mark = format!("0123456789abcdef{at}");
            let table = GroupTable::new(store.path(), &mark).unwrap();
            let was = std::mem::replace(&mut parts[at], "another");
            let mut header = parts.join("\n").into_bytes();
            header.resize(HEADER_BYTES as usize, 0);
            parts[at] = was;
            table.file.write_all_at(&header, 0).unwrap();
            let path = table.path().to_owned();
            drop(table);
            end_left(store.path());
            assert_eq!(path.exists(), stays, "{at}");
        }
    }
}
