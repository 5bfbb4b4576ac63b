//! Reopening after a kill: the store, and the filters of all ids within the horizon.

use super::{
    bed::{MemorySink, options, records},
    corpus::mixed,
};
use anyhow::{Context, ensure};
use onceflow_bench::{
    disk::Scratch,
    report::{Line, Report, Target},
};
use onceflow_store::{Store, world::RealWorld};
use onceflow_stream::{
    EventTime, NextRecord, Pipeline, SplitReader, StreamSource, combine::Count, status, window::Windowing,
};
use serde_json::json;
use std::{
    io::{self, BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

/// Ids within the horizon.
const LIVE: u64 = 3_000_000;

/// Records in a millisecond of their time.
const PER_MS: u64 = 100;

/// So many records with an id each; then the source ends, or waits for ever.
#[derive(Clone, Copy)]
struct Ids {
    count: u64,
    ends: bool,
}

struct Reader {
    ids: Ids,
    next: u64,
}

impl StreamSource for Ids {
    type Item = u64;

    fn splits(&self) -> u16 {
        1
    }

    fn open(&self, _: u16, position: Option<&[u8]>) -> io::Result<Box<dyn SplitReader<u64>>> {
        let next = position.and_then(|position| position.try_into().ok()).map_or(0, u64::from_be_bytes);
        Ok(Box::new(Reader { ids: *self, next }))
    }
}

impl SplitReader<u64> for Reader {
    fn next(&mut self) -> io::Result<NextRecord<u64>> {
        if self.next >= self.ids.count {
            return Ok(if self.ids.ends { NextRecord::Ended } else { NextRecord::Pending });
        }
        self.next += 1;
        Ok(NextRecord::Record(mixed(self.next), EventTime((self.next / PER_MS) as i64)))
    }

    fn position(&self) -> Vec<u8> {
        self.next.to_be_bytes().to_vec()
    }

    fn watermark(&self) -> EventTime {
        EventTime((self.next / PER_MS) as i64)
    }
}

fn pipeline(live: u64, ids: Ids, sink: &MemorySink) -> Pipeline {
    let pipeline = Pipeline::new("ids").options(options(10_000));
    let once = pipeline.source("ids", ids).once_per_id("once", (live / PER_MS) as i64, |id| id.to_be_bytes());
    let counts = once.key_value("all", |_| ((), ())).combine("count", Windowing::global(), Count::new());
    counts.sink("count", sink.clone(), |pane, line| line.extend(format!("{}\n", pane.value).bytes()));
    pipeline
}

/// The child: takes ids until it has so many, says so, and waits to be killed.
pub(super) fn fill(arguments: &[String]) -> anyhow::Result<()> {
    let [directory, live, ever] = arguments else { anyhow::bail!("fill DIRECTORY LIVE EVER") };
    let (live, ever): (u64, u64) = (live.parse()?, ever.parse()?);
    onceflow_bench::program::runtime()?.block_on(async {
        let store = Store::open_url(format!("journal:{directory}")).await?;
        let pipeline = pipeline(live, Ids { count: ever, ends: false }, &MemorySink::default());
        let mut running = tokio::spawn(pipeline.run(store.records(), RealWorld::here()));
        loop {
            let look = tokio::time::timeout(Duration::from_millis(20), &mut running).await;
            ensure!(look.is_err(), "the pipeline ended: {look:?}");
            let found = status(&*store.records(), "ids", None).await?;
            let taken = |stages: &[onceflow_stream::StageStatus]| {
                stages.iter().any(|stage| stage.name.starts_with("once") && stage.counts.records_in == ever)
            };
            if found.is_some_and(|found| taken(&found.stages)) {
                break;
            }
        }
        store.records().durable(store.records().position()).await?;
        println!("filled");
        std::future::pending().await
    })
}

/// Fills a store, kills the process that did, and answers how long the next one takes to the end of one more record.
fn reopen(runtime: &Runtime, live: u64, ever: u64) -> anyhow::Result<f64> {
    let scratch = Scratch::new(&format!("streams-rebuild-{live}-{ever}"))?;
    let directory = scratch.join("store");
    kill_when_filled(&directory, live, ever)?;
    let sink = MemorySink::default();
    let seconds = runtime.block_on(async {
        let start = Instant::now();
        let store = Store::open_url(format!("journal:{}", directory.display())).await?;
        let pipeline = pipeline(live, Ids { count: ever + 1, ends: true }, &sink).locks(directory.join("locks"));
        pipeline.run(store.records(), RealWorld::here()).await?;
        let seconds = start.elapsed().as_secs_f64();
        store.close().await?;
        anyhow::Ok(seconds)
    })?;
    let lines = sink.take_lines();
    ensure!(lines == [(ever + 1).to_string()], "{} ids were counted as {lines:?}", ever + 1);
    Ok(seconds)
}

fn kill_when_filled(directory: &Path, live: u64, ever: u64) -> anyhow::Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["fill", &directory.display().to_string(), &live.to_string(), &ever.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    BufReader::new(child.stdout.take().context("its words")?).read_line(&mut said)?;
    child.kill()?;
    child.wait()?;
    ensure!(said.trim() == "filled", "the child that fills the store said `{said}`");
    Ok(())
}

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let live = records(LIVE);
    let mut curve = Vec::new();
    let mut seconds = |live, ever| {
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(reopen(runtime, live, ever)?);
        }
        let median = onceflow_bench::rounds::median(all);
        eprintln!("reopening with {live} ids of {ever}: {median:.3} s");
        curve.push(json!({ "live": live, "ever": ever, "seconds": median }));
        anyhow::Ok(median)
    };
    let tenth = seconds(live / 10, live / 10)?;
    let (once, thrice) = (seconds(live, live)?, seconds(live, 3 * live)?);
    let line = Line {
        what: format!("ids rebuilt per second after a kill, {live} live"),
        ours: format!("{once:.3} s, a tenth of them {tenth:.3} s"),
        theirs: String::new(),
        figure: live as f64 / once,
        target: Target::AtLeast(5e6),
    };
    report.key("rebuild_ids_per_s", line);
    let line = Line {
        what: "the same with three times as many ids ever seen, times longer".into(),
        ours: format!("{thrice:.3} s"),
        theirs: String::new(),
        figure: thrice / once,
        target: Target::AtMost(1.5),
    };
    report.key("rebuild_ever_growth", line);
    report.detail("rebuild", json!(curve));
    Ok(())
}
