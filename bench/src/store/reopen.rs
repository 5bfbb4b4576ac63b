//! Reopening after a kill. A child process fills a journal with a million live rows and goes on churning; it is killed
//! with nothing closed, and what it left is opened.

use super::journal::{Ours, SHARD};
use anyhow::{Context, ensure};
use onceflow_bench::{
    disk::{Scratch, bytes_used},
    report::{self, Line, Report, Target},
    rounds::{SIDE_SECONDS_MIN, median, timed},
};
use onceflow_core::{Batch, Group, Key, Row};
use onceflow_store::Records;
use serde_json::json;
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};
use tokio::runtime::Runtime;

/// The hidden verb that makes this program the child.
pub(crate) const CHILD: &str = "__fill";
const ROWS: u64 = 1_000_000;
const RUN_ROWS: u64 = 100;
const ROW_BYTES: usize = 100;
const BATCH_ROWS: u64 = 500;
const ROUNDS_MIN: usize = 5;

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new("reopen")?;
    eprintln!("reopen: filling a journal with {ROWS} rows in a child, then killing it");
    kill_while_churning(scratch.path())?;
    let mut seconds = Vec::new();
    let mut replayed = 0;
    while seconds.len() < ROUNDS_MIN || seconds.iter().sum::<f64>() < SIDE_SECONDS_MIN {
        let (took, ours) = timed(|| Ours::open(runtime, scratch.path()))?;
        eprintln!("reopen: {took:.2} s, {:?}", ours.recovered);
        let rows = ours.recovered.rows;
        ensure!(rows == ROWS, "{rows} rows are there again, not {ROWS}");
        replayed = ours.recovered.batches_replayed;
        if seconds.is_empty() {
            check(&ours)?;
        }
        seconds.push(took);
        runtime.block_on(ours.journal.close())?;
    }
    let figure = median(seconds.clone()) / (ROWS as f64 / 1e6);
    report.key(
        "reopen_s_per_million",
        Line {
            what: "reopening after a kill, a million live rows".into(),
            ours: format!("{figure:.2} s"),
            theirs: String::new(),
            figure,
            target: Target::AtMost(1.0),
        },
    );
    let detail = json!({
        "seconds": report::figures(&seconds),
        "rows": ROWS,
        "batches_replayed": replayed,
        "directory_bytes": bytes_used(scratch.path())?,
    });
    report.detail("reopen", detail);
    report
        .note("reopen: the files are in the page cache, as they are after a kill; rows of 100 bytes in groups of 100");
    Ok(())
}

fn kill_while_churning(path: &Path) -> anyhow::Result<()> {
    let mut child = Command::new(std::env::current_exe()?).arg(CHILD).arg(path).stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    BufReader::new(child.stdout.take().context("the child has a pipe")?).read_line(&mut said)?;
    child.kill()?;
    child.wait()?;
    ensure!(said == "filled\n", "the child did not fill the journal: {said:?}");
    Ok(())
}

/// The child: fills the journal, says so, and rewrites rows until it is killed.
pub(crate) fn fill(arguments: &[String]) -> anyhow::Result<()> {
    let [path] = arguments else { anyhow::bail!("usage: {CHILD} DIRECTORY") };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    let ours = Ours::open(&runtime, Path::new(path))?;
    runtime.block_on(async {
        ours.journal.durable(ours.commit_all(batches()).await?).await?;
        println!("filled");
        loop {
            ours.commit_all(batches()).await?;
        }
    })
}

fn batches() -> impl Iterator<Item = Batch> {
    (0..ROWS).step_by(BATCH_ROWS as usize).map(|first| {
        let mut batch = Batch::new(SHARD);
        for number in first..first + BATCH_ROWS {
            batch.put(key(number), row(number));
        }
        batch
    })
}

fn check(ours: &Ours) -> anyhow::Result<()> {
    let state = ours.journal.state();
    for number in 0..ROWS {
        let found = state.get(SHARD, &key(number));
        ensure!(found == Some(&row(number)), "{} holds {found:?}", key(number));
    }
    Ok(())
}

fn key(number: u64) -> Key {
    let mut run = *b"run-----........";
    run[8..].copy_from_slice(&(number / RUN_ROWS).to_be_bytes());
    let mut name = *b"row-of-a........";
    name[8..].copy_from_slice(&number.to_be_bytes());
    Group::rows(run).key(name)
}

fn row(number: u64) -> Row {
    let mut row = [0x5a; ROW_BYTES];
    row[..8].copy_from_slice(&number.to_be_bytes());
    Row::new(row)
}
