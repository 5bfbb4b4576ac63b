//! Runs take turns: neither an endless loop nor a wide each keeps a small run waiting.

use crate::support;

use onceflow_core::model::{Effect, Type, graph::ModuleKind};
use onceflow_engine::{Options, RunStatus, Start};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};
use support::{Kit, bool, flows::*, graphs::*, int, ints, proof::Proof, with};

/// Iterations after which a loop gives up: it was never told to end.
const ITERATIONS_MAX: usize = 5_000;

fn one_slot() -> Options {
    Options { steps_max: 1, ..Options::default() }
}

/// A task that notes how many others had run when it did.
fn small(kit: &mut Kit, others: &Arc<AtomicUsize>, seen: &Arc<AtomicUsize>, told: &Arc<AtomicBool>) -> Start {
    let (others, seen, told) = (others.clone(), seen.clone(), told.clone());
    let small = kit.task("small", &["x"], move |inputs| {
        seen.store(others.load(SeqCst), SeqCst);
        told.store(true, SeqCst);
        Ok(inputs.to_vec())
    });
    let g = io().task("small", &small).connect("x -> small.x; small.out -> y");
    Start::new("small", g.flow()).input("x", int(1))
}

/// A loop of pure steps that ends when it is told to.
fn endless(kit: &mut Kit, key: &str, ran: &Arc<AtomicUsize>, told: &Arc<AtomicBool>) -> Start {
    let inc = with(inc(kit), Effect::Pure);
    let (ran, told) = (ran.clone(), told.clone());
    let go = with(spec("go", &[("x", Type::Int)], &[("out", Type::Bool)]), Effect::Pure);
    let go = kit.add(go, move |_, _| {
        let ran = ran.fetch_add(1, SeqCst);
        Ok(vec![bool(!told.load(SeqCst) && ran < 2 * ITERATIONS_MAX)])
    });
    let body = io().output("go", Type::Bool).task("inc", &inc).task("go", &go);
    let body = body.connect("x -> inc.x; inc.out -> y; inc.out -> go.x; go.out -> go").graph();
    let round = ModuleKind::Loop { body, carried: vec![("y".into(), "x".into())], condition: "go".into() };
    let g = io().module("round", round).connect("x -> round.x; round.y -> y");
    Start::new(key, g.flow()).input("x", int(0))
}

#[tokio::test]
async fn two_endless_loops_do_not_keep_a_third_run_waiting() {
    let (mut kit, ran, seen, told) = (Kit::default(), Arc::default(), Arc::default(), Arc::default());
    let loops = ["one", "two"].map(|key| endless(&mut kit, key, &ran, &told));
    let third = small(&mut kit, &ran, &seen, &told);
    let proof = Proof::new(&kit);
    let engine = proof.engine_on(proof.memory.clone(), Options { steps_max: 2, ..Options::default() });
    let mut handles = Vec::new();
    for start in loops.into_iter().chain([third]) {
        handles.push(proof.drive(engine.start(start)).await.unwrap());
    }
    for handle in handles {
        let summary = proof.drive(handle.wait()).await.unwrap();
        assert_eq!(summary.status, RunStatus::Done, "{summary}");
    }
    let seen: usize = seen.load(SeqCst);
    assert!(seen < ITERATIONS_MAX, "the third run had to wait for {seen} iterations of the others");
    proof.drive(engine.close()).await.unwrap();
}

#[tokio::test]
async fn a_wide_each_does_not_keep_a_small_run_waiting() {
    // Several times as many as run between two looks of this test: tokio looks at its future after 61 turns of others.
    const ELEMENTS: i64 = 12_000;
    /// A few batches: those in flight, and the turn of the others.
    const WAITS_MAX: usize = 100;
    let (mut kit, ran, seen, told) = (Kit::default(), Arc::<AtomicUsize>::default(), Arc::default(), Arc::default());
    let counted = ran.clone();
    let element = kit.task("element", &["x"], move |inputs| {
        counted.fetch_add(1, SeqCst);
        Ok(inputs.to_vec())
    });
    let g = G::new().input("xs", list()).output("ys", list());
    let g = g.module("each", each(chain(&element, 1).graph())).connect("xs -> each.x; each.y -> ys");
    let wide = Start::new("wide", g.flow()).input("xs", ints(0..ELEMENTS));
    let small = small(&mut kit, &ran, &seen, &told);
    let proof = Proof::new(&kit);
    let engine = proof.engine_on(proof.memory.clone(), one_slot());
    let wide = proof.drive(engine.start(wide)).await.unwrap();
    while ran.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let small = proof.drive(engine.start(small)).await.unwrap();
    let before = ran.load(SeqCst);
    proof.drive(small.wait()).await.unwrap();
    let waited = seen.load(SeqCst).saturating_sub(before);
    assert!(waited <= WAITS_MAX, "{waited} elements ran between the start of the small run and its step");
    assert!(ran.load(SeqCst) < ELEMENTS as usize, "the wide run was still at work");
    proof.drive(wide.cancel()).await.unwrap();
    proof.drive(wide.wait()).await.unwrap();
    proof.drive(engine.close()).await.unwrap();
}
