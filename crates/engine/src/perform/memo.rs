//! Memos: the outputs of steps, kept under what they were computed from, so that equal work is not done again.

use super::{Job, Work};
use crate::{Error, engine::KeptValues, events::EventKind, kernel::WorkCommit, seams};
use onceflow_core::{
    Digest,
    protocol::{
        memo::memo_of,
        rows::{self, Held, Memo, RunState},
        step,
    },
};

/// The memo of a step; without a digest if the run keeps no memos.
pub(super) struct StepMemo<'a> {
    work: &'a Work<'a>,
    digest: Option<Digest>,
}

impl<'a> StepMemo<'a> {
    /// The memo of this step with these inputs, if the run keeps memos.
    pub(super) async fn of(work: &'a Work<'a>, inputs: &[Held]) -> Result<Self, Error> {
        if work.run.header.keep_ms.is_none() {
            return Ok(StepMemo::new(work, None));
        }
        let plan = &work.run.plan;
        let digest = memo_of(&plan.program, work.taken.node(plan), &work.address().await?, inputs);
        Ok(StepMemo::new(work, Some(digest)))
    }

    pub(super) fn new(work: &'a Work<'a>, digest: Option<Digest>) -> Self {
        StepMemo { work, digest }
    }

    pub(super) fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// The memo under which a commit keeps the outputs; `None` if there is none, or outputs are kept under it already.
    pub(super) async fn if_not_kept(&self) -> Result<Option<&Digest>, Error> {
        let Some(digest) = &self.digest else { return Ok(None) };
        let Some(row) = self.work.shared().row(self.work.run.plan.keys.memo(digest)).await? else {
            return Ok(Some(digest));
        };
        rows::read::<Memo>(&row).ok_or_else(|| Error::damaged("what a step gave before"))?;
        Ok(None)
    }

    /// Commits the kept outputs of this step's memo, if they are there and still are when it commits.
    pub(super) async fn reuse(&self) -> Result<Option<Option<Job>>, Error> {
        let Some(memo) = &self.digest else { return Ok(None) };
        let plan = &self.work.run.plan;
        let kept = KeptValues::new(&self.work.shared().kernel, &plan.keys).if_intact(plan.keys.memo(memo)).await?;
        let Some(outputs) = kept else { return Ok(None) };
        if !seams::is_pinned(plan.keys.generation) {
            return Ok(None);
        }
        let what = EventKind::DidReuse { address: self.work.address_if_wanted().await? };
        let commit = |state: RunState| {
            let mut draft = step::commit(plan, state, &self.work.taken, &outputs);
            draft.batch.require_present(plan.keys.memo(memo));
            draft
        };
        let committed = self.work.commit(&[], Some(what), commit).await?;
        self.work.got_on(self.work.taken.frame.shape, self.work.taken.step.node);
        Ok(match committed {
            WorkCommit::DecideAgain => None,
            committed => Some(committed.next()),
        })
    }
}
