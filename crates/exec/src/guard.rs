//! Ends the processes of commands when the worker process ends, however it ends. A guard is a process that waits for a
//! pipe of the worker's to close; the system closes it even if the worker is killed. Then the guard ends every process
//! group in a table that both share, and, where there is `/proc`, every process with the worker's mark in its
//! environment, so that none is missed between its start and its entry in the table.
//!
//! A guard that is killed is replaced at once. If worker and guard are both killed, the table is left without a lock:
//! the next worker that starts a command on the same store, or takes over steps, first ends the processes in it
//! ([`end_left`]).

mod sweep;
mod table;

pub use table::end_left;

use rustix::process::Pid;
use std::{
    ffi::{OsStr, OsString},
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, BufRead, PipeWriter, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use table::GroupTable;

/// The environment variable that marks processes of this worker. Marks of workers above this one are in it too.
pub(crate) const MARK: &str = "ONCEFLOW_GUARD";

/// The byte sent to the guard when no process is left to be ended.
const DISMISSED: u8 = b'q';

/// The guard's process name: different from the worker's, so that `killall onceflow` does not find the guard.
const NAME: &str = "once-guard";

/// The pause before a guard that ended too soon is replaced: the first, and the longest.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The worker's handle of its guard.
pub struct Guard {
    shared: Arc<GuardState>,
    mark: String,
}

/// The state of the thread that replaces a dead guard.
struct GuardState {
    table: GroupTable,
    program: PathBuf,
    args: Vec<OsString>,
    /// None once the guard is dismissed.
    pipe: Mutex<Option<PipeWriter>>,
}

impl Guard {
    /// Starts the guard: a program that calls [`main`] when it is given these arguments. Its table is below the store's
    /// directory.
    ///
    /// # Errors
    /// If the guard cannot be started.
    pub fn start(program: &Path, args: &[impl AsRef<OsStr>], store: &Path) -> io::Result<Self> {
        let mark = random();
        let args = args.iter().map(|arg| arg.as_ref().to_owned()).collect();
        let table = GroupTable::new(store, &mark)?;
        let shared = GuardState { table, program: program.to_owned(), args, pipe: Mutex::new(None) };
        let (guard, pipe) = shared.launch()?;
        *shared.lock() = Some(pipe);
        let shared = Arc::new(shared);
        let watched = shared.clone();
        std::thread::Builder::new().name(String::from("onceflow guard")).spawn(move || watched.watch(guard))?;
        let outer = std::env::var(MARK).map(|outer| format!("{outer}:")).unwrap_or_default();
        Ok(Guard { shared, mark: format!("{outer}{mark}") })
    }

    /// Returns the value of [`MARK`] for the environment of guarded processes.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// Puts a process group under guard: it ends with the worker, until the returned value is dropped.
    pub(crate) fn hold(self: &Arc<Self>, group: Pid) -> GuardedGroup {
        GuardedGroup { entry: self.shared.table.enter(group), guard: self.clone() }
    }
}

impl GuardState {
    fn lock(&self) -> MutexGuard<'_, Option<PipeWriter>> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn launch(&self) -> io::Result<(Child, PipeWriter)> {
        let (reader, mut writer) = io::pipe()?;
        // Written before the guard starts: if this process is killed right after that, the guard still knows what to
        // end.
        writer.write_all(format!("{}\n{}\n", self.table.mark(), self.table.path().display()).as_bytes())?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(reader).stdout(self.table.file()?).stderr(Stdio::null());
        // Ctrl-C must reach the worker and not the guard; and the guard must not keep the worker's directory busy.
        command.process_group(0).current_dir("/").env_remove(MARK);
        Ok((command.spawn()?, writer))
    }

    /// Waits for the end of the guard, and replaces one that was not dismissed.
    fn watch(&self, mut guard: Child) {
        let mut pause = PAUSE;
        loop {
            let ended = guard.wait();
            guard = loop {
                let mut pipe = self.lock();
                if pipe.is_none() {
                    return;
                }
                match self.launch() {
                    Ok((new, writer)) => {
                        *pipe = Some(writer);
                        tracing::warn!(?ended, "the guard that ends commands with this process was ended; replaced it");
                        break new;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot replace the guard that was ended; trying again in {pause:?}");
                    }
                }
                drop(pipe);
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            };
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(mut pipe) = self.shared.lock().take() else { return };
        // Every guarded group keeps the guard alive, so none is left here, and the table is not needed any more. If the
        // dismissal does not reach the guard, the guard looks for processes itself.
        self.shared.table.remove();
        let _heard = pipe.write_all(&[DISMISSED]);
    }
}

/// A process group that ends with the worker.
pub(crate) struct GuardedGroup {
    guard: Arc<Guard>,
    entry: u64,
}

impl Drop for GuardedGroup {
    fn drop(&mut self) {
        self.guard.shared.table.leave(self.entry);
    }
}

/// Runs the guard: the whole of its program. Its standard input is the pipe, its standard output the table.
pub fn main() {
    // The rename fails where the system has no `/proc`; the guard then keeps its name.
    let _unnamed = std::fs::write("/proc/self/comm", NAME);
    let mut input = io::stdin().lock();
    let (mut mark, mut path) = (String::new(), String::new());
    // A worker that died before it wrote its mark has started no command.
    if input.read_line(&mut mark).is_err() || input.read_line(&mut path).is_err() || mark.trim().len() < 16 {
        return;
    }
    let (mark, path) = (mark.trim(), Path::new(path.trim_end_matches('\n')));
    let mut said = Vec::new();
    let _closed = input.read_to_end(&mut said);
    // After a dismissal all groups have ended; but a process may have left its group.
    if !said.contains(&DISMISSED) || sweep::is_left(mark) {
        sweep::sweep(&table::groups_of_stdout(), mark);
    }
    table::remove_own(path);
}

/// Returns a mark that is different for every guard.
fn random() -> String {
    let part = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}{:x}", part(), part(), std::process::id())
}
