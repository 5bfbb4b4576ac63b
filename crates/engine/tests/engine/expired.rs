//! A failed run keeps the rows for a retry until its history ends; then it is removed, and nothing remains.

use crate::support;

use onceflow_core::model::{Effect, Type};
use onceflow_engine::{Engine, Error, HISTORY_MS, Options, RunStatus, Start, Summary, task::Failure};
use onceflow_store::testing::fault::{Fault, FaultPlan, Faulty};
use support::{Kit, as_int, flows, flows::*, graphs::*, int, ints, proof::Proof, with};

/// A flow that fails for odd numbers; the failing step has a large, stored input.
fn odd_fails(kit: &mut Kit) -> Case {
    let grow = kit.add(spec("grow", &[("x", Type::Int)], &[("out", Type::Bytes)]), |_, inputs| {
        Ok(vec![bytes(100_000, as_int(&inputs[0]))])
    });
    let check =
        kit.add(
            spec("check", &[("b", Type::Bytes), ("x", Type::Int)], &[("out", Type::Int)]),
            |_, inputs| match as_int(&inputs[1]) {
                n if n % 2 == 0 => Ok(vec![int(n)]),
                _ => Err(Failure::new("odd").finally()),
            },
        );
    let body = io().task("grow", &grow).task("check", &check);
    let body = body.connect("x -> grow.x; grow.out -> check.b; x -> check.x; check.out -> y");
    let g = G::new().input("x", list()).output("y", list()).module("all", each(body.graph()));
    (flows::start(g.connect("x -> all.x; all.y -> y")).input("x", ints([0, 2, 4, 5])), "odd".into())
}

fn io() -> G {
    G::new().input("x", Type::Int).output("y", Type::Int)
}

/// The deadlines of failed runs.
fn deadlines(proof: &Proof) -> Vec<Vec<u8>> {
    let all = proof.memory.state().all();
    let due = all.iter().filter(|(_, key, _)| key.group.id() == b"runs.due" && key.name.as_bytes()[8] == b'f');
    due.map(|(_, key, _)| key.name.as_bytes()[..8].to_vec()).collect()
}

fn is_gone(found: &Result<onceflow_engine::Handle, Error>) -> bool {
    matches!(found, Err(Error::NoRun(_)))
}

#[tokio::test]
async fn a_failed_run_that_is_not_retried_goes_when_its_history_ends() {
    let cases: [(&str, Make); 2] = [("choice", unhandled), ("each", odd_fails)];
    for (name, make) in cases {
        for keep_ms in [None, Some(1000), Some(2 * HISTORY_MS)] {
            let mut kit = Kit::default();
            let (start, expected) = make(&mut kit);
            let proof = Proof::new(&kit);
            let failed = proof.run(Start { keep_ms, ..start }).await;
            assert!(failed.contains(&expected), "{name}: {failed}");
            assert_eq!(deadlines(&proof).len(), 1, "{name}");
            proof.world.advance(HISTORY_MS - 1000);
            let engine = proof.engine();
            proof.calm().await;
            let report = engine.find("r").await.unwrap().summary().await.unwrap();
            assert!(report.status == RunStatus::Failed, "{name}, before its history ends: {report}");
            proof.world.advance(1001);
            proof.calm().await;
            assert!(is_gone(&engine.find("r").await), "{name}, when its history has ended");
            proof.drive(engine.close()).await.unwrap();
            proof.nothing_remains().await;
        }
    }
}

#[tokio::test]
async fn a_retried_or_cancelled_run_loses_its_deadline() {
    let mut kit = Kit::default();
    let (start, _) = odd_fails(&mut kit);
    let proof = Proof::new(&kit);
    proof.run(start.clone()).await;
    let first = deadlines(&proof);
    // The run is retried and fails again: it has another deadline, and only that one.
    proof.world.advance(5000);
    proof.run(start.clone()).await;
    let second = deadlines(&proof);
    assert!(second.len() == 1 && second > first, "{first:?} {second:?}");
    // The run gets a new plan.
    let mut well = start.clone();
    well.inputs = vec![(String::from("x"), ints([0, 2, 4]))];
    assert_eq!(proof.run(well).await, "y=[0 2 4]");
    assert!(deadlines(&proof).is_empty(), "it is done");
    // The run fails with another plan, and is cancelled.
    proof.run(start).await;
    assert_eq!(deadlines(&proof).len(), 1);
    let engine = proof.engine();
    let handle = engine.find("r").await.unwrap();
    proof.drive(handle.cancel()).await.unwrap();
    proof.drive(handle.wait()).await.unwrap();
    assert!(deadlines(&proof).is_empty(), "it is cancelled");
    proof.drive(engine.close()).await.unwrap();
    proof.nothing_remains().await;
}

#[tokio::test]
async fn a_refused_plan_leaves_the_deadline_of_a_failed_run_as_it_was() {
    let mut kit = Kit::default();
    let pay = with(spec("pay", &[("x", Type::Int)], &[("out", Type::Int)]), Effect::AtMostOnce);
    let pay = kit.add(pay, |_, _| Err(Failure::new("declined, or so it seems").finally()));
    let g = io().task("pay", &pay).connect("x -> pay.x; pay.out -> y");
    let start = flows::start(g);
    let proof = Proof::new(&kit);
    proof.run(start.clone().input("x", int(1))).await;
    let before = deadlines(&proof);
    proof.world.advance(5000);
    let refused = proof.run(start.input("x", int(2))).await;
    assert!(refused.contains("/pay"), "{refused}");
    assert_eq!(deadlines(&proof), before);
    proof.nothing_remains().await;
}

#[tokio::test]
async fn a_start_when_the_history_of_a_failed_run_has_ended_is_another_run() {
    let mut kit = Kit::default();
    let (start, expected) = unhandled(&mut kit);
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    let first = proof.drive(engine.start(start.clone())).await.unwrap();
    proof.drive(first.wait()).await.unwrap();
    proof.drive(engine.close()).await.unwrap();
    proof.world.advance(HISTORY_MS + 1);
    // An engine that does not work sees that the history has ended, and cannot remove the run.
    let idle = proof.engine_on(proof.memory.clone(), Options { works: false, ..Options::default() });
    idle.remove_due().await.unwrap();
    let busy = idle.start(start.clone()).await.err();
    assert!(matches!(busy, Some(Error::Busy { .. })), "{busy:?}");
    let engine = proof.engine();
    let second = proof.drive(engine.start(start)).await.unwrap();
    assert_ne!(first.id(), second.id());
    assert_eq!(proof.drive(second.wait()).await.unwrap().to_string(), expected);
    proof.drive(engine.close()).await.unwrap();
    assert_eq!(kit.ran(), "/below×2 /which/bad/bad×2");
    proof.nothing_remains().await;
}

/// Waits until the run is removed, or the engine's store has stopped.
async fn until_gone(engine: &Engine, plan: Option<&FaultPlan>) {
    while !is_gone(&engine.find("r").await) && !plan.is_some_and(FaultPlan::stopped) {
        tokio::task::yield_now().await;
    }
}

async fn disturb(make: Make, n: u64, fault: Fault) -> bool {
    let mut kit = Kit::default();
    let (start, _) = make(&mut kit);
    let proof = Proof::new(&kit);
    proof.run(Start { keep_ms: Some(HISTORY_MS), ..start }).await;
    proof.world.advance(HISTORY_MS + 1);
    let plan = FaultPlan::at(n, fault);
    let engine = proof.engine_on(Faulty::new(proof.memory.clone(), plan.clone()), Options::default());
    proof.drive(until_gone(&engine, Some(&plan))).await;
    let closed = proof.drive(engine.close()).await;
    assert!(closed.is_ok() || plan.stopped(), "{closed:?}");
    let second = proof.engine();
    proof.drive(until_gone(&second, None)).await;
    proof.calm().await;
    proof.drive(second.close()).await.unwrap();
    proof.only_what_remains().await;
    assert!(deadlines(&proof).is_empty(), "{fault:?} at {n}");
    if n.is_multiple_of(7) {
        proof.nothing_remains().await;
    }
    plan.reached()
}

#[tokio::test]
async fn a_fault_at_any_call_while_a_failed_run_goes_leaves_nothing() {
    let cases: [(&str, Make); 2] = [("choice", unhandled), ("each", odd_fails)];
    for (name, make) in cases {
        for fault in Fault::ALL {
            println!("{name} {fault:?}");
            let mut n = 1;
            while disturb(make, n, fault).await {
                n += 1;
            }
        }
    }
}

#[tokio::test]
async fn a_run_that_ends_with_its_handle_leaves_no_row() {
    let cases: [(&str, Make); 3] = [("diamond", diamond), ("choice", unhandled), ("each", odd_fails)];
    for (name, make) in cases {
        let mut kit = Kit::default();
        let (start, expected) = make(&mut kit);
        let proof = Proof::new(&kit);
        let engine = proof.engine();
        let start = Start { ends_with_handle: true, key: engine.fresh_key("r"), ..start };
        let (one, two) = {
            let handle = proof.drive(engine.start(start)).await.unwrap();
            (handle.clone(), handle)
        };
        drop(two);
        let told = match proof.drive(one.wait()).await.unwrap() {
            Summary { status: RunStatus::Done, outputs, .. } => support::told(&one, outputs).await,
            other => other.to_string(),
        };
        assert!(told.contains(&expected), "{name}: {told}");
        proof.calm().await;
        assert!(!is_gone(&engine.find(one.key()).await), "{name}: it is there as long as somebody has a handle");
        let key = one.key().to_owned();
        drop(one);
        proof.calm().await;
        assert!(is_gone(&engine.find(&key).await), "{name}");
        proof.drive(engine.close()).await.unwrap();
        let values = proof.values(proof.memory.clone());
        while proof.drive(values.reclaim(usize::MAX)).await.unwrap().more {}
        let left = proof.memory.state().all();
        let left: Vec<_> = left.iter().filter(|(_, key, _)| key.group.id() != b"values.sweeper").collect();
        assert!(left.is_empty(), "{name}: {left:?}\n{}", proof.rows());
    }
}

#[tokio::test]
async fn closing_right_after_the_last_handle_went_leaves_no_row() {
    let mut kit = Kit::default();
    let (start, expected) = diamond(&mut kit);
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    let start = Start { ends_with_handle: true, key: engine.fresh_key("r"), ..start };
    assert_eq!(proof.drive(proof.run_on(&engine, start)).await, expected);
    proof.drive(engine.close()).await.unwrap();
    let heads = proof.memory.state().all();
    let heads: Vec<_> = heads.iter().filter(|(_, key, _)| key.group.id().starts_with(b"runs")).collect();
    assert!(heads.is_empty(), "{heads:?}");
}

const DAY_MS: u64 = 24 * 3_600_000;

/// Two runs: one that is done and keeps large values, and one that failed; the store was cleaned up since.
async fn done_and_failed(kit: &mut Kit) -> Proof {
    let (start, _) = odd_fails(kit);
    let proof = Proof::new(kit);
    let inputs = vec![(String::from("x"), ints([0, 2]))];
    let done = Start { key: String::from("done"), keep_ms: Some(HISTORY_MS), inputs, ..start.clone() };
    assert_eq!(proof.run(done).await, "y=[0 2]");
    assert!(proof.run(start).await.contains("odd"));
    clean(&proof).await;
    proof
}

/// Cleans up as `onceflow reclaim` does.
async fn clean(proof: &Proof) {
    let engine = proof.engine_on(proof.memory.clone(), Options { works: false, ..Options::default() });
    assert!(proof.drive(engine.clean_up(u64::MAX)).await.unwrap());
}

/// Both runs exist, with everything they keep.
async fn all_is_there(proof: &Proof) {
    let engine = proof.engine_on(proof.memory.clone(), Options { works: false, ..Options::default() });
    let done = engine.find("done").await.expect("it is remembered");
    proof.drive(done.output("y")).await.expect("what it gave is there");
    assert!(matches!(engine.find("r").await.unwrap().summary().await, Ok(Summary { status: RunStatus::Failed, .. })));
    let kept = proof.memory.state().all().iter().filter(|(_, key, _)| key.group.id().starts_with(b"K")).count();
    assert!(kept > 0, "what it keeps is there");
}

#[tokio::test]
async fn a_clock_that_was_days_ahead_for_a_moment_ends_no_history() {
    let proof = done_and_failed(&mut Kit::default()).await;
    let right = onceflow_store::World::clock(&*proof.world);
    proof.world.set_clock(right.plus_ms(8 * DAY_MS));
    clean(&proof).await;
    all_is_there(&proof).await;
    proof.world.set_clock(right);
    clean(&proof).await;
    proof.world.advance(HISTORY_MS - 60_000);
    clean(&proof).await;
    all_is_there(&proof).await;
}

#[tokio::test]
async fn a_clock_that_stays_ahead_is_believed_after_half_a_day() {
    let proof = done_and_failed(&mut Kit::default()).await;
    let right = onceflow_store::World::clock(&*proof.world);
    proof.world.set_clock(right.plus_ms(8 * DAY_MS));
    for _ in 0..11 {
        clean(&proof).await;
        all_is_there(&proof).await;
        proof.world.advance(DAY_MS / 24);
    }
    proof.world.advance(2 * DAY_MS / 24);
    let engine = proof.engine();
    proof.calm().await;
    assert!(is_gone(&engine.find("done").await) && is_gone(&engine.find("r").await));
    proof.drive(engine.close()).await.unwrap();
}
