//! One batch: requires, operations, triggers in rounds (counters only when no bitmap is full), claim. Written once, over
//! a [view](ShardView) of the rows. Changes rows in place and keeps the replaced ones, so that a batch found wrong half-way leaves
//! no trace.

use super::{effects::Effects, few::Few, view::ShardView};
use crate::{
    records::{CommitResult, Committed, Position, Refused},
    seams,
};
use onceflow_core::{
    Batch, Claim, Claimed, Group, Inbox, Key, Kind, Name, Op, Pick, Row, Timestamp,
    batch::{Invalid, is_bell},
    limits,
    row::{bitmap, counter},
};
use std::borrow::Cow;

/// Applies a batch after the batch at `position`. The flag says that a queue row became free and is not claimed yet, or that
/// the batch rings: those who wait should wake.
pub(super) fn apply<V: ShardView>(
    rows: &mut V,
    batch: &Batch,
    (position, now): (Position, Timestamp),
    effects: &mut impl Effects,
) -> Result<(CommitResult, bool), Invalid> {
    for (which, require) in batch.requires.iter().enumerate() {
        let failed = |found: Option<&Row>| (!require.holds(found)).then(|| found.cloned());
        if let Some(found) = rows.look(require.key(), failed) {
            return Ok((CommitResult::Refused(Refused { position, which, found }), false));
        }
    }
    effects.shard(batch.shard);
    let mut change = Change::new(rows, batch, effects);
    let done = change.run(&batch.ops);
    if done.is_err() {
        change.undo();
    }
    let claimed = done.is_ok().then(|| change.claim(batch.claim.as_ref()?, now)).flatten();
    let Change { rows, enabled, fired, queues, rings, .. } = change;
    queues.iter().for_each(|queue| rows.rest(queue));
    done?;
    let is_claimed = |queue: &Group, name: &Name| {
        claimed.as_ref().is_some_and(|claimed| claimed.name == *name && claimed.queue.id_name() == queue.id_name())
    };
    let enabled = rings || enabled.iter().any(|(queue, name)| !is_claimed(queue, name) && rows.is_free(queue, name));
    let committed = Committed { position: Position(position.0 + 1), fired, claimed };
    Ok((CommitResult::Applied(committed), enabled))
}

/// A batch on its way.
struct Change<'a, 'b, V: ShardView, E> {
    rows: &'a mut V,
    effects: &'a mut E,
    /// The replaced rows, if the batch can still fail: only operations that compute with a row can.
    undo: Option<Vec<Undo<'b, V>>>,
    /// Queue rows that were put or whose claim went, in order: the group of either, and the name.
    enabled: Few<(&'b Group, Cow<'b, Name>)>,
    /// Queues that were changed, by one of their groups. One may stand there more than once.
    queues: Few<&'b Group>,
    fired: Vec<Key>,
    /// The bell was rung.
    rings: bool,
}

/// Up to so many operations are compared with each other to find bitmaps that need no row.
const COMPARED_OPS_MAX: usize = 16;

/// A row, and the operations that follow when it is complete.
struct Trigger<'b> {
    key: &'b Key,
    then: &'b [Op],
    /// A bitmap that was full with its first bit: complete, and never stored.
    is_full_at_once: bool,
}

/// Rows that may be complete.
#[derive(Default)]
struct Touched<'b> {
    /// Touched by operations of the last round.
    bitmaps: Vec<Trigger<'b>>,
    /// Touched by operations of all rounds since counters were last looked at.
    counters: Vec<Trigger<'b>>,
}

enum Undo<'b, V: ShardView> {
    Row(&'b Key, Option<V::Replaced>),
    Group(&'b Group, V::Cleared),
}

impl<'a, 'b, V: ShardView, E: Effects> Change<'a, 'b, V, E> {
    fn new(rows: &'a mut V, batch: &'b Batch, effects: &'a mut E) -> Self {
        let undo = can_fail(&batch.ops).then(|| Vec::with_capacity(2 * batch.ops.len()));
        Change { rows, effects, undo, enabled: Few::default(), queues: Few::default(), fired: vec![], rings: false }
    }

    /// Applies operations, then fires the triggers of complete rows, round by round, until none is complete. While a
    /// bitmap is full no counter fires: the bitmap's trigger may yet raise it.
    fn run(&mut self, ops: &'b [Op]) -> Result<(), Invalid> {
        let mut touched = Touched::default();
        self.round(ops, &mut touched, ops.len() <= COMPARED_OPS_MAX)?;
        loop {
            let bitmaps = std::mem::take(&mut touched.bitmaps);
            let mut complete = match seams::bitmaps_fire_first() {
                true => self.take_complete(bitmaps, bitmap::is_full),
                false => {
                    let counters = std::mem::take(&mut touched.counters);
                    let mut zero = self.take_complete(counters, |row| counter::read(row) == Some(0));
                    zero.extend(self.take_complete(bitmaps, bitmap::is_full));
                    zero
                }
            };
            if complete.is_empty() {
                let counters = std::mem::take(&mut touched.counters);
                complete = self.take_complete(counters, |row| counter::read(row) == Some(0));
            }
            if complete.is_empty() {
                return Ok(());
            }
            for Trigger { key, then, .. } in complete {
                self.round(then, &mut touched, false)?;
                self.fired.push(key.clone());
            }
        }
    }

    /// Applies operations and notes those that may have completed their row. With `alone` no other operations are applied
    /// before complete rows are taken: then a bitmap of one bit that no other of them names is not stored.
    fn round(&mut self, ops: &'b [Op], touched: &mut Touched<'b>, alone: bool) -> Result<(), Invalid> {
        for (at, op) in ops.iter().enumerate() {
            match op {
                Op::Put(key, row) => {
                    self.tell(key, |effects| effects.put(key, row));
                    self.put(key, row.clone());
                }
                Op::Delete(key) => self.delete(key),
                Op::DeleteGroup(group) => self.delete_group(group),
                Op::SetBit { key, bit, of, when_full } => {
                    let is_full_at_once = alone && *of == 1 && self.is_unseen(key, at, ops);
                    if !is_full_at_once {
                        self.set_bit(key, *bit, *of)?;
                    }
                    touched.bitmaps.push(Trigger { key, then: when_full, is_full_at_once });
                }
                Op::Add { key, delta, at_zero } => {
                    self.add(key, *delta)?;
                    touched.counters.push(Trigger { key, then: at_zero, is_full_at_once: false });
                }
            }
        }
        Ok(())
    }

    /// The row does not exist, and no operation but the one at `at` names it.
    fn is_unseen(&self, key: &Key, at: usize, ops: &[Op]) -> bool {
        let names = |op: &Op| match op {
            Op::DeleteGroup(group) => *group == key.group,
            Op::Put(other, _) | Op::Delete(other) => other == key,
            Op::SetBit { key: other, .. } | Op::Add { key: other, .. } => other == key,
        };
        let is_named = ops.iter().enumerate().any(|(other, op)| other != at && names(op));
        key.group.kind() == Kind::Rows && !is_named && self.rows.look(key, |row| row.is_none())
    }

    /// Removes the rows that are complete now and returns them with the operations that follow.
    fn take_complete(&mut self, touched: Vec<Trigger<'b>>, is_complete: fn(&[u8]) -> bool) -> Vec<Trigger<'b>> {
        let mut complete = touched;
        complete.retain(|trigger| {
            if trigger.is_full_at_once {
                return true;
            }
            let is_complete = self.rows.look(trigger.key, |row| row.is_some_and(|row| is_complete(row)));
            if is_complete {
                self.delete(trigger.key);
            }
            is_complete
        });
        complete
    }

    fn delete(&mut self, key: &'b Key) {
        if is_bell(key) {
            self.rings = true;
            return;
        }
        let Some(old) = self.set(key, None) else { return };
        self.tell(key, |effects| effects.delete(key));
        if key.group.kind() == Kind::Claims {
            self.enabled.push((&key.group, Cow::Borrowed(&key.name)));
        }
        self.keep(Undo::Row(key, Some(old)));
    }

    fn delete_group(&mut self, group: &'b Group) {
        if !group.kind().is_volatile() {
            self.effects.delete_group(group);
        }
        self.touch(group);
        let cleared = self.rows.clear(group);
        if group.kind() == Kind::Claims {
            V::claims_in(&cleared).for_each(|name| self.enabled.push((group, Cow::Owned(name.clone()))));
        }
        self.keep(Undo::Group(group, cleared));
    }

    fn set_bit(&mut self, key: &'b Key, bit: u32, of: u32) -> Result<(), Invalid> {
        let (bit, row, full) = self.rows.look(key, |row| {
            if row.is_some_and(|row| !bitmap::fits(row, of)) {
                return Err(Invalid::WrongContent { key: key.clone(), wanted: "a bitmap of that size" });
            }
            let bit = seams::bit_of_arrival(bit, row, of);
            let (row, full) = bitmap::with(row.map(|row| &**row), bit, of);
            Ok((bit, row, full))
        })?;
        // A full set is deleted before the batch ends; the effect reported then is the deletion.
        if !full {
            self.tell(key, |effects| effects.set_bit(key, bit, of));
        }
        self.put(key, row);
        Ok(())
    }

    fn add(&mut self, key: &'b Key, delta: i64) -> Result<(), Invalid> {
        let count = self.rows.look(key, |row| row.map_or(Some(0), |row| counter::read(row)));
        let count = count.ok_or_else(|| Invalid::WrongContent { key: key.clone(), wanted: "a counter" })?;
        let count = count.checked_add(delta).ok_or_else(|| Invalid::Overflow(key.clone()))?;
        let row = counter::write(count);
        // A zero is changed again or deleted before the batch ends; the effect reported then is that.
        if count != 0 {
            self.tell(key, |effects| effects.put(key, &row));
        }
        self.put(key, row);
        Ok(())
    }

    fn put(&mut self, key: &'b Key, row: Row) {
        if key.group.kind() == Kind::Queue {
            self.enabled.push((&key.group, Cow::Borrowed(&key.name)));
        }
        let old = self.set(key, Some(row));
        self.keep(Undo::Row(key, old));
    }

    fn set(&mut self, key: &'b Key, row: Option<Row>) -> Option<V::Replaced> {
        self.touch(&key.group);
        self.rows.set(key, row)
    }

    /// Notes a queue that is changed.
    fn touch(&mut self, group: &'b Group) {
        let is_last = || self.queues.last().is_some_and(|last| last.id_name() == group.id_name());
        if group.kind() != Kind::Rows && !is_last() {
            self.queues.push(group);
        }
    }

    fn keep(&mut self, undo: Undo<'b, V>) {
        if let Some(kept) = &mut self.undo {
            kept.push(undo);
        }
    }

    fn tell(&mut self, key: &Key, tell: impl FnOnce(&mut E)) {
        if !key.group.kind().is_volatile() {
            tell(self.effects);
        }
    }

    fn undo(&mut self) {
        for undo in self.undo.take().into_iter().flatten().rev() {
            match undo {
                Undo::Row(key, replaced) => self.rows.restore(key, replaced),
                Undo::Group(group, cleared) => self.rows.restore_group(group, cleared),
            }
        }
    }

    fn claim(&mut self, claim: &'b Claim, now: Timestamp) -> Option<Claimed> {
        let (queue, name) = self.pick(claim)?;
        self.touch(queue);
        let deadline = now.plus_ms(claim.ttl_ms);
        // Nothing can go wrong any more, so nothing of this is kept for undoing it.
        let fence = Row::new(claim.fence.to_bytes());
        let row = self.rows.claim(queue, &name, fence, Row::new(deadline.to_sortable()));
        let inbox = Inbox::place(&row);
        let (group, prefix) = inbox.expect("a queue's row is an inbox; `Batch::check` sees to that");
        let page = self.rows.page(&group, prefix, limits::CLAIM_ROWS_MAX);
        Some(Claimed { queue: queue.clone(), name, row, inputs: page.rows, more: page.more, deadline })
    }

    fn pick(&mut self, claim: &'b Claim) -> Option<(&'b Group, Name)> {
        let enabled = match claim.pick {
            Pick::EnabledFirst => self.enabled.iter().find_map(|(group, name)| {
                let queue = claim.queues.iter().find(|queue| queue.id_name() == group.id_name())?;
                self.rows.is_free(queue, name).then(|| (queue, name.as_ref().clone()))
            }),
            Pick::InTurn => None,
        };
        enabled.or_else(|| claim.queues.iter().find_map(|queue| Some((queue, self.rows.next_in_turn(queue)?.clone()))))
    }
}

/// Any of these operations can fail when it is applied.
fn can_fail(ops: &[Op]) -> bool {
    ops.iter().any(|op| matches!(op, Op::SetBit { .. } | Op::Add { .. }))
}
