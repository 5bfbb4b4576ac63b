//! Heartbeats: a worker renews the deadlines of its claims until their work commits, and frees work of workers whose
//! deadlines have passed. A worker never frees work that it has itself.

use super::{Job, Kernel};
use crate::{Error, seams, shared::lock};
use onceflow_core::{
    Fence, Group, Name, Row, Timestamp,
    limits::SCAN_ROWS_MAX,
    protocol::claim::{self, WorkClaim},
};
use onceflow_store::records::Scan;
use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
};
use tokio::sync::Notify;

/// The work that this worker has claimed, and that part of it which runs. `W` describes running work to its owner.
pub(crate) struct Heartbeats<W> {
    /// All claimed work that is not done, also while it waits for a thread, by its identity.
    held: Mutex<BTreeMap<Name, WorkClaim>>,
    /// Held work that runs and can be told to end, by its claim and the number of the watch: work that is stored is
    /// watched while the pause between two tries is.
    working: Mutex<BTreeMap<(Fence, u64), Working<W>>>,
    watches: AtomicU64,
    /// Running work that waits to be told to end.
    listening: AtomicUsize,
    /// Work that may be stopped must end.
    interrupted: AtomicBool,
    /// Signals that work began to listen, while no other did.
    pub(crate) began: Notify,
}

struct Working<W> {
    bell: Arc<Bell>,
    /// The work ends when the worker is interrupted.
    ends_at_once: bool,
    whose: W,
}

/// The reason why work ends before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Another worker has it.
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

/// Keeps the heartbeats of claimed work until it is dropped.
pub(crate) struct Hold<W> {
    of: Arc<Heartbeats<W>>,
    name: Name,
    fence: Fence,
}

impl<W> Drop for Hold<W> {
    fn drop(&mut self) {
        self.of.release(&self.name, self.fence);
    }
}

/// Tells running work when it must end, until it is dropped.
pub(crate) struct Heartbeat<'a, W> {
    of: &'a Heartbeats<W>,
    watch: (Fence, u64),
    bell: Arc<Bell>,
    /// The work waits to be told. Most of it is done before it would.
    listens: AtomicBool,
}

impl<W> Heartbeat<'_, W> {
    /// Ends when the work must end.
    pub(crate) async fn stopped(&self) -> Stop {
        if !self.listens.swap(true, SeqCst) && self.of.listening.fetch_add(1, SeqCst) == 0 {
            self.of.began.notify_one();
        }
        loop {
            let rings = self.bell.rings.notified();
            if let Some(why) = *lock(&self.bell.why) {
                return why;
            }
            rings.await;
        }
    }
}

impl<W> Drop for Heartbeat<'_, W> {
    fn drop(&mut self) {
        if *self.listens.get_mut() {
            let before = self.of.listening.fetch_sub(1, SeqCst);
            assert!(before > 0, "work that listens is counted until it ends");
        }
        let watched = lock(&self.of.working).remove(&self.watch);
        assert!(watched.is_some(), "work of fence {} is not watched any more, though it runs", self.watch.0);
    }
}

impl<W> Default for Heartbeats<W> {
    fn default() -> Self {
        Heartbeats {
            held: Mutex::default(),
            working: Mutex::default(),
            watches: AtomicU64::new(0),
            listening: AtomicUsize::new(0),
            interrupted: AtomicBool::new(false),
            began: Notify::new(),
        }
    }
}

impl<W> Heartbeats<W> {
    /// Starts the heartbeats of claimed work. Fails with the other claim if this worker has the work already: the store
    /// had forgotten that claim.
    pub(crate) fn hold(self: &Arc<Self>, job: &Job) -> Result<Hold<W>, Fence> {
        let WorkClaim { name, fence, .. } = &job.claim;
        match lock(&self.held).entry(name.clone()) {
            Entry::Occupied(has) => {
                let before = has.get().fence;
                assert!(before != *fence, "fence {fence} was granted twice: a fence is unique for ever");
                return Err(before);
            }
            Entry::Vacant(entry) => entry.insert(job.claim.clone()),
        };
        Ok(Hold { of: self.clone(), name: name.clone(), fence: *fence })
    }

    /// Stops the heartbeats of work, before it is given back: a heartbeat would claim it again.
    pub(crate) fn release(&self, name: &Name, fence: Fence) {
        if let Entry::Occupied(has) = lock(&self.held).entry(name.clone())
            && has.get().fence == fence
        {
            has.remove();
        }
    }

    /// The names of some work that this worker has, for logs.
    pub(crate) fn told(&self) -> String {
        const TOLD_MAX: usize = 10;
        let held = lock(&self.held);
        let names = held.values().take(TOLD_MAX).map(|claim| format!("{:?}", claim.name));
        names.collect::<Vec<_>>().join(", ")
    }

    /// This worker has the work of this name under that claim.
    fn holds(&self, name: &Name, fence: Fence) -> bool {
        self.claim_of(name) == Some(fence)
    }

    /// The claim under which this worker has the work of this name.
    pub(crate) fn claim_of(&self, name: &Name) -> Option<Fence> {
        lock(&self.held).get(name).map(|claim| claim.fence)
    }

    /// Watches over running work: it is told when it must end. Only the loss of the claim ends it, and an interruption of
    /// the worker if `ends_at_once`, unless its owner [ends](Heartbeats::end) it.
    pub(crate) fn watch(&self, fence: Fence, ends_at_once: bool, whose: W) -> Heartbeat<'_, W> {
        let bell = Arc::new(Bell::default());
        let working = Working { bell: bell.clone(), ends_at_once, whose };
        let watch = (fence, self.watches.fetch_add(1, SeqCst));
        let before = lock(&self.working).insert(watch, working);
        assert!(before.is_none(), "a watch of fence {fence} takes the place of another, which would never be ended");
        if ends_at_once && self.is_interrupted() {
            bell.ring(Stop::Interrupted);
        }
        Heartbeat { of: self, watch, bell, listens: AtomicBool::new(false) }
    }

    /// The worker was interrupted.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(SeqCst)
    }

    /// Ends all running work that may be stopped, also that which has not begun.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, SeqCst);
        for working in lock(&self.working).values().filter(|working| working.ends_at_once) {
            working.bell.ring(Stop::Interrupted);
        }
    }

    /// No running work listens.
    pub(crate) fn is_idle(&self) -> bool {
        self.listening.load(SeqCst) == 0
    }

    /// Maps the descriptions of running work.
    pub(crate) fn running<T: FromIterator<U>, U>(&self, map: impl Fn(&W) -> Option<U>) -> T {
        lock(&self.working).values().filter_map(|working| map(&working.whose)).collect()
    }

    /// Ends the running work that its owner chooses.
    pub(crate) fn end(&self, chosen: impl Fn(&W) -> bool) {
        for working in lock(&self.working).values().filter(|working| chosen(&working.whose)) {
            working.bell.ring(Stop::Cancelled);
        }
    }

    /// Renews the deadlines of all held work.
    pub(crate) async fn renew(&self, kernel: &Kernel) -> Result<(), Error> {
        let held: Vec<_> = lock(&self.held).values().cloned().collect();
        if held.is_empty() {
            return Ok(());
        }
        let deadline = kernel.lease_end().await?;
        for claim in held {
            let is_ours = kernel.apply(claim.renew(kernel.shard, deadline)).await?
                || !self.holds(&claim.name, claim.fence)
                || kernel.claim_again(&claim).await?;
            if is_ours {
                continue;
            }
            for (_, working) in lock(&self.working).range((claim.fence, 0)..=(claim.fence, u64::MAX)) {
                tracing::warn!(work = ?claim.name, "lost work to another worker: the heartbeats of this one came too late");
                working.bell.ring(Stop::Lost);
            }
        }
        Ok(())
    }

    /// Frees work in these queues whose deadline has passed, and answers how much. A renewal changes the deadline, and
    /// wins.
    pub(crate) async fn take_over(&self, kernel: &Kernel, queues: Vec<Group>) -> Result<usize, Error> {
        let (now, mut freed) = (kernel.records.now().await?, 0);
        if !seams::frees_abandoned() {
            return Ok(0);
        }
        for queue in queues {
            let mut after = None;
            loop {
                let scan = Scan::of(queue.deadlines(), SCAN_ROWS_MAX).after(after);
                let page = kernel.records.scan(kernel.shard, scan).await?;
                for (name, deadline) in &page.rows {
                    let is_overdue = claim::is_overdue(deadline, now);
                    freed += usize::from(is_overdue && self.free(kernel, &queue, name, deadline).await?);
                }
                after = page.rows.last().map(|(name, _)| name.clone());
                if !page.more {
                    break;
                }
            }
        }
        Ok(freed)
    }

    async fn free(&self, kernel: &Kernel, queue: &Group, name: &Name, deadline: &Row) -> Result<bool, Error> {
        let ready = queue.key(name);
        let Some(claim) = kernel.row(claim::claim_key(&ready)).await? else { return Ok(false) };
        if Fence::from_bytes(&claim).is_some_and(|fence| self.holds(name, fence)) {
            // Its heartbeat is late, and comes: a worker does not take over from itself.
            return Ok(false);
        }
        kernel.apply(claim::take_over(kernel.shard, &ready, claim, deadline.clone())).await
    }

    /// Work that was just claimed is still ours. It is renewed if so much time has passed that the claim may have
    /// expired: the reply was late, or user code blocked this thread.
    pub(crate) async fn is_still_ours(&self, kernel: &Kernel, job: &Job, now: Timestamp) -> Result<bool, Error> {
        if now.ms_since(job.asked) < kernel.lease_ms / 3 {
            return Ok(true);
        }
        let deadline = kernel.lease_end().await?;
        kernel.apply(job.claim.renew(kernel.shard, deadline)).await
    }

    /// Restores the claim of work that this worker has already, and that it was just granted again because the store had
    /// forgotten the first claim.
    pub(crate) async fn restore(&self, kernel: &Kernel, job: &Job, before: Fence) -> Result<(), Error> {
        let restored = kernel.apply(job.claim.restore(kernel.shard, before)).await?;
        if restored && self.claim_of(&job.claim.name).is_none() {
            // The work ended meanwhile, and may have found that it was not its own: it is freed.
            kernel.give_back(&WorkClaim { fence: before, ..job.claim.clone() }).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use onceflow_core::Fences;

    #[tokio::test]
    async fn work_that_is_watched_for_two_reasons_hears_of_its_end_after_one_of_them_is_over() {
        let beats = Heartbeats::<()>::default();
        let fence = Fences::new(7).next();
        let outer = beats.watch(fence, true, ());
        drop(beats.watch(fence, true, ()));
        assert!(beats.is_idle(), "it does not listen yet");
        let mut stopped = Box::pin(outer.stopped());
        assert!(stopped.as_mut().now_or_never().is_none());
        assert!(!beats.is_idle());
        beats.interrupt();
        assert_eq!(stopped.await, Stop::Interrupted);
        assert_eq!(outer.stopped().await, Stop::Interrupted);
        assert_eq!(beats.watch(fence, true, ()).stopped().await, Stop::Interrupted, "it begins after the interruption");
        drop(outer);
        assert!(beats.is_idle());
    }
}
