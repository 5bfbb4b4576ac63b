//! The table of process groups that end with a worker: a file below the store's directory, on which the worker and its
//! guard share a lock. The lock is released when both are gone; so a table that can be locked lists what they left
//! running.
//!
//! Process ids only have a meaning where they were assigned: the file names the machine, its boot, and the PID
//! namespace.

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

/// The directory of tables, in the store's directory.
const DIRECTORY: &str = "guards";

/// Bytes before the first entry: the origin of the table as text, then zeros.
const HEADER_BYTES: u64 = 512;

/// Attempts to create a table, if others remove it before it is locked.
const TRIES_MAX: usize = 100;

/// Bytes of an entry: the id of a group, or 0, and the start time of its first process.
const ENTRY_BYTES: u64 = 16;

/// A group, and the start time of its first process in ticks since boot; 0 if that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessGroup {
    pub(super) id: Pid,
    pub(super) started: u64,
}

/// The table of this worker.
pub(super) struct GroupTable {
    file: File,
    path: PathBuf,
    mark: String,
    /// The free entries, and the number of all entries.
    entries: Mutex<(Vec<u64>, u64)>,
}

impl GroupTable {
    /// Creates an empty table, named by its mark and locked.
    pub(super) fn new(store: &Path, mark: &str) -> io::Result<Self> {
        let directory = Dir::open(store)?.make_beneath(Path::new(DIRECTORY))?;
        let path = directory.path().join(mark);
        let mut header = origin().into_bytes();
        assert!(header.len() as u64 <= HEADER_BYTES, "a cut origin would be taken for that of another machine");
        header.resize(HEADER_BYTES as usize, 0);
        for _ in 0..TRIES_MAX {
            let file = directory.create_file(mark)?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            // A process that looks for left tables may find it before it is locked, and then removes it.
            flock(&file, FlockOperation::LockExclusive)?;
            if is_at(&file, &path) {
                file.write_all_at(&header, 0).inspect_err(|_| drop(std::fs::remove_file(&path)))?;
                return Ok(GroupTable { file, path, mark: mark.to_owned(), entries: Mutex::default() });
            }
        }
        Err(io::Error::other("another process removed the guard's table each time it was written"))
    }

    /// Returns another handle of the same file, with the same lock, for the guard.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Enters a group into the table; returns the index of its entry.
    pub(super) fn enter(&self, group: Pid) -> u64 {
        let entry = {
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            let entry = entries.0.pop().unwrap_or_else(|| {
                entries.1 += 1;
                entries.1 - 1
            });
            assert!(!entries.0.contains(&entry), "entry {entry} of the guard's table is given to two groups");
            entry
        };
        assert!(group.as_raw_nonzero().get() > 1, "group {group:?} would stand for every process, or for init's");
        self.write(entry, i64::from(group.as_raw_nonzero().get()), sweep::started(group).unwrap_or(0));
        entry
    }

    /// Clears the entry of a group that has ended.
    pub(super) fn leave(&self, entry: u64) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (free, all) = &mut *entries;
        assert!(entry < *all && !free.contains(&entry), "entry {entry} of the guard's table is free already");
        // Cleared before it is free: the next group to enter would be cleared instead.
        self.write(entry, 0, 0);
        free.push(entry);
    }

    fn write(&self, entry: u64, group: i64, started: u64) {
        let mut bytes = group.to_ne_bytes().to_vec();
        bytes.extend(started.to_ne_bytes());
        assert_eq!(bytes.len() as u64, ENTRY_BYTES, "an entry of the guard's table reaches into the next one");
        if let Err(error) = self.file.write_all_at(&bytes, HEADER_BYTES + entry * ENTRY_BYTES) {
            tracing::warn!(%error, "failed to tell the guard of a command: it may outlive this process if that is killed");
        }
    }

    pub(super) fn remove(&self) {
        remove_if_it_is(&self.file, &self.path);
    }
}

/// Returns the place where process ids are valid: the machine, its boot, and the PID namespace.
fn origin() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let (host, boot) = (read("/proc/sys/kernel/hostname"), read("/proc/sys/kernel/random/boot_id"));
    let all = format!("{host}\n{boot}\n{}", space.display());
    all.chars().take(HEADER_BYTES as usize / 4).collect()
}

/// Reads the groups in a table.
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

/// Reads the groups in the guard's table, which is its standard output.
pub(super) fn groups_of_stdout() -> Vec<Pid> {
    let table = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let groups = table.and_then(|table| groups(&table)).unwrap_or_default();
    // The id cannot be reused while the first process of the group exists, nor afterwards while the group does.
    let is_it = |group: &&ProcessGroup| sweep::started(group.id).is_none_or(|started| started == group.started);
    groups.iter().filter(is_it).map(|group| group.id).collect()
}

/// Removes the guard's table, when the guard has done its work.
pub(super) fn remove_own(path: &Path) {
    if let Ok(table) = io::stdout().as_fd().try_clone_to_owned() {
        remove_if_it_is(&table.into(), path);
    }
}

/// The path leads to this very file.
fn is_at(file: &File, path: &Path) -> bool {
    file.metadata().is_ok_and(|ours| {
        std::fs::symlink_metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()))
    })
}

/// Removes the file, unless its path leads to another file by now.
fn remove_if_it_is(file: &File, path: &Path) {
    if is_at(file, path)
        && let Err(error) = std::fs::remove_file(path)
    {
        tracing::warn!(%error, ?path, "failed to remove the table of a guard");
    }
}

/// Ends the commands of workers that were killed together with their guards, on this machine. Returns when they have
/// ended, so that a new start of the same step does not run next to them. Costs a scan of one small directory if there
/// are none.
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
        // The worker was killed before it had written the header, so it had started no command.
        return remove_if_it_is(table, path);
    };
    let header = String::from_utf8_lossy(&header).trim_end_matches('\0').to_owned();
    let ours = origin();
    let part = |text: &str, at: usize| text.split('\n').nth(at).unwrap_or_default().to_owned();
    if part(&header, 0) != part(&ours, 0) {
        // The processes are on another machine; a worker there ends them.
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
    fn a_guard_table_lists_commands_and_goes_with_its_lock_holder() {
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
        // The entry has another start time, so it means another process: this one is left alone.
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
