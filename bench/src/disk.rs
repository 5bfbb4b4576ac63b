//! Directories on a real disk, how much of it they take, and a journal's directory that counts what is written to it.
//!
//! `BENCH_SYNC_US` replaces the disk: files are in memory, and each sync of a log sleeps for so long. For comparing two
//! versions while others use the disk; such figures are no final ones.

use onceflow_store::backend::journal::files::{Files, StoreDirectory, StoreFile};
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// How long a sync sleeps in place of syncing, if `BENCH_SYNC_US` says so.
static SIMULATED_SYNC: LazyLock<Option<Duration>> = LazyLock::new(|| {
    let us = std::env::var("BENCH_SYNC_US").ok()?;
    Some(Duration::from_micros(us.parse().expect("BENCH_SYNC_US is a number of microseconds")))
});

/// Syncs, or sleeps for as long as a sync is to take.
pub fn synced(sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match *SIMULATED_SYNC {
        Some(takes) => {
            std::thread::sleep(takes);
            Ok(())
        }
        None => sync(),
    }
}

/// A directory under `bench/target`, where a disk is and not memory, unless it is simulated; gone when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty directory.
    pub fn new(name: &str) -> io::Result<Scratch> {
        let disk = match SIMULATED_SYNC.is_some() {
            true => PathBuf::from("/dev/shm/onceflow-bench"),
            false => Path::new(env!("CARGO_MANIFEST_DIR")).join("target/scratch"),
        };
        let path = disk.join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits until everything written so far, by whomever, is on the disk of the benchmarks: the writes that one side left
/// in the page cache must not slow the syncs of the next.
pub fn drain() -> io::Result<()> {
    if SIMULATED_SYNC.is_some() {
        return Ok(());
    }
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    let status = Command::new("sync").arg("-f").arg(target).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("sync -f failed: {status}"))) }
}

/// How many bytes of disk the files of a directory take.
pub fn bytes_used(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        match entry?.metadata() {
            Ok(file) => bytes += file.blocks() * 512,
            // Removed while we looked.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// The writes to a journal's log, and whether a snapshot is being made. Space prepared as zeros is not counted.
#[derive(Debug, Default)]
pub struct Written {
    frame_bytes: AtomicU64,
    syncs: AtomicU64,
    /// Frames were written since the last sync.
    is_unsynced: AtomicBool,
    snapshots_begun: AtomicU64,
    snapshots_ended: AtomicU64,
}

/// The writes so far, or those between two looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogWrites {
    /// Bytes of frames.
    pub bytes: u64,
    /// Syncs of written frames. A sync of prepared space is not one of them.
    pub syncs: u64,
}

impl LogWrites {
    /// The writes since an earlier look.
    pub fn since(self, before: LogWrites) -> LogWrites {
        LogWrites { bytes: self.bytes - before.bytes, syncs: self.syncs - before.syncs }
    }
}

impl Written {
    /// The writes so far.
    pub fn so_far(&self) -> LogWrites {
        LogWrites { bytes: self.frame_bytes.load(Relaxed), syncs: self.syncs.load(Relaxed) }
    }

    /// A snapshot is being written.
    pub fn is_snapshot_under_way(&self) -> bool {
        self.snapshots_begun.load(Relaxed) > self.snapshots_ended.load(Relaxed)
    }

    /// Snapshots that were begun so far.
    pub fn snapshots(&self) -> u64 {
        self.snapshots_begun.load(Relaxed)
    }
}

/// A directory that counts what is written to the log in it.
pub struct Counted {
    directory: StoreDirectory,
    written: Arc<Written>,
}

impl Counted {
    pub fn new(path: &Path) -> io::Result<(Arc<Counted>, Arc<Written>)> {
        let written = Arc::new(Written::default());
        Ok((Arc::new(Counted { directory: StoreDirectory::at(path)?, written: written.clone() }), written))
    }

    fn count(&self, name: &str, file: Box<dyn StoreFile>) -> Box<dyn StoreFile> {
        if !name.starts_with("log-") {
            return file;
        }
        Box::new(CountedFile { file, written: self.written.clone() })
    }
}

impl Files for Counted {
    fn list(&self) -> io::Result<Vec<String>> {
        self.directory.list()
    }
    fn open(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        Ok(self.count(name, self.directory.open(name)?))
    }
    fn create(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        let file = self.directory.create(name)?;
        if is_unfinished_snapshot(name) {
            self.written.snapshots_begun.fetch_add(1, Relaxed);
        }
        Ok(self.count(name, file))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.directory.rename(from, to)?;
        if is_unfinished_snapshot(from) {
            self.written.snapshots_ended.fetch_add(1, Relaxed);
        }
        Ok(())
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.directory.remove(name)?;
        if is_unfinished_snapshot(name) {
            self.written.snapshots_ended.fetch_add(1, Relaxed);
        }
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        self.directory.sync()
    }
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path(name)
    }
}

/// The name under which a journal writes a snapshot before it is whole.
fn is_unfinished_snapshot(name: &str) -> bool {
    name.starts_with("snap-") && name.ends_with(".new")
}

struct CountedFile {
    file: Box<dyn StoreFile>,
    written: Arc<Written>,
}

impl StoreFile for CountedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(into, at)
    }
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        // A frame begins with its checksum, its length and its positions; prepared space with none of them.
        if at > 0 && bytes.iter().take(40).any(|byte| *byte != 0) {
            self.written.is_unsynced.store(true, Relaxed);
            self.written.frame_bytes.fetch_add(bytes.len() as u64, Relaxed);
        }
        self.file.write_at(bytes, at)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        synced(|| self.file.sync())?;
        if self.written.is_unsynced.swap(false, Relaxed) {
            self.written.syncs.fetch_add(1, Relaxed);
        }
        Ok(())
    }
}
