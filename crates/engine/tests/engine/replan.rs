//! A changed input, flow or request reruns the steps that depend on the change, and no others; a run that continues
//! unchanged reruns nothing.

use crate::support;

use onceflow_core::model::{CheckedFlow, TaskSpec, Type};
use onceflow_engine::{Engine, Options, Start, task::Failure};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use support::{Bed, Kit, as_int, graphs::*, int, ints, run, show};

const DAY: u64 = 24 * 60 * 60 * 1000;

fn sum(kit: &mut Kit, name: &str) -> TaskSpec {
    kit.task(name, &["x", "y"], |inputs| Ok(vec![int(as_int(&inputs[0]) + as_int(&inputs[1]))]))
}

fn inc(kit: &mut Kit, name: &str) -> TaskSpec {
    kit.task(name, &["x"], |inputs| Ok(vec![int(as_int(&inputs[0]) + 1)]))
}

fn parity(kit: &mut Kit) -> TaskSpec {
    kit.task("parity", &["x"], |inputs| Ok(vec![int(as_int(&inputs[0]) % 2)]))
}

/// `x -> a -> b -> d; y -> c -> d`
fn two_arms(kit: &mut Kit) -> CheckedFlow {
    let (a, b, c, d) = (inc(kit, "a"), inc(kit, "b"), inc(kit, "c"), sum(kit, "d"));
    let g = G::new().input("x", Type::Int).input("y", Type::Int).output("p", Type::Int);
    let g = g.task("a", &a).task("b", &b).task("c", &c).task("d", &d);
    g.connect("x -> a.x; a.out -> b.x; y -> c.x; b.out -> d.x; c.out -> d.y; d.out -> p").flow()
}

fn start(flow: &CheckedFlow, x: i64, y: i64, keep: bool) -> Start {
    let mut start = Start::new("r", flow.clone()).input("x", int(x)).input("y", int(y));
    start.keep_ms = keep.then_some(DAY);
    start
}

async fn explained(engine: &Engine, start: Start) -> String {
    let preview = engine.preview(start).await.unwrap_or_else(|error| panic!("{error}"));
    let explanation = preview.explanation;
    let line = |line: &onceflow_core::plan::explain::ExplanationLine| format!("{} {:?}", line.address, line.fate);
    explanation.lines.iter().map(line).collect::<Vec<_>>().join(", ")
}

#[tokio::test]
async fn a_finished_run_started_again_runs_nothing() {
    for keep in [false, true] {
        let (bed, mut kit) = (Bed::new(), Kit::default());
        let flow = two_arms(&mut kit);
        assert_eq!(bed.run(&kit, start(&flow, 1, 10, keep)).await, "p=14");
        assert_eq!(kit.ran(), "/a /b /c /d");
        assert_eq!(bed.run(&kit, start(&flow, 1, 10, keep)).await, "p=14");
        assert_eq!(kit.ran(), "/a /b /c /d");
    }
}

#[tokio::test]
async fn a_changed_input_reruns_what_depends_on_it_as_explained() {
    let (bed, mut kit) = (Bed::new(), Kit::default());
    let flow = two_arms(&mut kit);
    bed.run(&kit, start(&flow, 1, 10, true)).await;
    let engine = bed.engine(&kit, Options::default());
    assert_eq!(explained(&engine, start(&flow, 1, 20, true)).await, "/a Skipped, /b Reused, /c Run, /d Run");
    engine.close().await.unwrap();
    assert_eq!(bed.run(&kit, start(&flow, 1, 20, true)).await, "p=24");
    assert_eq!(kit.ran(), "/a /b /c×2 /d×2");
    // And back: every value is known.
    assert_eq!(bed.run(&kit, start(&flow, 1, 10, true)).await, "p=14");
    assert_eq!(kit.ran(), "/a /b /c×2 /d×2");
}

#[tokio::test]
async fn a_rerun_that_gives_the_same_stops_the_wave() {
    let (bed, mut kit) = (Bed::new(), Kit::default());
    let (parity, inc) = (parity(&mut kit), inc(&mut kit, "inc"));
    let g = G::new().input("x", Type::Int).output("p", Type::Int).task("a", &parity).task("b", &inc);
    let flow = g.connect("x -> a.x; a.out -> b.x; b.out -> p").flow();
    let start = |x| {
        let mut start = Start::new("r", flow.clone()).input("x", int(x));
        start.keep_ms = Some(DAY);
        start
    };
    assert_eq!(bed.run(&kit, start(3)).await, "p=2");
    assert_eq!(bed.run(&kit, start(5)).await, "p=2");
    assert_eq!(kit.ran(), "/a×2 /b");
}

#[tokio::test]
async fn changed_code_reruns_it_and_what_depends_on_it() {
    let (bed, mut kit) = (Bed::new(), Kit::default());
    let flow = two_arms(&mut kit);
    bed.run(&kit, start(&flow, 1, 10, true)).await;
    let mut changed = TaskSpec::new("b", inc(&mut Kit::default(), "b").inputs, inc(&mut Kit::default(), "b").outputs);
    changed.version = String::from("2");
    let changed = kit.add(changed, |_, inputs| Ok(vec![int(as_int(&inputs[0]) + 100)]));
    let mut library = onceflow_core::model::Library::clone(flow.library());
    for module in &mut library.flows.get_mut("main").unwrap().modules {
        if module.name == "b" {
            module.kind = onceflow_core::model::graph::ModuleKind::Task(changed.clone().into());
        }
    }
    assert_eq!(bed.run(&kit, start(&checked(library), 1, 10, true)).await, "p=113");
    assert_eq!(kit.ran(), "/a /b×2 /c /d×2");
}

#[tokio::test]
async fn a_changed_element_reruns_only_its_own_steps() {
    let (bed, mut kit) = (Bed::new(), Kit::default());
    let inc = inc(&mut kit, "inc");
    let g = G::new().input("xs", Type::list(Type::Int)).output("ys", Type::list(Type::Int));
    let flow = g.module("each", each(chain(&inc, 2).graph())).connect("xs -> each.x; each.y -> ys").flow();
    let start = |xs: Vec<i64>| {
        let mut start = Start::new("r", flow.clone()).input("xs", ints(xs));
        start.keep_ms = Some(DAY);
        start
    };
    assert_eq!(bed.run(&kit, start((0..10).collect())).await, "ys=[2 3 4 5 6 7 8 9 10 11]");
    assert_eq!(kit.log.lock().unwrap().values().sum::<usize>(), 20);
    let mut xs: Vec<i64> = (0..10).collect();
    xs[3] = 50;
    assert_eq!(bed.run(&kit, start(xs)).await, "ys=[2 3 4 52 6 7 8 9 10 11]");
    assert_eq!(kit.log.lock().unwrap().values().sum::<usize>(), 22);
    assert_eq!(kit.log.lock().unwrap()["/each[3]/f0"], 2);
}

#[tokio::test]
async fn a_wider_request_runs_only_what_is_missing() {
    let (bed, mut kit) = (Bed::new(), Kit::default());
    let (a, b) = (inc(&mut kit, "a"), inc(&mut kit, "b"));
    let g = G::new().input("x", Type::Int).output("p", Type::Int).output("q", Type::Int).task("a", &a).task("b", &b);
    let flow = g.connect("x -> a.x; x -> b.x; a.out -> p; b.out -> q").flow();
    let start = |outputs: Option<Vec<String>>| {
        let flow = outputs.map_or_else(|| flow.clone(), |outputs| flow.only(&outputs).unwrap());
        Start { keep_ms: Some(DAY), ..Start::new("r", flow).input("x", int(1)) }
    };
    assert_eq!(bed.run(&kit, start(Some(vec![String::from("p")]))).await, "p=2");
    assert_eq!(kit.ran(), "/a");
    assert_eq!(bed.run(&kit, start(None)).await, "p=2 q=2");
    assert_eq!(kit.ran(), "/a /b");
}

/// A run without `keep` fails at `d`; then something changes.
#[tokio::test]
async fn a_failed_run_with_a_changed_input_reuses_what_it_still_holds() {
    let (bed, mut kit) = (Bed::new(), Kit::default());
    let broken = Arc::new(AtomicBool::new(true));
    let (a, b, c) = (inc(&mut kit, "a"), inc(&mut kit, "b"), inc(&mut kit, "c"));
    let is_broken = broken.clone();
    let d = kit.task("d", &["x", "y"], move |inputs| match is_broken.load(SeqCst) {
        true => Err(Failure::new("broken").finally()),
        false => Ok(vec![int(as_int(&inputs[0]) + as_int(&inputs[1]))]),
    });
    let g = G::new().input("x", Type::Int).input("y", Type::Int).output("p", Type::Int);
    let g = g.task("a", &a).task("b", &b).task("c", &c).task("d", &d);
    let flow = g.connect("x -> a.x; a.out -> b.x; y -> c.x; b.out -> d.x; c.out -> d.y; d.out -> p").flow();
    let engine = bed.engine(&kit, Options { fuse: false, ..Options::default() });
    assert_eq!(run(&engine, start(&flow, 1, 10, false)).await, "/d failed at attempt 1: broken");
    assert_eq!(kit.ran(), "/a /b /c /d");

    // Unchanged: only the failed step is retried.
    assert_eq!(run(&engine, start(&flow, 1, 10, false)).await, "/d failed at attempt 1: broken");
    assert_eq!(kit.ran(), "/a /b /c /d×2");

    broken.store(false, SeqCst);
    assert_eq!(explained(&engine, start(&flow, 1, 20, false)).await, "/a Skipped, /b Reused, /c Run, /d Run");
    assert_eq!(run(&engine, start(&flow, 1, 20, false)).await, "p=24");
    assert_eq!(kit.ran(), "/a /b /c×2 /d×3");
    engine.close().await.unwrap();
    let _ = show;
}

#[tokio::test]
async fn steps_inside_an_each_are_explained_before_they_run() {
    let (bed, mut kit) = (Bed::new(), Kit::default());
    let (inc, add) = (inc(&mut kit, "inc"), parity(&mut kit));
    let body = G::new().input("x", Type::Int).output("y", Type::Int).task("a", &add).task("b", &inc);
    let body = body.connect("x -> a.x; a.out -> b.x; b.out -> y").graph();
    let g = G::new().input("xs", Type::list(Type::Int)).output("ys", Type::list(Type::Int));
    let flow = g.module("each", each(body)).connect("xs -> each.x; each.y -> ys").flow();
    let start = |xs: Vec<i64>| {
        let mut start = Start::new("r", flow.clone()).input("xs", ints(xs));
        start.keep_ms = Some(DAY);
        start
    };
    bed.run(&kit, start(vec![1, 2, 3])).await;
    let engine = bed.engine(&kit, Options::default());
    let told = explained(&engine, start(vec![1, 4, 3])).await;
    assert_eq!(
        told,
        "/each Run, /each[0]/a Reused, /each[0]/b Reused, /each[1]/a Run, /each[1]/b Run, /each[2]/a Reused, \
         /each[2]/b Reused"
    );
    engine.close().await.unwrap();
    bed.run(&kit, start(vec![1, 4, 3])).await;
    // The second element's `a` ran and gave the same output as before, so `b` did not run.
    assert_eq!(kit.ran(), "/each[0]/a /each[0]/b /each[1]/a×2 /each[1]/b /each[2]/a /each[2]/b");
}

/// A body that blocks, the first time it starts, until the test releases it.
struct Slow {
    started: Arc<tokio::sync::Notify>,
    go: Arc<tokio::sync::Notify>,
    is_first: AtomicBool,
}

impl onceflow_engine::task::Body for Slow {
    fn start(
        &self,
        _: onceflow_engine::task::Step,
        inputs: Vec<onceflow_engine::task::Data>,
    ) -> onceflow_engine::task::Attempt {
        let (started, go, is_first) = (self.started.clone(), self.go.clone(), self.is_first.swap(false, SeqCst));
        onceflow_engine::task::Attempt::Async(Box::pin(async move {
            if is_first {
                started.notify_one();
                go.notified().await;
            }
            Ok(vec![int(as_int(&inputs[0]) * 10)])
        }))
    }
}

#[tokio::test]
async fn a_new_plan_is_not_disturbed_by_what_is_in_flight_of_the_old_one() {
    let (bed, mut kit) = (Bed::new(), Kit::default());
    let inc = inc(&mut kit, "inc");
    let slow = TaskSpec::new("slow", inc.inputs.clone(), inc.outputs.clone());
    let (started, go) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let body = Slow { started: started.clone(), go: go.clone(), is_first: AtomicBool::new(true) };
    kit.tasks.add(slow.clone(), Arc::new(body));
    let g = G::new().input("x", Type::Int).output("p", Type::Int).task("a", &inc).task("slow", &slow).task("b", &inc);
    let flow = g.connect("x -> a.x; a.out -> slow.x; slow.out -> b.x; b.out -> p").flow();
    let start = |x| Start::new("r", flow.clone()).input("x", int(x));
    let engine = bed.engine(&kit, Options::default());
    engine.start(start(1)).await.unwrap();
    started.notified().await;
    // The same steps, for another request, while one of them is running.
    let handle = engine.start(start(2)).await.unwrap();
    assert_eq!(show(&handle.output("p").await.unwrap()), "31");
    go.notify_one();
    engine.close().await.unwrap();
    assert_eq!(show(&handle.output("p").await.unwrap()), "31");
    assert!(bed.values.fsck(onceflow_store::values::fsck::Mode::Check).await.unwrap().is_clean_now());
}

/// A flow that gives a large value, made of its input.
fn large(kit: &mut Kit) -> CheckedFlow {
    let large = kit.task("large", &["x"], |inputs| {
        let byte = u8::try_from(as_int(&inputs[0])).expect("a small number");
        Ok(vec![onceflow_engine::task::Data::Bytes(bytes::Bytes::from(vec![byte; 1 << 20]))])
    });
    let g = G::new().input("x", Type::Int).output("p", Type::Int).task("large", &large);
    g.connect("x -> large.x; large.out -> p").flow()
}

#[tokio::test]
async fn outputs_replaced_by_a_newer_plan_are_released_at_once() {
    let (bed, mut kit) = (Bed::new(), Kit::default());
    let flow = large(&mut kit);
    for x in 0..5 {
        bed.run(&kit, Start::new("r", flow.clone()).input("x", int(x))).await;
        let engine = bed.engine(&Kit::default(), Options { works: false, ..Options::default() });
        assert!(engine.clean_up(60_000).await.unwrap(), "nothing is left to do");
        let bytes = onceflow_store::values::census::Census::of(&bed.values).await.unwrap().total().bytes;
        assert!((1 << 20..2 << 20).contains(&bytes), "one output, not {bytes} bytes after {} plans", x + 1);
        let Ok(onceflow_engine::Summary { status: onceflow_engine::RunStatus::Done, outputs, .. }) =
            engine.find("r").await.unwrap().summary().await
        else {
            panic!("not done")
        };
        assert_eq!(outputs.len(), 1);
        engine.find("r").await.unwrap().output("p").await.expect("what the last plan gave is there");
    }
}

#[tokio::test]
async fn a_run_that_is_forgotten_leaves_nothing() {
    for keep in [false, true] {
        let (bed, mut kit) = (Bed::new(), Kit::default());
        let flow = two_arms(&mut kit);
        bed.run(&kit, start(&flow, 1, 10, keep)).await;
        bed.run(&kit, start(&flow, 2, 10, keep)).await;
        let engine = bed.engine(&Kit::default(), Options { works: false, ..Options::default() });
        let seen = engine.find("r").await.unwrap().summary().await.unwrap();
        assert!(engine.forget(&seen).await.unwrap());
        assert!(!engine.forget(&seen).await.unwrap(), "it is gone");
        assert!(engine.clean_up(60_000).await.unwrap());
        assert_eq!(bed.values.rows().await.unwrap(), [], "no row of a value");
        let dues = onceflow_store::records::Scan::of(onceflow_core::protocol::keys::dues(), 10);
        assert_eq!(bed.records.scan(Default::default(), dues).await.unwrap().rows, [], "nothing is due later");
    }
}

#[tokio::test]
async fn cleaning_up_ends_when_its_time_is_over_and_goes_on_next_time() {
    let proof = support::proof::Proof::new(&Kit::default());
    let values = proof.values(proof.memory.clone());
    for some in 0..30 {
        let leaf = |update: onceflow_store::values::Update, n| update.leaf(format!("{some}-{n}").as_str(), "garbage");
        values.update((0..100).fold(onceflow_store::values::Update::new(), leaf)).await.unwrap();
    }
    let engine = proof.engine_on(proof.memory.clone(), Options { works: false, ..Options::default() });
    let mut calls = 1;
    while !engine.clean_up(0).await.unwrap() {
        calls += 1;
    }
    assert!((2..50).contains(&calls), "{calls}");
    assert_eq!(values.rows().await.unwrap(), []);
}
