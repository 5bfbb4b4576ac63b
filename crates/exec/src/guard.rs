//! Ends the processes of commands when we end, however we end. A guard is a process that waits for a pipe of ours to
//! close; the system closes it even if we are killed. Then it ends every group it finds in a table that both share, and,
//! where there is `/proc`, every process with our mark in its environment, so that none is missed between its start and
//! its entry in the table.
//!
//! A guard that is killed is replaced at once. If both of us are killed, the table is left, and nobody has it locked: then
//! whoever starts a command on the same store next, or takes over steps, ends what is in it first ([`end_left`]).

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

/// The variable that marks what we started. Marks of those who started us are in it too.
pub(crate) const MARK: &str = "ONCEFLOW_GUARD";

/// Said to the guard when nothing is left to be ended.
const DISMISSED: u8 = b'q';

/// What the guard is called among processes: not as we are, so that `killall onceflow` does not find it.
const NAME: &str = "once-guard";

/// Before a guard that ended too soon is replaced: the first, and the longest.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Our end of the guard.
pub struct Guard {
    shared: Arc<GuardState>,
    mark: String,
}

/// The state of the thread that replaces a dead guard.
struct GuardState {
    table: GroupTable,
    program: PathBuf,
    args: Vec<OsString>,
    /// None once it is dismissed.
    pipe: Mutex<Option<PipeWriter>>,
}

impl Guard {
    /// Starts the guard: a program that calls [`main`] when it is given these arguments. Its table is below the store's
    /// directory.
    ///
    /// # Errors
    /// If it cannot be started.
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

    /// What [`MARK`] must be in the environment of whatever is guarded.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// Ends this group with us, as long as what is answered is held.
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
        // Before the guard starts: if this process is killed right after that, the guard still learns what to end.
        writer.write_all(format!("{}\n{}\n", self.table.mark(), self.table.path().display()).as_bytes())?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(reader).stdout(self.table.file()?).stderr(Stdio::null());
        // Ctrl-C is for us, not for it; and it holds no directory of ours.
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
        // Nothing is held any more, or this would be: nobody needs the table when we have ended. If the guard does not hear
        // it, it looks for itself.
        self.shared.table.remove();
        let _heard = pipe.write_all(&[DISMISSED]);
    }
}

/// A group that ends with us.
pub(crate) struct GuardedGroup {
    guard: Arc<Guard>,
    entry: u64,
}

impl Drop for GuardedGroup {
    fn drop(&mut self) {
        self.guard.shared.table.leave(self.entry);
    }
}

/// What the guard does: the whole of its program. Its standard input is the pipe, its standard output the table.
pub fn main() {
    // Only where the system lets us be called otherwise.
    let _unnamed = std::fs::write("/proc/self/comm", NAME);
    let mut input = io::stdin().lock();
    let (mut mark, mut path) = (String::new(), String::new());
    // Whoever gave us no mark started nothing.
    if input.read_line(&mut mark).is_err() || input.read_line(&mut path).is_err() || mark.trim().len() < 16 {
        return;
    }
    let (mark, path) = (mark.trim(), Path::new(path.trim_end_matches('\n')));
    let mut said = Vec::new();
    let _closed = input.read_to_end(&mut said);
    // All groups have ended then; but a process may have left its group.
    if !said.contains(&DISMISSED) || sweep::is_left(mark) {
        sweep::sweep(&table::groups_of_stdout(), mark);
    }
    table::remove_own(path);
}

/// Different for every guard there is.
fn random() -> String {
    let part = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}{:x}", part(), part(), std::process::id())
}
