//! Suspended attempts: they hold nothing but a row and a timer, are woken once and in time by any process, and what they
//! left outside is found again by the handle.

use crate::support;

use onceflow_core::{
    Batch, Shard,
    model::{TaskSpec, Type},
    protocol::{
        ids::{Generation, RunId, StepId},
        rows,
        timer::Timer,
    },
};
use onceflow_engine::{
    Engine, Handle, Options, Resolution, RunStatus, Start, Summary,
    task::{Attempt, AttemptEnd, Body, Data, Failure, Step, Suspension},
};
use onceflow_store::{
    BoxFuture, Records, World,
    testing::fault::{Fault, FaultPlan, Faulty},
};
use std::sync::{Arc, Mutex};
use support::{Kit, Log, flows, flows::*, graphs::*, int, proof::Proof};

const TIMEOUT_MS: u64 = 600_000;

/// A body that leaves a job outside, and gives its number when it is woken; it notes the jobs that it was told to cancel.
#[derive(Clone)]
pub(crate) struct Outside {
    pub(crate) log: Log,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) cancelled: Arc<Mutex<Vec<String>>>,
}

impl Body for Outside {
    fn start(&self, step: Step, _: Vec<Data>) -> Attempt {
        *self.log.lock().unwrap().entry(step.address()).or_default() += 1;
        let (resumed, timeout_ms) = (step.resumed().cloned(), self.timeout_ms);
        Attempt::Suspending(Box::pin(async move {
            Ok(match resumed {
                None => AttemptEnd::Suspended(Suspension { handle: String::from("job 7"), timeout_ms }),
                Some(resumed) => {
                    assert!(resumed.timed_out, "only its timer wakes it");
                    let job = resumed.handle.strip_prefix("job ").and_then(|job| job.parse().ok());
                    AttemptEnd::Done(vec![int(job.expect("its own handle"))])
                }
            })
        }))
    }

    fn cancel<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        self.cancelled.lock().unwrap().push(handle.to_owned());
        Box::pin(std::future::ready(Ok(())))
    }
}

fn outside(kit: &mut Kit, spec: &TaskSpec, timeout_ms: Option<u64>) -> Outside {
    let body = Outside { log: kit.log.clone(), timeout_ms, cancelled: Arc::default() };
    kit.tasks.add(spec.clone(), Arc::new(body.clone()));
    body
}

fn job(timeout_ms: Option<u64>) -> (Kit, Start, Outside) {
    let mut kit = Kit::default();
    let job = spec("job", &[("x", Type::Int)], &[("out", Type::Int)]);
    let body = outside(&mut kit, &job, timeout_ms);
    let g = G::new().input("x", Type::Int).output("y", Type::Int).task("job", &job);
    (kit, flows::start(g.connect("x -> job.x; job.out -> y")).input("x", int(1)), body)
}

/// Lets time pass until the run is at rest otherwise than waiting.
async fn ended(proof: &Proof, handle: &Handle) -> Summary {
    loop {
        let summary = proof.drive(handle.wait()).await.unwrap();
        if summary.status != RunStatus::Waiting {
            return summary;
        }
        proof.world.advance_to_next();
        proof.calm().await;
    }
}

async fn suspend(proof: &Proof, start: Start) -> (Engine, Handle) {
    let engine = proof.engine();
    let handle = proof.drive(engine.start(start)).await.unwrap();
    let summary = proof.drive(handle.wait()).await.unwrap();
    assert_eq!((summary.status, &summary.undecided[..]), (RunStatus::Waiting, &[String::from("/job")][..]));
    (engine, handle)
}

#[tokio::test]
async fn a_suspended_step_has_no_claim_and_is_woken_at_its_deadline() {
    let (kit, start, _) = job(Some(TIMEOUT_MS));
    let proof = Proof::new(&kit);
    let began = proof.world.clock();
    let (engine, handle) = suspend(&proof, start).await;
    let suspended = proof.world.clock();
    let rows = proof.rows();
    assert!(rows.contains("timers") && !rows.contains("q/default"), "{rows}");
    let summary = ended(&proof, &handle).await;
    assert_eq!(summary.status, RunStatus::Done, "{summary}");
    let took_ms = proof.world.clock().ms_since(began);
    let latest_ms = TIMEOUT_MS + suspended.ms_since(began);
    assert!((TIMEOUT_MS..=latest_ms).contains(&took_ms), "{took_ms} ms, and it was to be {TIMEOUT_MS}");
    assert_eq!(kit.ran(), "/job×2", "once to suspend, once to go on");
    proof.drive(engine.close()).await.unwrap();
    proof.only_what_remains().await;
    proof.nothing_remains().await;
}

#[tokio::test]
async fn a_timer_outlives_its_process() {
    let (kit, start, _) = job(Some(TIMEOUT_MS));
    let proof = Proof::new(&kit);
    let (engine, _) = suspend(&proof, start).await;
    proof.drive(engine.close()).await.unwrap();
    let second = proof.engine();
    let handle = proof.drive(second.find("r")).await.unwrap();
    assert_eq!(ended(&proof, &handle).await.status, RunStatus::Done);
    assert_eq!(kit.ran(), "/job×2");
    proof.drive(second.close()).await.unwrap();
    proof.only_what_remains().await;
}

#[tokio::test]
async fn a_timer_of_a_dead_process_fires_in_time_where_another_is_at_work() {
    const SOON_MS: u64 = 5000;
    let (kit, start, _) = job(Some(SOON_MS));
    let proof = Proof::new(&kit);
    // It is at work already, and looks at the timers when the other one sets its own.
    let other = proof.engine();
    proof.calm().await;
    let setter = proof.engine();
    let began = proof.world.clock();
    let handle = proof.drive(setter.start(start)).await.unwrap();
    assert_eq!(proof.drive(handle.wait()).await.unwrap().status, RunStatus::Waiting);
    setter.stop();
    drop((handle, setter));
    let handle = proof.drive(other.find("r")).await.unwrap();
    while proof.rows().contains("timers") {
        assert!(proof.world.advance_to_next(), "no sleeper is left");
        proof.calm().await;
    }
    let took_ms = proof.world.clock().ms_since(began);
    assert!((SOON_MS..SOON_MS + 3000).contains(&took_ms), "the timer fired after {took_ms} ms");
    assert_eq!(ended(&proof, &handle).await.status, RunStatus::Done);
    proof.drive(other.close()).await.unwrap();
    proof.only_what_remains().await;
}

#[tokio::test]
async fn a_timer_whose_run_is_gone_is_deleted_and_the_others_fire() {
    let (kit, start, _) = job(Some(TIMEOUT_MS));
    let proof = Proof::new(&kit);
    let timer = Timer::Step { run: RunId([9; 8]), generation: Generation(1), step: StepId::of_run(0) };
    let mut batch = Batch::new(Shard(0));
    batch.put(timer.key(proof.world.clock()), rows::write(&timer));
    assert!(proof.memory.commit(batch).await.unwrap().is_applied());
    let (engine, handle) = suspend(&proof, start).await;
    assert_eq!(ended(&proof, &handle).await.status, RunStatus::Done);
    assert!(!proof.rows().contains("timers"), "{}", proof.rows());
    proof.drive(engine.close()).await.unwrap();
    proof.only_what_remains().await;
}

#[tokio::test]
async fn an_event_after_the_deadline_is_refused_though_no_process_let_it_pass() {
    let (kit, start, _) = job(Some(TIMEOUT_MS));
    let proof = Proof::new(&kit);
    let (engine, _) = suspend(&proof, start).await;
    proof.drive(engine.close()).await.unwrap();
    let idle = proof.engine_on(proof.memory.clone(), Options { works: false, ..Options::default() });
    let handle = proof.drive(idle.find("r")).await.unwrap();
    proof.world.advance(TIMEOUT_MS);
    let late = proof.drive(handle.resolve("/job", Resolution::Done(vec![int(7)]))).await.unwrap_err().to_string();
    assert!(late.contains("its timeout has passed"), "{late}");
    proof.drive(idle.close()).await.unwrap();
    let third = proof.engine();
    let handle = proof.drive(third.find("r")).await.unwrap();
    assert_eq!(ended(&proof, &handle).await.status, RunStatus::Done, "its own deadline woke it");
    proof.drive(third.close()).await.unwrap();
    proof.only_what_remains().await;
}

#[tokio::test]
async fn cancelling_a_run_cancels_its_suspended_attempts_by_their_handles() {
    let (kit, start, body) = job(Some(TIMEOUT_MS));
    let proof = Proof::new(&kit);
    let (engine, handle) = suspend(&proof, start).await;
    proof.drive(handle.cancel()).await.unwrap();
    assert_eq!(ended(&proof, &handle).await.status, RunStatus::Cancelled);
    assert_eq!(*body.cancelled.lock().unwrap(), ["job 7"]);
    assert!(!proof.rows().contains("timers"), "{}", proof.rows());
    proof.drive(engine.close()).await.unwrap();
    assert_eq!(kit.ran(), "/job");
    proof.only_what_remains().await;
    proof.nothing_remains().await;
}

async fn disturb(n: u64, fault: Fault) -> bool {
    let (kit, start, _) = job(Some(TIMEOUT_MS));
    let proof = Proof::new(&kit);
    let plan = FaultPlan::at(n, fault);
    let engine = proof.engine_on(Faulty::new(proof.memory.clone(), plan.clone()), Options::default());
    // The start itself may fail: then the second one makes it.
    if let Ok(handle) = proof.drive(engine.start(start.clone())).await {
        let _may_fail = proof.drive(handle.wait()).await;
        proof.world.advance_to_next();
        proof.calm().await;
    }
    engine.stop();
    let second = proof.engine();
    let handle = proof.drive(second.start(start)).await.unwrap();
    let summary = ended(&proof, &handle).await;
    assert!(summary.status == RunStatus::Done, "{fault:?} at {n}: {summary}");
    proof.drive(second.close()).await.unwrap();
    proof.only_what_remains().await;
    plan.reached()
}

#[tokio::test]
async fn a_suspended_step_is_woken_whatever_call_fails() {
    for fault in Fault::ALL {
        let mut n = 1;
        while disturb(n, fault).await {
            n += 1;
        }
    }
}
