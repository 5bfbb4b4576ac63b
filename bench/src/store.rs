//! The store against its peers: a bare log, one fdatasync, redb and SQLite; and against its own promises about reopening
//! and reclaiming.

pub(crate) mod alone;
pub(crate) mod barelog;
mod chain;
mod churn;
mod commits;
pub(crate) mod journal;
mod paged;
mod reclaim;
pub(crate) mod reopen;
mod step;

use crate::report::Report;
use anyhow::Context;
use tokio::runtime::Runtime;

/// A part by name.
type Part = (&'static str, fn(&Runtime, &mut Report) -> anyhow::Result<()>);

const PARTS: &[Part] = &[
    ("step", step::measure),
    ("commits", commits::measure),
    ("alone", alone::measure),
    ("churn", churn::measure),
    ("reopen", reopen::measure),
    ("reclaim", reclaim::measure),
    ("paged", paged::measure),
];

/// All parts, or the one that the environment names, for who wants to look at it closely.
pub(crate) fn run() -> anyhow::Result<Report> {
    let only = std::env::var("BENCH_PART").ok();
    let mut report = Report::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    for (name, measure) in PARTS {
        if only.as_ref().is_none_or(|only| only == name) {
            measure(&runtime, &mut report).with_context(|| format!("store, part {name}"))?;
        }
    }
    Ok(report)
}
