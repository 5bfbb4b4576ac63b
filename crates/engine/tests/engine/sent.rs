//! Steps that wait for an event from outside: it is delivered once, however often it is sent and whatever fails
//! meanwhile.

use crate::support;

use crate::suspended::Outside;
use onceflow_core::model::{Effect, Type};
use onceflow_engine::{Error, Options, Resolution, RunStatus, Start};
use onceflow_store::testing::fault::{Fault, FaultPlan, Faulty};
use std::sync::Arc;
use support::{Kit, as_int, flows, flows::*, graphs::*, int, proof::Proof};

/// Waits for a number, and doubles it.
fn waits(kit: &mut Kit) -> Start {
    let wait = effect(spec("wait", &[("x", Type::Int)], &[("out", Type::Int)]), Effect::AtMostOnce);
    let body = Outside { log: kit.log.clone(), timeout_ms: None, cancelled: Arc::default() };
    kit.tasks.add(wait.clone(), Arc::new(body));
    let twice = kit.add(spec("twice", &[("x", Type::Int)], &[("out", Type::Int)]), |_, inputs| {
        Ok(vec![int(2 * as_int(&inputs[0]))])
    });
    let g = G::new().input("x", Type::Int).output("y", Type::Int).task("wait", &wait).task("twice", &twice);
    flows::start(g.connect("x -> wait.x; wait.out -> twice.x; twice.out -> y")).input("x", int(1))
}

async fn waiting() -> (Kit, Proof) {
    let mut kit = Kit::default();
    let start = waits(&mut kit);
    let proof = Proof::new(&kit);
    assert_eq!(proof.run(start).await, "waiting for the outcome of /wait");
    (kit, proof)
}

fn seven() -> Resolution {
    Resolution::Done(vec![int(7)])
}

#[tokio::test]
async fn an_event_sent_twice_under_one_id_is_taken_once() {
    let (kit, proof) = waiting().await;
    let engine = proof.engine();
    let handle = engine.find("r").await.unwrap();
    assert!(proof.drive(handle.resolve_once("/wait", seven(), "a")).await.unwrap());
    assert!(!proof.drive(handle.resolve_once("/wait", seven(), "a")).await.unwrap());
    let other = proof.drive(handle.resolve_once("/wait", seven(), "b")).await;
    assert!(matches!(other, Err(Error::Refused { .. })), "nothing waits any more");
    let report = proof.drive(handle.wait()).await.unwrap();
    assert!(report.status == RunStatus::Done, "{report}");
    assert!(!proof.drive(handle.resolve_once("/wait", seven(), "a")).await.unwrap(), "also when it is done");
    proof.drive(engine.close()).await.unwrap();
    assert_eq!(kit.ran(), "/twice /wait");
    proof.only_what_remains().await;
    proof.nothing_remains().await;
}

async fn disturb(n: u64, fault: Fault) -> bool {
    let (kit, proof) = waiting().await;
    let plan = FaultPlan::at(n, fault);
    let idle = Options { works: false, ..Options::default() };
    let engine = proof.engine_on(Faulty::new(proof.memory.clone(), plan.clone()), idle);
    let first = async {
        let handle = engine.find("r").await?;
        handle.resolve_once("/wait", seven(), "a").await
    };
    let first = proof.drive(first).await;
    engine.stop();
    let second = proof.engine();
    let handle = proof.drive(second.find("r")).await.unwrap();
    let again = proof.drive(handle.resolve_once("/wait", seven(), "a")).await.unwrap();
    assert!(!(again && first.as_ref().is_ok_and(|first| *first)), "{fault:?} at {n}: taken twice");
    let report = proof.drive(handle.wait()).await.unwrap();
    assert!(report.status == RunStatus::Done, "{fault:?} at {n}: {report}");
    proof.drive(second.close()).await.unwrap();
    assert_eq!(kit.ran(), "/twice /wait", "{fault:?} at {n}");
    proof.only_what_remains().await;
    plan.reached()
}

#[tokio::test]
async fn an_event_resent_after_a_fault_at_any_call_is_taken_once() {
    for fault in Fault::ALL {
        let mut n = 1;
        while disturb(n, fault).await {
            n += 1;
        }
    }
}
