//! Memory and disk of a long run: they must not grow with the records. On a slow machine the run is cut, and says so.

use super::{
    bed::{Bed, MemorySink, options, records},
    corpus::mixed,
};
use anyhow::{Context, ensure};
use onceflow_bench::{
    disk,
    report::{Line, Report, Target},
};
use onceflow_store::{Store, world::RealWorld};
use onceflow_stream::{
    EdgeMode, EventTime, NextRecord, Pipeline, SplitReader, StreamOptions, StreamSource, combine::Count,
    window::Windowing,
};
use serde_json::json;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};
use tokio::runtime::Runtime;

const RECORDS: u64 = 100_000_000;

/// The run is cut after so long.
const SECONDS_MAX: f64 = 300.0;

/// Records in a millisecond of their time; ids are kept for [`HORIZON_MS`].
const PER_MS: u64 = 100;
const HORIZON_MS: i64 = 2_000;

/// Moments at which memory and disk are looked at.
const LOOKS: usize = 30;

fn memory_bytes() -> anyhow::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).context("the resident pages")?;
    Ok(pages.parse::<u64>()? * 4096)
}

/// Ids that end after so many, or at the end of the time.
struct Sent {
    count: u64,
    made: Arc<AtomicU64>,
    begun: Instant,
}

struct Sending {
    count: u64,
    next: u64,
    made: Arc<AtomicU64>,
    begun: Instant,
}

impl Sent {
    /// How much of the run is over.
    fn progress(&self) -> f64 {
        let of_records = self.made.load(Relaxed) as f64 / self.count as f64;
        of_records.max(self.begun.elapsed().as_secs_f64() / SECONDS_MAX)
    }
}

impl StreamSource for Sent {
    type Item = u64;

    fn splits(&self) -> u16 {
        1
    }

    fn open(&self, _: u16, position: Option<&[u8]>) -> io::Result<Box<dyn SplitReader<u64>>> {
        let next = position.and_then(|position| position.try_into().ok()).map_or(0, u64::from_be_bytes);
        Ok(Box::new(Sending { count: self.count, next, made: self.made.clone(), begun: self.begun }))
    }
}

impl SplitReader<u64> for Sending {
    fn next(&mut self) -> io::Result<NextRecord<u64>> {
        // The clock is looked at seldom.
        let is_cut = self.next.is_multiple_of(1 << 16) && self.begun.elapsed().as_secs_f64() >= SECONDS_MAX;
        if is_cut {
            self.count = self.next;
        }
        if self.next >= self.count {
            return Ok(NextRecord::Ended);
        }
        let n = self.next;
        self.next += 1;
        self.made.store(self.next, Relaxed);
        Ok(NextRecord::Record(mixed(n), EventTime((n / PER_MS) as i64)))
    }

    fn position(&self) -> Vec<u8> {
        self.next.to_be_bytes().to_vec()
    }

    fn watermark(&self) -> EventTime {
        EventTime((self.next / PER_MS) as i64)
    }
}

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let (bed, sink) = (Bed::new(runtime, "flat")?, MemorySink::default());
    let asked = records(RECORDS);
    let horizon_ms = HORIZON_MS.min((asked / PER_MS / 10) as i64);
    let all_edges = StreamOptions { edges: EdgeMode::Retry, bucket_ms: 1_000, ..options(10_000) };
    let pipeline = Pipeline::new("flat").options(all_edges);
    let sent = |made: &Arc<AtomicU64>, begun| Sent { count: asked, made: made.clone(), begun };
    let (made, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let run = sent(&made, begun);
    let once = pipeline.source("sent", sent(&made, begun)).once_per_id("once", horizon_ms, |id| id.to_be_bytes());
    let counts = once.key_value("key", |id| (id % 5000, ()));
    let counts = counts.combine("count", Windowing::tumbling(horizon_ms), Count::new());
    let sums = counts.key_value("all", |pane| ((), pane.value));
    let sums = sums.combine("sum", Windowing::global(), onceflow_stream::combine::Sum::new());
    sums.sink("sum", sink.clone(), |pane, line| line.extend(format!("{}\n", pane.value).bytes()));
    let directory = bed.scratch.join("store");
    let (mut memory, mut disk_bytes) = (Vec::new(), Vec::new());
    let counts = runtime.block_on(async {
        let store = Store::open_url(format!("journal:{}", directory.display())).await?;
        let mut running = tokio::spawn(pipeline.run(store.records(), RealWorld::here()));
        let result = loop {
            if let Ok(ended) = tokio::time::timeout(std::time::Duration::from_millis(5), &mut running).await {
                break ended??;
            }
            if run.progress() >= memory.len() as f64 / LOOKS as f64 && memory.len() < LOOKS {
                memory.push(memory_bytes()?);
                disk_bytes.push(disk::bytes_used(&directory)?);
            }
        };
        store.close().await?;
        anyhow::Ok(result)
    })?;
    let (lines, count) = (sink.take_lines(), made.load(Relaxed));
    if count < asked {
        report.note(format!("memory and disk: cut after {SECONDS_MAX} s, with {count} of {asked} records"));
    }
    ensure!(lines == [count.to_string()], "{count} records were counted as {lines:?}");
    for (name, bytes) in [("memory", &memory), ("disk", &disk_bytes)] {
        // The first third fills the horizon, and the snapshots' rhythm.
        let most = |part: &[u64]| part.iter().copied().max().unwrap_or(0) as f64;
        let (second, third) = (most(&bytes[bytes.len() / 3..bytes.len() * 2 / 3]), most(&bytes[bytes.len() * 2 / 3..]));
        let line = Line {
            what: format!("most {name} in the last third of {count} records ÷ in the second"),
            ours: format!("{:.0} MB", third / 1e6),
            theirs: format!("{:.0} MB", second / 1e6),
            figure: third / second,
            target: Target::AtMost(1.25),
        };
        report.key(&format!("{name}_growth"), line);
        report.detail(name, json!(bytes));
    }
    report.detail(
        "flat",
        json!(counts.stages.iter().map(|stage| (&stage.name, stage.counts.bundles)).collect::<Vec<_>>()),
    );
    Ok(())
}
