//! One partition of a stage: takes input, works, and commits a bundle. It holds a claim and is the only writer of its
//! rows; when a commit is refused or fails, everything it has in memory is dropped and read again from the store.

use super::{
    Runtime,
    admission::Catalog,
    bundle::Bundle,
    cells::Cells,
    chain::{DueKind, DueRow, StageProgram},
    claim::PartitionClaim,
    keys::Station,
    layout::StageLayout,
    meta::{CatalogSize, Meta, Published},
    outbox::{Effect, Outbox},
    rest::Rest,
};
use crate::{
    block::RecordBlock, error::StreamError, event_time::EventTime, identity::Stamp, pipeline::source::SourceProgram,
    run::timing::CommitTiming, seams,
};
use onceflow_core::{
    Batch, Name, Row, Shard, Timestamp,
    limits::{self, GET_KEYS_MAX},
};
use onceflow_store::{CommitResult, Position, records::Scan};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
};

/// All rows of a pipeline are in one shard.
pub(crate) const SHARD: Shard = Shard(0);

/// Bytes of output after which a bundle takes no further record.
pub(super) const BUNDLE_BYTES: usize = 1 << 20;

/// Rows of state that one bundle changes, also where the store would take more: a batch of rows of some hundred bytes
/// each must stay within the bytes of a batch.
const STATE_ROWS_MAX: usize = 8192;

/// Bytes of output that still fit a batch.
const BUNDLE_BYTES_MAX: usize = 3 << 20;

/// Bytes of outputs and state in a batch; what else is in it takes the rest.
const BATCH_BYTES_USED_MAX: usize = limits::BATCH_BYTES_MAX - (512 << 10);

/// The work of a partition.
pub(crate) enum Program {
    Source(Box<dyn SourceProgram>),
    Stage(Box<dyn StageProgram>),
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    /// A bundle was committed.
    Worked,
    /// There was nothing to do.
    Idle,
    /// The partition has ended; its rows are gone but for the last counts.
    Ended,
}

/// Why a partition stopped. Its memory is void.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Another worker has the partition.
    Lost,
    /// The state that a bundle of so many records changed does not fit a batch: fewer records may.
    Oversized {
        /// The records that it was allowed to take.
        records_max: usize,
    },
    /// The store or the work failed.
    Failed(StreamError),
}

impl<E: Into<StreamError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Failed(error.into())
    }
}

pub(crate) struct Partition {
    pub(super) runtime: Arc<Runtime>,
    pub(super) station: Station,
    pub(super) claim: PartitionClaim,
    pub(super) meta: Meta,
    pub(super) meta_row: Option<Row>,
    pub(super) program: Program,
    pub(super) bundle: Bundle,
    pub(super) cells: Cells,
    pub(super) catalog: Catalog,
    pub(super) outbox: Outbox,
    /// For each kind of row that comes due, a time before which none does; `None` if there is no such row.
    pub(super) due: Vec<(DueKind, Option<i64>)>,
    /// Received blocks that are not consumed, and how many records of the first one are.
    pub(super) arrived: VecDeque<RecordBlock>,
    pub(super) arrived_consumed: u64,
    /// The promises of senders on retry edges: watermark, and reclaim watermark.
    pub(super) promises: BTreeMap<(u16, u16), (EventTime, Stamp)>,
    /// Rows of the inbox that this bundle has consumed.
    pub(super) consumed_rows: Vec<Name>,
    pub(super) published: Option<Published>,
    /// A watermark of the input, with the blocks of the inbox that must be consumed before it holds.
    pub(super) coming_watermark: Option<(EventTime, BTreeSet<Name>)>,
    /// This bundle tells all receivers on retry edges that it is the last.
    pub(super) sends_end: bool,
    pub(super) timing: CommitTiming,
    pub(super) rest: Rest,
    /// The bounds of the bundle under way.
    pub(super) room: Room,
}

/// The bounds of a bundle, found once: every record is held against them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    /// Records that it takes.
    pub(super) records: usize,
    /// Rows that it may change in its state.
    pub(super) state_rows: usize,
}

impl Partition {
    pub(super) fn layout(&self) -> &StageLayout {
        &self.runtime.stages[usize::from(self.station.stage)]
    }

    /// It lets its input gather for now. A source never does.
    pub(crate) fn rests(&self, now: Timestamp) -> bool {
        matches!(self.program, Program::Stage(_)) && self.rest.lasts(&self.runtime, now)
    }

    /// Takes input and commits one bundle.
    pub(crate) async fn advance(&mut self) -> Result<Advance, Stop> {
        self.settle(false).await?;
        self.timing.look(&self.runtime);
        self.take_written()?;
        let now_ms = self.runtime.records.now().await?.as_ms();
        self.receive().await?;
        self.send_again(now_ms).await?;
        let before = self.meta.clone();
        self.meta.bundle += 1;
        self.room = self.next_room();
        self.bundle.begin(self.meta.bundle, self.meta.watermark_in, now_ms, self.runtime.world.random());
        let has_news = self.take_call_news();
        self.rest.has_room = true;
        let has_fired = self.fire_due().await?;
        self.rest.has_room &= !has_fired;
        let mut effects = Vec::new();
        if !has_fired && !self.is_congested().await? {
            self.take_input(&mut effects).await?;
        }
        match &mut self.program {
            Program::Source(source) => source.flush(&mut self.bundle),
            Program::Stage(stage) => stage.flush(&mut self.bundle),
        }
        if let Some(problem) = self.bundle.problem.take() {
            return Err(Stop::Failed(problem));
        }
        let has_too_many_chunks = self.bundle.chunks > self.runtime.records.batch_limits().ops_max / 8;
        if (self.bundle.bytes > BUNDLE_BYTES_MAX || has_too_many_chunks) && self.room.records > 1 {
            return Err(Stop::Oversized { records_max: self.room.records });
        }
        if self.bundle.bytes > BUNDLE_BYTES_MAX {
            let (stage, bytes) = (self.runtime.place_in_plan(self.station.stage), self.bundle.bytes);
            return Err(Stop::Failed(StreamError::BundleTooLarge { stage, bytes, limit: BUNDLE_BYTES_MAX }));
        }
        self.advance_watermarks();
        self.meta.counts.late += self.bundle.late;
        self.meta.counts.skipped += self.bundle.skipped;
        self.meta.counts.records_out += self.bundle.records;
        let has_ended = self.end_if_done();
        self.meta.bundle = before.bundle;
        let has_changed = self.meta != before
            || has_fired
            || has_news
            || !effects.is_empty()
            || self.outbox.has_changes()
            || !self.consumed_rows.is_empty();
        if !has_changed && self.bundle.records == 0 {
            self.rest.begin(&self.runtime);
            return if self.outbox.is_settled() {
                Ok(Advance::Idle)
            } else {
                self.settle(true).await.map(|()| Advance::Worked)
            };
        }
        self.meta.bundle += 1;
        self.meta.counts.bundles += 1;
        self.meta.counts.bundle_bytes += self.bundle.bytes as u64;
        self.timing.add_to(&mut self.meta.counts);
        self.commit(effects, has_ended).await?;
        self.rest.begin(&self.runtime);
        Ok(if has_ended { Advance::Ended } else { Advance::Worked })
    }

    /// Returns the bounds of the next bundle: fewer records if the state of so many did not fit a batch, and as many rows
    /// of state as leave room in its batch for everything else.
    fn next_room(&self) -> Room {
        let lowered = self.runtime.lowered_bundles.lock().unwrap_or_else(PoisonError::into_inner);
        let records =
            lowered.get(&self.station).copied().unwrap_or(usize::MAX).min(self.runtime.options.bundle_records);
        let layout = self.layout();
        let blocks: usize = layout.destinations().iter().sum();
        let other = 256 + 2 * blocks + 2 * layout.senders().count();
        let rows = self.runtime.records.batch_limits().ops_max.min(STATE_ROWS_MAX);
        Room { records, state_rows: rows.saturating_sub(other).max(64) }
    }

    /// Reads the cells that were named and are not in memory.
    pub(super) async fn read_cells(&mut self) -> Result<(), Stop> {
        let keys = self.cells.missing();
        let mut rows = Vec::with_capacity(keys.len());
        for keys in keys.chunks(GET_KEYS_MAX) {
            rows.extend(self.runtime.records.get(SHARD, keys).await?);
        }
        self.cells.read(rows);
        Ok(())
    }

    /// A row of this kind may be due.
    fn is_due(&self, (kind, earliest): &(DueKind, Option<i64>)) -> bool {
        if kind.by_clock && self.runtime.is_paused.load(Relaxed) {
            return false;
        }
        earliest.is_some_and(|earliest| earliest <= self.reached(*kind))
    }

    /// Returns the last time, as names of this kind have it, that has come.
    fn reached(&self, kind: DueKind) -> i64 {
        let now = match kind.by_clock {
            true => i64::try_from(self.bundle.now_ms).unwrap_or(i64::MAX),
            false => self.meta.watermark_in.0,
        };
        if now == i64::MAX { now } else { now.saturating_sub(kind.delay_ms) }
    }

    /// Works on timers and windows whose time has come. True if it did anything; then no input is taken.
    async fn fire_due(&mut self) -> Result<bool, Stop> {
        let Some(at) = self.due.iter().position(|due| self.is_due(due)) else { return Ok(false) };
        let (kind, reached) = (self.due[at].0, self.reached(self.due[at].0));
        let limit = (self.room.state_rows / 4).min(self.room.records).max(1);
        let group = self.runtime.keys.state(self.station);
        let page = self.runtime.records.scan(SHARD, Scan::of(group, limit).prefix([kind.tag])).await?;
        let time_of =
            |name: &Name| name.as_bytes().get(1..9).and_then(EventTime::from_sortable).map_or(i64::MIN, |t| t.0);
        let mut next = page.rows.last().filter(|_| page.more).map(|(name, _)| time_of(name));
        let (mut has_fired, mut bytes) = (false, 0);
        let Program::Stage(program) = &mut self.program else { return Ok(false) };
        for (name, row) in &page.rows {
            let time = time_of(name);
            bytes += row.len();
            if time > reached || has_fired && bytes > BUNDLE_BYTES {
                next = Some(time);
                break;
            }
            has_fired = true;
            program.due(&mut self.bundle, &mut self.cells, kind, &DueRow { name: name.clone(), row: row.clone() });
        }
        self.due[at].1 = next;
        if !has_fired {
            return Ok(false);
        }
        self.read_cells().await?;
        let Program::Stage(program) = &mut self.program else { return Ok(false) };
        program.fire(&mut self.bundle, &mut self.cells)?;
        Ok(true)
    }

    /// The watermark passes on once nothing is due any more at the watermark of the input.
    fn advance_watermarks(&mut self) {
        for (kind, earliest) in &mut self.due {
            let new = self.bundle.earliest_due[usize::from(kind.tag)];
            *earliest = [*earliest, new].into_iter().flatten().min();
        }
        if !self.due.iter().any(|due| !due.0.by_clock && self.is_due(due)) {
            let open = self.calls().and_then(|calls| calls.hold());
            let watermark = seams::watermark_with_calls(self.meta.watermark_in, open);
            self.meta.watermark_out = self.meta.watermark_out.max(watermark);
        }
    }

    /// Ends the partition when nothing can come any more: its rows go with this bundle.
    fn end_if_done(&mut self) -> bool {
        let is_done = self.meta.watermark_out == EventTime::MAX
            && self.bundle.records == 0
            && self.arrived.is_empty()
            && self.consumed_rows.is_empty()
            && !self.is_calling();
        if !is_done || self.meta.has_ended {
            return self.meta.has_ended;
        }
        if !self.meta.end_sent {
            // A receiver that hears of the end has everything before it.
            if !seams::ends_before_acknowledged() && !self.outbox.is_acknowledged() {
                return false;
            }
            (self.meta.end_sent, self.sends_end) = (true, true);
            return false;
        }
        self.meta.has_ended = self.outbox.is_empty();
        self.meta.has_ended
    }

    /// Commits the bundle: input positions, ids, state, timers, outputs and watermarks, in one batch under the claim.
    async fn commit(&mut self, mut effects: Vec<Effect>, has_ended: bool) -> Result<(), Stop> {
        let (runtime, station) = (self.runtime.clone(), self.station);
        let keys = &runtime.keys;
        let mut batch = Batch::new(SHARD);
        let claim = (self.claim.key(keys), self.claim.row());
        seams::require_writer(&mut batch, claim, (keys.meta(station), self.meta_row.clone()));
        self.find_parts().await?;
        self.store_outputs(&mut batch, &mut effects);
        match self.call_effect() {
            Some(Effect::Call { opened, ended }) if seams::calls_before_commit() => self.begin_calls(opened, ended),
            effect => effects.extend(effect),
        }
        self.cells.commit_into(&mut batch);
        if self.bundle.bytes + self.cells.batch_bytes() > BATCH_BYTES_USED_MAX && self.room.records > 1 {
            return Err(Stop::Oversized { records_max: self.room.records });
        }
        for name in self.consumed_rows.drain(..) {
            batch.delete(onceflow_core::Key { group: keys.inbox(station), name });
        }
        if has_ended {
            self.catalog.clear_into(&mut batch, keys, station);
            batch.delete_group(keys.state(station));
            self.claim.delete_into(&mut batch, keys);
        } else {
            self.meta.buckets = self.catalog.commit_into(&mut batch, keys, station, self.meta.reclaimed);
        }
        self.commit_client_ids(&mut batch, has_ended).await?;
        self.meta.catalog = match has_ended {
            true => CatalogSize::default(),
            false => CatalogSize { intervals: self.catalog.intervals(), client_ids: self.count_client_ids() },
        };
        let published = Published { watermark: self.meta.watermark_out, has_ended };
        if self.published != Some(published) {
            batch.put(keys.published(station), published.to_row());
            self.published = Some(published);
        }
        let row = self.meta.to_row();
        batch.put(keys.meta(station), row.clone());
        self.meta_row = Some(row);
        let begun = runtime.world.clock();
        match runtime.records.commit(batch).await? {
            CommitResult::Refused(_) => Err(Stop::Lost),
            CommitResult::Applied(committed) => {
                self.cells.committed();
                self.timing.begin(begun, committed.position);
                self.after_commit(committed.position, effects).await?;
                runtime.control.ring();
                Ok(())
            }
        }
    }

    async fn after_commit(&mut self, position: Position, mut effects: Vec<Effect>) -> Result<(), Stop> {
        effects.extend(self.promise());
        self.outbox.committed(position, effects);
        self.settle(self.meta.has_ended).await
    }
}
