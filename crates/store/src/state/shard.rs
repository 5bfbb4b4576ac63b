//! The rows of one shard. Every change goes through `set` and `clear`, which keep the free rows of queues
//! in step with what they are derived from.

use super::queues::{FreeRows, just_past};
use crate::records::{Page, Position, Scan};
use onceflow_core::{Group, Key, Kind, Name, Row, limits};
use std::{collections::BTreeMap, ops::Bound};

type Rows = BTreeMap<Name, Row>;

#[derive(Clone, Debug, Default)]
pub(super) struct ShardState {
    groups: BTreeMap<Group, Rows>,
    /// By the queue's group.
    free: BTreeMap<Group, FreeRows>,
    pub(super) enabled_at: Position,
}

impl ShardState {
    pub(super) fn get(&self, key: &Key) -> Option<&Row> {
        self.groups.get(&key.group)?.get(&key.name)
    }

    pub(super) fn scan(&self, scan: &Scan) -> Page {
        let limit = scan.limit.min(limits::SCAN_ROWS_MAX);
        let Some(rows) = self.groups.get(&scan.group) else { return Page::default() };
        let mut found = under(rows, scan.prefix.as_bytes(), scan.after.as_ref().map(Name::as_bytes));
        let page = found.by_ref().take(limit).map(|(name, row)| (name.clone(), row.clone())).collect();
        Page { rows: page, more: found.next().is_some() }
    }

    pub(super) fn set(&mut self, key: &Key, row: Option<Row>) -> Option<Row> {
        let present = row.is_some();
        let old = match row {
            Some(row) => match self.groups.get_mut(&key.group) {
                Some(rows) => rows.insert(key.name.clone(), row),
                None => {
                    self.groups.insert(key.group.clone(), Rows::from([(key.name.clone(), row)]));
                    None
                }
            },
            None => self.remove(key),
        };
        match key.group.kind() {
            Kind::Rows | Kind::Deadlines => {}
            Kind::Queue | Kind::Claims => self.refresh(key, present),
        }
        old
    }

    fn remove(&mut self, key: &Key) -> Option<Row> {
        let rows = self.groups.get_mut(&key.group)?;
        let old = rows.remove(&key.name);
        if rows.is_empty() {
            self.groups.remove(&key.group);
        }
        old
    }

    /// Brings one row of a queue's free rows in step, after the row or the claim on it has changed.
    fn refresh(&mut self, key: &Key, present: bool) {
        let (queue, is_claim) = (key.group.companion(Kind::Queue), key.group.kind() == Kind::Claims);
        let other = Key { group: if is_claim { queue.clone() } else { queue.claims() }, name: key.name.clone() };
        let other_present = self.get(&other).is_some();
        let (row, claim) = if is_claim { (other_present, present) } else { (present, other_present) };
        if row && !claim {
            self.free.entry(queue).or_default().insert(&key.name);
        } else if let Some(free) = self.free.get_mut(&queue) {
            free.remove(key.name.as_bytes());
            if free.is_blank() {
                self.free.remove(&queue);
            }
        }
    }

    /// Forgets whose turn it is in a queue where nobody waits for one: otherwise every queue there ever was would be
    /// remembered. Asked at the end of a batch, of every queue it touched.
    pub(super) fn forget_turn_if_idle(&mut self, queue: &Group) {
        if self.free.get(queue).is_some_and(FreeRows::is_empty) {
            self.free.remove(queue);
        }
    }

    pub(super) fn clear(&mut self, group: &Group) -> Rows {
        let rows = self.groups.remove(group).unwrap_or_default();
        match group.kind() {
            Kind::Rows | Kind::Deadlines => {}
            Kind::Queue => self.free.get_mut(group).into_iter().for_each(FreeRows::clear),
            Kind::Claims => {
                let queue = group.companion(Kind::Queue);
                let free = self.free.entry(queue.clone()).or_default();
                self.groups.get(&queue).into_iter().flat_map(Rows::keys).for_each(|name| free.insert(name));
            }
        }
        rows
    }

    pub(super) fn is_free(&self, queue: &Group, name: &Name) -> bool {
        self.free.get(queue).is_some_and(|free| free.contains(name))
    }

    pub(super) fn next_in_turn(&self, queue: &Group) -> Option<&Name> {
        self.free.get(queue)?.next_in_turn()
    }

    pub(super) fn serve(&mut self, queue: &Group, name: &Name) {
        self.free.entry(queue.clone()).or_default().serve(name);
    }

    /// Tells the durable rows after a key, at most `limit`, in order.
    pub(super) fn durable_after(&self, after: Option<&Key>, limit: usize, mut tell: impl FnMut(Key, &Row)) {
        let from = after.map_or(Bound::Unbounded, |key| Bound::Included(&key.group));
        let mut left = limit;
        for (group, rows) in self.groups.range((from, Bound::Unbounded)) {
            if group.kind().is_volatile() {
                continue;
            }
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
