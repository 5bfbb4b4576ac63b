//! Remembers the digests of files of this machine that were read: a file is read for its digest once, and again only
//! when its `stat` differs (device, inode, size, time of change, time of status change).
//!
//! The digest is a fact about an inode, so one table serves the whole process. A directory of objects
//! keeps a copy of its part in a file, so that the next process need not read everything again: a hint, which may be
//! lost or deleted at any time, and of which every entry carries a checksum.

use super::{ContentInfo, Digest};
use std::{
    collections::HashMap,
    fs::{self, Metadata},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex, MutexGuard, Once, PoisonError},
};

/// Files remembered by a process: some ten megabytes. More are forgotten, and read again when they are asked for.
const FILES_MAX: usize = 100_000;

/// The size up to which the file of hints is read as it is; a larger one is first rid of hints of deleted objects.
const HINT_BYTES_PLAIN: u64 = 64 << 10;

/// The `stat` facts that change whenever a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Look {
    #[cfg(unix)]
    pub(super) fn of(metadata: &Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        Some(Look {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    #[cfg(not(unix))]
    pub(super) fn of(_: &Metadata) -> Option<Self> {
        None
    }

    /// The file was not written to in between, though it may have got or lost a name.
    fn has_the_bytes_of(&self, other: &Look) -> bool {
        (self.device, self.inode, self.size, self.modified) == (other.device, other.inode, other.size, other.modified)
    }
}

/// The verified digest of a file, and its `stat` facts then.
#[derive(Clone, Copy)]
struct Known {
    look: Look,
    digest: Digest,
    /// Hard links to it come and go.
    has_names: bool,
}

impl Known {
    /// The digest is that of a file with this `stat`.
    fn is_of(&self, look: &Look) -> bool {
        self.look == *look || self.has_names && self.look.has_the_bytes_of(look)
    }
}

type Table = HashMap<(u64, u64), Known>;

static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn insert(table: &mut Table, look: Look, digest: Digest) {
    if table.len() >= FILES_MAX {
        table.clear();
    }
    table.insert((look.device, look.inode), Known { look, digest, has_names: false });
}

/// The length and digest of a file with this `stat`, if it was read since the `stat` last changed.
fn known(look: &Look) -> Option<ContentInfo> {
    let table = table();
    let known = table.get(&(look.device, look.inode))?;
    known.is_of(look).then_some(ContentInfo { len: look.size, digest: known.digest })
}

/// Gives a file one more name. Its digest stays known until the process ends or its bytes change: names that come and
/// go change its status time, so from now on its size and modification time tell whether the bytes changed.
///
/// # Errors
/// If the file system refuses.
pub fn link(file: &Path, name: &Path) -> io::Result<()> {
    let mut table = table();
    let before = Look::of(&fs::metadata(file)?);
    fs::hard_link(file, name)?;
    if let Some(before) = before
        && let Some(known) = table.get_mut(&(before.device, before.inode))
        && known.is_of(&before)
    {
        known.has_names = true;
    }
    Ok(())
}

/// The digests that a directory remembers across processes.
#[derive(Debug)]
pub(super) struct Hints {
    path: PathBuf,
    objects: PathBuf,
    loaded: Once,
}

impl Hints {
    pub(super) fn new(path: PathBuf, objects: PathBuf) -> Self {
        Hints { path, objects, loaded: Once::new() }
    }

    /// The digest of a file: remembered, or computed now.
    pub(super) fn stored(&self, path: &Path) -> io::Result<ContentInfo> {
        self.loaded.call_once(|| self.load());
        let mut file = fs::File::open(path)?;
        let before = Look::of(&file.metadata()?);
        if let Some(known) = before.as_ref().and_then(known) {
            return Ok(known);
        }
        let stored = super::directory::digest_open(&mut file)?;
        self.remember(path, before, stored);
        Ok(stored)
    }

    /// Records the digest of a file whose `stat` before reading was `before`. Records nothing if it was written to
    /// since.
    pub(super) fn remember(&self, path: &Path, before: Option<Look>, stored: ContentInfo) {
        let Some(after) = fs::metadata(path).ok().and_then(|metadata| Look::of(&metadata)) else { return };
        if !before.is_some_and(|before| after.has_the_bytes_of(&before)) || after.size != stored.len {
            return;
        }
        insert(&mut table(), after, stored.digest);
        let written = fs::File::options().append(true).create(true).open(&self.path);
        // If the hint cannot be written, a later process reads the file again.
        let _hint = written.and_then(|mut file| file.write_all(&entry(&after, stored.digest)));
    }

    /// Forgets everything, if there is no object any more.
    pub(super) fn forget_if_empty(&self) {
        if fs::read_dir(&self.objects).is_ok_and(|mut entries| entries.next().is_none()) {
            let _gone_or_harmless = fs::remove_file(&self.path);
        }
    }

    fn load(&self) {
        let Ok(bytes) = fs::read(&self.path) else { return };
        let (entries, _cut) = bytes.as_chunks::<ENTRY>();
        let mut found: Vec<_> = entries.iter().filter_map(|bytes| Some((bytes, read(bytes)?))).collect();
        if bytes.len() as u64 > HINT_BYTES_PLAIN {
            let there = self.inodes().unwrap_or_default();
            found.retain(|(_, (look, _))| there.contains(&look.inode));
            let latest: HashMap<_, _> = found.iter().map(|(bytes, (look, _))| (look.inode, *bytes)).collect();
            if latest.len() * 2 < entries.len() {
                let kept: Vec<u8> = latest.into_values().flatten().copied().collect();
                let next = self.path.with_extension("next");
                let _hint = fs::write(&next, kept).and_then(|()| fs::rename(&next, &self.path));
            }
        }
        let mut table = table();
        for (_, (look, digest)) in found {
            insert(&mut table, look, digest);
        }
    }

    #[cfg(unix)]
    fn inodes(&self) -> io::Result<std::collections::HashSet<u64>> {
        use std::os::unix::fs::DirEntryExt;
        fs::read_dir(&self.objects)?.map(|entry| Ok(entry?.ino())).collect()
    }

    #[cfg(not(unix))]
    fn inodes(&self) -> io::Result<std::collections::HashSet<u64>> {
        Ok(Default::default())
    }
}

/// Bytes of a hint: seven numbers, a digest, a checksum.
const ENTRY: usize = 7 * 8 + Digest::BYTES + 4;

fn entry(look: &Look, digest: Digest) -> [u8; ENTRY] {
    let times = [look.modified.0, look.modified.1, look.changed.0, look.changed.1].map(i64::to_le_bytes);
    let numbers = [look.device, look.inode, look.size].map(u64::to_le_bytes);
    let mut bytes = [numbers.concat(), times.concat(), digest.to_bytes().to_vec()].concat();
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes.try_into().expect("an entry has its length")
}

fn read(bytes: &[u8; ENTRY]) -> Option<(Look, Digest)> {
    let (body, sum) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(body) != u32::from_le_bytes(*sum) {
        return None;
    }
    let (numbers, digest) = body.split_last_chunk::<{ Digest::BYTES }>()?;
    let (numbers, _) = numbers.as_chunks::<8>();
    let number = |at: usize| u64::from_le_bytes(numbers[at]);
    let time = |at: usize| (number(at) as i64, number(at + 1) as i64);
    let look = Look { device: number(0), inode: number(1), size: number(2), modified: time(3), changed: time(5) };
    Some((look, Digest::from_bytes(*digest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(directory: &Path) -> Hints {
        Hints::new(directory.join("verified"), directory.join("objects"))
    }

    fn look(path: &Path) -> Look {
        Look::of(&fs::metadata(path).unwrap()).unwrap()
    }

    #[test]
    fn a_file_is_read_again_only_when_it_looks_different() {
        let place = tempfile::tempdir().unwrap();
        let (hints, file) = (hints(place.path()), place.path().join("file"));
        fs::write(&file, "one").unwrap();
        let one = hints.stored(&file).unwrap();
        assert_eq!(known(&look(&file)), Some(one));
        fs::write(&file, "other").unwrap();
        assert_eq!(known(&look(&file)), None);
        assert_eq!(hints.stored(&file).unwrap(), ContentInfo { len: 5, digest: Digest::of(b"other") });
    }

    #[test]
    fn names_that_come_and_go_are_no_change_and_bytes_are() {
        let place = tempfile::tempdir().unwrap();
        let (hints, file, name) = (hints(place.path()), place.path().join("file"), place.path().join("name"));
        fs::write(&file, "one").unwrap();
        let one = hints.stored(&file).unwrap();
        link(&file, &name).unwrap();
        assert_eq!(known(&look(&file)), Some(one));
        fs::remove_file(&name).unwrap();
        assert_eq!(known(&look(&file)), Some(one));
        link(&file, &name).unwrap();
        fs::write(&name, "changed through its other name").unwrap();
        assert_eq!(known(&look(&file)), None);
        fs::remove_file(&name).unwrap();
        assert_eq!(known(&look(&file)), None);
    }

    #[test]
    fn a_hint_is_believed_only_if_it_is_whole() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "one").unwrap();
        let entry = entry(&look(&file), Digest::of(b"one"));
        assert_eq!(read(&entry), Some((look(&file), Digest::of(b"one"))));
        for at in 0..ENTRY {
            let mut bytes = entry;
            bytes[at] ^= 1;
            assert_eq!(read(&bytes), None, "byte {at}");
        }
    }

    #[test]
    fn persisted_verification_marks_go_with_the_last_object() {
        let place = tempfile::tempdir().unwrap();
        let (hints, objects) = (hints(place.path()), place.path().join("objects"));
        fs::create_dir(&objects).unwrap();
        fs::write(objects.join("o"), "one").unwrap();
        hints.stored(&objects.join("o")).unwrap();
        hints.forget_if_empty();
        assert!(place.path().join("verified").exists());
        fs::remove_file(objects.join("o")).unwrap();
        hints.forget_if_empty();
        assert!(!place.path().join("verified").exists());
    }
}
