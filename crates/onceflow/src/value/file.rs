//! Files and directories: named content that is too large, or too foreign, to be a value in memory.

use super::{Error, Value};
use onceflow_core::model::Type;
use onceflow_engine::task::{Data, FileData};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A file that a task is given or gives.
///
/// One that a task is given is read-only, and is there until the task ends. One that a task gives is taken from where
/// it is: it is not at that path any more afterwards, so give only what is yours.
///
/// ```
/// use onceflow::prelude::*;
///
/// #[task]
/// fn lines(file: File) -> Result<u64, std::io::Error> {
///     Ok(file.text()?.lines().count() as u64)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    name: String,
    path: PathBuf,
    by_reference: bool,
}

impl File {
    /// The file at a path, under the last part of that path. Its content is not read yet.
    ///
    /// # Errors
    /// If there is none, if it is not a regular file, and if the path has no last part, or one that is not UTF-8.
    pub fn from_path(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let name = name_of(&path)?;
        let found = fs::metadata(&path);
        let found = found.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        if !found.is_file() {
            return Err(invalid(format!("{} is not a regular file", path.display())));
        }
        Ok(File { name, path, by_reference: false })
    }

    /// The same file as an input of a run that is not copied into the store: tasks read it where it is. It must stay
    /// there, on every machine whose worker may take a step of the run, as long as the run is not done. If it changes
    /// while a task reads it, nothing of what that task gave is committed, and the run fails with `OF0330`: start it
    /// again with what the file holds now. What a task gives is always taken.
    #[must_use]
    pub fn by_reference(self) -> Self {
        File { by_reference: true, ..self }
    }

    /// The same content under another name.
    pub fn named(self, name: impl Into<String>) -> Self {
        File { name: name.into(), ..self }
    }

    /// Its name; inside a directory, its relative path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path of its content.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All of its content. Blocks.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        fs::read(&self.path)
    }

    /// All of its content, which must be UTF-8. Blocks.
    pub fn text(&self) -> io::Result<String> {
        fs::read_to_string(&self.path)
    }
}

impl Value for File {
    fn ty() -> Type {
        Type::File
    }

    fn encode(self) -> Result<Data, Error> {
        Ok(FileData { by_reference: self.by_reference, ..FileData::new(self.name, self.path) }.into())
    }

    fn decode(data: Data) -> Result<Self, Error> {
        match data {
            Data::File(file) => {
                let FileData { name, path, by_reference, .. } = *file;
                Ok(File { name, path, by_reference })
            }
            other => Err(Error::kind::<Self>(&other)),
        }
    }
}

/// A directory: files by their relative paths, in the order of those paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    files: Vec<File>,
}

impl Directory {
    /// All files below a path, named by their paths relative to it (with `/` between the parts). Empty directories are
    /// not seen. Blocks.
    pub fn from_path(root: impl AsRef<Path>) -> io::Result<Self> {
        let mut files = Vec::new();
        collect(root.as_ref(), "", &mut files)?;
        Ok(files.into_iter().collect())
    }

    /// Its files.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// The file at a relative path.
    pub fn get(&self, name: &str) -> Option<&File> {
        let at = self.files.binary_search_by(|file| file.name.as_str().cmp(name)).ok()?;
        self.files.get(at)
    }
}

/// Of two files with one name the first stays.
impl FromIterator<File> for Directory {
    fn from_iter<I: IntoIterator<Item = File>>(files: I) -> Self {
        let mut files: Vec<_> = files.into_iter().collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        files.dedup_by(|later, first| later.name == first.name);
        Directory { files }
    }
}

impl Value for Directory {
    fn ty() -> Type {
        Type::Directory
    }

    fn encode(self) -> Result<Data, Error> {
        self.files.encode()
    }

    fn decode(data: Data) -> Result<Self, Error> {
        Vec::<File>::decode(data).map(|files| files.into_iter().collect())
    }
}

fn collect(directory: &Path, prefix: &str, files: &mut Vec<File>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = format!("{prefix}{}", name_of(&path)?);
        if path.is_dir() {
            collect(&path, &format!("{name}/"), files)?;
        } else {
            files.push(File::from_path(path)?.named(name));
        }
    }
    Ok(())
}

/// The last part of a path.
fn name_of(path: &Path) -> io::Result<String> {
    let name = path.file_name().and_then(|name| name.to_str()).map(String::from);
    name.ok_or_else(|| invalid(format!("{} does not end in a name", path.display())))
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
