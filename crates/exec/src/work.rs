//! The directory a step works in: fresh for each attempt, its inputs as ordinary files, and nothing else.

pub(crate) mod pool;
mod sources;
mod stage;

use crate::{
    codes,
    home::{self, Home},
    value::{FileValue, Value},
};
use onceflow_engine::{
    DAMAGE,
    task::{Data, Failure, Step},
};
use pool::Pool;
use sources::Sources;
use stage::{Changed, Staged};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

/// The directory for temporary files, inside of a work directory. Also for what we put there ourselves.
pub(crate) const TEMPORARY: &str = ".tmp";

/// Where inputs are, inside of a work directory.
pub(crate) const INPUTS: &str = "in";

/// A work directory.
pub(crate) struct Work {
    pub(crate) path: PathBuf,
    /// Where outputs wait to be taken, and how the names of this attempt's begin.
    pub(crate) taken: PathBuf,
    /// Where files are that were put there for steps of this process.
    scratch: PathBuf,
    inputs: Vec<Input>,
    /// Names that are taken where inputs are.
    names: BTreeSet<String>,
    /// Files of the user's: they are where they are.
    sources: Sources,
}

/// A file that a command is given, as it was before.
struct Input {
    name: String,
    staged: Staged,
}

impl Work {
    /// A fresh one for an attempt. Those of attempts before go.
    pub(crate) fn new(home: &Home, pool: &Pool, step: &Step) -> Result<Self, Failure> {
        let path = home.work(step.run(), &step.address(), step.attempt());
        let taken = home.out(step.run()).join(path.file_name().expect("it was joined from a name"));
        let wrong = |error: io::Error| codes::work(format!("{} could not be made", path.display()), &error);
        if let Ok(entries) = fs::read_dir(path.parent().expect("it was joined from a name")) {
            remove_before(entries, &path);
        }
        pool.make(&path).map_err(wrong)?;
        Ok(Work {
            path,
            taken,
            scratch: home.scratch(),
            inputs: vec![],
            names: BTreeSet::new(),
            sources: Sources::default(),
        })
    }

    /// Puts the files of an input where the command finds them; their paths are those from now on. A file is `in/NAME`,
    /// or, if another has that name, `in/PORT/NAME`, as all that is more than one file.
    pub(crate) fn place(&mut self, port: &str, value: &mut Value) -> Result<(), Failure> {
        if self.sources.stay(value) {
            return Ok(());
        }
        let inputs = Path::new(INPUTS);
        if let Value::File(file) = value
            && self.names.insert(file.base().to_owned())
        {
            let name = file.base().to_owned();
            return self.link(&inputs.join(name), file);
        }
        let mut apart = port.to_owned();
        let is_there = matches!(value, Value::Directory(_)) || !value.files().is_empty();
        while is_there && !self.names.insert(apart.clone()) {
            apart.push('-');
        }
        self.place_at(&inputs.join(apart), value)
    }

    fn place_at(&mut self, at: &Path, value: &mut Value) -> Result<(), Failure> {
        match value {
            Value::File(file) if self.sources.has(&file.path) => Ok(()),
            Value::File(file) => {
                let name = file.base().to_owned();
                self.link(&at.join(&name), file)
            }
            Value::Directory(directory) => {
                self.make(at)?;
                for file in &mut directory.files {
                    let name = file.name.clone();
                    self.link(&at.join(name), file)?;
                }
                directory.path = self.path.join(at);
                Ok(())
            }
            Value::List(elements) => self.place_list(at, elements),
            Value::Record(fields) => {
                fields.iter_mut().try_for_each(|(name, field)| self.place_at(&at.join(name), field))
            }
            _ => Ok(()),
        }
    }

    /// Files of one name in a list get apart by their number.
    fn place_list(&mut self, at: &Path, elements: &mut [Value]) -> Result<(), Failure> {
        let mut used = BTreeSet::new();
        for (index, element) in elements.iter_mut().enumerate() {
            let is_free = matches!(element, Value::File(file) if used.insert(file.base().to_owned()));
            if is_free {
                self.place_at(at, element)?;
            } else if !element.files().is_empty() || matches!(element, Value::Directory(_)) {
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
        self.inputs.push(Input { name: at.display().to_string(), staged });
        file.path = to;
        Ok(())
    }

    /// Notes which files of an input are the user's own: steps read those at their own paths.
    pub(crate) fn note_sources(&mut self, input: &Data) {
        self.sources.note(input);
    }

    /// No input may have been written to, whoever else reads it: a flow does the same wherever it runs.
    pub(crate) fn check_inputs(&self) -> Result<(), Failure> {
        self.sources.check_directories()?;
        for Input { name, staged } in &self.inputs {
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

    /// Moves the files of an output to where the engine takes them from: nothing else of this directory is needed.
    pub(crate) fn take(&self, value: &mut Value, taken: &mut Taken) -> io::Result<()> {
        match value {
            Value::File(file) => self.take_file(file, taken),
            Value::Directory(directory) => directory.files.iter_mut().try_for_each(|file| self.take_file(file, taken)),
            Value::List(elements) => elements.iter_mut().try_for_each(|element| self.take(element, taken)),
            Value::Record(fields) => fields.values_mut().try_for_each(|field| self.take(field, taken)),
            _ => Ok(()),
        }
    }

    fn take_file(&self, file: &mut FileValue, taken: &mut Taken) -> io::Result<()> {
        if let Some(to) = taken.get(&file.path) {
            file.path = to.clone();
            return Ok(());
        }
        let mut to = self.taken.as_os_str().to_owned();
        to.push(format!(".{}", taken.len() + 1));
        let to = PathBuf::from(to);
        let mut done = take_one(&file.path, &to);
        if taken.is_empty() && done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            fs::create_dir_all(to.parent().unwrap_or(Path::new("")))?;
            done = take_one(&file.path, &to);
        }
        done?;
        let from = std::mem::replace(&mut file.path, to.clone());
        taken.insert(from, to);
        Ok(())
    }

    /// It is not needed any more; and may be used again, unless somebody may still be at work there.
    pub(crate) fn done(&self, pool: &Pool, may_be_used_again: bool) {
        match may_be_used_again {
            true => pool.give(&self.path),
            false => home::remove(&self.path, TEMPORARY),
        }
    }
}

/// Files that were moved, from where and to where: a file may be an output twice.
pub(crate) type Taken = BTreeMap<PathBuf, PathBuf>;

/// A file that has other names may be somebody else's.
fn take_one(from: &Path, to: &Path) -> io::Result<()> {
    // An attempt that was killed here may have left one, which may be the store's by now.
    match fs::remove_file(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match fs::symlink_metadata(from)?.nlink() {
        1 => fs::rename(from, to),
        _ => fs::copy(from, to).map(|_| ()),
    }
}

/// Removes the directories of other attempts at the same step.
fn remove_before(entries: fs::ReadDir, path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some((step, _)) = name.rsplit_once('.') else { return };
    for entry in entries.flatten() {
        let other = entry.file_name().to_string_lossy().into_owned();
        let same = other.rsplit_once('.').is_some_and(|(other, number)| {
            other == step && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        });
        if same {
            home::remove(&entry.path(), TEMPORARY);
        }
    }
}
