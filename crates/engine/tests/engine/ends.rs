//! Ends of runs that do not go well: failures, retries, timeouts, cancels, undoing. Each leaves only the record of that
//! end.

mod not_undone;
use crate::support;

use onceflow_core::model::{Effect, Retry, TaskSpec, Type, graph::ModuleKind};
use onceflow_engine::{
    Engine, Error, Options, RunStatus, Start, Summary,
    task::{Attempt, Body, Data, Failure, Step},
};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};
use support::{Kit, as_int, flows, flows::*, graphs::*, int, ints, proof::Proof};
use tokio::sync::Notify;

/// A body that waits until the gate opens, and counts the waiting attempts.
#[derive(Clone, Default)]
struct Gate {
    open: Arc<AtomicBool>,
    waiting: Arc<AtomicUsize>,
    bell: Arc<Notify>,
}

impl Gate {
    fn open(&self) {
        self.open.store(true, SeqCst);
        self.bell.notify_waiters();
    }

    async fn pass(self) {
        self.waiting.fetch_add(1, SeqCst);
        loop {
            let rings = self.bell.notified();
            if self.open.load(SeqCst) {
                return;
            }
            rings.await;
        }
    }
}

/// Adds one, once the gate is open.
struct Gated(Gate, support::Log);

impl Body for Gated {
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt {
        *self.1.lock().unwrap().entry(step.address()).or_default() += 1;
        let gate = self.0.clone();
        Attempt::Async(Box::pin(async move {
            gate.pass().await;
            Ok(vec![int(as_int(&inputs[0]) + 1)])
        }))
    }
}

fn gated(kit: &mut Kit, gate: &Gate) -> TaskSpec {
    let spec = spec("gated", &[("x", Type::Int)], &[("out", Type::Int)]);
    kit.tasks.add(spec.clone(), Arc::new(Gated(gate.clone(), kit.log.clone())));
    spec
}

/// Lets the engine work until `n` bodies wait at the gate.
async fn until_waiting(proof: &Proof, gate: &Gate, n: usize) {
    while gate.waiting.load(SeqCst) < n {
        tokio::task::yield_now().await;
        proof.calm().await;
    }
}

/// A failed run holds its frontier until it is cancelled; then nothing remains either.
async fn cancel_and_look(proof: &Proof) {
    let engine = proof.engine();
    let handle = engine.find("r").await.unwrap();
    proof.drive(handle.cancel()).await.unwrap();
    let ended = proof.drive(handle.wait()).await.unwrap();
    assert!(ended.status == RunStatus::Cancelled && ended.not_undone.is_empty(), "{ended}");
    proof.drive(engine.close()).await.unwrap();
    proof.only_what_remains().await;
    proof.nothing_remains().await;
}

#[tokio::test]
async fn an_unhandled_failure_fails_the_run_which_can_be_cancelled() {
    let mut kit = Kit::default();
    let (start, expected) = unhandled(&mut kit);
    let proof = Proof::new(&kit);
    assert_eq!(proof.run(start).await, expected);
    assert_eq!(kit.ran(), "/below /which/bad/bad");
    proof.fsck().await;
    cancel_and_look(&proof).await;
}

#[tokio::test]
async fn a_failure_inside_each_loop_and_call_can_be_handled_around_them() {
    for kind in ["each", "loop", "composite"] {
        let mut kit = Kit::default();
        let odd = kit.task("odd", &["x"], |inputs| match as_int(&inputs[0]) {
            n if n % 2 == 1 => Err(Failure::new("odd")),
            n => Ok(vec![int(n)]),
        });
        let g = G::new().output("error", Type::option(Type::Text));
        let body = chain(&odd, 2).graph();
        let (g, expected) = match kind {
            "each" => {
                let g = g.input("x", list()).output("y", Type::option(list())).attempt("m", each(body));
                (g, "error=/m[1]/f0: odd y=none")
            }
            "loop" => {
                let below = below(&mut kit, 100);
                let body = G::new().input("x", Type::Int).output("y", Type::Int).output("go", Type::Bool);
                let inc = inc(&mut kit);
                let body = body.task("odd", &odd).task("inc", &inc).task("below", &below);
                let body =
                    body.connect("x -> odd.x; odd.out -> inc.x; inc.out -> y; inc.out -> below.x; below.out -> go");
                let carried = vec![("y".into(), "x".into())];
                let round = ModuleKind::Loop { body: body.graph(), carried, condition: "go".into() };
                let g = g.input("x", Type::Int).output("y", Type::option(Type::Int)).attempt("m", round);
                (g, "error=/m@1/odd: odd y=none")
            }
            _ => {
                let g = g.input("x", Type::Int).output("y", Type::option(Type::Int));
                (g.attempt("m", ModuleKind::Composite(body)), "error=/m/f0: odd y=none")
            }
        };
        let x = match kind {
            "each" => ints(0..3),
            "loop" => int(4),
            _ => int(1),
        };
        let g = g.connect("x -> m.x; m.y -> y; m.error -> error");
        Proof::new(&kit).prove(flows::start(g).input("x", x), expected).await;
    }
}

#[tokio::test]
async fn a_panic_is_a_failure_of_its_step_only() {
    let mut kit = Kit::default();
    let panics = kit.task("panics", &["x"], |_| panic!("oh no"));
    let proof = Proof::new(&kit);
    let told = proof.run(start(chain(&panics, 2)).input("x", int(1))).await;
    assert_eq!(told, "/f0 failed at attempt 1: it panicked: oh no");
    cancel_and_look(&proof).await;
}

#[tokio::test]
async fn a_body_gives_as_many_outputs_as_its_task_has_or_fails() {
    for (outputs, n) in [(vec![], 0), (vec![int(1), int(2)], 2)] {
        let mut kit = Kit::default();
        let wrong = kit.task("wrong", &["x"], move |_| Ok(outputs.clone()));
        let proof = Proof::new(&kit);
        let told = proof.run(start(chain(&wrong, 1)).input("x", int(1))).await;
        assert_eq!(told, format!("/f0 failed at attempt 1: the body gave {n} outputs, and the task has 1"));
        cancel_and_look(&proof).await;
    }
}

#[tokio::test]
async fn a_body_that_takes_longer_than_it_may_fails() {
    let (mut kit, gate) = (Kit::default(), Gate::default());
    let mut never = gated(&mut kit, &gate);
    never.timeout_ms = Some(5000);
    let proof = Proof::new(&kit);
    let told = proof.run(start(chain(&never, 1)).input("x", int(1))).await;
    assert_eq!(told, "/f0 failed at attempt 1: OF0321: it took longer than its timeout, 5000 ms");
    cancel_and_look(&proof).await;
}

#[tokio::test]
async fn an_attempt_that_fails_is_followed_by_others_as_many_as_the_task_says() {
    for (attempts, expected) in [(3, "/f0 failed at attempt 3: not yet"), (4, "y=4")] {
        let mut kit = Kit::default();
        let mut flaky = spec("flaky", &[("x", Type::Int)], &[("out", Type::Int)]);
        flaky.retry = Retry { attempts, backoff_ms: 1000, backoff_ms_max: 60_000 };
        let flaky = kit.add(flaky, |step, _| match step.attempt() {
            4 => Ok(vec![int(4)]),
            _ => Err(Failure::new("not yet")),
        });
        let proof = Proof::new(&kit);
        assert_eq!(proof.run(start(chain(&flaky, 1)).input("x", int(1))).await, expected);
        assert_eq!(kit.ran(), format!("/f0×{attempts}"));
        match expected {
            "y=4" => proof.only_what_remains().await,
            _ => cancel_and_look(&proof).await,
        }
    }
}

#[tokio::test]
async fn a_cancel_does_not_wait_for_another_attempt() {
    let mut kit = Kit::default();
    let mut flaky = spec("flaky", &[("x", Type::Int)], &[("out", Type::Int)]);
    flaky.retry = Retry { attempts: 9, backoff_ms: 8000, backoff_ms_max: 8000 };
    let flaky = kit.add(flaky, |_, _| Err(Failure::new("not yet")));
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    let handle = engine.start(start(chain(&flaky, 1)).input("x", int(1))).await.unwrap();
    proof.calm().await;
    proof.drive(handle.cancel()).await.unwrap();
    let before = onceflow_store::World::clock(&*proof.world);
    assert_eq!(proof.drive(handle.wait()).await.unwrap().to_string(), "cancelled");
    let took = onceflow_store::World::clock(&*proof.world).ms_since(before);
    assert!(took <= 8000, "it took {took} ms, not a pause but a lease");
    proof.drive(engine.close()).await.unwrap();
    proof.only_what_remains().await;
}

/// Nine steps that wait at a gate and one that fails, each with a step after it.
fn ten(kit: &mut Kit, gate: &Gate) -> G {
    let (fails, inc, gated) = (fails(kit), inc(kit), gated(kit, gate));
    let mut g = G::new().input("x", Type::Int);
    for at in 0..10 {
        let first = if at == 3 { &fails } else { &gated };
        g = g.output(&format!("y{at}"), Type::Int).task(&format!("a{at}"), first).task(&format!("b{at}"), &inc);
        g = g.connect(&format!("x -> a{at}.x; a{at}.out -> b{at}.x; b{at}.out -> y{at}"));
    }
    g
}

#[tokio::test]
async fn no_step_starts_after_a_failure() {
    let (mut kit, gate) = (Kit::default(), Gate::default());
    let g = ten(&mut kit, &gate);
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    let handle = engine.start(start(g).input("x", int(1))).await.unwrap();
    proof.calm().await;
    gate.open();
    let told = proof.drive(handle.wait()).await.unwrap().to_string();
    assert_eq!(told, "/a3 failed at attempt 1: no");
    assert!(!kit.ran().contains("/b"), "{}", kit.ran());
    proof.drive(engine.close()).await.unwrap();
    proof.fsck().await;
    cancel_and_look(&proof).await;
}

#[tokio::test]
async fn steps_independent_of_a_failure_can_be_finished() {
    let (mut kit, gate) = (Kit::default(), Gate::default());
    let g = ten(&mut kit, &gate);
    gate.open();
    let proof = Proof::new(&kit);
    let mut begin = start(g).input("x", int(1));
    begin.finish_independent = true;
    assert_eq!(proof.run(begin).await, "/a3 failed at attempt 1: no");
    let ran: Vec<_> = kit.ran().split(' ').filter(|at| at.starts_with("/b")).map(String::from).collect();
    assert_eq!(ran.join(" "), "/b0 /b1 /b2 /b4 /b5 /b6 /b7 /b8 /b9");
    cancel_and_look(&proof).await;
}

#[tokio::test]
async fn a_failed_run_started_again_runs_what_failed_and_what_follows_only() {
    for finish_independent in [false, true] {
        let mut kit = Kit::default();
        let well = Arc::new(AtomicBool::new(false));
        let healed = well.clone();
        let sick = kit.task("sick", &["x"], move |inputs| match healed.load(SeqCst) {
            true => Ok(vec![int(as_int(&inputs[0]) * 2)]),
            false => Err(Failure::new("sick")),
        });
        let (inc, add) = (inc(&mut kit), add(&mut kit));
        let g = G::new().input("x", Type::Int).output("y", Type::Int).output("z", Type::Int);
        let g = g.task("a", &inc).task("b", &sick).task("c", &inc).task("d", &inc).task("e", &add).task("s", &sick);
        let g = g.connect("x -> a.x; a.out -> b.x; b.out -> c.x; a.out -> d.x; c.out -> e.a; d.out -> e.b; e.out -> y");
        let g = g.connect("x -> s.x; s.out -> z");
        let mut begin = start(g).input("x", int(1));
        begin.finish_independent = finish_independent;
        let proof = Proof::new(&kit);
        let told = proof.run(begin.clone()).await;
        assert!(told.contains("sick"), "{told}");
        let first = kit.ran();
        kit.log.lock().unwrap().clear();
        well.store(true, SeqCst);
        assert_eq!(proof.run(begin).await, "y=8 z=2");
        let second = kit.ran();
        for step in first.split(' ').filter(|step| !["/b", "/s"].contains(step)) {
            assert!(!second.split(' ').any(|ran| ran == step), "{step} ran again: first {first}, then {second}");
        }
        proof.once();
        proof.only_what_remains().await;
        proof.nothing_remains().await;
    }
}

#[tokio::test]
async fn the_same_key_is_the_same_run() {
    let mut kit = Kit::default();
    let (begin, expected) = large(&mut kit);
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    let one = engine.start(begin.clone()).await.unwrap();
    let two = engine.start(begin.clone()).await.unwrap();
    assert_eq!(one.id(), two.id());
    assert_eq!(proof.drive(proof.run_on(&engine, begin.clone())).await, expected);
    assert_eq!(proof.drive(proof.run_on(&engine, begin)).await, expected);
    proof.drive(engine.close()).await.unwrap();
    proof.once();
    proof.only_what_remains().await;
    proof.nothing_remains().await;
}

#[tokio::test]
async fn only_what_is_requested_runs() {
    let mut kit = Kit::default();
    let inc = inc(&mut kit);
    let g = G::new().input("x", Type::Int).output("y", Type::Int).output("z", Type::Int);
    let g = g.task("a", &inc).task("b", &inc).task("c", &inc);
    let g = g.connect("x -> a.x; a.out -> b.x; b.out -> y; a.out -> c.x; c.out -> z");
    let begin = Start::new("r", g.flow().only(&["z".into()]).unwrap()).input("x", int(1));
    let proof = Proof::new(&kit);
    proof.prove(begin, "z=3").await;
    assert_eq!(kit.ran(), "/a /c");
}

#[tokio::test]
async fn an_output_can_be_had_before_the_run_ends() {
    let (mut kit, gate) = (Kit::default(), Gate::default());
    let make = spec("make", &[("x", Type::Int)], &[("out", Type::Bytes)]);
    let make = kit.add(make, |_, _| Ok(vec![bytes(200_000, 1)]));
    let gated = gated(&mut kit, &gate);
    let g = G::new().input("x", Type::Int).output("early", Type::Bytes).output("late", Type::Int);
    let g = g.task("a", &make).task("b", &gated).connect("x -> a.x; a.out -> early; x -> b.x; b.out -> late");
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    let handle = engine.start(start(g).input("x", int(1))).await.unwrap();
    assert_eq!(proof.drive(handle.output("early")).await.unwrap(), bytes(200_000, 1));
    assert_eq!(handle.summary().await.unwrap().status, RunStatus::Running);
    gate.open();
    assert_eq!(as_int(&proof.drive(handle.output("late")).await.unwrap()), 2);
    proof.drive(handle.wait()).await.unwrap();
    proof.drive(engine.close()).await.unwrap();
    proof.once();
    proof.only_what_remains().await;
    proof.nothing_remains().await;
}

/// A flow that makes large values and passes them to steps that wait, alone and in an each.
fn cancelled_in_the_middle(kit: &mut Kit, gate: &Gate) -> Start {
    let gated = gated(kit, gate);
    let make = spec("make", &[("x", Type::Int)], &[("out", Type::Int), ("v", Type::Bytes), ("b", Type::Bytes)]);
    let make = kit.add(make, |_, inputs| Ok(vec![inputs[0].clone(), bytes(2048, 1), bytes(200_000, 2)]));
    let both = spec("both", &[("x", Type::Int), ("v", Type::Bytes)], &[("out", Type::Bytes)]);
    let both = kit.add(both, |_, inputs| Ok(vec![inputs[1].clone()]));
    let body = G::new().input("x", Type::Int).output("w", Type::Bytes).output("b", Type::Bytes);
    let body = body.task("make", &make).task("gated", &gated).task("both", &both);
    let body = body
        .connect("x -> make.x; make.out -> gated.x; gated.out -> both.x; make.v -> both.v; both.out -> w; make.b -> b");
    let g = G::new().input("xs", list()).output("ws", Type::list(Type::Bytes)).output("bs", Type::list(Type::Bytes));
    let g = g.module("each", each(body.graph())).connect("xs -> each.x; each.w -> ws; each.b -> bs");
    start(g).input("xs", ints(0..5))
}

#[tokio::test]
async fn a_cancel_in_the_middle_of_an_each_leaves_nothing() {
    let (mut kit, gate) = (Kit::default(), Gate::default());
    let begin = cancelled_in_the_middle(&mut kit, &gate);
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    let handle = engine.start(begin).await.unwrap();
    until_waiting(&proof, &gate, 5).await;
    proof.drive(handle.cancel()).await.unwrap();
    assert_eq!(handle.summary().await.unwrap().status, RunStatus::Cancelling);
    gate.open();
    assert_eq!(proof.drive(handle.wait()).await.unwrap().to_string(), "cancelled");
    assert!(!kit.ran().contains("/both"), "{}", kit.ran());
    proof.drive(engine.close()).await.unwrap();
    proof.once();
    proof.only_what_remains().await;
    proof.nothing_remains().await;
}

type Undone = Arc<Mutex<Vec<String>>>;

/// True while the second step of a chain cannot be undone.
type Stuck = Arc<AtomicBool>;

/// A chain of steps with compensations, of which the last one waits, or fails; the second cannot be undone.
fn undoable(kit: &mut Kit, undone: &Undone, gate: Option<&Gate>) -> Start {
    undoable_unless(kit, undone, &Arc::new(AtomicBool::new(true)), gate)
}

fn undoable_unless(kit: &mut Kit, undone: &Undone, stuck: &Stuck, gate: Option<&Gate>) -> Start {
    let (told, stuck) = (undone.clone(), stuck.clone());
    let undo = spec("undo", &[("x", Type::Int), ("v", Type::Bytes)], &[]);
    let undo = kit.add(undo, move |step, inputs| {
        told.lock().unwrap().push(format!("{}({})", step.address(), as_int(&inputs[0])));
        let is_stuck = as_int(&inputs[0]) == 2 && stuck.load(SeqCst);
        if is_stuck { Err(Failure::new("too late")) } else { Ok(vec![]) }
    });
    let mut act = spec("act", &[("x", Type::Int), ("v", Type::Bytes)], &[("out", Type::Int), ("w", Type::Bytes)]);
    act.compensation = Some(Box::new(undo.clone()));
    let act = kit.add(act, |_, inputs| Ok(vec![int(as_int(&inputs[0]) + 1), inputs[1].clone()]));
    let last = match gate {
        Some(gate) => gated(kit, gate),
        None => fails(kit),
    };
    let g = G::new().input("x", Type::Int).input("v", Type::Bytes).output("y", Type::Int);
    let g = g.task("a", &act).task("b", &act).task("c", &act).task("last", &last);
    let g = g.connect(
        "x -> a.x; v -> a.v; a.out -> b.x; a.w -> b.v; b.out -> c.x; b.w -> c.v; c.out -> last.x; last.out -> y",
    );
    start(g).input("x", int(1)).input("v", bytes(5000, 1))
}

#[tokio::test]
async fn effects_are_undone_in_reverse_order() {
    for cancels in [false, true] {
        let (mut kit, gate, undone) = (Kit::default(), Gate::default(), Undone::default());
        let begin = undoable(&mut kit, &undone, cancels.then_some(&gate));
        let proof = Proof::new(&kit);
        let engine = proof.engine();
        let handle = engine.start(begin).await.unwrap();
        if cancels {
            until_waiting(&proof, &gate, 1).await;
            proof.drive(handle.cancel()).await.unwrap();
            assert!(undone.lock().unwrap().is_empty(), "undone while a step is in flight");
            gate.open();
        }
        let report = proof.drive(handle.wait()).await.unwrap();
        let (failures, not_undone) = match report {
            Summary { status: RunStatus::Undone | RunStatus::NotUndone, failures, not_undone, .. } => {
                (failures.len(), not_undone)
            }
            Summary { status: RunStatus::Cancelled, not_undone, .. } => (0, not_undone),
            other => panic!("{other}"),
        };
        assert_eq!(failures, usize::from(!cancels));
        assert_eq!(not_undone.len(), 1, "{not_undone:?}");
        assert_eq!(&*not_undone[0].address, "/b");
        let undone = undone.lock().unwrap().join(" ");
        let order = ["(3)", "(2)", "(2)", "(2)", "(2)", "(2)", "(1)"];
        assert!(undone.split(' ').map(|one| &one[one.len() - 3..]).eq(order), "{undone}");
        assert_eq!(proof.drive(handle.abandon()).await.unwrap(), 1);
        let report = proof.drive(handle.wait()).await.unwrap();
        assert!(report.to_string().contains("not undone: /b failed"), "{report}");
        proof.drive(engine.close()).await.unwrap();
        proof.only_what_remains().await;
        proof.nothing_remains().await;
    }
}

#[tokio::test]
async fn a_run_that_was_undone_or_cancelled_can_be_started_anew() {
    let (mut kit, undone, stuck) = (Kit::default(), Undone::default(), Stuck::default());
    let begin = undoable_unless(&mut kit, &undone, &stuck, None);
    let proof = Proof::new(&kit);
    assert!(proof.run(begin.clone()).await.starts_with("failed and undone"));
    assert!(proof.run(begin).await.starts_with("failed and undone"));
    assert_eq!(undone.lock().unwrap().len(), 6);
    proof.only_what_remains().await;
    proof.nothing_remains().await;
}

#[tokio::test]
async fn an_at_most_once_step_runs_once() {
    let mut kit = Kit::default();
    let once = effect(spec("once", &[("x", Type::Int)], &[("out", Type::Int)]), Effect::AtMostOnce);
    let once = kit.add(once, |_, inputs| Ok(vec![inputs[0].clone()]));
    Proof::new(&kit).prove(start(chain(&once, 3)).input("x", int(1)), "y=1").await;
}

#[tokio::test]
async fn a_closed_engine_leaves_its_run_to_the_next() {
    let (mut kit, gate) = (Kit::default(), Gate::default());
    let begin = cancelled_in_the_middle(&mut kit, &gate);
    let proof = Proof::new(&kit);
    let engine = proof.engine_on(proof.memory.clone(), Options { steps_max: 2, ..Options::default() });
    engine.start(begin.clone()).await.unwrap();
    until_waiting(&proof, &gate, 1).await;
    gate.open();
    proof.drive(Engine::close(&engine)).await.unwrap();
    let told = proof.run(begin).await;
    assert!(told.starts_with("ws=[2048 bytes"), "{told}");
    proof.once();
    proof.only_what_remains().await;
    proof.nothing_remains().await;
}
