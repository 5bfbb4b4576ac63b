//! The engine against its peers and its promises: durable steps against a bare log, one fdatasync, durare and duroxide;
//! steps in memory; plans of a million steps; loops that must not grow.
//!
//! `BENCH_PART` names one part; `BENCH_SCALE` (1 unless set) makes the long parts shorter: 0.05 is a run of two minutes.

mod bed;
mod chain;
pub(crate) mod child;
mod durable;
pub(crate) mod flows;
mod loops;
mod memory;
mod peers;
mod plan;

use crate::report::Report;
use anyhow::Context;
use tokio::runtime::Runtime;

/// A part by name.
type Part = (&'static str, fn(&Runtime, &mut Report) -> anyhow::Result<()>);

const PARTS: &[Part] = &[
    ("durable", durable::measure),
    ("peers", peers::measure),
    ("chain", chain::measure),
    ("memory", memory::measure),
    ("each", memory::measure_each),
    ("plan", plan::measure),
    ("loop", loops::measure),
];

/// All parts, or the one that the environment names.
pub(crate) fn run() -> anyhow::Result<Report> {
    let only = std::env::var("BENCH_PART").ok();
    let mut report = Report::default();
    let runtime = runtime()?;
    for (name, measure) in PARTS {
        if only.as_ref().is_none_or(|only| only == name) {
            measure(&runtime, &mut report).with_context(|| format!("kernel, part {name}"))?;
        }
    }
    if scale() != 1.0 {
        report.note(format!("scaled by {} (BENCH_SCALE): these are no final figures", scale()));
    }
    Ok(report)
}

/// The runtime of every side.
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

/// How long the long parts are.
pub(crate) fn scale() -> f64 {
    std::env::var("BENCH_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1.0)
}

/// So many, scaled, and at least some.
pub(crate) fn scaled(many: u64, least: u64) -> u64 {
    ((many as f64 * scale()) as u64).max(least)
}
