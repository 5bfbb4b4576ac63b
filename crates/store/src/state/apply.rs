//! One batch: requires, operations, triggers in rounds (counters only when no bitmap is full), claim. Changes rows in
//! place and keeps what it replaced, so that a batch found wrong half-way leaves no trace.

use super::{State, effects::Effects};
use onceflow_core::{
    Batch, Claim, Claimed, Group, Inbox, Key, Kind, Name, Op, Pick, Row, Shard, Timestamp,
    batch::Invalid,
    limits,
    row::{bitmap, counter},
};
use std::collections::BTreeMap;

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It happened.
    Applied {
        /// The rows whose triggers fired.
        fired: Vec<Key>,
        /// What its claim took.
        claimed: Option<Claimed>,
        /// Whether a row became free that nobody has claimed yet.
        enabled: bool,
    },
    /// A require did not hold.
    Refused {
        /// Which, counted from 0.
        which: usize,
        /// What its row held.
        found: Option<Row>,
    },
}

pub(super) fn apply(
    state: &mut State,
    batch: &Batch,
    now: Timestamp,
    effects: &mut impl Effects,
) -> Result<Answer, Invalid> {
    for (which, require) in batch.requires.iter().enumerate() {
        let found = state.get(batch.shard, require.key());
        if !require.holds(found) {
            return Ok(Answer::Refused { which, found: found.cloned() });
        }
    }
    effects.shard(batch.shard);
    let undo = Vec::with_capacity(2 * batch.ops.len());
    let mut change = Change { state, shard: batch.shard, effects, undo, enabled: vec![], fired: vec![] };
    if let Err(invalid) = change.run(&batch.ops) {
        change.undo();
        return Err(invalid);
    }
    let claimed = batch.claim.as_ref().and_then(|claim| change.claim(claim, now));
    change.forget_idle_turns(claimed.as_ref().map(|claimed| &claimed.queue));
    let enabled = change.enabled.iter().any(|key| change.is_free(key));
    Ok(Answer::Applied { fired: change.fired, claimed, enabled })
}

/// A batch on its way.
struct Change<'a, 'b, E> {
    state: &'a mut State,
    shard: Shard,
    effects: &'a mut E,
    undo: Vec<Undo<'b>>,
    /// Queue rows that were put or whose claim went, in order.
    enabled: Vec<Key>,
    fired: Vec<Key>,
}

/// A row, and what follows when it is complete.
type Trigger<'b> = (&'b Key, &'b [Op]);

/// Rows that may be complete.
#[derive(Default)]
struct Touched<'b> {
    /// By operations of the last round.
    bitmaps: Vec<Trigger<'b>>,
    /// By operations of all rounds since counters were last looked at.
    counters: Vec<Trigger<'b>>,
}

enum Undo<'b> {
    Row(&'b Key, Option<Row>),
    Group(&'b Group, BTreeMap<Name, Row>),
}

impl<'b, E: Effects> Change<'_, 'b, E> {
    /// Applies operations, then fires what is complete, round by round, until nothing is. While a bitmap is full no
    /// counter fires: what follows from the bitmap may yet raise it.
    fn run(&mut self, ops: &'b [Op]) -> Result<(), Invalid> {
        let mut touched = Touched::default();
        self.round(ops, &mut touched)?;
        loop {
            let bitmaps = std::mem::take(&mut touched.bitmaps);
            let mut complete = self.take_complete(&bitmaps, bitmap::is_full);
            if complete.is_empty() {
                let counters = std::mem::take(&mut touched.counters);
                complete = self.take_complete(&counters, |row| counter::read(row) == Some(0));
            }
            if complete.is_empty() {
                return Ok(());
            }
            for (key, then) in complete {
                self.round(then, &mut touched)?;
                self.fired.push(key.clone());
            }
        }
    }

    /// Applies operations and notes those that may have completed their row.
    fn round(&mut self, ops: &'b [Op], touched: &mut Touched<'b>) -> Result<(), Invalid> {
        for op in ops {
            match op {
                Op::Put(key, row) => {
                    self.tell(key, |effects| effects.put(key, row));
                    self.put(key, row.clone());
                }
                Op::Delete(key) => self.delete(key),
                Op::DeleteGroup(group) => self.delete_group(group),
                Op::SetBit { key, bit, of, when_full } => {
                    self.set_bit(key, *bit, *of)?;
                    touched.bitmaps.push((key, when_full));
                }
                Op::Add { key, delta, at_zero } => {
                    self.add(key, *delta)?;
                    touched.counters.push((key, at_zero));
                }
            }
        }
        Ok(())
    }

    /// Takes away the rows that are complete now and answers them with what follows.
    fn take_complete(&mut self, touched: &[Trigger<'b>], is_complete: fn(&[u8]) -> bool) -> Vec<Trigger<'b>> {
        let mut complete = Vec::new();
        for (key, then) in touched {
            if self.state.get(self.shard, key).is_some_and(|row| is_complete(row)) {
                self.delete(key);
                complete.push((*key, *then));
            }
        }
        complete
    }

    fn delete(&mut self, key: &'b Key) {
        let Some(old) = self.state.set(self.shard, key, None) else { return };
        self.tell(key, |effects| effects.delete(key));
        if key.group.kind() == Kind::Claims {
            self.enabled.push(Key { group: key.group.companion(Kind::Queue), name: key.name.clone() });
        }
        self.undo.push(Undo::Row(key, Some(old)));
    }

    fn delete_group(&mut self, group: &'b Group) {
        if !group.kind().is_volatile() {
            self.effects.delete_group(group);
        }
        let rows = self.state.clear(self.shard, group);
        if group.kind() == Kind::Claims {
            let queue = group.companion(Kind::Queue);
            self.enabled.extend(rows.keys().map(|name| Key { group: queue.clone(), name: name.clone() }));
        }
        self.undo.push(Undo::Group(group, rows));
    }

    fn set_bit(&mut self, key: &'b Key, bit: u32, of: u32) -> Result<(), Invalid> {
        let row = self.state.get(self.shard, key);
        if row.is_some_and(|row| !bitmap::fits(row, of)) {
            return Err(Invalid::WrongContent { key: key.clone(), wanted: "a bitmap of that size" });
        }
        let (row, full) = bitmap::with(row.map(|row| &**row), bit, of);
        // A full set goes before the batch ends; what is told then is that it went.
        if !full {
            self.tell(key, |effects| effects.set_bit(key, bit, of));
        }
        self.put(key, row);
        Ok(())
    }

    fn add(&mut self, key: &'b Key, delta: i64) -> Result<(), Invalid> {
        let count = match self.state.get(self.shard, key) {
            None => 0,
            Some(row) => {
                counter::read(row).ok_or_else(|| Invalid::WrongContent { key: key.clone(), wanted: "a counter" })?
            }
        };
        let count = count.checked_add(delta).ok_or_else(|| Invalid::Overflow(key.clone()))?;
        let row = counter::write(count);
        // A zero is changed again or goes before the batch ends; what is told then is that.
        if count != 0 {
            self.tell(key, |effects| effects.put(key, &row));
        }
        self.put(key, row);
        Ok(())
    }

    fn put(&mut self, key: &'b Key, row: Row) {
        if key.group.kind() == Kind::Queue {
            self.enabled.push(key.clone());
        }
        let old = self.state.set(self.shard, key, Some(row));
        self.undo.push(Undo::Row(key, old));
    }

    fn tell(&mut self, key: &Key, tell: impl FnOnce(&mut E)) {
        if !key.group.kind().is_volatile() {
            tell(self.effects);
        }
    }

    fn undo(&mut self) {
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Row(key, row) => drop(self.state.set(self.shard, key, row)),
                Undo::Group(group, rows) => {
                    for (name, row) in rows {
                        self.state.set(self.shard, &Key { group: group.clone(), name }, Some(row));
                    }
                }
            }
        }
    }

    /// Forgets whose turn it is in every queue it touched where nobody waits for one.
    fn forget_idle_turns(&mut self, claimed: Option<&Group>) {
        let Some(rows) = self.state.shards.get_mut(&self.shard) else { return };
        let touched = self.undo.iter().map(|undo| match undo {
            Undo::Row(key, _) => &key.group,
            Undo::Group(group, _) => *group,
        });
        for group in touched.chain(claimed).filter(|group| group.kind() != Kind::Rows) {
            rows.forget_turn_if_idle(group);
        }
    }

    fn is_free(&self, key: &Key) -> bool {
        self.state.shards.get(&self.shard).is_some_and(|rows| rows.is_free(&key.group, &key.name))
    }

    fn claim(&mut self, claim: &Claim, now: Timestamp) -> Option<Claimed> {
        let Key { group: queue, name } = self.pick(claim)?;
        let rows = self.state.shards.entry(self.shard).or_default();
        rows.serve(&queue, &name);
        let deadline = now.plus_ms(claim.ttl_ms);
        // Nothing can go wrong any more, so nothing of this is kept for undoing it.
        let mut stamp = |group: Group, row| self.state.set(self.shard, &group.key(&name), Some(row));
        stamp(queue.claims(), Row::new(claim.fence.to_bytes()));
        stamp(queue.deadlines(), Row::new(deadline.to_sortable()));
        let row = self.state.get(self.shard, &queue.key(&name)).expect("a free row is there").clone();
        let inbox = Inbox::from_row(&row).expect("a queue's row is an inbox; `Batch::check` sees to that");
        let scan = crate::records::Scan::of(inbox.group, limits::CLAIM_ROWS_MAX).prefix(&inbox.prefix);
        let page = self.state.scan(self.shard, &scan);
        Some(Claimed { queue, name, row, inputs: page.rows, more: page.more, deadline })
    }

    fn pick(&self, claim: &Claim) -> Option<Key> {
        let enabled = || {
            let mine = |key: &&Key| claim.queues.contains(&key.group) && self.is_free(key);
            self.enabled.iter().find(mine).cloned()
        };
        let in_turn = || {
            let rows = self.state.shards.get(&self.shard)?;
            claim.queues.iter().find_map(|queue| Some(queue.key(rows.next_in_turn(queue)?)))
        };
        match claim.pick {
            Pick::EnabledFirst => enabled().or_else(in_turn),
            Pick::InTurn => in_turn(),
        }
    }
}
