//! Registered compensations run in reverse order, once each, whatever fails at whichever call of the store.

use crate::support;

use onceflow_core::model::Type;
use onceflow_engine::{Engine, Error, Options, RunStatus, Start, Summary};
use onceflow_store::testing::fault::{Fault, FaultPlan, Faulty};
use std::sync::{Arc, Mutex};
use support::{Kit, as_int, flows::*, graphs::*, int, paused::Paused, proof::Proof};

type Undone = Arc<Mutex<Vec<i64>>>;

/// Three steps with compensations, and one that fails.
fn doomed(kit: &mut Kit, undone: &Undone) -> Start {
    let told = undone.clone();
    let undo = kit.add(spec("undo", &[("x", Type::Int), ("v", Type::Bytes)], &[]), move |_, inputs| {
        told.lock().unwrap().push(as_int(&inputs[0]));
        Ok(vec![])
    });
    let mut act = spec("act", &[("x", Type::Int), ("v", Type::Bytes)], &[("out", Type::Int), ("w", Type::Bytes)]);
    act.compensation = Some(Box::new(undo.clone()));
    let act = kit.add(act, |_, inputs| Ok(vec![int(as_int(&inputs[0]) + 1), inputs[1].clone()]));
    let fails = fails(kit);
    let g = G::new().input("x", Type::Int).input("v", Type::Bytes).output("y", Type::Int);
    let g = g.task("a", &act).task("b", &act).task("c", &act).task("last", &fails);
    let g = g.connect("x -> a.x; v -> a.v; a.out -> b.x; a.w -> b.v; b.out -> c.x; b.w -> c.v; c.out -> last.x");
    start(g.connect("last.out -> y")).input("x", int(1)).input("v", bytes(5000, 1))
}

/// Waits for the run's end; starts the run only if it does not exist.
async fn until_end(engine: &Engine, start: &Start) -> Result<Summary, Error> {
    let handle = match engine.find(&start.key).await {
        Err(Error::NoRun(_)) => engine.start(start.clone()).await?,
        found => found?,
    };
    handle.wait().await
}

async fn disturb(n: u64, fault: Fault) -> bool {
    let (mut kit, undone) = (Kit::default(), Undone::default());
    let start = doomed(&mut kit, &undone);
    let (proof, plan) = (Proof::new(&kit), FaultPlan::at(n, fault));
    let engine = proof.engine_on(Faulty::new(proof.memory.clone(), plan.clone()), Options::default());
    proof
        .drive(async {
            while until_end(&engine, &start).await.is_err() {
                if plan.stopped() {
                    break;
                }
            }
        })
        .await;
    let closed = proof.drive(engine.close()).await;
    assert!(closed.is_ok() || plan.stopped(), "{closed:?}");
    let second = proof.engine();
    let report = proof.drive(until_end(&second, &start)).await.unwrap();
    assert!(
        matches!(&report, Summary { status: RunStatus::Undone | RunStatus::NotUndone, failures, not_undone, .. } if failures.len() == 1 && not_undone.is_empty()),
        "{fault:?} at {n}: {report:?}"
    );
    proof.drive(second.close()).await.unwrap();
    let mut order = undone.lock().unwrap().clone();
    if fault == Fault::LoseReply && !plan.stopped() {
        assert_eq!(order, [3, 2, 1], "{fault:?} at {n}");
    }
    assert!(order.len() <= 4, "{fault:?} at {n}: {order:?}");
    order.dedup();
    assert_eq!(order, [3, 2, 1], "{fault:?} at {n}");
    proof.only_what_remains().await;
    if n.is_multiple_of(5) {
        proof.nothing_remains().await;
    }
    plan.reached()
}

#[tokio::test]
async fn compensations_run_once_each_in_reverse_whatever_happens_to_any_call() {
    for fault in Fault::ALL {
        let mut n = 1;
        while disturb(n, fault).await {
            n += 1;
        }
        assert!(n > 40, "{fault:?}: only {n} calls");
    }
}

/// One worker stops at its n-th call. Another frees its claims, and undoes the run; then the first continues.
async fn overtake(n: u64) -> bool {
    let (mut kit, undone) = (Kit::default(), Undone::default());
    let start = doomed(&mut kit, &undone);
    let proof = Proof::new(&kit);
    let paused = Paused::new(proof.memory.clone(), n);
    let slow = proof.engine_on(paused.clone(), Options::default());
    let (engine, begin) = (slow.clone(), start.clone());
    onceflow_store::World::spawn(&*proof.world, "slow", Box::pin(async move { drop(engine.start(begin).await) }));
    proof.calm().await;
    let fast = proof.engine();
    let report = proof.drive(until_end(&fast, &start)).await.unwrap();
    assert!(
        matches!(&report, Summary { status: RunStatus::Undone | RunStatus::NotUndone, .. }),
        "stopped at {n}: {report:?}"
    );
    let reached = paused.reached();
    paused.go_on();
    proof.calm().await;
    proof.drive(slow.close()).await.unwrap();
    proof.drive(fast.close()).await.unwrap();
    proof.calm().await;
    proof.only_what_remains().await;
    reached
}

#[tokio::test]
async fn a_worker_that_slept_while_another_undid_the_run_leaves_nothing_of_it() {
    let mut n = 1;
    while overtake(n).await {
        n += 1;
    }
    assert!(n > 40, "only {n} calls");
}
