//! Bodies end when their run is cancelled, by any process, and when their worker is interrupted; at-most-once bodies
//! may finish. Steps of a worker that is gone are freed at once.

use crate::support;

use onceflow_core::{
    Batch, Key, Kind, Op, Row,
    model::{Effect, Port, ResourceRequest, Retry, TaskSpec, Type},
    protocol::{
        rows::{self, Phase, ReadyStep, RunState},
        step,
    },
};
use onceflow_engine::{
    Engine, Error, Handle, Options, RunStatus, Start, Summary,
    task::{Attempt, Body, Data, Failure, Step},
};
use onceflow_store::{Records, World, backend::memory::Memory};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use support::{
    Kit, as_int,
    graphs::*,
    int,
    meanwhile::{Call, Meanwhile},
    proof::Proof,
};
use tokio::sync::Semaphore;

/// Bodies that wait at a door, and count when they begin and when they are dropped.
#[derive(Clone)]
struct Door {
    open: Arc<Semaphore>,
    began: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Body for Door {
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt {
        let (door, dropped) = (self.clone(), Dropped(self.dropped.clone()));
        self.began.fetch_add(1, SeqCst);
        Attempt::Async(Box::pin(async move {
            door.open.acquire().await.unwrap().forget();
            std::mem::forget(dropped);
            Ok(vec![int(as_int(&inputs[0]) + i64::from(step.attempt()))])
        }))
    }
}

struct Scene {
    proof: Proof,
    door: Door,
    start: Start,
}

fn door() -> Door {
    Door { open: Arc::new(Semaphore::new(0)), began: Arc::default(), dropped: Arc::default() }
}

fn spec_of_door() -> TaskSpec {
    TaskSpec::new("wait", vec![Port::new("x", Type::Int)], vec![Port::new("out", Type::Int)])
}

fn scene(adjust: impl Fn(&mut TaskSpec)) -> Scene {
    let (mut kit, door) = (Kit::default(), door());
    let mut spec = spec_of_door();
    adjust(&mut spec);
    kit.tasks.add(spec.clone(), Arc::new(door.clone()));
    let start = Start::new("r", chain(&spec, 2).flow()).input("x", int(10));
    Scene { proof: Proof::new(&kit), door, start }
}

impl Scene {
    fn looker(&self) -> Engine {
        self.proof.engine_on(self.proof.memory.clone(), Options { works: false, ..Options::default() })
    }

    /// Starts the run, and waits until a body is running.
    async fn begin(&self, engine: &Engine) -> Handle {
        let handle = self.proof.drive(engine.start(self.start.clone())).await.unwrap();
        self.until(&self.door.began, 1).await;
        handle
    }

    async fn until(&self, counter: &AtomicUsize, n: usize) {
        self.proof
            .drive(std::future::poll_fn(|_| match counter.load(SeqCst) >= n {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }))
            .await;
    }

    async fn ends(&self, engine: &Engine, handle: &Handle, expected: &str) {
        let report = self.proof.drive(handle.wait()).await.unwrap();
        let told = match report {
            Summary { status: RunStatus::Done, outputs, .. } => self.proof.drive(support::told(handle, outputs)).await,
            other => other.to_string(),
        };
        assert_eq!(told, expected);
        self.proof.drive(engine.close()).await.unwrap();
        self.proof.only_what_remains().await;
    }
}

#[tokio::test]
async fn a_cancel_from_any_process_drops_the_running_bodies() {
    for elsewhere in [false, true] {
        let scene = scene(|_| {});
        let engine = scene.proof.engine();
        let handle = scene.begin(&engine).await;
        let before = scene.proof.world.clock();
        let looker = scene.looker();
        let by = if elsewhere { looker.find("r").await.unwrap() } else { handle.clone() };
        scene.proof.drive(by.cancel()).await.unwrap();
        scene.until(&scene.door.dropped, 1).await;
        let took = scene.proof.world.clock().ms_since(before);
        assert!(took < 1000, "it took {took} ms of the store's time");
        scene.ends(&engine, &handle, "cancelled").await;
        assert_eq!(scene.door.began.load(SeqCst), 1, "nothing was started after it");
        scene.proof.drive(looker.close()).await.unwrap();
        scene.proof.nothing_remains().await;
    }
}

#[tokio::test]
async fn the_end_of_a_run_and_each_output_wake_callers_in_other_processes() {
    let mut scene = scene(|_| {});
    let (wait, g) = (spec_of_door(), G::new().input("x", Type::Int).output("y", Type::Int).output("z", Type::Int));
    let g = g.task("first", &wait).task("second", &wait);
    let g = g.connect("x -> first.x; first.out -> y; first.out -> second.x; second.out -> z");
    scene.start = Start::new("r", g.flow()).input("x", int(10));
    let engine = scene.proof.engine();
    scene.begin(&engine).await;
    let looker = scene.looker();
    let seen = scene.proof.drive(looker.find("r")).await.unwrap();
    // Nothing of this process wakes it, and it does not look by itself for many seconds.
    for (name, expected) in [("y", 11), ("z", 12)] {
        let mut output = std::pin::pin!(seen.output(name));
        for _ in 0..50 {
            assert!(onceflow_store::testing::world::poll_once(&mut output).await.is_pending());
            scene.proof.calm().await;
        }
        let before = scene.proof.world.clock();
        scene.door.open.add_permits(1);
        assert_eq!(as_int(&scene.proof.drive(output).await.unwrap()), expected);
        let took = scene.proof.world.clock().ms_since(before);
        assert!(took < 1000, "it took {took} ms until {name} was seen");
    }
    let before = scene.proof.world.clock();
    assert!(scene.proof.drive(seen.wait()).await.unwrap().status == RunStatus::Done);
    assert!(scene.proof.world.clock().ms_since(before) < 1000);
    scene.proof.drive(looker.close()).await.unwrap();
    scene.proof.drive(engine.close()).await.unwrap();
}

#[tokio::test]
async fn a_cancel_ends_the_pause_before_another_attempt_too() {
    let mut kit = Kit::default();
    let mut spec = TaskSpec::new("fails", vec![Port::new("x", Type::Int)], vec![Port::new("out", Type::Int)]);
    spec.retry = Retry { attempts: 5, backoff_ms: 3_600_000, backoff_ms_max: 3_600_000 };
    let spec = kit.add(spec, |_, _| Err(Failure::new("no")));
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    let start = Start::new("r", chain(&spec, 1).flow()).input("x", int(1));
    let handle = proof.drive(engine.start(start)).await.unwrap();
    proof.calm().await;
    let before = proof.world.clock();
    proof.drive(handle.cancel()).await.unwrap();
    assert!(matches!(proof.drive(handle.wait()).await.unwrap(), Summary { status: RunStatus::Cancelled, .. }));
    assert!(proof.world.clock().ms_since(before) < 1000);
    proof.drive(engine.close()).await.unwrap();
    proof.only_what_remains().await;
}

#[tokio::test]
async fn a_started_at_most_once_step_may_finish_though_its_run_is_cancelled() {
    let scene = scene(|spec| spec.effect = Effect::AtMostOnce);
    let engine = scene.proof.engine();
    let handle = scene.begin(&engine).await;
    scene.proof.drive(handle.cancel()).await.unwrap();
    for _ in 0..20 {
        scene.proof.world.advance(500);
        scene.proof.calm().await;
    }
    assert_eq!(scene.door.dropped.load(SeqCst), 0);
    scene.door.open.add_permits(1);
    scene.ends(&engine, &handle, "cancelled").await;
    assert_eq!((scene.door.began.load(SeqCst), scene.door.dropped.load(SeqCst)), (1, 0));
}

#[tokio::test]
async fn an_interrupt_drops_bodies_and_gives_their_steps_back_as_if_never_taken() {
    let scene = scene(|spec| spec.resources = ResourceRequest { cpu_milli: 100, memory_bytes: 0 });
    let engine = scene.proof.engine();
    scene.begin(&engine).await;
    let before = scene.proof.world.clock();
    scene.proof.drive(engine.interrupt()).await.unwrap();
    assert_eq!(scene.door.dropped.load(SeqCst), 1);
    assert!(scene.proof.world.clock().ms_since(before) < 1000);
    // Another worker continues at once, at the first attempt.
    let second = scene.proof.engine();
    let handle = scene.proof.drive(second.find("r")).await.unwrap();
    scene.door.open.add_permits(2);
    scene.ends(&second, &handle, "y=12").await;
    assert!(scene.proof.world.clock().ms_since(before) < 1000);
    assert_eq!(scene.door.began.load(SeqCst), 3);
}

#[tokio::test]
async fn an_interrupt_waits_for_what_must_not_start_twice() {
    let scene = scene(|spec| spec.effect = Effect::AtMostOnce);
    let engine = scene.proof.engine();
    scene.begin(&engine).await;
    let interrupted = engine.interrupt();
    let mut interrupted = std::pin::pin!(interrupted);
    for _ in 0..20 {
        let waits = onceflow_store::testing::world::poll_once(&mut interrupted).await.is_pending();
        assert!(waits, "it did not wait");
        scene.proof.world.advance(500);
        scene.proof.calm().await;
    }
    scene.door.open.add_permits(1);
    scene.proof.drive(interrupted).await.unwrap();
    assert_eq!((scene.door.began.load(SeqCst), scene.door.dropped.load(SeqCst)), (1, 0));
    let second = scene.proof.engine();
    let handle = scene.proof.drive(second.find("r")).await.unwrap();
    scene.door.open.add_permits(1);
    scene.ends(&second, &handle, "y=12").await;
    assert_eq!(scene.door.began.load(SeqCst), 2, "each started once");
}

#[tokio::test]
async fn steps_of_a_worker_that_is_said_to_be_gone_are_free_at_once_and_its_own_again_if_it_lives() {
    let scene = scene(|spec| spec.class = String::from("special"));
    let gone = scene.proof.engine();
    scene.begin(&gone).await;
    let before = scene.proof.world.clock();
    // An engine that knows no class frees the step, and reports it once.
    let looker = scene.looker();
    assert_eq!(looker.release(looker.incarnation()).await.unwrap(), 0);
    assert_eq!(looker.release(gone.incarnation()).await.unwrap(), 1);
    assert_eq!(looker.release(gone.incarnation()).await.unwrap(), 0);
    // The worker is alive after all: it continues with steps that no other worker has claimed.
    assert!(scene.proof.world.clock().ms_since(before) < 1000);
    let handle = scene.proof.drive(gone.find("r")).await.unwrap();
    scene.door.open.add_permits(10);
    scene.ends(&gone, &handle, "y=12").await;
    scene.proof.drive(looker.close()).await.unwrap();
}

/// The batch lets the run go on, with its old plan or a new one.
fn lets_go_on(batch: &Batch) -> bool {
    let is_it = |op: &Op| {
        matches!(op, Op::Put(key, row) if key.name.as_bytes() == b"s"
            && rows::read::<RunState>(row).is_some_and(|state| state.phase == Phase::Running))
    };
    batch.ops.iter().any(is_it)
}

/// Starts the run with another input; the body that is at work ends while the run is frozen for that plan.
async fn ends_while_frozen(scene: &Scene, accept_reruns: bool) -> Result<Handle, Error> {
    let (proof, open) = (scene.proof.clone(), scene.door.open.clone());
    let ends = async move {
        open.add_permits(1);
        proof.calm().await;
    };
    let at = |call: Call<'_>| matches!(call, Call::Sends(batch) if lets_go_on(batch));
    let meanwhile = Meanwhile::new(scene.proof.memory.clone(), at, ends);
    let planner = scene.proof.engine_on(meanwhile.clone(), Options { works: false, ..Options::default() });
    let inputs = vec![(String::from("x"), int(20))];
    let other = Start { accept_reruns, inputs, ..scene.start.clone() };
    let started = scene.proof.drive(planner.start(other)).await;
    assert!(meanwhile.happened());
    scene.proof.drive(planner.close()).await.unwrap();
    started
}

#[tokio::test]
async fn at_most_once_body_that_ends_while_its_run_is_frozen_keeps_its_result() {
    let scene = scene(|spec| spec.effect = Effect::AtMostOnce);
    let engine = scene.proof.engine();
    let handle = scene.begin(&engine).await;
    let refused = ends_while_frozen(&scene, false).await;
    assert!(matches!(refused, Err(Error::Undecided { .. })), "{:?}", refused.err());
    scene.door.open.add_permits(1);
    scene.ends(&engine, &handle, "y=12").await;
    assert_eq!(scene.door.began.load(SeqCst), 2, "each of the two steps started once");
}

#[tokio::test]
async fn at_most_once_body_runs_again_in_a_new_plan_only_with_consent() {
    let scene = scene(|spec| spec.effect = Effect::AtMostOnce);
    let engine = scene.proof.engine();
    scene.begin(&engine).await;
    ends_while_frozen(&scene, true).await.unwrap();
    scene.door.open.add_permits(2);
    let handle = engine.find("r").await.unwrap();
    scene.ends(&engine, &handle, "y=22").await;
    assert_eq!(scene.door.began.load(SeqCst), 3, "once in the old plan, and each of the two steps in the new one");
}

/// The batch writes a ready step that this holds for, as a worker does with a step it has claimed.
fn notes(batch: &Batch, is_it: impl Fn(&ReadyStep) -> bool) -> bool {
    let note = |op: &Op| match op {
        Op::Put(key, row) if key.group.kind() == Kind::Queue => {
            step::ready_step(row).is_some_and(|ready| is_it(&ready))
        }
        _ => false,
    };
    batch.ops.iter().any(note)
}

/// Writes the phase of the only run in the store, as another process does.
async fn turn_to(memory: &Memory, phase: Phase) {
    let rows = memory.state().all();
    let state = |key: &Key, row: &Row| rows::read::<RunState>(row).filter(|_| key.name.as_bytes() == b"s");
    let found = rows.iter().find_map(|(shard, key, row)| Some((*shard, key.clone(), state(key, row)?)));
    let (shard, key, state) = found.expect("a run");
    let mut batch = Batch::new(shard);
    batch.put(key, RunState { phase, ..state }.to_row());
    assert!(memory.commit(batch).await.unwrap().is_applied());
}

/// Freezes the run at the first batch that writes such a ready step; returns how long the run took when it went on.
async fn frozen_when(scene: &Scene, is_it: fn(&ReadyStep) -> bool) -> u64 {
    let memory = scene.proof.memory.clone();
    let freezes = async move { turn_to(&memory, Phase::Frozen).await };
    let at = move |call: Call<'_>| matches!(call, Call::Sends(batch) if notes(batch, is_it));
    let meanwhile = Meanwhile::new(scene.proof.memory.clone(), at, freezes);
    let engine = scene.proof.engine_on(meanwhile.clone(), Options::default());
    let handle = scene.proof.drive(engine.start(scene.start.clone())).await.unwrap();
    scene.door.open.add_permits(10);
    while !meanwhile.happened() {
        scene.proof.calm().await;
        scene.proof.world.advance_to_next();
    }
    scene.proof.world.advance(200);
    scene.proof.calm().await;
    turn_to(&scene.proof.memory, Phase::Running).await;
    let before = scene.proof.world.clock();
    scene.ends(&engine, &handle, "y=12").await;
    scene.proof.world.clock().ms_since(before)
}

#[tokio::test]
async fn a_step_whose_run_is_frozen_before_its_body_starts_begins_when_the_run_goes_on() {
    let scene = scene(|spec| spec.effect = Effect::AtMostOnce);
    let took = frozen_when(&scene, |ready| ready.started.is_some()).await;
    assert!(took < 1000, "it took {took} ms, as if its claim had to expire");
    assert_eq!(scene.door.began.load(SeqCst), 2, "each of the two steps started once");
}

#[tokio::test]
async fn a_failed_attempt_of_a_frozen_run_counts_and_the_next_begins_when_the_run_goes_on() {
    let mut scene = scene(|_| {});
    let mut spec = TaskSpec::new("fails", vec![Port::new("x", Type::Int)], vec![Port::new("out", Type::Int)]);
    spec.retry = Retry { attempts: 2, backoff_ms: 100, backoff_ms_max: 100 };
    let began = scene.door.began.clone();
    let spec = scene.proof.kit.add(spec, move |step, inputs| {
        began.fetch_add(1, SeqCst);
        if step.attempt() == 1 { Err(Failure::new("no")) } else { Ok(vec![int(as_int(&inputs[0]) + 1)]) }
    });
    scene.start = Start::new("r", chain(&spec, 2).flow()).input("x", int(10));
    let took = frozen_when(&scene, |ready| ready.failed > 0).await;
    assert!(took < 2000, "it took {took} ms, as if its claim had to expire");
    assert_eq!(scene.door.began.load(SeqCst), 4, "two attempts at each of two steps");
}
