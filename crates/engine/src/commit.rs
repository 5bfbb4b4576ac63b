//! A flow's step as work of the kernel: what its commits require, and where the step stands while it is not done.

use crate::{
    Error,
    kernel::{Asked, ClaimedWork, OutsideCommit, Refusal, WorkCommit},
    runs::Run,
    shared::{Shared, lock},
};
use onceflow_core::{
    Key, Row,
    protocol::{
        claim::WorkClaim,
        draft::Draft,
        ids::{SETTLE, TEARDOWN, UNDO},
        premise::Premise,
        rows::{self, RunState},
        step::Taken,
    },
};
use onceflow_store::values::ValueChange;
use std::sync::Mutex;

/// A claimed step of a run.
struct StepWork<'a> {
    run: &'a Run,
    taken: &'a Taken,
    /// The state on which a commit was refused, if its settings are to be read first.
    unread: Mutex<Option<RunState>>,
}

impl ClaimedWork for StepWork<'_> {
    fn claim(&self) -> &WorkClaim {
        &self.taken.claim
    }

    fn elsewhere(&self) -> Vec<Key> {
        // A worker that does not offer its task moves it to another queue: that is not leaving either.
        let mut keys = crate::worker::unserved::elsewhere(self.run, self.taken);
        keys.push(self.run.plan.keys.parked(self.taken.step));
        keys
    }

    fn refused(&self, key: &Key, found: Option<&Row>) -> Refusal {
        if Premise::of(key) != Premise::State {
            return Refusal::Changed;
        }
        match found.and_then(|row| rows::read::<RunState>(row)) {
            Some(found) if found.generation == self.run.plan.keys.generation && self.may_commit(found) => {
                if self.run.plan.settings().revision < found.settings {
                    *lock(&self.unread) = Some(found);
                    return Refusal::Changed;
                }
                self.run.set_state(found);
                Refusal::Again
            }
            _ => Refusal::Lost,
        }
    }
}

impl StepWork<'_> {
    /// The step may commit in this state. Internal steps of the end of a run always may.
    fn may_commit(&self, state: RunState) -> bool {
        state.phase.is_open() || matches!(self.taken.step.node, SETTLE | UNDO | TEARDOWN)
    }
}

impl Shared {
    /// Commits a claimed step, deciding again while only the state of its run has changed in between.
    pub(crate) async fn commit<'a>(
        &self,
        run: &'a Run,
        taken: &Taken,
        asked: Option<&Asked>,
        changes: &[ValueChange],
        decide: impl Fn(RunState) -> Draft<'a>,
    ) -> Result<WorkCommit, Error> {
        let work = StepWork { run, taken, unread: Mutex::default() };
        let decide = || {
            let state = run.state();
            work.may_commit(state).then(|| decide(state).into())
        };
        loop {
            let committed = self.kernel.commit(&work, asked, changes, &decide).await?;
            // The settings of the run have changed: deliveries go to other queues now.
            let Some(unread) = lock(&work.unread).take() else { return Ok(committed) };
            if !self.runs.read_settings(&run.plan, unread).await? {
                return Ok(WorkCommit::Lost);
            }
            run.set_state(unread);
        }
    }

    /// Commits a draft that belongs to no claimed step.
    pub(crate) async fn commit_outside(
        &self,
        draft: Draft<'_>,
        changes: &[ValueChange],
    ) -> Result<OutsideCommit, Error> {
        self.kernel.commit_outside(draft.into(), changes).await
    }
}
