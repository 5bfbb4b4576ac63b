//! Commits decisions. A batch that is refused because a fact has changed is decided again, without doing the work
//! again. A batch whose reply is lost is sent again, which is harmless; if that does not help, the rows tell whether it
//! happened.

use super::{Asked, ClaimedWork, Job, Kernel, Refusal};
use crate::{Error, seams};
use onceflow_core::{
    Batch, Key, Kind, Op,
    protocol::{claim::WorkClaim, draft::Draft},
};
use onceflow_store::{
    CommitResult, Position,
    records::{self, Refused},
    values::ValueChange,
};

/// Replies lost in a row before the rows are read to see whether the batch happened.
const REPLIES_LOST_MAX: usize = 5;

/// A batch, and the changes to values that belong to it.
pub(crate) struct Decision {
    batch: Batch,
    changes: Vec<ValueChange>,
}

impl From<Batch> for Decision {
    fn from(batch: Batch) -> Self {
        Decision { batch, changes: vec![] }
    }
}

impl From<Draft<'_>> for Decision {
    fn from(draft: Draft<'_>) -> Self {
        let (batch, changes) = draft.finish();
        Decision { batch, changes }
    }
}

/// The result of a commit for the work it was decided for. Built from the store's [`CommitResult`], and the only commit
/// result that performing code sees.
pub(crate) enum WorkCommit {
    /// The batch happened, at this position, and its claim took the next work.
    Committed { position: Position, next: Option<Job> },
    /// The work is not ours any more: another worker has it, it was committed, or its run went on without it.
    Lost,
    /// A row that the decision rests on has changed while the work is still ours.
    DecideAgain,
}

impl WorkCommit {
    /// The work that the batch claimed for this slot.
    pub(crate) fn next(self) -> Option<Job> {
        match self {
            WorkCommit::Committed { next, .. } => next,
            WorkCommit::Lost | WorkCommit::DecideAgain => None,
        }
    }
}

impl Kernel {
    /// Commits claimed work, deciding again while its owner can say what has changed. `decide` answers `None` when the
    /// work may not commit any more.
    pub(crate) async fn commit(
        &self,
        work: &impl ClaimedWork,
        asked: Option<&Asked>,
        changes: &[ValueChange],
        decide: impl Fn() -> Option<Decision>,
    ) -> Result<WorkCommit, Error> {
        let claim = work.claim();
        loop {
            let Some(decision) = decide() else { return Ok(WorkCommit::Lost) };
            let mut batch = self.batch(decision, changes, asked).await?;
            assert!(
                batch.requires.iter().any(|require| is_about(require.key(), claim)),
                "the commit of {:?} does not require its claim: a worker that lost the work would commit it too",
                claim.name
            );
            let later = Batch { ops: seams::split_from_commit(&mut batch, claim), ..Batch::new(self.shard) };
            match self.send(&batch).await {
                Ok(CommitResult::Applied(committed)) => {
                    seams::commit_apart(&*self.records, later).await?;
                    let position = committed.position;
                    return Ok(WorkCommit::Committed { position, next: asked.and_then(|asked| asked.job(committed)) });
                }
                Ok(CommitResult::Refused(refused)) => match self.refused(work, &batch, &refused).await? {
                    Refusal::Again => {}
                    Refusal::Lost => return Ok(WorkCommit::Lost),
                    Refusal::Changed => return Ok(WorkCommit::DecideAgain),
                },
                Err(error @ records::Error::Unknown(_)) => {
                    match self.is_ours(claim).await? || self.claim_again(claim).await? {
                        true => tracing::debug!(%error, "the commit did not happen; trying again"),
                        // The claim went: with this batch, if that takes it away; else another worker has the work now.
                        false if self.went(work, &batch).await? => return self.applied_unseen(asked).await,
                        false => return Ok(WorkCommit::Lost),
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Commits a decision that holds on the facts it was made with only: [`WorkCommit::DecideAgain`] if one has changed,
    /// or the work is not ours.
    pub(crate) async fn commit_once(
        &self,
        claim: &WorkClaim,
        asked: Option<&Asked>,
        changes: &[ValueChange],
        decision: Decision,
    ) -> Result<WorkCommit, Error> {
        let batch = self.batch(decision, changes, asked).await?;
        match self.send(&batch).await {
            Ok(CommitResult::Applied(committed)) => {
                let position = committed.position;
                Ok(WorkCommit::Committed { position, next: asked.and_then(|asked| asked.job(committed)) })
            }
            Ok(CommitResult::Refused(_)) => Ok(WorkCommit::DecideAgain),
            Err(records::Error::Unknown(_)) => {
                let is_ours = self.is_ours(claim).await? || self.claim_again(claim).await?;
                // If its row is there, another worker has the work, or will take it.
                if is_ours || self.row(claim.ready_key()).await?.is_some() {
                    return Ok(WorkCommit::DecideAgain);
                }
                self.applied_unseen(asked).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Commits a decision that belongs to no claimed work.
    pub(crate) async fn commit_outside(
        &self,
        decision: Decision,
        changes: &[ValueChange],
    ) -> Result<OutsideCommit, Error> {
        let batch = self.batch(decision, changes, None).await?;
        Ok(match self.send(&batch).await? {
            CommitResult::Applied(committed) => OutsideCommit::Applied(committed.position),
            CommitResult::Refused(refused) => OutsideCommit::Refused(key_of(&batch, &refused).clone()),
        })
    }

    async fn refused(&self, work: &impl ClaimedWork, batch: &Batch, refused: &Refused) -> Result<Refusal, Error> {
        let (claim, key) = (work.claim(), key_of(batch, refused));
        if !is_about(key, claim) {
            return Ok(work.refused(key, refused.found.as_ref()));
        }
        Ok(match refused.found.is_none() && self.claim_again(claim).await? {
            true => Refusal::Again,
            false => Refusal::Lost,
        })
    }

    /// The work left its queue as our batch would have it leave. Work that is still ready, or stands elsewhere where our
    /// batch does not put it, was taken from us.
    async fn went(&self, work: &impl ClaimedWork, batch: &Batch) -> Result<bool, Error> {
        let leaves = batch.ops.iter().any(|op| matches!(op, Op::Delete(key) if key.group.kind() == Kind::Claims));
        if !leaves {
            return Ok(false);
        }
        let mut keys = work.elsewhere();
        keys.retain(|row| !batch.ops.iter().any(|op| matches!(op, Op::Put(key, _) if key == row)));
        keys.push(work.claim().ready_key());
        Ok(self.records.get(self.shard, &keys).await?.iter().all(Option::is_none))
    }

    /// The commit of a batch that happened but whose reply was lost.
    async fn applied_unseen(&self, asked: Option<&Asked>) -> Result<WorkCommit, Error> {
        let next = match asked {
            None => None,
            Some(asked) => self.taken_unseen(asked).await?,
        };
        Ok(WorkCommit::Committed { position: self.records.position(), next })
    }

    /// The batch of a decision, with all changes to values and the claim on the next work.
    async fn batch(&self, decision: Decision, changes: &[ValueChange], asked: Option<&Asked>) -> Result<Batch, Error> {
        let Decision { mut batch, changes: own } = decision;
        batch.claim = asked.map(Asked::claim);
        match (changes, &own[..]) {
            ([], []) => {}
            ([], all) | (all, []) => self.values.add_changes(&mut batch, all).await?,
            (changes, own) => self.values.add_changes(&mut batch, &[changes, own].concat()).await?,
        }
        Ok(batch)
    }

    /// Sends a batch, and the very same again while its reply is lost. [`records::Error::Unknown`] if it may have
    /// happened.
    async fn send(&self, batch: &Batch) -> Result<CommitResult, records::Error> {
        let mut lost = None;
        for _ in 0..REPLIES_LOST_MAX {
            match self.records.commit(batch.clone()).await {
                Ok(CommitResult::Applied(committed)) => {
                    self.values.notify_committed(&committed);
                    return Ok(CommitResult::Applied(committed));
                }
                Err(error @ records::Error::Unknown(_)) => {
                    seams::repeat_arrivals(&*self.records, batch).await;
                    lost = Some(error);
                }
                // After a lost reply, a refusal may be the work of the batch itself.
                answer => return lost.map_or(answer, Err),
            }
        }
        Err(lost.expect("every reply was lost"))
    }
}

/// The result of a commit that belongs to no claimed work.
#[must_use = "a refused batch changed nothing"]
pub(crate) enum OutsideCommit {
    /// The batch happened, at this position.
    Applied(Position),
    /// The row with this key was not as required; nothing changed.
    Refused(Key),
}

impl OutsideCommit {
    /// The position of a batch that happened.
    pub(crate) fn applied(self) -> Option<Position> {
        match self {
            OutsideCommit::Applied(position) => Some(position),
            OutsideCommit::Refused(_) => None,
        }
    }

    pub(crate) fn is_applied(&self) -> bool {
        matches!(self, OutsideCommit::Applied(_))
    }
}

/// The key of the require that did not hold.
fn key_of<'a>(batch: &'a Batch, refused: &Refused) -> &'a Key {
    batch.requires[refused.which].key()
}

/// The row is the claim; or, under the mistake of not requiring it, the ready row.
fn is_about(key: &Key, claim: &WorkClaim) -> bool {
    key.name == claim.name && matches!(key.group.kind(), Kind::Claims | Kind::Queue)
}
