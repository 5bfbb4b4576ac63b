//! A queue: its rows, the claims on them, the claims' deadlines, and which rows are free and whose turn it is. The last is
//! derived: a row is free while the claims hold none of that name. Nothing of it is stored.

use super::shard::Rows;
use onceflow_core::{Kind, Name, Row, limits::LANE_BYTES, queue::lane};
use std::{collections::BTreeSet, ops::Bound};

/// A queue with what belongs to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    ready: Rows,
    claims: Rows,
    deadlines: Rows,
    pub(super) free: FreeRows,
}

impl Queue {
    /// The rows of one of its groups.
    pub(super) fn rows(&self, kind: Kind) -> &Rows {
        match kind {
            Kind::Rows => unreachable!("plain rows belong to no queue"),
            Kind::Queue => &self.ready,
            Kind::Claims => &self.claims,
            Kind::Deadlines => &self.deadlines,
        }
    }

    fn rows_mut(&mut self, kind: Kind) -> &mut Rows {
        match kind {
            Kind::Rows => unreachable!("plain rows belong to no queue"),
            Kind::Queue => &mut self.ready,
            Kind::Claims => &mut self.claims,
            Kind::Deadlines => &mut self.deadlines,
        }
    }

    /// Makes a row of one of its groups hold this.
    pub(super) fn put(&mut self, kind: Kind, name: &Name, row: Row) -> Option<Row> {
        match kind {
            Kind::Queue if !self.claims.contains_key(name) => self.free.insert(name),
            Kind::Claims => self.free.remove(name.as_bytes()),
            Kind::Queue | Kind::Rows | Kind::Deadlines => {}
        }
        self.rows_mut(kind).insert(name.clone(), row)
    }

    /// Makes a row of one of its groups be gone.
    pub(super) fn delete(&mut self, kind: Kind, name: &Name) -> Option<Row> {
        match kind {
            Kind::Queue => self.free.remove(name.as_bytes()),
            Kind::Claims if self.ready.contains_key(name) => self.free.insert(name),
            Kind::Claims | Kind::Rows | Kind::Deadlines => {}
        }
        self.rows_mut(kind).remove(name)
    }

    /// Whether it says nothing that is not said by its absence.
    pub(super) fn is_blank(&self) -> bool {
        let FreeRows { names, served } = &self.free;
        self.ready.is_empty()
            && self.claims.is_empty()
            && self.deadlines.is_empty()
            && names.is_empty()
            && served.is_none()
    }

    /// Makes one of its groups empty.
    pub(super) fn clear(&mut self, kind: Kind) -> Rows {
        let rows = std::mem::take(self.rows_mut(kind));
        match kind {
            Kind::Rows | Kind::Deadlines => {}
            Kind::Queue => self.free.clear(),
            Kind::Claims => self.ready.keys().for_each(|name| self.free.insert(name)),
        }
        rows
    }
}

/// The free rows of one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeRows {
    names: BTreeSet<Name>,
    /// The lane that was served last; the next one in order is next.
    served: Option<Name>,
}

impl FreeRows {
    pub(super) fn insert(&mut self, name: &Name) {
        self.names.insert(name.clone());
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        self.names.remove(name);
    }

    pub(super) fn contains(&self, name: &Name) -> bool {
        self.names.contains(name)
    }

    pub(super) fn clear(&mut self) {
        self.names.clear();
    }

    /// Forgets whose turn it is if nobody waits for one.
    pub(super) fn forget_turn_if_idle(&mut self) {
        if self.names.is_empty() {
            self.served = None;
        }
    }

    /// The first row of the next lane after the one that was served last, round and round.
    pub(super) fn next_in_turn(&self) -> Option<&Name> {
        let first = || self.names.first();
        let Some(served) = &self.served else { return first() };
        let from = match served.as_bytes() {
            // Shorter than a lane: nobody else's name is in it, though longer ones may begin with it.
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
    pub(super) fn serve(&mut self, name: &Name) {
        self.served = Some(Name::new(lane(name.as_bytes())));
    }
}

/// The least bytes above everything that begins with `prefix`; `None` if there is nothing above.
pub(super) fn just_past(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut past = prefix[..=last].to_vec();
    past[last] += 1;
    Some(past)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which these are served.
    fn turns(names: &[&str]) -> String {
        let mut free = FreeRows::default();
        names.iter().for_each(|name| free.insert(&Name::new(name)));
        let mut order = Vec::new();
        while let Some(name) = free.next_in_turn().cloned() {
            free.serve(&name);
            free.remove(name.as_bytes());
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

    #[test]
    fn just_past_is_above_all_that_begin_with_it_and_nothing_else() {
        assert_eq!(just_past(b"ab").unwrap(), b"ac");
        assert_eq!(just_past(&[1, 255, 255]).unwrap(), [2]);
        assert_eq!(just_past(&[255]), None);
        assert_eq!(just_past(b""), None);
    }
}
