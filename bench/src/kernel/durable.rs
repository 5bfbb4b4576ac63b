//! A thousand chains of steps that do nothing, synced, against a bare log with the same bytes, waiters and runtime.
//!
//! The chains are the elements of one each (what counts), or runs of their own (beside it: there a thousand are started,
//! planned, folded and waited for in the same time).

use super::{
    bed::{Bed, Did},
    flows,
};
use crate::{
    disk::Scratch,
    report::{self, Fused, Line, Report, Target, per_second},
    rounds::{Rounds, Turn, cpu_seconds},
    store::barelog::BareLog,
};
use anyhow::ensure;
use onceflow_store::backend::journal::Durability;
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

pub(super) const CHAINS: usize = 1000;
pub(super) const CHAIN_STEPS: usize = 20;
pub(super) const STEPS: u64 = (CHAINS * CHAIN_STEPS) as u64;
/// Fused chains are over soon: so many in one turn.
pub(super) const FUSED_TIMES: usize = 10;
const LOG_TURN: Duration = Duration::from_millis(500);

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new("durable")?;
    let plain = Bed::journal(runtime, &scratch.join("plain"), Durability::Synced, false, 0)?;
    let fused = Bed::journal(runtime, &scratch.join("fused"), Durability::Synced, true, 0)?;
    let before = plain.log();
    runtime.block_on(each(&plain, false))?;
    let (frames, bytes) = plain.log();
    let record = vec![0x5a; (bytes - before.1).div_ceil(STEPS) as usize];
    let group_size = STEPS as f64 / (frames - before.0) as f64;

    let log = Arc::new(BareLog::create(&scratch.join("log"))?);
    let mut totals = [Did::default(); 4];
    let [a, b, c, d] = &mut totals;
    let rounds = Rounds::run(
        "durable steps: an each, fused, runs : bare log (per second)",
        0,
        &mut [
            &mut || turn(a, runtime.block_on(each(&plain, false))?),
            &mut || turn(b, several(FUSED_TIMES, || runtime.block_on(each(&fused, true)))?),
            &mut || turn(c, runs(runtime, &plain)?),
            &mut || turn(d, append(runtime, &log, &record)?),
        ],
    )?;
    let log = Arc::into_inner(log).expect("all who append have ended");
    ensure!(log.close()?.bytes == totals[3].steps * record.len() as u64, "the bare log lost a record");
    plain.close(runtime)?;
    fused.close(runtime)?;
    tell(report, &rounds, &totals, record.len(), group_size);
    Ok(())
}

fn tell(report: &mut Report, rounds: &Rounds, totals: &[Did; 4], bytes: usize, group_size: f64) {
    let line = |what: &str, side: usize, target: Target| Line {
        what: what.into(),
        ours: per_second(rounds.median(side)),
        theirs: per_second(rounds.median(3)),
        figure: rounds.ratio(side, 3),
        target,
    };
    let plain = line("durable steps of 1000 chains (an each), against a bare log", 0, Target::AtLeast(0.3));
    let fused = Fused { figure: rounds.ratio(1, 3), target: Target::None };
    report.key_fused("durable_vs_log", plain, "durable_vs_log_fused", fused);
    report.line(line("the same as 1000 runs, with starting and ending them", 2, Target::None));
    let cpu: Vec<_> = totals.iter().map(Did::cpu_us_per_step).collect();
    report.detail(
        "durable",
        json!({
            "each_per_s": report::figures(rounds.figures(0)),
            "each_fused_per_s": report::figures(rounds.figures(1)),
            "runs_per_s": report::figures(rounds.figures(2)),
            "runs_vs_log": report::rounded(rounds.ratio(2, 3)),
            "log_per_s": report::figures(rounds.figures(3)),
            "cpu_us_per_step": {
                "each": report::rounded(cpu[0]), "each_fused": report::rounded(cpu[1]),
                "runs": report::rounded(cpu[2]), "log": report::rounded(cpu[3]),
            },
            "bytes_per_step": bytes,
            "steps_per_sync": report::rounded(group_size),
        }),
    );
    report
        .note("an each has as many elements in flight as its lanes and chunks allow, not all thousand; runs have all");
}

pub(super) fn turn(total: &mut Did, did: Did) -> anyhow::Result<Turn> {
    total.add(did);
    Ok(Turn { figure: did.per_second(), seconds: did.seconds + did.start_seconds })
}

/// Several of what is over too soon.
pub(super) fn several(times: usize, one: impl Fn() -> anyhow::Result<Did>) -> anyhow::Result<Did> {
    let mut did = Did::default();
    for _ in 0..times {
        did.add(one()?);
    }
    Ok(did)
}

/// An each of a thousand over a chain.
pub(super) async fn each(bed: &Bed, pure: bool) -> anyhow::Result<Did> {
    let list = flows::int_list(CHAINS);
    bed.run(bed.start(flows::each(CHAIN_STEPS, pure), ("xs", list)), STEPS).await
}

/// A thousand runs of a chain, from the first start to the last end.
pub(super) fn runs(runtime: &Runtime, bed: &Bed) -> anyhow::Result<Did> {
    let starts: Vec<_> =
        (0..CHAINS).map(|_| bed.start(flows::chain(CHAIN_STEPS, false), ("x", flows::int(0)))).collect();
    let (start, cpu, before) = (Instant::now(), cpu_seconds(), bed.count.ran());
    let run = |start| {
        let engine = bed.engine.clone();
        runtime.spawn(async move { engine.start(start).await?.wait().await })
    };
    let running: Vec<_> = starts.into_iter().map(run).collect();
    for run in running {
        let report = runtime.block_on(run)??;
        ensure!(
            matches!(report, onceflow_engine::Summary { status: onceflow_engine::RunStatus::Done, .. }),
            "a run did not end well: {report}"
        );
    }
    let steps = bed.count.ran() - before;
    ensure!(steps == STEPS, "{steps} bodies ran, not {STEPS}");
    let seconds = start.elapsed().as_secs_f64();
    Ok(Did { steps, seconds, cpu_seconds: cpu_seconds() - cpu, start_seconds: 0.0 })
}

/// As many append records for a turn.
fn append(runtime: &Runtime, log: &Arc<BareLog>, record: &[u8]) -> anyhow::Result<Did> {
    let stop = Arc::new(AtomicBool::new(false));
    let task = |_| {
        let (stop, log, record) = (stop.clone(), log.clone(), record.to_vec());
        runtime.spawn(async move {
            let mut appended = 0;
            while !stop.load(Relaxed) {
                log.append(&record).await;
                appended += 1;
            }
            appended
        })
    };
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let running: Vec<_> = (0..CHAINS).map(task).collect();
    std::thread::sleep(LOG_TURN);
    stop.store(true, Relaxed);
    let mut steps = 0;
    for task in running {
        steps += runtime.block_on(task)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(Did { steps, seconds, cpu_seconds: cpu_seconds() - cpu, start_seconds: 0.0 })
}
