//! Checks a batch before any row is read. Every backend runs the same checks, so an invalid batch is refused
//! everywhere.

use super::{Batch, Op};
use crate::{
    key::{Group, Key, Kind},
    limits,
    queue::Inbox,
    row::Row,
};

/// The reasons to refuse a batch before it is applied: a bug in the code that made it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A bound of [`limits`] is exceeded.
    #[error("{what}: {found} is over the limit of {limit} (limits::{name})")]
    TooMany {
        /// The bounded quantity.
        what: &'static str,
        /// The number or size that was found.
        found: usize,
        /// The bound.
        limit: usize,
        /// The name of the bound.
        name: &'static str,
    },
    /// A bit at or above its bitmap's size, or a bitmap of size 0.
    #[error("bit {bit} of {key} stands outside a bitmap of {of}")]
    BitOutside {
        /// The bitmap.
        key: Key,
        /// The bit.
        bit: u32,
        /// The size of the bitmap.
        of: u32,
    },
    /// Two operations on one row with different triggers.
    #[error("two operations on {0} carry different triggers; which should fire?")]
    TriggersDiffer(Key),
    /// A queue's row whose content is not an [`Inbox`].
    #[error("{0} is a queue's row, but its content is no inbox")]
    NotAnInbox(Key),
    /// A claim on a group that is not a queue.
    #[error("{0:?} is claimed from, but is no queue")]
    NotAQueue(Group),
    /// An operation computes with a row that is not a counter, or not a bitmap of that size.
    #[error("{key} is computed with as {wanted}, but holds something else")]
    WrongContent {
        /// The row.
        key: Key,
        /// The expected content.
        wanted: &'static str,
    },
    /// A counter that would overflow.
    #[error("the counter {0} would overflow")]
    Overflow(Key),
    /// A batch that, sent twice, would do more than sent once.
    #[error("the batch does not invalidate any of its own requires, so a repeated one would act twice: {0}")]
    NotRepeatable(String),
}

/// The operations that a backend accepts in one batch. A server executes a batch while every other client waits; an
/// embedded store takes plain rows as fast as its log or its pages do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// All operations, those inside triggers included.
    pub ops_max: usize,
    /// Operations of a batch that delays other callers only briefly, for a caller that can choose: others are served
    /// between two batches. Not less than a few dozen.
    pub ops_hint: usize,
}

impl BatchLimits {
    /// The limits of a server that is shared; every backend accepts at least this.
    pub const SERVER: BatchLimits = BatchLimits { ops_max: limits::BATCH_OPS_MAX, ops_hint: limits::BATCH_OPS_MAX };

    /// The limits of a store in a directory or in memory. Operations that compute, fire or delete a group are limited as
    /// on a server.
    pub const EMBEDDED: BatchLimits = BatchLimits { ops_max: limits::PLAIN_OPS_MAX, ..BatchLimits::SERVER };
}

impl Batch {
    /// Finds the first reason why some backend must refuse this batch, whatever its rows hold.
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_within(BatchLimits::SERVER)
    }

    /// Finds the first reason why a backend with these limits must refuse this batch, whatever its rows hold.
    pub fn check_within(&self, within: BatchLimits) -> Result<(), Invalid> {
        at_most("requires in a batch", self.requires.len(), limits::BATCH_REQUIRES_MAX, "BATCH_REQUIRES_MAX")?;
        for require in &self.requires {
            check_key(require.key())?;
        }
        let mut totals = Totals { ops_max: within.ops_max, ..Totals::default() };
        totals.add_ops(&self.ops, 0)?;
        if let Some(claim) = &self.claim {
            at_most("queues in a claim", claim.queues.len(), limits::CLAIM_QUEUES_MAX, "CLAIM_QUEUES_MAX")?;
            for queue in &claim.queues {
                check_group(queue)?;
                if queue.kind() != Kind::Queue {
                    return Err(Invalid::NotAQueue(queue.clone()));
                }
            }
        }
        self.triggers_agree()?;
        if cfg!(debug_assertions) && crate::seams::must_be_repeatable() && !self.is_repeatable() {
            return Err(Invalid::NotRepeatable(format!("{self:?}")));
        }
        Ok(())
    }

    /// Checks that all operations on one row have the same trigger: they report on the same condition.
    fn triggers_agree(&self) -> Result<(), Invalid> {
        let mut triggers = Vec::new();
        collect_triggers(&self.ops, &mut triggers);
        triggers.sort_by_key(|(key, _)| *key);
        match triggers.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1) {
            Some(pair) => Err(Invalid::TriggersDiffer(pair[0].0.clone())),
            None => Ok(()),
        }
    }
}

/// Collects every row that has a trigger, with the trigger's operations; also those within triggers.
fn collect_triggers<'a>(ops: &'a [Op], into: &mut Vec<(&'a Key, &'a [Op])>) {
    for op in ops {
        if let Op::SetBit { key, .. } | Op::Add { key, .. } = op {
            into.push((key, op.trigger()));
            collect_triggers(op.trigger(), into);
        }
    }
}

#[derive(Default)]
struct Totals {
    ops_max: usize,
    /// Puts and deletes outside of triggers.
    plain: usize,
    /// All other operations.
    computed: usize,
    bytes: usize,
    name_bytes: usize,
}

impl Totals {
    fn add_ops(&mut self, ops: &[Op], depth: usize) -> Result<(), Invalid> {
        at_most("triggers within triggers", depth, limits::TRIGGER_DEPTH_MAX, "TRIGGER_DEPTH_MAX")?;
        let is_plain = |op: &&Op| depth == 0 && matches!(op, Op::Put(..) | Op::Delete(_));
        let plain = ops.iter().filter(is_plain).count();
        self.plain += plain;
        self.computed += ops.len() - plain;
        at_most("operations that compute in a batch", self.computed, limits::BATCH_OPS_MAX, "BATCH_OPS_MAX")?;
        let name = if self.ops_max > limits::BATCH_OPS_MAX { "PLAIN_OPS_MAX" } else { "BATCH_OPS_MAX" };
        at_most("operations in a batch", self.plain + self.computed, self.ops_max, name)?;
        for op in ops {
            self.add_op(op)?;
            if !op.trigger().is_empty() {
                self.add_ops(op.trigger(), depth + 1)?;
            }
        }
        Ok(())
    }

    fn add_op(&mut self, op: &Op) -> Result<(), Invalid> {
        self.name_bytes += match op {
            Op::Put(key, _) | Op::Delete(key) | Op::SetBit { key, .. } | Op::Add { key, .. } => {
                key.group.id().len() + key.name.as_bytes().len()
            }
            Op::DeleteGroup(group) => group.id().len(),
        };
        at_most("bytes of names in a batch", self.name_bytes, limits::BATCH_NAME_BYTES_MAX, "BATCH_NAME_BYTES_MAX")?;
        match op {
            Op::Put(key, row) => {
                check_key(key)?;
                check_row(key, row)?;
                self.bytes += row.len();
                at_most("bytes of rows in a batch", self.bytes, limits::BATCH_BYTES_MAX, "BATCH_BYTES_MAX")
            }
            Op::Delete(key) => check_key(key),
            Op::Add { key, .. } => check_computed(key),
            Op::DeleteGroup(group) => check_group(group),
            Op::SetBit { key, bit, of, .. } => {
                check_computed(key)?;
                at_most("bits in a bitmap", *of as usize, limits::BITMAP_BITS_MAX as usize, "BITMAP_BITS_MAX")?;
                if bit < of { Ok(()) } else { Err(Invalid::BitOutside { key: key.clone(), bit: *bit, of: *of }) }
            }
        }
    }
}

fn check_row(key: &Key, row: &Row) -> Result<(), Invalid> {
    at_most("bytes in a row", row.len(), limits::ROW_BYTES_MAX, "ROW_BYTES_MAX")?;
    if key.group.kind() == Kind::Queue && !Inbox::is_row(row) {
        return Err(Invalid::NotAnInbox(key.clone()));
    }
    Ok(())
}

/// Checks the key of a counter or a bitmap. It must not be in a queue: such a row is not an inbox, so a claim could not
/// return it.
fn check_computed(key: &Key) -> Result<(), Invalid> {
    check_key(key)?;
    if key.group.kind() == Kind::Queue { Err(Invalid::NotAnInbox(key.clone())) } else { Ok(()) }
}

fn check_key(key: &Key) -> Result<(), Invalid> {
    check_group(&key.group)?;
    at_most("bytes in a name", key.name.as_bytes().len(), limits::NAME_BYTES_MAX, "NAME_BYTES_MAX")
}

fn check_group(group: &Group) -> Result<(), Invalid> {
    at_most("bytes in a group's id", group.id().len(), limits::NAME_BYTES_MAX, "NAME_BYTES_MAX")
}

fn at_most(what: &'static str, found: usize, limit: usize, name: &'static str) -> Result<(), Invalid> {
    if found <= limit { Ok(()) } else { Err(Invalid::TooMany { what, found, limit, name }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fences, Pick, Shard, queue::Claim};

    fn key(name: &str) -> Key {
        Group::rows("g").key(name)
    }

    /// Returns a repeatable batch with these operations added.
    fn batch(ops: Vec<Op>) -> Batch {
        let mut batch = Batch::new(Shard(0));
        batch.require_present(key("permit")).delete(key("permit"));
        batch.ops.extend(ops);
        batch
    }

    fn refused(ops: Vec<Op>) -> String {
        batch(ops).check().unwrap_err().to_string()
    }

    #[test]
    fn a_batch_over_a_limit_is_refused_naming_the_limit() {
        let many = vec![Op::Delete(key("a")); limits::BATCH_OPS_MAX];
        assert!(refused(many).contains("limits::BATCH_OPS_MAX"));
        let nested = Op::Add { key: key("n"), delta: 1, at_zero: vec![Op::Delete(key("a")); limits::BATCH_OPS_MAX] };
        assert!(refused(vec![nested]).contains("limits::BATCH_OPS_MAX"));
        let large = Op::Put(key("a"), Row::from(vec![0; limits::ROW_BYTES_MAX + 1]));
        assert!(refused(vec![large]).contains("limits::ROW_BYTES_MAX"));
        let long = Op::Delete(key(&"x".repeat(limits::NAME_BYTES_MAX + 1)));
        assert!(refused(vec![long]).contains("limits::NAME_BYTES_MAX"));
        let mut deep = Op::Delete(key("a"));
        for level in 0..=limits::TRIGGER_DEPTH_MAX {
            deep = Op::Add { key: key(&level.to_string()), delta: 1, at_zero: vec![deep] };
        }
        assert!(refused(vec![deep]).contains("limits::TRIGGER_DEPTH_MAX"));
    }

    #[test]
    fn a_contradictory_batch_is_refused() {
        let bit = |bit, of| Op::SetBit { key: key("b"), bit, of, when_full: vec![] };
        assert!(refused(vec![bit(3, 3)]).contains("outside a bitmap of 3"));
        assert!(refused(vec![bit(0, 0)]).contains("outside a bitmap of 0"));
        let queue = Group::queue("q");
        assert!(refused(vec![Op::Put(queue.key("n"), Row::new("x"))]).contains("no inbox"));
        assert!(refused(vec![Op::Add { key: queue.key("n"), delta: 9, at_zero: vec![] }]).contains("no inbox"));
        assert!(
            refused(vec![Op::SetBit { key: queue.key("n"), bit: 0, of: 9, when_full: vec![] }]).contains("no inbox")
        );
        let add = |then| Op::Add { key: key("n"), delta: 1, at_zero: then };
        assert!(refused(vec![add(vec![]), add(vec![Op::Delete(key("a"))])]).contains("different triggers"));
        let mut claims = batch(vec![]);
        let fence = Fences::new(1).next();
        claims.claim(Claim { queues: vec![Group::rows("g")], fence, ttl_ms: 1, pick: Pick::InTurn });
        assert!(claims.check().unwrap_err().to_string().contains("no queue"));
    }

    #[test]
    fn the_largest_lawful_batch_passes() {
        let ops = |ops_max| vec![Op::Delete(key("a")); ops_max - 1];
        assert_eq!(batch(ops(limits::BATCH_OPS_MAX)).check(), Ok(()));
        assert_eq!(batch(ops(limits::PLAIN_OPS_MAX)).check_within(BatchLimits::EMBEDDED), Ok(()));
    }

    #[test]
    fn an_embedded_store_takes_more_puts_and_deletes_and_no_more_of_the_rest() {
        let check =
            |ops: Vec<Op>| batch(ops).check_within(BatchLimits::EMBEDDED).map_err(|invalid| invalid.to_string());
        let error = check(vec![Op::Delete(key("a")); limits::PLAIN_OPS_MAX]).unwrap_err();
        assert!(error.contains("limits::PLAIN_OPS_MAX"), "{error}");
        let add = |at_zero| Op::Add { key: key("n"), delta: 1, at_zero };
        for ops in [vec![add(vec![]); limits::BATCH_OPS_MAX + 1], vec![add(vec![Op::Delete(key("a")); 1024])]] {
            let error = check(ops).unwrap_err();
            assert!(error.contains("limits::BATCH_OPS_MAX"), "{error}");
        }
        let long = "x".repeat(limits::NAME_BYTES_MAX);
        let many = limits::BATCH_NAME_BYTES_MAX / limits::NAME_BYTES_MAX;
        let error = check(vec![Op::Delete(key(&long)); many]).unwrap_err();
        assert!(error.contains("limits::BATCH_NAME_BYTES_MAX"), "{error}");
    }
}
