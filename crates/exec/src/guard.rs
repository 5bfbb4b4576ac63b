//! Ends the processes of commands when we end, however we end. A guard is a process that waits for a pipe of ours to
//! close; the system closes it even if we are killed. Then it ends every group it finds in a table that both share, and,
//! where there is `/proc`, every process with our mark in its environment, so that none is missed between its start and
//! its entry in the table.

mod sweep;

use rustix::process::Pid;
use std::{
    ffi::OsStr,
    fs::File,
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, BufRead, PipeWriter, Read, Write},
    os::{
        fd::AsFd,
        unix::{fs::FileExt, process::CommandExt},
    },
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

/// The variable that marks what we started. Marks of those who started us are in it too.
pub(crate) const MARK: &str = "ONCEFLOW_GUARD";

/// Bytes of an entry of the table: the number of a group, or 0.
const ENTRY_BYTES: u64 = 4;

/// Said to the guard when nothing is left to be ended.
const DISMISSED: u8 = b'q';

/// Our end of the guard.
pub struct Guard {
    pipe: Mutex<PipeWriter>,
    table: File,
    /// Entries that are free, and how many there are.
    entries: Mutex<(Vec<u64>, u64)>,
    mark: String,
}

impl Guard {
    /// Starts the guard: a program that calls [`main`] when it is given these arguments.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(program: &Path, args: &[impl AsRef<OsStr>]) -> io::Result<Self> {
        let mark = random();
        let table = shared_file(&mark)?;
        let (reader, mut writer) = io::pipe()?;
        let mut command = Command::new(program);
        command.args(args).stdin(reader).stdout(table.try_clone()?).stderr(Stdio::null());
        // Ctrl-C is for us, not for it; and it holds no directory of ours.
        command.process_group(0).current_dir("/").env_remove(MARK);
        let _ends_by_itself = command.spawn()?;
        writer.write_all(format!("{mark}\n").as_bytes())?;
        let outer = std::env::var(MARK).map(|outer| format!("{outer}:")).unwrap_or_default();
        let mark = format!("{outer}{mark}");
        Ok(Guard { pipe: Mutex::new(writer), table, entries: Mutex::new((vec![], 0)), mark })
    }

    /// What [`MARK`] must be in the environment of whatever is guarded.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// Ends this group with us, as long as what is answered is held.
    pub(crate) fn hold(self: &Arc<Self>, group: Pid) -> Held {
        let entry = {
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            entries.0.pop().unwrap_or_else(|| {
                entries.1 += 1;
                entries.1 - 1
            })
        };
        self.write(entry, group.as_raw_nonzero().get());
        Held { guard: self.clone(), entry }
    }

    fn write(&self, entry: u64, group: i32) {
        if let Err(error) = self.table.write_all_at(&group.to_ne_bytes(), entry * ENTRY_BYTES) {
            tracing::warn!(%error, "the guard could not be told");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let pipe = self.pipe.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Nothing is held any more, or this would be; if it does not hear it, it looks for itself.
        let _heard = pipe.write_all(&[DISMISSED]);
    }
}

/// A group that ends with us.
pub(crate) struct Held {
    guard: Arc<Guard>,
    entry: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.guard.write(self.entry, 0);
        self.guard.entries.lock().unwrap_or_else(PoisonError::into_inner).0.push(self.entry);
    }
}

/// What the guard does: the whole of its program.
pub fn main() {
    let mut input = io::stdin().lock();
    let mut mark = String::new();
    // Whoever gave us no mark started nothing.
    if input.read_line(&mut mark).is_err() || mark.trim().len() < 16 {
        return;
    }
    let mut said = Vec::new();
    let _closed = input.read_to_end(&mut said);
    // All groups have ended then; but a process may have left its group.
    if said.contains(&DISMISSED) && !sweep::is_left(mark.trim()) {
        return;
    }
    sweep::sweep(&groups(), mark.trim());
}

/// The groups in the table, which is our standard output.
fn groups() -> Vec<Pid> {
    let read = || -> io::Result<Vec<u8>> {
        let table = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut bytes = vec![0; usize::try_from(table.metadata()?.len()).unwrap_or(0)];
        table.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let entries = bytes.chunks_exact(ENTRY_BYTES as usize);
    entries.filter_map(|entry| Pid::from_raw(i32::from_ne_bytes(entry.try_into().ok()?))).collect()
}

/// A file that never had a name, so that it is gone when both of us are, however we end.
#[cfg(target_os = "linux")]
fn shared_file(mark: &str) -> io::Result<File> {
    let name = format!("onceflow-guard-{mark}");
    Ok(File::from(rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?))
}

/// A file that has no name any more, so that it is gone when both of us are.
#[cfg(not(target_os = "linux"))]
fn shared_file(mark: &str) -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("onceflow-guard-{mark}"));
    let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Different for every guard there is.
fn random() -> String {
    let part = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}{:x}", part(), part(), std::process::id())
}
