//! A benchmark as a program of its own, so that `bench/run NAME` builds only the peers it measures against.
//!
//! `BENCH_PART` names the only part to run; `BENCH_SCALE` (1 unless set) makes the long parts shorter; `BENCH_SYNC_US`
//! simulates the disk (see [`disk`](crate::disk)).
//!
//! Exit code 0 although a target is missed, 1 if an answer was wrong or a peer did not run, 2 on bad usage.

use crate::report::Report;
use anyhow::Context;
use std::process::ExitCode;
use tokio::runtime::Runtime;

/// A part by name, and the function that measures it.
pub type Part = (&'static str, fn(&Runtime, &mut Report) -> anyhow::Result<()>);

/// A hidden verb that makes the program a child of itself, and the function that is the child.
pub type Child = (&'static str, fn(&[String]) -> anyhow::Result<()>);

/// A benchmark: its parts in order, and the children they start.
#[derive(Debug)]
pub struct Program {
    /// The name that `bench/run` knows it by.
    pub name: &'static str,
    /// Its parts.
    pub parts: &'static [Part],
    /// The children its parts start.
    pub children: &'static [Child],
}

impl Program {
    /// Runs what the arguments of this process ask for.
    pub fn main(&self) -> ExitCode {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        if let [first, rest @ ..] = &arguments[..]
            && let Some((_, child)) = self.children.iter().find(|(verb, _)| verb == first)
        {
            return finish(child(rest));
        }
        match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => finish(self.measure().map(Report::print_table)),
            ["--json"] => finish(self.measure().map(Report::print_json)),
            _ => {
                eprintln!("error: unexpected arguments {arguments:?}\nusage: bench/run {} [--json]", self.name);
                ExitCode::from(2)
            }
        }
    }

    fn measure(&self) -> anyhow::Result<Report> {
        let only = std::env::var("BENCH_PART").ok();
        let names: Vec<_> = self.parts.iter().map(|(name, _)| *name).collect();
        if let Some(only) = &only {
            anyhow::ensure!(names.contains(&only.as_str()), "{} has no part `{only}`; it has {names:?}", self.name);
        }
        let mut report = Report::default();
        let runtime = runtime()?;
        for (name, measure) in self.parts {
            if only.as_ref().is_none_or(|only| only == name) {
                measure(&runtime, &mut report).with_context(|| format!("{}, part {name}", self.name))?;
            }
        }
        if scale() != 1.0 {
            report.note(format!("scaled by {} (BENCH_SCALE): these are no final figures", scale()));
        }
        Ok(report)
    }
}

fn finish(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:?}");
            ExitCode::FAILURE
        }
    }
}

/// The runtime of every side.
pub fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

/// The factor on the length of the long parts.
pub fn scale() -> f64 {
    std::env::var("BENCH_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1.0)
}

/// So many, scaled, and at least `least`.
pub fn scaled(many: u64, least: u64) -> u64 {
    ((many as f64 * scale()) as u64).max(least)
}
