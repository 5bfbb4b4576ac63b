//! Materialises small files, which the store keeps in rows, for tasks that need a path: in one directory of this
//! engine, each content once, with a cache, because creating and removing a directory for every step costs more than
//! the rest of the step.

use crate::{Error, shared::lock};
use onceflow_core::{Digest, payload::Stored};
use onceflow_store::{alive::Alive, values::Values};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Files cached while no step reads them: with the largest of them, some tens of megabytes.
const FILES_MAX: usize = 8192;

/// The end of the name of an engine's lock file; its beginning is the name of the engine's scratch directory.
pub const ALIVE: &str = ".alive";

/// The name of the scratch directory of a worker.
pub(crate) fn scratch_name(incarnation: u128) -> String {
    format!("onceflow-{incarnation:032x}")
}

/// The name of the lock file of a worker.
pub(crate) fn lock_name(incarnation: u128) -> String {
    format!("{}{ALIVE}", scratch_name(incarnation))
}

/// The small files of an engine.
pub(crate) struct SmallFiles {
    directory: PathBuf,
    /// The lock file beside the directory: a process that finds it unlocked may remove the directory.
    alive: Mutex<Option<Alive>>,
    files: Mutex<BTreeMap<Digest, InUse>>,
    tries: AtomicU64,
}

/// Keeps a file while it exists. Holds the file's metadata as of its creation.
pub(crate) type InUse = Arc<Look>;

/// The metadata of a file.
#[derive(PartialEq, Eq)]
pub(crate) struct Look {
    size: u64,
    modified: (i64, i64),
    mode: u32,
}

impl Look {
    fn at(path: &Path) -> Result<Self, Error> {
        let data = std::fs::metadata(path).map_err(|error| Error::Scratch(format!("{}: {error}", path.display())))?;
        Ok(Look { size: data.size(), modified: (data.mtime(), data.mtime_nsec()), mode: data.mode() })
    }
}

impl SmallFiles {
    /// An empty cache; the directory is created with the first file.
    pub(crate) fn new(directory: PathBuf) -> Arc<Self> {
        Arc::new(SmallFiles { directory, alive: Mutex::default(), files: Mutex::default(), tries: AtomicU64::new(0) })
    }

    /// Materialises an inline value as a read-only file; the path is valid until the guard is dropped.
    pub(super) async fn file(&self, values: &Values, content: &Stored) -> Result<(PathBuf, InUse), Error> {
        let path = self.directory.join(content.digest.to_string());
        if let Some(in_use) = self.known(&content.digest, &path) {
            return Ok((path, in_use));
        }
        self.hold_lock()?;
        let made = self.directory.join(format!(".{}", self.tries.fetch_add(1, Relaxed)));
        // Written on this thread: a fan-in has thousands of them, and a switch to another thread for each takes far
        // longer.
        let bytes = values.read_all(&content.id).await?;
        write(&made, &bytes).map_err(|error| Error::Scratch(format!("{}: {error}", made.display())))?;
        // Under the lock, so that no other thread evicts the file before it is cached.
        let mut files = lock(&self.files);
        if let Some(in_use) = files.get(&content.digest)
            && Look::at(&path).is_ok_and(|look| look == **in_use)
        {
            // Another thread created the same file meanwhile, and steps read it: it is not replaced under them.
            remove(&made);
            return Ok((path, in_use.clone()));
        }
        if files.len() >= FILES_MAX {
            self.forget_some(&mut files);
        }
        let renamed = std::fs::rename(&made, &path);
        renamed.map_err(|error| Error::Scratch(format!("{}: {error}", path.display())))?;
        let in_use = Arc::new(Look::at(&path)?);
        files.insert(content.digest, in_use.clone());
        Ok((path, in_use))
    }

    /// Returns a new path in the directory, for an output that the engine has not taken yet.
    pub(crate) fn outgoing(&self) -> Result<PathBuf, Error> {
        self.hold_lock()?;
        let failed = |error| Error::Scratch(format!("{}: {error}", self.directory.display()));
        std::fs::create_dir_all(&self.directory).map_err(failed)?;
        Ok(self.directory.join(format!("out.{}", self.tries.fetch_add(1, Relaxed))))
    }

    /// The path of this name in the directory around that of the cache.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.directory.with_file_name(name)
    }

    /// Takes the lock file beside the directory, before the first file or directory of an attempt is created; it is
    /// held until they are removed.
    pub(crate) fn hold_lock(&self) -> Result<(), Error> {
        let mut alive = lock(&self.alive);
        if let (None, Some(parent), Some(name)) = (&*alive, self.directory.parent(), self.directory.file_name()) {
            let name = format!("{}{}", name.to_string_lossy(), ALIVE);
            let begun = Alive::begin(parent, &name);
            *alive = Some(begun.map_err(|error| Error::Scratch(format!("{}: {error}", parent.display())))?);
        }
        Ok(())
    }

    /// The cached file, unless a task changed it in spite of the rule.
    fn known(&self, digest: &Digest, path: &Path) -> Option<InUse> {
        let in_use = lock(&self.files).get(digest)?.clone();
        Look::at(path).is_ok_and(|look| look == *in_use).then_some(in_use)
    }

    fn forget_some(&self, files: &mut BTreeMap<Digest, InUse>) {
        files.retain(|digest, in_use| {
            let keep = Arc::strong_count(in_use) > 1;
            if !keep {
                remove(&self.directory.join(digest.to_string()));
            }
            keep
        });
    }

    /// Removes all files; no step reads them any more.
    pub(crate) fn clear(&self) {
        let mut files = lock(&self.files);
        if !files.is_empty() {
            files.clear();
            if let Err(error) = onceflow_store::tree::remove(&self.directory) {
                tracing::warn!(%error, directory = ?self.directory, "failed to remove a scratch directory");
            }
        }
        drop(lock(&self.alive).take());
    }
}

/// Writes a new read-only file, and creates its directory if that is missing.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let create = || File::options().write(true).create_new(true).mode(0o444).open(path);
    let created = match (create(), path.parent()) {
        (Err(error), Some(directory)) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(directory)?;
            create()
        }
        (created, _) => created,
    };
    created?.write_all(bytes)
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!(%error, ?path, "failed to remove a scratch file");
    }
}

impl Drop for SmallFiles {
    fn drop(&mut self) {
        self.clear();
    }
}
