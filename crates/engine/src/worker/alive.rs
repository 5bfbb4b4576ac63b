//! Signs of life: the deadlines of what this worker has taken are moved on while it works, and steps of workers that
//! gave no sign for too long become free again.

use super::Worker;
use crate::{Error, shared::lock};
use futures_util::future::select;
use onceflow_core::{Batch, Fence, Group, Name, Row, Timestamp, limits::SCAN_ROWS_MAX};
use onceflow_store::{Outcome, records::Scan};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::Ordering::SeqCst},
};
use tokio::sync::Notify;

/// The steps whose body is at work.
#[derive(Default)]
pub(crate) struct Alive {
    working: Mutex<BTreeMap<Fence, Working>>,
}

#[derive(Clone)]
struct Working {
    queue: Group,
    name: Name,
    lost: Arc<Notify>,
}

/// A step stays ours while this lives.
pub(crate) struct Heartbeat<'a> {
    alive: &'a Alive,
    fence: Fence,
    lost: Arc<Notify>,
}

impl Heartbeat<'_> {
    /// Ends when the step was taken from us.
    pub(crate) async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for Heartbeat<'_> {
    fn drop(&mut self) {
        lock(&self.alive.working).remove(&self.fence);
    }
}

impl Alive {
    /// Keeps the claim on a step alive.
    pub(crate) fn keep(&self, queue: &Group, name: &Name, fence: Fence) -> Heartbeat<'_> {
        let lost = Arc::new(Notify::new());
        let working = Working { queue: queue.clone(), name: name.clone(), lost: lost.clone() };
        lock(&self.working).insert(fence, working);
        Heartbeat { alive: self, fence, lost }
    }
}

impl Worker {
    /// Gives signs of life, and frees what others left, a few times in the life of a lease.
    pub(super) async fn stay_alive(self: Arc<Self>) {
        let pause_ms = (self.shared.options.lease_ms / 3).max(1);
        loop {
            let stopped = self.stopped.notified();
            if self.is_stopping() && self.busy.load(SeqCst) == 0 {
                return;
            }
            select(self.shared.world.sleep(pause_ms), std::pin::pin!(stopped)).await;
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
        for (fence, Working { queue, name, lost }) in working {
            let mut batch = Batch::new(self.shared.shard());
            batch.require_equals(queue.claims().key(&name), Row::new(fence.to_bytes()));
            batch.put(queue.deadlines().key(&name), Row::new(deadline.to_sortable()));
            if let Outcome::Refused(_) = self.shared.records.commit(batch).await?
                && lock(&self.alive.working).contains_key(&fence)
            {
                tracing::warn!(step = ?name, "a step was taken from this worker, which was too slow to say it lives");
                lost.notify_waiters();
                lost.notify_one();
            }
        }
        Ok(())
    }

    /// Frees steps whose deadline has passed. A renewal changes the deadline, and wins.
    pub(crate) async fn free_abandoned(&self) -> Result<usize, Error> {
        let (now, mut freed) = (self.shared.records.now().await?, 0);
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
        batch.require_equals(claim.clone(), fence).require_equals(due.clone(), deadline.clone());
        batch.delete(claim).delete(due);
        Ok(self.shared.records.commit(batch).await?.is_applied())
    }
}
