//! Claims work, finds the claim whose reply was lost, and gives work back.

use super::Kernel;
use crate::Error;
use onceflow_core::{
    Batch, Claim, Claimed, Fence, Group, Inbox, Name, Pick, Row, Timestamp,
    limits::{CLAIM_ROWS_MAX, SCAN_ROWS_MAX},
    protocol::claim::WorkClaim,
};
use onceflow_store::{
    Committed, Position,
    records::{self, Scan},
};

/// A claimed piece of work, before its rows are read.
pub(crate) struct Job {
    /// The claim.
    pub(crate) claim: WorkClaim,
    /// The first rows of its inbox.
    pub(crate) inputs: Vec<(Name, Row)>,
    /// The inbox has more rows.
    pub(crate) more: bool,
    /// The position of the claim: work that touches the world waits until it is durable.
    pub(crate) position: Position,
    /// The time at which the claim was sent, on this machine's clock.
    pub(crate) asked: Timestamp,
}

/// A claim on its way, and when it was sent: the lease may run out before the reply is read.
#[derive(Clone)]
pub(crate) struct Asked {
    claim: Claim,
    at: Timestamp,
}

impl Asked {
    /// The claim, for the batch that carries it.
    pub(super) fn claim(&self) -> Claim {
        self.claim.clone()
    }

    /// The work that the batch with this claim took.
    pub(super) fn job(&self, committed: Committed) -> Option<Job> {
        let Committed { position, claimed, .. } = committed;
        let Claimed { queue, name, row, inputs, more, .. } = claimed?;
        let claim = WorkClaim { queue, name, fence: self.claim.fence, row };
        Some(Job { claim, inputs, more, position, asked: self.at })
    }
}

impl Kernel {
    /// A claim on the next ready work of these queues; `None` if there are none to look in.
    pub(crate) fn ask(&self, queues: Vec<Group>, pick: Pick, now: Timestamp) -> Option<Asked> {
        if queues.is_empty() {
            return None;
        }
        let claim = Claim { queues, fence: self.fences.next(), ttl_ms: self.lease_ms, pick };
        Some(Asked { claim, at: now })
    }

    /// Claims ready work.
    pub(crate) async fn take(&self, asked: &Asked) -> Result<Option<Job>, Error> {
        let mut batch = Batch::new(self.shard);
        batch.claim = Some(asked.claim());
        match records::commit_kept(&*self.records, &batch).await {
            Ok(result) => Ok(result.applied().and_then(|committed| asked.job(committed))),
            Err(records::Error::Unknown(_)) => self.taken_unseen(asked).await,
            Err(error) => Err(error.into()),
        }
    }

    /// The work that a claim took whose reply was lost: it is found by its fence.
    pub(super) async fn taken_unseen(&self, asked: &Asked) -> Result<Option<Job>, Error> {
        let claimed = self.find_claim(&asked.claim).await?;
        Ok(asked.job(Committed { position: self.records.position(), fired: vec![], claimed }))
    }

    async fn find_claim(&self, claim: &Claim) -> Result<Option<Claimed>, Error> {
        for queue in &claim.queues {
            let mut after = None;
            loop {
                let scan = Scan::of(queue.claims(), SCAN_ROWS_MAX).after(after);
                let page = self.records.scan(self.shard, scan).await?;
                let mine = |(_, row): &&(_, Row)| row[..] == claim.fence.to_bytes();
                if let Some((name, _)) = page.rows.iter().find(mine) {
                    return self.read_claimed(queue, name, claim.fence).await;
                }
                after = page.rows.last().map(|(name, _)| name.clone());
                if !page.more {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Reads what the claim would have answered. The claim is renewed, so that the client side of the store knows it and
    /// asserts it again if the store changes its owner.
    async fn read_claimed(&self, queue: &Group, name: &Name, fence: Fence) -> Result<Option<Claimed>, Error> {
        let Some(row) = self.row(queue.key(name)).await? else { return Ok(None) };
        let inbox = Inbox::from_row(&row).ok_or_else(|| Error::damaged("a row in a queue"))?;
        let scan = Scan::of(inbox.group, CLAIM_ROWS_MAX).prefix(&inbox.prefix);
        let page = self.records.scan(self.shard, scan).await?;
        let deadline = self.lease_end().await?;
        let claim = WorkClaim { queue: queue.clone(), name: name.clone(), fence, row };
        if !self.apply(claim.renew(self.shard, deadline)).await? {
            return Ok(None);
        }
        let WorkClaim { queue, name, row, .. } = claim;
        Ok(Some(Claimed { queue, name, row, inputs: page.rows, more: page.more, deadline }))
    }

    /// The end of a lease that begins now.
    pub(super) async fn lease_end(&self) -> Result<Timestamp, Error> {
        Ok(self.records.now().await?.plus_ms(self.lease_ms))
    }

    /// The claim stands.
    pub(crate) async fn is_ours(&self, claim: &WorkClaim) -> Result<bool, Error> {
        Ok(claim.is(self.row(claim.claim_key()).await?.as_ref()))
    }

    /// Gives work back, so that any worker can claim it. Nothing changes if it is not ours any more.
    pub(crate) async fn give_back(&self, claim: &WorkClaim) -> Result<(), Error> {
        self.apply(claim.give_back(self.shard)).await.map(drop)
    }

    /// Claims work again under its fence, if the claim is gone though the work is free and as it was claimed: no commit
    /// deleted the claim, but a store that changed its owner forgot it. False if the work is not ours any more.
    pub(super) async fn claim_again(&self, claim: &WorkClaim) -> Result<bool, Error> {
        let Some(ready) = self.row(claim.ready_key()).await? else { return Ok(false) };
        if !(self.is_same_attempt)(&claim.row, &ready) {
            return Ok(false);
        }
        let deadline = self.lease_end().await?;
        self.apply(claim.claim_again(self.shard, ready, deadline)).await
    }
}
