//! Values as flow files see them: one type for values of ports, of JSON and of expressions.
//!
//! | file | what it owns |
//! |---|---|
//! | `value/data.rs` | the bytes the engine stores, the same as the typed crate writes |
//! | `value/json.rs` | JSON in and out |
//! | `value/cel.rs` | the values of expressions |
//! | `value/conform.rs` | checking that a value is of a type, and where it is not |

mod cel;
mod conform;
mod data;
mod json;

pub use json::AsJson;
pub(crate) use json::relative;

use onceflow_core::model::Type;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
};

/// A value of any type a port may have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PortValue {
    /// Nothing: unit, an option that is none, JSON's null.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes, uninterpreted.
    Bytes(Vec<u8>),
    /// Elements, in order.
    List(Vec<PortValue>),
    /// Named fields.
    Record(BTreeMap<String, PortValue>),
    /// A file. Boxed, as a directory is, so that an element of a list of millions is not as large as either.
    File(Box<FileValue>),
    /// A directory.
    Directory(Box<DirectoryValue>),
}

const _: () = assert!(size_of::<PortValue>() <= 32, "an element of a list of millions is no larger than a text");

/// A file: its name, and the path of its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileValue {
    /// Its name; inside a directory, its relative path.
    pub name: String,
    /// The path of its content.
    pub path: PathBuf,
}

/// A directory: files by their relative paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryValue {
    /// Its path. Empty for a directory that is not laid out on the disk.
    pub path: PathBuf,
    /// Its files, named by their paths relative to it, in the order of these paths.
    pub files: Vec<FileValue>,
}

/// A value that is not of the expected type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The place inside the value, `samples[3].r1`; empty for the value itself.
    pub place: String,
    /// The expected type.
    pub wanted: String,
    /// A description of the value found.
    pub found: String,
}

impl std::error::Error for Mismatch {}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "`{}`: ", self.place.trim_start_matches('.'))?;
        }
        write!(f, "{} wanted, but {} found", self.wanted, self.found)
    }
}

impl Mismatch {
    pub(crate) fn new(wanted: impl fmt::Display, found: impl Into<String>) -> Self {
        Mismatch { place: String::new(), wanted: wanted.to_string(), found: found.into() }
    }

    /// Prefixes the place with that of the containing value: `.field` or `[3]`.
    #[must_use]
    pub fn inside(mut self, outer: &str) -> Self {
        self.place.insert_str(0, outer);
        self
    }
}

impl FileValue {
    /// The file at a path, named by the last part of that path.
    ///
    /// # Errors
    /// If the path does not end in a name, or in one that is not UTF-8.
    pub fn from_path(path: impl Into<PathBuf>) -> Result<Self, Mismatch> {
        let path = path.into();
        match path.file_name().map(|name| name.to_str()) {
            Some(Some(name)) => Ok(FileValue { name: name.to_owned(), path }),
            Some(None) => Err(Mismatch::new(Type::File, format!("the name {:?}, which is not UTF-8,", path.display()))),
            None => Err(Mismatch::new(Type::File, format!("a path without a name, `{}`,", path.display()))),
        }
    }

    /// The last part of its name.
    pub fn base(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }

    /// Its name without the last `.` and what follows; a name that begins with its only `.` is kept.
    pub fn stem(&self) -> &str {
        self.split().0
    }

    /// The part after the last `.` of its name.
    pub fn ext(&self) -> &str {
        self.split().1
    }

    fn split(&self) -> (&str, &str) {
        match self.base().rsplit_once('.') {
            Some((stem, ext)) if !stem.is_empty() => (stem, ext),
            _ => (self.base(), ""),
        }
    }
}

impl DirectoryValue {
    /// Reads all files below a path. Links are followed; empty directories are ignored.
    ///
    /// # Errors
    /// If a file or directory cannot be read, or has a name that is not UTF-8.
    pub fn read(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let mut files = Vec::new();
        collect(&path, "", &mut files)?;
        files.sort_by(|a: &FileValue, b| a.name.cmp(&b.name));
        Ok(DirectoryValue { path, files })
    }

    /// The last part of its path.
    pub fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }
}

fn collect(directory: &Path, prefix: &str, files: &mut Vec<FileValue>) -> io::Result<()> {
    // A link to a directory above would be followed forever.
    if prefix.matches('/').count() > DIRECTORY_DEPTH_MAX {
        let why = format!("{} is deeper than {DIRECTORY_DEPTH_MAX} directories", directory.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|name| {
            let why = format!("{} holds the name {name:?}, which is not UTF-8", directory.display());
            io::Error::new(io::ErrorKind::InvalidData, why)
        })?;
        let (path, name) = (entry.path(), format!("{prefix}{name}"));
        let kind = entry.file_type()?;
        let is_dir = if kind.is_symlink() { std::fs::metadata(&path)?.is_dir() } else { kind.is_dir() };
        match is_dir {
            true => collect(&path, &format!("{name}/"), files)?,
            false => files.push(FileValue { name, path }),
        }
    }
    Ok(())
}

/// The depth of nested directories.
const DIRECTORY_DEPTH_MAX: usize = 64;

impl From<FileValue> for PortValue {
    fn from(file: FileValue) -> Self {
        PortValue::File(Box::new(file))
    }
}

impl From<DirectoryValue> for PortValue {
    fn from(directory: DirectoryValue) -> Self {
        PortValue::Directory(Box::new(directory))
    }
}

impl PortValue {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        PortValue::Text(text.into())
    }

    /// A short description for messages: the kind, and for small values the value itself.
    pub fn describe(&self) -> String {
        let short = |text: &str| match text.char_indices().nth(40) {
            Some((end, _)) => format!("{:?}…", &text[..end]),
            None => format!("{text:?}"),
        };
        match self {
            PortValue::Null => String::from("nothing (null)"),
            PortValue::Bool(value) => format!("{value} (bool)"),
            PortValue::Int(value) => format!("{value} (int)"),
            PortValue::Float(value) => format!("{value:?} (float)"),
            PortValue::Text(text) => format!("{} (text)", short(text)),
            PortValue::Bytes(bytes) => format!("{} bytes", bytes.len()),
            PortValue::List(elements) => format!("a list of {}", elements.len()),
            PortValue::Record(fields) => {
                let names: Vec<_> = fields.keys().take(8).map(String::as_str).collect();
                let more = if fields.len() > 8 { ", …" } else { "" };
                format!("a record {{ {}{more} }}", names.join(", "))
            }
            PortValue::File(file) => format!("file {}", short(&file.name)),
            PortValue::Directory(directory) => format!("a directory of {} files", directory.files.len()),
        }
    }

    /// Its kind, in one word.
    pub fn kind(&self) -> &'static str {
        match self {
            PortValue::Null => "null",
            PortValue::Bool(_) => "bool",
            PortValue::Int(_) => "int",
            PortValue::Float(_) => "float",
            PortValue::Text(_) => "text",
            PortValue::Bytes(_) => "bytes",
            PortValue::List(_) => "list",
            PortValue::Record(_) => "record",
            PortValue::File(_) => "file",
            PortValue::Directory(_) => "dir",
        }
    }

    /// Returns every file in it, including the files of directories.
    pub fn files(&self) -> Vec<&FileValue> {
        let mut found = Vec::new();
        self.collect_files(&mut found);
        found
    }

    fn collect_files<'a>(&'a self, found: &mut Vec<&'a FileValue>) {
        match self {
            PortValue::File(file) => found.push(file),
            PortValue::Directory(directory) => found.extend(&directory.files),
            PortValue::List(elements) => elements.iter().for_each(|element| element.collect_files(found)),
            PortValue::Record(fields) => fields.values().for_each(|field| field.collect_files(found)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
