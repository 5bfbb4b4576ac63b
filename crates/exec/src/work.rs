//! The directory a step works in: fresh for each start, its inputs as ordinary files, and nothing else.
//!
//! The directory is held open from its creation, because a step may move it or put a link in its place. Outputs are
//! taken from, and files removed in, the directory that was created, never whatever has its name by then.

pub(crate) mod pool;
mod sources;
mod stage;

use crate::{
    codes,
    home::{self, Home},
    value::{FileValue, PortValue},
};
use onceflow_core::protocol::ids::RunId;
use onceflow_engine::{
    DAMAGE,
    task::{Data, Failure, Step},
};
use onceflow_store::tree::{Astray, Dir, Spot};
use pool::Pool;
use rustix::fs::FileType;
use sources::SourceInputs;
use stage::{Changed, Staged};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

/// The directory for temporary files inside a work directory, also for files of the executor's own.
pub(crate) const TEMPORARY: &str = ".tmp";

/// The directory for inputs inside a work directory.
pub(crate) const INPUTS: &str = "in";

/// A work directory.
pub(crate) struct WorkDir {
    /// The path where it was created.
    pub(crate) path: PathBuf,
    /// The directory itself, held open. It is locked while this start is at work, so that no other start removes it.
    pub(crate) dir: Dir,
    parent: Dir,
    name: String,
    /// The path without links.
    real: PathBuf,
    /// The store's directory, below which outputs wait for the engine.
    home: Home,
    run: RunId,
    /// The directory of files materialised for steps of this process.
    scratch: PathBuf,
    inputs: Vec<StagedInput>,
    /// Names in use in the directory of inputs.
    names: BTreeSet<String>,
    /// The user's own files, which are read at their own paths.
    sources: SourceInputs,
}

/// An input file as it was before the command ran.
struct StagedInput {
    name: String,
    staged: Staged,
}

impl WorkDir {
    /// Creates a work directory for a start, and removes those of earlier starts unless these are still at work.
    pub(crate) fn new(home: &Home, pool: &Pool, step: &Step) -> Result<Self, Failure> {
        let (run, address) = (step.run(), home::safe(&step.address()));
        let wrong = |error: io::Error| codes::work("the work directory could not be made", &error);
        let parent = home.works(run).map_err(wrong)?;
        remove_before(&parent, &address);
        let (name, dir) = make(pool, &parent, &address, step.attempt()).map_err(wrong)?;
        let path = dir.path().to_owned();
        let real = fs::canonicalize(&path).map_err(wrong)?;
        let (home, scratch) = (home.clone(), home.scratch());
        let (inputs, names, sources) = (vec![], BTreeSet::new(), SourceInputs::default());
        Ok(WorkDir { path, dir, parent, name, real, home, run, scratch, inputs, names, sources })
    }

    /// Stages the files of an input for the command, and changes their paths in the value to match. A file is
    /// `in/NAME`; if that name is taken, or the input is more than one file, `in/PORT/NAME`.
    pub(crate) fn place(&mut self, port: &str, value: &mut PortValue) -> Result<(), Failure> {
        if self.sources.stay(value) {
            return Ok(());
        }
        let inputs = Path::new(INPUTS);
        if let PortValue::File(file) = value
            && self.names.insert(file.base().to_owned())
        {
            let name = file.base().to_owned();
            return self.link(&inputs.join(name), file);
        }
        let mut apart = port.to_owned();
        let is_there = matches!(value, PortValue::Directory(_)) || !value.files().is_empty();
        while is_there && !self.names.insert(apart.clone()) {
            apart.push('-');
        }
        self.place_at(&inputs.join(apart), value)
    }

    fn place_at(&mut self, at: &Path, value: &mut PortValue) -> Result<(), Failure> {
        match value {
            PortValue::File(file) if self.sources.has(&file.path) => Ok(()),
            PortValue::File(file) => {
                let name = file.base().to_owned();
                self.link(&at.join(&name), file)
            }
            PortValue::Directory(directory) => {
                self.make(at)?;
                for file in &mut directory.files {
                    let name = file.name.clone();
                    self.link(&at.join(name), file)?;
                }
                directory.path = self.path.join(at);
                Ok(())
            }
            PortValue::List(elements) => self.place_list(at, elements),
            PortValue::Record(fields) => {
                fields.iter_mut().try_for_each(|(name, field)| self.place_at(&at.join(name), field))
            }
            _ => Ok(()),
        }
    }

    /// Stages the files of a list; files of the same name are told apart by their index.
    fn place_list(&mut self, at: &Path, elements: &mut [PortValue]) -> Result<(), Failure> {
        let mut used = BTreeSet::new();
        for (index, element) in elements.iter_mut().enumerate() {
            let is_free = matches!(element, PortValue::File(file) if used.insert(file.base().to_owned()));
            if is_free {
                self.place_at(at, element)?;
            } else if !element.files().is_empty() || matches!(element, PortValue::Directory(_)) {
                let mut number = index + 1;
                while !used.insert(number.to_string()) {
                    number += 1;
                }
                self.place_at(&at.join(number.to_string()), element)?;
            }
        }
        Ok(())
    }

    fn make(&self, at: &Path) -> Result<(), Failure> {
        let path = self.path.join(at);
        fs::create_dir_all(&path).map_err(|error| codes::work(format!("{} could not be made", path.display()), &error))
    }

    fn link(&mut self, at: &Path, file: &mut FileValue) -> Result<(), Failure> {
        let is_inside = at.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_inside || at.as_os_str().to_string_lossy().contains('\0') || file.base().is_empty() {
            let why = format!("a file cannot be called {:?} in a work directory", file.name);
            return Err(codes::failure(codes::INPUT_TYPE, why).finally());
        }
        let to = self.path.join(at);
        let is_of_this_attempt = file.path.starts_with(&self.scratch);
        let put = || stage::put(&file.path, &to, is_of_this_attempt);
        let staged = match put() {
            Err(error) if error.kind() == io::ErrorKind::NotFound && file.path.exists() => {
                self.make(at.parent().unwrap_or(Path::new("")))?;
                put()
            }
            other => other,
        };
        let staged = staged
            .map_err(|error| codes::work(format!("input `{}` could not be put in place", at.display()), &error))?;
        assert!(to.starts_with(&self.path) && to != self.path, "input {at:?} is put outside of the work directory");
        self.inputs.push(StagedInput { name: at.display().to_string(), staged });
        file.path = to;
        Ok(())
    }

    /// Notes the files of an input that are the user's own: steps read those at their own paths.
    pub(crate) fn note_sources(&mut self, input: &Data) {
        self.sources.note(input);
    }

    /// Checks that no input was written to, even if no other step reads it: a flow must behave the same wherever it
    /// runs.
    pub(crate) fn check_inputs(&self) -> Result<(), Failure> {
        self.sources.check_directories()?;
        for StagedInput { name, staged } in &self.inputs {
            match staged.changed() {
                Changed::No => {}
                Changed::ByThisStep => {
                    let failed = codes::failure(codes::INPUT_CHANGED, format!("the step changed its input `{name}`"));
                    return Err(codes::because(failed.finally(), "hint: copy it first, `cp`, and change the copy"));
                }
                Changed::BySomeStep => {
                    let why = format!("{DAMAGE}: input `{name}` was changed while this step and others read it");
                    let failed = Failure::new(why).finally();
                    return Err(codes::because(failed, "it is computed again, and the steps that read it run again"));
                }
            }
        }
        Ok(())
    }

    /// Moves the files of an output to where the engine takes them from; the rest of this directory is not needed.
    pub(crate) fn take(&self, value: &mut PortValue, taken: &mut MovedFiles) -> io::Result<()> {
        match value {
            PortValue::File(file) => self.take_file(file, taken),
            PortValue::Directory(directory) => {
                directory.files.iter_mut().try_for_each(|file| self.take_file(file, taken))
            }
            PortValue::List(elements) => elements.iter_mut().try_for_each(|element| self.take(element, taken)),
            PortValue::Record(fields) => fields.values_mut().try_for_each(|field| self.take(field, taken)),
            _ => Ok(()),
        }
    }

    fn take_file(&self, file: &mut FileValue, taken: &mut MovedFiles) -> io::Result<()> {
        let to = match taken.get(&file.path) {
            Some(to) => to.clone(),
            None => self.take_one(&file.path)?,
        };
        assert!(!to.starts_with(&self.path), "output {to:?} would go with the work directory before it is stored");
        let from = std::mem::replace(&mut file.path, to.clone());
        taken.insert(from, to);
        Ok(())
    }

    /// Moves a regular file with a single link, which is the step's alone; copies any other, which may be shared.
    fn take_one(&self, path: &Path) -> io::Result<PathBuf> {
        let below = path.strip_prefix(&self.path).map_err(|_| io::Error::other("it is not in the work directory"))?;
        let from = self.dir.beneath(below.parent().unwrap_or(Path::new("")))?;
        let name = below.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
        let mut file = from.open_file(name)?;
        let found = file.metadata()?;
        let outs = self.home.outs(self.run)?;
        let mut is_moved = false;
        let to = loop {
            let to = home::fresh(&self.name);
            let moved = match found.nlink() {
                1 => from.rename(name, &outs, &to),
                _ => Err(io::ErrorKind::CrossesDevices.into()),
            };
            match moved.map_err(|error| error.kind()) {
                Ok(()) => is_moved = true,
                Err(io::ErrorKind::AlreadyExists) => continue,
                // The file has several links, is on another mount, or is a mount itself: its content can still be
                // copied.
                Err(_) => {
                    let mut copy = outs.create_file(&to)?;
                    io::copy(&mut file, &mut copy)?;
                    copy.set_permissions(found.permissions())?;
                }
            }
            break to;
        };
        let is_it = || outs.open_file(&to)?.metadata().map(|there| (there.dev(), there.ino()));
        if is_moved && is_it()? != (found.dev(), found.ino()) {
            return Err(io::Error::other(format!("{} was replaced while it was taken", path.display())));
        }
        Ok(outs.path().join(to))
    }

    /// Resolves a path below it, unless a link leads out of it.
    pub(crate) fn resolve(&self, below: &Path) -> Result<Spot, Astray> {
        self.dir.resolve(below, &[&self.path, &self.real])
    }

    /// Fails if the step removed the directory. A directory that was only moved is still held open and usable.
    pub(crate) fn check_there(&self) -> Result<(), Failure> {
        if !self.dir.is_removed() {
            return Ok(());
        }
        let what = format!("the step removed its work directory, {}", self.path.display());
        let failed = codes::failure(codes::OUTPUT_REFUSED, what);
        let hint = "hint: outputs are taken from the directory the step was started in, also if a link is in its place; \
                    to work elsewhere, copy what is an output back";
        Err(codes::because(failed, hint).finally())
    }

    /// Creates a file of the executor's own in the directory of temporary files.
    pub(crate) fn create_temporary(&self, name: &str) -> io::Result<File> {
        self.dir.child(TEMPORARY)?.create_file(name)
    }

    /// Releases the directory: to the pool, unless a process may still be at work there, or by removal. Returns a
    /// message about what was left in place because it is not ours.
    pub(crate) fn done(self, pool: &Pool, may_be_used_again: bool) -> Option<String> {
        let WorkDir { dir, parent, name, .. } = self;
        match may_be_used_again {
            true => pool.give(&parent, &name, dir),
            false if dir.is_at(&parent, &name) => parent.remove(&name).err().map(|error| error.to_string()),
            false => pool::replaced(&parent, &name),
        }
    }
}

/// Files that were moved, by their old paths: one file may be an output twice.
pub(crate) type MovedFiles = BTreeMap<PathBuf, PathBuf>;

/// Starts of one attempt that may be at work at a time, over all processes.
const STARTS_MAX: usize = 1_000;

/// Creates a directory under a new name: another start of the same attempt, in any process, may still be at work.
fn make(pool: &Pool, parent: &Dir, address: &str, attempt: u32) -> io::Result<(String, Dir)> {
    let mut name = format!("{address}.{attempt}");
    for other in 2..STARTS_MAX {
        match pool.make(parent, &name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                name = format!("{address}.{attempt}-{other}");
            }
            made => return made.map(|dir| (name, dir)),
        }
    }
    Err(io::Error::other(format!("{STARTS_MAX} others of attempt {attempt} are there")))
}

/// Removes the directories of other starts of the same step that are over: these directories are not locked.
fn remove_before(parent: &Dir, address: &str) {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    for entry in parent.entries().unwrap_or_default() {
        let name = entry.name.to_string_lossy();
        let is_ours = name.rsplit_once('.').is_some_and(|(step, number)| step == address && is_number(number));
        let is_over = || match entry.kind {
            FileType::Directory => parent.child(&entry.name).is_ok_and(|dir| dir.try_lock().unwrap_or(false)),
            // Not a directory, so the entry was put in place of one.
            _ => true,
        };
        if is_ours
            && is_over()
            && let Err(error) = parent.remove(&entry.name)
        {
            home::log_left(&error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_has_a_work_directory_of_its_own_in_whatever_process() {
        let directory = tempfile::tempdir().unwrap();
        let parent = Dir::open(directory.path()).unwrap();
        // Two pools stand for two processes: they share no state.
        let pools = [Pool::default(), Pool::default()];
        let start = |pool: &Pool, attempt| {
            remove_before(&parent, "a.b");
            make(pool, &parent, "a.b", attempt).unwrap()
        };
        let (one, two, three) = (start(&pools[0], 1), start(&pools[1], 1), start(&pools[0], 2));
        assert_eq!([&one.0, &two.0, &three.0], ["a.b.1", "a.b.1-2", "a.b.2"]);
        assert!(one.1.is_at(&parent, "a.b.1") && two.1.is_at(&parent, "a.b.1-2") && three.1.is_at(&parent, "a.b.2"));
        // One start is over and left its files; the directory of another step is not touched.
        let other = make(&pools[0], &parent, "a", 1).unwrap();
        drop((one, other));
        // A process that another test is starting inherits our open files for a moment, and with them the lock.
        let gone = |name: &str| {
            while parent.stat(name).is_ok() {
                remove_before(&parent, "a.b");
                std::thread::yield_now();
            }
        };
        gone("a.b.1");
        let four = start(&pools[1], 1);
        assert_eq!(four.0, "a.b.1", "the directory of the one that is over went");
        let there = |name: &str| parent.stat(name).is_ok();
        assert_eq!(["a.b.1", "a.b.1-2", "a.b.2", "a.1"].map(there), [true; 4]);
        drop((two, three));
        ["a.b.1-2", "a.b.2"].into_iter().for_each(gone);
        assert_eq!(["a.b.1", "a.1"].map(there), [true; 2]);
    }
}
