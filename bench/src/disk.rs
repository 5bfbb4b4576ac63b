//! Directories on a real disk, how much of it they take, and a journal's directory that counts what is written to it.

use onceflow_store::backend::journal::files::{Directory, File, Files};
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64, atomic::Ordering::Relaxed},
};

/// A directory under `bench/target`, where a disk is and not memory; gone when dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// An empty directory.
    pub(crate) fn new(name: &str) -> io::Result<Scratch> {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/scratch");
        let path = target.join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How many bytes of disk the files of a directory take.
pub(crate) fn bytes_used(directory: &Path) -> io::Result<u64> {
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

/// What was written to a journal's log. Space prepared as zeros is not counted.
#[derive(Debug, Default)]
pub(crate) struct Written {
    frames: AtomicU64,
    frame_bytes: AtomicU64,
}

impl Written {
    /// How many frames, each followed by one sync, and how many bytes they had.
    pub(crate) fn so_far(&self) -> (u64, u64) {
        (self.frames.load(Relaxed), self.frame_bytes.load(Relaxed))
    }
}

/// A directory that counts what is written to the log in it.
pub(crate) struct Counted {
    directory: Directory,
    written: Arc<Written>,
}

impl Counted {
    pub(crate) fn new(path: &Path) -> io::Result<(Arc<Counted>, Arc<Written>)> {
        let written = Arc::new(Written::default());
        Ok((Arc::new(Counted { directory: Directory::at(path)?, written: written.clone() }), written))
    }

    fn count(&self, name: &str, file: Box<dyn File>) -> Box<dyn File> {
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
    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        Ok(self.count(name, self.directory.open(name)?))
    }
    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        Ok(self.count(name, self.directory.create(name)?))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.directory.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.directory.remove(name)
    }
    fn sync(&self) -> io::Result<()> {
        self.directory.sync()
    }
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path(name)
    }
}

struct CountedFile {
    file: Box<dyn File>,
    written: Arc<Written>,
}

impl File for CountedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(into, at)
    }
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        // A frame begins with its checksum, its length and its positions; prepared space with none of them.
        if at > 0 && bytes.iter().take(40).any(|byte| *byte != 0) {
            self.written.frames.fetch_add(1, Relaxed);
            self.written.frame_bytes.fetch_add(bytes.len() as u64, Relaxed);
        }
        self.file.write_at(bytes, at)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
