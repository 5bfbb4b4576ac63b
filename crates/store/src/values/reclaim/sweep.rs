//! Pays debts and sweeps values, as many as one batch holds.
//!
//! A reference of a swept value is *open* until its target is looked up. If the target's count equals its open references,
//! the target is swept in the same batch, and its references are open in turn; so a chain, a tree or a ladder of diamonds
//! is swept in large pieces. A target with a larger count survives, and its count is lowered. References that are still
//! open when the batch is full become a debt.

use super::{
    Error, ReclaimCall, Round,
    turn::{Known, Seen},
};
use crate::{
    records::{Page, Scan, get_one},
    values::{
        ValueId, Values, limits,
        rows::ValueRows,
        stored::{Belongings, Debt, Head, Standing, Sweeper},
        update::lower,
    },
};
use futures_util::future::{try_join, try_join_all};
use onceflow_core::{Batch, Fence, Name, Row, Timestamp, row::counter};
use std::collections::BTreeMap;

/// Operations that a value at zero takes at most.
pub(super) const CANDIDATE_OPS: usize = 3;

/// Operations that an element of a released prefix takes: its own, and two for what it points at.
const RELEASE_OPS: usize = 3;

/// The rows to work on.
pub(super) struct Work {
    /// Debts, at most one.
    pub(super) owed: Page,
    /// Values that may be swept.
    pub(super) zero: Page,
    /// The most values, edges and decrements to touch.
    pub(super) touch_max: usize,
    /// The deadline of the next lease. Without one, the sweeper's row is deleted when all is done.
    pub(super) next_deadline: Option<Timestamp>,
}

impl ReclaimCall<'_> {
    pub(super) async fn sweep(&mut self, seen: Seen, sweeper: Sweeper, work: Work) -> Result<Round, Error> {
        let keys = &self.values.rows.keys;
        let turn = self.values.writer.fence();
        let is_last = work.next_deadline.is_none() && !work.owed.more && !work.zero.more;
        let mut sweep = Sweep::new(self, self.batch_after(&seen), work.touch_max);
        if let Some((name, row)) = work.owed.rows.first() {
            sweep.pay(name, row).await?;
        }
        sweep.sweep_candidates(&work.zero.rows).await?;
        while sweep.can_go_on() {
            sweep.follow().await?;
        }
        assert!(
            sweep.touched >= usize::try_from(sweep.swept).unwrap_or(usize::MAX),
            "a sweep deletes only values it looked up"
        );
        let nothing_left = sweep.finish(turn);
        let mut left = None;
        match is_last && nothing_left {
            true => sweep.batch.delete(keys.sweeper()).delete(keys.witness()),
            false => {
                let back_by = work.next_deadline.unwrap_or(Timestamp::NEVER);
                let sweeper = Sweeper { turn, back_by, ..sweeper };
                let row = sweeper.to_row();
                let seen = Seen { row: Some(row.clone()), sweeper: Some(sweeper), witness: seen.witness };
                left = Some(Known { seen, next_deadline: work.next_deadline });
                sweep.batch.put(keys.sweeper(), row)
            }
        };
        let Sweep { batch, touched, swept, paid, .. } = sweep;
        let round = self.commit(batch, Round::Did(touched)).await?;
        if let Round::Did(_) = round {
            self.known = left;
            self.done.swept += swept;
            self.done.paid += paid;
        }
        Ok(round)
    }
}

/// A sweeping batch, while it is built.
struct Sweep<'a> {
    values: &'a Values,
    batch: Batch,
    /// Operations it can still take.
    room: usize,
    touched: usize,
    touch_max: usize,
    /// Decrements that may be open.
    open_max: usize,
    /// Decrements of values that were not looked up yet; a value may occur more than once.
    open: Vec<(ValueId, u32)>,
    /// Decrements of values whose count stays above zero.
    survivors: BTreeMap<ValueId, u32>,
    /// The batch leaves work for later rounds.
    leaves_work: bool,
    swept: u64,
    paid: u64,
}

impl<'a> Sweep<'a> {
    fn new(call: &ReclaimCall<'a>, batch: Batch, touch_max: usize) -> Self {
        let room = call.ops_max();
        Sweep {
            values: call.values,
            batch,
            room,
            open_max: limits::REFS_PER_VALUE_MAX.max(limits::OPEN_DECREMENTS_PER_OP * room),
            touched: 0,
            touch_max,
            open: Vec::new(),
            survivors: BTreeMap::new(),
            leaves_work: false,
            swept: 0,
            paid: 0,
        }
    }

    /// Works on a debt: its decrements become open, and its row is deleted once nothing of it is left.
    async fn pay(&mut self, name: &Name, row: &Row) -> Result<(), Error> {
        let key = self.values.rows.keys.owed.key(name);
        match Debt::read(name.as_bytes(), row).ok_or_else(|| Error::damaged("a debt"))? {
            Debt::Decrements(owed) => {
                self.batch.delete(key);
                self.room -= 1;
                owed.into_iter().for_each(|(id, n)| self.owe(id, n));
            }
            Debt::Release(prefix) => {
                let elements =
                    Scan::of(self.values.rows.keys.edges.clone(), self.touch_max.min(self.room / RELEASE_OPS));
                let elements = elements.prefix(onceflow_core::value::id::elements_of(prefix.as_bytes()));
                let page = self.values.rows.records.scan(self.values.rows.shard, elements).await?;
                for (name, row) in &page.rows {
                    let standing = Standing::from_row(row).ok_or_else(|| Error::damaged("an element"))?;
                    self.batch.delete(self.values.rows.keys.edges.key(name));
                    // An element that holds bytes has no count to lower.
                    if let Standing::Edge(edge) = standing {
                        self.owe(edge.target, 1);
                    }
                }
                self.room -= page.rows.len() + 2;
                self.touched += page.rows.len();
                if page.more {
                    self.leaves_work = true;
                } else {
                    self.batch.delete(key).delete(self.values.rows.keys.sealed(&prefix));
                }
            }
        }
        Ok(())
    }

    /// Sweeps the candidates whose count is still zero; the others are no longer candidates.
    async fn sweep_candidates(&mut self, zero: &[(Name, Row)]) -> Result<(), Error> {
        let room = (self.room / CANDIDATE_OPS)
            .saturating_sub(self.open.len())
            .min(self.touch_max.saturating_sub(self.touched));
        let ids: Vec<_> = zero.iter().take(room).filter_map(|(name, _)| ValueId::checked(name.as_bytes())).collect();
        self.leaves_work |= ids.len() < zero.len();
        // The references of one may leave no room for the next ones: not all are read before that is known.
        for some in ids.chunks(limits::VALUES_READ_MAX) {
            let rows = self.look_up(some.iter()).await?;
            if !self.sweep_some(some, rows)? {
                self.leaves_work = true;
                break;
            }
        }
        Ok(())
    }

    /// Returns true if there was room for all of them.
    fn sweep_some(&mut self, ids: &[ValueId], rows: Vec<Option<Row>>) -> Result<bool, Error> {
        let mut rows = rows.into_iter();
        for id in ids {
            let (value, count) = (rows.next().flatten(), rows.next().flatten());
            let keys = &self.values.rows.keys;
            match (value, count) {
                (None, _) => self.batch.require_absent(keys.value(id)),
                (_, Some(_)) => self.batch.require_present(keys.count(id)),
                (Some(row), None) => {
                    let head = self.head(id, &row)?;
                    if self.room < CANDIDATE_OPS || !self.has_room_for(&head) {
                        return Ok(false);
                    }
                    crate::seams::require_unreferenced(&mut self.batch, keys.count(id));
                    self.delete_value(id, &head)?;
                    &mut self.batch
                }
            };
            self.batch.delete(keys.zero(id));
            self.room -= 1;
            self.touched += 1;
        }
        Ok(true)
    }

    fn can_go_on(&self) -> bool {
        !self.open.is_empty() && self.room >= 2 && self.touched < self.touch_max
    }

    /// Looks up values with open decrements: sweeps those whose count is no more than that; the others survive.
    async fn follow(&mut self) -> Result<(), Error> {
        let mut wave = merged(std::mem::take(&mut self.open));
        let many = (self.room / 2).min(self.touch_max - self.touched);
        if wave.len() > many {
            self.open = wave.split_off(many);
        }
        // Lowering a count takes two operations; sweeping a value two, and one for what it owns.
        self.room -= 2 * wave.len();
        self.touched += wave.len();
        let mut rows = self.look_up(wave.iter().map(|(id, _)| id)).await?.into_iter();
        for (id, owed) in wave {
            let (value, count) = (rows.next().flatten(), rows.next().flatten());
            self.paid += u64::from(owed);
            let owed = match self.survivors.remove(&id) {
                None => owed,
                Some(before) => {
                    self.room += 2;
                    before + owed
                }
            };
            self.settle(id, owed, value.as_ref(), count)?;
        }
        Ok(())
    }

    fn settle(&mut self, id: ValueId, owed: u32, value: Option<&Row>, count: Option<Row>) -> Result<(), Error> {
        if let Some(count) = count
            && counter::read(&count) == Some(i64::from(owed))
        {
            let head = value.map(|row| self.head(&id, row)).transpose()?;
            if head.as_ref().is_none_or(|head| self.has_room_for(head)) {
                let key = self.values.rows.keys.count(&id);
                self.batch.require_equals(key.clone(), count).delete(key);
                if let Some(head) = head {
                    // The two operations of a count's change are reserved already.
                    self.room += 1;
                    self.delete_value(&id, &head)?;
                }
                return Ok(());
            }
        }
        self.survivors.insert(id, owed);
        Ok(())
    }

    /// The batch has room for the references and belongings of this value.
    fn has_room_for(&self, head: &Head<'_>) -> bool {
        self.room >= usize::from(head.owns_something()) && self.open.len() + head.refs_count() <= self.open_max
    }

    /// Deletes a value; its references become open, and its elements or object are queued for deletion.
    fn delete_value(&mut self, id: &ValueId, head: &Head<'_>) -> Result<(), Error> {
        let keys = &self.values.rows.keys;
        self.batch.delete(keys.value(id));
        self.room -= 1;
        self.swept += 1;
        for id in head.refs() {
            self.owe(id, 1);
        }
        match head.belongings().ok_or_else(|| Error::damaged(format!("value {id}")))? {
            Belongings::None => return Ok(()),
            Belongings::Prefix(prefix) => {
                self.batch.put(keys.owed.key(Debt::release_name(&prefix)), Debt::release_row());
            }
            Belongings::Object(object) => {
                self.batch.put(keys.unlink(object), Row::default());
            }
        }
        self.room -= 1;
        self.leaves_work = true;
        Ok(())
    }

    /// Closes the batch. Returns true if this round knows of no work for another one.
    fn finish(&mut self, turn: Fence) -> bool {
        let keys = &self.values.rows.keys;
        for (id, owed) in &self.survivors {
            lower(&mut self.batch, keys, id, i64::from(*owed));
        }
        if !self.open.is_empty() {
            let open = merged(std::mem::take(&mut self.open));
            let row = Debt::decrements_row(open.iter().map(|(id, n)| (id, *n)));
            self.leaves_work = true;
            self.batch.put(keys.owed.key(Debt::decrements_name(turn)), row);
        }
        self.survivors.is_empty() && !self.leaves_work
    }

    fn owe(&mut self, id: ValueId, n: u32) {
        self.open.push((id, n));
    }

    /// Reads the value and the count of each id. The reads need not be at one moment: no other batch sweeps meanwhile, and the
    /// batch requires each count as it was read.
    async fn look_up(&self, ids: impl Iterator<Item = &ValueId>) -> Result<Vec<Option<Row>>, Error> {
        let ValueRows { keys, records, shard, .. } = &self.values.rows;
        if records.in_process().is_some() {
            // Each answers at once; a chain is followed value by value, and a wait for many costs more than the look.
            let mut rows = Vec::with_capacity(2 * ids.size_hint().0);
            for id in ids {
                rows.push(get_one(&**records, *shard, keys.value(id)).await?);
                rows.push(get_one(&**records, *shard, keys.count(id)).await?);
            }
            return Ok(rows);
        }
        let (values, counts): (Vec<_>, Vec<_>) = ids.map(|id| (keys.value(id), keys.count(id))).unzip();
        // All at once: on a server, each would be a round trip.
        let values = values.chunks(limits::VALUES_READ_MAX).map(|some| records.get(*shard, some));
        let (counts, values) = try_join(records.get(*shard, &counts), try_join_all(values)).await?;
        let rows = values.into_iter().flatten().zip(counts).flat_map(|(value, count)| [value, count]).collect();
        Ok(rows)
    }

    fn head<'r>(&self, id: &ValueId, row: &'r Row) -> Result<Head<'r>, Error> {
        Head::read(row).ok_or_else(|| Error::damaged(format!("value {id}")))
    }
}

/// Merges the entries of each value into one, in order.
fn merged(mut owed: Vec<(ValueId, u32)>) -> Vec<(ValueId, u32)> {
    owed.sort_unstable();
    owed.dedup_by(|next, first| {
        let same = next.0 == first.0;
        first.1 += if same { next.1 } else { 0 };
        same
    });
    owed
}
