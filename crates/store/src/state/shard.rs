//! The rows of one shard. Every change goes through `set` and `clear`, which keep the free rows of queues in step with
//! the rows they are derived from; `rest` tells a changed queue that the batch ends.

use super::{names, queues::Queue, slots::Slots};
use crate::records::{Page, Position, Scan};
use onceflow_core::{Group, Key, Kind, Name, Row, limits};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

pub(super) type Rows = BTreeMap<Name, Row>;

#[derive(Clone, Debug, Default)]
pub(super) struct ShardState {
    /// Groups of plain rows; none is empty.
    groups: Slots<Group, Rows>,
    /// The same groups in order, for walking them.
    order: BTreeSet<Group>,
    /// Queues with their claims and deadlines, by their group's id.
    queues: Slots<Name, Queue>,
    /// The ids of the queues in order, for walking them.
    queue_order: BTreeSet<Name>,
    pub(super) enabled_at: Position,
}

impl ShardState {
    pub(super) fn get(&self, key: &Key) -> Option<&Row> {
        match key.group.kind() {
            Kind::Rows => self.groups.get(&key.group)?.get(&key.name),
            kind => self.queues.get(key.group.id_name())?.get(kind, &key.name),
        }
    }

    #[cfg(feature = "testing")]
    pub(super) fn each_row(&self, mut tell: impl FnMut(Key, &Row)) {
        let kinds = [Kind::Queue, Kind::Claims, Kind::Deadlines];
        let queues = self.queue_order.iter().flat_map(|queue| kinds.map(|kind| Group::of_kind(kind, queue)));
        for group in self.order.iter().cloned().chain(queues) {
            for (name, row) in self.page(&group, b"", None, usize::MAX).rows {
                tell(group.key(name), &row);
            }
        }
    }

    pub(super) fn each_claim(&self, mut tell: impl FnMut(&Name, &Name, &Row, Option<&Row>)) {
        for id in &self.queue_order {
            let queue = self.walked_queue(id);
            for (name, fence) in queue.rows(Kind::Claims, b"", None) {
                tell(id, name, fence, queue.get(Kind::Deadlines, name));
            }
        }
    }

    pub(super) fn scan(&self, scan: &Scan) -> Page {
        let after = scan.after.as_ref().map(Name::as_bytes);
        self.page(&scan.group, scan.prefix.as_bytes(), after, scan.limit.min(limits::SCAN_ROWS_MAX))
    }

    /// Rows of a group in order, at most `limit`. A queue that was changed must be [settled](Self::settle).
    pub(super) fn page(&self, group: &Group, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Page {
        match group.kind() {
            Kind::Rows => self.groups.get(group).map(|rows| page(under(rows, prefix, after), limit)),
            kind => self.queues.get(group.id_name()).map(|queue| page(queue.rows(kind, prefix, after), limit)),
        }
        .unwrap_or_default()
    }

    /// Makes a row hold this, or be gone. If it is a queue's, [`rest`](Self::rest) is to be called before anyone looks.
    pub(super) fn set(&mut self, key: &Key, row: Option<Row>) -> Option<Row> {
        match (key.group.kind(), row) {
            (Kind::Rows, Some(row)) => {
                let Self { groups, order, .. } = self;
                let slot = groups.find_or_insert(&key.group, || {
                    order.insert(key.group.clone());
                    Rows::new()
                });
                groups.at_mut(slot).insert(key.name.clone(), row)
            }
            (Kind::Rows, None) => self.remove(key),
            (kind, Some(row)) => self.queue(&key.group).put(kind, &key.name, row),
            (kind, None) => self.queues.get_mut(key.group.id_name())?.delete(kind, &key.name),
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

    /// The rows of a group that stands in the order.
    fn walked_group(&self, group: &Group) -> &Rows {
        self.groups.get(group).expect("the order holds all groups of plain rows and no others")
    }

    fn remove_group(&mut self, group: &Group) -> Option<Rows> {
        self.order.remove(group);
        let rows = self.groups.remove(group);
        if self.groups.is_sparse() {
            self.groups.compact();
        }
        rows
    }

    /// The queue that a group is, or is the claims or deadlines of.
    fn queue(&mut self, group: &Group) -> &mut Queue {
        let Self { queues, queue_order, .. } = self;
        let slot = queues.find_or_insert(group.id_name(), || {
            queue_order.insert(group.id_name().clone());
            Queue::default()
        });
        queues.at_mut(slot)
    }

    /// The queue with an id that stands in the order.
    fn walked_queue(&self, id: &Name) -> &Queue {
        self.queues.get(id).expect("the order holds the ids of all queues and no others")
    }

    /// Makes a group empty, as [`ShardState::set`] does a row.
    pub(super) fn clear(&mut self, group: &Group) -> Rows {
        match group.kind() {
            Kind::Rows => self.remove_group(group).unwrap_or_default(),
            kind => {
                let Some(queue) = self.queues.get_mut(group.id_name()) else { return Rows::new() };
                queue.settle();
                queue.clear(kind)
            }
        }
    }

    /// Takes in all rows of a queue that have become free, so that it can be walked.
    pub(super) fn settle(&mut self, group: &Group) {
        if let Some(queue) = self.queues.get_mut(group.id_name()) {
            queue.settle();
        }
    }

    /// Ends a batch that changed this group: a queue without free rows forgets the turn, and an empty queue is dropped.
    /// Otherwise every queue there ever was would be remembered.
    pub(super) fn rest(&mut self, group: &Group) {
        if group.kind() != Kind::Rows
            && let Some(queue) = self.queues.get_mut(group.id_name())
            && queue.rest()
        {
            self.queues.remove(group.id_name());
            self.queue_order.remove(group.id_name());
            if self.queues.is_sparse() {
                self.queues.compact();
            }
        }
    }

    pub(super) fn is_free(&self, queue: &Group, name: &Name) -> bool {
        self.queues.get(queue.id_name()).is_some_and(|queue| queue.is_free(name))
    }

    pub(super) fn next_in_turn(&mut self, queue: &Group) -> Option<&Name> {
        self.queues.get_mut(queue.id_name())?.next_in_turn()
    }

    /// Claims a free row, and answers it.
    pub(super) fn claim(&mut self, queue: &Group, name: &Name, fence: Row, deadline: Row) -> Row {
        self.queue(queue).claim(name, fence, deadline)
    }

    /// Passes the durable rows after a key to `tell`, at most `limit`, in order.
    pub(super) fn durable_after(&self, after: Option<&Key>, limit: usize, mut tell: impl FnMut(Key, &Row)) {
        let mut left = limit;
        let mut some = |group: &Group, rows: &mut dyn Iterator<Item = (&Name, &Row)>| {
            for (name, row) in rows.take(left) {
                tell(Key { group: group.clone(), name: name.clone() }, row);
                left -= 1;
            }
            left > 0
        };
        let within = |group: &Group| after.filter(|key| key.group == *group).map(|key| key.name.as_bytes());
        // Plain groups sort before queues.
        let from = after.map_or(Bound::Unbounded, |key| Bound::Included(&key.group));
        for group in self.order.range((from, Bound::Unbounded)) {
            if !some(group, &mut under(self.walked_group(group), b"", within(group))) {
                return;
            }
        }
        let queue = after.filter(|key| key.group.kind() == Kind::Queue).map(|key| key.group.id());
        let from = queue.map_or(Bound::Unbounded, Bound::Included);
        for id in self.queue_order.range::<[u8], _>((from, Bound::Unbounded)) {
            let (group, queue) = (Group::queue(id), self.walked_queue(id));
            if !some(&group, &mut queue.rows(Kind::Queue, b"", within(&group))) {
                return;
            }
        }
    }
}

/// The first of these, and whether there are more.
fn page<'a>(mut rows: impl Iterator<Item = (&'a Name, &'a Row)>, limit: usize) -> Page {
    let page = rows.by_ref().take(limit).map(|(name, row)| (name.clone(), row.clone())).collect();
    Page { rows: page, more: rows.next().is_some() }
}

/// The rows whose names begin with `prefix` and come after `after`.
fn under<'a>(rows: &'a Rows, prefix: &'a [u8], after: Option<&[u8]>) -> impl Iterator<Item = (&'a Name, &'a Row)> {
    rows.range::<[u8], _>(names::from(prefix, after)).take_while(|(name, _)| name.as_bytes().starts_with(prefix))
}
