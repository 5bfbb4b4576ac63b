//! A body that blocks its thread holds up no step but its own, as long as a thread is free.

#![expect(clippy::disallowed_methods, reason = "threads that bodies block are real, and so is the clock that gives up")]

use crate::support;

use onceflow_core::model::{Effect, TaskSpec, Type};
use onceflow_engine::{
    Engine, Handle, Options, RunStatus, Start,
    task::{Attempt, Body, Data, Step},
};
use onceflow_store::{Store, world::RealWorld};
use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use support::{Bed, Kit, flows::*, int, with};

/// Far more than the steps of a test take: a step that is held up for so long waits for a blocked thread.
const PATIENCE: Duration = Duration::from_secs(60);

/// Blocks the threads of bodies until it is opened.
#[derive(Default)]
struct Gate {
    blocked: AtomicUsize,
    is_open: Mutex<bool>,
    opens: Condvar,
}

impl Gate {
    fn block(&self) {
        self.blocked.fetch_add(1, SeqCst);
        let is_open = self.is_open.lock().unwrap();
        let (_open, waited) = self.opens.wait_timeout_while(is_open, 2 * PATIENCE, |is_open| !*is_open).unwrap();
        assert!(!waited.timed_out(), "no test opens the gate");
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opens.notify_all();
    }
}

/// Blocks its thread in its first call, or when it is first polled.
struct Blocks {
    gate: Arc<Gate>,
    at_once: bool,
}

impl Body for Blocks {
    fn start(&self, _: Step, inputs: Vec<Data>) -> Attempt {
        let gate = self.gate.clone();
        let block = move || {
            gate.block();
            Ok(inputs)
        };
        if self.at_once { Attempt::Done(block()) } else { Attempt::Async(Box::pin(async move { block() })) }
    }
}

/// Answers when the runtime has polled it a second time.
struct Later;

impl Body for Later {
    fn start(&self, _: Step, inputs: Vec<Data>) -> Attempt {
        Attempt::Async(Box::pin(async move {
            tokio::task::yield_now().await;
            Ok(inputs)
        }))
    }
}

/// A chain of steps that end at once, and steps that wait for a moment.
fn chain_of_both(key: String, (at_once, later): (&TaskSpec, &TaskSpec)) -> Start {
    const STEPS: usize = 30;
    let mut g = io();
    let mut from = String::from("x");
    for at in 0..STEPS {
        let name = format!("s{at}");
        // Runs of one kind, so that some steps follow another of the same kind, and some do not.
        let spec = if at % 5 < 3 { at_once } else { later };
        g = g.task(&name, spec).connect(&format!("{from} -> {name}.x"));
        from = format!("{name}.out");
    }
    Start::new(key, g.connect(&format!("{from} -> y")).flow()).input("x", int(1))
}

async fn begin(engine: &Engine, starts: impl IntoIterator<Item = Start>) -> Vec<Handle> {
    let mut handles = Vec::new();
    for start in starts {
        handles.push(engine.start(start).await.unwrap());
    }
    handles
}

async fn end(handles: Vec<Handle>) {
    for handle in handles {
        let summary = tokio::time::timeout(PATIENCE, handle.wait()).await.expect("a step waits for a blocked thread");
        assert_eq!(summary.unwrap().status, RunStatus::Done);
    }
}

/// Some of the runtime's threads are blocked while others' steps are under way, and while they begin.
async fn with_blocked(threads: usize, bodies_block_at_once: bool) {
    const RUNS: usize = 20;
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).await.unwrap();
    let (mut kit, gate) = (Kit::default(), Arc::<Gate>::default());
    let named = |name: &str| with(spec(name, &[("x", Type::Int)], &[("out", Type::Int)]), Effect::Idempotent);
    let (at_once, later, blocks) = (named("at_once"), named("later"), named("blocks"));
    kit.add(at_once.clone(), |_, inputs| Ok(inputs.to_vec()));
    kit.tasks.add(later.clone(), Arc::new(Later));
    kit.tasks.add(blocks.clone(), Arc::new(Blocks { gate: gate.clone(), at_once: bodies_block_at_once }));
    let engine = Bed::on(store.records(), RealWorld::here()).engine(&kit, Options::default());
    let chains = |when: &str| -> Vec<Start> {
        (0..RUNS).map(|n| chain_of_both(format!("{when} {n}"), (&at_once, &later))).collect()
    };
    let mut others = begin(&engine, chains("before")).await;
    let blocking = (0..threads).map(|n| {
        let g = io().task("blocks", &blocks).connect("x -> blocks.x; blocks.out -> y");
        Start::new(format!("blocks {n}"), g.flow()).input("x", int(1))
    });
    let blocked = begin(&engine, blocking).await;
    others.extend(begin(&engine, chains("after")).await);
    end(others).await;
    let is_blocked = async {
        while gate.blocked.load(SeqCst) < threads {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, is_blocked).await.expect("all of them block a thread");
    end(begin(&engine, chains("late")).await).await;
    gate.open();
    end(blocked).await;
    engine.close().await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn steps_go_on_while_bodies_block_all_threads_but_one() {
    for threads in [1, 3] {
        with_blocked(threads, true).await;
        with_blocked(threads, false).await;
    }
}
