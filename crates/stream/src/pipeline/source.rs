//! Sources: where records come from.

use crate::{
    data::StreamData,
    error::StreamError,
    event_time::EventTime,
    run::{
        bundle::Bundle,
        chain::{AnyPush, BoxPush, typed},
    },
};
use std::{
    fs::File,
    io::{BufRead, BufReader, Seek, SeekFrom},
    path::PathBuf,
    sync::Arc,
};

/// Where records come from. The contract, on which exactly-once rests:
///
/// - a reader opened at a position gives the same records from there on as the reader that told the position, in the
///   same order (a position is committed together with everything its records caused, so none is read twice);
/// - or, if it delivers again whatever it did not hear to be durable ([`SplitReader::committed`]), in any order and any
///   number of times: its records have ids, and [`Stream::once_per_id`](crate::Stream::once_per_id) is the next step;
/// - the number of splits is the same whenever the pipeline is opened;
/// - the watermark only grows, and later records are not earlier than it, unless they are late.
pub trait StreamSource: Send + Sync + 'static {
    /// The records.
    type Item: StreamData;

    /// Returns how many parts are read independently.
    fn splits(&self) -> u16;

    /// Opens a part at a position that [`SplitReader::position`] told, or at its beginning.
    ///
    /// # Errors
    /// If it cannot be read; the pipeline ends with this error.
    fn open(&self, split: u16, position: Option<&[u8]>) -> std::io::Result<Box<dyn SplitReader<Self::Item>>>;
}

/// Reads one part of a source.
pub trait SplitReader<T>: Send {
    /// Returns the next record. Must not block for longer than a read of a file.
    ///
    /// # Errors
    /// If it cannot be read; the pipeline ends with this error.
    fn next(&mut self) -> std::io::Result<NextRecord<T>>;

    /// Returns where the next record stands.
    fn position(&self) -> Vec<u8>;

    /// Returns a time before which no record comes any more.
    fn watermark(&self) -> EventTime;

    /// Returns how many bytes of input were read so far. A bundle ends after some of them, so that memory is bounded also
    /// where records are large and few are passed on; a source that does not say is bounded by the number of records.
    fn bytes_read(&self) -> u64 {
        0
    }

    /// Hears that everything before a position is durable: a source that gets its records from clients or a broker
    /// acknowledges them now, copies too. Called at least once for the last position unless the worker dies; does
    /// nothing unless implemented.
    ///
    /// # Errors
    /// If they cannot be acknowledged; the pipeline ends with this error.
    fn committed(&mut self, position: &[u8]) -> std::io::Result<()> {
        let _ = position;
        Ok(())
    }
}

/// The answer of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextRecord<T> {
    /// A record, and when it happened.
    Record(T, EventTime),
    /// A record that cannot be read, and is counted and left out.
    Skipped,
    /// None now; later perhaps.
    Pending,
    /// None any more.
    Ended,
}

/// The result of reading into a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadResult {
    Read,
    Pending,
    Ended,
}

/// A source and the steps fused with it.
pub(crate) trait SourceProgram: Send {
    fn read(&mut self, bundle: &mut Bundle) -> Result<ReadResult, StreamError>;
    fn position(&self) -> Vec<u8>;
    fn watermark(&self) -> EventTime;
    fn bytes_read(&self) -> u64;
    fn committed(&mut self, position: &[u8]) -> Result<(), StreamError>;
    fn flush(&mut self, bundle: &mut Bundle);
}

struct Reading<T> {
    name: String,
    reader: Box<dyn SplitReader<T>>,
    next: BoxPush<T>,
}

impl<T: StreamData> SourceProgram for Reading<T> {
    fn read(&mut self, bundle: &mut Bundle) -> Result<ReadResult, StreamError> {
        let next = self.reader.next().map_err(|error| io_error(&self.name, error))?;
        Ok(match next {
            NextRecord::Record(record, time) => {
                self.next.push(bundle, record, time);
                ReadResult::Read
            }
            NextRecord::Skipped => {
                bundle.skipped += 1;
                ReadResult::Read
            }
            NextRecord::Pending => ReadResult::Pending,
            NextRecord::Ended => ReadResult::Ended,
        })
    }

    fn position(&self) -> Vec<u8> {
        self.reader.position()
    }

    fn watermark(&self) -> EventTime {
        self.reader.watermark()
    }

    fn bytes_read(&self) -> u64 {
        self.reader.bytes_read()
    }

    fn committed(&mut self, position: &[u8]) -> Result<(), StreamError> {
        self.reader.committed(position).map_err(|error| io_error(&self.name, error))
    }

    fn flush(&mut self, bundle: &mut Bundle) {
        self.next.flush(bundle);
    }
}

/// A failure of a source or sink, with its name.
pub(crate) fn io_error(name: &str, cause: std::io::Error) -> StreamError {
    StreamError::Io { name: name.to_owned(), cause: Arc::new(cause) }
}

/// Opens a split for the steps behind it.
pub(crate) fn open_split<S: StreamSource>(
    source: &S,
    name: &str,
    split: u16,
    position: Option<&[u8]>,
    next: AnyPush,
) -> Result<Box<dyn SourceProgram>, StreamError> {
    let reader = source.open(split, position).map_err(|error| io_error(name, error))?;
    Ok(Box::new(Reading { name: name.to_owned(), reader, next: typed::<S::Item>(next) }))
}

/// Reads a position that is one number.
pub(crate) fn number_at(position: Option<&[u8]>) -> std::io::Result<u64> {
    match position.map(<[u8; 8]>::try_from) {
        None => Ok(0),
        Some(Ok(bytes)) => Ok(u64::from_be_bytes(bytes)),
        Some(Err(_)) => Err(std::io::Error::other("a stored position is not one of this kind of source")),
    }
}

/// Records made by a function of their number: for tests, and for load.
pub struct Generator<F> {
    count: u64,
    splits: u16,
    out_of_order_ms: i64,
    make: Arc<F>,
}

impl<T, F: Fn(u64) -> (T, EventTime) + Send + Sync + 'static> Generator<F> {
    /// Returns the records that `make` makes of 0, 1, … below `count`.
    pub fn new(count: u64, make: F) -> Self {
        Generator { count, splits: 1, out_of_order_ms: 0, make: Arc::new(make) }
    }

    /// Deals the numbers to several splits.
    #[must_use]
    pub fn splits(self, splits: u16) -> Self {
        Generator { splits: splits.max(1), ..self }
    }

    /// Records may be up to this much earlier than an earlier number's; others are late.
    #[must_use]
    pub fn out_of_order_ms(self, out_of_order_ms: i64) -> Self {
        Generator { out_of_order_ms, ..self }
    }
}

struct Generating<F> {
    next: u64,
    step: u64,
    count: u64,
    latest: EventTime,
    out_of_order_ms: i64,
    make: Arc<F>,
}

impl<T: StreamData, F: Fn(u64) -> (T, EventTime) + Send + Sync + 'static> StreamSource for Generator<F> {
    type Item = T;

    fn splits(&self) -> u16 {
        self.splits
    }

    fn open(&self, split: u16, position: Option<&[u8]>) -> std::io::Result<Box<dyn SplitReader<T>>> {
        let next = position.map_or(Ok(u64::from(split)), |position| number_at(Some(position)))?;
        let (step, count, make) = (u64::from(self.splits), self.count, self.make.clone());
        Ok(Box::new(Generating {
            next,
            step,
            count,
            latest: EventTime::MIN,
            out_of_order_ms: self.out_of_order_ms,
            make,
        }))
    }
}

impl<T, F: Fn(u64) -> (T, EventTime) + Send + Sync> SplitReader<T> for Generating<F> {
    fn next(&mut self) -> std::io::Result<NextRecord<T>> {
        if self.next >= self.count {
            return Ok(NextRecord::Ended);
        }
        let (record, time) = (self.make)(self.next);
        self.next += self.step;
        self.latest = self.latest.max(time);
        Ok(NextRecord::Record(record, time))
    }

    fn position(&self) -> Vec<u8> {
        self.next.to_be_bytes().to_vec()
    }

    fn watermark(&self) -> EventTime {
        if self.latest == EventTime::MIN { EventTime::MIN } else { self.latest.plus_ms(-self.out_of_order_ms) }
    }
}

/// The lines of files, one split per file; the time of a line is its byte offset unless a function says otherwise.
/// A line that has no end yet is not read before the file is followed no more.
pub struct FileLines {
    paths: Vec<PathBuf>,
    follow: bool,
    out_of_order_ms: i64,
    time: Arc<dyn Fn(&str) -> EventTime + Send + Sync>,
}

impl FileLines {
    /// Returns the lines of these files, with the time that `time` finds in a line.
    pub fn new(paths: Vec<PathBuf>, time: impl Fn(&str) -> EventTime + Send + Sync + 'static) -> Self {
        FileLines { paths, follow: false, out_of_order_ms: 0, time: Arc::new(time) }
    }

    /// Waits for more at the end of a file instead of ending.
    #[must_use]
    pub fn follow(self, follow: bool) -> Self {
        FileLines { follow, ..self }
    }

    /// Lines may be up to this much earlier than one before them; others are late.
    #[must_use]
    pub fn out_of_order_ms(self, out_of_order_ms: i64) -> Self {
        FileLines { out_of_order_ms, ..self }
    }
}

struct Lines {
    file: BufReader<File>,
    offset: u64,
    line: Vec<u8>,
    latest: EventTime,
    follow: bool,
    out_of_order_ms: i64,
    time: Arc<dyn Fn(&str) -> EventTime + Send + Sync>,
}

impl StreamSource for FileLines {
    type Item = String;

    fn splits(&self) -> u16 {
        u16::try_from(self.paths.len()).unwrap_or(u16::MAX)
    }

    fn open(&self, split: u16, position: Option<&[u8]>) -> std::io::Result<Box<dyn SplitReader<String>>> {
        let path = &self.paths[usize::from(split)];
        let named = |error| std::io::Error::other(format!("{}: {error}", path.display()));
        let (offset, mut file) = (number_at(position)?, File::open(path).map_err(named)?);
        file.seek(SeekFrom::Start(offset)).map_err(named)?;
        Ok(Box::new(Lines {
            file: BufReader::new(file),
            offset,
            line: Vec::new(),
            latest: EventTime::MIN,
            follow: self.follow,
            out_of_order_ms: self.out_of_order_ms,
            time: self.time.clone(),
        }))
    }
}

impl SplitReader<String> for Lines {
    fn next(&mut self) -> std::io::Result<NextRecord<String>> {
        // A line without an end stays in the buffer until the rest of it was written.
        self.file.read_until(b'\n', &mut self.line)?;
        let is_whole = self.line.last() == Some(&b'\n');
        if self.follow && !is_whole {
            return Ok(NextRecord::Pending);
        }
        if self.line.is_empty() {
            return Ok(NextRecord::Ended);
        }
        self.offset += self.line.len() as u64;
        let line = String::from_utf8_lossy(&self.line);
        let line = line.trim_end_matches(['\n', '\r']).to_owned();
        self.line.clear();
        let time = (self.time)(&line);
        self.latest = self.latest.max(time);
        Ok(NextRecord::Record(line, time))
    }

    fn position(&self) -> Vec<u8> {
        self.offset.to_be_bytes().to_vec()
    }

    fn bytes_read(&self) -> u64 {
        self.offset
    }

    fn watermark(&self) -> EventTime {
        if self.latest == EventTime::MIN { EventTime::MIN } else { self.latest.plus_ms(-self.out_of_order_ms) }
    }
}
