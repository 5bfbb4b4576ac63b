//! Signs of life: the deadlines of what this worker has taken are moved on while it works, and steps of workers that
//! gave no sign for too long become free again.

use super::Worker;
use crate::{Error, shared::lock};
use futures_util::future::select;
use onceflow_core::{
    Batch, Fence, Group, Name, Row, Timestamp,
    limits::SCAN_ROWS_MAX,
    protocol::{
        ids::{Generation, RunId},
        rows::{Phase, State},
        step::Taken,
    },
};
use onceflow_store::{Outcome, records::Scan};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};
use tokio::sync::Notify;

/// The steps whose body is at work.
#[derive(Default)]
pub(crate) struct Alive {
    working: Mutex<BTreeMap<Fence, Working>>,
    /// The same by their names in their queues.
    names: Mutex<BTreeMap<Name, Fence>>,
    /// No body may go on that may be stopped.
    interrupted: AtomicBool,
    /// Rings when a body begins to be watched.
    pub(super) began: Notify,
}

#[derive(Clone)]
struct Working {
    queue: Group,
    name: Name,
    bell: Arc<Bell>,
    whose: Whose,
    /// Attempts that had failed when it was taken.
    failed: u32,
}

/// Whose step it is, and what may stop it.
#[derive(Clone, Copy)]
pub(crate) struct Whose {
    pub(crate) run: RunId,
    pub(crate) generation: Generation,
    /// It ends when its run is cancelled.
    pub(crate) ends_with_run: bool,
    /// It ends when the worker shall end at once.
    pub(crate) ends_at_once: bool,
}

/// Why a body ends before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The step was taken from us.
    Lost,
    /// Its run goes on without it: it was cancelled, planned anew, or has ended.
    Cancelled,
    /// The worker ends.
    Interrupted,
}

#[derive(Default)]
struct Bell {
    why: Mutex<Option<Stop>>,
    rings: Notify,
}

impl Bell {
    fn ring(&self, stop: Stop) {
        lock(&self.why).get_or_insert(stop);
        self.rings.notify_waiters();
    }
}

/// A step stays ours while this lives.
pub(crate) struct Heartbeat<'a> {
    alive: &'a Alive,
    fence: Fence,
    name: Name,
    bell: Arc<Bell>,
}

impl Heartbeat<'_> {
    /// Ends when the body must.
    pub(crate) async fn stopped(&self) -> Stop {
        loop {
            let rings = self.bell.rings.notified();
            if let Some(why) = *lock(&self.bell.why) {
                return why;
            }
            rings.await;
        }
    }
}

impl Drop for Heartbeat<'_> {
    fn drop(&mut self) {
        lock(&self.alive.working).remove(&self.fence);
        let mut names = lock(&self.alive.names);
        if names.get(&self.name) == Some(&self.fence) {
            names.remove(&self.name);
        }
    }
}

impl Alive {
    /// Keeps the claim on a step alive.
    pub(crate) fn keep(&self, taken: &Taken, whose: Whose) -> Heartbeat<'_> {
        let bell = Arc::new(Bell::default());
        let (queue, name) = (taken.queue.clone(), taken.name.clone());
        let working = Working { queue, name, bell: bell.clone(), whose, failed: taken.ticket.failed };
        lock(&self.names).insert(taken.name.clone(), taken.fence);
        let is_first = {
            let mut all = lock(&self.working);
            all.insert(taken.fence, working);
            all.len() == 1
        };
        if whose.ends_at_once && self.interrupted.load(SeqCst) {
            bell.ring(Stop::Interrupted);
        }
        if is_first {
            self.began.notify_one();
        }
        Heartbeat { alive: self, fence: taken.fence, name: taken.name.clone(), bell }
    }

    /// Under which claim the body of a step is at work here.
    pub(crate) fn at_work(&self, name: &Name) -> Option<Fence> {
        lock(&self.names).get(name).copied()
    }

    /// Whether bodies shall end at once.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(SeqCst)
    }

    /// Ends all bodies that may be stopped, also those that are yet to begin.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, SeqCst);
        for working in lock(&self.working).values().filter(|working| working.whose.ends_at_once) {
            working.bell.ring(Stop::Interrupted);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        lock(&self.working).is_empty()
    }

    /// The runs that bodies are at work for which end with them.
    pub(super) fn runs(&self) -> BTreeSet<RunId> {
        lock(&self.working).values().filter(|working| working.whose.ends_with_run).map(|it| it.whose.run).collect()
    }

    /// Ends the bodies of a run that is so now.
    pub(super) fn end_those_of(&self, run: RunId, state: Option<State>) {
        for working in lock(&self.working).values().filter(|it| it.whose.run == run && it.whose.ends_with_run) {
            let goes_on = state.is_some_and(|state| {
                // One that is frozen may go on as it was.
                let is_open = matches!(state.phase, Phase::Running | Phase::Failing | Phase::Frozen);
                state.generation == working.whose.generation && is_open
            });
            if !goes_on {
                working.bell.ring(Stop::Cancelled);
            }
        }
    }
}

impl Worker {
    /// Gives signs of life, and frees what others left, a few times in the life of a lease.
    pub(super) async fn stay_alive(self: Arc<Self>) {
        let pause_ms = (self.shared.options.lease_ms / 3).max(1);
        let mut pause = self.shared.world.sleep(pause_ms);
        loop {
            let stopped = self.stopped.notified();
            if self.is_stopping() && self.busy.load(SeqCst) == 0 {
                return;
            }
            select(pause, std::pin::pin!(stopped)).await;
            // From here, so that a store that is slow to answer does not make the signs rarer.
            pause = self.shared.world.sleep(pause_ms);
            let working: Vec<_> =
                lock(&self.alive.working).iter().map(|(fence, working)| (*fence, working.clone())).collect();
            let renewed = self.renew(working).await;
            let freed = self.free_abandoned().await;
            if let Err(error) = renewed.and(freed) {
                tracing::warn!(%error, "signs of life could not be given");
            }
        }
    }

    async fn renew(&self, working: Vec<(Fence, Working)>) -> Result<(), Error> {
        let deadline = self.shared.records.now().await?.plus_ms(self.shared.options.lease_ms);
        for (fence, Working { queue, name, bell, whose, failed }) in working {
            let mut batch = Batch::new(self.shared.shard());
            batch.require_equals(queue.claims().key(&name), Row::new(fence.to_bytes()));
            batch.put(queue.deadlines().key(&name), Row::new(deadline.to_sortable()));
            if let Outcome::Refused(_) = self.shared.records.commit(batch).await?
                && lock(&self.alive.working).contains_key(&fence)
                && !self.shared.claim_again(&queue, &name, fence, whose.generation, failed).await?
            {
                tracing::warn!(step = ?name, "a step was taken from this worker, which was too slow to say it lives");
                bell.ring(Stop::Lost);
            }
        }
        Ok(())
    }

    /// Frees steps whose deadline has passed. A renewal changes the deadline, and wins.
    pub(crate) async fn free_abandoned(&self) -> Result<usize, Error> {
        let (now, mut freed) = (self.shared.records.now().await?, 0);
        if onceflow_core::hazard::is_on("abandoned-for-ever") {
            return Ok(0);
        }
        for queue in self.room.all_queues() {
            let mut after = None;
            loop {
                let scan = Scan::of(queue.deadlines(), SCAN_ROWS_MAX).after(after);
                let page = self.shared.records.scan(self.shared.shard(), scan).await?;
                for (name, row) in &page.rows {
                    let passed = Timestamp::from_sortable(row).is_none_or(|deadline| deadline <= now);
                    if passed && self.free(&queue, name, row).await? {
                        freed += 1;
                    }
                }
                after = page.rows.last().map(|(name, _)| name.clone());
                if !page.more {
                    break;
                }
            }
        }
        Ok(freed)
    }

    async fn free(&self, queue: &Group, name: &Name, deadline: &Row) -> Result<bool, Error> {
        let (claim, due) = (queue.claims().key(name), queue.deadlines().key(name));
        let Some(fence) = self.shared.row(claim.clone()).await? else { return Ok(false) };
        let mut batch = Batch::new(self.shared.shard());
        batch.require_equals(claim.clone(), fence);
        if !onceflow_core::hazard::is_on("takeover-despite-renewal") {
            batch.require_equals(due.clone(), deadline.clone());
        }
        batch.delete(claim).delete(due);
        Ok(self.shared.records.commit(batch).await?.is_applied())
    }
}
