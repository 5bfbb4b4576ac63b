//! Who changes values, call by call: an actor does one call whenever it is let, and remembers all it was told.

use super::scene::{Do, perform};
use crate::executor::lock;
use onceflow_core::{Batch, Key, Row, Shard, Timestamp};
use onceflow_store::{
    BoxFuture, CommitResult, Error as StoreError, Page, Position, Records, World,
    backend::memory::Memory,
    records::Scan,
    values::{Error, Values},
};
use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

/// The rows, and the time.
pub(super) struct Table {
    memory: Arc<Memory>,
    world: Arc<Still>,
}

impl Table {
    pub(super) fn new() -> Self {
        let world = Arc::new(Still { now_ms: Arc::new(AtomicU64::new(1_000_000)), actor: 0 });
        Table { memory: Arc::new(Memory::new(world.clone())), world }
    }

    /// Values as an actor sees them that need not wait.
    pub(super) fn values(&self) -> Values {
        Values::new(self.memory.clone(), self.world.clone(), Shard(0))
    }

    pub(super) fn rows(&self) -> Vec<(Shard, Key, Row)> {
        self.memory.state().all()
    }

    pub(super) fn pass(&self, ms: u64) {
        self.world.now_ms.fetch_add(ms, Relaxed);
    }
}

/// Time that passes only when it is told to, and no chance.
struct Still {
    now_ms: Arc<AtomicU64>,
    actor: u128,
}

impl World for Still {
    fn clock(&self) -> Timestamp {
        Timestamp::from_ms(self.now_ms.load(Relaxed))
    }

    /// Asked once, by who makes fences.
    fn random(&self) -> u128 {
        self.actor
    }

    fn sleep(&self, _: u64) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn spawn(&self, name: &'static str, _: BoxFuture<'static, ()>) {
        panic!("{name} is not explored");
    }

    fn dedicate(&self, name: &'static str, _: BoxFuture<'static, ()>) {
        panic!("{name} is not explored");
    }
}

/// What the next call of an actor comes to.
#[derive(Default)]
struct Gate {
    /// Whether it may happen, and whether its answer is lost.
    next: Option<bool>,
    /// All that was answered.
    told: blake3::Hasher,
}

/// An actor at work.
pub(super) struct Actor {
    work: Option<BoxFuture<'static, ()>>,
    gate: Arc<Mutex<Gate>>,
    answers: Arc<Mutex<Vec<Result<(), Error>>>>,
    died: bool,
}

impl Actor {
    /// Begins, up to the first call.
    pub(super) fn start(table: &Table, actor: u128, does: &'static [Do]) -> Self {
        let (gate, answers) = (Arc::<Mutex<Gate>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let line = Arc::new(Line { memory: table.memory.clone(), gate: gate.clone() });
        let world = Arc::new(Still { now_ms: table.world.now_ms.clone(), actor });
        let (values, told) = (Values::new(line, world, Shard(0)), answers.clone());
        let work = async move {
            let answers = perform(&values, does).await;
            *lock(&told) = answers;
        };
        let mut actor = Actor { work: Some(Box::pin(work)), gate, answers, died: false };
        actor.go_on();
        actor
    }

    pub(super) fn is_over(&self) -> bool {
        self.work.is_none()
    }

    /// The next call happens.
    pub(super) fn call(&mut self, is_lost: bool) {
        lock(&self.gate).next = Some(is_lost);
        self.go_on();
    }

    pub(super) fn die(&mut self) {
        self.work = None;
        self.died = true;
    }

    /// Whether what it did went well, each in turn.
    pub(super) fn answers(&self) -> Vec<bool> {
        lock(&self.answers).iter().map(Result::is_ok).collect()
    }

    fn go_on(&mut self) {
        let Some(work) = &mut self.work else { return };
        if let Poll::Ready(()) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            self.work = None;
        }
    }

    /// All that makes two actors different: who is dead has forgotten everything.
    pub(super) fn digest(&self) -> [u8; 32] {
        match (&self.work, self.died) {
            (None, true) => [1; 32],
            (None, false) => *blake3::hash(format!("{:?}", self.answers()).as_bytes()).as_bytes(),
            (Some(_), _) => *lock(&self.gate).told.finalize().as_bytes(),
        }
    }
}

/// An actor's way to the store: every call waits until it may happen.
struct Line {
    memory: Arc<Memory>,
    gate: Arc<Mutex<Gate>>,
}

impl Line {
    /// Waits, does it, and answers; or does it, and the answer is lost.
    async fn pass<T: std::fmt::Debug>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
        lost: fn(Arc<str>) -> StoreError,
    ) -> Result<T, StoreError> {
        let is_lost = poll_fn(|_| lock(&self.gate).next.take().map_or(Poll::Pending, Poll::Ready)).await;
        let answer = call.await;
        let answer = if is_lost { Err(lost("explored".into())) } else { answer };
        lock(&self.gate).told.update(format!("{answer:?}").as_bytes());
        answer
    }
}

// What is asked of the memory is asked when the call may happen, not before.
impl Records for Line {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(self.pass(async move { self.memory.get(shard, keys).await }, StoreError::Unavailable))
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(self.pass(async move { self.memory.scan(shard, scan).await }, StoreError::Unavailable))
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, StoreError>> {
        Box::pin(self.pass(async move { self.memory.commit(batch).await }, StoreError::Unknown))
    }

    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), StoreError>> {
        self.memory.durable(position)
    }

    fn position(&self) -> Position {
        self.memory.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        Box::pin(self.pass(async move { self.memory.now().await }, StoreError::Unavailable))
    }

    fn wait(&self, _: Shard, _: Position, _: Timestamp) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
