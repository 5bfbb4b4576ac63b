//! Puts the outputs of a run where people look for them. What is there already and equal is left alone; everything else
//! is made beside its place and moved there at once, so that a reader sees the old or the new, never half of it.
//! Nothing outside the directory is touched.

mod lay;

use crate::{codes, digests::Digests, exit::Exit, fault::Fault};
pub(crate) use lay::lay;
use lay::{Item, Laid};
use onceflow_exec::value::Value;
use serde_json::{Map, Value as Json};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// What was done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// One object: name → path, as given, or value.
    pub(crate) outputs: Map<String, Json>,
    /// Files that were written.
    pub(crate) written: usize,
    /// Files that were there already.
    pub(crate) unchanged: usize,
}

/// Writes outputs into a directory, which is made if there is any file.
///
/// # Errors
/// If something cannot be written; what was written before is whole.
pub(crate) fn write(out: &Path, outputs: &[(String, Value)], digests: &mut Digests) -> Result<Written, Fault> {
    let Laid { items, json } = lay(out, outputs).map_err(|why| Fault::new(Exit::No, codes::RESULTS, why))?;
    let mut done = Written { outputs: json, ..Written::default() };
    for item in &items {
        let (at, put) = match item {
            Item::File { at, from } => (at, file(&out.join(at), from, digests)),
            Item::Directory { at, files } => (at, directory(&out.join(at), files, digests)),
        };
        let (written, unchanged) = put.map_err(Fault::io(codes::RESULTS, "write", &out.join(at)))?;
        done.written += written;
        done.unchanged += unchanged;
    }
    Ok(done)
}

/// What is beside a place while it is made.
fn beside(at: &Path, what: &str) -> PathBuf {
    let name = at.file_name().unwrap_or_default().to_string_lossy();
    at.with_file_name(format!(".{name}.onceflow-{what}-{}", std::process::id()))
}

/// Whether there is a file with this content.
fn is_same(at: &Path, from: &Path, digests: &mut Digests) -> bool {
    let (Ok(there), Ok(wanted)) = (fs::symlink_metadata(at), fs::metadata(from)) else { return false };
    there.is_file()
        && there.len() == wanted.len()
        && matches!((digests.of(at), digests.of(from)), (Ok(there), Ok(wanted)) if there == wanted)
}

fn file(at: &Path, from: &Path, digests: &mut Digests) -> io::Result<(usize, usize)> {
    if is_same(at, from, digests) {
        return Ok((0, 1));
    }
    if let Some(above) = at.parent() {
        fs::create_dir_all(above)?;
    }
    let new = beside(at, "new");
    let put = copy(from, &new).and_then(|()| replace(&new, at));
    put.inspect_err(|_| remove(&new))?;
    Ok((1, 0))
}

/// A file of its own; where the file system can, no bytes are copied.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    remove(to);
    let mut from = File::open(from)?;
    let executable = std::os::unix::fs::PermissionsExt::mode(&from.metadata()?.permissions()) & 0o111 != 0;
    let mut options = File::options();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, if executable { 0o777 } else { 0o666 });
    let mut to = options.write(true).create_new(true).open(to)?;
    io::copy(&mut from, &mut to).map(drop)
}

fn directory(at: &Path, files: &BTreeMap<PathBuf, PathBuf>, digests: &mut Digests) -> io::Result<(usize, usize)> {
    let same: BTreeMap<_, _> =
        files.iter().map(|(name, from)| (name, is_same(&at.join(name), from, digests))).collect();
    if same.values().all(|same| *same) && at.is_dir() && count(at)? == files.len() {
        return Ok((0, files.len()));
    }
    let new = beside(at, "new");
    remove(&new);
    let fill = || {
        fs::create_dir_all(&new)?;
        for (name, from) in files {
            let to = new.join(name);
            fs::create_dir_all(to.parent().expect("a file is in a directory"))?;
            // What stays the same stays the same file.
            if !(same[name] && fs::hard_link(at.join(name), &to).is_ok()) {
                copy(from, &to)?;
            }
        }
        replace(&new, at)
    };
    fill().inspect_err(|_| remove(&new))?;
    let unchanged = same.values().filter(|same| **same).count();
    Ok((files.len() - unchanged, unchanged))
}

/// Files below a directory.
fn count(directory: &Path) -> io::Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        files += if entry.file_type()?.is_dir() { count(&entry.path())? } else { 1 };
    }
    Ok(files)
}

/// Moves what was made to its place; what was there goes.
fn replace(new: &Path, at: &Path) -> io::Result<()> {
    let is_there = fs::symlink_metadata(at).ok();
    let plain = |metadata: &fs::Metadata| !metadata.is_dir() && new.is_file();
    match is_there {
        None => return fs::rename(new, at),
        Some(metadata) if plain(&metadata) => return fs::rename(new, at),
        Some(_) => {}
    }
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    if renameat_with(CWD, new, CWD, at, RenameFlags::EXCHANGE).is_err() {
        // This file system cannot exchange: for a moment there is nothing.
        let old = beside(at, "old");
        remove(&old);
        fs::rename(at, &old)?;
        fs::rename(new, at)?;
        remove(&old);
        return Ok(());
    }
    remove(new);
    Ok(())
}

/// What is not there any more afterwards; what cannot be removed is in nobody's way.
fn remove(path: &Path) {
    let _gone = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    };
}

#[cfg(test)]
mod tests;
