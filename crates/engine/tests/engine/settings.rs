//! A run that has begun takes up the class, retry and failure policy of a changed flow, and nothing runs again for them.

use crate::support::{Bed, Kit, as_int, graphs::*, int, ints, proof::Proof, run};

use onceflow_core::model::{CheckedFlow, Retry, TaskSpec, Type};
use onceflow_engine::{Engine, Options, RunStatus, Start, task::Failure};
use onceflow_store::testing::fault::{Fault, FaultPlan, Faulty};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

/// `xs -> first[i] -> second[i]`, the second of this class.
fn flow(first: &TaskSpec, second: &TaskSpec, class: &str) -> CheckedFlow {
    let second = TaskSpec { class: class.to_owned(), ..second.clone() };
    let body = G::new().input("x", Type::Int).output("y", Type::Int).task("first", first).task("second", &second);
    let body = body.connect("x -> first.x; first.out -> second.x; second.out -> y").graph();
    let g = G::new().input("xs", Type::list(Type::Int)).output("ys", Type::list(Type::Int));
    g.module("each", each(body)).connect("xs -> each.x; each.y -> ys").flow()
}

fn start(flow: &CheckedFlow) -> Start {
    Start::new("r", flow.clone()).input("xs", ints([1, 2, 3]))
}

/// An engine that takes only these classes.
fn taking(bed: &Bed, kit: &Kit, classes: &[&str]) -> Engine {
    let classes = classes.iter().map(|class| ((*class).to_owned(), 4)).collect();
    bed.engine(kit, Options { fuse: false, classes, other_classes: false, ..Options::default() })
}

#[tokio::test]
async fn elements_that_wait_in_a_queue_move_to_that_of_their_new_class() {
    let (bed, mut kit) = (Bed::new(), Kit::default());
    let mut inc = |name| kit.task(name, &["x"], |inputs| Ok(vec![int(as_int(&inputs[0]) + 1)]));
    let (first, second) = (inc("first"), inc("second"));
    let (old, new) = (flow(&first, &second, "old"), flow(&first, &second, "new"));
    let engine = taking(&bed, &kit, &["default", "new"]);
    let handle = engine.start(start(&old)).await.unwrap();
    let waits = ["/each[0]/second", "/each[1]/second", "/each[2]/second"];
    while handle.steps().progress().await.unwrap().unwrap().under_way.iter().ne(&waits) {
        tokio::task::yield_now().await;
    }
    let preview = engine.preview(start(&new)).await.unwrap();
    assert_eq!((preview.is_same, &preview.taken_up[..]), (Some(true), &[String::from("/each[*]/second")][..]));
    let handle = engine.start_previewed(preview).await.unwrap();
    assert_eq!(handle.wait().await.unwrap().status, RunStatus::Done);
    assert_eq!(
        kit.ran(),
        "/each[0]/first /each[0]/second /each[1]/first /each[1]/second /each[2]/first /each[2]/second"
    );
    engine.close().await.unwrap();
    assert!(bed.values.fsck(onceflow_store::values::fsck::Mode::Check).await.unwrap().is_clean_now());
}

#[tokio::test]
async fn another_worker_with_the_old_settings_delivers_to_the_new_queues() {
    let (bed, mut kit) = (Bed::new(), Kit::default());
    let mut inc = |name| kit.task(name, &["x"], |inputs| Ok(vec![int(as_int(&inputs[0]) + 1)]));
    let (first, second) = (TaskSpec { class: String::from("late"), ..inc("first") }, inc("second"));
    let (old, new) = (flow(&first, &second, "old"), flow(&first, &second, "new"));
    // This worker opens the elements, and knows the run with its old settings from then on.
    let worker = taking(&bed, &kit, &["new"]);
    let handle = worker.start(start(&old)).await.unwrap();
    let waits = ["/each[0]/first", "/each[1]/first", "/each[2]/first"];
    while handle.steps().progress().await.unwrap().unwrap().under_way.iter().ne(&waits) {
        tokio::task::yield_now().await;
    }
    let other = bed.engine(&kit, Options { works: false, ..Options::default() });
    other.start(start(&new)).await.unwrap();
    // A third one performs the first steps.
    let late = taking(&bed, &kit, &["late"]);
    assert_eq!(handle.wait().await.unwrap().status, RunStatus::Done);
    for engine in [worker, other, late] {
        engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_changed_retry_and_failure_policy_count_from_the_next_attempt() {
    let (bed, mut kit, tries) = (Bed::new(), Kit::default(), Arc::new(AtomicUsize::new(0)));
    let first = kit.task("first", &["x"], |inputs| Ok(vec![int(as_int(&inputs[0]) + 1)]));
    let tried = tries.clone();
    let second = kit.task("second", &["x"], move |inputs| match tried.fetch_add(1, SeqCst) {
        0..=2 => Err(Failure::new("not yet")),
        _ => Ok(vec![int(as_int(&inputs[0]))]),
    });
    let wide = |attempts| {
        let retry = Retry { attempts, backoff_ms: 1, backoff_ms_max: 1 };
        let second = TaskSpec { retry, ..second.clone() };
        let g = G::new().input("x", Type::Int).output("p", Type::Int).task("first", &first).task("second", &second);
        g.connect("x -> first.x; first.out -> second.x; second.out -> p").flow()
    };
    let start = |attempts| Start::new("r", wide(attempts)).input("x", int(1));
    let engine = bed.engine(&kit, Options { fuse: false, ..Options::default() });
    assert_eq!(run(&engine, start(1)).await, "/second failed at attempt 1: not yet");
    assert_eq!(run(&engine, start(2)).await, "/second failed at attempt 2: not yet");
    let independent = Start { finish_independent: true, ..start(2) };
    let preview = engine.preview(independent).await.unwrap();
    assert_eq!((preview.finish_independent, preview.taken_up.len()), (Some(true), 0));
    assert_eq!(run(&engine, start(2)).await, "p=2");
    assert_eq!(kit.ran(), "/first /second×4");
    engine.close().await.unwrap();
}

/// A process is killed before or after every call of the store while it takes up the settings: also between writing them
/// and moving the steps that wait, and between two of these.
#[tokio::test]
async fn settings_are_taken_up_whole_though_the_process_is_killed_at_any_call() {
    let only = |classes: &[&str]| {
        let classes = classes.iter().map(|class| ((*class).to_owned(), 4)).collect();
        Options { fuse: false, classes, other_classes: false, ..Options::default() }
    };
    for fault in [Fault::StopBefore, Fault::StopAfter] {
        let mut n = 1;
        loop {
            let mut kit = Kit::default();
            let mut inc = |name| kit.task(name, &["x"], |inputs| Ok(vec![int(as_int(&inputs[0]) + 1)]));
            let (first, second) = (inc("first"), inc("second"));
            let (old, new) = (flow(&first, &second, "old"), flow(&first, &second, "new"));
            let proof = Proof::new(&kit);
            let worker = proof.engine_on(proof.memory.clone(), only(&["default"]));
            worker.start(start(&old)).await.unwrap();
            proof.calm().await;
            proof.drive(worker.close()).await.unwrap();
            assert_eq!(kit.ran(), "/each[0]/first /each[1]/first /each[2]/first");
            let plan = FaultPlan::at(n, fault);
            let idle = Options { works: false, ..Options::default() };
            let killed = proof.engine_on(Faulty::new(proof.memory.clone(), plan.clone()), idle);
            let taken_up = proof.drive(killed.start(start(&new))).await;
            assert!(taken_up.is_ok() || plan.stopped(), "{fault:?} at call {n}: {:?}", taken_up.err());
            killed.stop();
            let worker = proof.engine_on(proof.memory.clone(), only(&["default", "new"]));
            assert_eq!(proof.drive(proof.run_on(&worker, start(&new))).await, "ys=[3 4 5]", "{fault:?} at call {n}");
            proof.drive(worker.close()).await.unwrap();
            proof.once();
            proof.fsck().await;
            if !plan.reached() {
                break;
            }
            n += 1;
        }
        assert!(n > 5, "taking up settings of three waiting steps took {n} calls only");
    }
}
