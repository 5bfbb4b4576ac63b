//! The rows of one shard. Every change goes through `set` and `clear`, which keep the free rows of queues
//! in step with what they are derived from.

use super::queues::{Queue, just_past};
use crate::records::{Page, Position, Scan};
use onceflow_core::{Group, Key, Kind, Name, Row, limits};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{BuildHasherDefault, DefaultHasher},
    ops::Bound,
};

pub(super) type Rows = BTreeMap<Name, Row>;

#[derive(Clone, Debug, Default)]
pub(super) struct ShardState {
    /// Groups of plain rows; none is empty. Found by hash, because a batch looks its run up a dozen times.
    groups: HashMap<Group, Rows, BuildHasherDefault<DefaultHasher>>,
    /// The same groups in order, for walking them.
    order: BTreeSet<Group>,
    /// Queues with their claims and deadlines, by the queue's group.
    queues: BTreeMap<Group, Queue>,
    pub(super) enabled_at: Position,
}

impl ShardState {
    pub(super) fn get(&self, key: &Key) -> Option<&Row> {
        self.rows(&key.group)?.get(&key.name)
    }

    pub(super) fn scan(&self, scan: &Scan) -> Page {
        let limit = scan.limit.min(limits::SCAN_ROWS_MAX);
        let Some(rows) = self.rows(&scan.group) else { return Page::default() };
        let mut found = under(rows, scan.prefix.as_bytes(), scan.after.as_ref().map(Name::as_bytes));
        let page = found.by_ref().take(limit).map(|(name, row)| (name.clone(), row.clone())).collect();
        Page { rows: page, more: found.next().is_some() }
    }

    fn rows(&self, group: &Group) -> Option<&Rows> {
        match group.kind() {
            Kind::Rows => self.groups.get(group),
            kind => Some(self.queues.get(&group.companion(Kind::Queue))?.rows(kind)),
        }
    }

    #[cfg(feature = "testing")]
    pub(super) fn each_row(&self, mut tell: impl FnMut(Key, &Row)) {
        let kinds = [Kind::Queue, Kind::Claims, Kind::Deadlines];
        let queues = self.queues.keys().flat_map(|queue| kinds.map(|kind| queue.companion(kind)));
        for group in self.order.iter().cloned().chain(queues) {
            for (name, row) in self.rows(&group).into_iter().flatten() {
                tell(group.key(name), row);
            }
        }
    }

    pub(super) fn set(&mut self, key: &Key, row: Option<Row>) -> Option<Row> {
        match (key.group.kind(), row) {
            (Kind::Rows, Some(row)) => match self.groups.get_mut(&key.group) {
                Some(rows) => rows.insert(key.name.clone(), row),
                None => {
                    self.groups.insert(key.group.clone(), Rows::from([(key.name.clone(), row)]));
                    self.order.insert(key.group.clone());
                    None
                }
            },
            (Kind::Rows, None) => self.remove(key),
            (kind, Some(row)) => self.queue(&key.group).put(kind, &key.name, row),
            (kind, None) => {
                let queue = self.queues.get_mut(&key.group.companion(Kind::Queue))?;
                let old = queue.delete(kind, &key.name);
                self.remove_if_blank(&key.group);
                old
            }
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Row> {
        let rows = self.groups.get_mut(&key.group)?;
        let old = rows.remove(&key.name);
        if rows.is_empty() {
            self.remove_group(&key.group);
        }
        old
    }

    fn remove_group(&mut self, group: &Group) -> Option<Rows> {
        self.order.remove(group);
        self.groups.remove(group)
    }

    /// The queue that a group is, or is the claims or deadlines of.
    fn queue(&mut self, group: &Group) -> &mut Queue {
        self.queues.entry(group.companion(Kind::Queue)).or_default()
    }

    pub(super) fn clear(&mut self, group: &Group) -> Rows {
        match group.kind() {
            Kind::Rows => self.remove_group(group).unwrap_or_default(),
            kind => {
                let Some(queue) = self.queues.get_mut(&group.companion(Kind::Queue)) else { return Rows::new() };
                let rows = queue.clear(kind);
                self.remove_if_blank(group);
                rows
            }
        }
    }

    /// Forgets whose turn it is in a queue where nobody waits for one: otherwise every queue there ever was would be
    /// remembered. Asked at the end of a batch, of every queue it touched.
    pub(super) fn forget_turn_if_idle(&mut self, group: &Group) {
        if let Some(queue) = self.queues.get_mut(&group.companion(Kind::Queue)) {
            queue.free.forget_turn_if_idle();
            self.remove_if_blank(group);
        }
    }

    /// Removes a queue of which nothing is left.
    fn remove_if_blank(&mut self, group: &Group) {
        let queue = group.companion(Kind::Queue);
        if self.queues.get(&queue).is_some_and(Queue::is_blank) {
            self.queues.remove(&queue);
        }
    }

    pub(super) fn is_free(&self, queue: &Group, name: &Name) -> bool {
        self.queues.get(queue).is_some_and(|queue| queue.free.contains(name))
    }

    pub(super) fn next_in_turn(&self, queue: &Group) -> Option<&Name> {
        self.queues.get(queue)?.free.next_in_turn()
    }

    pub(super) fn serve(&mut self, queue: &Group, name: &Name) {
        self.queue(queue).free.serve(name);
    }

    /// Tells the durable rows after a key, at most `limit`, in order.
    pub(super) fn durable_after(&self, after: Option<&Key>, limit: usize, mut tell: impl FnMut(Key, &Row)) {
        let from: (Bound<&Group>, Bound<&Group>) =
            (after.map_or(Bound::Unbounded, |key| Bound::Included(&key.group)), Bound::Unbounded);
        // Plain groups sort before queues.
        let plain = self.order.range(from).map(|group| (group, &self.groups[group]));
        let queues = self.queues.range(from).map(|(group, queue)| (group, queue.rows(Kind::Queue)));
        let mut left = limit;
        for (group, rows) in plain.chain(queues) {
            let after = after.filter(|key| key.group == *group).map(|key| key.name.as_bytes());
            for (name, row) in under(rows, b"", after).take(left) {
                tell(Key { group: group.clone(), name: name.clone() }, row);
                left -= 1;
            }
            if left == 0 {
                return;
            }
        }
    }
}

/// The rows whose names begin with `prefix` and come after `after`.
fn under<'a>(rows: &'a Rows, prefix: &'a [u8], after: Option<&[u8]>) -> impl Iterator<Item = (&'a Name, &'a Row)> {
    let from = match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    let past = just_past(prefix);
    let to = past.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    // A range whose start lies past its end is a panic to the standard library and nothing to us.
    let empty = matches!((&from, &to), (Bound::Excluded(from), Bound::Excluded(to)) if from >= to);
    let found = (!empty).then(|| rows.range::<[u8], _>((from, to)));
    found.into_iter().flatten()
}
