//! A cascade: one edge is cleared, and a million values that nothing else held are reclaimed in calls of bounded size.
//! As a tree of pages (wide) and as a chain (deep), in memory and in a journal that is synced, waited for at the end.

use super::journal::{Ours, SHARD};
use crate::{
    disk::Scratch,
    report::{self, Line, Report, Target},
    rounds::median,
};
use anyhow::ensure;
use onceflow_store::{
    Records,
    backend::memory::Memory,
    values::{EdgeName, Update, ValueId, Values},
    world::RealWorld,
};
use serde_json::json;
use std::{sync::Arc, time::Instant};
use tokio::runtime::Runtime;

const VALUES: u64 = 1_000_000;
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
    /// The longest call, and the one that one in a hundred exceeds.
    call_ms_max: f64,
    call_ms_p99: f64,
}

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let mut cascades: [Vec<Cascade>; 4] = std::array::from_fn(|_| Vec::new());
    for round in 1..=ROUNDS {
        for (case, (shape, backend)) in CASES.into_iter().enumerate() {
            let cascade = runtime.block_on(cascade(runtime, shape, backend))?;
            let Cascade { us_per_value, call_ms_max, call_ms_p99 } = cascade;
            eprintln!(
                "reclaim, {shape:?} in {backend:?}: round {round}, {us_per_value:.2} µs a value, calls {call_ms_max:.2} ms at most, {call_ms_p99:.2} ms at p99"
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
        line("longest call of it, budget 1 000", format!("{ms:.2} ms"), ms, Target::AtMost(3.0)),
    );
    for (case, (shape, backend)) in CASES.into_iter().enumerate() {
        let detail = json!({
            "us_per_value": report::figures(&of(case, |cascade| cascade.us_per_value)),
            "call_ms_max": report::figures(&of(case, |cascade| cascade.call_ms_max)),
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
    let records: Arc<dyn Records> = match backend {
        Backend::Memory => Arc::new(Memory::new(world.clone())),
        Backend::Journal => Ours::open(runtime, scratch.path())?.journal,
    };
    let values = Values::new(records.clone(), world, SHARD);
    let root = EdgeName::root("all");
    let stored = match shape {
        Shape::Tree => build_tree(&values, &root).await?,
        Shape::Chain => build_chain(&values, &root).await?,
    };
    records.durable(values.update(Update::new().clear(&root)).await?).await?;
    let mut calls = Vec::new();
    let (start, mut swept) = (Instant::now(), 0);
    loop {
        let call = Instant::now();
        let reclaimed = values.reclaim(BUDGET).await?;
        calls.push(call.elapsed().as_secs_f64() * 1e3);
        swept += reclaimed.swept;
        if !reclaimed.more {
            break;
        }
    }
    records.durable(records.position()).await?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(swept == stored, "{swept} values were swept, not {stored}");
    let rest = values.rows().await?;
    ensure!(rest.is_empty(), "reclaiming left rows behind: {rest:?}");
    calls.sort_by(f64::total_cmp);
    let (last, p99) = (calls.len() - 1, calls.len() * 99 / 100);
    Ok(Cascade {
        us_per_value: seconds * 1e6 / stored as f64,
        call_ms_max: calls[last],
        call_ms_p99: calls[p99.min(last)],
    })
}

/// A million leaves, pages of them, pages of pages. Answers how many values that is.
async fn build_tree(values: &Values, root: &EdgeName) -> anyhow::Result<u64> {
    let mut next = 0;
    let mut level = Vec::new();
    while next < VALUES {
        let leaves: Vec<ValueId> = (next..VALUES.min(next + PAGE_REFS as u64)).map(id).collect();
        next += leaves.len() as u64;
        let mut update = leaves.iter().fold(Update::new(), |update, leaf| put(update, leaf, &[]));
        let page = ValueId::new(format!("page-0-{next:08}"));
        update = put(update, &page, &leaves);
        values.update(update).await?;
        level.push(page);
    }
    let mut stored = VALUES + level.len() as u64;
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
    for first in (0..VALUES).step_by(LINKS as usize) {
        let links = first..VALUES.min(first + LINKS);
        let update = links.fold(Update::new(), |update, number| {
            let before: Vec<ValueId> = number.checked_sub(1).map(id).into_iter().collect();
            put(update, &id(number), &before)
        });
        values.update(update).await?;
    }
    values.update(Update::new().set(root, id(VALUES - 1))).await?;
    Ok(VALUES)
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
