//! Runs whose key no caller knows: their history ends with their last handle, or with the run if that is later.
//!
//! The process that started the run sees to this: it waits for the end, and deletes the remains of the finished run in
//! one batch. If that process dies, the deadline that every finished run has does the same, later.

use super::Engine;
use crate::{
    Error, Handle,
    shared::{Shared, lock},
};
use onceflow_core::{
    Batch, Row,
    protocol::{
        draft::stored,
        ids::RunId,
        keys::{self, Keys},
        rows::{self, Finished, Head, Phase, RunState, Status},
        run::{self, PROGRAM, SEALED},
    },
};
use onceflow_store::values::{self, ValueChange};
use std::sync::Arc;

/// Ends the history of a run when it is dropped.
pub(crate) struct HistoryEnd {
    shared: Arc<Shared>,
    key: String,
    id: RunId,
}

impl Handle {
    /// The guard that ends the history of this run when it is dropped.
    pub(super) fn end(&self) -> HistoryEnd {
        HistoryEnd { shared: self.shared.clone(), key: self.key.clone(), id: self.id }
    }
}

impl Drop for HistoryEnd {
    fn drop(&mut self) {
        let (shared, id) = (self.shared.clone(), self.id);
        lock(&shared.abandoned).insert(id, self.key.clone());
        let handle = Handle::new(shared.clone(), self.key.clone(), id);
        let end = async move {
            let ended = async {
                // The status is not reported to any caller, so it need not be durable.
                if !handle.is_at_rest().await? {
                    handle.wait().await?;
                }
                shared.end_history(&handle.key, id).await
            };
            match ended.await {
                // `close` tries once more, and after that the run's deadline applies.
                Err(Error::Closed) => return,
                Err(Error::NoRun(_)) | Ok(()) => {}
                Err(error) => not_ended(&handle.key, &error),
            }
            lock(&shared.abandoned).remove(&id);
        };
        self.shared.world.spawn("onceflow run without a key", Box::pin(end));
    }
}

fn not_ended(key: &str, error: &Error) {
    tracing::warn!(%error, key, "failed to end the history of a run without a key; its deadline does, within a day of its end");
}

/// How long the history of a run without a key is kept if the process that started it dies: long enough that a handle
/// that is asked late still answers, and that at most a day of crashes accumulates.
pub const KEYLESS_HISTORY_MS: u64 = 24 * 60 * 60 * 1000;

impl Engine {
    /// Generates a key that no other run has.
    pub fn fresh_key(&self, flow: &str) -> String {
        // Keys have a length limit, names of flows have none.
        let mut end = flow.len().min(onceflow_core::limits::RUN_KEY_BYTES_MAX - 33);
        while !flow.is_char_boundary(end) {
            end -= 1;
        }
        format!("{}-{:032x}", &flow[..end], self.shared.world.random())
    }
}

impl Shared {
    /// Ends the histories of abandoned runs that are at rest. Others continue elsewhere, and are removed at their
    /// deadline.
    pub(super) async fn end_abandoned(&self) {
        let abandoned = lock(&self.abandoned).clone();
        for (id, key) in abandoned {
            match self.end_history(&key, id).await {
                Ok(()) => drop(lock(&self.abandoned).remove(&id)),
                Err(error) => not_ended(&key, &error),
            }
        }
    }

    /// Removes a run that has ended or failed, with all its remains. An active run stays, and so does one that waits
    /// for an operator: its outcome is not known, or an effect could not be undone.
    async fn end_history(&self, key: &str, id: RunId) -> Result<(), Error> {
        /// Other callers may commit in between a few times.
        const TRIES_MAX: usize = 100;
        for _ in 0..TRIES_MAX {
            let Some(row) = self.row(keys::heads().key(key)).await? else { return Ok(()) };
            let is_over = match rows::read(&row).ok_or_else(|| Error::damaged(format!("the row of run `{key}`")))? {
                Head::Finished(finished) if finished.run == id => self.let_go(key, row, &finished).await?,
                Head::Active(active) if active == id => self.let_failed_go(id).await?,
                // The key belongs to another run by now.
                Head::Finished(_) | Head::Active(_) => true,
            };
            if is_over {
                return Ok(());
            }
        }
        Err(Error::Refused { key: key.to_owned(), why: String::from("changes all the time") })
    }

    /// Deletes the row of a finished run, and releases its outputs and everything else that its history kept. False if
    /// the row changed in between.
    async fn let_go(&self, key: &str, row: Row, finished: &Finished) -> Result<bool, Error> {
        if let Status::Failed { undone, .. } | Status::Cancelled { undone } = &finished.status
            && !undone.is_empty()
        {
            return Ok(true);
        }
        let keys = Keys::new(finished.run, finished.generation);
        let outputs = (0..).zip(&finished.outputs).filter(|(_, (_, outcome))| stored(outcome).is_some());
        let ports = outputs.map(|(port, _)| port).chain(finished.sealed.as_ref().map(|_| SEALED)).chain([PROGRAM]);
        let mut changes: Vec<_> = ports.map(|port| ValueChange::ReleaseHold { edge: keys.result_edge(port) }).collect();
        let head = keys::heads().key(key);
        let until = finished.ended.plus_ms(finished.header.history_ms);
        let mut batch = Batch::new(self.shard());
        batch.require_equals(head.clone(), row).delete(head).delete(keys::due(until, b'h', finished.run, key));
        run::delete_history(&mut batch, finished.run);
        changes.extend(self.release_sealed_events(&mut batch, finished.run).await?);
        match self.values.add_changes(&mut batch, &changes).await {
            // Its deadline has passed, and the removal of due runs is at it.
            Err(values::Error::LeaseLost { .. }) => return Ok(true),
            woven => woven?,
        }
        let onceflow_store::CommitResult::Applied(committed) = self.records.commit(batch).await? else {
            return Ok(false);
        };
        self.values.notify_committed(&committed);
        Ok(true)
    }

    /// Expires a failed run as if its history had ended. False if the run changed in between.
    async fn let_failed_go(&self, id: RunId) -> Result<bool, Error> {
        let Some(run) = self.runs.read_run(id).await? else { return Ok(false) };
        let state = run.state();
        if !state.phase.is_failed() {
            return Ok(true);
        }
        let expired = self.commit_outside(run::turn(&run.plan, state, Phase::Expired), &[]).await?.is_applied();
        if expired {
            run.set_state(RunState { phase: Phase::Expired, ..state });
        }
        Ok(expired)
    }
}
