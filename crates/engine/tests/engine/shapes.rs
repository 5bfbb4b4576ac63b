//! Every shape of flow gives the expected outputs, runs each step once, and leaves no rows behind.

use crate::support;

use onceflow_engine::{EventKind, Options};
use support::{Bed, Kit, flows, flows::Case, proof::Proof};

async fn prove(make: impl FnOnce(&mut Kit) -> Case) -> Proof {
    let mut kit = Kit::default();
    let (start, expected) = make(&mut kit);
    let proof = Proof::new(&kit);
    proof.prove(start, &expected).await;
    proof
}

#[tokio::test]
async fn every_small_shape_gives_what_it_should_once_and_leaves_nothing() {
    for (name, make) in flows::SMALL {
        println!("{name}");
        prove(make).await;
    }
}

#[tokio::test]
async fn an_each_gives_results_in_order_however_many_there_are() {
    for n in [100, 1000, 10_000] {
        let proof = prove(|kit| flows::each_of(kit, n)).await;
        assert_eq!(proof.kit.log.lock().unwrap().len(), n as usize + 1);
    }
}

#[tokio::test]
async fn a_loop_may_go_round_a_thousand_times() {
    let proof = prove(|kit| flows::loop_of(kit, 1000)).await;
    assert_eq!(proof.kit.log.lock().unwrap().len(), 2000);
}

/// The end of such an iteration has no step of its own, and its events are those of any other.
#[tokio::test]
async fn an_iteration_of_a_loop_of_one_task_is_one_batch() {
    let mut took = Vec::new();
    for n in [10, 110] {
        let mut kit = Kit::default();
        let (start, expected) = flows::loop_of_one_task(&mut kit, n);
        let bed = Bed::new();
        let engine = bed.engine(&kit, Options::default());
        let mut events = engine.events();
        let before = bed.records.position();
        assert_eq!(support::run(&engine, start).await, expected);
        took.push(bed.records.position().0 - before.0);
        engine.close().await.expect("the engine closes");
        let mut told = Vec::new();
        while let Some(event) = events.recv().await {
            match event.kind {
                EventKind::DidCommit { address } => told.push(address),
                EventKind::DidTurn { address, iteration } => told.push(format!("{address} {iteration}")),
                _ => {}
            }
        }
        assert_eq!(told.len() as i64, 2 * n - 1, "{told:?}");
        assert_eq!(told[1], "/round 1", "{told:?}");
    }
    assert!(took[1] - took[0] <= 110, "a hundred iterations took {} batches", took[1] - took[0]);
}

#[tokio::test]
async fn a_flow_may_call_itself_deeply_and_not_too_deeply() {
    prove(|kit| flows::recursive(kit, 490)).await;
    let mut kit = Kit::default();
    let (start, _) = flows::recursive(&mut kit, 600);
    let proof = Proof::new(&kit);
    let told = proof.run(start).await;
    assert!(told.contains("the flow calls itself more than 1000 deep"), "{told}");
}
