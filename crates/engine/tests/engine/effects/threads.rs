//! An attempt is over when its body is: a thread that cannot be stopped is waited for, unless it may be abandoned.

use super::support::{Bed, Kit, as_int, graphs::*, int, told};
use onceflow_core::model::{Port, Retry, TaskSpec, Type};
use onceflow_engine::{
    Event, EventKind, Options, RunStatus, Start, Summary,
    task::{Attempt, Body, Data, Step},
};
use onceflow_store::testing::world::poll_once;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::SeqCst},
    mpsc,
};
use tokio::sync::mpsc::UnboundedReceiver;

/// Counters of a body that blocks its thread.
#[derive(Default)]
struct Seen {
    starts: AtomicU64,
    running: AtomicU64,
    at_once_max: AtomicU64,
}

/// Blocks its thread in its first attempts, each until the test releases it.
struct Slow {
    seen: Arc<Seen>,
    gate: Arc<Mutex<mpsc::Receiver<()>>>,
    blocks: u64,
    abandons: bool,
}

impl Body for Slow {
    fn start(&self, _: Step, inputs: Vec<Data>) -> Attempt {
        let (seen, gate, blocks) = (self.seen.clone(), self.gate.clone(), self.blocks);
        let work = Box::new(move || {
            let running = seen.running.fetch_add(1, SeqCst) + 1;
            seen.at_once_max.fetch_max(running, SeqCst);
            if seen.starts.fetch_add(1, SeqCst) < blocks {
                gate.lock().unwrap().recv().unwrap();
            }
            seen.running.fetch_sub(1, SeqCst);
            Ok(vec![int(as_int(&inputs[0]) + 1)])
        });
        if self.abandons { Attempt::Abandonable(work) } else { Attempt::Blocking(work) }
    }
}

struct Trial {
    bed: Bed,
    kit: Kit,
    start: Start,
    seen: Arc<Seen>,
    go: mpsc::Sender<()>,
}

impl Trial {
    fn new(blocks: u64, timeout_ms: Option<u64>, abandons: bool) -> Self {
        let (bed, mut kit, seen) = (Bed::new(), Kit::default(), Arc::<Seen>::default());
        let (go, gate) = mpsc::channel();
        let mut spec = TaskSpec::new("slow", vec![Port::new("x", Type::Int)], vec![Port::new("out", Type::Int)]);
        spec.timeout_ms = timeout_ms;
        spec.retry = Retry { attempts: 3, backoff_ms: 1, backoff_ms_max: 1 };
        let gate = Arc::new(Mutex::new(gate));
        kit.tasks.add(spec.clone(), Arc::new(Slow { seen: seen.clone(), gate, blocks, abandons }));
        let g = G::new().input("x", Type::Int).task("a", &spec).output("p", Type::Int).connect("x -> a.x; a.out -> p");
        let start = Start::new("r", g.flow()).input("x", int(1));
        Trial { bed, kit, start, seen, go }
    }
}

async fn until(events: &mut UnboundedReceiver<Event>, is_it: impl Fn(&EventKind) -> bool) {
    while !is_it(&events.recv().await.expect("it happens").kind) {}
}

#[tokio::test]
async fn a_retry_waits_until_the_thread_of_a_timed_out_attempt_has_returned() {
    let trial = Trial::new(2, Some(20), false);
    let engine = trial.bed.engine(&trial.kit, Options::default());
    let mut events = engine.events();
    let handle = engine.start(trial.start.clone()).await.unwrap();
    for attempt in 1..=2 {
        until(&mut events, |what| matches!(what, EventKind::HeldUp { why, .. } if why.contains("thread"))).await;
        assert_eq!(trial.seen.starts.load(SeqCst), attempt, "the next attempt waits");
        trial.go.send(()).unwrap();
    }
    let Summary { status: RunStatus::Done, outputs, .. } = handle.wait().await.unwrap() else { panic!("it is done") };
    assert_eq!(told(&handle, outputs).await, "p=2");
    assert_eq!((trial.seen.starts.load(SeqCst), trial.seen.at_once_max.load(SeqCst)), (3, 1), "one at a time");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn closing_waits_for_threads_that_cannot_be_stopped() {
    let trial = Trial::new(1, None, false);
    let engine = trial.bed.engine(&trial.kit, Options::default());
    let mut events = engine.events();
    let handle = engine.start(trial.start.clone()).await.unwrap();
    until(&mut events, |what| matches!(what, EventKind::WillRun { .. })).await;
    while trial.seen.running.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let mut closing = engine.interrupt();
    for _ in 0..100 {
        assert!(poll_once(&mut closing).await.is_pending(), "its thread has not returned");
        tokio::task::yield_now().await;
    }
    trial.go.send(()).unwrap();
    closing.await.unwrap();
    assert_eq!(trial.seen.running.load(SeqCst), 0);
    drop(handle);
}

#[tokio::test]
async fn a_task_that_may_be_abandoned_is_tried_again_beside_its_thread() {
    let trial = Trial::new(1, Some(20), true);
    let engine = trial.bed.engine(&trial.kit, Options::default());
    let handle = engine.start(trial.start.clone()).await.unwrap();
    assert!(handle.wait().await.unwrap().status == RunStatus::Done, "the second attempt gives the result");
    assert_eq!((trial.seen.starts.load(SeqCst), trial.seen.running.load(SeqCst)), (2, 1));
    engine.close().await.unwrap();
    trial.go.send(()).unwrap();
}
