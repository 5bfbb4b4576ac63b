//! Whether sending a batch twice is the same as sending it once (rule 1 of the kernel).
//!
//! `SetBit` is idempotent only until the set is full, and `Add` never is. So a batch with either must carry
//! its own permission and use it up: a require that held before and cannot hold after. Fixed puts and
//! deletes may be repeated as they are, and so may a claim: a repeated one takes another row, which the
//! caller finds under its fence.

use super::{Batch, Op, Require};
use crate::{key::Key, row::Row};

/// What a batch's plain operations leave in a row.
enum Left<'a> {
    Nothing,
    Row(&'a Row),
    Unknown,
}

impl Batch {
    /// Whether a second, identical batch is refused or changes nothing. Looks only at what happens in any
    /// case: what a trigger may do is not counted on.
    pub fn is_repeatable(&self) -> bool {
        let fixed = self.ops.iter().all(|op| matches!(op, Op::Put(..) | Op::Delete(_) | Op::DeleteGroup(_)));
        fixed || self.requires.iter().any(|require| self.invalidates(require))
    }

    fn invalidates(&self, require: &Require) -> bool {
        match (require, self.leaves(require.key())) {
            (Require::Absent(_), Some(Left::Row(_))) => true,
            (Require::Present(_) | Require::Equals(..), Some(Left::Nothing)) => true,
            (Require::Equals(_, before), Some(Left::Row(after))) => before != after,
            _ => false,
        }
    }

    /// What stands in a row after the plain operations; `None` if none of them touches it.
    fn leaves(&self, key: &Key) -> Option<Left<'_>> {
        self.ops.iter().rev().find_map(|op| match op {
            Op::Put(touched, row) if touched == key => Some(Left::Row(row)),
            Op::Delete(touched) if touched == key => Some(Left::Nothing),
            Op::DeleteGroup(group) if *group == key.group => Some(Left::Nothing),
            Op::SetBit { key: touched, .. } | Op::Add { key: touched, .. } if touched == key => Some(Left::Unknown),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Group, Shard};

    fn key(name: &str) -> Key {
        Group::rows("g").key(name)
    }

    fn repeatable(build: impl for<'a> FnOnce(&'a mut Batch) -> &'a mut Batch) -> bool {
        build(&mut Batch::new(Shard(0))).is_repeatable()
    }

    #[test]
    fn fixed_puts_and_deletes_may_be_repeated() {
        assert!(repeatable(|b| b.put(key("a"), Row::new("1")).delete(key("b"))));
    }

    #[test]
    fn a_bare_counter_or_bit_may_not() {
        assert!(!repeatable(|b| b.add(key("n"), 1, vec![])));
        assert!(!repeatable(|b| b.set_bit(key("s"), 0, 2, vec![])));
        assert!(!repeatable(|b| b.require_present(key("a")).add(key("n"), 1, vec![])));
    }

    #[test]
    fn a_permission_that_is_used_up_makes_anything_repeatable() {
        let row = Row::new;
        assert!(repeatable(|b| b.require_present(key("a")).delete(key("a")).add(key("n"), 1, vec![])));
        assert!(repeatable(|b| b.require_absent(key("a")).put(key("a"), row("1")).add(key("n"), 1, vec![])));
        assert!(repeatable(|b| {
            b.require_equals(key("a"), row("1")).put(key("a"), row("2")).add(key("n"), 1, vec![])
        }));
        assert!(repeatable(|b| {
            b.require_present(key("a")).delete_group(Group::rows("g")).set_bit(key("n"), 0, 2, vec![])
        }));
    }

    #[test]
    fn a_permission_that_is_restored_does_not() {
        let row = Row::new;
        assert!(!repeatable(|b| {
            b.require_present(key("a")).delete(key("a")).put(key("a"), row("1")).add(key("n"), 1, vec![])
        }));
        assert!(!repeatable(|b| {
            b.require_equals(key("a"), row("1")).put(key("a"), row("1")).add(key("n"), 1, vec![])
        }));
    }
}
