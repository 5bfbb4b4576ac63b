//! A cascade: one edge is cleared, and a million values that nothing else held are reclaimed in calls of bounded size.
//! As a tree of pages (wide) and as a chain (deep), in memory and in a journal that is synced, waited for at the end. The
//! cascade begins when the snapshots that building it caused are done; calls during a snapshot of the cascade itself are
//! told apart.

use super::journal::{Ours, SHARD};
use anyhow::ensure;
use onceflow_bench::{
    disk::{self, Scratch},
    program::scaled,
    report::{self, Line, Report, Target},
    rounds::{cpu_seconds, median},
};
use onceflow_store::{
    Records,
    backend::memory::Memory,
    values::{EdgeName, Update, ValueId, Values},
    world::RealWorld,
};
use serde_json::json;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

/// The values of a cascade, unless scaled.
const VALUES: u64 = 1_000_000;
const LOOK: Duration = Duration::from_millis(10);
const BUDGET: usize = 1_000;
const ROUNDS: usize = 3;
/// References of a page, and links put by one update: what one batch can hold.
const PAGE_REFS: usize = 400;
const LINKS: u64 = 250;
const CONTENT_BYTES: usize = 100;

/// How the values refer to each other.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Tree,
    Chain,
}

/// What keeps them.
#[derive(Clone, Copy, Debug)]
enum Backend {
    Memory,
    Journal,
}

const CASES: [(Shape, Backend); 4] = [
    (Shape::Tree, Backend::Memory),
    (Shape::Tree, Backend::Journal),
    (Shape::Chain, Backend::Memory),
    (Shape::Chain, Backend::Journal),
];

/// One cascade.
struct Cascade {
    us_per_value: f64,
    /// Processor time for a value.
    cpu_us_per_value: f64,
    /// The longest call while no snapshot was made, and the one that one in a hundred exceeds.
    call_ms_max: f64,
    call_ms_p99: f64,
    /// The longest call while a snapshot was made; 0 if none was.
    call_ms_max_in_snapshot: f64,
}

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let mut cascades: [Vec<Cascade>; 4] = std::array::from_fn(|_| Vec::new());
    for round in 1..=ROUNDS {
        for (case, (shape, backend)) in CASES.into_iter().enumerate() {
            let cascade = runtime.block_on(cascade(runtime, shape, backend))?;
            let Cascade { us_per_value, cpu_us_per_value, call_ms_max, call_ms_p99, call_ms_max_in_snapshot } = cascade;
            eprintln!(
                "reclaim, {shape:?} in {backend:?}: round {round}, {us_per_value:.2} µs a value (processor {cpu_us_per_value:.2}), calls {call_ms_max:.2} ms at most, {call_ms_p99:.2} ms at p99, {call_ms_max_in_snapshot:.2} ms during a snapshot"
            );
            cascades[case].push(cascade);
        }
    }
    let of = |case: usize, figure: fn(&Cascade) -> f64| cascades[case].iter().map(figure).collect::<Vec<f64>>();
    let worst = |figure: fn(&Cascade) -> f64| (0..CASES.len()).map(|case| median(of(case, figure))).fold(0.0, f64::max);
    let (us, ms) = (worst(|cascade| cascade.us_per_value), worst(|cascade| cascade.call_ms_max));
    let line =
        |what: &str, ours, figure, target| Line { what: what.into(), ours, theirs: String::new(), figure, target };
    report.key(
        "reclaim_us_per_value",
        line("reclaiming a cascade of a million values", format!("{us:.2} µs a value"), us, Target::AtMost(2.0)),
    );
    report.key(
        "reclaim_call_ms_max",
        line("longest call of it, budget 1 000", format!("{ms:.2} ms"), ms, Target::AtMost(5.0)),
    );
    for (case, (shape, backend)) in CASES.into_iter().enumerate() {
        let detail = json!({
            "us_per_value": report::figures(&of(case, |cascade| cascade.us_per_value)),
            "cpu_us_per_value": report::figures(&of(case, |cascade| cascade.cpu_us_per_value)),
            "call_ms_max": report::figures(&of(case, |cascade| cascade.call_ms_max)),
            "call_ms_max_in_snapshot": report::figures(&of(case, |cascade| cascade.call_ms_max_in_snapshot)),
            "call_ms_p99": report::figures(&of(case, |cascade| cascade.call_ms_p99)),
        });
        report.detail(&format!("reclaim_{shape:?}_{backend:?}").to_lowercase(), detail);
    }
    report.note(
        "reclaim: the worst of tree and chain, memory and journal (synced; one wait at the end); medians of rounds",
    );
    Ok(())
}

async fn cascade(runtime: &Runtime, shape: Shape, backend: Backend) -> anyhow::Result<Cascade> {
    let world = RealWorld::here();
    let scratch = Scratch::new("reclaim")?;
    let (records, written): (Arc<dyn Records>, _) = match backend {
        Backend::Memory => (Arc::new(Memory::new(world.clone())), Arc::default()),
        Backend::Journal => {
            let ours = Ours::open(runtime, scratch.path())?;
            (ours.journal, ours.written)
        }
    };
    let values = Values::new(records.clone(), world, SHARD);
    let root = EdgeName::root("all");
    let stored = match shape {
        Shape::Tree => build_tree(&values, &root).await?,
        Shape::Chain => build_chain(&values, &root).await?,
    };
    records.durable(values.update(Update::new().clear(&root)).await?).await?;
    while written.is_snapshot_under_way() {
        tokio::time::sleep(LOOK).await;
    }
    disk::drain()?;
    let (mut calls, mut in_snapshot) = (Vec::new(), 0.0_f64);
    let (start, cpu, mut swept) = (Instant::now(), cpu_seconds(), 0);
    loop {
        let (call, snapshots, was_under_way) = (Instant::now(), written.snapshots(), written.is_snapshot_under_way());
        let reclaimed = values.reclaim(BUDGET).await?;
        let call_ms = call.elapsed().as_secs_f64() * 1e3;
        match was_under_way || written.snapshots() > snapshots {
            true => in_snapshot = in_snapshot.max(call_ms),
            false => calls.push(call_ms),
        }
        swept += reclaimed.swept;
        if !reclaimed.more {
            break;
        }
    }
    records.durable(records.position()).await?;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    ensure!(swept == stored, "{swept} values were swept, not {stored}");
    let rest = values.rows().await?;
    ensure!(rest.is_empty(), "reclaiming left rows behind: {rest:?}");
    calls.sort_by(f64::total_cmp);
    let (last, p99) = (calls.len() - 1, calls.len() * 99 / 100);
    Ok(Cascade {
        us_per_value: seconds * 1e6 / stored as f64,
        cpu_us_per_value: cpu * 1e6 / stored as f64,
        call_ms_max: calls[last],
        call_ms_p99: calls[p99.min(last)],
        call_ms_max_in_snapshot: in_snapshot,
    })
}

/// A million leaves, pages of them, pages of pages. Answers how many values that is.
async fn build_tree(values: &Values, root: &EdgeName) -> anyhow::Result<u64> {
    let many = scaled(VALUES, 10_000);
    let mut next = 0;
    let mut level = Vec::new();
    while next < many {
        let leaves: Vec<ValueId> = (next..many.min(next + PAGE_REFS as u64)).map(id).collect();
        next += leaves.len() as u64;
        let mut update = leaves.iter().fold(Update::new(), |update, leaf| put(update, leaf, &[]));
        let page = ValueId::new(format!("page-0-{next:08}"));
        update = put(update, &page, &leaves);
        values.update(update).await?;
        level.push(page);
    }
    let mut stored = many + level.len() as u64;
    for height in 1.. {
        if level.len() == 1 {
            break;
        }
        let mut above = Vec::new();
        for (number, pages) in level.chunks(PAGE_REFS).enumerate() {
            let page = ValueId::new(format!("page-{height}-{number:08}"));
            values.update(put(Update::new(), &page, pages)).await?;
            above.push(page);
        }
        stored += above.len() as u64;
        level = above;
    }
    values.update(Update::new().set(root, level.remove(0))).await?;
    Ok(stored)
}

/// A million values, each referring to the one before.
async fn build_chain(values: &Values, root: &EdgeName) -> anyhow::Result<u64> {
    let many = scaled(VALUES, 10_000);
    for first in (0..many).step_by(LINKS as usize) {
        let links = first..many.min(first + LINKS);
        let update = links.fold(Update::new(), |update, number| {
            let before: Vec<ValueId> = number.checked_sub(1).map(id).into_iter().collect();
            put(update, &id(number), &before)
        });
        values.update(update).await?;
    }
    values.update(Update::new().set(root, id(many - 1))).await?;
    Ok(many)
}

fn put(update: Update, value: &ValueId, refs: &[ValueId]) -> Update {
    update.put(value.clone(), refs.iter().cloned(), [0x5a; CONTENT_BYTES])
}

/// Sixteen bytes, as a digest would be cut to; spread like one.
fn id(number: u64) -> ValueId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    ValueId::new(bytes)
}
