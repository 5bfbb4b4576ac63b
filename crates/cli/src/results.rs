//! Writes the outputs of a run into the directory of results. A file that is there already and equal is left alone;
//! every other one is made beside its destination and moved there at once, so that a reader sees the old or the new,
//! never half of it. Nothing outside the directory is touched.

mod lay;

use crate::{codes, digests::Digests, exit::Exit, fault::Fault};
use lay::{Laid, ResultItem, lay};
use onceflow_core::Digest;
use onceflow_exec::value::PortValue;
use onceflow_store::tree::{self, Dir};
use rustix::process::Pid;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// The results that were written.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct WrittenResults {
    /// The outputs with the paths of their files, as given; `None` for an output without files.
    pub(crate) shown: Vec<Option<PortValue>>,
    /// Files that were written.
    pub(crate) written: usize,
    /// Files that were there already.
    pub(crate) unchanged: usize,
}

/// Outputs whose content is known before their files are fetched.
pub(crate) trait ResultSource {
    /// Returns the outputs. Their files are not fetched yet; each path encodes the expected content: see [`promise`].
    fn outputs(&self) -> &[(String, PortValue)];

    /// Fetches an output with its files into a directory. The files are ours to move.
    async fn fetch(&self, output: &str, into: &Path) -> Result<PortValue, Fault>;

    /// Reports that all files are at their destinations. Returns those that belong to the user alone from now on.
    async fn placed(&self, files: Vec<(Digest, PathBuf)>) -> Result<Vec<PathBuf>, Fault>;
}

/// Returns the path that stands for a file not yet fetched: its digest and length.
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
/// If something cannot be written; files written before are whole.
pub(crate) async fn write(
    out: &Path,
    source: &impl ResultSource,
    digests: &mut Digests,
) -> Result<WrittenResults, Fault> {
    let bad = |why| Fault::new(Exit::No, codes::RESULTS, why);
    let Laid { items, shown } = lay(out, source.outputs()).map_err(bad)?;
    let mut done = WrittenResults { shown, ..WrittenResults::default() };
    let stale: Vec<_> = items.iter().map(|item| !is_whole(out, item, digests)).collect();
    done.unchanged = items.iter().zip(&stale).filter(|(_, stale)| !**stale).map(|(item, _)| item.files()).sum();
    let places = places(out, &items);
    if !stale.contains(&true) {
        return placed(source, places, done).await;
    }
    let fetched = Fetched::in_directory(out)?;
    let mut outputs = source.outputs().to_vec();
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

/// Returns every file of the results, with its expected digest.
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

/// Reports to the source that files are placed, and makes those that belong to the user alone writable.
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

/// The directory of files until they are moved to their destinations; removed on drop.
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

/// The prefix of the names of such directories; the id of a process follows.
const FETCHED: &str = ".onceflow-new-";

/// Removes such directories of processes that were killed.
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

/// Everything of the item is at its destination already.
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

/// The file at this path has the expected content.
fn is_same(at: &Path, promise: &Path, digests: &mut Digests) -> bool {
    let (Ok(there), Some((digest, len))) = (fs::symlink_metadata(at), promised(promise)) else { return false };
    there.is_file() && there.len() == len && digests.of(at).is_ok_and(|there| there == (digest, len))
}

/// Makes the directories above a destination, below the directory of results. That one may be a link: the user named
/// it. Below it no link is followed: a step may have put it there.
fn above(out: &Path, at: &Path) -> io::Result<()> {
    let above = at.parent().unwrap_or(Path::new(""));
    Dir::open(out)?.make_beneath(above).map(drop)
}

/// Moves an item to its destination; returns the number of files that are new there.
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
            // An unchanged file stays the same file.
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

/// Makes a result writable for the user, unless the store has a link to the same file.
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

/// Returns the temporary path beside a destination.
fn beside(at: &Path, what: &str) -> PathBuf {
    let name = at.file_name().unwrap_or_default().to_string_lossy();
    at.with_file_name(format!(".{name}.onceflow-{what}-{}", std::process::id()))
}

/// The file in a directory of results that lists the files onceflow put there: all others are the user's, and they
/// stay.
const OURS: &str = ".onceflow-results";

/// Returns the files of a directory that were put there as results.
fn ours(directory: &Path) -> Vec<PathBuf> {
    let listed = fs::read(directory.join(OURS)).unwrap_or_default();
    serde_json::from_slice(&listed).unwrap_or_default()
}

/// Returns all paths below a directory except directories, relative to it; none if the directory does not exist.
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

/// Moves a new file or directory to its destination, and removes the old one.
fn replace(new: &Path, at: &Path) -> io::Result<()> {
    let is_there = fs::symlink_metadata(at).ok();
    let plain = |metadata: &fs::Metadata| !metadata.is_dir() && new.is_file();
    match is_there {
        None => return fs::rename(new, at),
        Some(metadata) if plain(&metadata) => return fs::rename(new, at),
        // A file in place of a directory, or the reverse, is not a result: it belongs to the user.
        Some(metadata) if metadata.is_dir() != new.is_dir() => {
            let is = if metadata.is_dir() { "a directory" } else { "a file" };
            return Err(io::Error::other(format!("{is} that is no result is in the way; move it, or use --out")));
        }
        Some(_) => {}
    }
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    if renameat_with(CWD, new, CWD, at, RenameFlags::EXCHANGE).is_err() {
        // This file system cannot exchange two paths: for a moment there is nothing at the destination.
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

/// Removes a path; one that cannot be removed is left with a warning, and does no harm.
fn remove(path: &Path) {
    if let Err(error) = tree::remove(path)
        // With a file in place of its parent directory, the path cannot exist.
        && error.kind() != io::ErrorKind::NotADirectory
    {
        onceflow_exec::home::log_left(&error);
    }
}

#[cfg(test)]
mod tests;
