//! Builds small durable scopes whose messages are numbers, and drives them on a store in memory.

use crate::support::{Kit, proof::Proof};
use onceflow_core::{
    Batch, Key, Row, Shard, Timestamp,
    batch::BatchLimits,
    scope::{
        BufferKeep, CleanupFlow, CleanupWhen, Distribution, Emitted, Feed, Instruction, JoinInput, OpId, OpKind,
        Operation, Scope, ScopeDraft, TaskMode,
    },
};
use onceflow_engine::scope::{
    DeliveryRule, DurableBody, DurableCleanup, DurableEnd, DurableScope, ScopeHost, ScopeHostOptions,
};
use onceflow_store::{
    BoxFuture, CommitResult, Records, World,
    records::{Page, Position, Scan},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

pub(super) fn number(row: &Row) -> i64 {
    std::str::from_utf8(row).unwrap().parse().unwrap()
}

pub(super) fn row(number: i64) -> Row {
    Row::new(number.to_string())
}

/// A system outside that performs each request once, by its key.
#[derive(Clone, Default)]
pub(super) struct Outside(Arc<Mutex<BTreeMap<String, String>>>);

impl Outside {
    pub(super) fn perform(&self, key: &str, what: String) {
        let before = self.0.lock().unwrap().insert(key.to_owned(), what.clone());
        assert!(before.is_none_or(|before| before == what), "one key stands for two requests");
    }

    pub(super) fn performed(&self) -> Vec<String> {
        let mut all: Vec<_> = self.0.lock().unwrap().values().cloned().collect();
        all.sort();
        all
    }
}

/// The clock of a world, which a test moves.
struct Clock(Arc<dyn World>);

impl Clock {
    fn wait(&self, ms: u64) -> onceflow_store::BoxFuture<'static, ()> {
        self.0.sleep(ms)
    }
}

#[derive(Default)]
pub(super) struct Rig {
    pub(super) draft: ScopeDraft,
    bodies: Vec<DurableBody>,
    cleanups: Vec<DurableCleanup>,
    deliveries: BTreeMap<OpId, DeliveryRule>,
}

impl Rig {
    /// Lets an operation take its messages one at a time, or the newest only.
    pub(super) fn in_turn(&mut self, op: OpId, preempt: bool) {
        let rule = move |_: &Row| Ok(Instruction { preempt, ..Instruction::default() });
        self.deliveries.insert(op, Arc::new(rule));
    }

    pub(super) fn op(&mut self, name: &str, kind: OpKind, body: DurableBody, ports: usize) -> OpId {
        let id = OpId(u32::try_from(self.draft.ops.len()).unwrap());
        self.draft.ops.push(Operation { name: name.to_owned(), kind, outputs: vec![None; ports] });
        self.draft.start.get_or_insert(id);
        self.bodies.push(body);
        id
    }

    pub(super) fn link(&mut self, from: OpId, port: usize, to: OpId) {
        self.draft.ops[from.at()].outputs[port] = Some(to);
    }

    /// Links the first ports of operations one after the other.
    pub(super) fn chain(&mut self, ops: &[OpId]) {
        for pair in ops.windows(2) {
            self.link(pair[0], 0, pair[1]);
        }
    }

    pub(super) fn clone_to(&mut self, name: &str, targets: &[OpId]) -> OpId {
        let id = self.op(name, OpKind::Clone, DurableBody::None, targets.len());
        targets.iter().enumerate().for_each(|(port, target)| self.link(id, port, *target));
        id
    }

    pub(super) fn buffer(&mut self, name: &str) -> OpId {
        self.op(name, OpKind::Buffer { keep: BufferKeep::All }, DurableBody::None, 0)
    }

    pub(super) fn terminate(&mut self) -> OpId {
        self.op("the end", OpKind::Terminate, DurableBody::None, 0)
    }

    pub(super) fn cancel(&mut self) -> OpId {
        self.op("the cancel", OpKind::Cancel { implicit: false }, DurableBody::None, 0)
    }

    pub(super) fn map(&mut self, name: &str, map: impl Fn(i64) -> i64 + Send + Sync + 'static) -> OpId {
        let body = inline(move |feed| Emitted::One(0, row(map(one(&feed)))));
        self.op(name, OpKind::Task { mode: TaskMode::Blocking, streams: 0 }, body, 1)
    }

    /// A fork: port 0 if the test holds, else port 1.
    pub(super) fn fork(&mut self, name: &str, test: impl Fn(i64) -> bool + Send + Sync + 'static) -> OpId {
        let body = inline(move |feed| Emitted::One(u32::from(!test(one(&feed))), row(one(&feed))));
        self.op(name, OpKind::Distribute(Distribution::Fork), body, 2)
    }

    /// Spreads a number `n` as `0..n`.
    pub(super) fn spread(&mut self, name: &str) -> OpId {
        let body = inline(|feed| Emitted::Many((0..one(&feed)).map(|n| (0, row(n))).collect()));
        self.op(name, OpKind::Distribute(Distribution::Spread), body, 1)
    }

    /// Collects, and gives the digits in order: nested sessions end in any.
    pub(super) fn collect(&mut self, name: &str, min: u32, max: Option<u32>) -> OpId {
        let body = inline(|feed| {
            let mut bytes = digits(feed).to_vec();
            bytes.sort_unstable();
            Emitted::One(0, Row::new(bytes))
        });
        self.op(name, OpKind::Collect { min, max }, body, 1)
    }

    pub(super) fn join(&mut self, name: &str, buffers: &[OpId]) -> OpId {
        let inputs = buffers.iter().map(|buffer| JoinInput { buffer: *buffer, by_clone: false }).collect();
        self.op(name, OpKind::Join { inputs }, inline(|feed| Emitted::One(0, digits(feed))), 1)
    }

    /// An activity that performs something outside, after some time.
    pub(super) fn activity(&mut self, name: &'static str, world: &Arc<dyn World>, outside: &Outside, ms: u64) -> OpId {
        let (world, outside) = (world.clone(), outside.clone());
        let body = move |activity: onceflow_engine::scope::Activity| {
            let (pause, outside) = (Clock(world.clone()).wait(ms), outside.clone());
            let body: onceflow_store::BoxFuture<'static, _> = Box::pin(async move {
                if ms > 0 {
                    pause.await;
                }
                let Feed::One(message) = activity.feed else { return Err(String::from("one message")) };
                outside.perform(&activity.key, format!("{name} {}", String::from_utf8_lossy(&message)));
                Ok(Emitted::One(0, message))
            });
            body
        };
        let kind = OpKind::Task { mode: TaskMode::Async, streams: 0 };
        self.op(name, kind, DurableBody::Activity(Arc::new(body)), 1)
    }

    /// Passes a number on after so much time.
    pub(super) fn rest(&mut self, name: &str, ms: u64) -> OpId {
        self.op(name, OpKind::Task { mode: TaskMode::Async, streams: 0 }, DurableBody::Sleep { ms }, 1)
    }

    pub(super) fn nested(&mut self, name: &str, scope: &Arc<DurableScope>) -> OpId {
        let streams = u32::try_from(scope.scope().streams().len()).unwrap();
        let kind = OpKind::Task { mode: TaskMode::Flow, streams };
        self.op(name, kind, DurableBody::Flow(scope.clone()), 1 + streams as usize)
    }

    /// A cleanup flow that gets all entries of a buffer, as digits.
    pub(super) fn cleanup(
        &mut self,
        name: &str,
        when: CleanupWhen,
        buffer: OpId,
        timeout_ms: Option<u64>,
        scope: Arc<DurableScope>,
    ) {
        self.draft.cleanups.push(CleanupFlow { name: name.to_owned(), when, buffers: vec![buffer], timeout_ms });
        let first =
            move |access: &mut onceflow_engine::scope::BufferAccess<'_>| digits(Feed::Many(access.pull_all(buffer)));
        self.cleanups.push(DurableCleanup { scope, first: Arc::new(first) });
    }

    pub(super) fn build(self) -> Arc<DurableScope> {
        let scope = Scope::check(self.draft).expect("a scope without faults");
        let describe = |_: OpId, row: &Row| Some(String::from_utf8_lossy(row).into_owned());
        DurableScope::with_deliveries(scope, self.bodies, self.cleanups, self.deliveries, Arc::new(describe))
    }
}

/// A scope of one activity, for cleanups: it says what it found.
pub(super) fn says(name: &'static str, world: &Arc<dyn World>, outside: &Outside, ms: u64) -> Arc<DurableScope> {
    let mut rig = Rig::default();
    let (say, end) = (rig.activity(name, world, outside, ms), rig.terminate());
    rig.chain(&[say, end]);
    rig.build()
}

fn one(feed: &Feed<Row>) -> i64 {
    match feed {
        Feed::One(message) => number(message),
        _ => panic!("not one message"),
    }
}

fn digits(feed: Feed<Row>) -> Row {
    let Feed::Many(messages) = feed else { panic!("not several messages") };
    Row::new(messages.iter().map(|message| String::from_utf8_lossy(message).into_owned()).collect::<String>())
}

pub(super) fn inline(body: impl Fn(Feed<Row>) -> Emitted<Row> + Send + Sync + 'static) -> DurableBody {
    DurableBody::Inline(Arc::new(move |feed, _: &mut _| Ok(body(feed))))
}

/// A case: a scope and its input; then the end, and all that happened outside.
pub(super) struct Case {
    pub(super) scope: Arc<DurableScope>,
    pub(super) input: i64,
    pub(super) outside: Outside,
    pub(super) end: &'static str,
    pub(super) performed: &'static [&'static str],
}

pub(super) type MakeCase = fn(&Arc<dyn World>) -> Case;

pub(super) fn words(end: &DurableEnd) -> String {
    let mut words = match &end.result {
        Ok(row) => String::from_utf8_lossy(row).into_owned(),
        Err(cancelled) => cancelled.to_string(),
    };
    for (stream, message) in &end.streamed {
        words += &format!(" {stream}={}", String::from_utf8_lossy(message));
    }
    for mishap in &end.mishaps {
        words += &format!(" ({mishap})");
    }
    words
}

pub(super) struct Bed {
    pub(super) proof: Proof,
    pub(super) world: Arc<dyn World>,
}

impl Bed {
    pub(super) fn new() -> Self {
        let proof = Proof::new(&Kit::default());
        let world: Arc<dyn World> = proof.world.clone();
        Bed { proof, world }
    }

    pub(super) fn host(&self, records: Arc<dyn Records>, scope: &Arc<DurableScope>) -> Arc<ScopeHost> {
        let values = self.proof.values(records.clone());
        let options = ScopeHostOptions { lease_ms: 3_000, ..ScopeHostOptions::default() };
        ScopeHost::start(records, values, self.world.clone(), options, [(String::from("case"), scope.clone())])
    }

    /// No row is left in the store.
    pub(super) fn nothing_remains(&self, place: &str) {
        let left = self.proof.memory.state().all();
        assert!(left.is_empty(), "{place}: left\n{}\n{left:?}", self.proof.rows());
    }
}

/// A store that takes batches of the size that a server takes.
pub(super) struct ServerSized(pub(super) Arc<dyn Records>);

impl Records for ServerSized {
    fn get<'a>(
        &'a self,
        shard: Shard,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Vec<Option<Row>>, onceflow_store::Error>> {
        self.0.get(shard, keys)
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, onceflow_store::Error>> {
        self.0.scan(shard, scan)
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, onceflow_store::Error>> {
        Box::pin(async move {
            batch.check_within(BatchLimits::SERVER)?;
            self.0.commit(batch).await
        })
    }

    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), onceflow_store::Error>> {
        self.0.durable(position)
    }

    fn position(&self) -> Position {
        self.0.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, onceflow_store::Error>> {
        self.0.now()
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), onceflow_store::Error>> {
        self.0.wait(shard, seen, until)
    }

    fn batch_limits(&self) -> BatchLimits {
        BatchLimits::SERVER
    }
}

/// Opens the session of a case and waits for its end.
pub(super) async fn enter(host: &ScopeHost, input: i64) -> Result<DurableEnd, onceflow_engine::Error> {
    let id = host.open("case", "key", row(input)).await?;
    let end = host.end(id).await?;
    host.forget(id).await?;
    Ok(end)
}
