//! The applied state: queues in memory, changes that wait to be written, and the pages below them. Everything here
//! happens under one lock; the only I/O is reading a row that a batch requires or computes with and that is in no cache. Its
//! caller has nearly always read it just before.

use super::{
    layer::{Before, GroupChanges, Layer, PageChanges, page_changes},
    pages::Snapshot,
};
use crate::{
    backend::{
        clock::StoreClock,
        front::{self, Attempt, BookParts},
    },
    records::{Error, Page, Position, Scan},
    state::{PlainRows, StoreState},
};
use onceflow_core::{Batch, Group, Key, Kind, Row, Shard, Timestamp};
use std::{cell::OnceCell, sync::Arc};

pub(super) struct Book {
    /// Queues, claims and deadlines; no plain rows.
    pub(super) queues: StoreState,
    /// Changes that are not being written yet.
    pub(super) layer: Layer,
    /// Changes that are being written.
    pub(super) writing: Option<Arc<Layer>>,
    /// The pages as last written.
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) clock: StoreClock,
    /// How many batches are applied.
    pub(super) position: Position,
    /// The reason why no batch is admitted any more.
    pub(super) fault: Option<Error>,
    pub(super) closing: bool,
    /// No claim finds anything: processes that may hold claims have yet to report them.
    pub(super) grants_held: bool,
}

/// Changes to be written in one transaction.
pub(super) struct Unwritten {
    pub(super) layer: Arc<Layer>,
    pub(super) last: Position,
    pub(super) time: Timestamp,
}

impl front::Book for Book {
    fn parts(&mut self) -> BookParts<'_> {
        BookParts {
            queues: &mut self.queues,
            clock: &mut self.clock,
            position: self.position,
            fault: self.fault.as_ref(),
            closing: &mut self.closing,
            grants_held: &mut self.grants_held,
        }
    }
}

impl Book {
    pub(super) fn new(queues: StoreState, snapshot: Arc<Snapshot>, time: Timestamp) -> Self {
        Book {
            queues,
            layer: Layer::default(),
            writing: None,
            snapshot,
            clock: StoreClock::not_before(time),
            position: Position::default(),
            fault: None,
            closing: false,
            grants_held: false,
        }
    }

    /// Batches are admitted.
    pub(super) fn is_open(&self) -> Result<(), Error> {
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None if self.closing => Err(Error::Unavailable("the store is closed".into())),
            None => Ok(()),
        }
    }

    /// Applies a checked batch, if not too much waits to be written.
    pub(super) fn attempt(&mut self, batch: &Batch, world: Timestamp, bytes_max: u64) -> Result<Attempt, Error> {
        self.is_open()?;
        if self.layer.bytes() >= bytes_max {
            return Ok(Attempt::NoRoom);
        }
        let without_claim;
        let batch = if self.grants_held && batch.claim.is_some() {
            without_claim = Batch { claim: None, ..batch.clone() };
            &without_claim
        } else {
            batch
        };
        let at = (self.position, self.clock.read(world));
        let had_work = !self.layer.is_empty();
        let mut plain = Plain {
            shard: batch.shard,
            layer: &mut self.layer,
            writing: self.writing.as_deref(),
            snapshot: &self.snapshot,
            failed: OnceCell::new(),
        };
        let applied = self.queues.apply_over(&mut plain, batch, at);
        if let Some(error) = plain.failed.into_inner() {
            // The batch was decided on a row that could not be read. Nothing of it leaves the process.
            self.fault = Some(error.clone());
            return Err(error);
        }
        let (outcome, enabled) = applied?;
        self.position = outcome.position();
        if enabled {
            self.queues.note_enabled(batch.shard, self.position);
        }
        let has_work = !self.layer.is_empty();
        Ok(Attempt::Decided {
            outcome,
            enabled,
            wake_committer: has_work && !had_work && self.writing.is_none(),
            settled: !has_work && self.writing.is_none(),
        })
    }

    /// The row, if it is known without looking at the pages.
    pub(super) fn find(&self, shard: Shard, key: &Key) -> Option<Option<Row>> {
        if key.group.kind() != Kind::Rows {
            return Some(self.queues.get(shard, key).cloned());
        }
        let writing = || self.writing.as_ref().and_then(|layer| layer.find(shard, key));
        self.layer.find(shard, key).or_else(writing).map(|row| row.cloned())
    }

    /// The changes that a scan has to respect.
    pub(super) fn changes(&self, shard: Shard, scan: &Scan, limit: usize) -> PageChanges {
        let names = (scan.prefix.as_bytes(), scan.after.as_ref().map(|name| name.as_bytes()));
        page_changes((&self.layer, self.writing.as_deref()), (shard, &scan.group), names, limit)
    }

    /// Takes everything that is to be written.
    pub(super) fn take_group(&mut self) -> Option<Unwritten> {
        if self.layer.is_empty() {
            return None;
        }
        let layer = Arc::new(std::mem::take(&mut self.layer));
        self.writing = Some(layer.clone());
        Some(Unwritten { layer, last: self.position, time: self.clock.latest() })
    }

    /// Everything up to `last` is written, and in this snapshot; answers up to where everything is durable.
    pub(super) fn written(&mut self, last: Position, snapshot: Arc<Snapshot>) -> Position {
        (self.writing, self.snapshot) = (None, snapshot);
        if self.layer.is_empty() { self.position } else { last }
    }
}

/// The plain rows of a shard while a batch is applied.
struct Plain<'a> {
    shard: Shard,
    layer: &'a mut Layer,
    writing: Option<&'a Layer>,
    snapshot: &'a Snapshot,
    /// The first row that could not be read.
    failed: OnceCell<Error>,
}

impl Plain<'_> {
    fn or_nothing<T: Default>(&self, read: Result<T, Error>) -> T {
        read.unwrap_or_else(|error| {
            // Only the first one is told: the batch does not happen.
            let _told = self.failed.set(error);
            T::default()
        })
    }
}

impl PlainRows for Plain<'_> {
    type Before = Before;
    type Cleared = Option<GroupChanges>;

    fn look<T>(&self, key: &Key, look: impl FnOnce(Option<&Row>) -> T) -> T {
        let writing = || self.writing.and_then(|layer| layer.find(self.shard, key));
        match self.layer.find(self.shard, key).or_else(writing) {
            Some(row) => look(row),
            None => look(self.or_nothing(self.snapshot.get(self.shard, key)).as_ref()),
        }
    }

    fn set(&mut self, key: &Key, row: Option<Row>) -> Before {
        self.layer.set(self.shard, key, row)
    }

    fn restore(&mut self, key: &Key, before: Before) {
        self.layer.restore(self.shard, key, before);
    }

    fn clear(&mut self, group: &Group) -> Option<GroupChanges> {
        self.layer.clear(self.shard, group)
    }

    fn restore_group(&mut self, group: &Group, cleared: Option<GroupChanges>) {
        self.layer.restore_group(self.shard, group, cleared);
    }

    fn page(&self, group: &Group, prefix: &[u8], limit: usize) -> Page {
        let scan = Scan::of(group.clone(), limit).prefix(prefix);
        let changes = page_changes((self.layer, self.writing), (self.shard, group), (prefix, None), limit);
        self.or_nothing(self.snapshot.page(self.shard, &scan, changes, limit))
    }
}
