//! A queue: its rows, the claims on them, the claims' deadlines, and which rows are free and whose turn it is. The last is
//! derived: a row is free while the claims hold none of that name. Nothing of it is stored.
//!
//! Everything of one name stands in one entry. The names of free rows are kept in order, for the next turn; those that have
//! a claim or a deadline are listed without one, because every step comes and goes there and walks over claims are rare:
//! such a walk sorts them. A row is in one of the two or in both.

use super::{
    names::{self, just_past, merged},
    shard::Rows,
    slots::Slots,
};
use onceflow_core::{Kind, Name, Row, limits::LANE_BYTES, queue::lane};
use std::{collections::BTreeSet, ops::Bound};

/// A queue with its claims and deadlines.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    entries: Slots<Name, Entry>,
    free: FreeRows,
    /// The slots of entries that have a claim or a deadline, in any order.
    held: Vec<u32>,
    /// Slots of rows that may have become free and are not in `free`: most are claimed by the batch that made them, so
    /// they are put there only when a caller asks. A slot may be vacant or another row's by then.
    fresh: Vec<u32>,
}

/// The row, claim and deadline of one name.
#[derive(Clone, Debug, Default)]
struct Entry {
    ready: Option<Row>,
    claim: Option<Row>,
    deadline: Option<Row>,
    /// The name is among the free ones.
    in_free: bool,
    /// Its place among the held ones, if it is there.
    in_held: Option<u32>,
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

    /// Sets a row in one of the queue groups; returns the row that was there.
    pub(super) fn put(&mut self, kind: Kind, name: &Name, row: Row) -> Option<Row> {
        let slot = self.entries.find_or_insert(name, Entry::default);
        let old = self.entries.at_mut(slot).row_mut(kind).replace(row);
        self.list(slot, name);
        old
    }

    /// Makes a row of one of its groups be gone.
    pub(super) fn delete(&mut self, kind: Kind, name: &Name) -> Option<Row> {
        let slot = self.entries.find(name)?;
        let entry = self.entries.at_mut(slot);
        let old = entry.row_mut(kind).take()?;
        let is_empty = !entry.is_held() && entry.ready.is_none();
        self.list(slot, name);
        if is_empty {
            self.entries.remove(name);
        }
        Some(old)
    }

    /// Lists a changed entry where it belongs now.
    fn list(&mut self, slot: u32, name: &Name) {
        let entry = self.entries.at_mut(slot);
        if entry.is_free() {
            if !entry.in_free {
                self.fresh.push(slot);
            }
        } else if entry.in_free {
            entry.in_free = false;
            self.free.remove(name);
        }
        match (entry.is_held(), entry.in_held) {
            (true, None) => {
                entry.in_held = Some(self.held.len() as u32);
                self.held.push(slot);
            }
            (false, Some(place)) => {
                entry.in_held = None;
                self.held.swap_remove(place as usize);
                if let Some(moved) = self.held.get(place as usize) {
                    self.entries.at_mut(*moved).in_held = Some(place);
                }
            }
            _ => {}
        }
    }

    /// Claims a free row for its lane's turn, and answers it.
    pub(super) fn claim(&mut self, name: &Name, fence: Row, deadline: Row) -> Row {
        let slot = self.entries.find(name).filter(|slot| self.entries.at(*slot).1.is_free());
        let slot = slot.expect("only a free row is claimed");
        let entry = self.entries.at_mut(slot);
        (entry.claim, entry.deadline) = (Some(fence), Some(deadline));
        let row = entry.ready.clone().expect("a free row is there");
        self.list(slot, name);
        self.free.serve(name);
        row
    }

    /// Takes in all rows that have become free.
    pub(super) fn settle(&mut self) {
        for slot in self.fresh.drain(..) {
            if let Some((name, entry)) = self.entries.if_used(slot)
                && entry.is_free()
                && !entry.in_free
            {
                entry.in_free = true;
                self.free.names.insert(name.clone());
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
        if self.entries.is_sparse() {
            let moved = self.entries.compact();
            self.held.iter_mut().for_each(|slot| *slot = moved[slot]);
            self.held.shrink_to_fit();
        }
        self.entries.len() == 0
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
        let free = (kind == Kind::Queue).then(|| {
            let free = self.free.names.range::<[u8], _>(names::from(prefix, after));
            free.take_while(move |name| name.as_bytes().starts_with(prefix))
        });
        let is_asked = |name: &[u8]| name.starts_with(prefix) && after.is_none_or(|after| name > after);
        let held = self.held.iter().map(|slot| &self.entries.at(*slot).0);
        let mut held: Vec<&Name> = held.filter(|name| is_asked(name.as_bytes())).collect();
        held.sort_unstable();
        let names = merged(free.into_iter().flatten(), held.into_iter());
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
    fn claims_are_walked_in_order_however_they_came_and_went() {
        let (mut queue, name) = (Queue::default(), |n: usize| Name::new(format!("{n:03}")));
        for n in (0..40).rev() {
            queue.put(Kind::Queue, &name(n), Row::new("ready"));
            queue.put(Kind::Claims, &name(n), Row::new("fence"));
        }
        (0..40).step_by(3).for_each(|n| assert!(queue.delete(Kind::Claims, &name(n)).is_some()));
        assert!(!queue.rest());
        let walk = |kind, prefix: &[u8], after: Option<&[u8]>| {
            queue.rows(kind, prefix, after).map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        let held: Vec<Name> = (0..40).filter(|n| n % 3 != 0).map(name).collect();
        assert_eq!(walk(Kind::Claims, b"", None), held);
        assert_eq!(walk(Kind::Claims, b"02", Some(b"024")), [25, 26, 28, 29].map(name));
        assert_eq!(walk(Kind::Queue, b"", None), (0..40).map(name).collect::<Vec<_>>());
    }

    #[test]
    fn a_queue_that_shrank_keeps_its_claims() {
        let (mut queue, name) = (Queue::default(), |n: u32| Name::new(n.to_be_bytes()));
        for n in 0..5000 {
            queue.put(Kind::Queue, &name(n), Row::new("ready"));
            queue.put(Kind::Claims, &name(n), Row::new("fence"));
        }
        (0..4990).for_each(|n| {
            queue.delete(Kind::Claims, &name(n));
            queue.delete(Kind::Queue, &name(n));
        });
        assert!(!queue.rest());
        (4990..5000).rev().for_each(|n| assert!(queue.delete(Kind::Claims, &name(n)).is_some()));
        assert_eq!(queue.next_in_turn(), Some(&name(4990)));
    }

    #[test]
    fn a_name_shorter_than_a_lane_does_not_skip_those_that_begin_with_it() {
        assert_eq!(turns(&["b", "a", "ab", "lane-aaa1", "lane-aaa", "lane-aa"]), "a ab b lane-aa lane-aaa lane-aaa1");
    }
}
