//! The sources of stream files: lines become records, and a generator makes them of their number.

use super::{
    check::{CheckedNode, CheckedOrigin, CheckedWork},
    declare::{LineFormat, OnError},
    expression::{self, NUMBER, RecordExpression},
};
use crate::inputs::globs;
use onceflow_core::model::Type;
use onceflow_exec::{expr::Bindings, value::PortValue};
use onceflow_stream::{
    DecodeRequest, EventTime, FollowedFiles, HttpIngest, IngestRequest, IngestedRecord, LineDecoder, NextRecord,
    Pipeline, RecordFailure, SplitReader, StdinLines, Stream, StreamSource,
    pipeline::tail::{Clock, ListFiles},
};
use std::{
    io::{Error, ErrorKind, Result},
    path::Path,
    sync::Arc,
};

/// Adds the source of a node.
pub(super) fn add(pipeline: &Pipeline, node: &CheckedNode, base: &Path, clock: &Clock) -> Stream<PortValue> {
    let CheckedWork::Source { origin, format, time, out_of_order_ms } = &node.work else {
        unreachable!("the caller looked")
    };
    let timing =
        RecordTiming { time: time.clone(), ty: node.ty.clone(), on_error: node.on_error, clock: clock.clone() };
    match origin {
        CheckedOrigin::Stdin => {
            let lines = StdinLines::new(decoder(*format, timing)).out_of_order_ms(*out_of_order_ms);
            pipeline.source(&node.name, lines)
        }
        CheckedOrigin::Http { address, id, horizon_ms } => {
            let decode = request_decoder(*format, id.clone(), timing);
            let ingest = HttpIngest::new(*address, pipeline.control(), clock.clone(), decode);
            let ingest = ingest.out_of_order_ms(*out_of_order_ms);
            let sent = pipeline.source(&format!("{} ingest", node.name), ingest);
            let once = sent.once_per_id(&format!("{} once", node.name), *horizon_ms, |(id, _)| id.clone());
            once.map(&node.name, |(_, record)| record)
        }
        CheckedOrigin::Files { pattern, follow, idle_ms } => {
            let list = list(base, pattern, *follow);
            let files = FollowedFiles::new(list, decoder(*format, timing), clock.clone()).follow(*follow);
            pipeline.source(&node.name, files.idle_ms(*idle_ms).out_of_order_ms(*out_of_order_ms))
        }
        CheckedOrigin::Generate { record, count, every_ms } => {
            let (record, count) = (record.clone(), count.unwrap_or(u64::MAX));
            let (every_ms, out_of_order_ms) = (*every_ms, *out_of_order_ms);
            let generated = Generated { record, count, every_ms, out_of_order_ms, timing: Arc::new(timing) };
            pipeline.source(&node.name, generated)
        }
    }
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
    on_error: OnError,
    clock: Clock,
}

impl RecordTiming {
    fn record(&self, value: PortValue) -> std::result::Result<(PortValue, EventTime), RecordFailure> {
        let record = match value.clone().conform(&self.ty) {
            Ok(record) => record,
            Err(wrong) => return Err(self.on_error.failure(wrong.to_string(), &expression::scope(value))),
        };
        let Some(time) = &self.time else {
            let now = i64::try_from((self.clock)()).unwrap_or(i64::MAX);
            return Ok((record, EventTime(now)));
        };
        let scope = expression::scope(record);
        match time.eval(&scope).and_then(|time| event_time(&time)) {
            Ok(time) => Ok((expression::record_of(scope), time)),
            Err(why) => Err(self.on_error.failure(why, &scope)),
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

/// Makes records of lines.
fn decoder(format: LineFormat, timing: RecordTiming) -> LineDecoder<PortValue> {
    Arc::new(move |line| {
        let value = match format {
            LineFormat::Text => PortValue::text(line),
            LineFormat::Json => PortValue::parse_json(line.as_bytes()).map_err(|error| {
                let line = PortValue::text(line);
                timing.on_error.failure(format!("the line is not JSON: {error}"), &expression::scope(line))
            })?,
        };
        timing.record(value)
    })
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
                Err(RecordFailure::Skip) => continue,
                Err(RecordFailure::Stop(why)) => return Err(wrong(why)),
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

/// Records that an expression makes of their numbers.
struct Generated {
    record: RecordExpression,
    count: u64,
    every_ms: u64,
    out_of_order_ms: i64,
    timing: Arc<RecordTiming>,
}

struct Generating {
    record: RecordExpression,
    next: u64,
    count: u64,
    every_ms: u64,
    /// When the next record is due.
    due_ms: u64,
    latest: EventTime,
    out_of_order_ms: i64,
    timing: Arc<RecordTiming>,
}

impl StreamSource for Generated {
    type Item = PortValue;

    fn splits(&self) -> u16 {
        1
    }

    fn open(&self, _: u16, position: Option<&[u8]>) -> Result<Box<dyn SplitReader<PortValue>>> {
        let next = match position.map(<[u8; 8]>::try_from) {
            None => 0,
            Some(Ok(bytes)) => u64::from_be_bytes(bytes),
            Some(Err(_)) => return Err(Error::other("a stored position is not one of a generator")),
        };
        Ok(Box::new(Generating {
            record: self.record.clone(),
            next,
            count: self.count,
            every_ms: self.every_ms,
            due_ms: (self.timing.clock)(),
            latest: EventTime::MIN,
            out_of_order_ms: self.out_of_order_ms,
            timing: self.timing.clone(),
        }))
    }
}

impl SplitReader<PortValue> for Generating {
    fn next(&mut self) -> Result<NextRecord<PortValue>> {
        if self.next >= self.count {
            return Ok(NextRecord::Ended);
        }
        if self.every_ms > 0 {
            if (self.timing.clock)() < self.due_ms {
                return Ok(NextRecord::Pending);
            }
            self.due_ms = self.due_ms.saturating_add(self.every_ms);
        }
        let mut scope = Bindings::new();
        scope.set(NUMBER, PortValue::Int(i64::try_from(self.next).unwrap_or(i64::MAX)));
        self.next += 1;
        let made = match self.record.eval(&scope) {
            Ok(value) => self.timing.record(value),
            Err(why) => Err(self.timing.on_error.failure(why, &scope)),
        };
        match made {
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
        if self.latest == EventTime::MIN { self.latest } else { self.latest.plus_ms(-self.out_of_order_ms) }
    }
}
