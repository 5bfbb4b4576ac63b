//! Ends an engine: drained, interrupted, or without waiting.

use super::{Engine, keyless::end_abandoned};
use crate::{Error, shared::lock};
use futures_util::future::BoxFuture;
use std::sync::Arc;

impl Engine {
    /// Takes no further steps, and returns when those in flight are done and everything is durable. The worker stays
    /// registered, and [attends](Engine::attend) its run, until [`Engine::close`].
    ///
    /// # Errors
    /// If the last commits may not be durable.
    pub fn drain(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.shared.signals.close();
            if let Some(worker) = &self.worker {
                worker.drain().await;
            }
            end_abandoned(&self.shared).await;
            // Resources that the tasks hold are dropped with them.
            *lock(&self.shared.tasks) = Arc::default();
            *lock(&self.shared.resources) = Arc::default();
            self.shared.events.close();
            self.shared.event_logs.close();
            self.shared.event_logs.closed().await;
            // A handle may be waiting for the last commits.
            self.shared.signals.ring_all();
            Ok(self.shared.records.durable(self.shared.records.position()).await?)
        })
    }

    /// Drains the engine as [`Engine::drain`] does, and deletes the registration of its worker.
    ///
    /// # Errors
    /// If the last commits may not be durable.
    pub fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let drained = self.drain().await;
            if let Some(worker) = &self.worker {
                worker.leave().await;
            }
            self.shared.registry.leave_writers().await;
            self.shared.small.clear();
            drained
        })
    }

    /// The engine was told to stop, drain or close, or its runtime is gone.
    pub fn is_closed(&self) -> bool {
        self.shared.signals.is_closed()
    }

    /// Takes no further steps, and ends the bodies of those in flight: they are dropped, and their steps are given back
    /// as if they had not been claimed. At-most-once bodies are waited for. Then closes the engine as [`Engine::close`]
    /// does.
    ///
    /// # Errors
    /// If the last commits may not be durable.
    pub fn interrupt(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            if let Some(worker) = &self.worker {
                worker.interrupt();
            }
            self.close().await
        })
    }

    /// Takes no further steps, without waiting for those in flight: they end by themselves, or are cut off with the
    /// process, which costs only time.
    pub fn stop(&self) {
        self.shared.signals.close();
        if let Some(worker) = &self.worker {
            worker.stop();
        }
        self.shared.events.close();
        self.shared.event_logs.close();
    }
}
