//! Heartbeats: the worker renews the deadlines of its claims until their steps commit, and frees steps of workers whose
//! deadlines have passed. They are sent from the service thread of the [world](onceflow_store::World::service), so that
//! a body that blocks its thread does not stop them. A worker never frees a step that it has itself.

use super::Worker;
use crate::{Error, perform::Job, seams, shared::lock};
use futures_util::future::select;
use onceflow_core::{
    Batch, Claimed, Fence, Group, Name, Row, Timestamp,
    limits::SCAN_ROWS_MAX,
    protocol::{
        ids::{Generation, RunId},
        rows::{Phase, State},
        step::Taken,
    },
};
use onceflow_store::records::Scan;
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};
use tokio::sync::Notify;

/// The steps that this worker has claimed, and those whose bodies run.
#[derive(Default)]
pub(crate) struct Alive {
    /// All claimed steps that are not done, also while their task waits for a thread.
    held: Mutex<BTreeMap<Fence, Held>>,
    /// Held steps with running work that can be told to end.
    working: Mutex<BTreeMap<Fence, Working>>,
    /// The claims of held steps, by their names in their queues.
    names: Mutex<BTreeMap<Name, Fence>>,
    /// Bodies that may be stopped must end.
    interrupted: AtomicBool,
    /// Signals that a body began to be watched.
    pub(super) began: Notify,
}

/// A claimed step: its queue, its name there, and its ready row when it was claimed.
type Held = (Group, Name, Row);

#[derive(Clone)]
struct Working {
    bell: Arc<Bell>,
    whose: Whose,
}

/// The run of a step, and what may stop its work.
#[derive(Clone, Copy)]
pub(crate) struct Whose {
    pub(crate) run: RunId,
    pub(crate) generation: Generation,
    /// The work ends when its run is cancelled.
    pub(crate) ends_with_run: bool,
    /// The work ends when the worker is interrupted.
    pub(crate) ends_at_once: bool,
}

/// The reason why a body ends before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Another worker has the step.
    Lost,
    /// Its run was cancelled, has a new plan, or has ended.
    Cancelled,
    /// The worker was interrupted.
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

/// Keeps the heartbeats of a claimed step until it is dropped.
pub(super) struct Hold {
    worker: Arc<Worker>,
    fence: Fence,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.worker.alive.release(self.fence);
    }
}

/// Tells running work when it must end, until it is dropped.
pub(crate) struct Heartbeat<'a> {
    alive: &'a Alive,
    fence: Fence,
    bell: Arc<Bell>,
}

impl Heartbeat<'_> {
    /// Ends when the work must end.
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
    }
}

impl Alive {
    /// Stops the heartbeats of a step, before it is given back: a heartbeat would claim it again.
    pub(crate) fn release(&self, fence: Fence) {
        let Some((_, name, _)) = lock(&self.held).remove(&fence) else { return };
        let mut names = lock(&self.names);
        if names.get(&name) == Some(&fence) {
            names.remove(&name);
        }
    }

    /// The names of some steps that this worker has, for logs.
    pub(super) fn told(&self) -> String {
        const TOLD_MAX: usize = 10;
        let held = lock(&self.held);
        let steps = held.values().take(TOLD_MAX).map(|(_, name, _)| format!("{name:?}"));
        steps.collect::<Vec<_>>().join(", ")
    }

    /// This worker has a step under that claim.
    fn holds(&self, fence: Fence) -> bool {
        lock(&self.held).contains_key(&fence)
    }

    /// Watches over running work: it is told when it must end.
    pub(crate) fn keep(&self, taken: &Taken, whose: Whose) -> Heartbeat<'_> {
        let bell = Arc::new(Bell::default());
        let working = Working { bell: bell.clone(), whose };
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
        Heartbeat { alive: self, fence: taken.fence, bell }
    }

    /// The claim under which this worker has a step.
    pub(crate) fn claim_of(&self, name: &Name) -> Option<Fence> {
        lock(&self.names).get(name).copied()
    }

    /// The worker was interrupted.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(SeqCst)
    }

    /// Ends all bodies that may be stopped, also those that have not begun.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, SeqCst);
        for working in lock(&self.working).values().filter(|working| working.whose.ends_at_once) {
            working.bell.ring(Stop::Interrupted);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        lock(&self.working).is_empty()
    }

    /// The runs whose end would stop running work.
    pub(super) fn runs(&self) -> BTreeSet<RunId> {
        lock(&self.working).values().filter(|working| working.whose.ends_with_run).map(|it| it.whose.run).collect()
    }

    /// Ends the work of a run that, in this state, goes on without it.
    pub(super) fn end_those_of(&self, run: RunId, state: Option<State>) {
        for working in lock(&self.working).values().filter(|it| it.whose.run == run && it.whose.ends_with_run) {
            let goes_on = state.is_some_and(|state| {
                // A frozen run may resume as it was.
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
    /// Sends heartbeats, and frees abandoned steps, three times in a lease.
    pub(super) async fn stay_alive(self: Arc<Self>) {
        let pause_ms = (self.shared.options.lease_ms / 3).max(1);
        let mut pause = self.shared.world.sleep(pause_ms);
        loop {
            let stopped = self.stopped.notified();
            if self.is_stopping() && self.busy.load(SeqCst) == 0 {
                return;
            }
            select(pause, std::pin::pin!(stopped)).await;
            // The pause begins here, so that a slow store does not make heartbeats rarer.
            pause = self.shared.world.sleep(pause_ms);
            let held: Vec<_> = lock(&self.alive.held).iter().map(|(fence, step)| (*fence, step.clone())).collect();
            let renewed = self.renew(held).await;
            let freed = self.free_abandoned().await;
            if let Err(error) = renewed.and(freed) {
                tracing::warn!(%error, "failed to send heartbeats; retrying in {pause_ms} ms");
            }
        }
    }

    /// Starts the heartbeats of a claimed step. Fails with the other claim if this worker has the step already: the
    /// store had forgotten that claim.
    pub(super) fn hold(self: &Arc<Self>, job: &Job) -> Result<Hold, Fence> {
        let (Claimed { queue, name, row, .. }, fence) = (&job.claimed, job.fence);
        match lock(&self.alive.names).entry(name.clone()) {
            Entry::Occupied(has) if *has.get() != fence => return Err(*has.get()),
            entry => *entry.or_insert(fence),
        };
        lock(&self.alive.held).insert(fence, (queue.clone(), name.clone(), row.clone()));
        Ok(Hold { worker: self.clone(), fence })
    }

    /// A step that was just claimed is still ours. It is renewed if so much time has passed that the claim may have
    /// expired: the reply was late, or user code blocked this thread.
    pub(super) async fn is_still_ours(&self, job: &Job) -> Result<bool, Error> {
        let waited_ms = self.shared.world.clock().ms_since(job.asked);
        if waited_ms < self.shared.options.lease_ms / 3 {
            return Ok(true);
        }
        let Claimed { queue, name, .. } = &job.claimed;
        let deadline = self.shared.records.now().await?.plus_ms(self.shared.options.lease_ms);
        self.renew_one(queue, name, job.fence, deadline).await
    }

    async fn renew_one(&self, queue: &Group, name: &Name, fence: Fence, deadline: Timestamp) -> Result<bool, Error> {
        let mut batch = Batch::new(self.shared.shard());
        batch.require_equals(queue.claims().key(name), Row::new(fence.to_bytes()));
        batch.put(queue.deadlines().key(name), Row::new(deadline.to_sortable()));
        Ok(self.shared.records.commit(batch).await?.is_applied())
    }

    async fn renew(&self, held: Vec<(Fence, Held)>) -> Result<(), Error> {
        let deadline = self.shared.records.now().await?.plus_ms(self.shared.options.lease_ms);
        for (fence, (queue, name, row)) in held {
            let is_ours = self.renew_one(&queue, &name, fence, deadline).await?
                || !self.alive.holds(fence)
                || self.shared.claim_again(&queue, &name, fence, &row).await?;
            if !is_ours && let Some(working) = lock(&self.alive.working).get(&fence) {
                tracing::warn!(step = ?name, "lost a step to another worker: the heartbeats of this one came too late");
                working.bell.ring(Stop::Lost);
            }
        }
        Ok(())
    }

    /// Frees steps whose deadline has passed. A renewal changes the deadline, and wins.
    pub(crate) async fn free_abandoned(&self) -> Result<usize, Error> {
        let (now, mut freed) = (self.shared.records.now().await?, 0);
        if !seams::frees_abandoned() {
            return Ok(0);
        }
        for queue in self.capacity.all_queues() {
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
        if Fence::from_bytes(&fence).is_some_and(|fence| self.alive.holds(fence)) {
            // Its heartbeat is late, and comes: a worker does not take over from itself.
            return Ok(false);
        }
        let mut batch = Batch::new(self.shared.shard());
        batch.require_equals(claim.clone(), fence);
        seams::require_deadline(&mut batch, due.clone(), deadline.clone());
        batch.delete(claim).delete(due);
        Ok(self.shared.records.commit(batch).await?.is_applied())
    }
}
