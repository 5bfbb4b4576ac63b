//! Decides whether a batch may be sent twice with the effect of once (rule 1 of the kernel).
//!
//! `SetBit` is idempotent only until the set is full, and `Add` never is. So a batch with either must carry its own
//! permission and use it up: a require that holds before it and cannot hold after it. Fixed puts and deletes may be
//! repeated as they are, and so may a claim: a repeated one takes another row, which the caller finds under its fence.

use super::{Batch, Op, Require};
use crate::{key::Key, row::Row};

/// The content that an operation leaves in a row, as far as the batch alone shows it.
enum Left<'a> {
    Nothing,
    Row(&'a Row),
    Unknown,
}

impl Batch {
    /// A second, identical batch is refused or changes nothing. This does not rely on triggers, and triggers must not
    /// restore a row that the plain operations used up.
    pub fn is_repeatable(&self) -> bool {
        let fixed = self.ops.iter().all(|op| matches!(op, Op::Put(..) | Op::Delete(_) | Op::DeleteGroup(_)));
        fixed || self.requires.iter().any(|require| self.invalidates(require))
    }

    fn invalidates(&self, require: &Require) -> bool {
        let key = require.key();
        let mut plain = self.ops.iter().filter_map(|op| leaves(op, key));
        let invalid = plain.next_back().is_some_and(|left| is_invalid_after(require, &left));
        invalid && !self.ops.iter().any(|op| may_restore(op, require))
    }
}

/// Returns the content of a row after an operation; `None` if the operation does not touch the row.
fn leaves<'a>(op: &'a Op, key: &Key) -> Option<Left<'a>> {
    match op {
        Op::Put(touched, row) if touched == key => Some(Left::Row(row)),
        Op::Delete(touched) if touched == key => Some(Left::Nothing),
        Op::DeleteGroup(group) if *group == key.group => Some(Left::Nothing),
        Op::SetBit { key: touched, .. } | Op::Add { key: touched, .. } if touched == key => Some(Left::Unknown),
        _ => None,
    }
}

fn is_invalid_after(require: &Require, left: &Left<'_>) -> bool {
    match (require, left) {
        (Require::Absent(_), Left::Row(_)) => true,
        (Require::Present(_) | Require::Equals(..), Left::Nothing) => true,
        (Require::Equals(_, before), Left::Row(after)) => before != *after,
        _ => false,
    }
}

/// The operation could make the require hold again: its row may be deleted because it is complete, and the operations
/// of its trigger may apply.
fn may_restore(op: &Op, require: &Require) -> bool {
    let computed = matches!(op, Op::SetBit { key, .. } | Op::Add { key, .. } if key == require.key());
    let goes = computed && !is_invalid_after(require, &Left::Nothing);
    let restores = |op: &Op| leaves(op, require.key()).is_some_and(|left| !is_invalid_after(require, &left));
    goes || op.trigger().iter().any(|op| restores(op) || may_restore(op, require))
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

    #[test]
    fn a_permission_that_a_trigger_may_restore_does_not() {
        let row = Row::new;
        let fires = |then: Vec<Op>| vec![Op::Add { key: key("m"), delta: 0, at_zero: then }];
        let used_up =
            |then: Vec<Op>| repeatable(|b| b.require_present(key("a")).delete(key("a")).set_bit(key("n"), 0, 1, then));
        assert!(!used_up(vec![Op::Put(key("a"), row("1"))]));
        assert!(!used_up(fires(vec![Op::Put(key("a"), row("1"))])));
        assert!(!used_up(vec![Op::Add { key: key("a"), delta: 1, at_zero: vec![] }]));
        assert!(used_up(fires(vec![Op::Delete(key("a")), Op::DeleteGroup(Group::rows("g"))])));
        let made = |then: Vec<Op>| {
            repeatable(|b| b.require_absent(key("a")).put(key("a"), row("1")).set_bit(key("n"), 0, 1, then))
        };
        assert!(!made(fires(vec![Op::DeleteGroup(Group::rows("g"))])));
        assert!(made(fires(vec![Op::Put(key("a"), row("2"))])));
    }

    #[test]
    fn a_permission_that_may_go_because_it_is_complete_does_not() {
        let zero = crate::row::counter::write(0);
        assert!(!repeatable(|b| b.require_absent(key("a")).add(key("a"), 1, vec![]).put(key("a"), zero)));
    }
}
