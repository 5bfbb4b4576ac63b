//! Retries operations that the store fails: with growing pauses, an event for each, and not for ever. The outputs of a
//! body are kept meanwhile, and never computed again because they could not be stored.

use super::{Job, Work};
use crate::{Error, engine::damage::drop_broken, error::DAMAGE, events::EventKind};
use futures_util::future::{BoxFuture, Either, select};
use onceflow_core::{
    Name,
    protocol::{
        rows::{Failed, Phase, RunState, Why},
        step,
    },
};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

/// Tries of one operation. With the pauses between them, about a minute.
pub(crate) const TRIES_MAX: u32 = 9;

/// Tries of a worker that is about to stop.
const LAST_TRIES_MAX: u32 = 3;

/// The first pause; each is twice the one before.
const PAUSE_MS: u64 = 200;

/// The longest pause.
const PAUSE_MS_MAX: u64 = 30_000;

/// The pause after so many failed tries.
pub(crate) fn pause_ms(tries: u32) -> u64 {
    PAUSE_MS.saturating_mul(1 << tries.saturating_sub(1).min(30)).min(PAUSE_MS_MAX)
}

/// Waits between tries to store the outputs of a step.
pub(crate) trait Patience: Send + Sync {
    /// Ends when the operation is to be retried; with the error, if a retry would not help or there were enough.
    fn wait(&self, error: Error) -> BoxFuture<'_, Result<(), Error>>;
}

/// Patience with a store that fails to take the outputs of a body. The step stays ours.
pub(crate) struct Storing<'a> {
    work: &'a Work<'a>,
    tries: AtomicU32,
}

impl<'a> Storing<'a> {
    pub(crate) fn new(work: &'a Work<'a>) -> Self {
        Storing { work, tries: AtomicU32::new(0) }
    }
}

impl Patience for Storing<'_> {
    fn wait(&self, error: Error) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            if !error.is_passing() {
                return Err(error);
            }
            let (worker, tries) = (self.work.worker, self.tries.fetch_add(1, SeqCst) + 1);
            // While no row can be written, no worker can park the step either.
            let is_enough = match (worker.is_stopping(), error.is_of_rows()) {
                (true, _) => tries >= LAST_TRIES_MAX,
                (false, true) => false,
                (false, false) => tries >= TRIES_MAX,
            };
            if is_enough {
                return Err(error);
            }
            worker.note(&error);
            let pause_ms = pause_ms(tries);
            self.work.tell_held_up(&format!("cannot store its output: {error}; retrying in {}", told(pause_ms))).await;
            let (pause, heartbeat) = (worker.shared.world.sleep(pause_ms), self.work.heartbeat(true));
            match select(pause, std::pin::pin!(heartbeat.stopped())).await {
                Either::Left(_) => Ok(()),
                Either::Right(_) => Err(error),
            }
        })
    }
}

fn told(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}

/// Counts of consecutive failures to perform a step here, by its name in its queue.
#[derive(Default)]
pub(crate) struct Troubles(Mutex<BTreeMap<Name, u32>>);

/// Steps that are counted: more than a worker has at a time.
const TROUBLES_MAX: usize = 4096;

impl Troubles {
    /// Counts one more failure.
    fn add(&self, name: &Name) -> u32 {
        let mut all = crate::shared::lock(&self.0);
        while all.len() >= TROUBLES_MAX {
            all.pop_first();
        }
        let tries = all.entry(name.clone()).or_default();
        *tries += 1;
        *tries
    }

    pub(crate) fn of(&self, name: &Name) -> u32 {
        crate::shared::lock(&self.0).get(name).copied().unwrap_or(0)
    }

    /// The pause before the step is given back.
    pub(crate) fn pause_ms(&self, name: &Name) -> u64 {
        pause_ms(self.of(name).max(1))
    }

    pub(crate) fn forget(&self, name: &Name) {
        crate::shared::lock(&self.0).remove(name);
    }
}

/// An error that keeps a step from being performed, through no fault of the step's code.
pub(super) struct Trouble<'a> {
    work: &'a Work<'a>,
    error: Error,
}

impl<'a> Trouble<'a> {
    pub(super) fn new(work: &'a Work<'a>, error: Error) -> Self {
        Trouble { work, error }
    }

    /// Parks the step if its inputs are damaged; else gives it back, to be retried after a pause. After enough tries it
    /// is parked, and the run fails.
    pub(super) async fn settle(self) -> Result<Option<Job>, Error> {
        if self.error.is_damage() {
            return self.damaged().await;
        }
        let troubles = &self.work.worker.troubles;
        if troubles.of(&self.work.taken.claim.name) + 1 < TRIES_MAX || self.error.is_of_rows() {
            return Err(self.count().await);
        }
        troubles.forget(&self.work.taken.claim.name);
        let causes = vec![String::from("the engine could not perform it"), self.error.to_string()];
        self.put_aside(causes).await
    }

    /// Counts and reports that the step could not be performed.
    pub(super) async fn count(self) -> Error {
        let again = told(pause_ms(self.work.worker.troubles.add(&self.work.taken.claim.name)));
        self.work.tell_held_up(&format!("cannot be performed: {}; retrying in {again}", self.error)).await;
        self.error
    }

    /// Parks a step whose inputs are damaged, and fails the run: a retry would not help. If the step is not ours any
    /// more, its rows went with it, and nothing is wrong.
    async fn damaged(self) -> Result<Option<Job>, Error> {
        if !self.work.shared().kernel.is_ours(&self.work.taken.claim).await? {
            return Ok(None);
        }
        drop_broken(&self.work.shared().values, &self.error).await;
        let told = self.error.to_string();
        let cause = if told.starts_with(DAMAGE) { told } else { format!("{DAMAGE}: {told}") };
        self.put_aside(vec![cause]).await
    }

    /// Parks the step as failed, and fails the run with these causes.
    async fn put_aside(self, causes: Vec<String>) -> Result<Option<Job>, Error> {
        let address = self.work.address().await.unwrap_or_else(|_| String::from("/"));
        tracing::error!(?causes, run = %self.work.run.key, address, "parking a step; its run fails");
        let attempt = self.work.taken.ready_step.failed + 1;
        let failed = Failed { address: address.into(), attempt, causes, started: false };
        let park = |state: RunState| {
            let next = if state.phase == Phase::Running { Phase::Failing } else { state.phase };
            step::park(&self.work.run.plan, state, &self.work.taken, Why::Failed(failed.clone()), next)
        };
        let committed = self.work.commit(&[], Some(EventKind::DidFail(failed.clone())), park).await?;
        self.work.shared().runs.read_run(self.work.run.plan.keys.run).await?;
        Ok(committed.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_all_of_them_take_about_a_minute() {
        let all: u64 = (1..TRIES_MAX).map(pause_ms).sum();
        assert!((30_000..90_000).contains(&all), "{all} ms");
        assert_eq!((pause_ms(1), pause_ms(2), pause_ms(40)), (200, 400, PAUSE_MS_MAX));
    }
}
