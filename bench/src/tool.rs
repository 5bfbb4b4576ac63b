//! The command against what people use: a thousand trivial commands against GNU make with the same shell and flags, a
//! run that has nothing to do against make and Snakemake, and what one command costs on top of itself.
//!
//! All three get the same graph: chains of commands, each adding one to the number in the file of the one before it.
//! `BENCH_STEPS` (1000 unless set) is how many commands there are.

mod flows;
mod peers;

use crate::{
    disk::Scratch,
    report::{self, Line, Report, Target},
    rounds::{Rounds, Turn, timed},
};
use anyhow::{Context, ensure};
use flows::Shape;
use peers::{Onceflow, make, snakemake};
use serde_json::json;
use std::{path::Path, process::Command};

const JOBS: &str = "2";
const ROUNDS_COLD: usize = 5;
const ROUNDS_NOOP: usize = 15;
const ROUNDS_START: usize = 40;

pub(crate) fn run() -> anyhow::Result<Report> {
    let steps = std::env::var("BENCH_STEPS").map_or(Ok(1000), |steps| steps.parse()).context("BENCH_STEPS")?;
    let shape = Shape::of(steps);
    let onceflow = Onceflow::build()?;
    let snakemake = snakemake::install()?;
    let mut report = Report::default();
    cold(&onceflow, shape, &mut report)?;
    noop(&onceflow, &snakemake, shape, &mut report)?;
    start(&onceflow, &mut report)?;
    report
        .note(format!("{steps} commands, {JOBS} jobs, bash -euo pipefail -c on both sides; make syncs nothing, we do"));
    Ok(report)
}

/// Everything from nothing.
fn cold(onceflow: &Onceflow, shape: Shape, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new("tool-cold")?;
    let mut turn = 0;
    let mut fresh = |name: &str| -> anyhow::Result<std::path::PathBuf> {
        turn += 1;
        let directory = scratch.join(&format!("{name}-{turn}"));
        std::fs::create_dir_all(&directory)?;
        Ok(directory)
    };
    let mut directories = [fresh("ours")?, fresh("make")?];
    let [ours_at, make_at] = &mut directories;
    let mut ours = || {
        renew(ours_at)?;
        shape.write_flow(ours_at)?;
        let (seconds, ()) = timed(|| onceflow.run(ours_at, JOBS))?;
        shape.verify(&ours_at.join("results"))?;
        Ok(Turn { figure: seconds, seconds })
    };
    let mut theirs = || {
        renew(make_at)?;
        shape.write_makefile(make_at)?;
        let (seconds, ()) = timed(|| make(make_at, JOBS))?;
        shape.verify(make_at)?;
        Ok(Turn { figure: seconds, seconds })
    };
    let rounds = Rounds::run("cold (s)", ROUNDS_COLD, &mut [&mut ours, &mut theirs])?;
    report.key(
        "cold_vs_make",
        Line {
            what: format!("{} trivial commands, ours ÷ make's", shape.steps()),
            ours: format!("{:.2} s", rounds.median(0)),
            theirs: format!("{:.2} s", rounds.median(1)),
            figure: rounds.ratio(0, 1),
            target: Target::AtMost(1.5),
        },
    );
    report.detail(
        "cold",
        json!({ "ours_s": report::figures(rounds.figures(0)), "make_s": report::figures(rounds.figures(1)) }),
    );
    Ok(())
}

/// An empty directory where there was a full one.
fn renew(directory: &Path) -> anyhow::Result<()> {
    std::fs::remove_dir_all(directory)?;
    Ok(std::fs::create_dir_all(directory)?)
}

/// Nothing to do.
fn noop(onceflow: &Onceflow, snakemake: &Path, shape: Shape, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new("tool-noop")?;
    let (ours_at, make_at, snake_at) = (scratch.join("ours"), scratch.join("make"), scratch.join("snakemake"));
    for directory in [&ours_at, &make_at, &snake_at] {
        std::fs::create_dir_all(directory)?;
    }
    shape.write_flow(&ours_at)?;
    shape.write_makefile(&make_at)?;
    shape.write_snakefile(&snake_at)?;
    onceflow.run(&ours_at, JOBS)?;
    make(&make_at, JOBS)?;
    let (snakemake_cold, ()) = timed(|| snakemake::run(snakemake, &snake_at, JOBS))?;
    shape.verify(&snake_at)?;
    let before = written(&ours_at)?;
    let turn = |seconds: f64| Ok(Turn { figure: seconds * 1e3, seconds });
    let mut ours = || turn(timed(|| onceflow.run(&ours_at, JOBS))?.0);
    let mut theirs = || turn(timed(|| make(&make_at, JOBS))?.0);
    let rounds = Rounds::run("nothing to do (ms): ours, make", ROUNDS_NOOP, &mut [&mut ours, &mut theirs])?;
    let mut ours = || turn(timed(|| onceflow.run(&ours_at, JOBS))?.0);
    let mut snake = || turn(timed(|| snakemake::run(snakemake, &snake_at, JOBS))?.0);
    let snakes = Rounds::run("nothing to do (ms): ours, snakemake", 5, &mut [&mut ours, &mut snake])?;
    ensure!(written(&ours_at)? == before, "a run that had nothing to do wrote something");
    report.key(
        "noop_vs_make",
        Line {
            what: "nothing to do, ours ÷ make's".into(),
            ours: format!("{:.0} ms", rounds.median(0)),
            theirs: format!("{:.0} ms", rounds.median(1)),
            figure: rounds.ratio(0, 1),
            target: Target::AtMost(5.0),
        },
    );
    report.key(
        "noop_vs_snakemake",
        Line {
            what: "nothing to do, Snakemake's ÷ ours".into(),
            ours: format!("{:.0} ms", snakes.median(0)),
            theirs: format!("{:.0} ms", snakes.median(1)),
            figure: snakes.ratio(1, 0),
            target: Target::AtLeast(30.0),
        },
    );
    report.note(format!("Snakemake took {snakemake_cold:.1} s for all commands, once, from nothing"));
    report.detail("noop", json!({ "ours_ms": report::figures(rounds.figures(0)), "make_ms": report::figures(rounds.figures(1)), "snakemake_ms": report::figures(snakes.figures(1)) }));
    Ok(())
}

/// Every file below a directory with its size and time of change: what a write would alter. Sockets and locks that come
/// and go with a process are not kept.
fn written(directory: &Path) -> anyhow::Result<Vec<(std::path::PathBuf, u64, std::time::SystemTime)>> {
    let (mut found, mut todo) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(at) = todo.pop() {
        for entry in std::fs::read_dir(&at)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                todo.push(entry.path());
            } else if metadata.is_file() && metadata.len() > 0 {
                found.push((entry.path(), metadata.len(), metadata.modified()?));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// One command in a new store, from the start of our process to its end, less the command by itself.
fn start(onceflow: &Onceflow, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new("tool-start")?;
    let at = scratch.join("one");
    std::fs::create_dir_all(&at)?;
    let turn = |seconds: f64| Ok(Turn { figure: seconds * 1e3, seconds: seconds.max(0.2) });
    let mut ours = || {
        renew(&at)?;
        flows::write_one(&at)?;
        turn(timed(|| onceflow.run(&at, JOBS))?.0)
    };
    let mut bare = || {
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", flows::ONE]).current_dir(scratch.path());
        turn(timed(|| peers::quietly(&mut command))?.0)
    };
    let rounds = Rounds::run("one command (ms): ours, bare", ROUNDS_START, &mut [&mut ours, &mut bare])?;
    let (ours, bare) = (rounds.median(0), rounds.median(1));
    report.key(
        "start_overhead_ms",
        Line {
            what: "one command in a new store, less the command (ms)".into(),
            ours: format!("{ours:.1} ms"),
            theirs: format!("{bare:.1} ms"),
            figure: ours - bare,
            target: Target::AtMost(30.0),
        },
    );
    report.detail(
        "start",
        json!({ "ours_ms": report::figures(rounds.figures(0)), "bare_ms": report::figures(rounds.figures(1)) }),
    );
    Ok(())
}
