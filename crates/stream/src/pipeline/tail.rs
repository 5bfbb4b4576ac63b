//! Files that grow, come and are rotated, read as one stream of lines.
//!
//! A file is known by its inode and the beginning of its content, not by its name: one that is renamed is read on where
//! it was, one that is truncated or replaced is a new one. Files are merged by the time of their records: the next line
//! is always one of the file that is furthest behind, so that many files of the same time need little state, and none
//! of them is late.

mod find;
mod given;

pub use given::{GivenFile, GivenFiles};

use super::{
    content::{Content, id_of, named, unless_gone},
    lines::{LineDecoder, decode, watermark},
    source::{NextRecord, SplitReader, StreamSource},
};
use crate::{
    data::{self, StreamData},
    event_time::EventTime,
};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{Error, Result, Seek},
    path::{Path, PathBuf},
    sync::Arc,
};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes at the beginning of a file by which it is known again.
const HEAD_BYTES: u64 = 256;

/// Files that are read at a time: each takes a descriptor, and a part of every commit.
const FILES_MAX: usize = 1000;

/// How often a source that follows looks for new lines and files.
const LOOK_MS: u64 = 100;

/// A busy source looks at the clock once in so many lines.
const CALLS_PER_LOOK: u64 = 256;

/// Lists the files of a source.
pub type ListFiles = Arc<dyn Fn() -> Result<Vec<PathBuf>> + Send + Sync>;

/// Tells the time in milliseconds since 1970.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The lines of all files that a function lists, as one split.
pub struct FollowedFiles<T> {
    settings: TailSettings<T>,
}

struct TailSettings<T> {
    list: ListFiles,
    decoder: LineDecoder<T>,
    clock: Clock,
    follow: bool,
    out_of_order_ms: i64,
    idle_ms: u64,
}

impl<T> Clone for TailSettings<T> {
    fn clone(&self) -> Self {
        TailSettings { list: self.list.clone(), decoder: self.decoder.clone(), clock: self.clock.clone(), ..*self }
    }
}

impl<T> FollowedFiles<T> {
    /// Returns the lines of these files; it ends when all of them are read.
    pub fn new(list: ListFiles, decoder: LineDecoder<T>, clock: Clock) -> Self {
        let settings = TailSettings { list, decoder, clock, follow: false, out_of_order_ms: 0, idle_ms: 10_000 };
        FollowedFiles { settings }
    }

    /// Waits for more lines and more files instead of ending.
    #[must_use]
    pub fn follow(self, follow: bool) -> Self {
        FollowedFiles { settings: TailSettings { follow, ..self.settings } }
    }

    /// Lines may be up to this much earlier than one before them in the same file; others are late.
    #[must_use]
    pub fn out_of_order_ms(self, out_of_order_ms: i64) -> Self {
        FollowedFiles { settings: TailSettings { out_of_order_ms, ..self.settings } }
    }

    /// A file without new lines for so long no longer holds the watermark back.
    #[must_use]
    pub fn idle_ms(self, idle_ms: u64) -> Self {
        FollowedFiles { settings: TailSettings { idle_ms, ..self.settings } }
    }
}

/// A file, and how far it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FilePosition {
    path: PathBuf,
    id: (u64, u64),
    /// The length of the beginning that was read, and its hash.
    head: (u64, u64),
    offset: u64,
    latest: EventTime,
}

struct TailedFile {
    at: FilePosition,
    content: Content,
    head: Vec<u8>,
    line: Vec<u8>,
    /// It had no line when it was last asked.
    is_at_end: bool,
    /// Since when it has had no line.
    resting_since: Option<u64>,
    is_listed: bool,
}

impl TailedFile {
    /// Opens a file at its beginning.
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(named(path))?;
        let id = id_of(&file.metadata().map_err(named(path))?);
        let at = FilePosition { path: path.to_owned(), id, head: (0, xxh3_64(&[])), offset: 0, latest: EventTime::MIN };
        let content = Content::of(file).map_err(named(path))?;
        Ok(TailedFile {
            at,
            content,
            head: Vec::new(),
            line: Vec::new(),
            is_at_end: false,
            resting_since: None,
            is_listed: true,
        })
    }

    /// Takes up a position, if this is the file that it belongs to.
    fn resume(mut self, at: &FilePosition) -> Result<Option<Self>> {
        let head = self.content.read_head(at.head.0).map_err(named(&self.at.path))?;
        if (head.len() as u64, xxh3_64(&head)) != at.head
            || !self.content.go_to(at.offset, at.head.0).map_err(named(&self.at.path))?
        {
            return Ok(None);
        }
        let path = self.at.path.clone();
        Ok(Some(TailedFile { at: FilePosition { path, ..at.clone() }, head, ..self }))
    }

    /// Returns the next line; `None` if it has no whole one.
    fn next_line(&mut self, is_last: bool) -> Result<Option<Vec<u8>>> {
        let is_whole = self.content.read_line(&mut self.line).map_err(named(&self.at.path))?;
        if !is_whole && (!is_last || self.line.is_empty()) {
            return Ok(None);
        }
        let line = std::mem::take(&mut self.line);
        if self.at.offset < HEAD_BYTES {
            let room = usize::try_from(HEAD_BYTES - self.at.offset).unwrap_or(0);
            self.head.extend_from_slice(&line[..line.len().min(room)]);
            self.at.head = (self.head.len() as u64, xxh3_64(&self.head));
        }
        self.at.offset += line.len() as u64;
        self.resting_since = None;
        Ok(Some(line))
    }

    /// Reads a file that was truncated from its beginning again.
    fn look_for_truncation(&mut self) -> Result<()> {
        // Compressed files are whole, and read once: they do not change.
        let Content::Plain(file) = &mut self.content else { return Ok(()) };
        let len = file.get_ref().metadata().map_err(named(&self.at.path))?.len();
        if len < self.at.offset + self.line.len() as u64 {
            file.rewind().map_err(named(&self.at.path))?;
            self.head.clear();
            self.line.clear();
            (self.at.head, self.at.offset) = ((0, xxh3_64(&[])), 0);
        }
        Ok(())
    }
}

struct Tailing<T> {
    settings: TailSettings<T>,
    files: Vec<TailedFile>,
    looked_ms: u64,
    now_ms: u64,
    calls: u64,
    bytes_read: u64,
}

impl<T: StreamData> StreamSource for FollowedFiles<T> {
    type Item = T;

    fn splits(&self) -> u16 {
        1
    }

    fn open(&self, _: u16, position: Option<&[u8]>) -> Result<Box<dyn SplitReader<T>>> {
        let positions: Vec<FilePosition> = match position {
            Some(bytes) => data::decode(bytes).map_err(Error::other)?,
            None => Vec::new(),
        };
        let settings = self.settings.clone();
        let now_ms = (settings.clock)();
        let mut tailing = Tailing { settings, files: Vec::new(), looked_ms: now_ms, now_ms, calls: 0, bytes_read: 0 };
        for position in &positions {
            tailing.files.extend(find::find(position)?);
        }
        tailing.look()?;
        Ok(Box::new(tailing))
    }
}

impl<T> Tailing<T> {
    /// Reads the clock, and looks for changes if it is time to; true if it did.
    fn look_if_due(&mut self) -> Result<bool> {
        self.now_ms = (self.settings.clock)();
        // A clock that was set back must not put the next look off by as much.
        let has_passed = self.now_ms < self.looked_ms || self.now_ms - self.looked_ms >= LOOK_MS;
        let is_due = self.settings.follow && has_passed;
        if is_due {
            self.look()?;
        }
        Ok(is_due)
    }

    /// Looks for files that are new, renamed, truncated or gone.
    fn look(&mut self) -> Result<()> {
        self.looked_ms = self.now_ms;
        self.files.iter_mut().for_each(|file| (file.is_listed, file.is_at_end) = (false, false));
        for path in (self.settings.list)()? {
            // A file may go between the listing and this; any other failure must not make a known file a new one.
            let Some(metadata) = unless_gone(path.metadata()).map_err(named(&path))? else { continue };
            let id = id_of(&metadata);
            match self.files.iter().position(|file| file.at.id == id) {
                Some(at) => (self.files[at].is_listed, self.files[at].at.path) = (true, path),
                None if self.files.len() >= FILES_MAX => {
                    return Err(Error::other(format!("more than {FILES_MAX} files are read at a time")));
                }
                None => {
                    let opened = unless_gone(TailedFile::open(&path))?;
                    if self.settings.follow && opened.as_ref().is_some_and(|file| file.content.is_compressed()) {
                        return Err(Error::other(format!(
                            "{} is compressed: only whole compressed files can be read, so they cannot be followed",
                            path.display()
                        )));
                    }
                    self.files.extend(opened);
                }
            }
        }
        for file in &mut self.files {
            file.look_for_truncation()?;
        }
        let (now, idle_ms) = (self.now_ms, self.settings.idle_ms);
        let rests = |file: &TailedFile| file.resting_since.is_some_and(|since| now >= since.saturating_add(idle_ms));
        self.files.retain(|file| file.is_listed || !rests(file));
        Ok(())
    }

    /// Returns the number of the file that is furthest behind and may have a line.
    fn furthest_behind(&self) -> Option<usize> {
        let waiting = self.files.iter().enumerate().filter(|(_, file)| !file.is_at_end);
        waiting.min_by(|(_, a), (_, b)| (a.at.latest, &a.at.path).cmp(&(b.at.latest, &b.at.path))).map(|(at, _)| at)
    }
}

impl<T: StreamData> SplitReader<T> for Tailing<T> {
    fn next(&mut self) -> Result<NextRecord<T>> {
        if self.calls.is_multiple_of(CALLS_PER_LOOK) {
            self.look_if_due()?;
        }
        self.calls += 1;
        loop {
            let Some(at) = self.furthest_behind() else {
                if !self.settings.follow {
                    return Ok(NextRecord::Ended);
                }
                if !self.look_if_due()? {
                    return Ok(NextRecord::Pending);
                }
                continue;
            };
            let (now_ms, file) = (self.now_ms, &mut self.files[at]);
            let Some(line) = file.next_line(!self.settings.follow)? else {
                file.is_at_end = true;
                file.resting_since.get_or_insert(now_ms);
                continue;
            };
            let start = file.at.offset - line.len() as u64;
            self.bytes_read += line.len() as u64;
            let next = decode(&self.settings.decoder, &line, || format!("{}, byte {start}", file.at.path.display()))?;
            if let NextRecord::Record(_, time) = &next {
                file.at.latest = file.at.latest.max(*time);
            }
            return Ok(next);
        }
    }

    fn position(&self) -> Vec<u8> {
        data::encode(&self.files.iter().map(|file| &file.at).collect::<Vec<_>>())
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    fn watermark(&self) -> EventTime {
        let idle_ms = if self.settings.follow { self.settings.idle_ms } else { 0 };
        let holds =
            |file: &&TailedFile| file.resting_since.is_none_or(|since| self.now_ms < since.saturating_add(idle_ms));
        let held = self.files.iter().filter(holds).map(|file| file.at.latest).min();
        let latest = held.or_else(|| self.files.iter().map(|file| file.at.latest).max()).unwrap_or(EventTime::MIN);
        watermark(latest, self.settings.out_of_order_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Bed {
        directory: tempfile::TempDir,
        now: Arc<AtomicU64>,
    }

    impl Bed {
        fn new() -> Self {
            Bed { directory: tempfile::tempdir().unwrap(), now: Arc::default() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn append(&self, name: &str, text: &str) {
            use std::io::Write;
            let mut file = File::options().create(true).append(true).open(self.path(name)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        fn open(&self, follow: bool, position: Option<&[u8]>) -> Box<dyn SplitReader<String>> {
            self.try_open(follow, position).unwrap()
        }

        fn try_open(&self, follow: bool, position: Option<&[u8]>) -> Result<Box<dyn SplitReader<String>>> {
            let (directory, now) = (self.directory.path().to_owned(), self.now.clone());
            let list: ListFiles = Arc::new(move || {
                let entries = std::fs::read_dir(&directory)?.flatten().map(|entry| entry.path());
                let mut logs: Vec<_> =
                    entries.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
                logs.sort();
                Ok(logs)
            });
            let time = |line: &str| EventTime(line.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0));
            let decoder: LineDecoder<String> = Arc::new(move |line| Ok((line.to_owned(), time(line))));
            let clock: Clock = Arc::new(move || now.load(Ordering::SeqCst));
            FollowedFiles::new(list, decoder, clock).follow(follow).idle_ms(1000).open(0, position)
        }

        fn later(&self, ms: u64) {
            self.now.fetch_add(ms, Ordering::SeqCst);
        }
    }

    fn lines(reader: &mut dyn SplitReader<String>) -> Vec<String> {
        let next = || match reader.next().unwrap() {
            NextRecord::Record(line, _) => Some(line),
            NextRecord::Skipped | NextRecord::Pending | NextRecord::Ended => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn files_are_merged_by_time_and_the_watermark_is_that_of_the_one_furthest_behind() {
        let bed = Bed::new();
        bed.append("a.log", "10 a\n30 a\n50 a\n");
        bed.append("b.log", "20 b\n40 b");
        let mut reader = bed.open(false, None);
        let first: Vec<_> = (0..3).map(|_| reader.next().unwrap()).collect();
        assert_eq!(first.last(), Some(&NextRecord::Record("30 a".into(), EventTime(30))));
        assert_eq!(reader.watermark(), EventTime(20));
        let position = reader.position();
        assert_eq!(lines(&mut *reader), ["40 b", "50 a"]);
        assert_eq!(reader.next().unwrap(), NextRecord::Ended);
        assert_eq!(lines(&mut *bed.open(false, Some(&position))), ["40 b", "50 a"]);
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn compressed_files_are_read_with_the_others_and_go_on_at_every_line() {
        let bed = Bed::new();
        let text: String = (0..400).map(|n| format!("{} packed\n", 2 * n)).collect();
        let (first, second) = text.split_at(2000);
        std::fs::write(bed.path("a.log"), [gzip(first), gzip(second)].concat()).unwrap();
        bed.append("b.log", &(0..400).map(|n| format!("{} plain\n", 2 * n + 1)).collect::<String>());
        let mut reader = bed.open(false, None);
        let mut positions = Vec::new();
        let all: Vec<_> = std::iter::from_fn(|| {
            positions.push(reader.position());
            match reader.next().unwrap() {
                NextRecord::Record(line, _) => Some(line),
                _ => None,
            }
        })
        .collect();
        let expected: Vec<_> =
            (0..800).map(|n| format!("{n} {}", if n % 2 == 0 { "packed" } else { "plain" })).collect();
        assert_eq!(all, expected);
        for (at, position) in positions.iter().enumerate() {
            assert_eq!(lines(&mut *bed.open(false, Some(position))), expected[at..], "from line {at}");
        }
    }

    #[test]
    fn a_compressed_file_that_ends_early_stops_with_its_name_and_one_is_not_followed() {
        let bed = Bed::new();
        let packed = gzip(&"1 packed\n".repeat(1000));
        std::fs::write(bed.path("a.log"), &packed[..packed.len() - 9]).unwrap();
        let mut reader = bed.open(false, None);
        let error = std::iter::from_fn(|| Some(reader.next())).find_map(Result::err).unwrap().to_string();
        assert!(error.contains("a.log"), "{error}");
        let refused = bed.try_open(true, None).err().unwrap().to_string();
        assert!(refused.contains("a.log is compressed") && refused.contains("cannot be followed"), "{refused}");
    }

    #[test]
    fn a_rotated_file_is_read_to_its_end_and_its_successor_from_the_beginning() {
        let bed = Bed::new();
        bed.append("web.log", "1\n2\n");
        let mut reader = bed.open(true, None);
        assert_eq!(lines(&mut *reader), ["1", "2"]);
        let position = reader.position();
        bed.append("web.log", "3\n");
        std::fs::rename(bed.path("web.log"), bed.path("web.1")).unwrap();
        bed.append("web.log", "4\n");
        bed.later(LOOK_MS);
        let sorted = |reader: &mut dyn SplitReader<String>| {
            let mut lines = lines(reader);
            lines.sort();
            lines
        };
        assert_eq!(sorted(&mut *reader), ["3", "4"]);
        assert_eq!(sorted(&mut *bed.open(true, Some(&position))), ["3", "4"], "also after a restart");
    }

    #[test]
    fn truncated_and_replaced_files_are_new_and_a_line_waits_for_its_end() {
        let bed = Bed::new();
        bed.append("web.log", "1\n2");
        let mut reader = bed.open(true, None);
        assert_eq!(lines(&mut *reader), ["1"]);
        bed.append("web.log", "0\n");
        bed.later(LOOK_MS);
        assert_eq!(lines(&mut *reader), ["20"]);
        let position = reader.position();
        std::fs::write(bed.path("web.log"), "3\n").unwrap();
        bed.later(LOOK_MS);
        assert_eq!(lines(&mut *reader), ["3"]);
        assert_eq!(lines(&mut *bed.open(true, Some(&position))), ["3"], "also after a restart");
    }

    #[test]
    fn a_silent_file_holds_the_watermark_back_only_until_it_is_idle() {
        let bed = Bed::new();
        bed.append("a.log", "10\n");
        bed.append("b.log", "50\n");
        let mut reader = bed.open(true, None);
        assert_eq!(lines(&mut *reader), ["10", "50"]);
        assert_eq!(reader.watermark(), EventTime(10));
        bed.later(1000);
        bed.append("b.log", "60\n");
        assert_eq!(lines(&mut *reader), ["60"]);
        assert_eq!(reader.watermark(), EventTime(60));
    }
}
