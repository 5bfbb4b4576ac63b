//! Puts the outputs of a run where people look for them. What is there already and equal is left alone; everything else
//! is made beside its place and moved there at once, so that a reader sees the old or the new, never half of it.
//! Nothing outside the directory is touched.

mod lay;

use crate::{codes, digests::Digests, exit::Exit, fault::Fault};
use lay::{Laid, ResultItem, lay};
use onceflow_core::Digest;
use onceflow_exec::value::PortValue;
use onceflow_store::tree::{self, Dir};
use rustix::process::Pid;
use serde_json::{Map, Value as Json};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// What was done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenResults {
    /// One object: name → path, as given, or value.
    pub(crate) outputs: Map<String, Json>,
    /// Files that were written.
    pub(crate) written: usize,
    /// Files that were there already.
    pub(crate) unchanged: usize,
}

/// Outputs that can be looked at, and had.
pub(crate) trait ResultSource {
    /// The outputs. Their files are not there; what they hold is: see [`promise`].
    fn outputs(&self) -> &[(String, PortValue)];

    /// An output with its files, put into a directory. They are ours to move.
    async fn fetch(&self, output: &str, into: &Path) -> Result<PortValue, Fault>;

    /// All files are at their places. Answers those that are the user's own from now on, though they were not.
    async fn placed(&self, files: Vec<(Digest, PathBuf)>) -> Result<Vec<PathBuf>, Fault>;
}

/// The path of a file that is not there yet: what it will hold.
pub(crate) fn promise(digest: Digest, len: u64) -> PathBuf {
    PathBuf::from(format!("{digest}:{len}"))
}

fn promised(path: &Path) -> Option<(Digest, u64)> {
    let (digest, len) = path.to_str()?.split_once(':')?;
    Some((Digest::from_hex(digest)?, len.parse().ok()?))
}

/// Writes outputs into a directory, which is made if there is any file.
///
/// # Errors
/// If something cannot be written; what was written before is whole.
pub(crate) async fn write(
    out: &Path,
    source: &impl ResultSource,
    digests: &mut Digests,
) -> Result<WrittenResults, Fault> {
    let bad = |why| Fault::new(Exit::No, codes::RESULTS, why);
    let mut outputs = source.outputs().to_vec();
    let Laid { items, json } = lay(out, &outputs).map_err(bad)?;
    let mut done = WrittenResults { outputs: json, ..WrittenResults::default() };
    let stale: Vec<_> = items.iter().map(|item| !is_whole(out, item, digests)).collect();
    done.unchanged = items.iter().zip(&stale).filter(|(_, stale)| !**stale).map(|(item, _)| item.files()).sum();
    let places = places(out, &items);
    if !stale.contains(&true) {
        return placed(source, places, done).await;
    }
    let fetched = Fetched::in_directory(out)?;
    for (item, _) in items.iter().zip(&stale).filter(|(_, stale)| **stale) {
        let output = outputs.iter_mut().find(|(name, _)| name == item.output()).expect("items are of outputs");
        output.1 = source.fetch(&output.0, &fetched.0.join(&output.0)).await?;
    }
    let had = lay(out, &outputs).map_err(bad)?.items;
    for ((item, promised), _) in had.iter().zip(&items).zip(&stale).filter(|(_, stale)| **stale) {
        let at = out.join(item.at());
        above(out, item.at()).map_err(Fault::io(codes::RESULTS, "make", &at))?;
        let put = put(&at, item, promised, digests).map_err(Fault::io(codes::RESULTS, "write", &at))?;
        done.written += put;
        done.unchanged += item.files() - put;
    }
    placed(source, places, done).await
}

/// Every file that is a result, with what it was promised to hold.
fn places(out: &Path, items: &[ResultItem]) -> Vec<(Digest, PathBuf)> {
    let mut found = Vec::new();
    let mut add = |promise: &Path, at: PathBuf| found.extend(promised(promise).map(|(digest, _)| (digest, at)));
    for item in items {
        match item {
            ResultItem::File { at, from, .. } => add(from, out.join(at)),
            ResultItem::Directory { at, files, .. } => {
                files.iter().for_each(|(name, from)| add(from, out.join(at).join(name)));
            }
        }
    }
    found
}

/// Lets the source know, and people write to what is theirs from now on.
async fn placed(
    source: &impl ResultSource,
    files: Vec<(Digest, PathBuf)>,
    done: WrittenResults,
) -> Result<WrittenResults, Fault> {
    for path in source.placed(files).await? {
        may_write(&path).map_err(Fault::io(codes::RESULTS, "change", &path))?;
    }
    Ok(done)
}

/// Where files are until they are moved to their place; it goes with this.
struct Fetched(PathBuf);

impl Fetched {
    fn in_directory(out: &Path) -> Result<Self, Fault> {
        let directory = out.join(format!("{FETCHED}{}", std::process::id()));
        remove(&directory);
        remove_left(out);
        fs::create_dir_all(&directory).map_err(Fault::io(codes::RESULTS, "make", &directory))?;
        Ok(Fetched(directory))
    }
}

/// How the names of such directories begin; then comes the number of a process.
const FETCHED: &str = ".onceflow-new-";

/// Removes what processes have left that were killed.
fn remove_left(out: &Path) {
    for entry in fs::read_dir(out).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(FETCHED)?.parse().ok()).and_then(Pid::from_raw);
        if process.is_some_and(|process| rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH)) {
            remove(&entry.path());
        }
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Whether everything is at its place already.
fn is_whole(out: &Path, item: &ResultItem, digests: &mut Digests) -> bool {
    let at = out.join(item.at());
    match item {
        ResultItem::File { from, .. } => is_same(&at, from, digests),
        ResultItem::Directory { files, .. } => {
            let is_old = |name: &PathBuf| !files.contains_key(name) && at.join(name).exists();
            fs::symlink_metadata(&at).is_ok_and(|there| there.is_dir())
                && !ours(&at).iter().any(is_old)
                && files.iter().all(|(name, from)| is_same(&at.join(name), from, digests))
        }
    }
}

/// Whether there is a file that holds what was promised.
fn is_same(at: &Path, promise: &Path, digests: &mut Digests) -> bool {
    let (Ok(there), Some((digest, len))) = (fs::symlink_metadata(at), promised(promise)) else { return false };
    there.is_file() && there.len() == len && digests.of(at).is_ok_and(|there| there == (digest, len))
}

/// Makes the directories on the way to a place, below the directory of results. That one may be a link: the user named it.
/// Below it no link is followed: a step may have put it there.
fn above(out: &Path, at: &Path) -> io::Result<()> {
    let above = at.parent().unwrap_or(Path::new(""));
    Dir::open(out)?.make_beneath(above).map(drop)
}

/// Puts something at its place; how many files are new there.
fn put(at: &Path, item: &ResultItem, promised: &ResultItem, digests: &mut Digests) -> io::Result<usize> {
    match (item, promised) {
        (ResultItem::Directory { files, .. }, ResultItem::Directory { files: promises, .. }) => {
            directory(at, files, promises, digests)
        }
        (ResultItem::File { from, .. }, _) => {
            writable(from)?;
            replace(from, at).map(|()| 1)
        }
        (ResultItem::Directory { .. }, ResultItem::File { .. }) => unreachable!("both are laid alike"),
    }
}

fn directory(
    at: &Path,
    files: &BTreeMap<PathBuf, PathBuf>,
    promises: &BTreeMap<PathBuf, PathBuf>,
    digests: &mut Digests,
) -> io::Result<usize> {
    let (new, mut written) = (beside(at, "new"), 0);
    remove(&new);
    let mut fill = || {
        fs::create_dir_all(&new)?;
        for ((name, from), promise) in files.iter().zip(promises.values()) {
            let to = new.join(name);
            fs::create_dir_all(to.parent().expect("a file is in a directory"))?;
            // What stays the same stays the same file.
            if is_same(&at.join(name), promise, digests) && fs::hard_link(at.join(name), &to).is_ok() {
                continue;
            }
            writable(from)?;
            fs::rename(from, &to)?;
            written += 1;
        }
        fs::write(new.join(OURS), serde_json::to_vec(&files.keys().collect::<Vec<_>>())?)?;
        let old = ours(at);
        let is_theirs = |name: &PathBuf| !files.contains_key(name) && !old.contains(name) && name != Path::new(OURS);
        for name in below(at)?.into_iter().filter(is_theirs) {
            let to = new.join(&name);
            fs::create_dir_all(to.parent().expect("a file is in a directory"))?;
            fs::hard_link(at.join(&name), &to)?;
        }
        replace(&new, at)
    };
    fill().inspect_err(|_| remove(&new))?;
    Ok(written)
}

/// Results are people's own, unless they are the store's as well.
fn writable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    if fs::metadata(path)?.nlink() > 1 { Ok(()) } else { may_write(path) }
}

fn may_write(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mut permissions = fs::metadata(path)?.permissions();
    if permissions.mode() & 0o200 == 0 {
        permissions.set_mode(permissions.mode() | 0o200);
        fs::set_permissions(path, permissions)?;
    }
    Ok(())
}

/// What is beside a place while it is made.
fn beside(at: &Path, what: &str) -> PathBuf {
    let name = at.file_name().unwrap_or_default().to_string_lossy();
    at.with_file_name(format!(".{name}.onceflow-{what}-{}", std::process::id()))
}

/// The file in a directory of results that says which of the others are ours: those that are not, people put there, and
/// they stay.
const OURS: &str = ".onceflow-results";

/// The files of a directory that were put there as results.
fn ours(directory: &Path) -> Vec<PathBuf> {
    let listed = fs::read(directory.join(OURS)).unwrap_or_default();
    serde_json::from_slice(&listed).unwrap_or_default()
}

/// Everything below a directory but directories, by its path in it; nothing if it is not there.
fn below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut todo) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(at) = todo.pop() {
        let entries = match fs::read_dir(directory.join(&at)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = at.join(entry.file_name());
            if entry.file_type()?.is_dir() { todo.push(name) } else { found.push(name) }
        }
    }
    Ok(found)
}

/// Moves what was made to its place; what was there goes.
fn replace(new: &Path, at: &Path) -> io::Result<()> {
    let is_there = fs::symlink_metadata(at).ok();
    let plain = |metadata: &fs::Metadata| !metadata.is_dir() && new.is_file();
    match is_there {
        None => return fs::rename(new, at),
        Some(metadata) if plain(&metadata) => return fs::rename(new, at),
        // A file where a directory is to be, or the other way round, is somebody else's.
        Some(metadata) if metadata.is_dir() != new.is_dir() => {
            let is = if metadata.is_dir() { "a directory" } else { "a file" };
            return Err(io::Error::other(format!("{is} that is no result is in the way; move it, or use --out")));
        }
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
    if let Err(error) = tree::remove(path)
        // Nothing can be there.
        && error.kind() != io::ErrorKind::NotADirectory
    {
        tracing::warn!(target: onceflow_exec::home::LEFT, "left alone: {error}");
    }
}

#[cfg(test)]
mod tests;
