//! The effect of a batch on rows: the state machine that the memory and journal backends share, and that every other
//! backend is compared with. It reads no clock and does no I/O; the same batches at the same times give the same rows,
//! answers and effects.

mod apply;
mod effects;
mod few;
mod hash;
mod names;
mod queues;
mod shard;
mod slots;
mod view;

pub use effects::{Effects, NoEffects};
pub(crate) use names::{from as names_from, just_past};
pub(crate) use view::PlainRows;

use crate::records::{CommitResult, Page, Position, Scan};
use onceflow_core::{
    Batch, Group, Key, Name, Row, Shard, Timestamp,
    batch::{BatchLimits, Invalid},
};
use shard::ShardState;
use std::collections::BTreeMap;
use view::{MapView, SplitView};

/// All rows of a store, by shard.
#[derive(Clone, Debug, Default)]
pub struct StoreState {
    shards: BTreeMap<Shard, ShardState>,
    durable: Totals,
}

/// The rows that must outlive a crash.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    /// The approximate bytes of these rows in a log.
    bytes: u64,
    rows: u64,
}

impl Totals {
    /// Makes a row of a shard hold this, or be gone, and counts it.
    fn set(&mut self, rows: &mut ShardState, key: &Key, row: Option<Row>) -> Option<Row> {
        if key.group.kind().is_volatile() {
            return rows.set(key, row);
        }
        if let Some(row) = &row {
            self.bytes += weight(key, row);
            self.rows += 1;
        }
        let old = rows.set(key, row);
        if let Some(row) = &old {
            self.bytes -= weight(key, row);
            self.rows -= 1;
        }
        old
    }

    /// Makes a group of a shard empty, and counts it.
    fn clear(&mut self, rows: &mut ShardState, group: &Group) -> BTreeMap<Name, Row> {
        let rows = rows.clear(group);
        if !group.kind().is_volatile() {
            self.bytes -= rows.iter().map(|(name, row)| weight_of(group, name, row)).sum::<u64>();
            self.rows -= rows.len() as u64;
        }
        rows
    }
}

impl StoreState {
    /// No rows.
    pub fn new() -> Self {
        StoreState::default()
    }

    /// Applies a batch after the batch at position `at.0`, at time `at.1`, or says which require did not hold. The flag says
    /// that an unclaimed queue row became free: waiting workers should wake. Changes that must outlive a
    /// crash are told to `effects`, in order. After an error nothing has changed, though effects may have been told.
    pub fn apply(
        &mut self,
        batch: &Batch,
        at: (Position, Timestamp),
        effects: &mut impl Effects,
    ) -> Result<(CommitResult, bool), Invalid> {
        batch.check_within(BatchLimits::EMBEDDED)?;
        self.apply_checked(batch, at, effects)
    }

    /// The same for a batch that has passed [`Batch::check_within`], so that no caller waits for a lock meanwhile.
    pub(crate) fn apply_checked(
        &mut self,
        batch: &Batch,
        at: (Position, Timestamp),
        effects: &mut impl Effects,
    ) -> Result<(CommitResult, bool), Invalid> {
        let StoreState { shards, durable } = self;
        let rows = shards.entry(batch.shard).or_default();
        apply::apply(&mut MapView { rows, durable }, batch, at, effects)
    }

    /// Applies a checked batch to a state that holds queues only, over plain rows that are elsewhere.
    pub(crate) fn apply_over(
        &mut self,
        plain: &mut impl PlainRows,
        batch: &Batch,
        at: (Position, Timestamp),
    ) -> Result<(CommitResult, bool), Invalid> {
        let StoreState { shards, durable } = self;
        let queues = MapView { rows: shards.entry(batch.shard).or_default(), durable };
        apply::apply(&mut SplitView { queues, plain }, batch, at, &mut NoEffects)
    }

    /// The content of a row.
    pub fn get(&self, shard: Shard, key: &Key) -> Option<&Row> {
        self.shards.get(&shard)?.get(key)
    }

    /// Rows of a group in order.
    pub fn scan(&self, shard: Shard, scan: &Scan) -> Page {
        self.shards.get(&shard).map(|rows| rows.scan(scan)).unwrap_or_default()
    }

    /// Makes a row hold this, or be gone. For replaying effects: no require is tested and no trigger fires.
    pub fn set(&mut self, shard: Shard, key: &Key, row: Option<Row>) -> Option<Row> {
        let rows = self.shards.entry(shard).or_default();
        let old = self.durable.set(rows, key, row);
        rows.rest(&key.group);
        old
    }

    /// Makes a group empty. For replaying effects.
    pub fn clear(&mut self, shard: Shard, group: &Group) -> BTreeMap<Name, Row> {
        let rows = self.shards.entry(shard).or_default();
        let old = self.durable.clear(rows, group);
        rows.rest(group);
        old
    }

    /// Every row there is, those an embedded store may forget included. For tests that nothing is left.
    #[cfg(feature = "testing")]
    pub fn all(&self) -> Vec<(Shard, Key, Row)> {
        let mut rows = Vec::new();
        for (shard, state) in &self.shards {
            state.each_row(|key, row| rows.push((*shard, key, row.clone())));
        }
        rows
    }

    /// The position at which a row of the shard last became free.
    pub fn enabled_at(&self, shard: Shard) -> Position {
        self.shards.get(&shard).map(|rows| rows.enabled_at).unwrap_or_default()
    }

    /// Notes that a row of the shard became free at this position.
    pub fn note_enabled(&mut self, shard: Shard, position: Position) {
        self.shards.entry(shard).or_default().enabled_at = position;
    }

    /// Notes that a row of every shard became free at this position.
    pub(crate) fn note_all_enabled(&mut self, position: Position) {
        self.shards.values_mut().for_each(|rows| rows.enabled_at = position);
    }

    /// The claims that stand, with their deadlines.
    pub fn claims(&self) -> Vec<StandingClaim> {
        let mut claims = Vec::new();
        for (shard, rows) in &self.shards {
            rows.each_claim(|queue, name, fence, deadline| {
                let (queue, name, fence) = (Group::queue(queue), name.clone(), fence.clone());
                claims.push(StandingClaim { shard: *shard, queue, name, fence, deadline: deadline.cloned() });
            });
        }
        claims
    }

    /// The approximate bytes in a log of the rows that must outlive a crash.
    pub fn durable_bytes(&self) -> u64 {
        self.durable.bytes
    }

    /// How many rows must outlive a crash.
    pub fn durable_rows(&self) -> u64 {
        self.durable.rows
    }

    /// The durable rows after a place, in order of shard, group and name: at most `limit`, and the place to go on
    /// from. For snapshots.
    pub fn durable_after(
        &self,
        place: Option<&RowCursor>,
        limit: usize,
    ) -> (Vec<(Shard, Key, Row)>, Option<RowCursor>) {
        let mut rows = Vec::with_capacity(limit.min(self.durable.rows as usize));
        let first = place.map_or(Shard(0), |place| place.0);
        for (shard, state) in self.shards.range(first..) {
            let after = place.filter(|place| place.0 == *shard).map(|place| &place.1);
            state.durable_after(after, limit - rows.len(), |key, row| rows.push((*shard, key, row.clone())));
            if rows.len() == limit {
                break;
            }
        }
        let next = rows.last().filter(|_| rows.len() == limit).map(|(shard, key, _)| RowCursor(*shard, key.clone()));
        (rows, next)
    }
}

/// A claim that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandingClaim {
    /// The shard of its queue.
    pub shard: Shard,
    /// The queue.
    pub queue: Group,
    /// The row it is on.
    pub name: Name,
    /// The fence, as its row holds it.
    pub fence: Row,
    /// Its deadline, as its row holds it.
    pub deadline: Option<Row>,
}

/// Where a walk over all rows stands: after this row.
#[derive(Clone, Debug)]
pub struct RowCursor(pub Shard, pub Key);

fn weight(key: &Key, row: &Row) -> u64 {
    weight_of(&key.group, &key.name, row)
}

fn weight_of(group: &Group, name: &Name, row: &Row) -> u64 {
    (8 + group.id().len() + name.as_bytes().len() + row.len()) as u64
}
