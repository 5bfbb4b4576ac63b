//! The scheduler: one thread, virtual time, and every choice from one seed.
//!
//! A task belongs to an incarnation of a node. Whenever several tasks could go on, chance picks one; when none can, time
//! jumps to the next timer. A crash drops all tasks of a node at whatever await they stand; a pause leaves them standing.

use onceflow_store::{BoxFuture, testing::random::Random};
use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
};

/// Which machine; node 0 is the outside: users, the network, those who do harm.
pub type NodeId = usize;

/// The outside.
pub const OUTSIDE: NodeId = 0;

/// Takes a lock; a panic elsewhere is the scenario's failure and is told there.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The simulated machine room.
pub struct Sim {
    inner: Mutex<Inner>,
    ready: Mutex<Vec<u64>>,
    random: Mutex<Random>,
    trace: Option<Mutex<Vec<String>>>,
}

#[derive(Default)]
struct Inner {
    now_ms: u64,
    ready_steps: u64,
    tasks: BTreeMap<u64, Task>,
    timers: BTreeMap<(u64, u64), Waker>,
    /// By node: until when it is paused, and which incarnation lives.
    nodes: BTreeMap<NodeId, Node>,
    polls: u64,
    digest: u64,
}

#[derive(Clone, Copy, Default)]
struct Node {
    incarnation: u64,
    paused_until_ms: u64,
}

struct Task {
    node: NodeId,
    name: &'static str,
    future: Option<BoxFuture<'static, ()>>,
    waker: Arc<TaskWaker>,
}

struct TaskWaker {
    sim: std::sync::Weak<Sim>,
    id: u64,
    queued: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Relaxed)
            && let Some(sim) = self.sim.upgrade()
        {
            lock(&sim.ready).push(self.id);
        }
    }
}

/// What a look at the machine room came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something happened.
    Went,
    /// No task waits for anything that could come.
    Still,
}

impl Sim {
    /// An empty room with the chance of this seed.
    pub fn new(seed: u64, traced: bool) -> Arc<Self> {
        Arc::new(Sim {
            inner: Mutex::default(),
            ready: Mutex::default(),
            random: Mutex::new(Random::new(seed)),
            trace: traced.then(Mutex::default),
        })
    }

    /// Virtual time, in milliseconds since the beginning.
    pub fn now_ms(&self) -> u64 {
        lock(&self.inner).now_ms
    }

    /// How often a task went on.
    pub fn polls(&self) -> u64 {
        lock(&self.inner).polls
    }

    /// Says which choices were made: equal for equal replays.
    pub fn digest(&self) -> u64 {
        lock(&self.inner).digest
    }

    /// Uses chance.
    pub fn random<T>(&self, with: impl FnOnce(&mut Random) -> T) -> T {
        with(&mut lock(&self.random))
    }

    /// A number below this.
    pub fn below(&self, end: u64) -> u64 {
        self.random(|random| random.below(end as usize) as u64)
    }

    /// True in so many of a thousand cases.
    pub fn per_mille(&self, per_mille: u32) -> bool {
        per_mille > 0 && self.random(|random| random.per_mille(per_mille))
    }

    /// Writes down what happened, if a trace is wanted.
    pub fn tell(&self, line: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let line = format!("{:>9} ms  {}", self.now_ms(), line());
            lock(trace).push(line);
        }
    }

    /// What was written down.
    pub fn told(&self) -> Vec<String> {
        self.trace.as_ref().map(|trace| lock(trace).clone()).unwrap_or_default()
    }

    /// Runs a task on a node beside everything else.
    pub fn spawn(self: &Arc<Self>, node: NodeId, name: &'static str, future: BoxFuture<'static, ()>) {
        let mut inner = lock(&self.inner);
        inner.ready_steps += 1;
        let id = inner.ready_steps;
        let waker = Arc::new(TaskWaker { sim: Arc::downgrade(self), id, queued: AtomicBool::new(true) });
        inner.tasks.insert(id, Task { node, name, future: Some(future), waker });
        lock(&self.ready).push(id);
    }

    /// The incarnation of a node that lives now.
    pub fn incarnation(&self, node: NodeId) -> u64 {
        lock(&self.inner).nodes.get(&node).map_or(0, |node| node.incarnation)
    }

    /// Ends all tasks of a node, wherever they stand.
    pub fn crash(&self, node: NodeId) {
        let mut dropped = Vec::new();
        {
            let mut inner = lock(&self.inner);
            let entry = inner.nodes.entry(node).or_default();
            entry.incarnation += 1;
            entry.paused_until_ms = 0;
            let ids: Vec<_> = inner.tasks.iter().filter(|(_, task)| task.node == node).map(|(id, _)| *id).collect();
            for id in ids {
                dropped.extend(inner.tasks.remove(&id));
            }
        }
        drop(dropped);
    }

    /// Lets a node stand still, as if its process were stopped.
    pub fn pause(&self, node: NodeId, ms: u64) {
        let mut inner = lock(&self.inner);
        let until = inner.now_ms + ms;
        inner.nodes.entry(node).or_default().paused_until_ms = until;
    }

    /// Lets every node go on.
    pub fn resume_all(&self) {
        lock(&self.inner).nodes.values_mut().for_each(|node| node.paused_until_ms = 0);
    }

    /// Lets time pass all at once. Tasks that waited for it come later.
    pub fn jump(&self, ms: u64) {
        lock(&self.inner).now_ms += ms;
    }

    /// Ends after so much virtual time; with 0, after others had a chance.
    pub fn sleep(self: &Arc<Self>, ms: u64) -> Sleep {
        let mut inner = lock(&self.inner);
        inner.ready_steps += 1;
        let place = (inner.now_ms.saturating_add(ms), inner.ready_steps);
        Sleep { sim: self.clone(), place, yielded: ms > 0 }
    }

    /// Lets one task go on, or time pass.
    pub fn step(self: &Arc<Self>) -> Step {
        loop {
            match self.pick() {
                Some(id) => {
                    self.poll(id);
                    return Step::Went;
                }
                None if self.pass_time() => {}
                None => return Step::Still,
            }
        }
    }

    /// A task that can go on.
    fn pick(&self) -> Option<u64> {
        let inner = lock(&self.inner);
        let mut ready = lock(&self.ready);
        ready.retain(|id| inner.tasks.contains_key(id));
        let paused = |id: &u64| {
            let node = inner.tasks[id].node;
            inner.nodes.get(&node).is_some_and(|node| node.paused_until_ms > inner.now_ms)
        };
        if ready.is_empty() {
            return None;
        }
        let any_paused = inner.nodes.values().any(|node| node.paused_until_ms > inner.now_ms);
        if !any_paused {
            let at = self.random(|random| random.below(ready.len()));
            return Some(ready.swap_remove(at));
        }
        let able: Vec<_> = (0..ready.len()).filter(|at| !paused(&ready[*at])).collect();
        if able.is_empty() {
            return None;
        }
        let at = able[self.random(|random| random.below(able.len()))];
        Some(ready.swap_remove(at))
    }

    fn poll(&self, id: u64) {
        let (mut future, waker) = {
            let mut inner = lock(&self.inner);
            inner.polls += 1;
            let mixed = (inner.digest ^ id ^ inner.now_ms.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            inner.digest = mixed.rotate_left(23);
            let Some(task) = inner.tasks.get_mut(&id) else { return };
            task.waker.queued.store(false, Relaxed);
            let Some(future) = task.future.take() else { return };
            (future, task.waker.clone())
        };
        let waker = Waker::from(waker);
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut inner = lock(&self.inner);
        let gone = match inner.tasks.get_mut(&id) {
            // It was crashed, by itself.
            None => Some(future),
            Some(_) if done => {
                inner.tasks.remove(&id);
                Some(future)
            }
            Some(task) => {
                task.future = Some(future);
                None
            }
        };
        drop(inner);
        drop(gone);
    }

    /// Lets time pass until a task can go on. False if no task waits for time.
    fn pass_time(&self) -> bool {
        let mut inner = lock(&self.inner);
        let now = inner.now_ms;
        let timer = inner.timers.keys().next().map(|(at, _)| *at);
        let resumed = inner.nodes.values().map(|node| node.paused_until_ms).filter(|at| *at > now).min();
        let Some(next) = [timer, resumed].into_iter().flatten().min() else { return false };
        inner.now_ms = next.max(now);
        let reached = (inner.now_ms, u64::MAX);
        let later = inner.timers.split_off(&reached);
        let due = std::mem::replace(&mut inner.timers, later);
        drop(inner);
        due.into_values().for_each(Waker::wake);
        true
    }

    /// Ends everything, so that nothing refers to anything any more.
    pub fn clear(&self) {
        loop {
            let tasks = std::mem::take(&mut lock(&self.inner).tasks);
            if tasks.is_empty() {
                break;
            }
            drop(tasks);
        }
        let timers = std::mem::take(&mut lock(&self.inner).timers);
        drop(timers);
    }

    /// The names of the tasks that are there, for when nothing happens any more.
    pub fn tasks(&self) -> Vec<String> {
        lock(&self.inner).tasks.values().map(|task| format!("{} on node {}", task.name, task.node)).collect()
    }
}

/// A wait for virtual time.
pub struct Sleep {
    sim: Arc<Sim>,
    place: (u64, u64),
    yielded: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.yielded {
            self.yielded = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut inner = lock(&self.sim.inner);
        if inner.now_ms >= self.place.0 {
            return Poll::Ready(());
        }
        inner.timers.insert(self.place, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let waker = lock(&self.sim.inner).timers.remove(&self.place);
        drop(waker);
    }
}

/// Polls a future that waits for no other task: all others stand still meanwhile.
///
/// # Panics
/// Polls once, and forgets it.
pub fn poll_once<T>(future: impl Future<Output = T>) {
    let mut context = Context::from_waker(Waker::noop());
    drop(std::pin::pin!(future).poll(&mut context));
}

/// If it waits.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100_000 {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
    }
    panic!("something that must not wait does");
}
