//! Caches the digests of files, so that large inputs are not read every time: (device, inode, size, mtime, ctime) →
//! digest, in the file `digests` of the store. The cache may be deleted, and `--verify` ignores it.
//!
//! A file is cached only if its times were some seconds in the past when it was read, and the same before and after: a
//! file written in the same tick of the clock could be written once more without a different `stat`.

use indicatif::{ProgressBar, ProgressStyle};
use onceflow_core::Digest;
use onceflow_store::values::FileStat;
use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// The name of the file, and its first line.
const NAME: &str = "digests";
const HEADING: &str = "onceflow digests 2";

/// The start of its last line, which has a digest of all the others: a damaged cache is ignored, because believing it
/// would keep every run from starting.
const SUM: &str = "sum ";

/// The most entries that are kept; those used in this process are the last to go.
const ENTRIES_MAX: usize = 100_000;

/// The cache is not rewritten for less than this.
const BYTES_MIN: u64 = 1 << 20;
const FILES_MIN: u64 = 256;

/// Reading a file smaller than this shows no bar.
const SHOWN_BYTES_MIN: u64 = 128 << 20;

/// The digest of a file, and its `stat` facts when it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileDigest {
    pub(crate) digest: Digest,
    pub(crate) len: u64,
    pub(crate) stat: FileStat,
    /// The file had been at rest by then, so that a later change of its content changes its `stat`.
    pub(crate) is_settled: bool,
}

/// The cache of digests.
pub(crate) struct Digests {
    path: PathBuf,
    /// A bar shows the progress of reading a large file.
    shows: bool,
    /// The entries, each with whether it was used in this process.
    known: BTreeMap<FileStat, (Digest, bool)>,
    /// Bytes and files read that can be cached.
    read_bytes: u64,
    read_files: u64,
}

impl Digests {
    /// Opens the cache of a store; empty if `verify`, so that every file is read again.
    pub(crate) fn open(store: &Path, verify: bool) -> Self {
        let path = store.join(NAME);
        let known = if verify { None } else { std::fs::read_to_string(&path).ok().and_then(|text| parse(&text)) };
        Digests { path, shows: false, known: known.unwrap_or_default(), read_bytes: 0, read_files: 0 }
    }

    /// Shows the progress of reading a large file, if on a terminal.
    pub(crate) fn shown(mut self, live: bool) -> Self {
        self.shows = live;
        self
    }

    /// Returns the digest of a file's content, and its length.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn of(&mut self, path: &Path) -> io::Result<(Digest, u64)> {
        self.find(path).map(|found| (found.digest, found.len))
    }

    /// Returns the digest of a file's content, and the file's `stat` facts when it was taken.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn find(&mut self, path: &Path) -> io::Result<FileDigest> {
        let stat = FileStat::of(&std::fs::metadata(path)?);
        if let Some((digest, asked)) = self.known.get_mut(&stat) {
            *asked = true;
            return Ok(FileDigest { digest: *digest, len: stat.len, stat, is_settled: true });
        }
        let (mut file, at_ns) = (onceflow_store::tree::open_regular(path)?, now_ns());
        let bar = (self.shows && stat.len >= SHOWN_BYTES_MIN).then(|| bar(path, stat.len));
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; usize::try_from(stat.len.clamp(512, 1 << 18)).unwrap_or(1 << 18)];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    hasher.update(&buffer[..n]);
                    bar.iter().for_each(|bar| bar.inc(n as u64));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bar.iter().for_each(ProgressBar::finish_and_clear);
        let digest = Digest::from(hasher.finalize());
        let after = FileStat::of(&file.metadata()?);
        let is_settled = after == stat && stat.is_settled(at_ns);
        if is_settled {
            self.known.insert(stat, (digest, true));
            self.read_bytes += stat.len;
            self.read_files += 1;
        }
        Ok(FileDigest { digest, len: after.len, stat: after, is_settled })
    }

    /// Writes the cache, if enough is new in it.
    pub(crate) fn save(&mut self) {
        if self.read_bytes < BYTES_MIN && self.read_files < FILES_MIN {
            return;
        }
        (self.read_bytes, self.read_files) = (0, 0);
        let mut entries: Vec<_> = self.known.iter().collect();
        if entries.len() > ENTRIES_MAX {
            entries.sort_by_key(|(_, (_, asked))| !asked);
            entries.truncate(ENTRIES_MAX);
        }
        let lines = entries.into_iter().map(|(look, (digest, _))| {
            let FileStat { device, inode, len, modified_ns, changed_ns } = look;
            format!("{device} {inode} {len} {modified_ns} {changed_ns} {digest}\n")
        });
        let text: String = std::iter::once(format!("{HEADING}\n")).chain(lines).collect();
        let text = summed(text);
        let beside = self.path.with_extension(std::process::id().to_string());
        let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, &self.path));
        if let Err(error) = written {
            tracing::debug!(%error, "digests of inputs are not remembered");
        }
    }
}

/// Makes the bar that shows the progress of reading a file.
fn bar(path: &Path, len: u64) -> ProgressBar {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let style = ProgressStyle::with_template("reading {msg}: {bytes} of {total_bytes}, {eta} left");
    let bar = ProgressBar::new(len).with_message(crate::words::clipped(&name));
    if let Ok(style) = style { bar.with_style(style) } else { bar }
}

fn now_ns() -> i128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(i128::MAX)
}

/// Appends the digest of a text to it.
fn summed(text: String) -> String {
    let sum = blake3::hash(text.as_bytes()).to_hex();
    format!("{text}{SUM}{sum}\n")
}

/// Parses the file; `None` if any of it is not what was written.
fn parse(text: &str) -> Option<BTreeMap<FileStat, (Digest, bool)>> {
    let (text, _) = text.rsplit_once(SUM).filter(|(before, _)| summed((*before).to_owned()) == text)?;
    let mut lines = text.lines();
    if lines.next() != Some(HEADING) {
        return None;
    }
    lines.map(entry).collect()
}

fn entry(line: &str) -> Option<(FileStat, (Digest, bool))> {
    let mut words = line.split(' ');
    let look = FileStat {
        device: words.next()?.parse().ok()?,
        inode: words.next()?.parse().ok()?,
        len: words.next()?.parse().ok()?,
        modified_ns: words.next()?.parse().ok()?,
        changed_ns: words.next()?.parse().ok()?,
    };
    let digest = Digest::from_hex(words.next()?)?;
    words.next().is_none().then_some((look, (digest, false)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    fn settle(path: &Path) {
        // A ctime cannot be set, so the check is made as if at a later time.
        let old = SystemTime::now() - Duration::from_secs(60);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    }

    #[test]
    fn a_file_written_a_moment_ago_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("f");
        std::fs::write(&file, "one").unwrap();
        let mut digests = Digests::open(directory.path(), false);
        let (one, _) = digests.of(&file).unwrap();
        settle(&file);
        let look = FileStat::of(&std::fs::metadata(&file).unwrap());
        assert!(
            !look.is_settled(now_ns()) && look.is_settled(now_ns() + 3 * onceflow_store::values::source::SETTLED_NS)
        );
        assert_eq!(digests.read_files, 0, "its times are of now");
        std::fs::write(&file, "two").unwrap();
        assert_ne!(digests.of(&file).unwrap().0, one);
    }

    #[test]
    fn a_remembered_digest_is_used_unless_verification_is_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("f");
        std::fs::write(&file, "one").unwrap();
        let look = FileStat::of(&std::fs::metadata(&file).unwrap());
        let mut digests = Digests::open(directory.path(), false);
        digests.known.insert(look, (Digest::from_bytes([7; 32]), true));
        digests.read_bytes = BYTES_MIN;
        digests.save();
        assert_eq!(Digests::open(directory.path(), false).of(&file).unwrap(), (Digest::from_bytes([7; 32]), 3));
        let right = Digest::of(b"one");
        assert_eq!(Digests::open(directory.path(), true).of(&file).unwrap(), (right, 3));
        std::fs::write(&file, "longer").unwrap();
        assert_ne!(Digests::open(directory.path(), false).of(&file).unwrap().0, Digest::from_bytes([7; 32]));
    }

    #[test]
    fn a_damaged_file_of_digests_is_forgotten() {
        for text in ["", "other 2\n", "onceflow digests 2\n1 2 3\n", "onceflow digests 2\n1 2 3 4 5 zz\n"] {
            assert!(parse(text).is_none() && parse(&summed(text.to_owned())).is_none(), "{text}");
        }
        assert_eq!(parse(&summed("onceflow digests 2\n".to_owned())).map(|known| known.len()), Some(0));
        let digest = blake3::hash(b"one").to_hex();
        let text = summed(format!("onceflow digests 2\n1 2 3 4 5 {digest}\n"));
        assert_eq!(parse(&text).map(|known| known.len()), Some(1));
        for at in 0..text.len() {
            let mut flipped = text.clone().into_bytes();
            flipped[at] ^= 1;
            let flipped = String::from_utf8(flipped).expect("only the last bit was changed");
            assert!(parse(&flipped).is_none(), "byte {at} of the hint was damaged:\n{flipped}");
        }
    }
}
