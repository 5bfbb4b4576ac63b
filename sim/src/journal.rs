//! The real journal behind the simulated store: every batch that happens is also written, by the real code, to a real log
//! on a simulated disk. When its owner dies, or the power is cut, what the real code makes of the torn files must be a
//! prefix of what happened, with all that was durable; and the world goes on with that.

use crate::{
    executor::{OUTSIDE, Sim, lock},
    truth::Truth,
};
use onceflow_core::{Batch, Timestamp};
use onceflow_store::{
    BoxFuture, Error, Position, Records, World,
    backend::journal::{Journal, Options},
    state::StoreState,
    testing::disk::Disk,
};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tokio::sync::Notify;

/// A real journal on a simulated disk.
pub struct Shadow {
    sim: Arc<Sim>,
    truth: Arc<Mutex<Truth>>,
    world: Arc<JournalWorld>,
    /// The log is folded into a snapshot when it has so many bytes.
    snapshot_bytes: u64,
    inner: Mutex<Inner>,
    /// Rings when there is something to write, or something was.
    bell: Notify,
}

struct Inner {
    disk: Disk,
    journal: Arc<Journal>,
    /// How often it was opened.
    life: u64,
    /// What is to be written: the position it has in the store, and when that was.
    queue: VecDeque<(Position, Batch, Timestamp)>,
    /// The last that was written: its position in the store, and in the journal.
    written: (Position, Position),
}

/// The store's clock, as the journal is to see it.
struct JournalWorld {
    sim: Arc<Sim>,
    clock_ms: AtomicU64,
}

impl World for JournalWorld {
    fn clock(&self) -> Timestamp {
        Timestamp::from_ms(self.clock_ms.load(Relaxed))
    }

    fn random(&self) -> u128 {
        self.sim.random(|random| u128::from(random.bits()) + 1)
    }

    fn sleep(&self, ms: u64) -> BoxFuture<'static, ()> {
        Box::pin(self.sim.sleep(ms))
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.sim.spawn(OUTSIDE, name, task);
    }

    fn dedicate(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.spawn(name, task);
    }
}

impl Shadow {
    /// An empty one.
    pub fn new(sim: Arc<Sim>, truth: Arc<Mutex<Truth>>) -> Arc<Self> {
        let world = Arc::new(JournalWorld { sim: sim.clone(), clock_ms: AtomicU64::new(0) });
        let (disk, snapshot_bytes) = (Disk::new(), 4_096 << sim.below(6));
        let options = Options { snapshot_log_bytes_min: snapshot_bytes, ..Options::default() };
        let (journal, _) = Journal::open(Arc::new(disk.clone()), options, world.clone()).expect("an empty disk");
        let written = (Position(0), journal.position());
        let inner = Inner { disk, journal: Arc::new(journal), life: 0, queue: VecDeque::new(), written };
        let (inner, bell) = (Mutex::new(inner), Notify::new());
        let shadow = Arc::new(Shadow { sim, truth, world, snapshot_bytes, inner, bell });
        shadow.write_on();
        shadow
    }

    /// A batch happened.
    pub fn happened(&self, position: Position, batch: &Batch, now: Timestamp) {
        lock(&self.inner).queue.push_back((position, batch.clone(), now));
        self.bell.notify_waiters();
    }

    /// Starts to write what happens, until the journal is opened again.
    fn write_on(self: &Arc<Self>) {
        let (shadow, life) = (self.clone(), lock(&self.inner).life);
        let write = async move {
            loop {
                let bell = shadow.bell.notified();
                let mut bell = std::pin::pin!(bell);
                bell.as_mut().enable();
                let next = {
                    let mut inner = lock(&shadow.inner);
                    if inner.life != life {
                        return;
                    }
                    inner.queue.pop_front().map(|next| (next, inner.journal.clone()))
                };
                match next {
                    Some(((position, batch, now), journal)) => shadow.write(life, &journal, position, batch, now).await,
                    None => bell.await,
                }
            }
        };
        self.sim.spawn(OUTSIDE, "the journal", Box::pin(write));
    }

    async fn write(&self, life: u64, journal: &Journal, position: Position, batch: Batch, now: Timestamp) {
        self.world.clock_ms.store(now.as_ms(), Relaxed);
        let outcome = journal.commit(batch).await;
        let mut inner = lock(&self.inner);
        if inner.life != life {
            return;
        }
        match outcome {
            Ok(outcome) if outcome.is_applied() => inner.written = (position, outcome.position()),
            other => {
                let seen = format!("batch {} happened, and the journal says {other:?}", position.0);
                lock(&self.truth).violate("all backends behave alike", seen);
            }
        }
        self.bell.notify_waiters();
    }

    /// Ends when the disk has everything up to there, or the journal died first.
    pub async fn until_durable(&self, position: Position) -> Result<(), Error> {
        let life = lock(&self.inner).life;
        let (journal, there) = loop {
            let bell = self.bell.notified();
            let mut bell = std::pin::pin!(bell);
            bell.as_mut().enable();
            {
                let inner = lock(&self.inner);
                if inner.life != life {
                    return Err(Error::Unavailable("the journal was opened again".into()));
                }
                if inner.written.0 >= position {
                    break (inner.journal.clone(), inner.written.1);
                }
            }
            bell.await;
        };
        journal.durable(there).await
    }

    /// Its owner died, or its machine lost power: what the real code makes of the disk. `position` is what is applied next in
    /// the store, which has everything that is found.
    pub fn reopen(self: &Arc<Self>, power_cut: bool, position: Position) -> Option<StoreState> {
        let seed = self.sim.random(|random| random.bits());
        let mut inner = lock(&self.inner);
        let disk = if power_cut { inner.disk.after_power_cut(seed) } else { inner.disk.after_kill() };
        inner.life += 1;
        inner.queue.clear();
        // The old one writes on, to a disk that no node reads any more.
        crate::executor::poll_once(inner.journal.close());
        let options = Options { snapshot_log_bytes_min: self.snapshot_bytes, ..Options::default() };
        match Journal::open(Arc::new(disk.clone()), options, self.world.clone()) {
            Ok((journal, recovered)) => {
                self.sim.tell(|| format!("the journal is opened again: {recovered:?}"));
                let state = journal.state();
                inner.written = (position, journal.position());
                (inner.disk, inner.journal) = (disk, Arc::new(journal));
                drop(inner);
                self.bell.notify_waiters();
                self.write_on();
                Some(state)
            }
            Err(error) => {
                let seen =
                    format!("after {} it cannot be opened: {error}", if power_cut { "a power cut" } else { "a kill" });
                lock(&self.truth).violate("a journal outlives any crash", seen);
                None
            }
        }
    }
}
