//! Stores the outputs of a body and commits them. They are kept while the store does not take them, and never computed
//! again for that.

use super::{TaskStep, unknown::LateResult};
use crate::{
    Error, data,
    events::EventKind,
    kernel::{Stop, WorkCommit},
    perform::{
        CommitEvents, Work,
        memo::StepMemo,
        patience::{Patience, Storing},
    },
    seams,
    task::{Data, Tx},
};
use futures_util::future::{Either, select};
use onceflow_core::{
    Timestamp,
    model::Effect,
    payload::Outcome,
    protocol::{rows::RunState, step, turn},
};
use onceflow_store::values::ValueChange;

/// How long outputs of a body that has ended are stored after the worker was interrupted: a gigabyte or so, and less than
/// users wait before they kill a process.
const INTERRUPTED_STORE_MS_MAX: u64 = 5000;

impl TaskStep<'_> {
    /// Stores and commits the outputs that the body gave. [`WorkCommit::DecideAgain`] if rows that a transactional body
    /// has read changed before it could commit; [`Stop`] if the work was stopped while a file was being stored.
    pub(super) async fn commit_outputs(
        &self,
        outputs: Vec<Data>,
        scratch: Option<&data::Scratch>,
        memo: &StepMemo<'_>,
        tx: Option<&Tx>,
    ) -> Result<Result<WorkCommit, Stop>, Error> {
        let patience = Storing::new(self.work);
        let (outcomes, changes) = match self.store(outputs, scratch, &patience).await? {
            Ok(stored) => stored,
            Err(stop) => return Ok(Err(stop)),
        };
        let tx = match tx {
            Some(tx) => Some((tx, self.work.shared().records.now().await?)),
            None => None,
        };
        let stored = StoredOutputs { work: self.work, outcomes: &outcomes, changes: &changes, memo, tx };
        let committed = stored.commit(&patience).await?;
        if let WorkCommit::Lost = committed {
            Box::pin(self.work.was_taken()).await?;
            if self.spec.effect == Effect::AtMostOnce {
                let late = LateResult { work: self.work, outcomes: &outcomes, changes: &changes, memo };
                Box::pin(late.commit()).await?;
            }
        }
        Ok(Ok(committed))
    }

    /// Stores outputs; answers them as a commit delivers them, with the changes that go into the commit.
    async fn store(
        &self,
        outputs: Vec<Data>,
        scratch: Option<&data::Scratch>,
        patience: &Storing<'_>,
    ) -> Result<Result<(Vec<Outcome>, Vec<ValueChange>), Stop>, Error> {
        let node = self.work.taken.node(&self.work.run.plan);
        let given = scratch.map(data::Scratch::given).unwrap_or_default();
        let storing = data::Storing::new(&self.work.shared().values, data::Files::Taken(given));
        let mut storing = storing.patiently(patience);
        let mut outcomes = Vec::with_capacity(node.outputs.len());
        // Reading a large file may take longer than a user who cancels wants to wait. The outcome of an at-most-once body
        // is stored even then.
        let stops = outputs.iter().any(|output| matches!(output, Data::File(_) | Data::List(_)))
            && self.spec.effect != Effect::AtMostOnce;
        let mut stopped = stops.then(|| Box::pin(self.must_stop_storing()));
        for output in outputs {
            let stored = std::pin::pin!(storing.store(&output));
            outcomes.push(match &mut stopped {
                None => stored.await?,
                Some(stopped) => match select(stored, stopped.as_mut()).await {
                    Either::Left((stored, _)) => stored?,
                    Either::Right((stop, _)) => return Ok(Err(stop)),
                },
            });
        }
        if node.attempt {
            outcomes.push(Outcome::None);
        }
        assert_eq!(outcomes.len(), node.outputs.len(), "a body that is done gave every output of its step");
        Ok(Ok((outcomes, storing.changes())))
    }

    /// Ends when outputs of a body that has ended are not worth storing any more: no run wants them, or the worker was
    /// interrupted and its user has waited for a while.
    async fn must_stop_storing(&self) -> Stop {
        let stop = self.work.heartbeat(true).stopped().await;
        if stop == Stop::Interrupted {
            self.work.shared().world.sleep(INTERRUPTED_STORE_MS_MAX).await;
        }
        stop
    }
}

/// Outputs of a body that are in the store, on their way into a commit.
struct StoredOutputs<'a> {
    work: &'a Work<'a>,
    outcomes: &'a [Outcome],
    changes: &'a [ValueChange],
    memo: &'a StepMemo<'a>,
    /// The writes of a transactional body, and the time at which they are committed.
    tx: Option<(&'a Tx, Timestamp)>,
}

impl StoredOutputs<'_> {
    /// Commits them, as often as the store fails.
    async fn commit(&self, patience: &Storing<'_>) -> Result<WorkCommit, Error> {
        let (work, plan) = (self.work, &self.work.run.plan);
        loop {
            match self.try_commit().await {
                Err(error) => patience.wait(error).await?,
                // Another step put the same content meanwhile, or kept the same result: look again.
                Ok(WorkCommit::DecideAgain) if self.tx.is_none() => {}
                Ok(committed @ WorkCommit::Committed { .. }) => {
                    work.worker.announcement.count_done(plan.keys.run);
                    work.got_on(work.taken.frame.shape, work.taken.step.node);
                    return Ok(committed);
                }
                Ok(committed @ (WorkCommit::Lost | WorkCommit::DecideAgain)) => return Ok(committed),
            }
        }
    }

    async fn try_commit(&self) -> Result<WorkCommit, Error> {
        let (work, plan) = (self.work, &self.work.run.plan);
        let memo = self.memo.if_not_kept().await?;
        // The writes of a transactional body may fill a batch.
        let turn = if self.tx.is_none() { turn::following(plan, &work.taken, self.outcomes) } else { None };
        let what = CommitEvents {
            first: Some(EventKind::DidCommit { address: work.address_if_wanted().await? }),
            turn: match &turn {
                Some(turn) => work.did_turn(turn.opener, turn.node, turn.iteration).await?,
                None => None,
            },
        };
        let commit = |state: RunState| {
            let mut draft = match &turn {
                Some(turn) => turn::commit(plan, state, &work.taken, self.outcomes, turn),
                None => step::commit(plan, state, &work.taken, self.outcomes),
            };
            if let Some((tx, now)) = self.tx.filter(|_| seams::commits_writes()) {
                tx.apply_to(&mut draft.batch, now, work.taken.claim.name.as_bytes());
            }
            if let Some(memo) = memo {
                step::keep(plan, &mut draft, memo, self.outcomes);
            }
            draft
        };
        work.commit_outcome(self.changes, what, commit).await
    }
}
