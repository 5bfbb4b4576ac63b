//! Sinks: where results go. A sink gets chunks of whole records that are stored already, so a chunk that is written
//! again after a crash is the same: same number, same offset, same bytes. A sink that can tell has each once.

use crate::{error::StreamError, event_time::EventTime};
use onceflow_core::Row;
use onceflow_store::BoxFuture;
use std::{
    fs::{File, OpenOptions},
    io::{Error, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Some records of one partition for a sink, encoded one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkChunk {
    /// The name of the part that the records are in; empty for a sink that has no [parts](StreamSink::parts).
    pub part: String,
    /// How many chunks of this partition came before: with the partition it is the chunk's idempotency key.
    pub number: u64,
    /// How many bytes of this partition, and part, came before.
    pub offset: u64,
    /// The CRC-32 of those earlier bytes, by which a file is known to be this partition's.
    pub crc_before: u32,
    /// The records.
    pub bytes: Row,
}

impl SinkChunk {
    pub(crate) fn to_row(&self) -> Row {
        let (number, offset, crc) =
            (self.number.to_be_bytes(), self.offset.to_be_bytes(), self.crc_before.to_be_bytes());
        let part_bytes = u16::try_from(self.part.len()).expect("the name of a part fits the name of a row");
        Row::from([&number[..], &offset, &crc, &part_bytes.to_be_bytes(), self.part.as_bytes(), &self.bytes].concat())
    }

    pub(crate) fn from_row(row: &Row) -> Result<Self, StreamError> {
        let damaged = || StreamError::Damaged("a chunk for a sink cannot be decoded");
        let (number, rest) = row.split_first_chunk::<8>().ok_or_else(damaged)?;
        let (offset, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
        let (crc, rest) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
        let (part_bytes, rest) = rest.split_first_chunk::<2>().ok_or_else(damaged)?;
        let (part, bytes) = rest.split_at_checked(usize::from(u16::from_be_bytes(*part_bytes))).ok_or_else(damaged)?;
        Ok(SinkChunk {
            part: std::str::from_utf8(part).map_err(|_| damaged())?.to_owned(),
            number: u64::from_be_bytes(*number),
            offset: u64::from_be_bytes(*offset),
            crc_before: u32::from_be_bytes(*crc),
            bytes: Row::from(bytes),
        })
    }
}

/// A part of a sink that is written apart from the others, such as the file of a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkPart {
    /// Its name.
    pub name: String,
    /// The event time at which it begins.
    pub start: EventTime,
    /// The event time at which it ends; a watermark that has reached it seals the part.
    pub end: EventTime,
}

/// Divides the records of a sink into parts by their event time.
pub trait SinkParts: Send + Sync {
    /// Returns the part of the records of this time; the same part for every time from its start to its end.
    ///
    /// # Errors
    /// If no part can have the time; the message is the reason.
    fn of(&self, time: EventTime) -> Result<SinkPart, String>;
}

/// Where records go. The contract: writing a chunk twice has the effect of writing it once, and when
/// [`SinkWriter::write`] has returned, the chunk outlives a crash. A sink that cannot keep the first half may see a
/// chunk twice after a crash.
pub trait StreamSink: Send + Sync + 'static {
    /// Opens the part of the sink for one of so many partitions.
    ///
    /// # Errors
    /// If it cannot be written to; the pipeline ends with this error.
    fn open(&self, partition: u16, of: u16) -> std::io::Result<Box<dyn SinkWriter>>;

    /// Returns the rule by which its records are in parts, each with offsets of its own; `None` if it is one whole. The
    /// writers of a sink with parts write at once, without [`WriteProgress::Going`].
    fn parts(&self) -> Option<Arc<dyn SinkParts>> {
        None
    }
}

/// The progress of a write that was begun.
pub enum WriteProgress {
    /// The chunk is written.
    Done,
    /// It is written when this ends. Dropped, it may be written or not; the same chunk comes again.
    Going(BoxFuture<'static, std::io::Result<()>>),
}

/// Writes the chunks of one partition.
pub trait SinkWriter: Send {
    /// Hears, before any chunk of a part (of all, if the sink has no parts), that its first `written` bytes are written,
    /// and that chunks up to `committed` bytes may be written. A sink that finds anything else in its place refuses here,
    /// before it loses it.
    ///
    /// # Errors
    /// If the place holds what this partition did not write; the pipeline ends with this error.
    fn resume(&mut self, part: &str, written: u64, committed: u64) -> std::io::Result<()> {
        let _ = (part, written, committed);
        Ok(())
    }

    /// Hears that the watermark has passed a part, all chunks of which are written: only a late record brings another.
    /// Called again after a crash.
    ///
    /// # Errors
    /// If the part cannot be sealed; the pipeline ends with this error.
    fn seal(&mut self, part: &str) -> std::io::Result<()> {
        let _ = part;
        Ok(())
    }

    /// The bytes of a sealed part are not there any more: they were moved away. A late record begins the part anew.
    ///
    /// # Errors
    /// If that cannot be known; the pipeline ends with this error.
    fn is_gone(&mut self, part: &str) -> std::io::Result<bool> {
        let _ = part;
        Ok(false)
    }

    /// Begins to write a chunk; the next one of this sink comes when it is written. A sink that waits for others, as over a
    /// network, returns a future; all others write at once.
    ///
    /// # Errors
    /// If it was not written; the pipeline ends with this error.
    fn begin_write(&mut self, chunk: &SinkChunk) -> std::io::Result<WriteProgress> {
        self.write(chunk).map(|()| WriteProgress::Done)
    }

    /// Writes a chunk. Chunks come in order; after a crash the last ones may come again.
    ///
    /// # Errors
    /// If it was not written; the pipeline ends with this error.
    fn write(&mut self, chunk: &SinkChunk) -> std::io::Result<()>;
}

/// A file, exactly once: every byte has its place, and is written there however often. With several partitions the file
/// of partition 2 is `NAME.2`. Only one process at a time writes a partition, and a reader sees only committed records,
/// the last of them perhaps in part.
///
/// A file that holds anything else is refused and left as it is: no byte is replaced by another, and nothing is cut off.
#[derive(Clone, Debug)]
pub struct FileSink {
    path: PathBuf,
}

impl FileSink {
    /// Returns the sink that writes this file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        FileSink { path: path.into() }
    }
}

/// A file that is written at the places of its chunks.
pub(super) struct WritingFile {
    path: PathBuf,
    file: File,
    /// A device or a pipe has no bytes that could be compared.
    is_plain: bool,
}

impl StreamSink for FileSink {
    fn open(&self, partition: u16, of: u16) -> std::io::Result<Box<dyn SinkWriter>> {
        Ok(Box::new(WritingFile::open(partition_path(&self.path, partition, of))?))
    }
}

/// Returns the path of the file of a partition: with several, the number is behind the name.
pub(super) fn partition_path(path: &Path, partition: u16, of: u16) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    if of > 1 {
        path.push(format!(".{partition}"));
    }
    PathBuf::from(path)
}

/// Existing bytes are those that are about to be written. Zeros at their end are a hole that a power failure left.
pub(crate) fn is_same_but_for_hole(existing: &[u8], bytes: &[u8]) -> bool {
    let same = existing.iter().zip(bytes).take_while(|(existing, byte)| existing == byte).count();
    existing.len() <= bytes.len() && existing[same..].iter().all(|byte| *byte == 0)
}

/// The error that leaves a file of another as it is.
pub(super) fn refused(path: &Path, found: &str) -> Error {
    Error::other(format!(
        "{} holds {found}: the file is left as it is; move it away, or name another file",
        path.display()
    ))
}

/// Fails if a file of this length holds anything but the bytes of its partition.
pub(super) fn check_length(path: &Path, length: u64, written: u64, committed: u64) -> std::io::Result<()> {
    if length > committed {
        return Err(refused(
            path,
            &match committed {
                0 => format!("{length} bytes that this stream did not write"),
                _ => format!("{length} bytes, of which this stream wrote {committed} at most"),
            },
        ));
    }
    if length < written {
        return Err(refused(path, &format!("{length} bytes, though this stream has written {written}")));
    }
    Ok(())
}

impl WritingFile {
    /// Opens a file, or creates it.
    pub(super) fn open(path: PathBuf) -> std::io::Result<Self> {
        let named = |error| Error::other(format!("{}: {error}", path.display()));
        let options = OpenOptions::new().create(true).read(true).write(true).truncate(false).open(&path);
        // A pipe or a device may be writable only.
        let file = options.or_else(|_| OpenOptions::new().write(true).open(&path)).map_err(named)?;
        let is_plain = file.metadata().map_err(named)?.is_file();
        Ok(WritingFile { path, file, is_plain })
    }

    fn refused(&self, found: &str) -> Error {
        refused(&self.path, found)
    }

    /// Fails unless the file can take these bytes at this place without losing any other.
    fn check_place(&self, chunk: &SinkChunk) -> std::io::Result<()> {
        let length = self.file.metadata()?.len();
        if length < chunk.offset {
            return Err(self.refused(&format!("{length} bytes, though this stream has written {}", chunk.offset)));
        }
        let overlap = usize::try_from(length - chunk.offset).unwrap_or(usize::MAX).min(chunk.bytes.len());
        let mut existing = vec![0; overlap];
        self.file.read_exact_at(&mut existing, chunk.offset)?;
        match is_same_but_for_hole(&existing, &chunk.bytes) {
            true => Ok(()),
            false => Err(self.refused(&format!("bytes from {} on that this stream did not write", chunk.offset))),
        }
    }
}

impl SinkWriter for WritingFile {
    fn resume(&mut self, _: &str, written: u64, committed: u64) -> std::io::Result<()> {
        let length = self.file.metadata()?.len();
        if self.is_plain { check_length(&self.path, length, written, committed) } else { Ok(()) }
    }

    fn write(&mut self, chunk: &SinkChunk) -> std::io::Result<()> {
        if !self.is_plain {
            return self.file.write_all(&chunk.bytes);
        }
        self.check_place(chunk)?;
        self.file.write_all_at(&chunk.bytes, chunk.offset)?;
        self.file.sync_data()
    }
}

/// Standard output. It cannot take anything back: after a crash the last records may be printed again.
#[derive(Clone)]
pub struct StdoutSink(Arc<Mutex<dyn Write + Send>>);

impl StdoutSink {
    /// Returns the sink that writes to the standard output of this process.
    pub fn new() -> Self {
        StdoutSink::of(std::io::stdout())
    }

    /// Returns the sink that writes to something else in the same way.
    pub fn of(output: impl Write + Send + 'static) -> Self {
        StdoutSink(Arc::new(Mutex::new(output)))
    }
}

impl Default for StdoutSink {
    fn default() -> Self {
        StdoutSink::new()
    }
}

impl StreamSink for StdoutSink {
    fn open(&self, _: u16, _: u16) -> std::io::Result<Box<dyn SinkWriter>> {
        Ok(Box::new(self.clone()))
    }
}

impl SinkWriter for StdoutSink {
    fn write(&mut self, chunk: &SinkChunk) -> std::io::Result<()> {
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        output.write_all(&chunk.bytes)?;
        output.flush()
    }
}
