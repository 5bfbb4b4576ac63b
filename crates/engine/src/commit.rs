//! Commits drafts. A batch that is refused because the run's state has changed is decided again, without running user
//! code again. A batch whose reply is lost is sent again, which is harmless.

use crate::{
    Error,
    perform::Job,
    seams,
    shared::{Run, Shared},
    worker::Asked,
};
use onceflow_core::{
    Batch, Claim, Claimed, Fence, Group, Inbox, Kind, Name, Op, Row,
    limits::SCAN_ROWS_MAX,
    protocol::{
        draft::Draft,
        ids::Generation,
        rows::{self, ReadyStep, State},
        step::Taken,
    },
};
use onceflow_store::{
    CommitResult, Committed, Position,
    records::{self, Scan},
    values::ValueChange,
};

/// Replies lost in a row before the rows are read to see whether the batch happened.
const REPLIES_LOST_MAX: usize = 5;

/// The result of a commit for the step it was decided for. Built from the store's [`CommitResult`], and the only commit
/// result that performing code sees.
pub(crate) enum StepCommit {
    /// The batch happened, at this position, and its claim took the next step.
    Committed { position: Position, next: Option<Job> },
    /// The step is not ours any more: another worker has it, it was committed, or the run went on without it.
    Lost,
    /// A row that the decision rests on has changed while the step is still ours.
    DecideAgain,
}

impl StepCommit {
    fn new(asked: Option<&Asked>, committed: Committed) -> Self {
        let position = committed.position;
        StepCommit::Committed { position, next: asked.and_then(|asked| asked.job(committed)) }
    }

    /// The step that the batch claimed for this slot.
    pub(crate) fn next(self) -> Option<Job> {
        match self {
            StepCommit::Committed { next, .. } => next,
            StepCommit::Lost | StepCommit::DecideAgain => None,
        }
    }
}

/// The place of the require on the state of the run, in every draft.
const STATE: usize = 0;
/// The place of the require on the claim, in every draft of a step.
const CLAIM: usize = 1;

impl Shared {
    /// Commits a claimed step, deciding again while only the state of its run has changed in between.
    pub(crate) async fn commit<'a>(
        &self,
        run: &'a Run,
        taken: &Taken,
        asked: Option<&Asked>,
        changes: &[ValueChange],
        decide: impl Fn(State) -> Draft<'a>,
    ) -> Result<StepCommit, Error> {
        loop {
            let state = run.state();
            if !may_commit(taken, state) {
                return Ok(StepCommit::Lost);
            }
            let mut batch = self.batch(decide(state), changes, asked).await?;
            let leaves = batch.ops.iter().any(|op| matches!(op, Op::Delete(key) if key.group.kind() == Kind::Claims));
            let parked = run.plan.keys.parked(taken.step);
            let parks = batch.ops.iter().any(|op| matches!(op, Op::Put(key, _) if *key == parked));
            let later = Batch { ops: seams::split_from_commit(&mut batch, taken), ..Batch::new(self.shard()) };
            match self.send(batch).await {
                Ok(CommitResult::Applied(committed)) => {
                    seams::commit_apart(&*self.records, later).await?;
                    return Ok(StepCommit::new(asked, committed));
                }
                Ok(CommitResult::Refused(refused)) if refused.which == STATE => {
                    let Some(found) = refused.found.as_deref().and_then(rows::read::<State>) else {
                        return Ok(StepCommit::Lost);
                    };
                    if found.generation != run.plan.keys.generation || !may_commit(taken, found) {
                        return Ok(StepCommit::Lost);
                    }
                    run.set_state(found);
                }
                Ok(CommitResult::Refused(refused)) if refused.which == CLAIM => {
                    let again = refused.found.is_none() && self.claim_was_forgotten(taken).await?;
                    if !again {
                        return Ok(StepCommit::Lost);
                    }
                }
                Ok(CommitResult::Refused(_)) => return Ok(StepCommit::DecideAgain),
                Err(error @ records::Error::Unknown(_)) => {
                    match self.is_ours(taken).await? || self.claim_was_forgotten(taken).await? {
                        true => tracing::debug!(%error, "the commit did not happen; trying again"),
                        // The claim went: with this batch, if that takes it away; else another worker has the step now.
                        false if leaves && self.went(run, taken, parks).await? => {
                            return self.applied_unseen(asked).await;
                        }
                        false => return Ok(StepCommit::Lost),
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The step left its queue as our batch would have it leave. A step that is still ready, or was parked as unknown
    /// by another worker, was taken from us.
    async fn went(&self, run: &Run, taken: &Taken, parks: bool) -> Result<bool, Error> {
        // A worker that does not offer its task moves it to another queue: that is not leaving either.
        let mut keys = vec![run.plan.keys.parked(taken.step), taken.queue.key(&taken.name)];
        keys.extend(crate::worker::unserved::elsewhere(run, taken));
        let found = self.records.get(self.shard(), &keys).await?;
        Ok(found[1..].iter().all(Option::is_none) && (parks || found[0].is_none()))
    }

    /// Commits a draft that holds in one state of the run only. [`StepCommit::DecideAgain`] if the state has changed,
    /// or the step is not ours.
    pub(crate) async fn commit_once(
        &self,
        taken: &Taken,
        draft: Draft<'_>,
        changes: &[ValueChange],
        asked: Option<&Asked>,
    ) -> Result<StepCommit, Error> {
        let batch = self.batch(draft, changes, asked).await?;
        match self.send(batch).await {
            Ok(CommitResult::Applied(committed)) => Ok(StepCommit::new(asked, committed)),
            Ok(CommitResult::Refused(_)) => Ok(StepCommit::DecideAgain),
            Err(records::Error::Unknown(_)) => {
                let is_ours = self.is_ours(taken).await? || self.claim_was_forgotten(taken).await?;
                // If its row is there, another worker has the step, or will take it.
                if is_ours || self.row(taken.queue.key(&taken.name)).await?.is_some() {
                    return Ok(StepCommit::DecideAgain);
                }
                self.applied_unseen(asked).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The commit of a batch that happened but whose reply was lost: the step it claimed is found by its fence.
    async fn applied_unseen(&self, asked: Option<&Asked>) -> Result<StepCommit, Error> {
        let claimed = match asked {
            None => None,
            Some(asked) => self.find_claim(&asked.claim).await?,
        };
        Ok(StepCommit::new(asked, Committed { position: self.records.position(), fired: vec![], claimed }))
    }

    /// Claims the step again if its claim is gone though the step is free and as it was claimed: no commit deleted the
    /// claim, but a store that changed its owner forgot it. False if the step is not ours any more.
    async fn claim_was_forgotten(&self, taken: &Taken) -> Result<bool, Error> {
        let Taken { queue, name, fence, ready_step, .. } = taken;
        self.claim_as(queue, name, *fence, (ready_step.generation, ready_step.failed)).await
    }

    /// The claim on a step still stands.
    pub(crate) async fn is_ours(&self, taken: &Taken) -> Result<bool, Error> {
        let found = self.row(taken.queue.claims().key(&taken.name)).await?;
        Ok(found.as_deref() == Some(&taken.fence.to_bytes()[..]))
    }

    /// Claims a step again under its old fence, if the claim is gone and no other worker has one: a store that changed
    /// its owner has forgotten all claims, though the workers that made them live on. `taken` is its row when it was
    /// claimed.
    pub(crate) async fn claim_again(
        &self,
        queue: &Group,
        name: &Name,
        fence: Fence,
        taken: &Row,
    ) -> Result<bool, Error> {
        let Some(ready_step) = ready_step(taken) else { return Ok(false) };
        self.claim_as(queue, name, fence, (ready_step.generation, ready_step.failed)).await
    }

    /// As [`Shared::claim_again`], for a step that was claimed in that generation, after so many failures.
    async fn claim_as(
        &self,
        queue: &Group,
        name: &Name,
        fence: Fence,
        taken: (Generation, u32),
    ) -> Result<bool, Error> {
        let Some(row) = self.row(queue.key(name)).await? else { return Ok(false) };
        let is_same = ready_step(&row).is_some_and(|ready_step| {
            // A started at-most-once step is not claimed again: another worker may be deciding about it.
            (ready_step.generation, ready_step.failed) == taken && ready_step.started.is_none()
        });
        if !is_same {
            return Ok(false);
        }
        let deadline = self.records.now().await?.plus_ms(self.options.lease_ms);
        let claim = queue.claims().key(name);
        let mut batch = Batch::new(self.shard());
        batch.require_absent(claim.clone()).require_equals(queue.key(name), row);
        batch.put(claim, Row::new(fence.to_bytes()));
        batch.put(queue.deadlines().key(name), Row::new(deadline.to_sortable()));
        Ok(self.records.commit(batch).await?.is_applied())
    }

    /// The step that a claim took whose reply was lost. The claim is renewed, so that the client side of the store
    /// knows it and asserts it again if the store changes its owner.
    pub(crate) async fn find_claim(&self, claim: &Claim) -> Result<Option<Claimed>, Error> {
        for queue in &claim.queues {
            let mut after = None;
            loop {
                let scan = Scan::of(queue.claims(), SCAN_ROWS_MAX).after(after);
                let page = self.records.scan(self.shard(), scan).await?;
                let mine = |(_, row): &&(_, Row)| row[..] == claim.fence.to_bytes();
                if let Some((name, fence)) = page.rows.iter().find(mine) {
                    return self.read_claimed(queue, name, fence).await;
                }
                after = page.rows.last().map(|(name, _)| name.clone());
                if !page.more {
                    break;
                }
            }
        }
        Ok(None)
    }

    async fn read_claimed(
        &self,
        queue: &onceflow_core::Group,
        name: &onceflow_core::Name,
        fence: &Row,
    ) -> Result<Option<Claimed>, Error> {
        let Some(row) = self.row(queue.key(name)).await? else { return Ok(None) };
        let inbox = onceflow_core::Inbox::from_row(&row).ok_or_else(|| Error::damaged("a row in a queue"))?;
        let scan = Scan::of(inbox.group, onceflow_core::limits::CLAIM_ROWS_MAX).prefix(&inbox.prefix);
        let page = self.records.scan(self.shard(), scan).await?;
        let deadline = self.records.now().await?.plus_ms(self.options.lease_ms);
        let mut renew = Batch::new(self.shard());
        renew.require_equals(queue.claims().key(name), fence.clone());
        renew.put(queue.deadlines().key(name), Row::new(deadline.to_sortable()));
        if !self.records.commit(renew).await?.is_applied() {
            return Ok(None);
        }
        Ok(Some(Claimed {
            queue: queue.clone(),
            name: name.clone(),
            row,
            inputs: page.rows,
            more: page.more,
            deadline,
        }))
    }

    /// Commits a draft that belongs to no claimed step.
    pub(crate) async fn commit_outside(
        &self,
        draft: Draft<'_>,
        changes: &[ValueChange],
    ) -> Result<CommitResult, Error> {
        let batch = self.batch(draft, changes, None).await?;
        Ok(self.send(batch).await?)
    }

    /// The batch of a draft, with its changes to values and the claim on the next step.
    async fn batch(&self, draft: Draft<'_>, changes: &[ValueChange], asked: Option<&Asked>) -> Result<Batch, Error> {
        let (mut batch, of_draft) = draft.finish();
        batch.claim = asked.map(|asked| asked.claim.clone());
        if !changes.is_empty() || !of_draft.is_empty() {
            let all = [changes, &of_draft[..]].concat();
            self.values.add_changes(&mut batch, &all).await?;
        }
        Ok(batch)
    }

    /// Sends a batch, and the very same again while its reply is lost. [`records::Error::Unknown`] if it may have
    /// happened.
    async fn send(&self, batch: Batch) -> Result<CommitResult, records::Error> {
        let mut lost = None;
        for _ in 0..REPLIES_LOST_MAX {
            match self.records.commit(batch.clone()).await {
                Ok(CommitResult::Applied(committed)) => {
                    self.values.notify_committed(&committed);
                    return Ok(CommitResult::Applied(committed));
                }
                Err(error @ records::Error::Unknown(_)) => {
                    seams::repeat_arrivals(&*self.records, &batch).await;
                    lost = Some(error);
                }
                // After a lost reply, a refusal may be the work of the batch itself.
                answer => return lost.map_or(answer, Err),
            }
        }
        Err(lost.expect("every reply was lost"))
    }

    /// A claim on the next ready step of these queues.
    pub(crate) fn next_claim(&self, queues: Vec<onceflow_core::Group>) -> Option<Claim> {
        if queues.is_empty() {
            return None;
        }
        let fence: Fence = self.fences.next();
        Some(Claim { queues, fence, ttl_ms: self.options.lease_ms, pick: onceflow_core::Pick::EnabledFirst })
    }
}

/// Decodes a row of a queue.
pub(crate) fn ready_step(row: &Row) -> Option<ReadyStep> {
    Inbox::from_row(row).and_then(|inbox| rows::read(&inbox.note))
}

/// The step may commit in this state. Internal steps of the end of a run always may.
fn may_commit(taken: &Taken, state: State) -> bool {
    use onceflow_core::protocol::ids::{SETTLE, TEARDOWN, UNDO};
    state.phase.is_open() || matches!(taken.step.node, SETTLE | UNDO | TEARDOWN)
}
