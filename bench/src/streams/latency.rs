//! How late a result is: from the moment its record was due to the moment the sink has it, durably.

use super::bed::{Bed, options, records};
use anyhow::ensure;
use onceflow_bench::report::{Line, Report, Target};
use onceflow_stream::{
    EventTime, NextRecord, Pipeline, SinkChunk, SinkWriter, SplitReader, StreamOptions, StreamSink, StreamSource,
    step::process::{KeyedProcess, ProcessContext},
};
use serde_json::json;
use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};
use tokio::runtime::Runtime;

/// Records of a run as fast as it can, and seconds of a run at a rate.
const RECORDS: u64 = 2_000_000;
const SECONDS: u64 = 10;

/// Makes records when they are due. A record carries that moment, so that one that had to wait is not younger for it.
#[derive(Clone, Copy)]
struct Paced {
    count: u64,
    /// `None`: as fast as they are taken.
    per_second: Option<f64>,
    epoch: Instant,
}

struct Reader {
    paced: Paced,
    begun: Instant,
    next: u64,
}

impl StreamSource for Paced {
    type Item = (u64, u64);

    fn splits(&self) -> u16 {
        1
    }

    fn open(&self, _: u16, position: Option<&[u8]>) -> io::Result<Box<dyn SplitReader<(u64, u64)>>> {
        let next = position.and_then(|position| position.try_into().ok()).map_or(0, u64::from_be_bytes);
        Ok(Box::new(Reader { paced: *self, begun: Instant::now(), next }))
    }
}

impl SplitReader<(u64, u64)> for Reader {
    fn next(&mut self) -> io::Result<NextRecord<(u64, u64)>> {
        let Paced { count, per_second, epoch } = self.paced;
        if self.next >= count {
            return Ok(NextRecord::Ended);
        }
        let begun = self.begun - epoch;
        let due = begun.as_secs_f64() + per_second.map_or(0.0, |rate| self.next as f64 / rate);
        if epoch.elapsed().as_secs_f64() < due {
            return Ok(NextRecord::Pending);
        }
        let record = (self.next % 1000, (due * 1e6) as u64);
        self.next += 1;
        Ok(NextRecord::Record(record, EventTime(self.next as i64)))
    }

    fn position(&self) -> Vec<u8> {
        self.next.to_be_bytes().to_vec()
    }

    fn watermark(&self) -> EventTime {
        EventTime(self.next as i64)
    }
}

/// Counts the records of a key, and passes each on with the count.
struct Running;

impl KeyedProcess for Running {
    type Key = u64;
    type In = u64;
    type Out = (u64, u64);
    type State = u64;

    fn on_record(
        &mut self,
        context: &mut ProcessContext<'_, (u64, u64)>,
        _: &u64,
        state: &mut Option<u64>,
        due_us: u64,
    ) {
        let count = state.unwrap_or(0) + 1;
        *state = Some(count);
        context.emit((due_us, count));
    }
}

/// Notes how long every record took, in µs, and adds up the counts.
#[derive(Clone)]
struct Watch {
    epoch: Instant,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    latencies_us: Vec<u64>,
    counts: u64,
}

impl StreamSink for Watch {
    fn open(&self, _: u16, _: u16) -> io::Result<Box<dyn SinkWriter>> {
        Ok(Box::new(self.clone()))
    }
}

impl SinkWriter for Watch {
    fn write(&mut self, chunk: &SinkChunk) -> io::Result<()> {
        let now_us = self.epoch.elapsed().as_micros() as u64;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for pair in chunk.bytes.as_chunks::<16>().0 {
            let number = u128::from_be_bytes(*pair);
            seen.latencies_us.push(now_us.saturating_sub((number >> 64) as u64));
            seen.counts += number as u64;
        }
        Ok(())
    }
}

/// Runs so many records; answers the rate, and the latencies in µs in order.
fn run(bed: &Bed<'_>, count: u64, per_second: Option<f64>) -> anyhow::Result<(f64, Vec<u64>)> {
    let epoch = Instant::now();
    let watch = Watch { epoch, seen: Arc::default() };
    let pipeline = Pipeline::new("latency").options(StreamOptions { idle_ms: 1, ..options(10_000) });
    let records = pipeline.source("paced", Paced { count, per_second, epoch });
    let counts = records.key_value("key", |(key, due_us)| (key, due_us)).process("running", || Running);
    counts.sink("watch", watch.clone(), |(due_us, count), bytes| {
        bytes.extend_from_slice(&due_us.to_be_bytes());
        bytes.extend_from_slice(&count.to_be_bytes());
    });
    let ran = bed.run(&pipeline, 1)?;
    let seen = std::mem::take(&mut *watch.seen.lock().unwrap_or_else(PoisonError::into_inner));
    let right: u64 = (0..1000).map(|key| (count + 999 - key) / 1000).map(|records| records * (records + 1) / 2).sum();
    ensure!(seen.latencies_us.len() as u64 == count, "{} records came, not {count}", seen.latencies_us.len());
    ensure!(seen.counts == right, "the counts add up to {}, not {right}", seen.counts);
    Ok((count as f64 / ran.seconds, seen.latencies_us))
}

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let bed = Bed::new(runtime, "latency")?;
    let mut highest = Vec::new();
    for _ in 0..3 {
        highest.push(run(&bed, records(RECORDS), None)?.0);
    }
    let highest = onceflow_bench::rounds::median(highest);
    let rate = highest / 2.0;
    let (_, latencies) = run(&bed, (rate * records(SECONDS * 100_000) as f64 / 1e5) as u64, Some(rate))?;
    // The first tenth warms up.
    let mut sorted = latencies[latencies.len() / 10..].to_vec();
    sorted.sort_unstable();
    let at = |part: f64| sorted[((sorted.len() - 1) as f64 * part) as usize] as f64 / 1e3;
    let line = Line {
        what: format!("ms until a result is written, 99 of 100, at {:.0} k/s", rate / 1e3),
        ours: format!("{:.1} ms", at(0.99)),
        theirs: format!("median {:.1} ms", at(0.5)),
        figure: at(0.99),
        target: Target::AtMost(20.0),
    };
    report.key("p99_ms", line);
    report.detail(
        "latency",
        json!({ "highest_per_s": highest, "p50_ms": at(0.5), "p999_ms": at(0.999), "max_ms": at(1.0) }),
    );
    Ok(())
}
