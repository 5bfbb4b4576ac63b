//! How soon a session with many futures in flight is quiet after it was cancelled: all of them are dropped by then.

use super::shapes;
use anyhow::ensure;
use onceflow_bench::{
    report::{self, Line, Report, Target},
    rounds::{Rounds, Side, Turn},
};
use serde_json::json;
use tokio::runtime::Runtime;

/// Futures in flight when the session is cancelled.
const OPERATIONS: usize = 10_000;

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let scope = shapes::pending(OPERATIONS)?;
    let sides: &mut [Side<'_>] = &mut [&mut || {
        runtime.block_on(async {
            let mut session = scope.start(1);
            let cancelled = std::time::Instant::now();
            session.cancel("the measurement begins");
            let end = session.outcome().await;
            let seconds = cancelled.elapsed().as_secs_f64();
            ensure!(end.result.is_err(), "a cancelled session answered {:?}", end.result);
            ensure!(session.is_empty(), "something is left of a session that has ended");
            Ok(Turn { figure: seconds * 1e3, seconds })
        })
    }];
    let rounds = Rounds::run("cancelling 10 000 futures (ms)", 20, sides)?;
    let line = Line {
        what: "cancelling a session with 10 000 futures in flight (ms)".into(),
        ours: format!("{:.2} ms", rounds.median(0)),
        theirs: String::new(),
        figure: rounds.median(0),
        target: Target::AtMost(10.0),
    };
    report.key("cancel_ms", line);
    report.detail("cancel", json!({ "ms": report::figures(rounds.figures(0)) }));
    Ok(())
}
