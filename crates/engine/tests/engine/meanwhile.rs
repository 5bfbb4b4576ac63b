//! Commits of other processes between a read and the batch that rests on it: the decision must still hold, or is made
//! again. All found by sim.

use crate::support;

use onceflow_core::{
    Batch, Fences, Group, Op, Row,
    model::{Effect, Type},
    protocol::{
        ids::{END, StepId},
        rows::{self, Phase, RunState},
    },
};
use onceflow_engine::{
    EventKind, Options, Resolution, RunStatus, Start, Summary,
    task::{Attempt, Body, Data, Failure, Step, Verdict},
};
use onceflow_store::{BoxFuture, Records, backend::memory::Memory, records::Scan, testing::world::poll_once};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::SeqCst},
};
use support::{
    Kit, as_int,
    flows::*,
    graphs::*,
    int,
    meanwhile::{Call, Meanwhile},
    proof::Proof,
    with,
};

/// A body whose first attempt never reports an outcome.
struct Lossy(Arc<AtomicU64>);

impl Body for Lossy {
    fn start(&self, _: Step, inputs: Vec<Data>) -> Attempt {
        match self.0.fetch_add(1, SeqCst) {
            0 => Attempt::Async(Box::pin(std::future::pending())),
            _ => Attempt::Done(Ok(vec![int(as_int(&inputs[0]) * 10)])),
        }
    }

    fn verify(&self, _: Step, _: Vec<Data>) -> Option<BoxFuture<'static, Verdict>> {
        self.0.fetch_add(1, SeqCst);
        None
    }
}

/// A body that fails once another has started; or, when it fails again, once that one was found to have been started.
struct Fails(Arc<AtomicU64>, AtomicU64);

impl Body for Fails {
    fn start(&self, _: Step, _: Vec<Data>) -> Attempt {
        let (starts, before) = (self.0.clone(), self.1.fetch_add(1, SeqCst));
        Attempt::Async(Box::pin(async move {
            until_more(&starts, before).await;
            Err(Failure::new("no").finally())
        }))
    }
}

/// Frees all claims, as when heartbeats were late for too long, or the store forgot the claims.
async fn free_all(memory: &Memory) {
    let (queue, shard) = (Group::queue("q/default"), Default::default());
    let claims = memory.scan(shard, Scan::of(queue.claims(), 10)).await.unwrap().rows;
    let mut batch = Batch::new(shard);
    for (name, _) in &claims {
        batch.delete(queue.claims().key(name)).delete(queue.deadlines().key(name));
    }
    assert!(memory.commit(batch).await.unwrap().is_applied());
}

async fn until_more(starts: &AtomicU64, than: u64) {
    while starts.load(SeqCst) <= than {
        tokio::task::yield_now().await;
    }
}

fn puts_phase(batch: &Batch, phase: Phase) -> bool {
    let is_it = |op: &Op| {
        matches!(op, Op::Put(key, row) if key.name.as_bytes() == b"s"
            && rows::read::<RunState>(row).is_some_and(|state| state.phase == phase))
    };
    batch.ops.iter().any(is_it)
}

/// A step that fails, and a payment whose outcome is unknown.
fn failing_and_unknown(kit: &mut Kit, starts: &Arc<AtomicU64>) -> Start {
    let fails = spec("fails", &[("x", Type::Int)], &[("out", Type::Int)]);
    kit.tasks.add(fails.clone(), Arc::new(Fails(starts.clone(), AtomicU64::new(0))));
    let pay = with(spec("pay", &[("x", Type::Int)], &[("out", Type::Int)]), Effect::AtMostOnce);
    kit.tasks.add(pay.clone(), Arc::new(Lossy(starts.clone())));
    let g = G::new().input("x", Type::Int).output("y", Type::Int).output("p", Type::Int);
    let g = g.task("fails", &fails).task("pay", &pay);
    let g = g.connect("x -> fails.x; fails.out -> y; x -> pay.x; pay.out -> p");
    start(g).input("x", int(1))
}

#[tokio::test]
async fn a_decision_made_while_a_run_settles_is_not_lost() {
    for resolution in [Resolution::Redo, Resolution::Fail(String::from("no")), Resolution::Done(vec![int(7)])] {
        let place = format!("{resolution:?}");
        let (mut kit, starts) = (Kit::default(), Arc::new(AtomicU64::new(0)));
        let start = failing_and_unknown(&mut kit, &starts);
        let proof = Proof::new(&kit);
        let first = proof.engine();
        proof.drive(first.start(start.clone())).await.unwrap();
        proof.drive(until_more(&starts, 0)).await;
        proof.calm().await;
        first.stop();
        drop(first);
        free_all(&proof.memory).await;
        let (bed, key, resolution) = (proof.clone(), start.key.clone(), resolution.clone());
        let decide = async move {
            let decider = bed.engine();
            decider.find(&key).await.unwrap().resolve("/pay", resolution).await.unwrap();
        };
        let waits = |call: Call<'_>| matches!(call, Call::Sends(batch) if puts_phase(batch, Phase::Waiting));
        let meanwhile = Meanwhile::new(proof.memory.clone(), waits, decide);
        let second = proof.engine_on(meanwhile.clone(), Options::default());
        // The payment is parked, and found to have been started when the run is retried.
        let handle = proof.drive(second.start(start.clone())).await.unwrap();
        proof.drive(handle.wait()).await.unwrap();
        proof.drive(second.start(start)).await.unwrap();
        let report = proof.drive(handle.wait()).await.unwrap();
        assert!(meanwhile.happened(), "{place}: the run was to wait, and not {report:?}");
        assert!(
            matches!(&report, Summary { status: RunStatus::Failed, failures, .. } if !failures.is_empty()),
            "{place}: {report:?}"
        );
        drop(poll_once(&mut std::pin::pin!(second.close())).await);
    }
}

#[tokio::test]
async fn a_compensation_is_registered_once_though_two_had_the_step() {
    let (mut kit, undone) = (Kit::default(), Arc::<Mutex<Vec<i64>>>::default());
    let told = undone.clone();
    let undo = kit.add(spec("undo", &[("x", Type::Int)], &[]), move |_, inputs| {
        told.lock().unwrap().push(as_int(&inputs[0]));
        Ok(vec![])
    });
    let mut act = spec("act", &[("x", Type::Int)], &[("out", Type::Int)]);
    act.compensation = Some(Box::new(undo));
    let starts = Arc::new(AtomicU64::new(0));
    kit.tasks.add(act.clone(), Arc::new(Lossy(starts.clone())));
    let fails = fails(&mut kit);
    let g = G::new().input("x", Type::Int).output("y", Type::Int).task("act", &act).task("last", &fails);
    let start = start(g.connect("x -> act.x; act.out -> last.x; last.out -> y")).input("x", int(1));
    let proof = Proof::new(&kit);

    // Another worker claims the step, registers, starts the body, and dies.
    let other = Meanwhile::new(proof.memory.clone(), |_| false, async {});
    let (there, memory, begun, bed) = (other.clone(), proof.memory.clone(), starts.clone(), proof.clone());
    let overtaken = async move {
        free_all(&memory).await;
        let engine = bed.engine_on(there.clone(), Options::default());
        until_more(&begun, 0).await;
        there.die();
        engine.stop();
        free_all(&memory).await;
    };
    let sees = |call: Call<'_>| matches!(call, Call::Saw(scan) if scan.prefix.as_bytes() == b"u");
    let meanwhile = Meanwhile::new(proof.memory.clone(), sees, overtaken);
    // This worker has no capacity to claim the step that it already has.
    let engine = proof.engine_on(meanwhile.clone(), Options { steps_max: 1, ..Options::default() });
    let handle = proof.drive(engine.start(start)).await.unwrap();
    let report = proof.drive(handle.wait()).await.unwrap();
    assert!(meanwhile.happened(), "another had the step");
    assert!(
        matches!(&report, Summary { status: RunStatus::Undone | RunStatus::NotUndone, not_undone, .. } if not_undone.is_empty()),
        "{report:?}"
    );
    assert_eq!(*undone.lock().unwrap(), [1]);
}

#[tokio::test]
async fn a_run_whose_last_step_is_decided_while_it_is_settled_is_done() {
    let (mut kit, starts) = (Kit::default(), Arc::new(AtomicU64::new(0)));
    let pay = with(spec("pay", &[("x", Type::Int)], &[("out", Type::Int)]), Effect::AtMostOnce);
    kit.tasks.add(pay.clone(), Arc::new(Lossy(starts.clone())));
    let g = G::new().input("x", Type::Int).output("y", Type::Int).task("pay", &pay);
    let start = start(g.connect("x -> pay.x; pay.out -> y")).input("x", int(1));
    let proof = Proof::new(&kit);
    let first = proof.engine();
    proof.drive(first.start(start.clone())).await.unwrap();
    proof.drive(until_more(&starts, 0)).await;
    proof.calm().await;
    first.stop();
    drop(first);
    free_all(&proof.memory).await;
    // The outputs were read, and the parked steps were not yet.
    let saw_outputs = |call: Call<'_>| {
        let settled = StepId::of_run(END).to_bytes();
        matches!(call, Call::Saw(scan) if scan.prefix.as_bytes().strip_prefix(b"i").is_some_and(|at| at == settled))
    };
    let (bed, key) = (proof.clone(), start.key.clone());
    let decide = async move {
        let decider = bed.engine_on(bed.memory.clone(), Options { works: false, ..Options::default() });
        decider.find(&key).await.unwrap().resolve("/pay", Resolution::Done(vec![int(7)])).await.unwrap();
    };
    let meanwhile = Meanwhile::new(proof.memory.clone(), saw_outputs, decide);
    let second = proof.engine_on(meanwhile.clone(), Options::default());
    let answer = proof.drive(proof.run_on(&second, start)).await;
    assert!(meanwhile.happened(), "it was decided while the run was settled");
    assert_eq!(answer, "y=7");
    proof.drive(second.close()).await.unwrap();
    proof.nothing_remains().await;
}

#[tokio::test]
async fn a_resolved_outcome_is_kept_like_a_computed_one() {
    let (mut kit, starts) = (Kit::default(), Arc::new(AtomicU64::new(0)));
    let pay = with(spec("pay", &[("x", Type::Int)], &[("out", Type::Int)]), Effect::AtMostOnce);
    kit.tasks.add(pay.clone(), Arc::new(Lossy(starts.clone())));
    let inc = inc(&mut kit);
    let g = G::new().input("x", Type::Int).input("z", Type::Int).output("y", Type::Int).output("p", Type::Int);
    let g = g.task("pay", &pay).task("inc", &inc).connect("x -> pay.x; pay.out -> p; z -> inc.x; inc.out -> y");
    let kept = Start { keep_ms: Some(1_000_000), ..start(g) }.input("x", int(1));
    let (first, second) = (kept.clone().input("z", int(1)), kept.input("z", int(2)));
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    proof.drive(engine.start(first.clone())).await.unwrap();
    proof.drive(until_more(&starts, 0)).await;
    proof.calm().await;
    engine.stop();
    drop(engine);
    free_all(&proof.memory).await;
    let engine = proof.engine();
    let handle = engine.find(&first.key).await.unwrap();
    let report = proof.drive(handle.wait()).await.unwrap();
    assert!(report.status == RunStatus::Waiting, "{report:?}");
    proof.drive(handle.resolve("/pay", Resolution::Done(vec![int(7)]))).await.unwrap();
    assert_eq!(proof.drive(proof.run_on(&engine, first)).await, "y=2 p=7");
    let before = starts.load(SeqCst);
    assert_eq!(proof.drive(proof.run_on(&engine, second)).await, "y=3 p=7");
    assert_eq!(starts.load(SeqCst), before, "what was decided is not asked again");
    proof.drive(engine.close()).await.unwrap();
    proof.nothing_remains().await;
}

/// Takes over the claim on a step that ends a run, as another worker would, and holds it for a while.
async fn take_over(memory: &Memory) {
    let (queue, shard) = (Group::queue("q"), Default::default());
    let claims = memory.scan(shard, Scan::of(queue.claims(), 10)).await.unwrap().rows;
    assert_eq!(claims.len(), 1, "somebody settles the run");
    let deadline = memory.now().await.unwrap().plus_ms(60_000);
    let mut batch = Batch::new(shard);
    for (name, _) in &claims {
        batch.put(queue.claims().key(name), Row::new(Fences::new(99).next().to_bytes()));
        batch.put(queue.deadlines().key(name), Row::new(deadline.to_sortable()));
    }
    assert!(memory.commit(batch).await.unwrap().is_applied());
}

#[tokio::test]
async fn a_lost_reply_never_announces_an_end_that_is_not_settled() {
    let ends = |batch: &Batch| {
        let is_head = |op: &Op| matches!(op, Op::Put(key, _) if key.group.id() == b"runs");
        batch.claim.is_some() && batch.ops.iter().any(is_head)
    };
    let stands_still = |batch: &Batch| {
        let is_failed = |row: &Row| rows::read::<RunState>(row).is_some_and(|state| state.phase.is_failed());
        batch.ops.iter().any(|op| matches!(op, Op::Put(key, row) if key.name.as_bytes() == b"s" && is_failed(row)))
    };
    type Settles = fn(&Batch) -> bool;
    let cases: [(Make, Settles); 2] = [(|kit| chain_of(kit, 1), ends), (unhandled, stands_still)];
    for (make, settles) in cases {
        let mut kit = Kit::default();
        let (start, expected) = make(&mut kit);
        let proof = Proof::new(&kit);
        let memory = proof.memory.clone();
        let taken_over = async move { take_over(&memory).await };
        let is_it = move |call: Call<'_>| matches!(call, Call::Sends(batch) if settles(batch));
        let meanwhile = Meanwhile::losing(proof.memory.clone(), is_it, taken_over);
        let engine = proof.engine_on(meanwhile.clone(), Options::default());
        let mut events = engine.events();
        let mut told = || {
            let all = std::iter::from_fn(|| events.try_recv().ok());
            all.filter(|event| matches!(event.kind, EventKind::DidEnd { .. })).count()
        };
        let handle = proof.drive(engine.start(start.clone())).await.unwrap();
        while !meanwhile.happened() {
            tokio::task::yield_now().await;
        }
        proof.calm().await;
        assert_eq!(told(), 0, "{expected}: another settles it");
        assert!(!handle.summary().await.unwrap().status.is_at_rest(), "{expected}");
        // The other worker is gone: the run is settled here, and its end reported once.
        assert_eq!(proof.drive(proof.run_on(&engine, start)).await, expected);
        proof.calm().await;
        assert_eq!(told(), 1, "{expected}");
        proof.drive(engine.close()).await.unwrap();
    }
}
