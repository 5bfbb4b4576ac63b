//! Scopes that call flows: a crash, a lost reply or a refusal at every call of the store gives the same end, commits each
//! step of the called flow once, and leaves nothing of its run; a cancelled call is undone first.

use super::rig::{Rig, number, row};
use crate::support::{Kit, as_int, flows, flows::*, graphs::*, int, proof::Proof, proof::commits};
use onceflow_core::{
    model::{CheckedFlow, Effect, Type},
    scope::{OpKind, TaskMode},
};
use onceflow_engine::{
    Engine, Options, RunStatus, Start,
    scope::{DurableBody, DurableScope, FlowCall, end_scope, enter_scope},
    task::{Attempt, Body, Data, Failure, Step},
};
use onceflow_store::{
    BoxFuture,
    testing::fault::{Fault, FaultPlan, Faulty},
};
use std::sync::Arc;

/// Enters a scope that calls a flow, and gives what the flow gives.
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

    fn waits_for_steps(&self, _: &onceflow_core::model::TaskSpec) -> bool {
        true
    }

    fn end_left_open(&self, step: Step) -> Option<BoxFuture<'static, Result<Vec<String>, Failure>>> {
        let scope = self.0.clone();
        Some(Box::pin(async move {
            let ended = end_scope(&step, scope).await.map_err(|error| Failure::new(error.to_string()))?;
            Ok(ended.iter().flat_map(|ended| &ended.mishaps).map(ToString::to_string).collect())
        }))
    }
}

fn calls(flow: CheckedFlow) -> Arc<DurableScope> {
    let call = FlowCall {
        flow,
        classes: vec![],
        inputs: Arc::new(|message| Ok(vec![(String::from("x"), int(number(message)))])),
        output: Arc::new(|outputs| Ok(row(as_int(&outputs[0].1)))),
    };
    let mut rig = Rig::default();
    let kind = OpKind::Task { mode: TaskMode::Async, streams: 0 };
    let call = rig.op("call", kind, DurableBody::Call(Arc::new(call)), 1);
    let end = rig.terminate();
    rig.chain(&[call, end]);
    rig.build()
}

/// A run whose only step enters a scope that calls this flow.
fn start(kit: &mut Kit, flow: CheckedFlow) -> Start {
    let enter = effect(spec("enter", &[("x", Type::Int)], &[("out", Type::Int)]), Effect::Transactional);
    kit.tasks.add(enter.clone(), Arc::new(Enters(calls(flow))));
    let graph = G::new().input("x", Type::Int).output("y", Type::Int).task("enter", &enter);
    flows::start(graph.connect("x -> enter.x; enter.out -> y")).input("x", int(1))
}

/// Two steps, each of which is started twice at most, and committed once.
fn child(kit: &mut Kit) -> CheckedFlow {
    let add = kit.task("add", &["x"], |inputs| Ok(vec![int(as_int(&inputs[0]) + 1)]));
    let add = effect(add, Effect::Idempotent);
    let graph = G::new().input("x", Type::Int).output("y", Type::Int).task("a", &add).task("b", &add);
    flows::start(graph.connect("x -> a.x; a.out -> b.x; b.out -> y")).flow
}

async fn until_rest(engine: &Engine, start: Start) -> Result<RunStatus, onceflow_engine::Error> {
    Ok(engine.start(start).await?.wait().await?.status)
}

/// Runs with a fault at the n-th call of the store; true if that call was reached.
async fn disturb(n: u64, fault: Fault) -> bool {
    let place = format!("{fault:?} at call {n}");
    let mut kit = Kit::default();
    let flow = child(&mut kit);
    let start = start(&mut kit, flow);
    let (proof, plan) = (Proof::new(&kit), FaultPlan::at(n, fault));
    let engine = proof.engine_on(Faulty::new(proof.memory.clone(), plan.clone()), Options::default());
    let mut events = engine.events();
    let rests = proof.drive(async {
        loop {
            match until_rest(&engine, start.clone()).await {
                Ok(_) => break,
                Err(_) if plan.stopped() => break,
                Err(_) => {}
            }
        }
    });
    rests.await;
    let _a_stopped_store_does_not_answer = proof.drive(engine.close()).await;
    proof.calm().await;
    let mut committed = commits(&mut events);
    let second = proof.engine();
    let mut events = second.events();
    let handle = proof.drive(second.start(start)).await.unwrap();
    let summary = proof.drive(handle.wait()).await.unwrap();
    assert_eq!(summary.status, RunStatus::Done, "{place}: {summary}");
    assert_eq!(as_int(&proof.drive(handle.output("y")).await.unwrap()), 3, "{place}");
    let runs = proof.drive(second.runs(None, 9)).await.unwrap();
    assert_eq!(runs.len(), 1, "{place}: {runs:?}");
    proof.drive(second.close()).await.unwrap();
    proof.calm().await;
    for (address, n) in commits(&mut events) {
        *committed.entry(address).or_default() += n;
    }
    assert!(committed.values().all(|n| *n == 1), "{place}: {committed:?}");
    assert!(kit.log.lock().unwrap().values().all(|n| *n <= 2), "{place}: {}", kit.ran());
    proof.forget_uploads();
    proof.only_what_remains().await;
    plan.reached()
}

async fn disturb_everywhere(fault: Fault) {
    let mut n = 1;
    while disturb(n, fault).await {
        n += 1;
    }
    assert!(n > 20, "a scope that calls a flow calls the store");
}

#[tokio::test]
async fn call_survives_a_crash_before_every_call_of_the_store() {
    disturb_everywhere(Fault::StopBefore).await;
}

#[tokio::test]
async fn call_survives_a_crash_after_every_call_of_the_store() {
    disturb_everywhere(Fault::StopAfter).await;
}

#[tokio::test]
async fn call_survives_every_lost_reply_and_every_refused_call() {
    disturb_everywhere(Fault::LoseReply).await;
    disturb_everywhere(Fault::FailOnce).await;
}

/// Cancels a run whose called flow has done something that can be undone, with a crash at the n-th call of the store after
/// that; true if that call was reached.
async fn cancel(n: u64, fault: Fault) -> bool {
    let place = format!("{fault:?} at call {n}");
    let mut kit = Kit::default();
    let undo = spec("undo", &[("x", Type::Int)], &[]);
    let undo = kit.add(effect(undo, Effect::Idempotent), |_, _| Ok(vec![]));
    let mut once = spec("do", &[("x", Type::Int)], &[("out", Type::Int)]);
    once.compensation = Some(Box::new(undo));
    let once = kit.add(effect(once, Effect::Idempotent), |_, inputs| Ok(vec![inputs[0].clone()]));
    let mut stuck = spec("stuck", &[("x", Type::Int)], &[("out", Type::Int)]);
    stuck.retry = onceflow_core::model::Retry { attempts: u32::MAX, backoff_ms: 1_000, backoff_ms_max: 1_000 };
    let stuck = kit.add(effect(stuck, Effect::Idempotent), |_, _| Err(Failure::new("not yet")));
    let graph = G::new().input("x", Type::Int).output("y", Type::Int).task("a", &once).task("b", &stuck);
    let flow = flows::start(graph.connect("x -> a.x; a.out -> b.x; b.out -> y")).flow;
    let start = start(&mut kit, flow);
    let proof = Proof::new(&kit);
    let first = proof.engine();
    let handle = proof.drive(first.start(start)).await.unwrap();
    proof
        .drive(async {
            while !kit.log.lock().unwrap().contains_key("/b") {
                handle.until_changed(10).await.unwrap();
            }
        })
        .await;
    proof.drive(first.interrupt()).await.unwrap();
    proof.calm().await;
    let plan = FaultPlan::at(n, fault);
    let faulty = proof.engine_on(Faulty::new(proof.memory.clone(), plan.clone()), Options::default());
    let cancelled = proof.drive(async {
        loop {
            let cancels = async {
                let handle = faulty.find("r").await?;
                handle.cancel().await?;
                handle.wait().await
            };
            match cancels.await {
                Ok(_) => break,
                Err(onceflow_engine::Error::Ended { .. }) => break,
                Err(_) if plan.stopped() => break,
                Err(_) => {}
            }
        }
    });
    cancelled.await;
    let _a_stopped_store_does_not_answer = proof.drive(faulty.interrupt()).await;
    proof.calm().await;
    let second = proof.engine();
    let handle = proof.drive(second.find("r")).await.unwrap();
    let status = proof.drive(async {
        if let Err(error) = handle.cancel().await {
            assert!(matches!(error, onceflow_engine::Error::Ended { .. }), "{error}");
        }
        handle.wait().await.unwrap().status
    });
    assert_eq!(status.await, RunStatus::Cancelled, "{place}");
    let runs = proof.drive(second.runs(None, 9)).await.unwrap();
    assert_eq!(runs.len(), 1, "{place}: {runs:?}");
    proof.drive(second.close()).await.unwrap();
    proof.calm().await;
    let undone = kit.log.lock().unwrap().iter().filter(|(address, _)| address.contains("undo")).count();
    let starts = kit.ran();
    assert!(undone <= 1, "{place}: {starts}");
    proof.forget_uploads();
    proof.only_what_remains().await;
    plan.reached()
}

#[tokio::test]
async fn cancelled_call_is_undone_whatever_crashes() {
    for fault in [Fault::StopBefore, Fault::StopAfter, Fault::LoseReply] {
        let mut n = 1;
        while cancel(n, fault).await {
            n += 1;
        }
        assert!(n > 10, "a cancel calls the store");
    }
}
