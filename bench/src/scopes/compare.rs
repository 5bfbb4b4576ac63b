//! The same shape on both sides, warm: how many times longer a request takes crossflow.

use super::{peer, shapes};
use anyhow::ensure;
use onceflow_bench::{
    program::scaled,
    report::{self, Line, Report, Target},
    rounds::{Rounds, Side, Turn, timed},
};
use serde_json::json;
use tokio::runtime::Runtime;

/// Sequential requests to a scope of three nodes.
const REQUESTS: u64 = 10_000;

/// Maps of the chain that is compared.
const CHAIN: usize = 1_000;

/// Branches of the fan-out that is compared, and of the one that shows its curve.
const BRANCHES: [usize; 2] = [100, 400];

pub(super) fn chain(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let mut shape = Shape { name: "chain", what: "a chain of 1000 maps", size: CHAIN, requests: 200 };
    let us = shape.compare(runtime, report, &shapes::chain(CHAIN)?, peer::chain(CHAIN), chained, 3.0)?;
    shape = Shape { name: "chain_of_4000", what: "a chain of 4000 maps", size: 4 * CHAIN, requests: 50 };
    let long = shape.compare(runtime, report, &shapes::chain(4 * CHAIN)?, peer::chain(4 * CHAIN), chained, f64::NAN)?;
    growth(report, "chain_growth", "four times the maps, cost of a map", long / us / 4.0);
    Ok(())
}

pub(super) fn requests(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let requests = scaled(REQUESTS, 500);
    let shape = Shape { name: "requests", what: "sequential requests to three maps", size: 3, requests };
    shape.compare(runtime, report, &shapes::chain(3)?, peer::chain(3), chained, 20.0)?;
    Ok(())
}

pub(super) fn fanout(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let [few, many] = BRANCHES;
    let mut shape = Shape { name: "fanout", what: "a fan-out of 100 with a join", size: few, requests: 200 };
    let us = shape.compare(runtime, report, &shapes::fanout(few)?, peer::fanout(few), fanned, 20.0)?;
    shape = Shape { name: "fanout_of_400", what: "a fan-out of 400 with a join", size: many, requests: 20 };
    let long = shape.compare(runtime, report, &shapes::fanout(many)?, peer::fanout(many), fanned, f64::NAN)?;
    growth(report, "fanout_growth", "four times the branches, cost of a branch", long / us / 4.0);
    Ok(())
}

/// The right answer of a chain.
fn chained(input: u64, size: usize) -> u64 {
    input + size as u64
}

/// The right answer of a fan-out.
fn fanned(input: u64, size: usize) -> u64 {
    let size = size as u64;
    input * size + size * (size - 1) / 2
}

/// A cost that is linear in the size grows by a factor of 1; half as much again is allowed to noise and caches.
fn growth(report: &mut Report, name: &str, what: &str, figure: f64) {
    let line = Line {
        what: what.into(),
        ours: format!("{figure:.2} times"),
        theirs: String::new(),
        figure,
        target: Target::AtMost(1.5),
    };
    report.key(name, line);
}

/// A shape on both sides.
struct Shape {
    name: &'static str,
    what: &'static str,
    size: usize,
    /// Requests of one turn.
    requests: u64,
}

impl Shape {
    /// Compares both sides; answers the median time of a request of ours, in µs. A target of NaN asks nothing.
    fn compare(
        &self,
        runtime: &Runtime,
        report: &mut Report,
        ours: &onceflow::scope::Scope<u64, u64>,
        mut theirs: peer::Peer<u64>,
        answer: fn(u64, usize) -> u64,
        at_least: f64,
    ) -> anyhow::Result<f64> {
        let Shape { name, what, size, requests } = *self;
        let check = |side: &str, input: u64, found: u64| {
            let right = answer(input, size);
            ensure!(found == right, "{side}: {what} answered {found} to {input}, not {right}");
            Ok(())
        };
        let turn = |seconds: f64| Turn { figure: seconds * 1e6 / requests as f64, seconds };
        let sides: &mut [Side<'_>] = &mut [
            &mut || {
                let all = async {
                    for input in 0..requests {
                        check("ours", input, ours.run(input).await?)?;
                    }
                    Ok(())
                };
                Ok(turn(timed(|| runtime.block_on(all))?.0))
            },
            &mut || {
                let all = || (0..requests).try_for_each(|input| check("crossflow", input, theirs.request(input)?));
                Ok(turn(timed(all)?.0))
            },
        ];
        let rounds = Rounds::run(&format!("{what} (µs)"), 0, sides)?;
        let line = Line {
            what: format!("{what}, crossflow ÷ ours"),
            ours: format!("{:.2} µs", rounds.median(0)),
            theirs: format!("{:.2} µs", rounds.median(1)),
            figure: rounds.ratio(1, 0),
            target: if at_least.is_nan() { Target::None } else { Target::AtLeast(at_least) },
        };
        report.key(&format!("{name}_vs_crossflow"), line);
        let figures =
            json!({ "us": report::figures(rounds.figures(0)), "crossflow_us": report::figures(rounds.figures(1)) });
        report.detail(name, figures);
        Ok(rounds.median(0))
    }
}
