//! Wakes suspended steps whose deadline has passed.

use crate::{
    Error,
    kernel::{Kernel, OutsideCommit},
    runs::{Run, Runs},
    shared::Shared,
    signals::Signals,
};
use onceflow_core::{
    Batch, Key, Timestamp,
    protocol::{
        ids::StepId,
        premise::Premise,
        rows::{self, Parked, RunState},
        run::{self, OnTimer},
        timer::Timer,
    },
};

/// The pause before a timer is looked at again whose rows changed while it was read.
const LATER_MS: u64 = 1000;

/// The timers of suspended steps.
pub(crate) struct Timers<'a> {
    kernel: &'a Kernel,
    runs: &'a Runs,
    signals: &'a Signals,
}

impl<'a> Timers<'a> {
    pub(crate) fn of(shared: &'a Shared) -> Self {
        Timers { kernel: &shared.kernel, runs: &shared.runs, signals: &shared.signals }
    }

    /// Wakes every step whose timer is due; returns when to look again.
    pub(crate) async fn fire_due(&self) -> Result<Option<Timestamp>, Error> {
        let (now, mut after, mut is_left) = (self.kernel.records.now().await?, None, false);
        loop {
            let timers = self.kernel.due_timers(after, now).await?;
            for (key, timer) in timers.due {
                is_left |= !self.fire(&key, timer).await?;
            }
            after = timers.after;
            if after.is_none() {
                return Ok(timers.next.into_iter().chain(is_left.then(|| now.plus_ms(LATER_MS))).min());
            }
        }
    }

    /// Does what a due timer is for. False if it is to be looked at again.
    async fn fire(&self, key: &Key, timer: Timer) -> Result<bool, Error> {
        let Timer::Step { run: id, generation, step } = timer;
        loop {
            // Read anew: the state decides what the timer does.
            let run = self.runs.read_run(id).await?.filter(|run| run.plan.keys.generation == generation);
            let Some(run) = run else { return self.drop_timer(Batch::new(self.kernel.shard), key).await };
            let state = run.state();
            let fired = match run::on_timer(state.phase) {
                OnTimer::Wake => self.wake(&run, state, key, step).await?,
                OnTimer::Forget => Some(self.drop_timer(Batch::new(self.kernel.shard), key).await?),
                // The batch that lets the run go on rings, and all timers are looked at then.
                OnTimer::Later => Some(true),
            };
            if let Some(fired) = fired {
                return Ok(fired);
            }
        }
    }

    /// Wakes a suspended step of a run in this state. `None` if the run changed in between.
    async fn wake(&self, run: &Run, state: RunState, timer: &Key, step: StepId) -> Result<Option<bool>, Error> {
        let mut seen = Batch::new(self.kernel.shard);
        let Some(row) = self.kernel.row(run.plan.keys.parked(step)).await? else {
            // The step was woken or decided since the timer was read, and its timer went with it.
            seen.require_absent(run.plan.keys.parked(step));
            return self.drop_timer(seen, timer).await.map(Some);
        };
        let parked: Parked = rows::read(&row).ok_or_else(|| Error::damaged("a step that was put aside"))?;
        if parked.why.awaited().is_none() {
            // It was woken since the timer was read, and put aside for another reason.
            seen.require_equals(run.plan.keys.parked(step), row);
            return self.drop_timer(seen, timer).await.map(Some);
        }
        let draft = run::wake(&run.plan, state, step, (&row, &parked));
        if draft.timer(step, &parked.why).is_none_or(|(own, _)| own != *timer) {
            // It was suspended anew, with another timer.
            seen.require_equals(run.plan.keys.parked(step), row);
            return self.drop_timer(seen, timer).await.map(Some);
        }
        match self.kernel.commit_outside(draft.into(), &[]).await? {
            OutsideCommit::Applied(_) => {
                self.runs.read_run(run.plan.keys.run).await?;
                self.signals.progress(run.plan.keys.run).notify_waiters();
                Ok(Some(true))
            }
            OutsideCommit::Refused(key) if Premise::of(&key) == Premise::State => Ok(None),
            OutsideCommit::Refused(_) => Ok(Some(true)),
        }
    }

    /// Deletes a timer that wakes nothing, if the rows are as `seen` requires; else it is looked at again. The timer of a
    /// run that is gone or cannot be woken requires nothing.
    async fn drop_timer(&self, mut seen: Batch, key: &Key) -> Result<bool, Error> {
        seen.delete(key.clone());
        Ok(self.kernel.records.commit(seen).await?.is_applied())
    }
}
