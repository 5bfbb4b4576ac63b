//! A batch: the only way to change rows. It is atomic: all of it takes effect, or none of it.
//!
//! A batch is executed in this order: every require is tested; the operations apply one after the other; then triggers
//! fire, and their operations may complete other rows, until no trigger fires; last, a claim takes a free row.
//!
//! Triggers fire in rounds: all complete rows are deleted, then the operations of their triggers apply. **Full bitmaps
//! fire first, round by round, until none is full; only then do counters fire that are at zero; then bitmaps again, and
//! so on.** So a counter that is zero only until a bitmap's trigger raises it does not fire: a step that commits
//! decrements the count of live steps, the step that it makes ready increments it, and the count stays at zero only
//! when no step is left.
//!
//! A batch whose reply is lost is sent again, or decided again. Sending it again must be harmless, so it invalidates
//! one of its own requires, or only puts and deletes fixed rows; see [`Batch::is_repeatable`].

mod check;
mod repeat;

use crate::{
    key::{Group, Key, Kind, Shard},
    queue::Claim,
    row::Row,
};
pub use check::{BatchLimits, Invalid};
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// A condition on a row that must hold for a batch to be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Require {
    /// There is no such row.
    Absent(Key),
    /// There is such a row, whatever it holds.
    Present(Key),
    /// There is such a row and it holds exactly this.
    Equals(Key, Row),
}

impl Require {
    /// Returns the key of the row that the condition is about.
    #[inline]
    pub fn key(&self) -> &Key {
        match self {
            Require::Absent(key) | Require::Present(key) | Require::Equals(key, _) => key,
        }
    }

    /// The condition holds for the row that was found.
    #[inline]
    pub fn holds(&self, found: Option<&Row>) -> bool {
        match self {
            Require::Absent(_) => found.is_none(),
            Require::Present(_) => found.is_some(),
            Require::Equals(_, row) => found == Some(row),
        }
    }
}

/// An operation of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Puts a row with this content.
    Put(Key, Row),
    /// Deletes a row, if it exists.
    Delete(Key),
    /// Deletes all rows of a group. Only for rows that no counter counts.
    DeleteGroup(Group),
    /// Adds a number to the row's set. When the set has all numbers below `of`, the row is deleted and `when_full`
    /// applies.
    SetBit {
        /// The row, a [`bitmap`](crate::row::bitmap); absent is empty.
        key: Key,
        /// The number.
        bit: u32,
        /// The size of the full set; the same in every operation on the row.
        of: u32,
        /// The operations that apply when all numbers are in the set.
        when_full: Vec<Op>,
    },
    /// Adds `delta` to the row's number. If it is zero when all operations have applied and no bitmap is full, the row
    /// is deleted and `at_zero` applies; a number that is zero only in between triggers nothing.
    Add {
        /// The row, a [`counter`](crate::row::counter); absent is zero.
        key: Key,
        /// The number to add.
        delta: i64,
        /// The operations that apply at zero.
        at_zero: Vec<Op>,
    },
}

impl Op {
    /// Returns the operations that apply when this operation's row is complete; empty for operations without a trigger.
    pub fn trigger(&self) -> &[Op] {
        match self {
            Op::SetBit { when_full: then, .. } | Op::Add { at_zero: then, .. } => then,
            Op::Put(..) | Op::Delete(_) | Op::DeleteGroup(_) => &[],
        }
    }
}

/// A row that never exists. Deleting it changes nothing, is never logged, and wakes all who wait on the shard.
static BELL: LazyLock<Key> = LazyLock::new(|| Group::queue(BELL_QUEUE).deadlines().key(BELL_QUEUE));

/// The queue that the bell would belong to, if it existed.
const BELL_QUEUE: &str = "bell";

/// The row is the bell: an operation that deletes it wakes all who wait on the shard. See [`Batch::ring`].
#[inline]
pub fn is_bell(key: &Key) -> bool {
    key.group.kind() == Kind::Deadlines && *key == *BELL
}

/// Changes to one shard that are applied together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The shard all its keys are in.
    pub shard: Shard,
    /// The conditions.
    pub requires: Vec<Require>,
    /// The operations, in the order they apply.
    pub ops: Vec<Op>,
    /// A claim, executed after all operations.
    pub claim: Option<Claim>,
}

impl Batch {
    /// Creates an empty batch.
    pub fn new(shard: Shard) -> Self {
        Batch { shard, ..Batch::default() }
    }

    /// Requires that there is no such row.
    pub fn require_absent(&mut self, key: Key) -> &mut Self {
        self.requires.push(Require::Absent(key));
        self
    }

    /// Requires that there is such a row.
    pub fn require_present(&mut self, key: Key) -> &mut Self {
        self.requires.push(Require::Present(key));
        self
    }

    /// Requires that the row holds exactly this.
    pub fn require_equals(&mut self, key: Key, row: Row) -> &mut Self {
        self.requires.push(Require::Equals(key, row));
        self
    }

    /// Requires that the row is unchanged since it was read: this content, or absent.
    pub fn require_seen(&mut self, key: Key, seen: Option<Row>) -> &mut Self {
        match seen {
            Some(row) => self.require_equals(key, row),
            None => self.require_absent(key),
        }
    }

    /// Adds [`Op::Put`].
    pub fn put(&mut self, key: Key, row: impl Into<Row>) -> &mut Self {
        self.ops.push(Op::Put(key, row.into()));
        self
    }

    /// Wakes all who wait on the shard when the batch is applied, though no row of a queue becomes free. For
    /// changes that other processes wait for: a run that ends or is to be cancelled, an output, a timer.
    pub fn ring(&mut self) -> &mut Self {
        if !self.ops.last().is_some_and(|op| matches!(op, Op::Delete(key) if is_bell(key))) {
            self.ops.push(Op::Delete(BELL.clone()));
        }
        self
    }

    /// Adds [`Op::Delete`].
    pub fn delete(&mut self, key: Key) -> &mut Self {
        self.ops.push(Op::Delete(key));
        self
    }

    /// Adds [`Op::DeleteGroup`].
    pub fn delete_group(&mut self, group: Group) -> &mut Self {
        self.ops.push(Op::DeleteGroup(group));
        self
    }

    /// Adds [`Op::SetBit`].
    pub fn set_bit(&mut self, key: Key, bit: u32, of: u32, when_full: Vec<Op>) -> &mut Self {
        self.ops.push(Op::SetBit { key, bit, of, when_full });
        self
    }

    /// Adds [`Op::Add`].
    pub fn add(&mut self, key: Key, delta: i64, at_zero: Vec<Op>) -> &mut Self {
        self.ops.push(Op::Add { key, delta, at_zero });
        self
    }

    /// Claims a row after all operations.
    pub fn claim(&mut self, claim: Claim) -> &mut Self {
        self.claim = Some(claim);
        self
    }

    /// The batch requires nothing, does nothing and claims nothing.
    pub fn is_empty(&self) -> bool {
        self.requires.is_empty() && self.ops.is_empty() && self.claim.is_none()
    }
}
