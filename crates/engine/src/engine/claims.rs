//! Frees the steps of a worker that is known to be gone at once, without waiting for their deadlines.

use super::Engine;
use crate::{Error, WorkerInfo};
use futures_util::future::BoxFuture;
use onceflow_core::Fence;

impl Engine {
    /// The unique and permanent id of this worker, to be passed to [`Engine::release`] once it is gone.
    pub fn incarnation(&self) -> u128 {
        self.shared.registry.incarnation()
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
            for queue in self.shared.queues().all().await? {
                for (name, row) in self.shared.kernel.all_rows(queue.claims(), b"").await? {
                    if Fence::from_bytes(&row).is_some_and(|fence| fence.incarnation() == incarnation) {
                        freed += usize::from(self.shared.queues().free_claim(&queue, &name, row).await?);
                    }
                }
            }
            let worker = self.shared.registry.of(incarnation).await?;
            if let Some(worker) = &worker {
                self.shared.values.abandon_writer(worker.writer).await?;
            }
            self.shared
                .registry
                .unregister(incarnation, &worker.map(|worker| worker.about).unwrap_or_default())
                .await?;
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
}
