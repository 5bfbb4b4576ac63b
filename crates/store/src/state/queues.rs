//! A queue: its rows, the claims on them, the claims' deadlines, and which rows are free and whose turn it is. The last is
//! derived: a row is free while the claims hold none of that name. Nothing of it is stored.
//!
//! Everything of one name stands in one entry, found by hash. Two sets keep the names in order: those of free rows, and
//! those that have a claim or a deadline. A row is in one of them or in both.

use super::{
    hash::Hashing,
    names::{self, just_past, merged},
    shard::Rows,
};
use onceflow_core::{Kind, Name, Row, limits::LANE_BYTES, queue::lane};
use std::{
    collections::{BTreeSet, HashMap},
    ops::Bound,
};

/// Entries that are kept room for although there are far fewer.
const SPARE_ENTRIES_MAX: usize = 1024;

/// A queue with its claims and deadlines.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    entries: HashMap<Name, Entry, Hashing>,
    free: FreeRows,
    /// Names that have a claim or a deadline.
    held: BTreeSet<Name>,
    /// Names of rows that may have become free and are not in `free`: most are claimed by the batch that made them, so
    /// they are put there only when a caller asks.
    fresh: Vec<Name>,
}

/// The row, claim and deadline of one name.
#[derive(Clone, Debug, Default)]
struct Entry {
    ready: Option<Row>,
    claim: Option<Row>,
    deadline: Option<Row>,
    /// The name is among the free ones.
    in_free: bool,
}

impl Entry {
    fn is_free(&self) -> bool {
        self.ready.is_some() && self.claim.is_none()
    }

    fn is_held(&self) -> bool {
        self.claim.is_some() || self.deadline.is_some()
    }

    fn row(&self, kind: Kind) -> Option<&Row> {
        match kind {
            Kind::Rows => unreachable!("plain rows belong to no queue"),
            Kind::Queue => self.ready.as_ref(),
            Kind::Claims => self.claim.as_ref(),
            Kind::Deadlines => self.deadline.as_ref(),
        }
    }

    fn row_mut(&mut self, kind: Kind) -> &mut Option<Row> {
        match kind {
            Kind::Rows => unreachable!("plain rows belong to no queue"),
            Kind::Queue => &mut self.ready,
            Kind::Claims => &mut self.claim,
            Kind::Deadlines => &mut self.deadline,
        }
    }
}

impl Queue {
    /// A row of one of its groups.
    pub(super) fn get(&self, kind: Kind, name: &Name) -> Option<&Row> {
        self.entries.get(name)?.row(kind)
    }

    /// Makes a row of one of its groups hold this.
    pub(super) fn put(&mut self, kind: Kind, name: &Name, row: Row) -> Option<Row> {
        let entry = self.entries.entry(name.clone()).or_default();
        let was_held = entry.is_held();
        let old = entry.row_mut(kind).replace(row);
        if !entry.in_free && entry.is_free() {
            self.fresh.push(name.clone());
        } else if entry.in_free && !entry.is_free() {
            entry.in_free = false;
            self.free.remove(name);
        }
        if !was_held && entry.is_held() {
            self.held.insert(name.clone());
        }
        old
    }

    /// Makes a row of one of its groups be gone.
    pub(super) fn delete(&mut self, kind: Kind, name: &Name) -> Option<Row> {
        let entry = self.entries.get_mut(name)?;
        let was_held = entry.is_held();
        let old = entry.row_mut(kind).take()?;
        if !entry.in_free && entry.is_free() {
            self.fresh.push(name.clone());
        } else if entry.in_free && !entry.is_free() {
            entry.in_free = false;
            self.free.remove(name);
        }
        let (is_held, is_ready) = (entry.is_held(), entry.ready.is_some());
        if was_held && !is_held {
            self.held.remove(name);
        }
        if !is_held && !is_ready {
            self.entries.remove(name);
        }
        Some(old)
    }

    /// Claims a free row for its lane's turn, and answers it.
    pub(super) fn claim(&mut self, name: &Name, fence: Row, deadline: Row) -> Row {
        let entry = self.entries.get_mut(name).filter(|entry| entry.is_free());
        let entry = entry.expect("only a free row is claimed");
        if entry.in_free {
            entry.in_free = false;
            self.free.remove(name);
        }
        if !entry.is_held() {
            self.held.insert(name.clone());
        }
        (entry.claim, entry.deadline) = (Some(fence), Some(deadline));
        self.free.serve(name);
        entry.ready.clone().expect("a free row is there")
    }

    /// Takes in all rows that have become free.
    pub(super) fn settle(&mut self) {
        for name in self.fresh.drain(..) {
            if let Some(entry) = self.entries.get_mut(&name).filter(|entry| entry.is_free() && !entry.in_free) {
                entry.in_free = true;
                self.free.names.insert(name);
            }
        }
    }

    /// Ends a batch: settles the rows that have become free, and forgets the turn if no row is free. Returns true if
    /// the queue is empty.
    pub(super) fn rest(&mut self) -> bool {
        self.settle();
        if self.free.names.is_empty() {
            self.free.served = None;
        }
        let (many, room) = (self.entries.len(), self.entries.capacity());
        if room > SPARE_ENTRIES_MAX && many < room / 8 {
            self.entries.shrink_to(2 * many);
        }
        many == 0
    }

    /// Makes one of its groups empty.
    pub(super) fn clear(&mut self, kind: Kind) -> Rows {
        let names: Vec<_> = self.rows(kind, b"", None).map(|(name, _)| name.clone()).collect();
        names.into_iter().filter_map(|name| self.delete(kind, &name).map(|row| (name, row))).collect()
    }

    pub(super) fn is_free(&self, name: &Name) -> bool {
        self.entries.get(name).is_some_and(Entry::is_free)
    }

    /// The first row of the lane whose turn it is.
    pub(super) fn next_in_turn(&mut self) -> Option<&Name> {
        self.settle();
        self.free.next_in_turn()
    }

    /// The rows of one of its groups whose names begin with `prefix` and come after `after`. Whatever has become free is
    /// taken in already.
    pub(super) fn rows<'a>(
        &'a self,
        kind: Kind,
        prefix: &'a [u8],
        after: Option<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a Name, &'a Row)> {
        let named = |names: &'a BTreeSet<Name>| {
            names.range::<[u8], _>(names::from(prefix, after)).take_while(|name| name.as_bytes().starts_with(prefix))
        };
        let free = (kind == Kind::Queue).then(|| named(&self.free.names));
        let names = merged(free.into_iter().flatten(), named(&self.held));
        names.filter_map(move |name| Some((name, self.entries.get(name)?.row(kind)?)))
    }
}

/// The free rows of one queue.
#[derive(Clone, Debug, Default)]
struct FreeRows {
    names: BTreeSet<Name>,
    /// The lane that was served last; the next one in order is next.
    served: Option<Name>,
}

impl FreeRows {
    fn remove(&mut self, name: &Name) {
        self.names.remove(name);
    }

    /// The first row of the next lane after the one that was served last, round and round.
    fn next_in_turn(&self) -> Option<&Name> {
        let first = || self.names.first();
        let Some(served) = &self.served else { return first() };
        let from = match served.as_bytes() {
            // Shorter than a lane: no other lane's name is in it, though longer ones may begin with it.
            short if short.len() < LANE_BYTES => Bound::Excluded(short.to_vec()),
            lane => match just_past(lane) {
                Some(past) => Bound::Included(past),
                None => return first(),
            },
        };
        let from = from.as_ref().map(Vec::as_slice);
        self.names.range::<[u8], _>((from, Bound::Unbounded)).next().or_else(first)
    }

    /// Notes that the row's lane had its turn.
    fn serve(&mut self, name: &Name) {
        self.served = Some(Name::new(lane(name.as_bytes())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which these are served.
    fn turns(names: &[&str]) -> String {
        let mut free = FreeRows::default();
        free.names.extend(names.iter().map(Name::new));
        let mut order = Vec::new();
        while let Some(name) = free.next_in_turn().cloned() {
            free.serve(&name);
            free.remove(&name);
            order.push(String::from_utf8_lossy(name.as_bytes()).into_owned());
        }
        order.join(" ")
    }

    #[test]
    fn lanes_take_turns_however_many_rows_each_has() {
        let order = turns(&["lane-aaa1", "lane-aaa2", "lane-aaa3", "lane-bbb1", "lane-ccc1", "lane-ccc2"]);
        assert_eq!(order, "lane-aaa1 lane-bbb1 lane-ccc1 lane-aaa2 lane-ccc2 lane-aaa3");
    }

    #[test]
    fn a_name_shorter_than_a_lane_does_not_skip_those_that_begin_with_it() {
        assert_eq!(turns(&["b", "a", "ab", "lane-aaa1", "lane-aaa", "lane-aa"]), "a ab b lane-aa lane-aaa lane-aaa1");
    }
}
