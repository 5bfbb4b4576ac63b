//! What a step and an element cost without a disk: all of it is ours.

use super::{
    bed::{Bed, Did, several},
    chain::{self, chain},
    flows, scaled,
};
use onceflow_bench::{
    report::{self, Fused, Line, Report, Target},
    rounds::{Rounds, Side, Turn},
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const ELEMENTS: usize = 10_000;
/// Runs of one turn: one alone is over too soon.
const RUNS: usize = 20;

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let plain = Bed::memory(runtime, false);
    let fused = Bed::memory(runtime, true);
    let mut totals = [Did::default(); 3];
    let [a, b, c] = &mut totals;
    let rounds = Rounds::run(
        "a step in memory: idempotent, pure, fused (µs)",
        0,
        &mut [
            &mut || repeated(a, RUNS, || runtime.block_on(chain(&plain, false))),
            &mut || repeated(b, RUNS, || runtime.block_on(chain(&plain, true))),
            &mut || repeated(c, RUNS, || runtime.block_on(chain(&fused, true))),
        ],
    )?;
    plain.close(runtime)?;
    fused.close(runtime)?;
    let fused = Fused { figure: rounds.median(2), target: Target::AtMost(0.3) };
    let line = line(format!("a step in a chain of {} in memory (µs)", chain::STEPS), &rounds, 0, Target::AtMost(2.0));
    report.key_fused("memory_us_per_step", line, "fused_us_per_step", fused);
    let pure = format!("the same, tasks that are pure, processor {:.2} µs", totals[1].cpu_us_per_step());
    report.line(self::line(pure, &rounds, 1, Target::AtMost(2.0)));
    report.detail(
        "memory",
        json!({
            "idempotent_us": report::figures(rounds.figures(0)),
            "pure_us": report::figures(rounds.figures(1)),
            "fused_us": report::figures(rounds.figures(2)),
            "cpu_us": cpu(&totals),
            "start_us_of_a_chain": totals.map(|did| report::rounded(start_us(&did))),
        }),
    );
    report.note(format!(
        "figures of steps do not hold `start`, which checks, plans and stores a flow of {} tasks: {:.0} µs, fused {:.0} µs",
        chain::STEPS,
        start_us(&totals[0]),
        start_us(&totals[2]),
    ));
    Ok(())
}

pub(super) fn measure_each(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let plain = Bed::memory(runtime, false);
    let fused = Bed::memory(runtime, true);
    let each = |bed: &Bed, pure: bool| {
        let start = bed.start(flows::each(1, pure), ("xs", flows::int_list(ELEMENTS)));
        runtime.block_on(bed.run(start, ELEMENTS as u64))
    };
    let mut totals = [Did::default(); 2];
    let [a, b] = &mut totals;
    let rounds = Rounds::run(
        "an element in memory: idempotent, pure and fusion on (µs)",
        0,
        &mut [&mut || repeated(a, 2, || each(&plain, false)), &mut || repeated(b, 2, || each(&fused, true))],
    )?;
    plain.close(runtime)?;
    fused.close(runtime)?;
    let fused = Fused { figure: rounds.median(1), target: Target::None };
    let line = line(format!("an element of an each of {ELEMENTS} in memory (µs)"), &rounds, 0, Target::AtMost(4.0));
    report.key_fused("each_us_per_element", line, "each_us_per_element_fused", fused);
    report.detail(
        "each",
        json!({
            "idempotent_us": report::figures(rounds.figures(0)),
            "pure_us": report::figures(rounds.figures(1)),
            "cpu_us": cpu(&totals),
        }),
    );
    Ok(())
}

/// Measures the cost of an element in lists of very different lengths: the curve must be flat.
pub(super) fn measure_curve(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    const SIZES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
    /// Elements of one turn, in as many runs as that takes.
    const TURN: u64 = 100_000;
    let bed = Bed::memory(runtime, false);
    let sizes = SIZES.map(|size| scaled(size, 1_000));
    let turn = |size: u64| {
        let each = || {
            let start = bed.start(flows::each(1, false), ("xs", flows::int_list(size as usize)));
            runtime.block_on(bed.run(start, size))
        };
        repeated(&mut Did::default(), TURN.div_ceil(size) as usize, each)
    };
    let [a, b, c, d] = sizes;
    let what = "an element by the length of the list (µs)";
    let sides: &mut [Side<'_>] = &mut [&mut || turn(a), &mut || turn(b), &mut || turn(c), &mut || turn(d)];
    let rounds = Rounds::run(what, 0, sides)?;
    bed.close(runtime)?;
    let us: Vec<f64> = (0..sizes.len()).map(|side| rounds.median(side)).collect();
    let (least, most) = (us.iter().copied().fold(f64::MAX, f64::min), us.iter().copied().fold(0.0, f64::max));
    let line = Line {
        what: "the dearest element of lists of 1 000 to 1 000 000, against the cheapest".into(),
        ours: format!("{most:.2} µs"),
        theirs: format!("{least:.2} µs"),
        figure: most / least,
        target: Target::AtMost(1.25),
    };
    report.key("each_curve", line);
    report.detail("curve", json!({ "elements": sizes, "us": report::figures(&us) }));
    Ok(())
}

fn line(what: String, rounds: &Rounds, side: usize, target: Target) -> Line {
    let figure = rounds.median(side);
    Line { what, ours: format!("{figure:.2} µs"), theirs: String::new(), figure, target }
}

fn cpu(totals: &[Did]) -> Value {
    totals.iter().map(|did| report::rounded(did.cpu_us_per_step())).collect()
}

/// What one `start` took, on average.
fn start_us(total: &Did) -> f64 {
    total.start_seconds * 1e6 * chain::STEPS as f64 / total.steps as f64
}

fn repeated(total: &mut Did, times: usize, one: impl Fn() -> anyhow::Result<Did>) -> anyhow::Result<Turn> {
    let did = several(times, one)?;
    total.add(did);
    Ok(Turn { figure: did.us_per_step(), seconds: did.seconds + did.start_seconds })
}
