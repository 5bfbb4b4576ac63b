//! Where things are on the disk: the work directories and logs of runs, below the store's directory. All of it is talk,
//! not truth; it may be deleted at any time.

use onceflow_core::protocol::ids::RunId;
use onceflow_engine::ALIVE;
use onceflow_store::alive;
use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};
use std::path::{Path, PathBuf};

/// The store's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its path.
    pub root: PathBuf,
    /// What sets the work directories of this process apart, if others may work on the same steps: one that was slow may
    /// still be at work when another begins anew.
    pub own: Option<String>,
}

impl Home {
    /// The directory at this path. It should be absolute: commands run elsewhere.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Home { root: root.into(), own: None }
    }

    /// The same, for one of several processes that work on the same runs.
    pub fn of_process(root: impl Into<PathBuf>, own: impl Into<String>) -> Self {
        Home { root: root.into(), own: Some(own.into()) }
    }

    /// Everything of a run.
    pub fn run(&self, run: RunId) -> PathBuf {
        let hex: String = run.0.iter().map(|byte| format!("{byte:02x}")).collect();
        self.root.join("runs").join(hex)
    }

    /// Where files are that are put there for steps, as the engine is told.
    pub fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    /// The work directory of an attempt at a step.
    pub fn work(&self, run: RunId, address: &str, attempt: u32) -> PathBuf {
        self.apart(self.run(run).join("work")).join(format!("{}.{attempt}", safe(address)))
    }

    /// Where outputs are until the engine has taken them.
    pub(crate) fn out(&self, run: RunId) -> PathBuf {
        self.apart(self.run(run).join("out"))
    }

    fn apart(&self, directory: PathBuf) -> PathBuf {
        match &self.own {
            Some(own) => directory.join(own),
            None => directory,
        }
    }

    /// The log of a step's last attempt.
    pub fn log(&self, run: RunId, address: &str) -> PathBuf {
        self.run(run).join("logs").join(format!("{}.log", safe(address)))
    }
}

/// How the names of work directories begin that wait to be used again.
pub(crate) const FREE: &str = ".free-";

impl Home {
    /// Removes work directories that another process kept to use again, and has left: for a run that only this process
    /// works on.
    pub fn tidy(&self, run: RunId) {
        let Ok(entries) = std::fs::read_dir(self.run(run).join("work")) else { return };
        let ours = format!("{FREE}{}-", std::process::id());
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(FREE) && !name.starts_with(&ours) {
                remove(&entry.path(), crate::work::TEMPORARY);
            }
        }
    }
}

impl Home {
    /// Removes what processes that are gone have left of a run: work directories that were kept to be used again. For runs
    /// that a process is known to have worked on and to have ended; to look at every run would take longer with each.
    pub fn tidy_run_after_the_dead(&self, run: RunId) {
        for entry in std::fs::read_dir(self.run(run).join("work")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let process = name.strip_prefix(FREE).and_then(|rest| rest.split('-').next()?.parse().ok());
            if process.is_some_and(is_dead) {
                remove(&entry.path(), crate::work::TEMPORARY);
            }
        }
    }

    /// Removes scratch directories of processes that are gone: small files of engines, and what was unpacked.
    pub fn tidy_after_the_dead(&self) {
        for entry in std::fs::read_dir(self.scratch()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            if name.ends_with(ALIVE) || name.starts_with(alive::NEW) {
                // What it speaks for goes, and then has nobody who speaks for it.
                let _gone_if_its_process_is = alive::has_ended(&path);
                continue;
            }
            let is_left = match engine_of(&name) {
                Some(engine) => alive::has_ended(&self.scratch().join(format!("{engine}{ALIVE}"))).unwrap_or(false),
                None => name.rsplit_once('-').and_then(|(_, pid)| pid.parse().ok()).is_some_and(is_dead),
            };
            if is_left {
                remove(&path, crate::work::TEMPORARY);
            }
        }
    }

    /// A directory for what this process unpacks. Whoever is killed leaves it to [`Home::tidy_after_the_dead`].
    pub fn scratch_of_process(&self, what: &str) -> PathBuf {
        self.scratch().join(format!("{what}-{}", std::process::id()))
    }
}

/// The engine whose scratch directory this is, or that of an attempt of its: `onceflow-<incarnation>`, perhaps with more.
fn engine_of(name: &str) -> Option<&str> {
    const BYTES: usize = "onceflow-".len() + 32;
    let (engine, rest) = name.split_at_checked(BYTES)?;
    let is_one = engine.starts_with("onceflow-") && (rest.is_empty() || rest.starts_with('-'));
    is_one.then_some(engine)
}

fn is_dead(process: i32) -> bool {
    Pid::from_raw(process).is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH))
}

impl Home {
    /// Removes all work directories of a run that nobody works on any more, and outputs that were not taken from there.
    pub fn clear(&self, run: RunId) {
        for name in ["work", "out"] {
            remove(&self.run(run).join(name), crate::work::TEMPORARY);
        }
    }
}

/// An address as the name of a file: `/align[3]/sort` is `align[3].sort`. Two addresses never share a name.
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
    format!("{name}~{}", &blake3::hash(address.as_bytes()).to_hex()[..16])
}

/// File systems allow 255 bytes; room is left for what is put behind.
const NAME_BYTES_MAX: usize = 200;

/// Removes a directory and all in it; most are empty but for one empty directory. It is no matter if it is gone.
pub(crate) fn remove(directory: &Path, inner: &str) {
    let _gone = std::fs::remove_dir(directory.join(inner));
    let removed = match std::fs::remove_dir(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => remove_all(directory),
        other => other,
    };
    if let Err(error) = removed
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%error, ?directory, "a work directory could not be removed");
    }
}

/// A command may have taken away its own right to write; that is given back first.
fn remove_all(directory: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            permit(directory, 0);
            std::fs::remove_dir_all(directory)
        }
        other => other,
    }
}

fn permit(directory: &Path, depth: usize) {
    use std::os::unix::fs::PermissionsExt;
    let _tried = std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700));
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if depth < 64 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            permit(&entry.path(), depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_kept_to_use_again_goes_and_what_the_living_did_stays() {
        let directory = tempfile::tempdir().unwrap();
        let work = directory.path().join("runs/0000000000000000/work");
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let (dead, alive) = (format!("{FREE}{}-0", gone.id()), format!("{FREE}{}-0", std::process::id()));
        for name in [&dead, &alive, "a.1"] {
            std::fs::create_dir_all(work.join(name)).unwrap();
        }
        Home::new(directory.path()).tidy_run_after_the_dead(RunId([0; 8]));
        assert_eq!([&dead, &alive, "a.1"].map(|name| work.join(name).exists()), [false, true, true]);
    }

    #[test]
    fn what_the_dead_unpacked_goes_and_what_others_have_there_stays() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path());
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let dead = home.scratch().join(format!("import-{}", gone.id()));
        // That of an attempt ends with a number, which is none of a process.
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
