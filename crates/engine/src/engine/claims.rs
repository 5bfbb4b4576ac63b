//! Frees the steps of a worker that is known to be gone at once, without waiting for their deadlines.

use super::Engine;
use crate::{Error, WorkerInfo, worker::announce::Registration};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Fence, Group, Row,
    limits::SCAN_ROWS_MAX,
    protocol::{
        claim, keys,
        rows::{self, Head},
    },
};
use onceflow_store::records::Scan;
use std::collections::BTreeSet;

impl Engine {
    /// The unique and permanent id of this worker, to be passed to [`Engine::release`] once it is gone.
    pub fn incarnation(&self) -> u128 {
        self.shared.kernel.fences.incarnation()
    }

    /// Frees all steps that a worker has claimed, whatever their deadlines, deletes its registration, and returns their
    /// number. The caller knows that the worker is gone: a living one loses its work. A started at-most-once step is
    /// not started again by this; its outcome is unknown.
    ///
    /// # Errors
    /// If the store does not answer; steps freed before that stay free.
    pub fn release(&self, incarnation: u128) -> BoxFuture<'_, Result<usize, Error>> {
        Box::pin(async move {
            let mut freed = 0;
            for queue in self.queues().await? {
                for (name, row) in self.shared.kernel.all_rows(queue.claims(), b"").await? {
                    if Fence::from_bytes(&row).is_some_and(|fence| fence.incarnation() == incarnation) {
                        freed += usize::from(self.free_claim(&queue, &name, row).await?);
                    }
                }
            }
            let row = self.shared.row(keys::workers().key(incarnation.to_be_bytes())).await?;
            let worker = row.as_deref().and_then(rows::read::<Registration>);
            if let Some(worker) = &worker {
                self.shared.values.abandon_writer(worker.writer).await?;
            }
            self.shared.unregister(incarnation, &worker.map(|worker| worker.about).unwrap_or_default()).await?;
            Ok(freed)
        })
    }

    /// [Releases](Engine::release) the workers whose process has ended without closing its engine, as far as that is
    /// seen from here ([`Options::locks`](crate::Options::locks)); returns them.
    ///
    /// # Errors
    /// If the store does not answer; workers released before that stay released.
    pub fn release_ended(&self) -> BoxFuture<'_, Result<Vec<WorkerInfo>, Error>> {
        Box::pin(async move {
            let ended = self.ended_workers().await?;
            for worker in &ended {
                self.release(worker.incarnation).await?;
            }
            Ok(ended)
        })
    }

    async fn free_claim(&self, queue: &Group, name: &onceflow_core::Name, fence: Row) -> Result<bool, Error> {
        self.shared.kernel.apply(claim::release_dead(self.shared.shard(), &queue.key(name), fence)).await
    }

    /// The queues that steps of unfinished runs may stand in.
    pub(super) async fn queues(&self) -> Result<Vec<Group>, Error> {
        let mut classes = BTreeSet::new();
        let mut after = None;
        loop {
            let scan = Scan::of(keys::heads(), SCAN_ROWS_MAX).after(after);
            let page = self.shared.records.scan(self.shared.shard(), scan).await?;
            for (_, row) in &page.rows {
                if let Some(Head::Active(id)) = rows::read::<Head>(row)
                    && let Some(run) = self.shared.runs.run(id, None).await?
                {
                    classes.extend(run.plan.program.tasks.iter().map(|task| task.class.clone()));
                }
            }
            after = page.rows.last().map(|(name, _)| name.clone());
            if !page.more {
                break;
            }
        }
        let of_classes = classes.iter().map(|class| keys::class_queue(class));
        Ok(of_classes.chain([keys::internal_queue()]).chain(self.shared.unserved_queues().await?).collect())
    }
}
