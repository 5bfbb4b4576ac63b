//! The queries of Nexmark: events per second and core, beside what others have published. The auction house and the naive
//! evaluation that checks every run are those of the tests.

#[path = "../../../crates/stream/tests/stream/nexmark/answers.rs"]
mod answers;
#[path = "../../../crates/stream/tests/stream/nexmark/house.rs"]
pub(super) mod house;

use super::{
    bed::{Bed, MemorySink, options, records},
    corpus::check,
};
use anyhow::Context;
use house::{House, QUERIES};
use onceflow_bench::{
    report::{Line, Report, Target},
    rounds::{cpu_seconds, median},
};
use onceflow_stream::Pipeline;
use serde_json::json;
use tokio::runtime::Runtime;

const EVENTS: u64 = 2_000_000;

const ROUNDS: usize = 3;

/// Flink 1.13 with RocksDB on a cluster of eight task managers, 100 million events: thousands per second and core, from
/// the README of `nexmark/nexmark` on GitHub.
const FLINK_K_PER_CORE: [(&str, f64); 10] = [
    ("q0", 155.02),
    ("q1", 157.94),
    ("q2", 175.21),
    ("q3", 152.12),
    ("q4", 34.33),
    ("q5", 22.14),
    ("q7", 12.33),
    ("q8", 146.14),
    ("q11", 39.7),
    ("q12", 75.67),
];

/// Ten thousand events in a second of their time, and windows as in Nexmark.
pub(super) fn house(events: u64) -> House {
    House {
        events,
        us_per_event: 100,
        disorder_ms: 40,
        in_flight: 100,
        active_people: 1000,
        hot_group: 100,
        open_ms: 10_000,
        hot_ms: (10_000, 2_000),
        highest_ms: 10_000,
        new_ms: 10_000,
        bidder_ms: 10_000,
        gap_ms: 10_000,
    }
}

/// A query whose lines go to a sink.
pub(super) fn pipeline(house: House, name: &str, sink: &MemorySink) -> Pipeline {
    let pipeline = Pipeline::new(name).options(options(10_000));
    house.query(&pipeline, name).sink("lines", sink.clone(), |text, bytes| {
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(b'\n');
    });
    pipeline
}

/// Runs a query once; answers the seconds it took, and those of all processors.
pub(super) fn run(
    bed: &Bed<'_>,
    house: House,
    name: &str,
    workers: usize,
    right: &[String],
) -> anyhow::Result<(f64, f64)> {
    let sink = MemorySink::default();
    let before = cpu_seconds();
    let ran = bed.run(&pipeline(house, name, &sink), workers)?;
    let cpu = cpu_seconds() - before;
    check(name, &sink.take_lines(), right)?;
    Ok((ran.seconds, cpu))
}

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let bed = Bed::new(runtime, "nexmark")?;
    let house = house(records(EVENTS));
    let answers: Vec<_> = QUERIES.map(|name| (name, house.answer(name))).into();
    let mut figures = vec![Vec::new(); QUERIES.len()];
    for round in 0..ROUNDS {
        for (at, (name, right)) in answers.iter().enumerate() {
            let (seconds, cpu) = run(&bed, house, name, 1, right)?;
            eprintln!("nexmark {name}: round {}, {seconds:.2} s, {cpu:.2} s of processors", round + 1);
            figures[at].push((seconds, cpu));
        }
    }
    for (at, (name, _)) in answers.iter().enumerate() {
        let rate =
            |of: fn(&(f64, f64)) -> f64| house.events as f64 / median(figures[at].iter().map(of).collect()) / 1e3;
        let (per_core, by_clock) = (rate(|figure| figure.1), rate(|figure| figure.0));
        let (_, flink) = FLINK_K_PER_CORE.iter().find(|(of, _)| of == name).context("a query without a figure")?;
        let line = Line {
            what: format!("Nexmark {name}, thousand events per second and core"),
            ours: format!("{by_clock:.0} k/s by one worker"),
            theirs: format!("{flink:.0} (published: Flink 1.13, a cluster)"),
            figure: per_core,
            target: Target::None,
        };
        report.key(&format!("nexmark_{name}_k_per_core"), line);
        report.detail(&format!("nexmark_{name}"), json!(figures[at]));
    }
    report.note(
        "Nexmark: Flink's figures are those published in the README of github.com/nexmark/nexmark (SQL, RocksDB, other \
         machines). Figures of RisingWave per query and core were not found in its documentation.",
    );
    Ok(())
}
