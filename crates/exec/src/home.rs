//! Paths on the disk: the work directories and logs of runs, below the store's directory. No result depends on these
//! files; they may be deleted at any time.

use onceflow_core::protocol::ids::RunId;
use onceflow_engine::ALIVE;
use onceflow_store::{
    alive,
    tree::{self, Dir},
};
use rustix::{
    fs::FileType,
    io::Errno,
    process::{Pid, test_kill_process},
};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// The store's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its path.
    pub root: PathBuf,
    /// Distinguishes the work directories of this process from those of others that may work on the same steps: a slow
    /// process may still be at work on a step when another starts it again.
    pub own: Option<String>,
}

impl Home {
    /// The directory at this path. It should be absolute, because commands run in other directories.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Home { root: root.into(), own: None }
    }

    /// The same, for one of several processes that work on the same runs.
    pub fn of_process(root: impl Into<PathBuf>, own: impl Into<String>) -> Self {
        Home { root: root.into(), own: Some(own.into()) }
    }

    /// Returns the directory of a run's files.
    pub fn run(&self, run: RunId) -> PathBuf {
        self.root.join(of_run(run))
    }

    /// Returns the directory where the engine materialises files for steps.
    pub fn scratch(&self) -> PathBuf {
        self.root.join(SCRATCH)
    }

    /// Opens the directory of a run's work directories, creating it if needed.
    pub(crate) fn works(&self, run: RunId) -> io::Result<Dir> {
        self.make(&self.apart(of_run(run).join(WORK)))
    }

    /// Opens the directory where outputs are until the engine has taken them, creating it if needed.
    pub(crate) fn outs(&self, run: RunId) -> io::Result<Dir> {
        self.make(&self.apart(of_run(run).join(OUT)))
    }

    /// Creates a new file among the outputs that wait for the engine: no other start, in any process, gets the same.
    pub(crate) fn out_file(&self, run: RunId, step: &str) -> io::Result<(File, PathBuf)> {
        let outs = self.outs(run)?;
        loop {
            let name = fresh(step);
            match outs.create_file(&name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return Ok((made?, outs.path().join(name))),
            }
        }
    }

    /// Creates the log file of a step, in place of the previous one; no link is followed.
    pub(crate) fn log_file(&self, run: RunId, address: &str) -> io::Result<File> {
        let logs = self.make(&of_run(run).join(LOGS))?;
        let name = format!("{}.log", safe(address));
        logs.remove(&name)?;
        logs.create_file(&name)
    }

    /// Removes the log of an earlier attempt.
    pub(crate) fn remove_log(&self, run: RunId, address: &str) {
        let name = format!("{}.log", safe(address));
        if let Err(error) = tree::remove_beneath(&self.root, &of_run(run).join(LOGS).join(name)) {
            log_left(&error);
        }
    }

    fn make(&self, below: &Path) -> io::Result<Dir> {
        let root = match Dir::open(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&self.root)?;
                Dir::open(&self.root)?
            }
            root => root?,
        };
        root.make_beneath(below)
    }

    fn apart(&self, directory: PathBuf) -> PathBuf {
        match &self.own {
            Some(own) => directory.join(own),
            None => directory,
        }
    }

    /// Returns the path of the log of a step's last attempt.
    pub fn log(&self, run: RunId, address: &str) -> PathBuf {
        self.run(run).join(LOGS).join(format!("{}.log", safe(address)))
    }
}

const SCRATCH: &str = "scratch";
const WORK: &str = "work";
const OUT: &str = "out";
const LOGS: &str = "logs";

fn of_run(run: RunId) -> PathBuf {
    let hex: String = run.0.iter().map(|byte| format!("{byte:02x}")).collect();
    Path::new("runs").join(hex)
}

/// Returns a new name for an output that waits for the engine. It ends with the id of this process, so that the file is
/// removed once the process is gone.
pub(crate) fn fresh(step: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    assert!(!step.is_empty() && !step.contains('/'), "{step:?} names an output outside of its directory");
    format!("{step}.{}-{}", NUMBER.fetch_add(1, Relaxed), std::process::id())
}

/// The prefix in the names of work directories that wait to be reused.
pub(crate) const FREE: &str = ".free-";

impl Home {
    /// Removes work directories of a run that dead processes kept for reuse, and outputs of theirs that the engine
    /// never took. Meant for runs that a dead process is known to have worked on: scanning all runs would get slower
    /// with each.
    pub fn tidy(&self, run: RunId) {
        self.remove_in(&of_run(run).join(WORK), is_kept_by_the_dead);
        self.remove_in(&of_run(run).join(OUT), is_of_the_dead);
    }

    /// Removes scratch directories of dead processes: materialised small files of engines, and unpacked files.
    pub fn tidy_after_the_dead(&self) {
        self.remove_in(Path::new(SCRATCH), |name| {
            let ended = |name: &str| alive::has_ended(&self.scratch().join(name)).unwrap_or(false);
            if name.ends_with(ALIVE) || name.starts_with(alive::NEW) {
                // The check removes the liveness file of a dead process itself; its scratch directory then counts as
                // dead.
                let _gone = ended(name);
                return false;
            }
            match engine_of(name) {
                Some(engine) => ended(&format!("{engine}{ALIVE}")),
                None => is_of_the_dead(name),
            }
        });
    }

    /// Removes the entries of a directory below the store's whose names `goes` accepts. No link is followed to it.
    fn remove_in(&self, below: &Path, goes: impl Fn(&str) -> bool) {
        let directory = match Dir::open(&self.root).and_then(|root| root.beneath(below)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return log_left(&error),
            Ok(directory) => directory,
        };
        for entry in directory.entries().unwrap_or_default() {
            // A process id may belong to another PID namespace; but a process at work in a directory has it locked.
            let is_free = || match entry.kind {
                FileType::Directory => directory.child(&entry.name).is_ok_and(|dir| dir.try_lock().unwrap_or(true)),
                _ => true,
            };
            if entry.name.to_str().is_some_and(&goes)
                && is_free()
                && let Err(error) = directory.remove(&entry.name)
            {
                log_left(&error);
            }
        }
    }

    /// Returns a directory for files that this process unpacks. After a kill, [`Home::tidy_after_the_dead`] removes it.
    pub fn scratch_of_process(&self, what: &str) -> PathBuf {
        self.scratch().join(format!("{what}-{}", std::process::id()))
    }
}

/// Returns the engine that owns a scratch directory, `onceflow-<incarnation>`, or that of one of its attempts, which
/// has a suffix.
fn engine_of(name: &str) -> Option<&str> {
    const BYTES: usize = "onceflow-".len() + 32;
    let (engine, rest) = name.split_at_checked(BYTES)?;
    let is_one = engine.starts_with("onceflow-") && (rest.is_empty() || rest.starts_with('-'));
    is_one.then_some(engine)
}

fn is_dead(process: i32) -> bool {
    Pid::from_raw(process).is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH))
}

/// The name is of a work directory that a dead process kept for reuse, or was creating.
fn is_kept_by_the_dead(name: &str) -> bool {
    let process = name.strip_prefix(FREE).and_then(|rest| rest.split('-').next()?.parse().ok());
    process.is_some_and(is_dead)
}

/// The name ends with the id of a process, and that process is dead.
fn is_of_the_dead(name: &str) -> bool {
    name.rsplit_once('-').and_then(|(_, process)| process.parse().ok()).is_some_and(is_dead)
}

impl Home {
    /// Removes all work directories of a run that no process works on any more, and outputs the engine did not take.
    pub fn clear(&self, run: RunId) {
        for name in [WORK, OUT] {
            if let Err(error) = tree::remove_beneath(&self.root, &of_run(run).join(name)) {
                log_left(&error);
            }
        }
    }
}

/// Logs that a file was left in place, because it is not ours or cannot be removed; the error names it. The user sees
/// this without enabling logs.
pub fn log_left(error: &dyn std::fmt::Display) {
    tracing::warn!(target: LEFT, "left alone: {error}");
}

/// The log target of messages that are always shown: files left alone, and commands of dead processes ended.
pub const LEFT: &str = "onceflow_left";

/// Turns an address into a file name: `/align[3]/sort` is `align[3].sort`. Two addresses never share a name.
pub fn safe(address: &str) -> String {
    let mut name = String::with_capacity(address.len());
    let mut is_plain = true;
    for found in address.strip_prefix('/').unwrap_or(address).chars() {
        match found {
            '/' => name.push('.'),
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '[' | ']' | '@' => name.push(found),
            _ => {
                is_plain = false;
                name.push('_');
            }
        }
    }
    if is_plain && !name.is_empty() && name.len() <= NAME_BYTES_MAX {
        return name;
    }
    name.truncate(NAME_BYTES_MAX - 20);
    let name = format!("{name}~{}", &blake3::hash(address.as_bytes()).to_hex()[..16]);
    assert!(name.len() <= NAME_BYTES_MAX, "{name} leaves no room for the suffixes of logs and outputs");
    name
}

/// File systems allow 255 bytes; the rest is for suffixes.
const NAME_BYTES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reusable_directories_of_dead_processes_go_and_those_of_living_ones_stay() {
        let directory = tempfile::tempdir().unwrap();
        let work = directory.path().join("runs/0000000000000000/work");
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let (dead, alive) = (format!("{FREE}{}-0", gone.id()), format!("{FREE}{}-0", std::process::id()));
        for name in [&dead, &alive, "a.1"] {
            std::fs::create_dir_all(work.join(name)).unwrap();
        }
        Home::new(directory.path()).tidy(RunId([0; 8]));
        assert_eq!([&dead, &alive, "a.1"].map(|name| work.join(name).exists()), [false, true, true]);
    }

    #[test]
    fn unpacked_files_of_dead_processes_go_and_other_files_stay() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path());
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let dead = home.scratch().join(format!("import-{}", gone.id()));
        // The scratch directory of an attempt ends with a number that is not the id of a process.
        let [killed, engine] = [1, 2].map(|id| home.scratch().join(format!("onceflow-{id:032x}")));
        let attempts = [&killed, &engine].map(|path| PathBuf::from(format!("{}-{:x}", path.display(), gone.id())));
        for path in &attempts {
            std::fs::create_dir_all(path).unwrap();
        }
        let alive = home.scratch_of_process("fork");
        for path in [&dead, &killed, &engine, &alive] {
            std::fs::create_dir_all(path.join("inside")).unwrap();
        }
        let speaks = |path: &Path| format!("{}{ALIVE}", path.file_name().unwrap().to_string_lossy());
        std::fs::write(home.scratch().join(speaks(&killed)), "").unwrap();
        let lives = onceflow_store::alive::Alive::begin(&home.scratch(), &speaks(&engine)).unwrap();
        home.tidy_after_the_dead();
        assert_eq!([&dead, &killed, &engine, &alive].map(|path| path.exists()), [false, false, true, true]);
        assert_eq!(attempts.map(|path| path.exists()), [false, true]);
        drop(lives);
        home.tidy_after_the_dead();
        let left: Vec<_> = std::fs::read_dir(home.scratch()).unwrap().flatten().map(|entry| entry.path()).collect();
        assert_eq!(left, [alive]);
    }

    #[test]
    fn a_link_in_the_store_directory_is_not_followed_by_housekeeping() {
        let directory = tempfile::tempdir().unwrap();
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let names = [format!("{FREE}{}-0", gone.id()), format!("import-{}", gone.id()), String::from("work")];
        let canary = directory.path().join("canary");
        for name in &names {
            std::fs::create_dir_all(canary.join(name)).unwrap();
        }
        let home = Home::new(directory.path().join("store"));
        let run = RunId([7; 8]);
        std::fs::create_dir_all(home.run(run)).unwrap();
        for link in [home.run(run).join("work"), home.run(run).join("out"), home.scratch()] {
            std::os::unix::fs::symlink(&canary, link).unwrap();
        }
        home.tidy(run);
        home.tidy_after_the_dead();
        assert!(home.works(run).unwrap_err().to_string().contains("work is a link"));
        home.clear(run);
        assert!(!home.run(run).join("work").exists(), "the link itself goes with the run");
        std::fs::remove_dir(home.run(run)).unwrap();
        std::os::unix::fs::symlink(&canary, home.run(run)).unwrap();
        home.clear(run);
        home.tidy(run);
        assert!(names.iter().all(|name| canary.join(name).is_dir()));
    }

    #[test]
    fn an_address_becomes_a_name_of_its_own() {
        assert_eq!(safe("/align[3]/sort"), "align[3].sort");
        assert_eq!(safe("/refine@7/solve"), "refine@7.solve");
        let long = format!("/{}", "a".repeat(500));
        let odd = ["", "/", "/a.b", "/a b", "/a_b/..", "/../x", &long, &format!("{long}b"), "/é"];
        let names: std::collections::BTreeSet<_> = odd.iter().map(|address| safe(address)).collect();
        assert_eq!(names.len(), odd.len());
        for name in names {
            assert!(name.len() < 240 && !name.contains('/') && !name.starts_with('.'), "{name}");
        }
    }
}
