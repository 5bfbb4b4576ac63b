//! Data between steps: large values, lists of them, options, files; wide graphs; many runs at once. Data above a limit
//! fails at once, with a message.

use crate::support;

use onceflow_core::model::{Retry, TaskSpec, Type};
use onceflow_engine::{
    Options, RunStatus, Start, Summary,
    task::{Data, Failure, FileData},
};
use onceflow_store::World;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use support::{Kit, as_int, flows::*, graphs::*, int, ints, proof::Proof, show};

/// A flow with one task, from `x` to `y`.
fn one(kit: &mut Kit, out: Type, code: impl Fn(i64) -> Result<Data, Failure> + Send + Sync + 'static) -> Start {
    let spec = spec("one", &[("x", Type::Int)], &[("out", out.clone())]);
    let one = kit.add(spec, move |_, inputs| Ok(vec![code(as_int(&inputs[0]))?]));
    let g = G::new().input("x", Type::Int).output("y", out).task("a", &one).connect("x -> a.x; a.out -> y");
    start(g).input("x", int(1))
}

#[tokio::test]
async fn lists_of_anything_of_any_size_come_out_as_they_were() {
    let lists: Vec<Data> = vec![
        Data::List(vec![].into()),
        Data::List(vec![Data::List(vec![].into()); 3000].into()),
        Data::List(vec![Data::None, int(1), Data::None].into()),
        Data::List((0..5000).map(int).collect()),
        Data::List((0..100).map(|n| bytes(2000, n)).collect()),
        Data::List((0..5).map(|n| bytes(200_000, n)).collect()),
        Data::List(
            vec![Data::List(vec![bytes(2000, 1), Data::None].into()), Data::None, Data::List(vec![int(4)].into())]
                .into(),
        ),
    ];
    for list in lists {
        let mut kit = Kit::default();
        let given = list.clone();
        let pass = spec("pass", &[("x", Type::Bytes)], &[("out", Type::Bytes)]);
        let pass = kit.add(pass, |_, inputs| Ok(vec![inputs[0].clone()]));
        let make = spec("make", &[("x", Type::Int)], &[("out", Type::list(Type::Bytes))]);
        let make = kit.add(make, move |_, _| Ok(vec![given.clone()]));
        let body = G::new().input("x", Type::Bytes).output("y", Type::Bytes).task("pass", &pass);
        let body = body.connect("x -> pass.x; pass.out -> y").graph();
        let lists = || Type::list(Type::Bytes);
        let g = G::new().input("x", Type::Int).output("made", lists()).output("passed", lists());
        let g = g.task("make", &make).module("each", each(body));
        let g = g.connect("x -> make.x; make.out -> made; make.out -> each.x; each.y -> passed");
        let expected = format!("made={0} passed={0}", show(&list));
        Proof::new(&kit).prove(start(g).input("x", int(1)), &expected).await;
    }
}

#[tokio::test]
async fn inputs_of_a_run_may_be_large() {
    let mut kit = Kit::default();
    let count = spec("count", &[("x", Type::list(Type::Bytes))], &[("out", Type::Int)]);
    let count = kit.add(count, |_, inputs| match &inputs[0] {
        Data::List(list) => Ok(vec![int(list.len() as i64)]),
        other => Err(Failure::new(format!("{other:?}"))),
    });
    let g = G::new().input("x", Type::list(Type::Bytes)).input("o", Type::option(Type::Int)).output("y", Type::Int);
    let g = g.output("z", Type::option(Type::Int)).task("a", &count).connect("x -> a.x; a.out -> y; o -> z");
    let list = Data::List(vec![bytes(2000, 1), bytes(200_000, 2), bytes(3, 3)].into());
    Proof::new(&kit).prove(start(g).input("x", list), "y=3 z=none").await;
}

#[tokio::test]
async fn oversized_outputs_are_written_before_their_commit() {
    for (n, len) in [(99, 2000), (100, 2000), (101, 2000), (2000, 2000), (100, 60_000), (300, 5000), (10_150, 1100)] {
        let list = Data::List((0..n).map(|n| bytes(len, n)).collect());
        let mut kit = Kit::default();
        let expected = format!("y={}", show(&list));
        let begin = one(&mut kit, Type::list(Type::Bytes), move |_| Ok(list.clone()));
        Proof::new(&kit).prove(begin, &expected).await;
    }
}

#[tokio::test]
async fn a_list_of_lists_of_many_is_put_ahead_too() {
    let inner = |n: i64| Data::List((0..150).map(|at| bytes(1500, at ^ n)).collect());
    let list = Data::List((0..120).map(inner).chain([Data::None, int(3)]).collect());
    let mut kit = Kit::default();
    let expected = format!("y={}", show(&list));
    let begin = one(&mut kit, Type::list(Type::list(Type::Bytes)), move |_| Ok(list.clone()));
    Proof::new(&kit).prove(begin, &expected).await;
}

#[tokio::test]
async fn a_failure_may_say_a_lot() {
    for attempt in [false, true] {
        let mut kit = Kit::default();
        let mut talks = spec("talks", &[("x", Type::Int)], &[("out", Type::Int)]);
        talks.retry = Retry { attempts: 2, ..Retry::default() };
        let talks = kit.add(talks, |_, _| Err(Failure::new("ö".repeat(3_000_000))));
        let g = G::new().input("x", Type::Int).output("y", Type::option(Type::Int));
        let g = if attempt {
            g.attempt("a", onceflow_core::model::graph::ModuleKind::Task(talks.into()))
        } else {
            g.task("a", &talks)
        };
        let proof = Proof::new(&kit);
        let told = proof.run(start(g.connect("x -> a.x; a.out -> y")).input("x", int(1))).await;
        assert!(told.starts_with(if attempt { "y=none" } else { "/a failed at attempt 2: öö" }), "{told}");
        assert_eq!(kit.ran(), "/a×2");
    }
}

#[tokio::test]
async fn a_key_too_long_is_refused_before_anything_is_stored() {
    let mut kit = Kit::default();
    let begin = one(&mut kit, Type::Int, |n| Ok(int(n)));
    let proof = Proof::new(&kit);
    for key in [String::new(), "k".repeat(257), "k".repeat(510)] {
        let told = proof.run(Start { key, ..begin.clone() }).await;
        assert!(told.contains("bytes, not of 1 to 256"), "{told}");
    }
    assert_eq!(proof.rows(), "");
    proof.prove(Start { key: "k".repeat(256), ..begin }, "y=1").await;
}

/// Writes a file to a path of its own, and returns it as data.
fn file(directory: &std::path::Path, name: &str, content: &str) -> Data {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let path = directory.join(NEXT.fetch_add(1, SeqCst).to_string());
    std::fs::write(&path, content).unwrap();
    Data::from(FileData::new(name, path))
}

fn read(data: &Data) -> String {
    match data {
        Data::File(file) => std::fs::read_to_string(&file.path).unwrap(),
        other => panic!("{other:?} is no file"),
    }
}

#[tokio::test]
async fn files_of_one_name_stay_apart_and_no_scratch_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let (here, scratch) = (directory.path().to_owned(), directory.path().join("scratch"));
    let mut kit = Kit::default();
    let at = here.clone();
    let make = spec("make", &[("x", Type::Int)], &[("out", Type::File)]);
    let make = kit.add(make, move |_, inputs| Ok(vec![file(&at, "out.txt", &format!("{} ", as_int(&inputs[0])))]));
    let (at, files) = (here.clone(), Type::list(Type::File));
    let join = spec("join", &[("xs", files.clone()), ("one", Type::File)], &[("out", Type::File)]);
    let join = kit.add(join, move |_, inputs| match &inputs[0] {
        Data::List(list) => {
            let all: String = list.iter().map(|file| read(&file)).chain([read(&inputs[1])]).collect();
            Ok(vec![file(&at, "all.txt", &all)])
        }
        other => Err(Failure::new(format!("{other:?}"))),
    });
    let body = G::new().input("x", Type::Int).output("y", Type::File).task("make", &make);
    let body = body.connect("x -> make.x; make.out -> y").graph();
    let g = G::new().input("xs", list()).input("f", Type::File).output("all", Type::File).output("files", files);
    let g = g.module("each", each(body)).task("join", &join);
    let g = g.connect("xs -> each.x; each.y -> join.xs; f -> join.one; join.out -> all; each.y -> files");
    let proof = Proof::new(&kit);
    let options = Options { scratch: scratch.clone(), ..Options::default() };
    let engine = proof.engine_on(proof.memory.clone(), options);
    let begin = start(g).input("xs", ints(0..3)).input("f", file(&here, "out.txt", "end"));
    let handle = proof.drive(engine.start(begin)).await.unwrap();
    let report = proof.drive(handle.wait()).await.unwrap();
    assert!(report.status == RunStatus::Done, "{report}");
    let into = here.join("outputs");
    assert_eq!(read(&proof.drive(handle.outputs().output_into("all", Some(&into))).await.unwrap()), "0 1 2 end");
    let Data::List(files) = proof.drive(handle.outputs().output_into("files", Some(&into))).await.unwrap() else {
        panic!()
    };
    assert_eq!(files.iter().map(|file| read(&file)).collect::<String>(), "0 1 2 ");
    proof.drive(engine.close()).await.unwrap();
    assert!(!scratch.exists() || std::fs::read_dir(&scratch).unwrap().next().is_none(), "scratch is left");
    proof.once();
    proof.only_what_remains().await;
    proof.nothing_remains().await;
}

#[tokio::test]
async fn a_file_that_is_not_there_or_has_a_bad_name_fails_its_step() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().to_owned();
    for name in ["missing", "../up", "/root", ""] {
        let (mut kit, here) = (Kit::default(), here.clone());
        let make = spec("make", &[("x", Type::Int)], &[("out", Type::File)]);
        let make = kit.add(make, move |_, _| {
            Ok(vec![match name {
                "missing" => Data::from(FileData::new(name, here.join("nowhere"))),
                name => file(&here, name, "text"),
            }])
        });
        let take = spec("take", &[("f", Type::File)], &[("out", Type::Int)]);
        let take = kit.add(take, |_, _| Ok(vec![int(1)]));
        let g = G::new().input("x", Type::Int).output("y", Type::Int).task("a", &make).task("b", &take);
        let proof = Proof::new(&kit);
        let told = proof.run(start(g.connect("x -> a.x; a.out -> b.f; b.out -> y")).input("x", int(1))).await;
        assert!(told.contains("failed at attempt 1: "), "{name}: {told}");
        proof.fsck().await;
    }
}

/// A task without outputs: the run waits for it though no step reads from it.
fn sink(kit: &mut Kit, input: Type, class: &str) -> TaskSpec {
    let mut sink = spec("sink", &[("x", input)], &[]);
    sink.class = class.into();
    kit.add(sink, |_, _| Ok(vec![]))
}

#[tokio::test]
async fn ten_thousand_tasks_may_be_independent() {
    let mut kit = Kit::default();
    let (inc, sink) = (inc(&mut kit), sink(&mut kit, Type::Int, "default"));
    let mut g = G::new().input("x", Type::Int).output("y", Type::Int).task("inc", &inc);
    for at in 0..10_000 {
        g = g.task(&format!("f{at}"), &sink).connect(&format!("x -> f{at}.x"));
    }
    let proof = Proof::new(&kit);
    proof.prove(start(g.connect("x -> inc.x; inc.out -> y")).input("x", int(1)), "y=2").await;
    assert_eq!(kit.log.lock().unwrap().len(), 10_001);
}

#[tokio::test]
async fn three_thousand_may_read_one_output_even_a_large_one() {
    let mut kit = Kit::default();
    let make = spec("make", &[("x", Type::Int)], &[("out", Type::Bytes)]);
    let make = kit.add(make, |_, _| Ok(vec![bytes(3000, 1)]));
    let sink = sink(&mut kit, Type::Bytes, "default");
    let mut g = G::new().input("x", Type::Int).output("y", Type::Bytes).task("make", &make);
    for at in 0..3000 {
        g = g.task(&format!("f{at}"), &sink).connect(&format!("make.out -> f{at}.x"));
    }
    let proof = Proof::new(&kit);
    proof.prove(start(g.connect("x -> make.x; make.out -> y")).input("x", int(1)), "y=3000 bytes").await;
    assert_eq!(kit.log.lock().unwrap().len(), 3001);
}

#[tokio::test]
async fn a_failure_among_thousands_that_wait_stops_the_run() {
    let mut kit = Kit::default();
    let (fails, sink) = (fails(&mut kit), sink(&mut kit, Type::Int, "later"));
    let mut g = G::new().input("x", Type::Int).output("y", Type::Int);
    for at in 0..4000 {
        g = g.task(&format!("f{at}"), &sink).connect(&format!("x -> f{at}.x"));
    }
    let begin = start(g.task("bad", &fails).connect("x -> bad.x; bad.out -> y")).input("x", int(1));
    let proof = Proof::new(&kit);
    // A worker that claims the failing step, and none of the waiting ones.
    let classes = [(String::from("default"), 8)].into();
    let first = proof.engine_on(proof.memory.clone(), Options { classes, other_classes: false, ..Options::default() });
    first.start(begin.clone()).await.unwrap();
    proof.calm().await;
    assert_eq!(kit.ran(), "/bad");
    proof.drive(first.close()).await.unwrap();
    assert_eq!(proof.run(begin.clone()).await, "/bad failed at attempt 1: no");
    assert_eq!(kit.ran(), "/bad");
    // Started again, all of them are unparked: the rest is done, or stopped again by the step that fails again.
    assert_eq!(proof.run(begin).await, "/bad failed at attempt 1: no");
    let engine = proof.engine();
    let handle = engine.find("r").await.unwrap();
    proof.drive(handle.cancel()).await.unwrap();
    assert_eq!(proof.drive(handle.wait()).await.unwrap().to_string(), "cancelled");
    proof.drive(engine.close()).await.unwrap();
    proof.only_what_remains().await;
    proof.nothing_remains().await;
}

#[tokio::test]
async fn a_hundred_runs_go_on_at_once() {
    let mut kit = Kit::default();
    let (begin, expected) = each_in_loop_in_each(&mut kit);
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    let mut handles = Vec::new();
    for at in 0..100 {
        handles.push(engine.start(Start { key: format!("run {at}"), ..begin.clone() }).await.unwrap());
    }
    for handle in &handles {
        let Summary { status: RunStatus::Done, outputs, .. } = proof.drive(handle.wait()).await.unwrap() else {
            panic!("not done")
        };
        assert_eq!(support::told(handle, outputs).await, expected);
    }
    proof.drive(engine.close()).await.unwrap();
    assert!(kit.log.lock().unwrap().values().all(|n| *n == 100));
    proof.only_what_remains().await;
    proof.nothing_remains().await;
}

#[tokio::test]
async fn kept_values_go_in_their_time_even_together_with_the_history() {
    for keep_ms in [1000, onceflow_engine::HISTORY_MS, 2 * onceflow_engine::HISTORY_MS] {
        let mut kit = Kit::default();
        let (begin, expected) = large(&mut kit);
        let proof = Proof::new(&kit);
        let kept = Start { keep_ms: Some(keep_ms), ..begin.clone() };
        assert_eq!(proof.run(kept).await, expected);
        proof.fsck().await;
        proof.world.advance(2 * onceflow_engine::HISTORY_MS);
        proof.nothing_remains().await;
    }
}

#[tokio::test]
async fn a_claimed_step_that_waits_for_capacity_keeps_its_claim() {
    let mut kit = Kit::default();
    let mut heavy = spec("heavy", &[("x", Type::Int)], &[("out", Type::Int)]);
    heavy.resources.cpu_milli = 1000;
    let slow = Arc::new(Slow { log: kit.log.clone(), world: std::sync::Mutex::default() });
    kit.tasks.add(heavy.clone(), slow.clone());
    let mut g = G::new().input("x", Type::Int);
    for at in 0..4 {
        g = g.output(&format!("y{at}"), Type::Int).task(&format!("f{at}"), &heavy);
        g = g.connect(&format!("x -> f{at}.x; f{at}.out -> y{at}"));
    }
    let proof = Proof::new(&kit);
    *slow.world.lock().unwrap() = Some(Clock(proof.world.clone()));
    let engine = proof.engine_on(proof.memory.clone(), Options { cpu_milli: 1000, ..Options::default() });
    let told = proof.drive(proof.run_on(&engine, start(g).input("x", int(1)))).await;
    assert_eq!(told, "y0=1 y1=1 y2=1 y3=1");
    proof.drive(engine.close()).await.unwrap();
    proof.once();
    proof.only_what_remains().await;
}

/// The clock, as the test moves it.
#[derive(Clone)]
struct Clock(Arc<onceflow_store::testing::world::TestWorld>);

/// A body that takes a minute: longer than a lease.
struct Slow {
    log: support::Log,
    world: std::sync::Mutex<Option<Clock>>,
}

impl onceflow_engine::task::Body for Slow {
    fn start(&self, step: onceflow_engine::task::Step, inputs: Vec<Data>) -> onceflow_engine::task::Attempt {
        *self.log.lock().unwrap().entry(step.address()).or_default() += 1;
        let clock = self.world.lock().unwrap().clone().expect("set before it runs");
        let minute = clock.0.sleep(60_000);
        onceflow_engine::task::Attempt::Async(Box::pin(async move {
            minute.await;
            Ok(inputs)
        }))
    }
}
