//! The processor time of starting a run: its flow is checked, planned and stored. No step is performed meanwhile.

use super::{bed::Bed, flows};
use onceflow_bench::{
    report::{self, Line, Report, Target},
    rounds::{Rounds, Side, Turn, cpu_seconds, timed},
};
use serde_json::json;
use tokio::runtime::Runtime;

/// Tasks of the flow, runs of one turn (processor time is told in hundredths of a second), and the target in µs.
const CASES: [(usize, usize, f64); 2] = [(3, 3_000, 30.0), (1_000, 100, 2_000.0)];

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    for (tasks, runs, target) in CASES {
        let sides: &mut [Side<'_>] =
            &mut [&mut || turn(runtime, tasks, runs, false), &mut || turn(runtime, tasks, runs, true)];
        let rounds = Rounds::run(&format!("starting a flow of {tasks} tasks, fused (µs of processor)"), 0, sides)?;
        let line = Line {
            what: format!("processor time of starting a flow of {tasks} tasks (µs)"),
            ours: format!("{:.0} µs", rounds.median(0)),
            theirs: format!("fused {:.0} µs", rounds.median(1)),
            figure: rounds.median(0),
            target: Target::AtMost(target),
        };
        report.key(&format!("start_us_of_{tasks}"), line);
        let detail =
            json!({ "us": report::figures(rounds.figures(0)), "fused_us": report::figures(rounds.figures(1)) });
        report.detail(&format!("start_{tasks}"), detail);
    }
    Ok(())
}

/// Starts runs on a new engine that performs nothing.
fn turn(runtime: &Runtime, tasks: usize, runs: usize, fuse: bool) -> anyhow::Result<Turn> {
    let bed = Bed::starting(runtime, fuse);
    let starts: Vec<_> = (0..runs).map(|_| bed.start(flows::chain(tasks, true), ("x", flows::int(0)))).collect();
    let cpu = cpu_seconds();
    let (seconds, handles) = timed(|| {
        runtime.block_on(async {
            let mut handles = Vec::with_capacity(runs);
            for start in starts {
                handles.push(bed.engine.start(start).await?);
            }
            Ok(handles)
        })
    })?;
    let figure = (cpu_seconds() - cpu) * 1e6 / runs as f64;
    anyhow::ensure!(bed.count.ran() == 0, "a step was performed while runs were started");
    drop(handles);
    bed.close(runtime)?;
    Ok(Turn { figure, seconds })
}
