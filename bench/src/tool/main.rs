//! The command against GNU make and Snakemake.
//!
//! A thousand trivial commands against GNU make with the same shell and flags, a
//! run that has nothing to do against make and Snakemake, and what one command costs on top of itself.
//!
//! All three get the same graph: chains of commands, each adding one to the number in the file of the one before it.
//! `BENCH_STEPS` (1000 unless set) is how many commands there are.

mod flows;
mod peers;

use anyhow::{Context, ensure};
use flows::Shape;
use onceflow_bench::{
    disk::Scratch,
    program::Program,
    report::{self, Line, Report, Target},
    rounds::{Rounds, Turn, timed},
};
use peers::{Onceflow, make, snakemake};
use serde_json::json;
use std::{
    path::Path,
    process::{Command, ExitCode},
};
use tokio::runtime::Runtime;

const JOBS: &str = "2";
const ROUNDS_COLD: usize = 5;
const ROUNDS_NOOP: usize = 15;
const ROUNDS_START: usize = 40;

fn main() -> ExitCode {
    Program { name: "tool", parts: &[("cold", cold), ("noop", noop), ("start", start)], children: &[] }.main()
}

/// The graph that all tools get.
fn shape() -> anyhow::Result<Shape> {
    let steps = std::env::var("BENCH_STEPS").map_or(Ok(1000), |steps| steps.parse()).context("BENCH_STEPS")?;
    Ok(Shape::of(steps))
}

/// Everything from nothing.
fn cold(_: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let (onceflow, shape) = (Onceflow::build()?, shape()?);
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
        shape.verify(ours_at, &ours_at.join("results"))?;
        Ok(Turn { figure: seconds, seconds })
    };
    let mut theirs = || {
        renew(make_at)?;
        shape.write_makefile(make_at)?;
        let (seconds, ()) = timed(|| make(make_at, JOBS))?;
        shape.verify(make_at, make_at)?;
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
            target: Target::AtMost(1.3),
        },
    );
    report.note(format!(
        "{} commands, {JOBS} jobs, bash -euo pipefail -c on both sides; make syncs nothing, we do",
        shape.steps()
    ));
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
fn noop(_: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let (onceflow, shape) = (Onceflow::build()?, shape()?);
    let snakemake = &snakemake::install()?;
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
    let verify = || {
        shape.verify(&ours_at, &ours_at.join("results"))?;
        shape.verify(&make_at, &make_at)?;
        shape.verify(&snake_at, &snake_at)
    };
    verify()?;
    let before = written(&ours_at)?;
    let turn = |seconds: f64| Ok(Turn { figure: seconds * 1e3, seconds });
    let mut ours = || turn(timed(|| onceflow.run(&ours_at, JOBS))?.0);
    let mut theirs = || turn(timed(|| make(&make_at, JOBS))?.0);
    let rounds = Rounds::run("nothing to do (ms): ours, make", ROUNDS_NOOP, &mut [&mut ours, &mut theirs])?;
    let mut ours = || turn(timed(|| onceflow.run(&ours_at, JOBS))?.0);
    let mut snake = || turn(timed(|| snakemake::run(snakemake, &snake_at, JOBS))?.0);
    let snakes = Rounds::run("nothing to do (ms): ours, snakemake", 5, &mut [&mut ours, &mut snake])?;
    ensure!(written(&ours_at)? == before, "a run that had nothing to do wrote something");
    verify()?;
    report.key(
        "noop_vs_make",
        Line {
            what: "nothing to do, ours ÷ make's".into(),
            ours: format!("{:.0} ms", rounds.median(0)),
            theirs: format!("{:.0} ms", rounds.median(1)),
            figure: rounds.ratio(0, 1),
            target: Target::AtMost(3.0),
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
fn start(_: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let onceflow = Onceflow::build()?;
    let scratch = Scratch::new("tool-start")?;
    let at = scratch.join("one");
    std::fs::create_dir_all(&at)?;
    let turn = |seconds: f64| Ok(Turn { figure: seconds * 1e3, seconds: seconds.max(0.2) });
    let mut ours = || {
        renew(&at)?;
        flows::write_one(&at)?;
        let (seconds, ()) = timed(|| onceflow.run(&at, JOBS))?;
        ensure!(at.join("results").join("one.txt").exists(), "the command of the only step did not run");
        turn(seconds)
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
            target: Target::AtMost(10.0),
        },
    );
    report.detail(
        "start",
        json!({ "ours_ms": report::figures(rounds.figures(0)), "bare_ms": report::figures(rounds.figures(1)) }),
    );
    Ok(())
}
