//! Steps that do nothing, in many chains at once, by one, two and four workers, against the same batches sent by a bare client
//! with as many in flight on as many connections. And how many scripts a step calls.

use super::{
    bare::{self, Tape},
    server::Bench,
    workers::{self, Workers},
};
use onceflow_bench::{
    program::scaled,
    report::{self, Line, Report, Target, per_second},
    rounds::{Rounds, Turn},
};
use serde_json::json;
use std::{sync::Arc, time::Instant};
use tokio::runtime::Runtime;

const WORKERS: [usize; 3] = [1, 2, 4];
/// Chains at once.
const RUNS: usize = 128;
const HISTORY_MS: u64 = 3_600_000;

/// What one turn of the workers came to, in the middle of the runs.
struct Middle {
    steps: u64,
    seconds: f64,
    server_cpu_seconds: f64,
    /// Scripts called, and those of them that are no step's.
    calls: u64,
    others: u64,
    /// By command.
    commands: serde_json::Value,
}

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let server = runtime.block_on(Bench::start())?;
    let length = scaled(200, 60) as usize;
    let tape = Arc::new(runtime.block_on(Tape::record(&server, length.min(120)))?);
    let maker = runtime.block_on(bare::maker(&server))?;
    let mut least = f64::MAX;
    let (mut calls, mut others, mut steps) = (0, 0, 0);
    for many in WORKERS {
        let mut middles = vec![];
        let rounds = Rounds::run(
            &format!("steps by {many} workers : a bare client (per second)"),
            0,
            &mut [
                &mut || {
                    let middle = runtime.block_on(middle(&server, many, length))?;
                    let turn = Turn { figure: middle.steps as f64 / middle.seconds, seconds: middle.seconds };
                    middles.push(middle);
                    Ok(turn)
                },
                &mut || {
                    let (steps, seconds) = runtime.block_on(bare::play(&server, &maker, &tape, RUNS, many))?;
                    Ok(Turn { figure: steps as f64 / seconds, seconds })
                },
            ],
        )?;
        least = least.min(rounds.ratio(0, 1));
        report.line(Line {
            what: format!("steps of {RUNS} chains by {many} workers, against a bare client"),
            ours: per_second(rounds.median(0)),
            theirs: per_second(rounds.median(1)),
            figure: rounds.ratio(0, 1),
            target: Target::None,
        });
        let sum = |figure: fn(&Middle) -> f64| middles.iter().map(figure).sum::<f64>();
        let all = sum(|one| one.steps as f64);
        calls += middles.iter().map(|one| one.calls).sum::<u64>();
        others += middles.iter().map(|one| one.others).sum::<u64>();
        steps += middles.iter().map(|one| one.steps).sum::<u64>();
        report.detail(
            &format!("steps_{many}_workers"),
            json!({
                "ours_per_s": report::figures(rounds.figures(0)),
                "bare_per_s": report::figures(rounds.figures(1)),
                "server_cpu_us_per_step": report::rounded(sum(|one| one.server_cpu_seconds) * 1e6 / all),
                "calls_and_us_per_step": middles.last().map(|one| one.commands.clone()),
            }),
        );
    }
    report.key(
        "steps_vs_bare_script",
        Line {
            what: "the least of these".into(),
            ours: String::new(),
            theirs: String::new(),
            figure: least,
            target: Target::AtLeast(0.5),
        },
    );
    report.key(
        "script_calls_per_step",
        Line {
            what: "scripts called for a step, without looks for work, heartbeats and the clock".into(),
            ours: format!("{:.3} with them", calls as f64 / steps as f64),
            theirs: String::new(),
            figure: calls.saturating_sub(others) as f64 / steps as f64,
            target: Target::AtMost(1.05),
        },
    );
    report.detail("step_call_bytes", json!(report::rounded(tape.bytes_per_step(&maker))));
    report.note("steps: counted from a fifth of the runs' steps to four fifths; the bare client sends what a real run committed, each chain in a shard of its own");
    Ok(())
}

/// Runs chains, and measures between a fifth and four fifths of their steps.
async fn middle(server: &Bench, many: usize, length: usize) -> anyhow::Result<Middle> {
    let workers = Workers::start(server, many).await?;
    let handles = workers.chains(RUNS, length, HISTORY_MS).await?;
    let all = (RUNS * length) as u64;
    workers.until(all / 5).await;
    let (steps, cpu, others) = (workers.count.ran(), server.cpu_seconds(), workers.calls.others());
    let (before, start) = (server.commands().await?, Instant::now());
    workers.until((all * 4 / 5).max(steps + 1)).await;
    let (after, seconds) = (server.commands().await?, start.elapsed().as_secs_f64());
    let steps = workers.count.ran() - steps;
    let (cpu, others) = (server.cpu_seconds() - cpu, workers.calls.others() - others);
    workers::end(handles).await?;
    workers.close().await?;
    server.flush().await?;
    let scripts = ["evalsha", "eval"];
    let calls = after.calls(&scripts) - before.calls(&scripts);
    let commands = after.per_step(&before, steps);
    Ok(Middle { steps, seconds, server_cpu_seconds: cpu, calls, others, commands })
}
