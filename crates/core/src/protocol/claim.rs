//! Decides every batch about a claim alone: it is renewed, given back, taken over, restored or moved. Nothing here knows
//! what the work is, so a flow's step, an activation of a scope and a partition of a stream are claimed alike.
//!
//! **The name of the ready row is the identity of the work**, in whichever queue the row stands. Its first bytes are the
//! lane that takes turns with others (a run, a session, a stage), the rest is the owner's: for a step its plan, frame,
//! instance and node. Work that is done repeatedly has the number of its activation in the name (the instance of a step),
//! so that a late worker of one activation never commits another.

use crate::{
    batch::Batch,
    fence::Fence,
    key::{Group, Key, Name, Shard},
    queue::Claimed,
    row::Row,
    seams,
    time::Timestamp,
};

/// A claim that a worker holds on a piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkClaim {
    /// The queue of its ready row.
    pub queue: Group,
    /// The name of the row: the identity of the work.
    pub name: Name,
    /// The fence of the claim.
    pub fence: Fence,
    /// The content of the ready row when it was claimed.
    pub row: Row,
}

impl WorkClaim {
    /// Returns the claim that the store granted.
    pub fn new(claimed: &Claimed, fence: Fence) -> Self {
        let Claimed { queue, name, row, .. } = claimed.clone();
        WorkClaim { queue, name, fence, row }
    }

    /// Returns the key of the ready row.
    pub fn ready_key(&self) -> Key {
        self.queue.key(&self.name)
    }

    /// Returns the key of the claim's row.
    pub fn claim_key(&self) -> Key {
        claim_key(&self.ready_key())
    }

    /// Returns the key of the claim's deadline.
    pub fn deadline_key(&self) -> Key {
        deadline_key(&self.ready_key())
    }

    /// The row of a claim is this claim.
    pub fn is(&self, found: Option<&Row>) -> bool {
        found.is_some_and(|row| row[..] == self.fence.to_bytes())
    }

    /// Requires that the claim stands. Every batch that does something for the work begins with this.
    pub fn require(&self, batch: &mut Batch) {
        seams::require_claim(batch, self);
    }

    /// Ends the work: deletes its ready row with the claim.
    pub fn leave(&self, batch: &mut Batch) {
        seams::delete_ready_row(batch, self.ready_key());
        self.release(batch);
    }

    fn release(&self, batch: &mut Batch) {
        batch.delete(self.claim_key()).delete(self.deadline_key());
    }

    /// Returns an empty batch that requires the claim.
    pub fn holding(&self, shard: Shard) -> Batch {
        let mut batch = Batch::new(shard);
        batch.require_equals(self.claim_key(), fence_row(self.fence));
        batch
    }

    /// Moves the deadline: a heartbeat.
    pub fn renew(&self, shard: Shard, deadline: Timestamp) -> Batch {
        let mut batch = self.holding(shard);
        batch.put(self.deadline_key(), Row::new(deadline.to_sortable()));
        batch
    }

    /// Gives the work back: any worker can claim it.
    pub fn give_back(&self, shard: Shard) -> Batch {
        let mut batch = self.holding(shard);
        self.release(&mut batch);
        batch
    }

    /// Drops the work: its ready row goes with the claim.
    pub fn drop_work(&self, shard: Shard) -> Batch {
        let mut batch = self.holding(shard);
        batch.delete(self.ready_key());
        self.release(&mut batch);
        batch
    }

    /// Moves the work to another queue with the ready row as it is now, and gives it up. `batch` may require more.
    pub fn move_to(&self, batch: &mut Batch, queue: &Group, row: Row) {
        self.require(batch);
        batch.delete(self.ready_key());
        self.release(batch);
        batch.put(queue.key(&self.name), row);
    }

    /// Puts the claim back under which its worker already does the work, and which the store had forgotten when it
    /// granted this one.
    pub fn restore(&self, shard: Shard, before: Fence) -> Batch {
        assert_ne!(before, self.fence, "a claim on {:?} is replaced by itself", self.name);
        let mut batch = self.holding(shard);
        batch.put(self.claim_key(), fence_row(before));
        batch
    }

    /// Claims the work again under the same fence: a store that changed its owner has forgotten the claim, though the
    /// worker lives on. `ready` is the ready row as it was just read; see [`super::step::is_same_attempt`].
    pub fn claim_again(&self, shard: Shard, ready: Row, deadline: Timestamp) -> Batch {
        let mut batch = Batch::new(shard);
        batch.require_absent(self.claim_key()).require_equals(self.ready_key(), ready);
        batch.put(self.claim_key(), fence_row(self.fence));
        batch.put(self.deadline_key(), Row::new(deadline.to_sortable()));
        batch
    }
}

fn fence_row(fence: Fence) -> Row {
    Row::new(fence.to_bytes())
}

/// Returns the key of the claim on the work with this ready row.
pub fn claim_key(ready: &Key) -> Key {
    ready.group.claims().key(&ready.name)
}

/// Returns the key of the deadline of the claim on the work with this ready row.
pub fn deadline_key(ready: &Key) -> Key {
    ready.group.deadlines().key(&ready.name)
}

/// The deadline of a claim has passed. One that cannot be read protects no worker.
pub fn is_overdue(deadline: &Row, now: Timestamp) -> bool {
    Timestamp::from_sortable(deadline).is_none_or(|deadline| deadline <= now)
}

/// Frees work whose worker is too late: requires claim and deadline as they were read, so a renewal wins.
pub fn take_over(shard: Shard, ready: &Key, claim: Row, deadline: Row) -> Batch {
    let mut batch = Batch::new(shard);
    let (claim_key, deadline_key) = (claim_key(ready), deadline_key(ready));
    batch.require_equals(claim_key.clone(), claim);
    seams::require_deadline(&mut batch, deadline_key.clone(), deadline);
    batch.delete(claim_key).delete(deadline_key);
    batch
}

/// Frees work whose worker is known to be gone, whatever the deadline.
pub fn release_dead(shard: Shard, ready: &Key, claim: Row) -> Batch {
    let mut batch = Batch::new(shard);
    let claim_key = claim_key(ready);
    batch.require_equals(claim_key.clone(), claim).delete(claim_key).delete(deadline_key(ready));
    batch
}

/// Moves work that no worker has claimed to another queue. `batch` may require more.
pub fn move_free(batch: &mut Batch, ready: &Key, row: Row, queue: &Group) {
    batch.require_equals(ready.clone(), row.clone()).require_absent(claim_key(ready));
    batch.delete(ready.clone()).put(queue.key(&ready.name), row);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{batch::Require, fence::Fences};

    fn claim() -> WorkClaim {
        let fence = Fences::new(7).next();
        WorkClaim { queue: Group::queue("q"), name: Name::new("work"), fence, row: Row::new("ready") }
    }

    #[test]
    fn every_batch_of_a_held_claim_requires_it_and_may_be_repeated() {
        let (claim, shard) = (claim(), Shard(0));
        let before = Fences::new(8).next();
        let batches = [
            claim.renew(shard, Timestamp::from_ms(9)),
            claim.give_back(shard),
            claim.drop_work(shard),
            claim.restore(shard, before),
        ];
        for batch in batches {
            assert_eq!(batch.requires, [Require::Equals(claim.claim_key(), Row::new(claim.fence.to_bytes()))]);
            assert!(batch.is_repeatable(), "{batch:?}");
        }
    }

    #[test]
    fn a_takeover_requires_claim_and_deadline_as_they_were_seen() {
        let claim = claim();
        let (fence, deadline) = (Row::new(claim.fence.to_bytes()), Row::new(Timestamp::from_ms(5).to_sortable()));
        let batch = take_over(Shard(0), &claim.ready_key(), fence.clone(), deadline.clone());
        let seen = [Require::Equals(claim.claim_key(), fence), Require::Equals(claim.deadline_key(), deadline.clone())];
        assert_eq!(batch.requires, seen);
        assert!(is_overdue(&deadline, Timestamp::from_ms(5)) && !is_overdue(&deadline, Timestamp::from_ms(4)));
        assert!(is_overdue(&Row::new("torn"), Timestamp::ZERO), "a deadline that cannot be read protects no worker");
    }

    #[test]
    fn work_that_is_claimed_again_must_be_free_and_unchanged() {
        let claim = claim();
        let batch = claim.claim_again(Shard(0), claim.row.clone(), Timestamp::from_ms(9));
        let expected = [Require::Absent(claim.claim_key()), Require::Equals(claim.ready_key(), claim.row.clone())];
        assert_eq!(batch.requires, expected);
        assert!(batch.is_repeatable());
    }
}
