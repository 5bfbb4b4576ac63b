//! A thousand chains of steps that do nothing, synced, against a bare log with the same bytes, runtime, and as many waiters
//! as steps are in flight.
//!
//! The chains are the elements of one each, or runs of their own: there a thousand are started, planned, folded and waited
//! for in the same time.

use super::flows;
use anyhow::ensure;
use onceflow_bench::{
    barelog::BareLog,
    bed::{Bed, Did, several},
    disk::Scratch,
    report::{self, Fused, Line, Report, Target, per_second},
    rounds::{Rounds, Turn, cpu_seconds},
};
use onceflow_store::backend::journal::Durability;
use serde_json::json;
use std::{
    path::Path,
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
    let in_flight = most_in_flight(runtime, &plain)?;
    let before = plain.log();
    runtime.block_on(each(&plain, false))?;
    let bytes = plain.log().since(before).bytes;
    let record = vec![0x5a; bytes.div_ceil(STEPS) as usize];

    let (log, log_of_runs) =
        (Log::create(&scratch.join("log"), in_flight)?, Log::create(&scratch.join("runs"), CHAINS)?);
    let mut totals = [Did::default(); 5];
    let mut syncs = [0; 2];
    let [a, b, c, d, e] = &mut totals;
    let [each_syncs, runs_syncs] = &mut syncs;
    let counting = |syncs: &mut u64, did: &dyn Fn() -> anyhow::Result<Did>| {
        let before = plain.log();
        let did = did()?;
        *syncs += plain.log().since(before).syncs;
        anyhow::Ok(did)
    };
    let rounds = Rounds::run(
        "durable steps: an each, fused, runs : bare log, with 1000 waiters (per second)",
        0,
        &mut [
            &mut || turn(a, counting(each_syncs, &|| runtime.block_on(each(&plain, false)))?),
            &mut || turn(b, several(FUSED_TIMES, || runtime.block_on(each(&fused, true)))?),
            &mut || turn(c, counting(runs_syncs, &|| runs(runtime, &plain))?),
            &mut || turn(d, log.append(runtime, &record)?),
            &mut || turn(e, log_of_runs.append(runtime, &record)?),
        ],
    )?;
    let log_syncs = log.close(totals[3].steps, &record)?;
    let log_of_runs_syncs = log_of_runs.close(totals[4].steps, &record)?;
    plain.close(runtime)?;
    fused.close(runtime)?;
    let syncs = [syncs[0], syncs[1], log_syncs, log_of_runs_syncs];
    tell(report, &rounds, &totals, Found { bytes: record.len(), in_flight, syncs });
    Ok(())
}

/// Figures beside the rates.
struct Found {
    /// The bytes that a step takes in our log.
    bytes: usize,
    /// Steps of the each that are in flight.
    in_flight: usize,
    /// Syncs of the each, the runs, the log, and the log with a thousand waiters. Ours with those of the first turns.
    syncs: [u64; 4],
}

fn tell(report: &mut Report, rounds: &Rounds, totals: &[Did; 5], found: Found) {
    let line = |what: String, side: usize, log: usize, target: Target| Line {
        what,
        ours: per_second(rounds.median(side)),
        theirs: per_second(rounds.median(log)),
        figure: rounds.ratio(side, log),
        target,
    };
    let Found { bytes, in_flight, syncs } = found;
    let what = format!("durable steps of 1000 chains (an each), against a bare log with {in_flight} waiters");
    let fused = Fused { figure: rounds.ratio(1, 3), target: Target::None };
    report.key_fused("durable_vs_log", line(what, 0, 3, Target::AtLeast(0.2)), "durable_vs_log_fused", fused);
    let what = String::from("the same as 1000 runs, with starting and ending them, against 1000 waiters");
    report.key("durable_runs_vs_log", line(what, 2, 4, Target::AtLeast(0.1)));
    let cpu: Vec<_> = totals.iter().map(|did| report::rounded(did.cpu_us_per_step())).collect();
    let per_sync = |side: usize, at: usize| report::rounded(totals[side].steps as f64 / syncs[at].max(1) as f64);
    report.detail(
        "durable",
        json!({
            "each_per_s": report::figures(rounds.figures(0)),
            "each_fused_per_s": report::figures(rounds.figures(1)),
            "runs_per_s": report::figures(rounds.figures(2)),
            "log_per_s": report::figures(rounds.figures(3)),
            "log_of_1000_per_s": report::figures(rounds.figures(4)),
            "cpu_us_per_step": {
                "each": cpu[0], "each_fused": cpu[1], "runs": cpu[2], "log": cpu[3], "log_of_1000": cpu[4],
            },
            "bytes_per_step": bytes,
            "steps_in_flight": { "each": in_flight, "runs": CHAINS },
            "steps_per_sync": {
                "each": per_sync(0, 0), "runs": per_sync(2, 1), "log": per_sync(3, 2), "log_of_1000": per_sync(4, 3),
            },
        }),
    );
}

/// The most steps of the each that are in flight at a time: its bodies are held until no other starts.
fn most_in_flight(runtime: &Runtime, bed: &Bed) -> anyhow::Result<usize> {
    const QUIET: Duration = Duration::from_millis(300);
    bed.count.hold();
    let (most, done) = std::thread::scope(|scope| {
        let running = scope.spawn(|| runtime.block_on(each(bed, false)));
        let (mut most, mut since) = (0, Instant::now());
        while (most == 0 || since.elapsed() < QUIET) && !running.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
            if bed.count.held() > most {
                (most, since) = (bed.count.held(), Instant::now());
            }
        }
        bed.count.release();
        (most, running.join().expect("a run does not panic"))
    });
    done?;
    ensure!(most > 0, "no body was held");
    Ok(most)
}

pub(super) fn turn(total: &mut Did, did: Did) -> anyhow::Result<Turn> {
    total.add(did);
    Ok(Turn { figure: did.per_second(), seconds: did.seconds + did.start_seconds })
}

/// An each of a thousand over a chain.
pub(super) async fn each(bed: &Bed, pure: bool) -> anyhow::Result<Did> {
    let list = flows::int_list(CHAINS);
    bed.run(bed.start(flows::each(CHAIN_STEPS, pure), ("xs", list)), STEPS).await
}

/// A thousand runs of a chain, from the first start to the last end.
pub(super) fn runs(runtime: &Runtime, bed: &Bed) -> anyhow::Result<Did> {
    bed.runs(runtime, CHAINS, CHAIN_STEPS)
}

/// A bare log with so many waiters.
struct Log {
    log: Arc<BareLog>,
    waiters: usize,
}

impl Log {
    fn create(path: &Path, waiters: usize) -> anyhow::Result<Log> {
        Ok(Log { log: Arc::new(BareLog::create(path)?), waiters })
    }

    /// All waiters append records for a turn.
    fn append(&self, runtime: &Runtime, record: &[u8]) -> anyhow::Result<Did> {
        let stop = Arc::new(AtomicBool::new(false));
        let task = |_| {
            let (stop, log, record) = (stop.clone(), self.log.clone(), record.to_vec());
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
        let running: Vec<_> = (0..self.waiters).map(task).collect();
        std::thread::sleep(LOG_TURN);
        stop.store(true, Relaxed);
        let mut steps = 0;
        for task in running {
            steps += runtime.block_on(task)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        Ok(Did { steps, seconds, cpu_seconds: cpu_seconds() - cpu, start_seconds: 0.0 })
    }

    /// Ends it, and returns how often it synced.
    fn close(self, steps: u64, record: &[u8]) -> anyhow::Result<u64> {
        let totals = Arc::into_inner(self.log).expect("all who append have ended").close()?;
        ensure!(totals.bytes == steps * record.len() as u64, "the bare log lost a record");
        Ok(totals.syncs)
    }
}
