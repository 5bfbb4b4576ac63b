//! Values by reference: a file of the user's that stays where it is. The row holds its path, its digest, and the facts
//! that `stat` told when the digest was taken; the store holds no bytes of it and never writes to it.
//!
//! A reader compares the facts first. While they are the same, so is the content; on a difference the digest is taken
//! again, and only another digest means that the file has changed. Facts are believed only if the file had been at rest
//! for [`SETTLED_NS`] when its digest was taken: a file written twice within one tick of the file system's clock looks
//! the same both times.

mod copy;
mod hand_over;

use super::{
    Error, ValueId, Values, Weave,
    stored::Head,
    value::{Content, Digest, Value},
};
use crate::{
    blobs::content::digest_file,
    blocking::blocking,
    sync::{Mutex, lock},
};
use std::{
    collections::BTreeMap,
    fs::{File, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// How long a file must have been at rest for its facts to identify its content. File systems tick in milliseconds to
/// seconds.
pub const SETTLED_NS: i128 = 2_000_000_000;

/// Verified files, and paths of given content, that are remembered by one process. Beyond that all are forgotten, and
/// digests are taken once more.
const REMEMBERED_MAX: usize = 100_000;

/// The `stat` facts of a file that change whenever its content does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileStat {
    /// The device it is on.
    pub device: u64,
    /// Which file of that device.
    pub inode: u64,
    /// Bytes.
    pub len: u64,
    /// When its content changed last, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// When it, its name or its permissions changed last.
    pub changed_ns: i128,
}

impl FileStat {
    /// The facts of a file.
    pub fn of(metadata: &Metadata) -> Self {
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        FileStat {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// The file had been at rest at that time, so that a later change is seen in its facts.
    pub fn is_settled(&self, at_ns: i128) -> bool {
        self.modified_ns.max(self.changed_ns) + SETTLED_NS < at_ns
    }
}

/// A file of the user's, as it was when its digest was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it is: an absolute path.
    pub path: PathBuf,
    /// BLAKE3 of its content.
    pub digest: Digest,
    /// What `stat` told of it before and after its digest was taken.
    pub stat: FileStat,
    /// It had been at rest by then, so that its facts identify its content.
    pub is_settled: bool,
}

/// Why a file is not what it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// It cannot be read: it was removed, or its file system is not there.
    #[error("input file {} is gone: {why}", path.display())]
    Gone {
        /// Where it was.
        path: PathBuf,
        /// The system's error.
        why: String,
    },
    /// Its content is another one.
    #[error("input changed: {} does not hold what it held when the run was planned", path.display())]
    Changed {
        /// Where it is.
        path: PathBuf,
    },
}

impl SourceError {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            SourceError::Gone { path, .. } | SourceError::Changed { path } => path,
        }
    }
}

/// The files by reference that this process has checked.
#[derive(Default)]
pub(super) struct Sources {
    /// Digests of files by their facts; only of files that were at rest.
    verified: BTreeMap<FileStat, Digest>,
    /// Where the caller last said that content is. A project that was moved has its files elsewhere.
    given: BTreeMap<Digest, PathBuf>,
}

impl SourceFile {
    /// Takes the digest of a file.
    ///
    /// # Errors
    /// If it cannot be read, is no regular file, or changes meanwhile.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let (stat, at_ns) = (FileStat::of(&metadata), now_ns());
        let stored = digest_file(&mut file)?;
        if FileStat::of(&file.metadata()?) != stat || stored.len != stat.len {
            return Err(io::Error::other("it changed while it was read"));
        }
        let digest = stored.digest.to_bytes();
        Ok(SourceFile { path: path.to_owned(), digest, stat, is_settled: stat.is_settled(at_ns) })
    }

    /// As [`SourceFile::read`], off the async threads.
    ///
    /// # Errors
    /// As [`SourceFile::read`].
    pub async fn load(path: &Path) -> io::Result<Self> {
        let path = path.to_owned();
        blocking(move || SourceFile::read(&path)).await
    }

    /// The file at another path, if it holds the same.
    fn at(&self, path: &Path) -> SourceFile {
        SourceFile { path: path.to_owned(), is_settled: false, ..self.clone() }
    }

    fn gone(&self, error: &io::Error) -> SourceError {
        SourceError::Gone { path: self.path.clone(), why: error.to_string() }
    }

    /// The facts of the file now, if it holds what it held.
    fn verify(&self, sources: &Mutex<Sources>) -> Result<FileStat, SourceError> {
        let metadata = std::fs::metadata(&self.path).map_err(|error| self.gone(&error))?;
        let (stat, changed) = (FileStat::of(&metadata), SourceError::Changed { path: self.path.clone() });
        if !metadata.is_file() || stat.len != self.stat.len {
            return Err(changed);
        }
        if self.is_settled && stat == self.stat {
            return Ok(stat);
        }
        let known = lock(sources).verified.get(&stat).copied();
        let digest = match known {
            Some(digest) => digest,
            None => {
                let read = SourceFile::read(&self.path).map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => self.gone(&error),
                    _ => changed.clone(),
                })?;
                if read.is_settled {
                    lock(sources).remember(read.stat, read.digest);
                }
                read.digest
            }
        };
        if digest == self.digest { Ok(stat) } else { Err(changed) }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt;
        let FileStat { device, inode, len, modified_ns, changed_ns } = self.stat;
        [
            &self.digest[..],
            &device.to_le_bytes(),
            &inode.to_le_bytes(),
            &len.to_le_bytes(),
            &modified_ns.to_le_bytes(),
            &changed_ns.to_le_bytes(),
            &[u8::from(self.is_settled)],
            self.path.as_os_str().as_bytes(),
        ]
        .concat()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        use std::os::unix::ffi::OsStrExt;
        fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
            let (taken, rest) = bytes.split_first_chunk::<N>()?;
            *bytes = rest;
            Some(*taken)
        }
        let mut rest = bytes;
        let digest = take(&mut rest)?;
        let stat = FileStat {
            device: u64::from_le_bytes(take(&mut rest)?),
            inode: u64::from_le_bytes(take(&mut rest)?),
            len: u64::from_le_bytes(take(&mut rest)?),
            modified_ns: i128::from_le_bytes(take(&mut rest)?),
            changed_ns: i128::from_le_bytes(take(&mut rest)?),
        };
        let [is_settled] = take(&mut rest)?;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(rest));
        Some(SourceFile { path, digest, stat, is_settled: is_settled != 0 })
    }
}

impl Sources {
    fn remember(&mut self, stat: FileStat, digest: Digest) {
        if self.verified.len() >= REMEMBERED_MAX {
            self.verified.clear();
        }
        self.verified.insert(stat, digest);
    }
}

/// How the ids of values by reference begin, so that nobody has to read one to know.
const SOURCE: u8 = b's';

impl ValueId {
    /// The value is a file of the user's, by reference. (One that was handed over later has the id of a blob.)
    pub fn is_source(&self) -> bool {
        self.as_bytes().first() == Some(&SOURCE)
    }
}

impl Values {
    /// What puts a file by reference. Costs no I/O. The caller has taken its digest.
    pub fn put_source(&self, source: SourceFile) -> (Weave, ValueId, Digest, u64) {
        let id = ValueId::new([&[SOURCE], &self.fences.next().to_bytes()[..]].concat());
        let (digest, len) = (source.digest, source.stat.len);
        let value = Value { refs: vec![], content: Content::Source(source) };
        (Weave::Put { id: id.clone(), value }, id, digest, len)
    }

    /// Remembers, in this process, where a caller has given a file just now. A value by reference whose own path is gone
    /// is read from there if it holds the same.
    pub fn note_source(&self, path: &Path, digest: Digest) {
        let mut sources = lock(&self.sources);
        if sources.given.len() >= REMEMBERED_MAX {
            sources.given.clear();
        }
        sources.given.insert(digest, path.to_owned());
    }

    /// Finds the file of a value by reference, and sees to it that it holds what it held. Takes its digest again only if
    /// `stat` tells something else than before. `None` if the value is not by reference.
    ///
    /// # Errors
    /// [`Error::Source`] if it is gone or has changed.
    pub async fn open_source(&self, id: &ValueId) -> Result<Option<SourceFile>, Error> {
        match self.get(id).await?.content {
            Content::Source(source) => Ok(Some(self.find_source(source).await?)),
            Content::Inline(_) | Content::Gathered { .. } | Content::Object { .. } => Ok(None),
        }
    }

    /// Where the file of a value by reference is, whatever it holds by now. `None` if the value is not by reference.
    pub async fn source_path(&self, id: &ValueId) -> Result<Option<PathBuf>, Error> {
        match self.get(id).await?.content {
            Content::Source(source) => Ok(Some(source.path)),
            Content::Inline(_) | Content::Gathered { .. } | Content::Object { .. } => Ok(None),
        }
    }

    /// The file itself, or the one of the same content that the caller gave last.
    pub(super) async fn find_source(&self, source: SourceFile) -> Result<SourceFile, Error> {
        let sources = self.sources.clone();
        let find = move || {
            let Err(error) = source.verify(&sources) else { return Ok(source) };
            let given = lock(&sources).given.get(&source.digest).cloned();
            let moved = given.filter(|given| *given != source.path).map(|given| source.at(&given));
            moved.filter(|moved| moved.verify(&sources).is_ok()).ok_or(error)
        };
        blocking(find).await.map_err(|error: SourceError| Error::Source(Box::new(error)))
    }

    /// Sees to it that files which a step was given still hold what they held: [`Values::open_source`] gave them.
    ///
    /// # Errors
    /// [`Error::Source`] with the first that does not.
    pub async fn check_sources(&self, opened: Vec<SourceFile>) -> Result<(), Error> {
        if opened.is_empty() {
            return Ok(());
        }
        let sources = self.sources.clone();
        let check = move || opened.iter().try_for_each(|source| source.verify(&sources).map(drop));
        blocking(check).await.map_err(|error: SourceError| Error::Source(Box::new(error)))
    }

    /// All files that values of this store refer to, each once.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn source_files(&self) -> Result<Vec<SourceFile>, Error> {
        let mut found = BTreeMap::new();
        for (_, row) in self.all_rows(&self.keys.values).await? {
            if let Some(Content::Source(source)) = Head::read(&row).and_then(|head| head.content()) {
                found.insert((source.path.clone(), source.digest), source);
            }
        }
        Ok(found.into_values().collect())
    }

    /// Whether a file still holds what it held: see [`Values::open_source`].
    ///
    /// # Errors
    /// Why it does not.
    pub async fn check_source(&self, source: SourceFile) -> Result<(), SourceError> {
        let sources = self.sources.clone();
        blocking(move || source.verify(&sources).map(drop)).await
    }
}

/// The machine's own clock, by which its file systems tell when files changed.
#[expect(clippy::disallowed_methods, reason = "times of files are of the machine, also in a simulation")]
fn now_ns() -> i128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    fn source(path: &Path) -> SourceFile {
        // As if it had been at rest for long: what `stat` tells now is believed.
        SourceFile { is_settled: true, ..SourceFile::read(path).unwrap() }
    }

    #[test]
    fn a_file_by_reference_is_read_back_from_its_row() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a b");
        std::fs::write(&path, "content").unwrap();
        let read = SourceFile::read(&path).unwrap();
        assert_eq!(read.digest, *blake3::hash(b"content").as_bytes());
        assert!(!read.is_settled, "it was written just now");
        for source in [read.clone(), SourceFile { is_settled: true, ..read }] {
            let bytes = source.to_bytes();
            assert_eq!(SourceFile::from_bytes(&bytes), Some(source));
            assert_eq!(SourceFile::from_bytes(&bytes[..40]), None);
        }
    }

    #[test]
    fn touched_is_the_same_and_rewritten_is_changed_and_removed_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let (path, sources) = (directory.path().join("f"), Mutex::new(Sources::default()));
        std::fs::write(&path, "one").unwrap();
        let source = source(&path);
        assert!(source.verify(&sources).is_ok());
        let touched = File::options().write(true).open(&path).unwrap();
        touched.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
        assert!(source.verify(&sources).is_ok_and(|stat| stat != source.stat));
        std::fs::write(&path, "two").unwrap();
        assert_eq!(source.verify(&sources), Err(SourceError::Changed { path: path.clone() }));
        std::fs::write(&path, "longer").unwrap();
        assert_eq!(source.verify(&sources), Err(SourceError::Changed { path: path.clone() }));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(source.verify(&sources), Err(SourceError::Gone { .. })));
        std::fs::create_dir(&path).unwrap();
        assert_eq!(source.verify(&sources), Err(SourceError::Changed { path }));
    }

    #[test]
    fn a_file_written_twice_within_a_tick_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let (path, sources) = (directory.path().join("f"), Mutex::new(Sources::default()));
        std::fs::write(&path, "one").unwrap();
        let before = SourceFile::read(&path).unwrap();
        std::fs::write(&path, "two").unwrap();
        // Whatever the file system's clock says, the facts of a file that was not at rest are not believed.
        let same_tick = SourceFile { stat: FileStat::of(&std::fs::metadata(&path).unwrap()), ..before };
        assert_eq!(same_tick.verify(&sources), Err(SourceError::Changed { path }));
    }

    #[test]
    fn ids_of_values_by_reference_tell_it() {
        assert!(ValueId::new("s1").is_source() && !ValueId::new("v1").is_source() && !ValueId::new("b1").is_source());
    }
}
