//! The sources of stream files: lines become records, and a generator makes them of their number.

use super::{
    LoadedStream,
    build::NodeStreams,
    check::{CheckedNode, CheckedOrigin, CheckedWork},
    declare::{LineFormat, OnError},
    expression::{self, NUMBER, RecordExpression},
};
use crate::inputs::globs;
use onceflow_core::model::Type;
use onceflow_exec::{expr::Bindings, value::PortValue};
use onceflow_stream::{
    DecodeRequest, EventTime, FollowedFiles, GivenFiles, HttpIngest, IngestRequest, IngestedRecord, LineDecoder,
    NextRecord, Pipeline, RecordFailure, SplitReader, StdinLines, Stream, StreamData, StreamSource,
    pipeline::tail::{Clock, ListFiles},
    step::join::Side,
};
use std::{
    io::{Error, ErrorKind, Result},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

/// Adds the source of a node.
pub(super) fn add(pipeline: &Pipeline, node: &CheckedNode, stream: &LoadedStream, clock: &Clock) -> NodeStreams {
    let CheckedWork::Source { origin, format, time, out_of_order_ms } = &node.work else {
        unreachable!("the caller looked")
    };
    let timing = RecordTiming { time: time.clone(), ty: node.ty.clone(), clock: clock.clone() };
    let ends = SourceEnds { pipeline, name: &node.name, stream, clock, out_of_order_ms: *out_of_order_ms };
    if let CheckedOrigin::Http { address, id, horizon_ms, headers } = origin {
        let decode = request_decoder(*format, id.clone(), timing);
        let ingest = HttpIngest::new(*address, pipeline.control(), clock.clone(), decode);
        let mut ingest = ingest.out_of_order_ms(*out_of_order_ms);
        for (header, value) in headers {
            ingest = ingest.require_header(header, value.text()).expect("the header was checked");
        }
        let sent = pipeline.source(&format!("{} ingest", node.name), ingest);
        let once = sent.once_per_id(&format!("{} once", node.name), *horizon_ms, |(id, _)| id.clone());
        return NodeStreams { main: Some(once.map(&node.name, |(_, record)| record)), ..NodeStreams::default() };
    }
    let read = reader(origin, *format, timing);
    let on_error = node.on_error;
    if on_error != OnError::Divert {
        let make = move |from: RecordText<'_>| {
            read(from).map_err(|(why, record)| on_error.failure(why, &expression::scope(record)))
        };
        return NodeStreams { main: Some(ends.add(origin, Arc::new(make))), ..NodeStreams::default() };
    }
    // What cannot be read has the time of the last record that could, so that it does not advance the watermark.
    let last = AtomicI64::new(0);
    let make = move |from: RecordText<'_>| match read(from) {
        Ok((record, time)) => {
            last.store(time.0, Ordering::Relaxed);
            Ok((Side::Left(record), time))
        }
        Err((why, record)) => {
            Ok((Side::Right(expression::failed_record(record, why)), EventTime(last.load(Ordering::Relaxed))))
        }
    };
    let both = ends.add(origin, Arc::new(make));
    let (good, failed) = both.sides(&format!("{} good", node.name), &format!("{} errors", node.name));
    NodeStreams { main: Some(good), errors: vec![failed], ..NodeStreams::default() }
}

/// A record before it is read: a line, or a number of a generator.
enum RecordText<'a> {
    Line(&'a str),
    Number(u64),
}

type MakeRecord<T> = Arc<dyn Fn(RecordText<'_>) -> std::result::Result<(T, EventTime), RecordFailure> + Send + Sync>;

/// Everything of a source but its records.
struct SourceEnds<'a> {
    pipeline: &'a Pipeline,
    name: &'a str,
    stream: &'a LoadedStream,
    clock: &'a Clock,
    out_of_order_ms: i64,
}

impl SourceEnds<'_> {
    fn add<T: StreamData>(&self, origin: &CheckedOrigin, make: MakeRecord<T>) -> Stream<T> {
        let of_line = make.clone();
        let decoder: LineDecoder<T> = Arc::new(move |line| of_line(RecordText::Line(line)));
        let files = |list: ListFiles, follow: bool, idle_ms: u64| {
            let files = FollowedFiles::new(list, decoder.clone(), self.clock.clone()).follow(follow);
            self.pipeline.source(self.name, files.idle_ms(idle_ms).out_of_order_ms(self.out_of_order_ms))
        };
        let base = &self.stream.base;
        match origin {
            CheckedOrigin::Http { .. } => unreachable!("the caller looked"),
            CheckedOrigin::Given { subdirectories } => {
                let mut given = self.stream.given.get(self.name).cloned().unwrap_or_default();
                given.retain(|file| *subdirectories || !file.name.contains('/'));
                let given = GivenFiles::new(given, decoder.clone(), self.clock.clone());
                self.pipeline.source(self.name, given.out_of_order_ms(self.out_of_order_ms))
            }
            CheckedOrigin::Stdin => {
                let lines = StdinLines::new(decoder.clone()).out_of_order_ms(self.out_of_order_ms);
                self.pipeline.source(self.name, lines)
            }
            CheckedOrigin::Files { pattern, follow, idle_ms } => files(list(base, pattern, *follow), *follow, *idle_ms),
            CheckedOrigin::Directory { path, subdirectories, follow, idle_ms } => {
                files(list_directory(&base.join(path), *subdirectories, *follow), *follow, *idle_ms)
            }
            CheckedOrigin::Generate { count, every_ms, .. } => {
                let make = Arc::new(move |number| make(RecordText::Number(number)));
                let generated = Generated {
                    make,
                    clock: self.clock.clone(),
                    count: count.unwrap_or(u64::MAX),
                    every_ms: *every_ms,
                    out_of_order_ms: self.out_of_order_ms,
                };
                self.pipeline.source(self.name, generated)
            }
        }
    }
}

/// Lists the files of a directory, but for those whose names begin with a dot.
fn list_directory(directory: &Path, subdirectories: bool, follow: bool) -> ListFiles {
    let (directory, pattern) = (directory.to_owned(), if subdirectories { "**" } else { "*" });
    Arc::new(move || {
        match std::fs::read_dir(&directory).err() {
            None => {}
            // It may come.
            Some(error) if error.kind() == ErrorKind::NotFound && follow => return Ok(Vec::new()),
            Some(error) if error.kind() == ErrorKind::NotFound => {
                let message = format!("there is no directory {}", directory.display());
                return Err(Error::new(ErrorKind::NotFound, message));
            }
            Some(error) => {
                return Err(Error::new(
                    error.kind(),
                    format!("cannot read the directory {}: {error}", directory.display()),
                ));
            }
        }
        let found = globs::find(&directory, pattern).map_err(Error::other)?;
        Ok(found.into_iter().map(|path| directory.join(path)).filter(|path| path.is_file()).collect())
    })
}

/// Lists the files of a pattern.
fn list(base: &Path, pattern: &str, follow: bool) -> ListFiles {
    let (base, pattern) = (base.to_owned(), pattern.to_owned());
    Arc::new(move || {
        let found = match globs::is_pattern(&pattern) {
            true => globs::find(&base, &pattern).map_err(Error::other)?,
            false => vec![pattern.clone().into()],
        };
        let found: Vec<_> = found.into_iter().map(|path| base.join(path)).filter(|path| path.is_file()).collect();
        if found.is_empty() && !follow {
            let message = format!("there is no file {}", base.join(&pattern).display());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        Ok(found)
    })
}

/// Gives a value the type and the time of a record.
struct RecordTiming {
    time: Option<RecordExpression>,
    ty: Type,
    clock: Clock,
}

/// A record with its time, or the reason why there is none, and what was read.
type ReadRecord = std::result::Result<(PortValue, EventTime), (String, PortValue)>;

impl RecordTiming {
    fn record(&self, value: PortValue) -> ReadRecord {
        let record = value.clone().conform(&self.ty).map_err(|wrong| (wrong.to_string(), value))?;
        let Some(time) = &self.time else {
            let now = i64::try_from((self.clock)()).unwrap_or(i64::MAX);
            return Ok((record, EventTime(now)));
        };
        let scope = expression::scope(record);
        match time.eval(&scope).and_then(|time| event_time(&time)) {
            Ok(time) => Ok((expression::record_of(scope), time)),
            Err(why) => Err((why, expression::record_of(scope))),
        }
    }
}

/// Reads a time: milliseconds since 1970, or text as RFC 3339 has it.
fn event_time(value: &PortValue) -> std::result::Result<EventTime, String> {
    match value {
        PortValue::Int(ms) if *ms != i64::MIN && *ms != i64::MAX => Ok(EventTime(*ms)),
        PortValue::Text(text) => match text.parse::<jiff::Timestamp>() {
            Ok(time) => Ok(EventTime(time.as_millisecond())),
            Err(error) => Err(format!("{text:?} is not a time: {error}")),
        },
        other => Err(format!(
            "a time is milliseconds since 1970, or text like 2026-01-31T12:00:00Z, not {}",
            other.describe()
        )),
    }
}

/// Makes records of lines and numbers.
fn reader(
    origin: &CheckedOrigin,
    format: LineFormat,
    timing: RecordTiming,
) -> impl Fn(RecordText<'_>) -> ReadRecord + Send + Sync + 'static {
    let generate = match origin {
        CheckedOrigin::Generate { record, .. } => Some(record.clone()),
        _ => None,
    };
    move |from| {
        let value = match (from, format) {
            (RecordText::Line(line), LineFormat::Text) => PortValue::text(line),
            (RecordText::Line(line), LineFormat::Json) => PortValue::parse_json(line.as_bytes())
                .map_err(|error| (format!("the line is not JSON: {error}"), PortValue::text(line)))?,
            (RecordText::Number(number), _) => {
                let number = PortValue::Int(i64::try_from(number).unwrap_or(i64::MAX));
                let mut scope = Bindings::new();
                scope.set(NUMBER, number.clone());
                let made = generate.as_ref().map_or(Ok(PortValue::Null), |generate| generate.eval(&scope));
                made.map_err(|why| (why, number))?
            }
        };
        timing.record(value)
    }
}

/// Makes the records of clients' requests: a JSON value, a list of them, or one on each line; or lines of text. The id of a
/// record is that of the expression, else the request's key and the record's number.
fn request_decoder(format: LineFormat, id: Option<RecordExpression>, timing: RecordTiming) -> DecodeRequest<PortValue> {
    Arc::new(move |request: &IngestRequest| {
        let text = std::str::from_utf8(&request.body).map_err(|_| String::from("the body is not UTF-8"))?;
        let mut records = Vec::new();
        for (at, value) in values(format, text)?.into_iter().enumerate() {
            let wrong = |why: String| format!("record {at}: {why}");
            let made = match timing.record(value) {
                Ok(made) => made,
                Err((why, record)) => return Err(wrong(OnError::message(why, &record))),
            };
            let scope = expression::scope(made.0);
            let id = match (&id, &request.key) {
                (Some(id), _) => id.eval(&scope).map_err(wrong)?.to_json().to_string(),
                (None, Some(key)) => format!("{key}/{at}"),
                (None, None) => {
                    return Err(String::from(
                        "the request has no `Idempotency-Key`, by which a copy of it would be known; choose one for each \
                         request, and send it again with every try",
                    ));
                }
            };
            let time = timing.time.is_some().then_some(made.1);
            records.push(IngestedRecord { id, record: expression::record_of(scope), time });
        }
        Ok(records)
    })
}

/// The values in the body of a request.
fn values(format: LineFormat, text: &str) -> std::result::Result<Vec<PortValue>, String> {
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    if format == LineFormat::Text {
        return Ok(lines().map(PortValue::text).collect());
    }
    match PortValue::parse_json(text.as_bytes()) {
        Ok(PortValue::List(values)) => Ok(values),
        Ok(value) => Ok(vec![value]),
        Err(whole) => {
            let value = |(at, line): (usize, &str)| {
                PortValue::parse_json(line.as_bytes()).map_err(|error| format!("line {}: {error}", at + 1))
            };
            match lines().count() {
                0 => Ok(Vec::new()),
                1 => Err(format!("the body is not JSON: {whole}")),
                _ => lines()
                    .enumerate()
                    .map(value)
                    .collect::<std::result::Result<_, _>>()
                    .map_err(|line| format!("the body is neither JSON nor JSON on each line: {line}")),
            }
        }
    }
}

/// Records that a function makes of their numbers.
struct Generated<T> {
    make: Arc<dyn Fn(u64) -> std::result::Result<(T, EventTime), RecordFailure> + Send + Sync>,
    clock: Clock,
    count: u64,
    every_ms: u64,
    out_of_order_ms: i64,
}

impl<T> Clone for Generated<T> {
    fn clone(&self) -> Self {
        Generated { make: self.make.clone(), clock: self.clock.clone(), ..*self }
    }
}

struct Generating<T> {
    of: Generated<T>,
    next: u64,
    /// When the next record is due.
    due_ms: u64,
    latest: EventTime,
}

impl<T: StreamData> StreamSource for Generated<T> {
    type Item = T;

    fn splits(&self) -> u16 {
        1
    }

    fn open(&self, _: u16, position: Option<&[u8]>) -> Result<Box<dyn SplitReader<T>>> {
        let next = match position.map(<[u8; 8]>::try_from) {
            None => 0,
            Some(Ok(bytes)) => u64::from_be_bytes(bytes),
            Some(Err(_)) => return Err(Error::other("a stored position is not one of a generator")),
        };
        Ok(Box::new(Generating { of: self.clone(), next, due_ms: (self.clock)(), latest: EventTime::MIN }))
    }
}

impl<T: StreamData> SplitReader<T> for Generating<T> {
    fn next(&mut self) -> Result<NextRecord<T>> {
        if self.next >= self.of.count {
            return Ok(NextRecord::Ended);
        }
        if self.of.every_ms > 0 {
            if (self.of.clock)() < self.due_ms {
                return Ok(NextRecord::Pending);
            }
            self.due_ms = self.due_ms.saturating_add(self.of.every_ms);
        }
        self.next += 1;
        match (self.of.make)(self.next - 1) {
            Ok((record, time)) => {
                self.latest = self.latest.max(time);
                Ok(NextRecord::Record(record, time))
            }
            Err(RecordFailure::Skip) => Ok(NextRecord::Skipped),
            Err(RecordFailure::Stop(why)) => Err(Error::other(format!("record {}: {why}", self.next - 1))),
        }
    }

    fn position(&self) -> Vec<u8> {
        self.next.to_be_bytes().to_vec()
    }

    fn watermark(&self) -> EventTime {
        if self.latest == EventTime::MIN { self.latest } else { self.latest.plus_ms(-self.of.out_of_order_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_stream::testing::source::{self, Lateness};

    #[test]
    fn generated_records_go_on_at_every_position() {
        let make = |number: u64| match number % 5 {
            3 => Err(RecordFailure::Skip),
            _ => Ok((number, EventTime(i64::try_from(number).unwrap_or(0)))),
        };
        let generated =
            || Generated { make: Arc::new(make), clock: Arc::new(|| 0), count: 30, every_ms: 0, out_of_order_ms: 2 };
        source::check(generated, Lateness::OnTime).expect("the contract holds");
    }

    #[test]
    fn files_of_patterns_and_directories_go_on_at_every_position() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("old")).expect("a directory");
        for name in ["a.log", "b.log", "old/c.log"] {
            let lines: String = (0..20).map(|n| format!("{n} {name}\n")).collect();
            std::fs::write(directory.path().join(name), lines).expect("a log");
        }
        let time =
            |line: &str| line.split(' ').next().and_then(|time| time.parse().ok()).map_or(EventTime(0), EventTime);
        let decoder: LineDecoder<String> = Arc::new(move |line| Ok((line.to_owned(), time(line))));
        for files in [list(directory.path(), "**/*.log", false), list_directory(directory.path(), true, false)] {
            let source = || FollowedFiles::new(files.clone(), decoder.clone(), Arc::new(|| 0));
            source::check(source, Lateness::OnTime).expect("the contract holds");
        }
    }
}
