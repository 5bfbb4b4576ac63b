//! What a disposal costs: the question whether the session can still end must not grow with the scope.

use super::shapes::{self, LAST};
use anyhow::ensure;
use onceflow_bench::{
    report::{self, Line, Report, Target},
    rounds::{Rounds, Side, Turn, timed},
};
use serde_json::json;
use tokio::runtime::Runtime;

/// Operations of the small scope and of the large one.
const OPERATIONS: [usize; 2] = [10, 1_000];

/// Elements that are disposed of in a turn.
const DISPOSALS: u64 = 200_000;

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let [few, many] = OPERATIONS;
    let scopes = [(shapes::disposals(few)?, few), (shapes::disposals(many)?, many)];
    let turn = |side: usize| {
        let (scope, maps) = &scopes[side];
        let run = |elements: Vec<u64>| timed(|| Ok(runtime.block_on(scope.run(elements))?));
        // The session itself, with the maps that the last element passes, is no part of the price.
        let (alone, _) = run(vec![LAST])?;
        let (seconds, answer) = run((0..DISPOSALS).chain([LAST]).collect())?;
        ensure!(answer == LAST + *maps as u64, "{maps} maps answered {answer}");
        Ok(Turn { figure: (seconds - alone) * 1e6 / DISPOSALS as f64, seconds })
    };
    let sides: &mut [Side<'_>] = &mut [&mut || turn(0), &mut || turn(1)];
    let rounds = Rounds::run("a disposal in 10 and in 1000 operations (µs)", 0, sides)?;
    let line = Line {
        what: "a disposal among 1000 operations ÷ among 10".into(),
        ours: format!("{:.2} µs", rounds.median(1)),
        theirs: format!("{:.2} µs", rounds.median(0)),
        figure: rounds.ratio(1, 0),
        target: Target::AtMost(2.0),
    };
    report.key("disposal_growth", line);
    let figures =
        json!({ "us_of_10": report::figures(rounds.figures(0)), "us_of_1000": report::figures(rounds.figures(1)) });
    report.detail("disposal_us", figures);
    Ok(())
}
