//! The claims a process holds, as that process knows them, and how they come back after the store changed its owner.
//!
//! A journal does not log claims, so they are lost with the process that had it open. The holder of a claim remembers
//! it here, from the replies it was given, and [asserts it again](reassert) to the next owner before that grants
//! anything. A claim is void with its holder, never with the owner of the directory.
//!
//! An entry is compared with the ready row it stands on. A commit that was sent and never answered may have happened: if
//! the row is no longer one that the claim can stand on, the claim is not put back.

use crate::{
    records::{CommitResult, Error, Records},
    sync::{Mutex, lock},
};
use onceflow_core::{Batch, Group, Key, Kind, Name, Op, Require, Row, Shard, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How long a claim stands after it was asserted again, if its holder gave no time to live. Holders renew far earlier.
const RENEWED_MS: u64 = 30_000;

/// A claim as its holder asserts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldClaim {
    /// The shard of its queue.
    pub shard: Shard,
    /// The queue.
    pub queue: Group,
    /// The row it is on.
    pub name: Name,
    /// The fence, as its row holds it.
    pub fence: Row,
    /// The last deadline that its holder knows of.
    pub deadline: Option<Timestamp>,
    /// How long it stands without a renewal; 0 if that is not known.
    pub ttl_ms: u64,
    /// Digests of the ready rows that it may stand on; none if any may be there.
    pub rows: Vec<[u8; 32]>,
}

impl HeldClaim {
    /// Its holder gave it up: not renewed for twice as long as it stands.
    fn is_lapsed(&self, now: Timestamp) -> bool {
        let stands_ms = self.ttl_ms.max(RENEWED_MS);
        self.deadline.is_some_and(|deadline| deadline.plus_ms(stands_ms) < now)
    }

    fn renewed(&self, now: Timestamp) -> Timestamp {
        let renewed = now.plus_ms(if self.ttl_ms == 0 { RENEWED_MS } else { self.ttl_ms });
        self.deadline.map_or(renewed, |deadline| deadline.max(renewed))
    }
}

/// Restores a claim that its holder asserts; false if the row is gone, is another one, or another process has it.
///
/// # Errors
/// If the store does not answer.
pub async fn reassert(records: &dyn Records, held: &HeldClaim) -> Result<bool, Error> {
    if held.queue.kind() != Kind::Queue {
        return Ok(false);
    }
    let (ready, claim) = (held.queue.key(&held.name), held.queue.claims().key(&held.name));
    let found = records.get(held.shard, &[ready.clone(), claim.clone()]).await?;
    let now = records.now().await?;
    let row = match &found[..] {
        [_, Some(fence)] => return Ok(*fence == held.fence),
        [Some(row), None] => row.clone(),
        _ => return Ok(false),
    };
    let is_same = held.rows.is_empty() || held.rows.contains(&digest(&row));
    if !is_same || held.is_lapsed(now) {
        return Ok(false);
    }
    let mut batch = Batch::new(held.shard);
    batch.require_absent(claim.clone()).require_equals(ready, row);
    batch.put(claim, held.fence.clone());
    batch.put(held.queue.deadlines().key(&held.name), Row::new(held.renewed(now).to_sortable()));
    Ok(records.commit(batch).await?.is_applied())
}

fn digest(row: &Row) -> [u8; 32] {
    *blake3::hash(row).as_bytes()
}

/// The claims that a process holds, by what it was answered.
#[derive(Default)]
pub struct HeldClaims(Mutex<BTreeMap<ClaimedRow, Entry>>);

type ClaimedRow = (Shard, Name, Name);

struct Entry {
    fence: Row,
    deadline: Option<Timestamp>,
    ttl_ms: u64,
    /// The possible contents of the ready row; empty if they are not known.
    rows: Vec<Row>,
}

/// The claims that the answer to a batch grants or drops.
#[derive(Default)]
pub struct PendingClaims {
    shard: Shard,
    steps: Vec<Step>,
    /// The requires that a claim is ours, by their number in the batch.
    requires: Vec<(usize, ClaimedRow, Row)>,
    claim: Option<(Row, u64)>,
}

/// The effect of a batch on one claimed step.
struct Step {
    queue: Name,
    name: Name,
    required: Option<Row>,
    claim: Option<Option<Row>>,
    deadline: Option<Timestamp>,
    ready: Option<Option<Row>>,
    required_ready: Option<Row>,
}

impl PendingClaims {
    fn step(&mut self, key: &Key) -> &mut Step {
        let (queue, name) = (key.group.id_name(), &key.name);
        let at = self.steps.iter().position(|step| step.queue == *queue && step.name == *name);
        let at = at.unwrap_or_else(|| {
            let (queue, name) = (queue.clone(), name.clone());
            let step =
                Step { queue, name, required: None, claim: None, deadline: None, ready: None, required_ready: None };
            self.steps.push(step);
            self.steps.len() - 1
        });
        &mut self.steps[at]
    }

    fn known(&mut self, key: &Key) -> Option<&mut Step> {
        self.steps.iter_mut().find(|step| step.queue == *key.group.id_name() && step.name == key.name)
    }

    fn place(&self, key: &Key) -> ClaimedRow {
        (self.shard, key.group.id_name().clone(), key.name.clone())
    }
}

impl HeldClaims {
    /// The claims that the answer to a batch grants or drops; `None` if none.
    pub fn expect(&self, batch: &Batch) -> Option<PendingClaims> {
        let claim = batch.claim.as_ref().map(|claim| (Row::new(claim.fence.to_bytes()), claim.ttl_ms));
        let mut expected = PendingClaims { shard: batch.shard, claim, ..PendingClaims::default() };
        for (number, require) in batch.requires.iter().enumerate() {
            if let Require::Equals(key, row) = require
                && key.group.kind() == Kind::Claims
            {
                let place = expected.place(key);
                expected.requires.push((number, place, row.clone()));
                expected.step(key).required = Some(row.clone());
            }
        }
        for op in &batch.ops {
            match op {
                Op::Put(key, row) if key.group.kind() == Kind::Claims => {
                    expected.step(key).claim = Some(Some(row.clone()));
                }
                Op::Delete(key) if key.group.kind() == Kind::Claims => expected.step(key).claim = Some(None),
                Op::Put(key, row) if key.group.kind() == Kind::Deadlines => {
                    expected.step(key).deadline = Timestamp::from_sortable(row);
                }
                _ => {}
            }
        }
        if expected.steps.is_empty() && expected.claim.is_none() {
            return None;
        }
        for require in &batch.requires {
            if let Require::Equals(key, row) = require
                && key.group.kind() == Kind::Queue
                && let Some(step) = expected.known(key)
            {
                step.required_ready = Some(row.clone());
            }
        }
        for op in &batch.ops {
            let (key, row) = match op {
                Op::Put(key, row) => (key, Some(row.clone())),
                Op::Delete(key) => (key, None),
                _ => continue,
            };
            if key.group.kind() == Kind::Queue
                && let Some(step) = expected.known(key)
            {
                step.ready = Some(row);
            }
        }
        Some(expected)
    }

    /// The batch was answered.
    pub fn answered(&self, expected: PendingClaims, outcome: &CommitResult) {
        let mut held = lock(&self.0);
        let committed = match outcome {
            CommitResult::Applied(committed) => committed,
            CommitResult::Refused(refused) => {
                let lost = expected.requires.iter().find(|(number, ..)| *number == refused.which);
                if let Some((_, place, fence)) = lost
                    && held.get(place).is_some_and(|entry| entry.fence == *fence)
                {
                    held.remove(place);
                }
                return;
            }
        };
        for step in expected.steps {
            let place = (expected.shard, step.queue, step.name);
            if step.ready == Some(None) || step.claim == Some(None) {
                held.remove(&place);
                continue;
            }
            let Some(fence) = step.claim.flatten().or(step.required) else { continue };
            let new = Entry { fence: fence.clone(), deadline: None, ttl_ms: 0, rows: vec![] };
            let entry = held.entry(place).or_insert(new);
            entry.fence = fence;
            entry.deadline = step.deadline.or(entry.deadline);
            if let Some(row) = step.ready.flatten().or(step.required_ready) {
                entry.rows = vec![row];
            }
        }
        if let (Some(claimed), Some((fence, ttl_ms))) = (&committed.claimed, expected.claim) {
            let place = (expected.shard, claimed.queue.id_name().clone(), claimed.name.clone());
            let (deadline, rows) = (Some(claimed.deadline), vec![claimed.row.clone()]);
            held.insert(place, Entry { fence, deadline, ttl_ms, rows });
        }
    }

    /// The batch was sent and will never be answered: whether it happened shows in the ready rows.
    pub fn unanswered(&self, expected: PendingClaims) {
        let mut held = lock(&self.0);
        for step in expected.steps {
            let place = (expected.shard, step.queue, step.name);
            let Some(entry) = held.get_mut(&place) else { continue };
            let leaves = step.ready == Some(None) || step.claim == Some(None);
            if leaves && entry.rows.is_empty() {
                held.remove(&place);
            } else if let Some(Some(row)) = step.ready
                && !leaves
                && !entry.rows.is_empty()
            {
                entry.rows.push(row);
            }
        }
    }

    /// All claims, as they are asserted again.
    pub fn all(&self) -> Vec<HeldClaim> {
        if !crate::seams::asserts_claims() {
            return vec![];
        }
        let held = lock(&self.0);
        let claim = |((shard, queue, name), entry): (&ClaimedRow, &Entry)| HeldClaim {
            shard: *shard,
            queue: Group::queue(queue),
            name: name.clone(),
            fence: entry.fence.clone(),
            deadline: entry.deadline,
            ttl_ms: entry.ttl_ms,
            rows: entry.rows.iter().map(digest).collect(),
        };
        held.iter().map(claim).collect()
    }

    /// This process knows that it holds a row under a fence.
    pub fn has(&self, shard: Shard, queue: &Group, name: &Name, fence: &Row) -> bool {
        let place = (shard, queue.id_name().clone(), name.clone());
        lock(&self.0).get(&place).is_some_and(|entry| entry.fence == *fence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{backend::memory::Memory, testing::world::TestWorld};
    use futures_util::FutureExt;
    use onceflow_core::{Claim, Fence, Fences, Inbox, Pick};

    const SHARD: Shard = Shard(0);

    fn ready(note: u8) -> Row {
        Inbox { group: Group::rows("inputs"), prefix: Name::new("p"), note: vec![note] }.to_row()
    }

    fn queue() -> Group {
        Group::queue("q")
    }

    fn commit(store: &Memory, batch: Batch) -> CommitResult {
        store.commit(batch).now_or_never().expect("memory answers at once").unwrap()
    }

    /// A step in a store, and a batch that claims it.
    fn step(fence: Fence) -> (Memory, Batch) {
        let store = Memory::new(TestWorld::new(0));
        let mut put = Batch::new(SHARD);
        put.put(queue().key("s"), ready(0));
        assert!(commit(&store, put).is_applied());
        let mut take = Batch::new(SHARD);
        take.claim = Some(Claim { queues: vec![queue()], fence, ttl_ms: 1000, pick: Pick::InTurn });
        (store, take)
    }

    fn asserts(store: &Memory, held: &HeldClaims) -> Vec<bool> {
        let reassert = |claim: &HeldClaim| reassert(store, claim).now_or_never().unwrap().unwrap();
        held.all().iter().map(reassert).collect()
    }

    /// The store as another owner finds it: with its ready row, and no claim.
    fn reopened(row: Row) -> Memory {
        let store = Memory::new(TestWorld::new(0));
        let mut put = Batch::new(SHARD);
        put.put(queue().key("s"), row);
        assert!(commit(&store, put).is_applied());
        store
    }

    fn held_after_claim() -> (HeldClaims, Row) {
        let fence = Fences::new(7).next();
        let (held, (store, take)) = (HeldClaims::default(), step(fence));
        let expected = held.expect(&take).unwrap();
        held.answered(expected, &commit(&store, take));
        (held, Row::new(fence.to_bytes()))
    }

    fn leave(fence: &Row) -> Batch {
        let mut batch = Batch::new(SHARD);
        let claim = queue().claims().key("s");
        batch.require_equals(claim.clone(), fence.clone()).delete(claim);
        batch.put(queue().key("s"), ready(1));
        batch
    }

    #[test]
    fn a_claim_that_was_answered_is_asserted_to_the_next_owner() {
        let (held, fence) = held_after_claim();
        assert!(held.has(SHARD, &queue(), &Name::new("s"), &fence));
        let next = reopened(ready(0));
        assert_eq!(asserts(&next, &held), [true]);
        assert_eq!(asserts(&next, &held), [true], "asserting it again changes nothing");
        let fences = Fences::new(8);
        let take = Batch { claim: step(fences.next()).1.claim, ..Batch::new(SHARD) };
        let CommitResult::Applied(committed) = commit(&next, take) else { panic!("a claim refuses nothing") };
        assert_eq!(committed.claimed, None, "it was granted to another worker");
    }

    #[test]
    fn a_claim_that_was_given_up_is_not_asserted() {
        let (held, fence) = held_after_claim();
        let store = reopened(ready(0));
        assert_eq!(asserts(&store, &held), [true]);
        let batch = leave(&fence);
        let expected = held.expect(&batch).unwrap();
        held.answered(expected, &commit(&store, batch));
        assert!(held.all().is_empty());
    }

    #[test]
    fn after_an_unanswered_commit_the_ready_row_says_whether_the_claim_stands() {
        for (row, stands) in [(ready(0), true), (ready(1), false)] {
            let (held, fence) = held_after_claim();
            held.unanswered(held.expect(&leave(&fence)).unwrap());
            assert_eq!(asserts(&reopened(row), &held), [stands]);
        }
    }

    #[test]
    fn a_start_that_was_written_and_not_answered_keeps_its_claim() {
        let (held, fence) = held_after_claim();
        let mut note = Batch::new(SHARD);
        note.require_equals(queue().claims().key("s"), fence).put(queue().key("s"), ready(9));
        held.unanswered(held.expect(&note).unwrap());
        for row in [ready(0), ready(9)] {
            assert_eq!(asserts(&reopened(row), &held), [true]);
        }
        assert_eq!(asserts(&reopened(ready(5)), &held), [false]);
    }

    #[test]
    fn a_claim_that_was_found_to_be_lost_is_forgotten() {
        let (held, fence) = held_after_claim();
        let batch = leave(&fence);
        let expected = held.expect(&batch).unwrap();
        let refused = commit(&reopened(ready(0)), batch);
        assert!(!refused.is_applied());
        held.answered(expected, &refused);
        assert!(held.all().is_empty());
    }
}
