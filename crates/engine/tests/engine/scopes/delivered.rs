//! Events that are delivered to an order of a scope: once, and answered rightly, whatever fails meanwhile.

use super::rig::{Rig, number, row};
use crate::support::{Kit, as_int, flows, flows::*, graphs::*, int, proof::Proof};
use onceflow_core::{
    model::{Effect, TaskSpec, Type},
    scope::{OpKind, TaskMode},
};
use onceflow_engine::{
    Error, Handle, Options, RunStatus, Start,
    scope::{DurableBody, DurableScope, OrderView, enter_scope},
    task::{Attempt, Body, Data, Failure, Step},
};
use onceflow_store::testing::fault::{Fault, FaultPlan, Faulty};
use std::sync::Arc;

/// Enters a scope that waits for an event, and gives what the event brings.
struct Enters(Arc<DurableScope>);

impl Body for Enters {
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt {
        let scope = self.0.clone();
        Attempt::Async(Box::pin(async move {
            let ended = enter_scope(&step, scope, row(as_int(&inputs[0]))).await;
            let ended = ended.map_err(|error| Failure::new(error.to_string()))?;
            let result = ended.result.map_err(|cancelled| Failure::new(cancelled.to_string()))?;
            Ok(vec![int(number(&result))])
        }))
    }
}

fn waits() -> Arc<DurableScope> {
    let mut rig = Rig::default();
    let body = DurableBody::Wait { event: String::from("go") };
    let wait = rig.op("wait", OpKind::Task { mode: TaskMode::Async, streams: 0 }, body, 1);
    let end = rig.terminate();
    rig.chain(&[wait, end]);
    rig.build()
}

fn start(kit: &mut Kit, scope: &Arc<DurableScope>) -> Start {
    let enter = effect(spec("enter", &[("x", Type::Int)], &[("out", Type::Int)]), Effect::Transactional);
    kit.tasks.add(enter.clone(), Arc::new(Enters(scope.clone())));
    let graph = G::new().input("x", Type::Int).output("y", Type::Int).task("enter", &enter);
    flows::start(graph.connect("x -> enter.x; enter.out -> y")).input("x", int(1))
}

/// The order that waits for the event, if one does.
async fn waiting(handle: &Handle, scope: &Arc<DurableScope>) -> Result<Option<OrderView>, Error> {
    let scope_of = |_: &TaskSpec| Some(scope.clone());
    let views = handle.open_sessions(&scope_of).await?;
    Ok(views.into_iter().flat_map(|view| view.waits).find(|order| order.event.as_deref() == Some("go")))
}

/// Delivers an event over a store with a fault at its n-th call; true if that call was reached.
async fn disturb(n: u64, fault: Fault, id: Option<&str>) -> bool {
    let (mut kit, scope) = (Kit::default(), waits());
    let start = start(&mut kit, &scope);
    let proof = Proof::new(&kit);
    let works = proof.engine();
    let run = proof.drive(works.start(start)).await.unwrap();
    let order = proof.drive(async {
        loop {
            if let Some(order) = waiting(&run, &scope).await.unwrap() {
                break order;
            }
            run.until_changed(100).await.unwrap();
        }
    });
    let order = order.await;
    let plan = FaultPlan::at(n, fault);
    let idle = Options { works: false, ..Options::default() };
    let sender = proof.engine_on(Faulty::new(proof.memory.clone(), plan.clone()), idle);
    let told = proof.drive(async {
        let handle = sender.find("r").await?;
        handle.deliver(&order, row(7), id).await
    });
    let told = told.await;
    sender.stop();
    assert!(!matches!(told, Ok(false)), "{fault:?} at {n}: the only event is told to have come too late");
    if told.is_err() {
        let again = async {
            match waiting(&run, &scope).await.unwrap() {
                Some(order) => run.deliver(&order, row(7), id).await.unwrap(),
                None => false,
            }
        };
        let _false_if_it_was_delivered_before = proof.drive(again).await;
    }
    let summary = proof.drive(run.wait()).await.unwrap();
    assert!(summary.status == RunStatus::Done, "{fault:?} at {n}: {summary}");
    assert!(!proof.drive(run.deliver(&order, row(8), None)).await.unwrap(), "nothing waits any more");
    proof.drive(works.close()).await.unwrap();
    proof.only_what_remains().await;
    plan.reached()
}

#[tokio::test]
async fn event_for_a_scope_is_delivered_once_and_never_called_late_after_a_fault_at_any_call() {
    for fault in Fault::ALL {
        for id in [None, Some("a")] {
            let mut n = 1;
            while disturb(n, fault, id).await {
                n += 1;
            }
            assert!(n > 2, "a delivery calls the store");
        }
    }
}
