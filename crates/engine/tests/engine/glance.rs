//! Summaries of runs; events in order; plans refused because they would repeat steps; and errors of a damaged store.

use crate::support;

use onceflow_core::model::{Effect, Port, TaskSpec, Type};
use onceflow_engine::{Engine, Error, Options, RunStatus, Start, Summary, is_damage, task::Failure};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use support::{Kit, as_int, flows, flows::*, graphs::*, int, ints, proof::Proof};

const DAY: u64 = 24 * 60 * 60 * 1000;

fn looker(proof: &Proof) -> Engine {
    proof.engine_on(proof.memory.clone(), Options { works: false, ..Options::default() })
}

#[tokio::test]
async fn runs_are_listed_by_key_page_by_page_by_an_engine_without_workers() {
    let mut kit = Kit::default();
    let fails = kit.task("fails", &["x"], |inputs| match as_int(&inputs[0]) {
        0 => Err(Failure::new("zero")),
        n => Ok(vec![int(n)]),
    });
    let library = chain(&fails, 1).flow();
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    for (key, x) in [("c", 1), ("a", 1), ("d", 0), ("b", 1)] {
        let mut start = Start::new(key, library.clone()).input("x", int(x));
        start.keep_ms = (key == "a").then_some(DAY);
        let told = proof.drive(proof.run_on(&engine, start)).await;
        assert_eq!(told.starts_with("y=1"), x == 1, "{told}");
    }
    proof.drive(engine.close()).await.unwrap();
    let looker = looker(&proof);
    let (mut after, mut found) = (None::<String>, Vec::new());
    loop {
        let page = looker.runs(after.as_deref(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.key.clone());
        found.extend(page);
    }
    let told: Vec<_> = found.iter().map(|run| format!("{} {} {}", run.key, run.status, run.failures.len())).collect();
    assert_eq!(told, ["a done 0", "b done 0", "c done 0", "d failed 1"]);
    assert!(found[0].keep_ms == Some(DAY) && found[1].keep_ms.is_none() && found[0].flow == "main");
    assert!(found[0].ended.is_some_and(|ended| ended >= found[0].started) && found[3].ended.is_none());
    assert_eq!(&*found[3].failures[0].address, "/f0");
    let handle = looker.find("d").await.unwrap();
    assert_eq!(handle.summary().await.unwrap(), found[3]);
    assert!(found[3].status == RunStatus::Failed && found[3].status.is_at_rest() && found[3].live == 0);
    proof.drive(handle.cancel()).await.unwrap();
    let status = handle.summary().await.unwrap().status;
    assert_eq!(status, RunStatus::UndoInterrupted, "no worker serves it");
    proof.drive(looker.close()).await.unwrap();
}

#[tokio::test]
async fn a_run_is_known_to_be_for_the_same_flow_inputs_and_outputs() {
    let mut kit = Kit::default();
    let (one, other) = (
        kit.task("one", &["x"], |inputs| Ok(vec![inputs[0].clone()])),
        kit.task("other", &["x"], |inputs| Ok(vec![inputs[0].clone()])),
    );
    let flows = [chain(&one, 3).flow(), chain(&other, 3).flow()];
    let start = |flow: usize, x: i64| Start::new("r", flows[flow].clone()).input("x", int(x));
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    assert_eq!(engine.is_same(&start(0, 1)).await.unwrap(), None);
    assert_eq!(proof.drive(proof.run_on(&engine, start(0, 1))).await, "y=1");
    for (flow, x, is_same) in [(0, 1, true), (0, 2, false), (1, 1, false)] {
        let start = start(flow, x);
        assert_eq!(engine.is_same(&start).await.unwrap(), Some(is_same), "flow {flow}, x = {x}");
        let some = Start { flow: start.flow.only(&[String::from("y")]).unwrap(), ..start };
        assert_eq!(engine.is_same(&some).await.unwrap(), Some(false), "other outputs are asked for");
    }
    proof.drive(engine.close()).await.unwrap();
}

#[tokio::test]
async fn an_outline_names_every_step_as_it_was_written() {
    let mut kit = Kit::default();
    let fails = kit.task("fails", &["x"], |_| Err(Failure::new("no")));
    let body = G::new().input("x", Type::Int).output("y", Type::Int).task("one", &fails);
    let body = body.connect("x -> one.x; one.out -> y").graph();
    let g = G::new().input("xs", flows::list()).output("ys", flows::list()).module("each", each(body));
    let proof = Proof::new(&kit);
    let start = start(g.connect("xs -> each.x; each.y -> ys")).input("xs", ints(0..3));
    let key = start.key.clone();
    proof.run(start).await;
    let looker = looker(&proof);
    let lines = looker.find(&key).await.unwrap().steps().outline().await.unwrap().expect("it is not finished");
    let told: Vec<_> = lines.iter().map(|line| format!("{} {} {}", line.depth, line.address, line.kind)).collect();
    assert_eq!(told, ["0 /each each", "1 /each[*]/one task"]);
    assert_eq!(lines[1].task.as_deref(), Some("fails"));
    proof.drive(looker.close()).await.unwrap();
}

#[tokio::test]
async fn events_tell_a_run_from_start_to_end_with_its_totals() {
    let mut kit = Kit::default();
    let (begin, expected) = each_of(&mut kit, 3);
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    let mut events = engine.events();
    assert_eq!(proof.drive(proof.run_on(&engine, begin)).await, expected);
    proof.drive(engine.close()).await.unwrap();
    proof.calm().await;
    let mut told = Vec::new();
    while let Ok(event) = events.try_recv() {
        told.push(event.kind.to_string());
    }
    assert_eq!(
        (told.first().map(String::as_str), told.last().map(String::as_str)),
        (Some("did start"), Some("did end: done"))
    );
    assert!(told.iter().any(|what| what.ends_with(": 3 elements")), "{told:?}");
    let at = |what: &str| told.iter().position(|told| told == what);
    for (at_run, what) in told.iter().enumerate().filter(|(_, what)| what.starts_with("did commit")) {
        let will = at(&what.replace("did commit", "will run")).unwrap_or_else(|| panic!("{what}: {told:?}"));
        assert!(will < at_run, "{told:?}");
    }
}

/// `x -> a -> pay -> b`, with `pay` of this effect; `b` fails while told so.
struct Paying {
    proof: Proof,
    a: TaskSpec,
    pay: TaskSpec,
    b: TaskSpec,
    broken: Arc<AtomicBool>,
}

impl Paying {
    fn new(effect: Effect) -> Self {
        let mut kit = Kit::default();
        let broken = Arc::new(AtomicBool::new(false));
        let a = kit.task("a", &["x"], |inputs| Ok(vec![inputs[0].clone()]));
        let pay = TaskSpec::new("pay", vec![Port::new("x", Type::Int)], vec![Port::new("out", Type::Int)]);
        let pay = kit.add(support::with(pay, effect), |_, inputs| Ok(vec![inputs[0].clone()]));
        let is_broken = broken.clone();
        let b = kit.task("b", &["x"], move |inputs| match is_broken.load(SeqCst) {
            true => Err(Failure::new("broken")),
            false => Ok(vec![inputs[0].clone()]),
        });
        Paying { proof: Proof::new(&kit), a, pay, b, broken }
    }

    fn start(&self, x: i64, version_of_b: &str) -> Start {
        let b = TaskSpec { version: version_of_b.into(), ..self.b.clone() };
        let g = G::new().input("x", Type::Int).output("y", Type::Int);
        let g = g.task("a", &self.a).task("pay", &self.pay).task("b", &b);
        Start::new("r", g.connect("x -> a.x; a.out -> pay.x; pay.out -> b.x; b.out -> y").flow()).input("x", int(x))
    }

    fn also(&self, engine: &Engine) {
        let mut kit = Kit::default();
        kit.add(TaskSpec { version: "2".into(), ..self.b.clone() }, |_, inputs| Ok(vec![inputs[0].clone()]));
        engine.add_tasks(&kit.tasks).unwrap();
    }
}

#[tokio::test]
async fn a_new_plan_that_would_do_again_what_was_done_is_refused_unless_accepted() {
    for (effect, asks) in
        [(Effect::AtMostOnce, true), (Effect::Transactional, true), (Effect::Idempotent, false), (Effect::Pure, false)]
    {
        for is_finished in [true, false] {
            let scene = Paying::new(effect);
            scene.broken.store(!is_finished, SeqCst);
            let engine = scene.proof.engine();
            let told = scene.proof.drive(scene.proof.run_on(&engine, scene.start(1, "1"))).await;
            assert_eq!(told == "y=1", is_finished, "{told}");
            scene.broken.store(false, SeqCst);
            let again = scene.proof.drive(engine.start(scene.start(2, "1"))).await;
            match again.map(drop) {
                Err(Error::WouldRerun { steps, .. }) if asks => assert_eq!(steps, ["/pay"]),
                Ok(()) if !asks => {}
                other => panic!("{effect:?} {is_finished}: {other:?}"),
            }
            // The refused start has changed nothing.
            let same = scene.proof.drive(scene.proof.run_on(&engine, scene.start(if asks { 1 } else { 2 }, "1"))).await;
            assert_eq!(same, if asks { "y=1" } else { "y=2" });
            let accepted = Start { accept_reruns: true, ..scene.start(3, "1") };
            assert_eq!(scene.proof.drive(scene.proof.run_on(&engine, accepted)).await, "y=3");
            scene.proof.drive(engine.close()).await.unwrap();
            scene.proof.only_what_remains().await;
            scene.proof.nothing_remains().await;
        }
    }
}

#[tokio::test]
async fn an_at_most_once_start_is_remembered_by_engines_without_the_task() {
    for effect in [Effect::AtMostOnce, Effect::Transactional] {
        // The generation in between requests less: it ends, or gets a new plan while it is active.
        for ends in [true, false] {
            let mut kit = Kit::default();
            let broken = Arc::new(AtomicBool::new(false));
            let pay = TaskSpec::new("pay", vec![Port::new("x", Type::Int)], vec![Port::new("out", Type::Int)]);
            let pay = kit.add(support::with(pay, effect), |_, inputs| Ok(vec![inputs[0].clone()]));
            let is_broken = broken.clone();
            let look = kit.task("look", &["x"], move |inputs| match is_broken.load(SeqCst) {
                true => Err(Failure::new("broken")),
                false => Ok(vec![inputs[0].clone()]),
            });
            let proof = Proof::new(&kit);
            let asked = |x: i64, outputs: &[&str]| {
                let g = G::new().input("x", Type::Int).output("paid", Type::Int).output("seen", Type::Int);
                let g = g.task("pay", &pay).task("look", &look);
                let g = g.connect("x -> pay.x; x -> look.x; pay.out -> paid; look.out -> seen");
                let outputs: Vec<_> = outputs.iter().map(|output| output.to_string()).collect();
                Start::new("r", g.flow().only(&outputs).unwrap()).input("x", int(x))
            };
            let engine = proof.engine();
            assert_eq!(proof.drive(proof.run_on(&engine, asked(1, &["paid"]))).await, "paid=1");
            broken.store(!ends, SeqCst);
            let between = proof.drive(proof.run_on(&engine, asked(1, &["seen"]))).await;
            assert_eq!(between == "seen=1", ends, "{between}");
            broken.store(false, SeqCst);
            match proof.drive(engine.start(asked(1, &["paid", "seen"]))).await.map(drop) {
                Err(Error::WouldRerun { steps, .. }) => assert_eq!(steps, ["/pay"]),
                other => panic!("{effect:?} {ends}: {other:?}"),
            }
            let accepted = Start { accept_reruns: true, ..asked(1, &["paid", "seen"]) };
            assert_eq!(proof.drive(proof.run_on(&engine, accepted)).await, "paid=1 seen=1");
            proof.drive(engine.close()).await.unwrap();
            proof.only_what_remains().await;
            proof.nothing_remains().await;
        }
    }
}

#[tokio::test]
async fn a_new_plan_that_leaves_what_was_done_alone_needs_no_consent() {
    // `b` failed after `pay` was done: the output of `pay` is held, and a changed `b` does not affect it.
    let scene = Paying::new(Effect::AtMostOnce);
    scene.broken.store(true, SeqCst);
    let engine = scene.proof.engine();
    let told = scene.proof.drive(scene.proof.run_on(&engine, scene.start(1, "1"))).await;
    assert!(told.contains("broken"), "{told}");
    scene.also(&engine);
    assert_eq!(scene.proof.drive(scene.proof.run_on(&engine, scene.start(1, "2"))).await, "y=1");
    assert_eq!(scene.proof.kit.ran(), "/a /b /pay");
    scene.proof.drive(engine.close()).await.unwrap();
    // The same with a finished run that has kept its values.
    let scene = Paying::new(Effect::AtMostOnce);
    let engine = scene.proof.engine();
    let keeping = |start: Start| Start { keep_ms: Some(DAY), ..start };
    assert_eq!(scene.proof.drive(scene.proof.run_on(&engine, keeping(scene.start(1, "1")))).await, "y=1");
    scene.also(&engine);
    assert_eq!(scene.proof.drive(scene.proof.run_on(&engine, keeping(scene.start(1, "2")))).await, "y=1");
    assert_eq!(scene.proof.kit.ran(), "/a /b /pay");
    scene.proof.drive(engine.close()).await.unwrap();
}

#[tokio::test]
async fn a_value_that_is_lost_fails_the_run_and_says_so() {
    let mut kit = Kit::default();
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = broken.clone();
    let make = spec("make", &[("x", Type::Int)], &[("out", Type::Bytes)]);
    let make = kit.add(make, |_, _| Ok(vec![bytes(5000, 1)]));
    let take = spec("take", &[("v", Type::Bytes)], &[("out", Type::Int)]);
    let take = kit.add(take, move |_, _| match is_broken.load(SeqCst) {
        true => Err(Failure::new("not yet")),
        false => Ok(vec![int(1)]),
    });
    let g = G::new().input("x", Type::Int).output("y", Type::Int).task("a", &make).task("b", &take);
    let begin = start(g.connect("x -> a.x; a.out -> b.v; b.out -> y")).input("x", int(1));
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    let told = proof.drive(proof.run_on(&engine, begin.clone())).await;
    assert!(told.contains("not yet"), "{told}");
    broken.store(false, SeqCst);
    // The output of `a` is deleted behind the store's back.
    let is_it = |(_, key, row): &(_, onceflow_core::Key, onceflow_core::Row)| {
        key.group.id() == b"values" && row.windows(4000).any(|part| part.iter().all(|byte| *byte == 1))
    };
    let (_, key, _) = proof.memory.state().all().into_iter().find(is_it).expect("it is held");
    let mut batch = onceflow_core::Batch::new(onceflow_core::Shard::default());
    batch.require_present(key.clone()).delete(key);
    assert!(onceflow_store::Records::commit(&*proof.memory, batch).await.unwrap().is_applied());
    let handle = proof.drive(engine.start(begin)).await.unwrap();
    let Summary { status: RunStatus::Failed, failures, .. } = proof.drive(handle.wait()).await.unwrap() else {
        panic!("it did not fail")
    };
    assert!(failures.len() == 1 && is_damage(&failures[0]), "{failures:?}");
    assert_eq!(&*failures[0].address, "/b");
    assert!(failures[0].causes[0].starts_with("the store is damaged: value "), "{failures:?}");
    proof.drive(engine.close()).await.unwrap();
}
