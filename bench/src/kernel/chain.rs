//! A chain of a thousand durable steps with nothing else running, against as many synced appends of the same bytes: the
//! median time from one body to the next, against the median append.

use super::{
    bed::{Bed, Did, several},
    durable::{FUSED_TIMES, turn},
    flows,
};
use onceflow_bench::{
    appender::Appender,
    disk::Scratch,
    report::{self, Fused, Line, Report, Target},
    rounds::{Rounds, Turn, median},
};
use onceflow_store::backend::journal::Durability;
use serde_json::json;
use std::time::Instant;
use tokio::runtime::Runtime;

pub(super) const STEPS: usize = 1000;

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new("chain")?;
    let plain = Bed::journal(runtime, &scratch.join("plain"), Durability::Synced, false, 0)?;
    let fused = Bed::journal(runtime, &scratch.join("fused"), Durability::Synced, true, 0)?;
    let before = plain.log();
    runtime.block_on(chain(&plain, false))?;
    let record = vec![0x5a; (plain.log().since(before).bytes / STEPS as u64) as usize];
    let mut appender = Appender::create(&scratch.join("file"))?;
    let (mut did, mut did_fused) = (Did::default(), Did::default());
    let in_us = |turn: Turn| Turn { figure: 1e6 / turn.figure, ..turn };
    let rounds = Rounds::run(
        "a chain of durable steps, fused : synced appends (µs)",
        0,
        &mut [
            &mut || {
                plain.count.keep_times();
                let turn = turn(&mut did, runtime.block_on(chain(&plain, false))?)?;
                Ok(Turn { figure: median(plain.count.gaps_us()), ..turn })
            },
            &mut || {
                let did = several(FUSED_TIMES, || runtime.block_on(chain(&fused, true)))?;
                Ok(in_us(turn(&mut did_fused, did)?))
            },
            &mut || {
                let start = Instant::now();
                let mut took_us = Vec::with_capacity(STEPS);
                for _ in 0..STEPS {
                    let begun = Instant::now();
                    appender.append(&record)?;
                    took_us.push(begun.elapsed().as_secs_f64() * 1e6);
                }
                Ok(Turn { figure: median(took_us), seconds: start.elapsed().as_secs_f64() })
            },
        ],
    )?;
    appender.check(&record)?;
    plain.close(runtime)?;
    fused.close(runtime)?;
    let line = Line {
        what: "a durable step in a chain of 1000, against a synced append".into(),
        ours: format!("{:.0} µs", rounds.median(0)),
        theirs: format!("{:.0} µs", rounds.median(2)),
        figure: rounds.ratio(0, 2),
        target: Target::AtMost(1.2),
    };
    let fused = Fused { figure: rounds.ratio(1, 2), target: Target::None };
    report.key_fused("step_vs_fdatasync", line, "step_vs_fdatasync_fused", fused);
    report.detail(
        "chain",
        json!({
            "ours_us": report::figures(rounds.figures(0)),
            "ours_fused_us": report::figures(rounds.figures(1)),
            "fdatasync_us": report::figures(rounds.figures(2)),
            "cpu_us_per_step": report::rounded(did.cpu_us_per_step()),
            "bytes_per_step": record.len(),
        }),
    );
    Ok(())
}

/// A run of a chain.
pub(super) async fn chain(bed: &Bed, pure: bool) -> anyhow::Result<Did> {
    bed.run(bed.start(flows::chain(STEPS, pure), ("x", flows::int(0))), STEPS as u64).await
}
