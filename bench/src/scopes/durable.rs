//! Durable messages, one after the other, against durable steps of the kernel: the same bodies that do nothing, on the same disk,
//! synced. A message passes an operation that any host may run; a step is one of a chain.

use anyhow::{Context, ensure};
use onceflow::scope::{DurableScope, Scope};
use onceflow_bench::{
    bed::Bed,
    disk::Scratch,
    flows,
    report::{self, Line, Report, Target},
    rounds::{Rounds, Turn, timed},
};
use onceflow_store::backend::journal::Durability;
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::runtime::Runtime;

/// Messages of a session, and steps of a chain.
const MESSAGES: usize = 1_000;

/// Counts down to nothing, a durable message at a time, and answers how often it did.
fn counts_down() -> anyhow::Result<DurableScope<(u64, u64), u64>> {
    let build = Scope::durable(|s| {
        let (again, chain) = s.junction::<(u64, u64)>();
        s.start().connect(again);
        let counted = chain.map_async(|(left, passed)| async move { (left - 1, passed + 1) }).named("count");
        let [done, more] = counted.fork_by(|(left, _)| usize::from(*left > 0));
        done.map(|(_, passed)| passed).named("say").terminate(s);
        more.connect(again);
    });
    build.context("a durable cycle")
}

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new("durable-scopes")?;
    let kernel = Bed::journal(runtime, &scratch.join("kernel"), Durability::Synced, false, 0)?;
    let engine = runtime.block_on(onceflow::Engine::open(scratch.join("scopes")))?;
    let host = {
        let _inside = runtime.enter();
        engine.host("count", &counts_down()?)?
    };
    let turns = AtomicU64::new(0);
    let rounds = Rounds::run(
        "a durable message : a durable step (µs)",
        0,
        &mut [
            &mut || {
                let key = turns.fetch_add(1, Relaxed).to_string();
                let counted = async {
                    let session = host.open(&key, (MESSAGES as u64, 0)).await?;
                    let end = session.end().await?;
                    let passed = end.result?;
                    ensure!(passed == MESSAGES as u64, "{passed} messages passed, not {MESSAGES}");
                    session.forget().await.map_err(anyhow::Error::from)
                };
                let (seconds, ()) = timed(|| runtime.block_on(counted))?;
                Ok(Turn { figure: seconds * 1e6 / MESSAGES as f64, seconds })
            },
            &mut || {
                let chain = kernel.start(flows::chain(MESSAGES, false), ("x", flows::int(0)));
                let (seconds, _) = timed(|| runtime.block_on(kernel.run(chain, MESSAGES as u64)))?;
                Ok(Turn { figure: seconds * 1e6 / MESSAGES as f64, seconds })
            },
        ],
    )?;
    runtime.block_on(host.close());
    runtime.block_on(engine.close())?;
    kernel.close(runtime)?;
    let line = Line {
        what: "a durable message through an operation of a scope ÷ a durable step of a chain".into(),
        ours: format!("{:.0} µs", rounds.median(0)),
        theirs: format!("{:.0} µs", rounds.median(1)),
        figure: rounds.ratio(0, 1),
        target: Target::AtMost(1.5),
    };
    report.key("durable_vs_kernel", line);
    let figures =
        json!({ "message_us": report::figures(rounds.figures(0)), "step_us": report::figures(rounds.figures(1)) });
    report.detail("durable", figures);
    Ok(())
}
