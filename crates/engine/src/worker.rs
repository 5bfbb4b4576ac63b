//! Claims ready steps and performs them, as many at a time as its capacity allows. All its knowledge comes from the
//! store, so killing it costs only time.
//!
//! One task, the dispatcher, claims a step when a slot is free and hands it to the slot. The slot performs it, and the
//! batch that commits the step also claims the next, so a chain of steps stays in its slot, at one batch a step.

mod alive;
pub(crate) mod announce;
mod capacity;
pub(crate) mod unserved;
mod watch;

use crate::{Error, perform::Job, shared::Shared};
use alive::Hold;
pub(crate) use alive::{Alive, Heartbeat, Stop, Whose};
pub(crate) use capacity::{Capacity, Reserved, Slot};
use futures_util::future::{Either, select};
use onceflow_core::{Batch, Claim, Claimed, Fence, Timestamp};
use onceflow_store::{BoxFuture, Committed, Position, records};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};
use tokio::sync::{Notify, futures::Notified, watch::Sender};

/// A worker: claims steps and performs them until it is stopped.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) capacity: Capacity,
    pub(crate) alive: Alive,
    pub(crate) announcement: announce::Announcement,
    pub(crate) troubles: crate::perform::patience::Troubles,
    stopping: AtomicBool,
    busy: AtomicUsize,
    /// The worker claims no steps yet.
    waits: AtomicBool,
    /// Signals that steps may be claimed.
    goes: Notify,
    /// Signals that the worker is to stop.
    stopped: Notify,
    /// Signals that a slot has ended.
    ended: Notify,
    /// The store's last error that it is full.
    full: Sender<Option<String>>,
}

impl Worker {
    pub(crate) fn start(shared: Arc<Shared>) -> Arc<Self> {
        let capacity = Capacity::new(&shared.options);
        let worker = Arc::new(Worker {
            shared: shared.clone(),
            capacity,
            alive: Alive::default(),
            announcement: announce::Announcement::default(),
            troubles: crate::perform::patience::Troubles::default(),
            stopping: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            waits: AtomicBool::new(shared.options.waits),
            goes: Notify::new(),
            stopped: Notify::new(),
            ended: Notify::new(),
            full: Sender::default(),
        });
        shared.world.spawn("onceflow dispatch", Box::pin(worker.clone().dispatch()));
        shared.world.spawn("onceflow watch", Box::pin(worker.clone().watch_runs()));
        // User code may block its runtime for longer than a lease, so heartbeats are sent from another one.
        let service = onceflow_store::world::service(&shared.world);
        service.spawn("onceflow heartbeat", Box::pin(worker.clone().stay_alive()));
        if shared.options.about.is_some() {
            service.spawn("onceflow announce", Box::pin(worker.clone().announce()));
        }
        worker
    }

    /// Claims no further steps.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.stopped.notify_waiters();
        self.capacity.ring();
    }

    /// Claims no further steps, and ends the bodies of those it has, but for at-most-once bodies.
    pub(crate) fn interrupt(&self) {
        self.stop();
        self.alive.interrupt();
    }

    /// Claims steps from now on.
    pub(crate) fn go(&self) {
        self.waits.store(false, SeqCst);
        self.goes.notify_waiters();
    }

    /// Ends when steps may be claimed, or the worker is to stop.
    async fn until_it_goes(&self) {
        loop {
            let (mut goes, mut stopped) =
                (std::pin::pin!(self.goes.notified()), std::pin::pin!(self.stopped.notified()));
            goes.as_mut().enable();
            stopped.as_mut().enable();
            if !self.waits.load(SeqCst) || self.is_stopping() {
                return;
            }
            select(goes, stopped).await;
        }
    }

    /// Claims no further steps; ends when those it has are done.
    pub(crate) async fn drain(&self) {
        /// The interval at which it logs the steps it waits for.
        const TELL_MS: u64 = 10_000;
        self.stop();
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            let busy = self.busy.load(SeqCst);
            if busy == 0 {
                return;
            }
            if let Either::Right(_) = select(ended, self.shared.world.sleep(TELL_MS)).await {
                tracing::warn!(steps = busy, "closing waits for steps that have not ended: {}", self.alive.told());
            }
        }
    }

    /// The number of steps it has.
    pub(crate) fn slots(&self) -> usize {
        // While the worker may claim steps, the dispatcher is counted too.
        let dispatcher = usize::from(!self.is_stopping());
        self.busy.load(SeqCst).saturating_sub(dispatcher)
    }

    /// Waits until the store is too full for an output or a claim; answers its error.
    pub(crate) async fn full(&self) -> String {
        let mut full = self.full.subscribe();
        let said = full.wait_for(Option::is_some).await.expect("the sender is here as long as we are");
        said.clone().unwrap_or_default()
    }

    pub(crate) fn note(&self, error: &Error) {
        if error.is_full() {
            self.full.send_replace(Some(error.to_string()));
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Hands ready steps to slots, while there are ready steps and free slots.
    async fn dispatch(self: Arc<Self>) {
        // The dispatcher counts as busy while it may be claiming a step.
        self.busy.fetch_add(1, SeqCst);
        let _ended = Ended(self.clone());
        let _dropped = Dropped(&self);
        self.until_it_goes().await;
        while !self.is_stopping() {
            let mut slot = self.capacity.slot().await;
            let (seen, changed) = (self.shared.records.position(), self.capacity.changed());
            match self.take(&slot).await {
                Ok(Some(job)) => {
                    self.capacity.assign(&mut slot, &job.claimed.queue);
                    self.clone().spawn_slot(job, slot);
                }
                Ok(None) => {
                    slot.release();
                    if !self.finds_unserved().await {
                        self.wait(seen, changed).await;
                    }
                }
                Err(error) => {
                    drop(slot);
                    self.trouble(&error).await;
                }
            }
        }
    }

    /// Waits until a step may be ready.
    async fn wait(&self, seen: Position, changed: Notified<'_>) {
        let stopped = self.stopped.notified();
        if self.is_stopping() {
            return;
        }
        let Ok(now) = self.shared.records.now().await else { return self.pause().await };
        let until = now.plus_ms(self.shared.options.lease_ms);
        let ready = self.shared.records.wait(self.shared.shard(), seen, until);
        let (room, stopped) = (std::pin::pin!(changed), std::pin::pin!(stopped));
        let woken = select(room, stopped);
        if let Either::Left((Err(error), _)) = select(ready, woken).await {
            self.trouble(&error.into()).await;
        }
    }

    /// Logs that the store did not answer, and pauses before the next try.
    async fn trouble(&self, error: &Error) {
        tracing::warn!(%error, "the store did not answer; retrying");
        self.note(error);
        self.pause().await;
    }

    async fn pause(&self) {
        const PAUSE_MS: u64 = 200;
        self.pause_for(PAUSE_MS).await;
    }

    /// Waits, unless the worker is to stop.
    async fn pause_for(&self, ms: u64) {
        let mut stopped = std::pin::pin!(self.stopped.notified());
        stopped.as_mut().enable();
        if !self.is_stopping() {
            select(self.shared.world.sleep(ms), stopped).await;
        }
    }

    /// Claims a ready step.
    async fn take(&self, slot: &Slot) -> Result<Option<Job>, Error> {
        let Some(asked) = self.ask(slot) else { return Ok(None) };
        let mut batch = Batch::new(self.shared.shard());
        batch.claim = Some(asked.claim.clone());
        let claimed = match self.shared.records.commit(batch).await {
            Ok(result) => return Ok(result.applied().and_then(|committed| asked.job(committed))),
            Err(records::Error::Unknown(_)) => self.shared.find_claim(&asked.claim).await?,
            Err(error) => return Err(error.into()),
        };
        Ok(asked.job(Committed { position: self.shared.records.position(), fired: vec![], claimed }))
    }

    fn spawn_slot(self: Arc<Self>, job: Job, slot: Slot) {
        self.busy.fetch_add(1, SeqCst);
        let world = self.shared.world.clone();
        // Made here, so that a slot whose runtime is dropped before it gets its turn has ended too.
        let ended = Ended(self.clone());
        let hold = self.hold(&job);
        let slot: BoxFuture<'static, ()> = Box::pin(async move {
            self.work(job, hold, slot).await;
            drop(ended);
        });
        world.spawn("onceflow slot", slot);
    }

    /// Performs a step, and each step that the commit of the last one claimed.
    async fn work(self: &Arc<Self>, job: Job, hold: Result<Hold, Fence>, mut slot: Slot) {
        let mut next = Some((job, hold));
        while let Some((job, hold)) = next {
            self.capacity.assign(&mut slot, &job.claimed.queue);
            let had_trouble = self.troubles.of(&job.claimed.name) > 0;
            let performed = match &hold {
                Ok(_) => self.perform_if_ours(&job, &mut slot).await,
                Err(before) => self.restore_claim(&job, *before).await.map(|()| None),
            };
            next = match performed {
                Ok(next) => {
                    if had_trouble {
                        self.troubles.forget(&job.claimed.name);
                    }
                    next.map(|next| {
                        let hold = self.hold(&next);
                        (next, hold)
                    })
                }
                Err(error) => {
                    self.failed(&job, &error, hold).await;
                    None
                }
            };
        }
    }

    async fn perform_if_ours(&self, job: &Job, slot: &mut Slot) -> Result<Option<Job>, Error> {
        if self.is_still_ours(job).await? { self.perform(job, slot).await } else { Ok(None) }
    }

    /// Gives a step back that the engine could not perform, after a pause that grows with every failure, so that it is
    /// retried.
    async fn failed(&self, job: &Job, error: &Error, hold: Result<Hold, Fence>) {
        tracing::error!(%error, step = ?job.claimed.name, "failed to perform a step; giving it back");
        self.note(error);
        self.pause_for(self.pause_after(&job.claimed.name)).await;
        drop(hold);
        let Job { claimed: Claimed { queue, name, .. }, fence, .. } = job;
        let mut batch = Batch::new(self.shared.shard());
        let claim = queue.claims().key(name);
        batch.require_equals(claim.clone(), onceflow_core::Row::new(fence.to_bytes()));
        batch.delete(claim).delete(queue.deadlines().key(name));
        if let Err(error) = self.shared.records.commit(batch).await {
            tracing::warn!(%error, "failed to give a step back; its claim will expire");
        }
    }

    /// The claim that a commit carries, unless this worker is stopping.
    pub(crate) fn claim_next(&self, slot: &Slot) -> Option<Asked> {
        if self.is_stopping() { None } else { self.ask(slot) }
    }

    fn ask(&self, slot: &Slot) -> Option<Asked> {
        let claim = self.shared.next_claim(self.capacity.queues(slot))?;
        Some(Asked { claim, at: self.shared.world.clock() })
    }
}

/// A claim on its way, and when it was sent: the lease may run out before the reply is read.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) claim: Claim,
    at: Timestamp,
}

impl Asked {
    /// The step that the batch with this claim took.
    pub(crate) fn job(&self, committed: Committed) -> Option<Job> {
        let Committed { position, claimed, .. } = committed;
        claimed.map(|claimed| Job { claimed, fence: self.claim.fence, position, asked: self.at })
    }
}

/// Closes the engine when its runtime is dropped before the worker is stopped, so that waiting callers return.
struct Dropped<'a>(&'a Worker);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        if !self.0.is_stopping() {
            tracing::warn!("the runtime of this engine was dropped; the engine is closed");
            self.0.stop();
            self.0.shared.close();
        }
    }
}

/// Counts a slot as ended when dropped, also if it panicked.
struct Ended(Arc<Worker>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, SeqCst);
        self.0.ended.notify_waiters();
        if self.0.is_stopping() {
            self.0.stopped.notify_waiters();
        }
    }
}
