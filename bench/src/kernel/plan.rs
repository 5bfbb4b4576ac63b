//! Planning over what is kept: an each over a body of ten whose every step was kept, explained; and the planner itself on
//! as many steps in one graph.

use super::{
    bed::Bed,
    child::{self, forget_peak, resident_bytes, resident_bytes_peak},
    flows, runtime, scaled,
};
use anyhow::ensure;
use onceflow_bench::{
    disk::Scratch,
    report::{self, Line, Report, Target},
    rounds::timed,
};
use onceflow_core::plan::{
    DependencyGraph, DependencyGraphBuilder, Order, Policy, PortSource, PortTarget as Fed, Resume,
};
use onceflow_engine::Start;
use onceflow_store::backend::journal::Durability;
use serde_json::{Value, json};
use std::path::Path;
use tokio::runtime::Runtime;

const ELEMENTS: [u64; 3] = [10_000, 30_000, 100_000];
const BODY_STEPS: u64 = 10;
const KEEP_MS: u64 = 24 * 60 * 60 * 1000;
const MEMORY_BYTES_MAX: f64 = 500e6;

pub(super) fn measure(_: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let (mut explained, mut planned) = (Vec::new(), Vec::new());
    for elements in ELEMENTS.map(|elements| scaled(elements, 100)) {
        let scratch = Scratch::new("plan")?;
        let (directory, n) = (scratch.path().display().to_string(), elements.to_string());
        let filled = child::run(&["plan-fill", &directory, &n])?;
        let mut found = child::run(&["plan-explain", &directory, &n])?;
        eprintln!("plan: {elements} elements filled {filled} explained {found}");
        found["filled"] = filled;
        explained.push(found);
        let found = child::run(&["plan-core", &n])?;
        eprintln!("plan: {elements} elements planned {found}");
        planned.push(found);
    }
    let last = &explained[explained.len() - 1];
    report.key("plan_s_per_million", seconds("explaining an each over a body of ten, all kept (s per million)", last));
    let bytes = figure(last, "memory_bytes");
    report.key(
        "plan_memory_mb",
        Line {
            what: "memory for that above the opened store (MB)".into(),
            ours: format!("{:.0} MB", bytes / 1e6),
            theirs: String::new(),
            figure: bytes / 1e6,
            target: Target::AtMost(MEMORY_BYTES_MAX / 1e6),
        },
    );
    let core = &planned[planned.len() - 1];
    report.line(seconds("the planner alone on as many steps, none kept (s per million)", core));
    let per_step = |found: &[Value]| found.iter().map(|found| figure(found, "s_per_million")).collect::<Vec<_>>();
    let (engine, core) = (per_step(&explained), per_step(&planned));
    report.detail("plan", json!({ "explain": explained, "planner": planned }));
    report.note(format!(
        "plan curve at {ELEMENTS:?} elements, seconds per million steps: explain {engine:.3?}, planner {core:.3?}; explain \
         looks at the outermost steps only, and a kept each is one of them",
    ));
    Ok(())
}

fn figure(found: &Value, name: &str) -> f64 {
    found[name].as_f64().unwrap_or(f64::NAN)
}

fn seconds(what: &str, found: &Value) -> Line {
    let figure = figure(found, "s_per_million");
    let ours = format!("{:.1} ms in all", self::figure(found, "seconds") * 1e3);
    Line { what: what.into(), ours, theirs: String::new(), figure, target: Target::AtMost(1.0) }
}

fn start(bed: &Bed, elements: u64) -> Start {
    let list = flows::int_list(elements as usize);
    Start {
        keep_ms: Some(KEEP_MS),
        ends_with_handle: false,
        ..bed.start(flows::each(BODY_STEPS as usize, false), ("xs", list))
    }
}

/// A child: runs it, keeping everything.
pub(super) fn fill(directory: &str, elements: u64) -> anyhow::Result<Value> {
    let runtime = runtime()?;
    let bed = Bed::journal(&runtime, Path::new(directory), Durability::Flushed, false, 0)?;
    let did = runtime.block_on(bed.run(start(&bed, elements), elements * BODY_STEPS))?;
    bed.close(&runtime)?;
    Ok(json!({ "us_per_step": report::rounded(did.us_per_step()), "cpu_us": report::rounded(did.cpu_us_per_step()) }))
}

/// A child: explains what was kept. The same request is answered by the row of the run; one that names its outputs is
/// another, and is planned.
pub(super) fn explain(directory: &str, elements: u64) -> anyhow::Result<Value> {
    let runtime = runtime()?;
    let bed = Bed::journal(&runtime, Path::new(directory), Durability::Flushed, false, 0)?;
    let same = start(&bed, elements);
    let other = Start { flow: same.flow.only(&[String::from("ys")])?, ..same.clone() };
    let before = resident_bytes();
    forget_peak();
    let (seconds_same, _) = timed(|| Ok(runtime.block_on(bed.engine.preview(same))?))?;
    let (seconds, explanation) = timed(|| Ok(runtime.block_on(bed.engine.preview(other))?.explanation))?;
    let memory = resident_bytes_peak() - before;
    ensure!(!explanation.lines.is_empty(), "an explanation says nothing");
    let lines: Vec<_> =
        explanation.lines.iter().map(|line| format!("{} {:?} {:?}", line.address, line.fate, line.reason)).collect();
    bed.close(&runtime)?;
    Ok(json!({
        "elements": elements,
        "s_per_million": seconds * 1e6 / (elements * BODY_STEPS) as f64,
        "seconds": seconds,
        "seconds_same_request": seconds_same,
        "memory_bytes": memory,
        "opened_bytes": before,
        "lines": lines,
    }))
}

/// A child: the planner on one graph with all the steps, of which none has given anything yet, which is the most to look at;
/// and with everything kept but the last.
pub(super) fn core(elements: u64) -> Value {
    let graph = graph(elements as u32);
    let steps = elements * BODY_STEPS;
    let before = resident_bytes();
    forget_peak();
    let plan = |kept: bool| {
        let start = std::time::Instant::now();
        let resume = Resume::new(&graph, Policy::Provenance, Order::Fifo, &[], &[0]);
        let last = graph.modules() - 1;
        let frontier = resume.run(|vertex| match graph.value_at(vertex) {
            None | Some(PortSource::Input(_)) => true,
            Some(place) => kept && place != PortSource::Port(last, 0),
        });
        (start.elapsed().as_secs_f64(), frontier.is_ok_and(|frontier| frontier.runs(last)))
    };
    let (seconds, runs) = plan(false);
    let (seconds_kept, runs_kept) = plan(true);
    assert!(runs && runs_kept, "the last step has not been computed and runs");
    json!({
        "steps": steps,
        "s_per_million": seconds * 1e6 / steps as f64,
        "seconds": seconds,
        "seconds_kept": seconds_kept,
        "memory_bytes": resident_bytes_peak() - before,
    })
}

fn graph(elements: u32) -> DependencyGraph {
    let mut graph = DependencyGraphBuilder::new(1, 1);
    let mut ends = Vec::new();
    for _ in 0..elements {
        let mut from = PortSource::Input(0);
        for _ in 0..BODY_STEPS {
            let module = graph.module(1, 1);
            graph.connect(from, Fed::Port(module, 0));
            from = PortSource::Port(module, 0);
        }
        ends.push(from);
    }
    let gather = graph.module(elements, 1);
    for (port, from) in (0..).zip(ends) {
        graph.connect(from, Fed::Port(gather, port));
    }
    graph.connect(PortSource::Port(gather, 0), Fed::Output(0));
    graph.build()
}
