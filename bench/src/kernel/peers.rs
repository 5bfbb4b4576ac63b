//! The same shape on durare and duroxide: a thousand workflows of twenty steps that do nothing, in this process, on a
//! runtime made like ours, on SQLite with every commit synced (WAL, `synchronous = FULL`).
//!
//! Their steps are counted where they run, so that no status is polled while they work. A turn ends when all are
//! done, or after some seconds: their rate does not get better by waiting.

mod durare;
mod duroxide;

use super::{
    bed::{Bed, Did, several},
    durable::{self, FUSED_TIMES, turn},
    runtime,
};
use anyhow::ensure;
use onceflow_bench::{
    disk::Scratch,
    report::{self, Fused, Line, Report, Target, per_second},
    rounds::{Rounds, cpu_seconds},
};
use onceflow_store::backend::journal::Durability;
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

/// The longest turn of a peer.
const TURN_MAX: Duration = Duration::from_secs(3);
const LEAST: f64 = 50.0;

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new("peers")?;
    let plain = Bed::journal(runtime, &scratch.join("plain"), Durability::Synced, false, 0)?;
    let fused = Bed::journal(runtime, &scratch.join("fused"), Durability::Synced, true, 0)?;
    let mut totals = [Did::default(); 5];
    let [a, b, c, d, e] = &mut totals;
    let rounds = Rounds::run(
        "durable steps: an each, fused, runs : durare : duroxide (per second)",
        0,
        &mut [
            &mut || turn(a, runtime.block_on(durable::each(&plain, false))?),
            &mut || turn(b, several(FUSED_TIMES, || runtime.block_on(durable::each(&fused, true)))?),
            &mut || turn(c, durable::runs(runtime, &plain)?),
            &mut || turn(d, watched(|count| durare::run(self::runtime()?, count))?),
            &mut || turn(e, watched(|count| duroxide::run(self::runtime()?, count))?),
        ],
    )?;
    plain.close(runtime)?;
    fused.close(runtime)?;
    for (side, name) in [(3, "durare"), (4, "duroxide")] {
        let line = |ours: usize, what: String, target: Target| Line {
            what,
            ours: per_second(rounds.median(ours)),
            theirs: per_second(rounds.median(side)),
            figure: rounds.ratio(ours, side),
            target,
        };
        let each = line(0, format!("durable steps of 1000 chains, against {name}"), Target::AtLeast(LEAST));
        let with_fusion = Fused { figure: rounds.ratio(1, side), target: Target::None };
        report.key_fused(&format!("durable_vs_{name}"), each, &format!("durable_vs_{name}_fused"), with_fusion);
        report.line(line(2, format!("the same as 1000 runs, against {name}"), Target::None));
        report.detail(
            name,
            json!({
                "each_per_s": report::figures(rounds.figures(0)),
                "runs_per_s": report::figures(rounds.figures(2)),
                "theirs_per_s": report::figures(rounds.figures(side)),
                "ours_cpu_us": report::rounded(totals[0].cpu_us_per_step()),
                "theirs_cpu_us": report::rounded(totals[side].cpu_us_per_step()),
            }),
        );
    }
    report.note(
        "durare 0.5 and duroxide 0.1.32: SQLite with WAL and synchronous = FULL (their defaults do not sync every \
                 commit), as many connections as they have by default",
    );
    report.note(duroxide::SETTING);
    Ok(())
}

/// Runs a peer and sees how many steps it does until all are done, or it was long enough.
fn watched(start: impl FnOnce(&Arc<AtomicU64>) -> anyhow::Result<(Runtime, Scratch)>) -> anyhow::Result<Did> {
    let count = Arc::new(AtomicU64::new(0));
    let (runtime, _database) = start(&count)?;
    let (begin, cpu) = (Instant::now(), cpu_seconds());
    while count.load(Relaxed) < durable::STEPS && begin.elapsed() < TURN_MAX {
        std::thread::sleep(Duration::from_millis(1));
    }
    let did = Did {
        steps: count.load(Relaxed),
        seconds: begin.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        start_seconds: 0.0,
    };
    runtime.shutdown_timeout(Duration::from_secs(5));
    ensure!(did.steps > 0, "the peer did not do a single step");
    Ok(did)
}
