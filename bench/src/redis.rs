//! A store on a real Redis server that syncs every commit: steps against the same script driven by a bare client, a cascade
//! against one giant script, and what finished runs leave behind.
//!
//! `BENCH_PART` names one part; `BENCH_SCALE` (1 unless set) makes all of them shorter.
//!
//! | module | what it owns |
//! |---|---|
//! | `server` | a private server, and what it tells about itself |
//! | `watched` | records that count calls and keep batches |
//! | `workers` | engines on a server, and chains of steps on them |
//! | `bare` | the same batches sent by a bare client |
//! | `steps`, `cascade`, `left` | the parts |
//! | `giant` | the classic script that follows references in one call |

mod bare;
mod cascade;
mod giant;
mod left;
mod server;
mod steps;
mod watched;
mod workers;

use crate::{
    kernel::{runtime, scale},
    report::Report,
};
use anyhow::Context;
use tokio::runtime::Runtime;

/// A part by name.
type Part = (&'static str, fn(&Runtime, &mut Report) -> anyhow::Result<()>);

const PARTS: &[Part] = &[("steps", steps::measure), ("cascade", cascade::measure), ("left", left::measure)];

/// All parts, or the one that the environment names.
pub(crate) fn run() -> anyhow::Result<Report> {
    let only = std::env::var("BENCH_PART").ok();
    let mut report = Report::default();
    let runtime = runtime()?;
    for (name, measure) in PARTS {
        if only.as_ref().is_none_or(|only| only == name) {
            measure(&runtime, &mut report).with_context(|| format!("redis, part {name}"))?;
        }
    }
    if scale() != 1.0 {
        report.note(format!("scaled by {} (BENCH_SCALE): these are no final figures", scale()));
    }
    Ok(report)
}
