//! A preview answers everything about a start in one call, and the plan of a preview is installed only while what it
//! rests on still stands.

use crate::support::{Bed, Kit, as_int, graphs::*, int, run, with};

use onceflow_core::model::{CheckedFlow, Effect, Type};
use onceflow_engine::{Engine, Error, Fork, Intent, Options, Preview, RunStatus, Start, Summary, task::Failure};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

/// `x -> a -> b -> d; y -> c -> d`, where `d` fails while it is broken.
fn two_arms(kit: &mut Kit, effect_of_a: Effect, broken: &Arc<AtomicBool>) -> CheckedFlow {
    let mut inc = |name| kit.task(name, &["x"], |inputs| Ok(vec![int(as_int(&inputs[0]) + 1)]));
    let (a, b, c) = (with(inc("a"), effect_of_a), inc("b"), inc("c"));
    let broken = broken.clone();
    let d = kit.task("d", &["x", "y"], move |inputs| match broken.load(SeqCst) {
        true => Err(Failure::new("broken").finally()),
        false => Ok(vec![int(as_int(&inputs[0]) + as_int(&inputs[1]))]),
    });
    let g = G::new().input("x", Type::Int).input("y", Type::Int).output("p", Type::Int);
    let g = g.task("a", &a).task("b", &b).task("c", &c).task("d", &d);
    g.connect("x -> a.x; a.out -> b.x; y -> c.x; b.out -> d.x; c.out -> d.y; d.out -> p").flow()
}

fn start(flow: &CheckedFlow, x: i64, y: i64) -> Start {
    Start::new("r", flow.clone()).input("x", int(x)).input("y", int(y))
}

fn fates(preview: &Preview) -> String {
    let line = |line: &onceflow_core::plan::explain::ExplanationLine| format!("{} {:?}", line.address, line.fate);
    preview.explanation.lines.iter().map(line).collect::<Vec<_>>().join(", ")
}

async fn failed_run(bed: &Bed, kit: &Kit, flow: &CheckedFlow) -> Engine {
    let engine = bed.engine(kit, Options { fuse: false, ..Options::default() });
    assert_eq!(run(&engine, start(flow, 1, 10)).await, "/d failed at attempt 1: broken");
    engine
}

#[tokio::test]
async fn a_preview_is_started_as_it_was_shown() {
    let (bed, mut kit, broken) = (Bed::new(), Kit::default(), Arc::new(AtomicBool::new(true)));
    let flow = two_arms(&mut kit, Effect::Pure, &broken);
    let engine = failed_run(&bed, &kit, &flow).await;
    broken.store(false, SeqCst);
    let preview = engine.preview(start(&flow, 1, 20)).await.unwrap();
    assert_eq!(fates(&preview), "/a Skipped, /b Reused, /c Run, /d Run");
    assert_eq!((preview.is_same, preview.run.as_ref().map(|run| run.status)), (Some(false), Some(RunStatus::Failed)));
    assert!(preview.refused.is_none());
    let handle = engine.start_previewed(preview).await.unwrap();
    assert_eq!(handle.wait().await.unwrap().status, RunStatus::Done);
    assert_eq!(kit.ran(), "/a /b /c×2 /d×2");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_preview_that_is_overtaken_is_planned_again() {
    let (bed, mut kit, broken) = (Bed::new(), Kit::default(), Arc::new(AtomicBool::new(true)));
    let flow = two_arms(&mut kit, Effect::Pure, &broken);
    let engine = failed_run(&bed, &kit, &flow).await;
    let previews = [(1, 20), (2, 10)];
    let mut shown = Vec::new();
    for (x, y) in previews {
        shown.push(engine.preview(start(&flow, x, y)).await.unwrap());
    }
    let [one, other] = shown.try_into().ok().expect("two previews");
    assert_eq!(fates(&other), "/a Run, /b Run, /c Reused, /d Run");
    // The first preview changes the input that the second one would reuse a value of.
    broken.store(false, SeqCst);
    assert_eq!(engine.start_previewed(one).await.unwrap().wait().await.unwrap().status, RunStatus::Done);
    let handle = engine.start_previewed(other).await.unwrap();
    let Summary { status, outputs, .. } = handle.wait().await.unwrap();
    assert_eq!((status, crate::support::told(&handle, outputs).await), (RunStatus::Done, String::from("p=15")));
    // The finished run kept nothing, so all steps ran again: of its own, none was lost.
    assert_eq!(kit.ran(), "/a×2 /b×2 /c×3 /d×3");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_preview_says_why_it_would_be_refused_and_starting_it_says_the_same() {
    let (bed, mut kit, broken) = (Bed::new(), Kit::default(), Arc::new(AtomicBool::new(true)));
    let flow = two_arms(&mut kit, Effect::AtMostOnce, &broken);
    let engine = failed_run(&bed, &kit, &flow).await;
    let preview = engine.preview(start(&flow, 2, 10)).await.unwrap();
    assert!(matches!(&preview.refused, Some(Error::WouldRerun { steps, .. }) if steps == &["/a"]));
    assert!(matches!(engine.start_previewed(preview).await, Err(Error::WouldRerun { .. })));
    assert_eq!(kit.ran(), "/a /b /c /d", "nothing ran");
    // The run is as it was, and continues.
    broken.store(false, SeqCst);
    assert_eq!(run(&engine, start(&flow, 1, 10)).await, "p=14");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_retry_is_previewed_without_the_flow_and_the_inputs() {
    let (bed, mut kit, broken) = (Bed::new(), Kit::default(), Arc::new(AtomicBool::new(true)));
    let flow = two_arms(&mut kit, Effect::Pure, &broken);
    let engine = failed_run(&bed, &kit, &flow).await;
    let preview = engine.preview(Intent::Retry(String::from("r"))).await.unwrap();
    assert_eq!(fates(&preview), "/a Skipped, /b Reused, /c Reused, /d Run");
    assert_eq!((preview.is_same, preview.run.map(|run| run.failures.len())), (Some(true), Some(1)));
    let none = engine.preview(Intent::Retry(String::from("other"))).await;
    assert!(matches!(none, Err(Error::NoRun(_))));
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_fork_is_started_as_it_was_previewed() {
    let (bed, mut kit, broken) = (Bed::new(), Kit::default(), Arc::new(AtomicBool::new(true)));
    let flow = two_arms(&mut kit, Effect::Pure, &broken);
    let engine = failed_run(&bed, &kit, &flow).await;
    broken.store(false, SeqCst);
    let fork = Fork {
        key: String::from("f"),
        inputs: vec![(String::from("x"), int(1)), (String::from("y"), int(20))],
        changed: vec![String::from("y")],
        ..Fork::default()
    };
    let preview = engine.preview(Intent::Fork(String::from("r"), fork)).await.unwrap();
    assert_eq!(fates(&preview), "/a Skipped, /b Reused, /c Run, /d Run");
    let handle = engine.start_previewed(preview).await.unwrap();
    assert_eq!((handle.key(), handle.wait().await.unwrap().status), ("f", RunStatus::Done));
    assert_eq!(kit.ran(), "/a /b /c×2 /d×2");
    engine.close().await.unwrap();
}
