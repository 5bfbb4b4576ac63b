//! Wakes the reclaim loop of this process when there is something to reclaim, or a deadline comes earlier.

use super::Keys;
use crate::wake::Signal;
use onceflow_core::{Batch, Op};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

/// Bytes of the deadline that a row name in `due` begins with; the edge's follow.
const DEADLINE: usize = 8;

/// A signal, and how often it was raised.
#[derive(Default)]
pub(super) struct News {
    rung: AtomicU64,
    bell: Signal,
}

impl News {
    /// The batch leaves garbage, a debt or an earlier deadline in any case. A lease that is renewed ends later, so a
    /// loop that sleeps until its old deadline need not be woken.
    pub(super) fn concerns(&self, keys: &Keys, batch: &Batch) -> bool {
        let moved: BTreeMap<&[u8], &[u8]> = batch.ops.iter().filter_map(|op| ended(keys, op)).collect();
        batch.ops.iter().any(|op| match op {
            Op::Put(key, _) if key.group == keys.due => key
                .name
                .as_bytes()
                .split_at_checked(DEADLINE)
                .is_none_or(|(deadline, edge)| moved.get(edge).is_none_or(|before| deadline < *before)),
            Op::Put(key, _) => [&keys.zero, &keys.owed, &keys.unlink].contains(&&key.group),
            _ => false,
        })
    }

    pub(super) fn notify(&self) {
        self.rung.fetch_add(1, SeqCst);
        self.bell.notify();
    }

    pub(super) fn seen(&self) -> u64 {
        self.rung.load(SeqCst)
    }

    /// Waits until the signal is raised after `seen`.
    pub(super) async fn after(&self, seen: u64) {
        self.bell.until(|| (self.seen() != seen).then_some(())).await;
    }
}

/// The edge whose deadline an operation takes away, and that deadline.
fn ended<'a>(keys: &Keys, op: &'a Op) -> Option<(&'a [u8], &'a [u8])> {
    match op {
        Op::Delete(key) if key.group == keys.due => {
            key.name.as_bytes().split_at_checked(DEADLINE).map(|(deadline, edge)| (edge, deadline))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::EdgeName;
    use onceflow_core::{Row, Shard, Timestamp};

    #[test]
    fn only_a_new_or_earlier_lease_wakes_the_sweeper() {
        let (keys, edge) = (Keys::new(), EdgeName::root("lease"));
        let due = |ms| keys.due(Timestamp::from_ms(ms), &edge);
        let rings = |old: Option<u64>, new| {
            let mut batch = Batch::new(Shard(0));
            if let Some(old) = old {
                batch.delete(due(old));
            }
            batch.put(due(new), Row::default());
            News::default().concerns(&keys, &batch)
        };
        assert!(!rings(Some(1000), 2000));
        assert!(rings(Some(2000), 1000));
        assert!(rings(None, 1000));
    }
}
