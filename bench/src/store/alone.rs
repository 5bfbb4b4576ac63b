//! One commit with nothing else running, against one append and fdatasync of the same bytes to a file prepared the same way.

use super::{chain::Chain, journal::Ours};
use onceflow_bench::{
    appender::Appender,
    disk::Scratch,
    report::{self, Line, Report, Target},
    rounds::{Rounds, Turn, median},
};
use onceflow_store::Records;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const TURN: Duration = Duration::from_millis(300);

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new("alone")?;
    let ours = Ours::open(runtime, &scratch.join("journal"))?;
    let mut chain = runtime.block_on(Chain::start(&*ours.journal, 0))?;
    let mut commit = || {
        runtime.block_on(async {
            let batch = chain.batch();
            let start = Instant::now();
            let outcome = ours.journal.commit(batch).await?;
            ours.journal.durable(outcome.position()).await?;
            let took = start.elapsed();
            chain.check_step(&outcome)?;
            Ok(took)
        })
    };
    let before = ours.written.so_far();
    for _ in 0..100 {
        commit()?;
    }
    let written = ours.written.so_far().since(before);
    let record = vec![0x5a; (written.bytes / written.syncs) as usize];
    let mut appender = Appender::create(&scratch.join("file"))?;
    let mut append = || {
        let start = Instant::now();
        appender.append(&record)?;
        Ok(start.elapsed())
    };
    let rounds = Rounds::run(
        "one commit : one fdatasync (µs)",
        10,
        &mut [&mut || median_us(&mut commit), &mut || median_us(&mut append)],
    )?;
    chain.check_rows(&ours.journal.state(), true)?;
    appender.check(&record)?;
    report.key(
        "commit_vs_fdatasync",
        Line {
            what: "one commit alone, against one append and fdatasync".into(),
            ours: format!("{:.0} µs", rounds.median(0)),
            theirs: format!("{:.0} µs", rounds.median(1)),
            figure: rounds.ratio(0, 1),
            target: Target::AtMost(1.3),
        },
    );
    let detail = json!({
        "ours_us": report::figures(rounds.figures(0)),
        "fdatasync_us": report::figures(rounds.figures(1)),
        "bytes_per_commit": record.len(),
    });
    report.detail("alone", detail);
    Ok(())
}

/// The median time of one, for a turn. Not the mean: a sync that waits for the writes of another process says nothing about us.
fn median_us(mut one: impl FnMut() -> anyhow::Result<Duration>) -> anyhow::Result<Turn> {
    let (start, mut took) = (Instant::now(), Vec::new());
    while start.elapsed() < TURN {
        took.push(one()?.as_secs_f64() * 1e6);
    }
    Ok(Turn { figure: median(took), seconds: start.elapsed().as_secs_f64() })
}
