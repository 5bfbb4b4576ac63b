//! The meaning of a batch, as plainly as it can be said. Slow on purpose: everything is copied, searched and sorted
//! again for every batch, and nothing is derived from anything else.

use crate::testing::batches::bits;
use onceflow_core::{
    Batch, Claim, Claimed, Group, Inbox, Key, Kind, Name, Op, Pick, Row, Shard, Timestamp,
    batch::BatchLimits,
    limits::CLAIM_ROWS_MAX,
    queue::lane,
    row::{bitmap, counter},
};
use std::collections::BTreeMap;

/// The expected result of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The batch is applied.
    Applied {
        /// The rows whose triggers fire, in order.
        fired: Vec<Key>,
        /// The row that its claim takes.
        claimed: Option<Claimed>,
    },
    /// A require does not hold.
    Refused {
        /// Which.
        which: usize,
        /// The content of that require's row.
        found: Option<Row>,
    },
    /// The batch is invalid.
    Invalid,
}

/// All rows, and which lane each queue served last.
#[derive(Clone, Debug, Default)]
pub struct Model {
    rows: BTreeMap<(Shard, Key), Row>,
    served: BTreeMap<(Shard, Group), Vec<u8>>,
}

impl Model {
    /// The content of a row.
    pub fn get(&self, shard: Shard, key: &Key) -> Option<&Row> {
        self.rows.get(&(shard, key.clone()))
    }

    /// All rows of a group.
    pub fn group(&self, shard: Shard, group: &Group) -> Vec<(Name, Row)> {
        let mine = |((at, key), _): &(&(Shard, Key), &Row)| *at == shard && key.group == *group;
        self.rows.iter().filter(mine).map(|((_, key), row)| (key.name.clone(), row.clone())).collect()
    }

    /// All rows but claims and deadlines.
    pub fn lasting(&self) -> Vec<(Shard, Key, Row)> {
        let lasts = |((_, key), _): &(&(Shard, Key), &Row)| !key.group.kind().is_volatile();
        self.rows.iter().filter(lasts).map(|((shard, key), row)| (*shard, key.clone(), row.clone())).collect()
    }

    /// Applies the batch, if its requires hold.
    pub fn commit(&mut self, batch: &Batch, now: Timestamp) -> Expected {
        if batch.check_within(BatchLimits::EMBEDDED).is_err() {
            return Expected::Invalid;
        }
        for (which, require) in batch.requires.iter().enumerate() {
            let found = self.get(batch.shard, require.key());
            if !require.holds(found) {
                return Expected::Refused { which, found: found.cloned() };
            }
        }
        let mut attempt = Attempt { model: self.clone(), shard: batch.shard, fresh: vec![], fired: vec![] };
        let Some(()) = attempt.run(&batch.ops) else { return Expected::Invalid };
        let claimed = batch.claim.as_ref().and_then(|claim| attempt.claim(claim, now));
        attempt.forget_idle_turns();
        *self = attempt.model;
        Expected::Applied { fired: attempt.fired, claimed }
    }
}

struct Attempt {
    model: Model,
    shard: Shard,
    /// Queue rows that were put, or whose claim went.
    fresh: Vec<Key>,
    fired: Vec<Key>,
}

impl Attempt {
    /// `None` if an operation is wrong.
    fn run(&mut self, ops: &[Op]) -> Option<()> {
        let mut round = ops.to_vec();
        let mut counted = vec![];
        loop {
            for op in &round {
                self.apply(op)?;
            }
            let (bits, others): (Vec<_>, Vec<_>) = round.into_iter().partition(|op| matches!(op, Op::SetBit { .. }));
            counted.extend(others);
            // Counters only when no set is full.
            let next = self.fire(&bits).or_else(|| self.fire(&std::mem::take(&mut counted)));
            match next {
                Some(next) => round = next,
                None => return Some(()),
            }
        }
    }

    /// Fires the rows that these operations completed and returns the operations that follow; `None` if no row is
    /// complete.
    fn fire(&mut self, ops: &[Op]) -> Option<Vec<Op>> {
        let before = self.fired.len();
        let mut next = vec![];
        for op in ops {
            if let Some(key) = self.completed_by(op) {
                self.set(&key, None);
                self.fired.push(key);
                next.extend(op.trigger().to_vec());
            }
        }
        (self.fired.len() > before).then_some(next)
    }

    fn apply(&mut self, op: &Op) -> Option<()> {
        match op {
            Op::Put(key, row) => self.set(key, Some(row.clone())),
            Op::Delete(key) => self.set(key, None),
            Op::DeleteGroup(group) => {
                for (name, _) in self.model.group(self.shard, group) {
                    self.set(&group.key(name), None);
                }
            }
            Op::SetBit { key, bit, of, .. } => {
                let mut set = match self.get(key) {
                    None => vec![],
                    Some(row) => bitmap::read(&row).filter(|(size, _)| size == of)?.1,
                };
                set.push(*bit);
                self.set(key, bits(&set, *of));
            }
            Op::Add { key, delta, .. } => {
                let before = self.get(key).map_or(Some(0), |row| counter::read(&row))?;
                self.set(key, Some(counter::write(before.checked_add(*delta)?)));
            }
        }
        Some(())
    }

    fn completed_by(&self, op: &Op) -> Option<Key> {
        let (key, complete) = match op {
            Op::SetBit { key, .. } => {
                (key, bitmap::read(&self.get(key)?).is_some_and(|(of, set)| set.len() == of as usize))
            }
            Op::Add { key, .. } => (key, counter::read(&self.get(key)?) == Some(0)),
            Op::Put(..) | Op::Delete(_) | Op::DeleteGroup(_) => return None,
        };
        complete.then(|| key.clone())
    }

    fn get(&self, key: &Key) -> Option<Row> {
        self.model.get(self.shard, key).cloned()
    }

    fn set(&mut self, key: &Key, row: Option<Row>) {
        let freshly_put = key.group.kind() == Kind::Queue && row.is_some();
        let given_back = key.group.kind() == Kind::Claims && row.is_none() && self.get(key).is_some();
        if freshly_put || given_back {
            self.fresh.push(key.group.companion(Kind::Queue).key(&key.name));
        }
        match row {
            Some(row) => self.model.rows.insert((self.shard, key.clone()), row),
            None => self.model.rows.remove(&(self.shard, key.clone())),
        };
    }

    fn is_free(&self, key: &Key) -> bool {
        self.get(key).is_some() && self.get(&key.group.claims().key(&key.name)).is_none()
    }

    fn claim(&mut self, claim: &Claim, now: Timestamp) -> Option<Claimed> {
        let fresh = self.fresh.iter().find(|key| claim.queues.contains(&key.group) && self.is_free(key)).cloned();
        let fresh = fresh.filter(|_| claim.pick == Pick::EnabledFirst);
        let Key { group: queue, name } = fresh.or_else(|| self.next_in_turn(&claim.queues))?;
        self.model.served.insert((self.shard, queue.clone()), lane(name.as_bytes()).to_vec());
        let deadline = now.plus_ms(claim.ttl_ms);
        self.set(&queue.claims().key(&name), Some(Row::new(claim.fence.to_bytes())));
        self.set(&queue.deadlines().key(&name), Some(Row::new(deadline.to_sortable())));
        let row = self.get(&queue.key(&name))?;
        let inbox = Inbox::from_row(&row)?;
        let mut inputs = self.model.group(self.shard, &inbox.group);
        inputs.retain(|(name, _)| name.as_bytes().starts_with(inbox.prefix.as_bytes()));
        let more = inputs.len() > CLAIM_ROWS_MAX;
        inputs.truncate(CLAIM_ROWS_MAX);
        Some(Claimed { queue, name, row, inputs, more, deadline })
    }

    /// A queue in which no row is free does not know whose turn it is.
    fn forget_idle_turns(&mut self) {
        let mut served = std::mem::take(&mut self.model.served);
        served.retain(|(shard, queue), _| *shard != self.shard || !self.free(queue).is_empty());
        self.model.served = served;
    }

    fn free(&self, queue: &Group) -> Vec<Key> {
        let rows = self.model.group(self.shard, queue).into_iter().map(|(name, _)| queue.key(name));
        rows.filter(|key| self.is_free(key)).collect()
    }

    fn next_in_turn(&self, queues: &[Group]) -> Option<Key> {
        queues.iter().find_map(|queue| {
            let free = self.free(queue);
            let served = self.model.served.get(&(self.shard, queue.clone()));
            let later = free.iter().find(|key| served.is_none_or(|served| lane(key.name.as_bytes()) > &served[..]));
            later.or(free.first()).cloned()
        })
    }
}
