//! Sinks: where results go. A sink gets chunks of whole records that are stored already, so a chunk that is written
//! again after a crash is the same: same number, same offset, same bytes. A sink that can tell has each once.

use crate::error::StreamError;
use onceflow_core::Row;
use std::{
    fs::{File, OpenOptions},
    io::{Seek, SeekFrom, Write},
    path::PathBuf,
};

/// Some records of one partition for a sink, encoded one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkChunk {
    /// How many chunks of this partition came before: with the partition it is the chunk's idempotency key.
    pub number: u64,
    /// How many bytes of this partition came before.
    pub offset: u64,
    /// The records.
    pub bytes: Row,
}

impl SinkChunk {
    pub(crate) fn to_row(&self) -> Row {
        Row::from([&self.number.to_be_bytes(), &self.offset.to_be_bytes(), &*self.bytes].concat())
    }

    pub(crate) fn from_row(row: &Row) -> Result<Self, StreamError> {
        let damaged = StreamError::Damaged("a chunk for a sink cannot be decoded");
        let (number, rest) = row.split_first_chunk::<8>().ok_or(damaged.clone())?;
        let (offset, bytes) = rest.split_first_chunk::<8>().ok_or(damaged)?;
        let (number, offset) = (u64::from_be_bytes(*number), u64::from_be_bytes(*offset));
        Ok(SinkChunk { number, offset, bytes: Row::from(bytes) })
    }
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
}

/// Writes the chunks of one partition.
pub trait SinkWriter: Send {
    /// Writes a chunk. Chunks come in order; after a crash the last ones may come again.
    ///
    /// # Errors
    /// If it was not written; the pipeline ends with this error.
    fn write(&mut self, chunk: &SinkChunk) -> std::io::Result<()>;
}

/// A file, exactly once: every byte has its place, and is written there however often. With several partitions the file
/// of partition 2 is `NAME.2`. Only one process at a time writes a partition, and a reader sees only committed records,
/// the last of them perhaps in part.
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

struct WritingFile(File);

impl StreamSink for FileSink {
    fn open(&self, partition: u16, of: u16) -> std::io::Result<Box<dyn SinkWriter>> {
        let mut path = self.path.clone().into_os_string();
        if of > 1 {
            path.push(format!(".{partition}"));
        }
        let named = |error| std::io::Error::other(format!("{}: {error}", path.display()));
        let file = OpenOptions::new().create(true).write(true).truncate(false).open(&path).map_err(named)?;
        Ok(Box::new(WritingFile(file)))
    }
}

impl SinkWriter for WritingFile {
    fn write(&mut self, chunk: &SinkChunk) -> std::io::Result<()> {
        // Of an earlier pipeline that wrote this file nothing is left. Later chunks come again if the first one does.
        if chunk.number == 0 {
            self.0.set_len(0)?;
        }
        self.0.seek(SeekFrom::Start(chunk.offset))?;
        self.0.write_all(&chunk.bytes)?;
        self.0.sync_data()
    }
}

/// Standard output. It cannot take anything back: after a crash the last records may be printed again.
#[derive(Clone, Copy, Debug, Default)]
pub struct StdoutSink;

impl StreamSink for StdoutSink {
    fn open(&self, _: u16, _: u16) -> std::io::Result<Box<dyn SinkWriter>> {
        Ok(Box::new(StdoutSink))
    }
}

impl SinkWriter for StdoutSink {
    fn write(&mut self, chunk: &SinkChunk) -> std::io::Result<()> {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&chunk.bytes)?;
        stdout.flush()
    }
}
