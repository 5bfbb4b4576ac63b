//! Memory and disk of a long run: they must not grow with the records.

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
use onceflow_stream::{EdgeMode, EventTime, Generator, Pipeline, StreamOptions, combine::Count, window::Windowing};
use serde_json::json;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use tokio::runtime::Runtime;

const RECORDS: u64 = 100_000_000;

/// Records in a millisecond of their time; ids are kept for [`HORIZON_MS`].
const PER_MS: u64 = 100;
const HORIZON_MS: i64 = 2_000;

/// Moments at which memory and disk are looked at.
const LOOKS: u64 = 30;

fn memory_bytes() -> anyhow::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).context("the resident pages")?;
    Ok(pages.parse::<u64>()? * 4096)
}

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let (bed, sink) = (Bed::new(runtime, "flat")?, MemorySink::default());
    let (count, made) = (records(RECORDS), Arc::new(AtomicU64::new(0)));
    let horizon_ms = HORIZON_MS.min((count / PER_MS / 10) as i64);
    let all_edges = StreamOptions { edges: EdgeMode::Retry, bucket_ms: 1_000, ..options(10_000) };
    let pipeline = Pipeline::new("flat").options(all_edges);
    let making = made.clone();
    let make = move |n| {
        making.store(n, Relaxed);
        (mixed(n), EventTime((n / PER_MS) as i64))
    };
    let once =
        pipeline.source("sent", Generator::new(count, make)).once_per_id("once", horizon_ms, |id| id.to_be_bytes());
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
            if made.load(Relaxed) >= count * memory.len() as u64 / LOOKS && (memory.len() as u64) < LOOKS {
                memory.push(memory_bytes()?);
                disk_bytes.push(disk::bytes_used(&directory)?);
            }
        };
        store.close().await?;
        anyhow::Ok(result)
    })?;
    let lines = sink.take_lines();
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
