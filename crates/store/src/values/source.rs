//! Values by reference: a file of the user's that stays where it is. The row holds its path, its digest, and its stat when
//! the digest was taken; the store holds no bytes of the file and never writes to it.
//!
//! A reader compares the stat first. While it is the same, so is the content; on a difference the digest is taken again,
//! and only another digest means that the file has changed. A stat is trusted only if the file was settled
//! ([`SETTLED_NS`]) when its digest was taken: a file written twice within one tick of the file system's clock has the same
//! stat both times.

mod copy;
mod hand_over;

use super::{
    Content, Error, FileStat, SourceFile, Value, ValueChange, ValueId, rows::ValueRows, stored::Head,
    writer::ValueWriter,
};
use crate::{
    blobs::content::digest_file,
    blocking::blocking,
    sync::{Mutex, lock},
};
pub use onceflow_core::value::source::SETTLED_NS;
use onceflow_core::{Digest, payload::Stored};
use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Verified files, and paths of given content, that one process remembers. Beyond that all are forgotten, and digests are
/// taken again.
const REMEMBERED_MAX: usize = 100_000;

/// Why a file by reference cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The file cannot be read: it was removed, or its file system is not there.
    #[error("input file {} is gone: {why}", path.display())]
    Gone {
        /// Its former path.
        path: PathBuf,
        /// The system's error.
        why: String,
    },
    /// The file has other content.
    #[error("input changed: {} does not hold what it held when the run was planned", path.display())]
    Changed {
        /// Its path.
        path: PathBuf,
    },
}

impl SourceError {
    /// The path of the file.
    pub fn path(&self) -> &Path {
        match self {
            SourceError::Gone { path, .. } | SourceError::Changed { path } => path,
        }
    }
}

/// Takes the digest of a file.
///
/// # Errors
/// If it cannot be read, is no regular file, or changes meanwhile.
pub fn read_file(path: &Path) -> io::Result<SourceFile> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let (stat, at_ns) = (FileStat::of(&metadata), now_ns());
    let info = digest_file(&mut file)?;
    if FileStat::of(&file.metadata()?) != stat || info.len != stat.len {
        return Err(io::Error::other("it changed while it was read"));
    }
    Ok(SourceFile { path: path.to_owned(), digest: info.digest, stat, is_settled: stat.is_settled(at_ns) })
}

/// As [`read_file`], off the async threads.
///
/// # Errors
/// As [`read_file`].
pub async fn load_file(path: &Path) -> io::Result<SourceFile> {
    let path = path.to_owned();
    blocking(move || read_file(&path)).await
}

/// The files by reference that this process has verified or was given.
#[derive(Default)]
pub(super) struct Sources {
    /// Digests of settled files by their stat.
    verified: Mutex<BTreeMap<FileStat, Digest>>,
    /// Where the caller last gave content. A project that was moved has its files elsewhere.
    given: Mutex<BTreeMap<Digest, PathBuf>>,
}

impl Sources {
    /// Returns the stat of a file whose content is still the recorded one.
    fn verify(&self, source: &SourceFile) -> Result<FileStat, SourceError> {
        let metadata = std::fs::metadata(&source.path).map_err(|error| gone(source, &error))?;
        let (stat, changed) = (FileStat::of(&metadata), SourceError::Changed { path: source.path.clone() });
        if !metadata.is_file() || stat.len != source.stat.len {
            return Err(changed);
        }
        if source.is_settled && stat == source.stat {
            return Ok(stat);
        }
        let known = lock(&self.verified).get(&stat).copied();
        let digest = match known {
            Some(digest) => digest,
            None => {
                let read = read_file(&source.path).map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => gone(source, &error),
                    _ => changed.clone(),
                })?;
                if read.is_settled {
                    remember(&self.verified, read.stat, read.digest);
                }
                read.digest
            }
        };
        if digest == source.digest { Ok(stat) } else { Err(changed) }
    }

    /// The file itself, or the file of the same content that the caller gave last.
    fn find(&self, source: SourceFile) -> Result<SourceFile, SourceError> {
        let Err(error) = self.verify(&source) else { return Ok(source) };
        let given = lock(&self.given).get(&source.digest).cloned();
        let moved = given.filter(|given| *given != source.path);
        let moved = moved.map(|path| SourceFile { path, is_settled: false, ..source });
        moved.filter(|moved| self.verify(moved).is_ok()).ok_or(error)
    }
}

fn remember<K: Ord, V>(map: &Mutex<BTreeMap<K, V>>, key: K, value: V) {
    let mut map = lock(map);
    if map.len() >= REMEMBERED_MAX {
        map.clear();
    }
    map.insert(key, value);
}

fn gone(source: &SourceFile, error: &io::Error) -> SourceError {
    SourceError::Gone { path: source.path.clone(), why: error.to_string() }
}

/// Values that are files of the user's, by reference.
#[derive(Clone, Copy)]
pub struct SourceValues<'a> {
    pub(super) rows: &'a ValueRows,
    pub(super) verified: &'a Arc<Sources>,
    pub(super) writer: &'a ValueWriter,
}

impl SourceValues<'_> {
    /// The change that puts a file by reference, and the value it becomes. Costs no I/O: the caller has taken the digest.
    pub fn put(&self, source: SourceFile) -> (ValueChange, Stored) {
        let id = ValueId::of_source(self.writer.fence());
        let stored = Stored { id: id.clone(), digest: source.digest, len: source.stat.len };
        let value = Value { refs: vec![], content: Content::Source(source) };
        (ValueChange::Put { id, value }, stored)
    }

    /// Remembers, in this process, where the caller gave this content last. A value by reference whose own path is gone is
    /// read from there if the content is the same.
    pub fn note(&self, path: &Path, digest: Digest) {
        remember(&self.verified.given, digest, path.to_owned());
    }

    /// Finds the file of a value by reference, and verifies that its content is unchanged. Takes its digest again only
    /// if `stat` differs from before. `None` if the value is not by reference.
    ///
    /// # Errors
    /// [`Error::Source`] if it is gone or has changed.
    pub async fn open(&self, id: &ValueId) -> Result<Option<SourceFile>, Error> {
        match self.rows.get(id).await?.content {
            Content::Source(source) => Ok(Some(self.find(source).await?)),
            Content::Inline(_) | Content::Gathered { .. } | Content::Object { .. } => Ok(None),
        }
    }

    /// Returns the path of a value by reference, without verifying its content. `None` if the value is not by
    /// reference.
    pub async fn path(&self, id: &ValueId) -> Result<Option<PathBuf>, Error> {
        match self.rows.get(id).await?.content {
            Content::Source(source) => Ok(Some(source.path)),
            Content::Inline(_) | Content::Gathered { .. } | Content::Object { .. } => Ok(None),
        }
    }

    async fn find(&self, source: SourceFile) -> Result<SourceFile, Error> {
        let sources = self.verified.clone();
        blocking(move || sources.find(source)).await.map_err(|error| Error::Source(Box::new(error)))
    }

    /// Verifies that files which a step was given, by [`SourceValues::open`], still have the same content.
    ///
    /// # Errors
    /// [`Error::Source`] with the first that has not.
    pub async fn check_all(&self, opened: Vec<SourceFile>) -> Result<(), Error> {
        if opened.is_empty() {
            return Ok(());
        }
        let sources = self.verified.clone();
        let check = move || opened.iter().try_for_each(|source| sources.verify(source).map(drop));
        blocking(check).await.map_err(|error: SourceError| Error::Source(Box::new(error)))
    }

    /// All files that values of this store refer to, each once.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn all(&self) -> Result<Vec<SourceFile>, Error> {
        let mut found = BTreeMap::new();
        for (_, row) in self.rows.all_rows(&self.rows.keys.values).await? {
            if let Some(Content::Source(source)) = Head::read(&row).and_then(|head| head.content()) {
                found.insert((source.path.clone(), source.digest), source);
            }
        }
        Ok(found.into_values().collect())
    }

    /// Verifies that a file has the recorded content: see [`SourceValues::open`].
    ///
    /// # Errors
    /// The reason if it has not.
    pub async fn check(&self, source: SourceFile) -> Result<(), SourceError> {
        let sources = self.verified.clone();
        blocking(move || sources.verify(&source).map(drop)).await
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
    use super::{super::stored::value_row, *};
    use std::time::{Duration, SystemTime};

    fn source(path: &Path) -> SourceFile {
        // As if the file had been at rest for long: its present `stat` is trusted.
        SourceFile { is_settled: true, ..read_file(path).unwrap() }
    }

    #[test]
    fn a_file_by_reference_is_read_back_from_its_row() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a b");
        std::fs::write(&path, "content").unwrap();
        let read = read_file(&path).unwrap();
        assert_eq!(read.digest, Digest::of(b"content"));
        assert!(!read.is_settled, "it was written just now");
        for source in [read.clone(), SourceFile { is_settled: true, ..read }] {
            let content = Content::Source(source);
            let row = value_row(&[], &content);
            assert_eq!(Head::read(&row).and_then(|head| head.content()), Some(content));
        }
    }

    #[test]
    fn touched_is_the_same_and_rewritten_is_changed_and_removed_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let (path, sources) = (directory.path().join("f"), Sources::default());
        std::fs::write(&path, "one").unwrap();
        let source = source(&path);
        assert!(sources.verify(&source).is_ok());
        let touched = File::options().write(true).open(&path).unwrap();
        touched.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
        assert!(sources.verify(&source).is_ok_and(|stat| stat != source.stat));
        std::fs::write(&path, "two").unwrap();
        assert_eq!(sources.verify(&source), Err(SourceError::Changed { path: path.clone() }));
        std::fs::write(&path, "longer").unwrap();
        assert_eq!(sources.verify(&source), Err(SourceError::Changed { path: path.clone() }));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(sources.verify(&source), Err(SourceError::Gone { .. })));
        std::fs::create_dir(&path).unwrap();
        assert_eq!(sources.verify(&source), Err(SourceError::Changed { path }));
    }

    #[test]
    fn a_file_written_twice_within_a_tick_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let (path, sources) = (directory.path().join("f"), Sources::default());
        std::fs::write(&path, "one").unwrap();
        let before = read_file(&path).unwrap();
        std::fs::write(&path, "two").unwrap();
        // Whatever the file system's clock says, the stat of a file that was not settled is not trusted.
        let same_tick = SourceFile { stat: FileStat::of(&std::fs::metadata(&path).unwrap()), ..before };
        assert_eq!(sources.verify(&same_tick), Err(SourceError::Changed { path }));
    }
}
