//! Lines of text as records, and the lines of standard input.

use super::{
    RecordFailure,
    source::{NextRecord, SplitReader, StreamSource, number_at},
};
use crate::{data::StreamData, event_time::EventTime};
use std::{
    collections::VecDeque,
    io::{BufRead, Error, Read, Result},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, TryRecvError, sync_channel},
    },
};

/// Bytes of one line; a longer one, perhaps a file that is no text at all, would fill the memory.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 20;

/// Lines of standard input that wait to be read.
const LINES_AHEAD_MAX: usize = 4096;

/// Bytes of lines of standard input that wait to be read, but for one line that may be longer.
const BYTES_AHEAD_MAX: usize = 4 << 20;

/// Makes a record and its time of a line, without its end.
pub type LineDecoder<T> = Arc<dyn Fn(&str) -> std::result::Result<(T, EventTime), RecordFailure> + Send + Sync>;

/// Makes a record of a line that stands at `place`.
pub(crate) fn decode<T>(decoder: &LineDecoder<T>, line: &[u8], place: impl Fn() -> String) -> Result<NextRecord<T>> {
    let text = String::from_utf8_lossy(line);
    match decoder(text.trim_end_matches(['\n', '\r'])) {
        Ok((record, time)) => Ok(NextRecord::Record(record, time)),
        Err(RecordFailure::Skip) => Ok(NextRecord::Skipped),
        Err(RecordFailure::Stop(why)) => Err(Error::other(format!("{}: {why}", place()))),
    }
}

/// Reads on to the end of a line; false if the input ends before it.
pub(crate) fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool> {
    let room = (LINE_BYTES_MAX + 1).saturating_sub(line.len());
    from.take(room as u64).read_until(b'\n', line)?;
    if line.len() > LINE_BYTES_MAX {
        return Err(Error::other(format!("a line has more than {LINE_BYTES_MAX} bytes")));
    }
    Ok(line.last() == Some(&b'\n'))
}

/// The latest time of a source, less the disorder that is allowed.
pub(crate) fn watermark(latest: EventTime, out_of_order_ms: i64) -> EventTime {
    if latest == EventTime::MIN { latest } else { latest.plus_ms(-out_of_order_ms) }
}

/// The lines of standard input. Its position is the number of bytes that were read: a process that continues the
/// pipeline skips so many, so it must be given the same input from its beginning.
pub struct StdinLines<T> {
    decoder: LineDecoder<T>,
    out_of_order_ms: i64,
    input: Arc<Mutex<BufferedInput>>,
}

impl<T> StdinLines<T> {
    /// Returns the lines of standard input as records.
    pub fn new(decoder: LineDecoder<T>) -> Self {
        StdinLines::of(decoder, || Box::new(std::io::stdin().lock()))
    }

    /// Returns the lines of an input that a thread opens and reads.
    pub fn of(decoder: LineDecoder<T>, open: impl FnOnce() -> Box<dyn BufRead> + Send + 'static) -> Self {
        let input =
            BufferedInput { from: InputState::Closed(Box::new(open)), lines: VecDeque::new(), start: 0, end: 0 };
        StdinLines { decoder, out_of_order_ms: 0, input: Arc::new(Mutex::new(input)) }
    }

    /// Lines may be up to this much earlier than one before them; others are late.
    #[must_use]
    pub fn out_of_order_ms(self, out_of_order_ms: i64) -> Self {
        StdinLines { out_of_order_ms, ..self }
    }
}

enum InputState {
    Closed(Box<dyn FnOnce() -> Box<dyn BufRead> + Send>),
    Open(Receiver<Result<Vec<u8>>>, Arc<BytesAhead>),
    Ended,
}

/// The bytes of lines that were read and not taken yet: reading goes on when there are few.
#[derive(Default)]
struct BytesAhead {
    bytes: Mutex<usize>,
    taken: Condvar,
}

impl BytesAhead {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room, and adds a line.
    fn add(&self, line: usize) {
        let is_full = |bytes: &mut usize| *bytes > 0 && *bytes + line > BYTES_AHEAD_MAX;
        let mut bytes = self.taken.wait_while(self.lock(), is_full).unwrap_or_else(PoisonError::into_inner);
        *bytes += line;
    }

    fn take(&self, line: usize) {
        *self.lock() -= line;
        self.taken.notify_one();
    }
}

/// The input, and its lines that are not committed yet: a partition that is read again gets them again.
struct BufferedInput {
    from: InputState,
    lines: VecDeque<Vec<u8>>,
    /// The offset of the first of the lines, and the one behind the last.
    start: u64,
    end: u64,
}

impl BufferedInput {
    /// Returns the line at an offset; `Pending` and `Ended` if there is none.
    fn line_at(&mut self, offset: u64) -> Result<NextRecord<Vec<u8>>> {
        // Mostly the next line is asked for: only one that is read again is searched for.
        let mut at = if offset == self.end { offset } else { self.start };
        for line in self.lines.iter().filter(|_| offset != self.end) {
            if at == offset {
                return Ok(NextRecord::Record(line.clone(), EventTime::MIN));
            }
            at += line.len() as u64;
        }
        loop {
            if at > offset {
                return Err(other_input(offset));
            }
            let Some(line) = self.receive()? else {
                return match self.from {
                    InputState::Ended if at < offset => Err(other_input(offset)),
                    InputState::Ended => Ok(NextRecord::Ended),
                    InputState::Open(..) | InputState::Closed(_) => Ok(NextRecord::Pending),
                };
            };
            self.end += line.len() as u64;
            self.lines.push_back(line.clone());
            if at == offset {
                return Ok(NextRecord::Record(line, EventTime::MIN));
            }
            at += line.len() as u64;
            self.forget_before(offset);
        }
    }

    fn receive(&mut self) -> Result<Option<Vec<u8>>> {
        if let InputState::Closed(_) = &self.from
            && let InputState::Closed(open) = std::mem::replace(&mut self.from, InputState::Ended)
        {
            let ahead = Arc::new(BytesAhead::default());
            self.from = InputState::Open(read_ahead(open, ahead.clone()), ahead);
        }
        let InputState::Open(from, ahead) = &self.from else { return Ok(None) };
        match from.try_recv() {
            Ok(line) => line.inspect(|line| ahead.take(line.len())).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                self.from = InputState::Ended;
                Ok(None)
            }
        }
    }

    fn forget_before(&mut self, offset: u64) {
        while let Some(line) = self.lines.front().filter(|line| self.start + line.len() as u64 <= offset) {
            self.start += line.len() as u64;
            self.lines.pop_front();
        }
    }
}

/// No line begins where the last process stopped: reading on would skip or repeat records.
fn other_input(offset: u64) -> Error {
    Error::other(format!(
        "byte {offset} of the input, where it goes on, begins no line: it is not the input that was read before"
    ))
}

/// Reads lines on a thread of their own, because reading standard input may wait for ever.
#[expect(clippy::disallowed_methods, reason = "standard input is outside of every world")]
fn read_ahead(open: Box<dyn FnOnce() -> Box<dyn BufRead> + Send>, ahead: Arc<BytesAhead>) -> Receiver<Result<Vec<u8>>> {
    let (sender, receiver) = sync_channel(LINES_AHEAD_MAX);
    std::thread::spawn(move || {
        let mut input = open();
        loop {
            let mut line = Vec::new();
            let read = read_line(&mut input, &mut line);
            if read.is_ok() {
                ahead.add(line.len());
            }
            if line.is_empty() && read.is_ok() || sender.send(read.map(|_| line)).is_err() {
                return;
            }
        }
    });
    receiver
}

struct ReadingInput<T> {
    input: Arc<Mutex<BufferedInput>>,
    decoder: LineDecoder<T>,
    offset: u64,
    latest: EventTime,
    out_of_order_ms: i64,
}

impl<T> ReadingInput<T> {
    fn input(&self) -> MutexGuard<'_, BufferedInput> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: StreamData> StreamSource for StdinLines<T> {
    type Item = T;

    fn splits(&self) -> u16 {
        1
    }

    fn open(&self, _: u16, position: Option<&[u8]>) -> Result<Box<dyn SplitReader<T>>> {
        let (input, decoder, offset) = (self.input.clone(), self.decoder.clone(), number_at(position)?);
        let out_of_order_ms = self.out_of_order_ms;
        Ok(Box::new(ReadingInput { input, decoder, offset, latest: EventTime::MIN, out_of_order_ms }))
    }
}

impl<T: StreamData> SplitReader<T> for ReadingInput<T> {
    fn next(&mut self) -> Result<NextRecord<T>> {
        let found = self.input().line_at(self.offset)?;
        let line = match found {
            NextRecord::Record(line, _) => line,
            NextRecord::Ended => return Ok(NextRecord::Ended),
            NextRecord::Pending | NextRecord::Skipped => return Ok(NextRecord::Pending),
        };
        let next = decode(&self.decoder, &line, || format!("byte {} of the input", self.offset))?;
        self.offset += line.len() as u64;
        if let NextRecord::Record(_, time) = &next {
            self.latest = self.latest.max(*time);
        }
        Ok(next)
    }

    fn position(&self) -> Vec<u8> {
        self.offset.to_be_bytes().to_vec()
    }

    fn bytes_read(&self) -> u64 {
        self.offset
    }

    fn watermark(&self) -> EventTime {
        watermark(self.latest, self.out_of_order_ms)
    }

    fn committed(&mut self, position: &[u8]) -> Result<()> {
        let offset = number_at(Some(position))?;
        self.input().forget_before(offset);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(input: &'static str) -> StdinLines<i64> {
        let decoder: LineDecoder<i64> = Arc::new(|line| match line.parse() {
            Ok(number) => Ok((number, EventTime(number))),
            Err(_) if line == "?" => Err(RecordFailure::Skip),
            Err(error) => Err(RecordFailure::Stop(error.to_string())),
        });
        StdinLines::of(decoder, move || Box::new(input.as_bytes()))
    }

    fn wait(reader: &mut dyn SplitReader<i64>) -> Result<NextRecord<i64>> {
        loop {
            match reader.next()? {
                NextRecord::Pending => std::thread::yield_now(),
                next => return Ok(next),
            }
        }
    }

    #[test]
    fn input_is_read_again_from_an_uncommitted_position_and_skipped_up_to_a_committed_one() {
        let source = numbers("1\n?\n3\n4");
        let mut reader = source.open(0, None).unwrap();
        let taken: Vec<_> = (0..3).map(|_| wait(&mut *reader).unwrap()).collect();
        let record = |n| NextRecord::Record(n, EventTime(n));
        assert_eq!(taken, [record(1), NextRecord::Skipped, record(3)]);
        let mut again = source.open(0, Some(&2u64.to_be_bytes())).unwrap();
        assert_eq!(wait(&mut *again).unwrap(), NextRecord::Skipped);
        again.committed(&reader.position()).unwrap();
        assert_eq!(wait(&mut *reader).unwrap(), record(4));
        assert_eq!(wait(&mut *reader).unwrap(), NextRecord::Ended);
        let mut resumed = numbers("1\n?\n3\n4").open(0, Some(&6u64.to_be_bytes())).unwrap();
        assert_eq!(wait(&mut *resumed).unwrap(), record(4));
    }

    #[test]
    fn another_input_than_before_is_refused_where_it_should_go_on() {
        for other in ["100\n4\n", "1\n"] {
            let mut reader = numbers(other).open(0, Some(&3u64.to_be_bytes())).unwrap();
            let error = wait(&mut *reader).unwrap_err().to_string();
            assert!(error.contains("not the input that was read before"), "{other:?}: {error}");
        }
    }

    #[test]
    fn a_line_that_cannot_be_read_stops_with_its_place() {
        let mut reader = numbers("1\nx\n").open(0, None).unwrap();
        wait(&mut *reader).unwrap();
        assert!(wait(&mut *reader).unwrap_err().to_string().starts_with("byte 2 of the input: "));
    }
}
