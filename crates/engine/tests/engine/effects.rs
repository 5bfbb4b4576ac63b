//! The meaning of "once" outside the store, for each effect.

mod held_up;
use crate::support;
mod threads;

use onceflow_core::{
    Group,
    model::{Effect, Port, TaskSpec, Type},
};
use onceflow_core::{Timestamp, protocol::keys};
use onceflow_engine::{
    Engine, Handle, Options, Resolution, RunStatus, Start,
    task::{Attempt, Body, Data, Step, Verdict},
};
use onceflow_store::{
    BoxFuture, Records, Store, World,
    backend::{
        embedded::Role,
        redis::{Address, Redis},
    },
    records::Scan,
    testing::{redis::shared_url, world::TestWorld},
    world::RealWorld,
};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::SeqCst},
    mpsc,
};
use support::{Bed, Kit, as_int, graphs::*, int, run, show};

/// A body whose first attempt starts and never reports an outcome.
struct Lossy {
    starts: Arc<AtomicU64>,
    verdict: Option<Verdict>,
}

impl Body for Lossy {
    fn start(&self, _: Step, inputs: Vec<Data>) -> Attempt {
        match self.starts.fetch_add(1, SeqCst) {
            0 => Attempt::Async(Box::pin(std::future::pending())),
            _ => Attempt::Done(Ok(vec![int(as_int(&inputs[0]) * 10)])),
        }
    }

    fn verify(&self, _: Step, _: Vec<Data>) -> Option<BoxFuture<'static, Verdict>> {
        let verdict = self.verdict.clone()?;
        Some(Box::pin(async move { verdict }))
    }
}

struct Lost {
    bed: Bed,
    world: Arc<TestWorld>,
    kit: Kit,
    start: Start,
    starts: Arc<AtomicU64>,
}

impl Lost {
    fn new(verdict: Option<Verdict>) -> Self {
        Lost::of(verdict, vec![Port::new("out", Type::Int)], |g, spec, inc| {
            let g = g.task("pay", spec).task("b", inc).output("p", Type::Int);
            g.connect("x -> a.x; a.out -> pay.x; pay.out -> b.x; b.out -> p")
        })
    }

    /// A payment with these outputs, in a flow that begins with `a`.
    fn of(verdict: Option<Verdict>, outputs: Vec<Port>, flow: impl Fn(G, &TaskSpec, &TaskSpec) -> G) -> Self {
        let world = TestWorld::new(1);
        let records = Arc::new(onceflow_store::backend::memory::Memory::new(world.clone() as Arc<dyn World>));
        let bed = Bed::on(records, world.clone());
        let mut kit = Kit::default();
        let inc = kit.task("inc", &["x"], |inputs| Ok(vec![int(as_int(&inputs[0]) + 1)]));
        let mut spec = TaskSpec::new("pay", vec![Port::new("x", Type::Int)], outputs);
        spec.effect = Effect::AtMostOnce;
        let starts = Arc::new(AtomicU64::new(0));
        kit.tasks.add(spec.clone(), Arc::new(Lossy { starts: starts.clone(), verdict }));
        let flow = flow(G::new().input("x", Type::Int).task("a", &inc), &spec, &inc).flow();
        let start = Start::new("r", flow).input("x", int(1));
        Lost { bed, world, kit, start, starts }
    }

    /// A worker starts the payment and dies; another worker finds the started step.
    async fn crash(&self) -> (Engine, Handle) {
        self.die().await;
        let second = self.bed.engine(&self.kit, Options::default());
        let handle = second.start(self.start.clone()).await.unwrap();
        (second, handle)
    }

    /// An engine that takes no steps, and the run.
    async fn idle(&self) -> (Engine, Handle) {
        let engine = self.bed.engine(&self.kit, Options { works: false, ..Options::default() });
        let handle = engine.find("r").await.unwrap();
        (engine, handle)
    }

    /// A worker starts the payment and dies.
    async fn die(&self) {
        // The next heartbeat is due long after the test.
        let first = self.bed.engine(&self.kit, Options { lease_ms: 86_400_000, ..Options::default() });
        first.start(self.start.clone()).await.unwrap();
        while self.starts.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        first.stop();
        drop(first);
        // A stopped worker sends a final heartbeat, which a killed one does not.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        // The dead worker sends no heartbeats any more: its claim is deleted, as at its deadline.
        let (queue, shard) = (Group::queue("q/default"), Default::default());
        let scan = onceflow_store::records::Scan::of(queue.claims(), 10);
        let claims = self.bed.records.scan(shard, scan).await.unwrap().rows;
        let mut batch = onceflow_core::Batch::new(shard);
        for (name, _) in &claims {
            batch.delete(queue.claims().key(name)).delete(queue.deadlines().key(name));
        }
        assert!(self.bed.records.commit(batch).await.unwrap().is_applied());
    }
}

#[tokio::test]
async fn an_unknown_payment_is_never_repeated_and_waits_for_a_decision() {
    let lost = Lost::new(None);
    let (engine, handle) = lost.crash().await;
    assert_eq!(lost.world.hurry(handle.wait()).await.unwrap().undecided, vec![String::from("/pay")]);
    assert_eq!(lost.starts.load(SeqCst), 1);
    assert!(handle.resolve("/nowhere", Resolution::Redo).await.is_err());
    handle.resolve("/pay", Resolution::Done(vec![int(500)])).await.unwrap();
    assert_eq!(show(&lost.world.hurry(handle.output("p")).await.unwrap()), "501");
    assert_eq!(lost.starts.load(SeqCst), 1);
    assert!(handle.resolve("/pay", Resolution::Redo).await.is_err());
    drop(engine);
}

#[tokio::test]
async fn a_payment_of_a_dead_worker_can_be_decided_before_a_takeover() {
    for (resolution, result, starts) in [
        (Resolution::Done(vec![int(500)]), Some("501"), 1),
        (Resolution::Redo, Some("21"), 2),
        (Resolution::Fail(String::from("the bank says no")), None, 1),
    ] {
        let lost = Lost::new(None);
        lost.die().await;
        let (idle, handle) = lost.idle().await;
        let begun = handle.steps().started_steps().await.unwrap();
        assert_eq!(begun.iter().map(|begun| begun.step.address.as_str()).collect::<Vec<_>>(), ["/pay"]);
        assert_eq!(begun[0].held_until, None);
        assert!(handle.resolve("/pay", resolution.clone()).await.is_err(), "it is not put aside yet");
        assert!(!handle.steps().mark_unknown("/pay", idle.incarnation()).await.unwrap(), "somebody else started it");
        let by = begun[0].by;
        assert!(
            handle.steps().mark_unknown("/pay", by).await.unwrap()
                && !handle.steps().mark_unknown("/pay", by).await.unwrap()
        );
        assert!(handle.steps().started_steps().await.unwrap().is_empty());
        handle.resolve("/pay", resolution).await.unwrap();
        idle.stop();
        let engine = lost.bed.engine(&lost.kit, Options::default());
        let handle = engine.start(lost.start.clone()).await.unwrap();
        match result {
            Some(result) => assert_eq!(show(&lost.world.hurry(handle.output("p")).await.unwrap()), result),
            None => drop(lost.world.hurry(handle.output("p")).await.unwrap_err()),
        }
        assert_eq!(lost.starts.load(SeqCst), starts);
        engine.stop();
    }
}

#[tokio::test]
async fn a_payment_with_a_live_worker_is_not_parked() {
    let lost = Lost::new(None);
    let engine = lost.bed.engine(&lost.kit, Options::default());
    let handle = engine.start(lost.start.clone()).await.unwrap();
    while lost.starts.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let begun = handle.steps().started_steps().await.unwrap();
    assert_eq!(begun[0].by, engine.incarnation());
    assert!(begun[0].held_until.is_some());
    let by = begun[0].by;
    assert!(
        !handle.steps().mark_unknown("/pay", by).await.unwrap()
            && !handle.steps().mark_unknown("/a", by).await.unwrap()
    );
    assert_eq!(handle.steps().started_steps().await.unwrap(), begun);
    engine.stop();
}

/// A body that ends when the test releases it.
struct Slow {
    starts: Arc<AtomicU64>,
    ends: Mutex<Option<tokio::sync::oneshot::Receiver<i64>>>,
}

impl Body for Slow {
    fn start(&self, _: Step, _: Vec<Data>) -> Attempt {
        self.starts.fetch_add(1, SeqCst);
        let ends = self.ends.lock().unwrap().take().expect("it starts once");
        Attempt::Async(Box::pin(async move { Ok(vec![int(ends.await.expect("the test says it"))]) }))
    }
}

/// The worker that ran a payment has lost its claim, and the step is not parked yet: whichever worker has claimed it
/// since, the late output of the body is its result.
#[tokio::test]
async fn late_result_is_committed_between_the_release_of_a_claim_and_the_parking() {
    for taken_over in [false, true] {
        let mut lost = Lost::new(None);
        let (tell, ends) = tokio::sync::oneshot::channel();
        let mut spec = TaskSpec::new("pay", vec![Port::new("x", Type::Int)], vec![Port::new("out", Type::Int)]);
        spec.effect = Effect::AtMostOnce;
        let starts = Arc::new(AtomicU64::new(0));
        let slow = Slow { starts: starts.clone(), ends: Mutex::new(Some(ends)) };
        lost.kit.tasks.add(spec, Arc::new(slow));
        // The next heartbeat is due long after the test.
        let engine = lost.bed.engine(&lost.kit, Options { lease_ms: 86_400_000, ..Options::default() });
        let handle = engine.start(lost.start.clone()).await.unwrap();
        while starts.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let (queue, shard) = (Group::queue("q/default"), Default::default());
        let claims = lost.bed.records.scan(shard, Scan::of(queue.claims(), 10)).await.unwrap().rows;
        assert_eq!(claims.len(), 1, "only the payment is claimed");
        let mut batch = onceflow_core::Batch::new(shard);
        for (name, _) in &claims {
            match taken_over {
                false => batch.delete(queue.claims().key(name)).delete(queue.deadlines().key(name)),
                true => batch.put(queue.claims().key(name), onceflow_core::Row::new([7; 24])),
            };
        }
        assert!(lost.bed.records.commit(batch).await.unwrap().is_applied());
        tell.send(500).unwrap();
        assert_eq!(show(&lost.world.hurry(handle.output("p")).await.unwrap()), "501", "taken over: {taken_over}");
        assert_eq!(starts.load(SeqCst), 1, "taken over: {taken_over}");
        assert!(handle.steps().started_steps().await.unwrap().is_empty());
        assert!(lost.bed.records.scan(shard, Scan::of(queue.claims(), 10)).await.unwrap().rows.is_empty());
        engine.stop();
    }
}

/// The outcome of a step is reported with exactly the outputs of its task. (Found by sim.)
#[tokio::test]
async fn a_resolved_task_takes_its_own_outputs_inside_any_container() {
    let silent = Lost::of(None, vec![], |g, spec, _| {
        let g = g.task("pay", spec).output("p", Type::Int);
        g.connect("x -> a.x; a.out -> pay.x; a.out -> p")
    });
    let handled = Lost::of(None, vec![Port::new("out", Type::Int)], |g, spec, _| {
        let g = g.attempt("pay", onceflow_core::model::graph::ModuleKind::Task(spec.clone().into()));
        let g = g.output("p", Type::option(Type::Int)).output("error", Type::option(Type::Text));
        g.connect("x -> a.x; a.out -> pay.x; pay.out -> p; pay.error -> error")
    });
    for (lost, outputs, result) in [(silent, vec![], "2"), (handled, vec![int(500)], "500")] {
        let (_engine, handle) = lost.crash().await;
        assert_eq!(lost.world.hurry(handle.wait()).await.unwrap().undecided, vec![String::from("/pay")]);
        handle.resolve("/pay", Resolution::Done(outputs)).await.unwrap();
        assert!(lost.world.hurry(handle.wait()).await.unwrap().status == RunStatus::Done);
        assert_eq!(show(&lost.world.hurry(handle.output("p")).await.unwrap()), result);
        assert_eq!(lost.starts.load(SeqCst), 1);
    }
}

#[tokio::test]
async fn an_unknown_payment_is_made_again_if_the_operator_says_so() {
    let lost = Lost::new(None);
    let (_engine, handle) = lost.crash().await;
    lost.world.hurry(handle.wait()).await.unwrap();
    handle.resolve("/pay", Resolution::Redo).await.unwrap();
    assert_eq!(show(&lost.world.hurry(handle.output("p")).await.unwrap()), "21");
    assert_eq!(lost.starts.load(SeqCst), 2);
}

#[tokio::test]
async fn an_unknown_payment_fails_if_the_operator_says_so() {
    let lost = Lost::new(None);
    let (_engine, handle) = lost.crash().await;
    lost.world.hurry(handle.wait()).await.unwrap();
    handle.resolve("/pay", Resolution::Fail(String::from("the bank says no"))).await.unwrap();
    let report = lost.world.hurry(handle.wait()).await.unwrap();
    assert_eq!(report.to_string(), "/pay failed at attempt 1: the bank says no");
}

#[tokio::test]
async fn its_own_check_decides_where_there_is_one() {
    for (verdict, result, starts) in [(Verdict::Done(vec![int(7)]), "8", 1), (Verdict::NotDone, "21", 2)] {
        let lost = Lost::new(Some(verdict));
        let (_engine, handle) = lost.crash().await;
        assert_eq!(show(&lost.world.hurry(handle.output("p")).await.unwrap()), result);
        assert_eq!(lost.starts.load(SeqCst), starts);
    }
}

/// Adds to a row of the flow and sends a message; waits between read and write until all attempts have read.
struct Deposit {
    runs: Arc<AtomicU64>,
}

impl Body for Deposit {
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt {
        self.runs.fetch_add(1, SeqCst);
        Attempt::Async(Box::pin(async move {
            let tx = step.tx().expect("a transactional step has one").clone();
            let balance =
                tx.get("balance").await.unwrap().map_or(0, |bytes| i64::from_be_bytes(bytes[..].try_into().unwrap()));
            tokio::task::yield_now().await;
            let balance = balance + as_int(&inputs[0]);
            tx.put("balance", balance.to_be_bytes());
            tx.send(format!("{balance}"));
            Ok(vec![int(balance)])
        }))
    }
}

#[tokio::test]
async fn transactional_writes_commit_with_their_step_and_conflicts_run_again() {
    let (bed, mut kit) = (Bed::new(), Kit::default());
    let mut spec = TaskSpec::new("deposit", vec![Port::new("x", Type::Int)], vec![Port::new("y", Type::Int)]);
    spec.effect = Effect::Transactional;
    let runs = Arc::new(AtomicU64::new(0));
    kit.tasks.add(spec.clone(), Arc::new(Deposit { runs: runs.clone() }));
    let body = G::new().input("x", Type::Int).output("y", Type::Int).task("deposit", &spec);
    let body = body.connect("x -> deposit.x; deposit.y -> y").graph();
    let g = G::new().input("xs", Type::list(Type::Int)).output("ys", Type::list(Type::Int));
    let flow = g.module("each", each(body)).connect("xs -> each.x; each.y -> ys").flow();
    let engine = bed.engine(&kit, Options::default());
    let start = Start::new("r", flow).input("xs", support::ints(1..=20));
    run(&engine, start).await;
    let rows = engine.flow_rows("main");
    assert_eq!(rows.get("balance").await.unwrap().unwrap()[..], 210_i64.to_be_bytes());
    let sent = rows.outbox(100).await.unwrap();
    assert_eq!(sent.len(), 20);
    assert!(runs.load(SeqCst) >= 20);
    for message in &sent {
        rows.taken(message).await.unwrap();
        rows.taken(message).await.unwrap();
    }
    assert!(rows.outbox(100).await.unwrap().is_empty());
    engine.close().await.unwrap();
}

/// A body that blocks its thread: in its first call, or when it is first polled.
struct Blocks {
    starts: Arc<AtomicU64>,
    gate: Arc<Mutex<mpsc::Receiver<()>>>,
    at_once: bool,
}

impl Body for Blocks {
    fn start(&self, _: Step, inputs: Vec<Data>) -> Attempt {
        let (starts, gate) = (self.starts.clone(), self.gate.clone());
        let block = move || {
            starts.fetch_add(1, SeqCst);
            gate.lock().unwrap().recv().unwrap();
            Ok(vec![int(as_int(&inputs[0]) + 1)])
        };
        match self.at_once {
            true => Attempt::Done(block()),
            false => Attempt::Async(Box::pin(async move { block() })),
        }
    }
}

const LEASE_MS: u64 = 60;

/// Waits until heartbeats have moved the deadlines of all claimed steps by several leases.
async fn several_leases(records: &dyn Records, lease_ms: u64) {
    let queue = keys::class_queue(&TaskSpec::new("t", vec![], vec![]).class);
    let mut first = None;
    loop {
        let page = records.scan(Default::default(), Scan::of(queue.deadlines(), 10)).await.unwrap();
        let now = page.rows.iter().map(|(_, row)| Timestamp::from_sortable(row).unwrap()).min();
        first = first.or(now);
        if now.zip(first).is_some_and(|(now, first)| now.ms_since(first) > 4 * lease_ms) {
            return;
        }
        std::thread::yield_now();
    }
}

async fn blocks_for_several_leases(bed: &Bed, lease_ms: u64, effect: Effect, at_once: bool) {
    let mut kit = Kit::default();
    let mut spec = TaskSpec::new("blocks", vec![Port::new("x", Type::Int)], vec![Port::new("out", Type::Int)]);
    spec.effect = effect;
    let (starts, (go, gate)) = (Arc::new(AtomicU64::new(0)), mpsc::channel());
    let gate = Arc::new(Mutex::new(gate));
    kit.tasks.add(spec.clone(), Arc::new(Blocks { starts: starts.clone(), gate, at_once }));
    let g = G::new().input("x", Type::Int).task("a", &spec).task("b", &spec).output("p", Type::Int);
    let g = g.output("q", Type::Int).connect("x -> a.x; x -> b.x; a.out -> p; b.out -> q");
    let start = Start::new(format!("{effect:?} {at_once}"), g.flow()).input("x", int(1));
    let records = bed.records.clone();
    // The second step waits for the thread that the first one blocks.
    let opener = async move {
        several_leases(&*records, lease_ms).await;
        go.send(()).and_then(|()| go.send(())).unwrap();
    };
    bed.world.dedicate("opener", Box::pin(opener));
    let engine = bed.engine(&kit, Options { lease_ms, fuse: false, ..Options::default() });
    assert_eq!(run(&engine, start).await, "p=2 q=2", "{effect:?}");
    assert_eq!(starts.load(SeqCst), 2, "{effect:?}: bodies started");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_body_that_blocks_its_thread_for_several_leases_starts_once() {
    for effect in [Effect::Pure, Effect::Idempotent, Effect::AtMostOnce] {
        blocks_for_several_leases(&Bed::new(), LEASE_MS, effect, false).await;
        blocks_for_several_leases(&Bed::new(), LEASE_MS, effect, true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_body_that_blocks_the_only_worker_thread_starts_once() {
    blocks_for_several_leases(&Bed::new(), LEASE_MS, Effect::Idempotent, false).await;
    blocks_for_several_leases(&Bed::new(), LEASE_MS, Effect::AtMostOnce, false).await;
}

/// A lease that a heartbeat over a connection keeps on a busy machine, too.
const REMOTE_LEASE_MS: u64 = 150;

#[tokio::test]
async fn a_body_that_blocks_its_thread_for_several_leases_as_a_guest_starts_once() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, guest) = (Store::open(dir.path()).await.unwrap(), Store::open(dir.path()).await.unwrap());
    assert!(matches!(guest.role(), Some(Role::Guest { .. })));
    let bed = Bed::on(guest.records(), RealWorld::here());
    for effect in [Effect::Idempotent, Effect::AtMostOnce] {
        blocks_for_several_leases(&bed, REMOTE_LEASE_MS, effect, false).await;
        blocks_for_several_leases(&bed, REMOTE_LEASE_MS, effect, true).await;
    }
    assert!(matches!(guest.role(), Some(Role::Guest { .. })));
    guest.close().await.unwrap();
    owner.close().await.unwrap();
}

#[tokio::test]
async fn a_body_that_blocks_its_thread_for_several_leases_on_a_server_starts_once() {
    let world = RealWorld::here();
    let redis = Redis::connect(Address::parse(&shared_url()).unwrap(), world.clone()).await.unwrap();
    let bed = Bed::on(Arc::new(redis), world);
    for effect in [Effect::Idempotent, Effect::AtMostOnce] {
        blocks_for_several_leases(&bed, REMOTE_LEASE_MS, effect, false).await;
        blocks_for_several_leases(&bed, REMOTE_LEASE_MS, effect, true).await;
    }
}
