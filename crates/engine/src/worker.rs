//! Claims ready steps and performs them, as many at a time as its capacity allows. All its knowledge comes from the
//! store, so killing it costs only time.
//!
//! One task, the dispatcher, claims a step when a slot is free and hands it to the slot. The slot performs it, and the
//! batch that commits the step also claims the next, so a chain of steps stays in its slot, at one batch a step.

pub(crate) mod announce;
mod capacity;
mod runner;
pub(crate) mod unserved;
mod watch;

use crate::{
    Error,
    kernel::{Asked, Busy, Drain, Heartbeats, Hold, Job},
    shared::Shared,
};
pub(crate) use capacity::{Capacity, Reserved, Slot};
use futures_util::future::{Either, select};
use onceflow_core::{Fence, Pick};
use onceflow_store::{BoxFuture, Position};
use runner::{Chain, Runners};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use tokio::sync::{Notify, futures::Notified, watch::Sender};
pub(crate) use watch::Whose;

/// A worker: claims steps and performs them until it is stopped.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) capacity: Capacity,
    /// The steps it has.
    pub(crate) alive: Arc<Heartbeats<Whose>>,
    pub(crate) announcement: announce::Announcement,
    pub(crate) troubles: crate::perform::patience::Troubles,
    /// Polls the chains of the slots.
    runners: Arc<Runners>,
    /// The slots in progress, and the dispatcher while it may claim.
    drain: Arc<Drain>,
    /// The worker claims no steps yet.
    waits: AtomicBool,
    /// Signals that steps may be claimed.
    goes: Notify,
    /// The store's last error that it is full.
    full: Sender<Option<String>>,
}

impl Worker {
    pub(crate) fn start(shared: Arc<Shared>) -> Arc<Self> {
        let capacity = Capacity::new(&shared.options);
        let worker = Arc::new(Worker {
            shared: shared.clone(),
            capacity,
            alive: Arc::default(),
            announcement: announce::Announcement::default(),
            troubles: crate::perform::patience::Troubles::default(),
            runners: Runners::new(shared.world.clone(), shared.records.clone()),
            drain: Arc::default(),
            waits: AtomicBool::new(shared.options.waits),
            goes: Notify::new(),
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
        self.drain.stop();
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
                (std::pin::pin!(self.goes.notified()), std::pin::pin!(self.drain.stopped.notified()));
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
        self.stop();
        self.drain.drain(&*self.shared.world, || self.alive.told()).await;
    }

    /// The number of steps it has.
    pub(crate) fn slots(&self) -> usize {
        // While the worker may claim steps, the dispatcher is counted too.
        let dispatcher = usize::from(!self.is_stopping());
        self.drain.busy().saturating_sub(dispatcher)
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
        self.drain.is_stopping()
    }

    /// Hands ready steps to slots, while there are ready steps and free slots.
    async fn dispatch(self: Arc<Self>) {
        // The dispatcher counts as busy while it may be claiming a step.
        let _busy = self.drain.begin();
        let _dropped = Dropped(&self);
        self.until_it_goes().await;
        while !self.is_stopping() {
            let mut slot = self.capacity.slot().await;
            let (seen, changed) = (self.shared.records.position(), self.capacity.changed());
            match self.take(&slot).await {
                Ok(Some(job)) => {
                    self.capacity.assign(&mut slot, &job.claim.queue);
                    self.clone().begin_chain(job, slot);
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
        let stopped = self.drain.stopped.notified();
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
        tracing::warn!(%error, "the store failed to answer a worker; retrying");
        self.note(error);
        self.pause().await;
    }

    async fn pause(&self) {
        const PAUSE_MS: u64 = 200;
        self.pause_for(PAUSE_MS).await;
    }

    /// Waits, unless the worker is to stop.
    async fn pause_for(&self, ms: u64) {
        let mut stopped = std::pin::pin!(self.drain.stopped.notified());
        stopped.as_mut().enable();
        if !self.is_stopping() {
            select(self.shared.world.sleep(ms), stopped).await;
        }
    }

    /// Claims a ready step.
    async fn take(&self, slot: &Slot) -> Result<Option<Job>, Error> {
        match self.ask(slot) {
            Some(asked) => self.shared.kernel.take(&asked).await,
            None => Ok(None),
        }
    }

    fn begin_chain(self: Arc<Self>, job: Job, slot: Slot) {
        // Made here, so that a slot whose runtime is dropped before it gets its turn has ended too.
        let busy = self.drain.begin();
        let hold = self.alive.hold(&job);
        let (runners, parking) = (self.runners.clone(), slot.parking.clone());
        let steps: BoxFuture<'static, ()> = Box::pin(async move {
            self.work(job, hold, slot, &busy).await;
            drop(busy);
        });
        runners.begin(Chain::new(steps, parking));
    }

    /// Performs a step, and each step that the commit of the last one claimed.
    async fn work(&self, job: Job, hold: Result<Hold<Whose>, Fence>, mut slot: Slot, _: &Busy) {
        let mut next = Some((job, hold));
        while let Some((job, hold)) = next {
            self.capacity.assign(&mut slot, &job.claim.queue);
            let had_trouble = self.troubles.of(&job.claim.name) > 0;
            let performed = match &hold {
                Ok(_) => self.perform_if_ours(&job, &slot).await,
                Err(before) => self.alive.restore(&self.shared.kernel, &job, *before).await.map(|()| None),
            };
            next = match performed {
                Ok(next) => {
                    if had_trouble {
                        self.troubles.forget(&job.claim.name);
                    }
                    let next = next.map(|next| {
                        let hold = self.alive.hold(&next);
                        (next, hold)
                    });
                    slot.count_step();
                    if slot.is_turn_of_others() {
                        // A chain of pure steps never waits by itself, and would keep its thread.
                        onceflow_store::world::yield_now().await;
                    }
                    next
                }
                Err(error) => {
                    self.failed(&job, &error, hold).await;
                    None
                }
            };
        }
    }

    async fn perform_if_ours(&self, job: &Job, slot: &Slot) -> Result<Option<Job>, Error> {
        let now = self.shared.world.clock();
        match self.alive.is_still_ours(&self.shared.kernel, job, now).await? {
            true => crate::perform::perform(self, job, slot).await,
            false => Ok(None),
        }
    }

    /// Gives a step back that the engine could not perform, after a pause that grows with every failure, so that it is
    /// retried.
    async fn failed(&self, job: &Job, error: &Error, hold: Result<Hold<Whose>, Fence>) {
        tracing::error!(%error, step = ?job.claim.name, "failed to perform a step; giving it back");
        self.note(error);
        self.pause_for(self.troubles.pause_ms(&job.claim.name)).await;
        drop(hold);
        if let Err(error) = self.shared.kernel.give_back(&job.claim).await {
            tracing::warn!(%error, "failed to give a step back; its claim will expire");
        }
    }

    /// The claim that a commit carries, unless this worker is stopping.
    pub(crate) fn claim_next(&self, slot: &Slot) -> Option<Asked> {
        if self.is_stopping() { None } else { self.ask(slot) }
    }

    fn ask(&self, slot: &Slot) -> Option<Asked> {
        // A slot that only ever took the step it has just made ready would never leave an endless chain.
        let pick = if slot.is_turn_of_others() { Pick::InTurn } else { Pick::EnabledFirst };
        self.shared.kernel.ask(self.capacity.queues(slot), pick, self.shared.world.clock())
    }
}

/// Closes the engine when its runtime is dropped before the worker is stopped, so that waiting callers return.
struct Dropped<'a>(&'a Worker);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        if !self.0.is_stopping() {
            tracing::warn!("the runtime of this engine was dropped; the engine is closed");
            self.0.stop();
            self.0.shared.signals.close();
        }
    }
}
