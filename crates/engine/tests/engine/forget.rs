//! A removal concerns the run that was seen: a run that takes its key meanwhile keeps all its rows.

use crate::support;

use onceflow_core::{
    Batch, Op,
    model::{TaskSpec, Type},
    protocol::keys,
};
use onceflow_engine::{About, Engine, Error, Options, Start, Summary};
use support::{
    Kit, as_int,
    graphs::*,
    int,
    meanwhile::{Call, Meanwhile},
    proof::Proof,
};

/// A flow of one step, and a request of it for this number.
fn one_step(kit: &mut Kit) -> impl Fn(i64) -> Start + use<> {
    let inc: TaskSpec = kit.task("inc", &["x"], |inputs| Ok(vec![int(as_int(&inputs[0]) + 1)]));
    let library = G::new().input("x", Type::Int).output("y", Type::Int).task("a", &inc);
    let library = library.connect("x -> a.x; a.out -> y").flow();
    move |x| Start::new("r", library.clone()).input("x", int(x))
}

async fn seen(engine: &Engine) -> Summary {
    engine.find("r").await.unwrap().summary().await.unwrap()
}

fn refused(forgotten: Result<bool, Error>) -> String {
    match forgotten {
        Err(Error::Refused { why, .. }) => why,
        other => panic!("not refused: {other:?}"),
    }
}

fn idle() -> Options {
    Options { works: false, ..Options::default() }
}

#[tokio::test]
async fn forget_concerns_the_run_that_was_seen() {
    let mut kit = Kit::default();
    let start = one_step(&mut kit);
    let proof = Proof::new(&kit);
    let remover = proof.engine_on(proof.memory.clone(), idle());
    assert_eq!(proof.run(start(1)).await, "y=2");
    let first = seen(&remover).await;
    // Another plan of the same run.
    assert_eq!(proof.run(start(2)).await, "y=3");
    let second = seen(&remover).await;
    assert_eq!((second.id, second.generation), (first.id, first.generation + 1));
    let why = refused(proof.drive(remover.forget(&first)).await);
    assert!(why.starts_with("has changed"), "{why}");
    assert_eq!(proof.run(start(2)).await, "y=3", "all of it is there");
    assert_eq!(kit.ran(), "/a×2");
    // Another run of the same key.
    assert!(proof.drive(remover.forget(&second)).await.unwrap());
    assert_eq!(proof.run(start(2)).await, "y=3");
    let third = seen(&remover).await;
    assert_ne!(third.id, second.id);
    let why = refused(proof.drive(remover.forget(&second)).await);
    assert!(why.starts_with("has changed"), "{why}");
    // A run that is not seen to its end.
    proof.drive(remover.start(start(4))).await.unwrap();
    let why = refused(proof.drive(remover.forget(&third)).await);
    assert!(why.starts_with("has changed"), "{why}");
    let fourth = seen(&remover).await;
    assert_eq!(refused(proof.drive(remover.forget(&fourth)).await), "has not ended");
    assert_eq!(proof.run(start(4)).await, "y=5", "all of it is there");
    assert!(proof.drive(remover.forget(&seen(&remover).await)).await.unwrap());
    proof.drive(remover.close()).await.unwrap();
    proof.nothing_remains().await;
}

/// The batch removes the run from its key.
fn frees_key(batch: &Batch) -> bool {
    batch.ops.iter().any(|op| matches!(op, Op::Delete(key) if *key == keys::heads().key("r")))
}

/// The batch ends the removal of what the run held.
fn ends_removal(batch: &Batch) -> bool {
    let dues = keys::dues();
    let is_due = |op: &Op| matches!(op, Op::Delete(key) if key.group == dues);
    !frees_key(batch) && batch.ops.iter().any(is_due)
}

#[tokio::test]
async fn a_run_that_starts_while_another_is_forgotten_keeps_all_its_rows() {
    for (x, moment, removes) in [(1, "before", true), (2, "before", false), (1, "after", true), (2, "after", true)] {
        let mut kit = Kit::default();
        let start = one_step(&mut kit);
        let proof = Proof::new(&kit);
        assert_eq!(proof.run(start(1)).await, "y=2");
        let (bed, again) = (proof.clone(), start(x));
        let runs = async move {
            bed.run(again).await;
        };
        let is_moment = if moment == "before" { frees_key } else { ends_removal };
        let at = move |call: Call<'_>| matches!(call, Call::Sends(batch) if is_moment(batch));
        let meanwhile = Meanwhile::new(proof.memory.clone(), at, runs);
        let remover = proof.engine_on(meanwhile.clone(), idle());
        let first = seen(&remover).await;
        let forgotten = proof.drive(remover.forget(&first)).await;
        assert!(meanwhile.happened(), "{x} {moment}");
        match removes {
            true => assert!(forgotten.unwrap(), "{x} {moment}"),
            false => assert!(refused(forgotten).starts_with("has changed"), "{x} {moment}"),
        }
        let ran = kit.ran();
        assert_eq!(proof.run(start(x)).await, format!("y={}", x + 1), "{x} {moment}");
        // The run that found its outputs there before they were removed computes them again; any other keeps its own.
        let expected = if (x, moment) == (1, "before") { "/a×2" } else { &ran };
        assert_eq!(kit.ran(), expected, "{x} {moment}");
        proof.drive(remover.close()).await.unwrap();
        proof.only_what_remains().await;
        proof.nothing_remains().await;
    }
}

#[tokio::test]
async fn a_run_that_another_worker_attends_is_not_forgotten() {
    let mut kit = Kit::default();
    let start = one_step(&mut kit);
    let proof = Proof::new(&kit);
    assert_eq!(proof.run(start(1)).await, "y=2");
    let about = About { run: Some(String::from("r")), ..About::default() };
    let attendant = proof.engine_on(proof.memory.clone(), Options { about: Some(about), ..Options::default() });
    let bed = proof.clone();
    let attend = {
        let attends = attendant.clone();
        async move { assert_eq!(bed.drive(attends.attend()).await.unwrap(), None) }
    };
    let frees = |call: Call<'_>| matches!(call, Call::Sends(batch) if frees_key(batch));
    let meanwhile = Meanwhile::new(proof.memory.clone(), frees, attend);
    let remover = proof.engine_on(meanwhile.clone(), idle());
    let first = seen(&remover).await;
    let why = refused(proof.drive(remover.forget(&first)).await);
    assert!(meanwhile.happened() && why.starts_with("is attended by process"), "{why}");
    // The attendant itself may.
    assert!(proof.drive(attendant.forget(&first)).await.unwrap());
    proof.drive(attendant.close()).await.unwrap();
    proof.drive(remover.close()).await.unwrap();
    proof.nothing_remains().await;
}
