//! The applied state, and the part of it that waits to be written. Everything here happens under one lock, in memory.
//!
//! A batch is let in only if the space for its effects is prepared, so a full disk refuses it before anything of it is
//! visible. From then on it is applied; whether it is durable, the committer will say.

use super::{
    codec::{self, Encoder},
    format::{FRAME_BYTES, FrameHeader, TIME_BYTES},
};
use crate::{
    backend::{
        clock::StoreClock,
        front::{self, Attempt, BookParts},
    },
    records::{Error, Position},
    state::StoreState,
};
use onceflow_core::{Batch, Timestamp};

/// A frame's head, and its padding.
const FRAME_OVERHEAD: u64 = (FRAME_BYTES + TIME_BYTES + 8) as u64;

pub(super) struct Book {
    pub(super) state: StoreState,
    pub(super) clock: StoreClock,
    /// How many batches are applied.
    pub(super) position: Position,
    /// The last of them that left something to write.
    pub(super) effective: Position,
    /// Up to which of them the frames taken so far reach.
    framed: Position,
    /// Up to which of them everything is as durable as was promised.
    durable: Position,
    /// The next frame.
    pending: Encoder,
    /// The bytes that may still be admitted.
    room: u64,
    /// The bytes that callers wait for.
    wanted: u64,
    /// How often space was asked for in vain, and the disk's last error.
    pub(super) refusals: u64,
    pub(super) refusal: Option<Error>,
    /// A frame is on its way to the disk.
    writing: bool,
    /// A snapshot is to be made of the rows after this position.
    pub(super) snapshot_due: Option<Position>,
    /// A caller that wrote its batch itself has found that a snapshot is due, or that room is short.
    pub(super) wants_tending: bool,
    /// The reason why no batch is admitted any more.
    pub(super) fault: Option<Error>,
    pub(super) closing: bool,
    /// No claim finds anything: processes that may hold claims have yet to report them.
    pub(super) grants_held: bool,
}

/// The next task of the committer.
pub(super) enum Work {
    /// Write a frame.
    Write(Group),
    /// Sync what is written.
    Sync(Position),
    /// Prepare at least so much room.
    Grow(u64),
    /// See whether a snapshot is due, and whether room is short.
    Tend,
    /// Write nothing more.
    Close,
}

/// Batches that are written together.
pub(super) struct Group {
    pub(super) first: Position,
    pub(super) last: Position,
    pub(super) time: Timestamp,
    pub(super) frame: Vec<u8>,
}

impl front::Book for Book {
    fn parts(&mut self) -> BookParts<'_> {
        BookParts {
            queues: &mut self.state,
            clock: &mut self.clock,
            position: self.position,
            fault: self.fault.as_ref(),
            closing: &mut self.closing,
            grants_held: &mut self.grants_held,
        }
    }
}

impl Book {
    pub(super) fn new(state: StoreState, position: Position, time: Timestamp, room: u64) -> Self {
        let mut pending = Encoder::default();
        FrameHeader::begin(&mut pending.bytes);
        Book {
            state,
            clock: StoreClock::not_before(time),
            position,
            effective: position,
            framed: position,
            durable: position,
            pending,
            room,
            wanted: 0,
            refusals: 0,
            refusal: None,
            writing: false,
            snapshot_due: None,
            wants_tending: false,
            fault: None,
            closing: false,
            grants_held: false,
        }
    }

    /// Applies a checked batch, if it can be written. `needed` is [`Book::needed`] of it, found before the lock was taken.
    pub(super) fn attempt(&mut self, batch: &Batch, needed: u64, world: Timestamp) -> Result<Attempt, Error> {
        self.is_open()?;
        if needed > self.room {
            self.wanted = self.wanted.max(needed);
            return Ok(Attempt::NoRoom);
        }
        let without_claim;
        let batch = if self.grants_held && batch.claim.is_some() {
            without_claim = Batch { claim: None, ..batch.clone() };
            &without_claim
        } else {
            batch
        };
        let now = self.clock.read(world);
        let before = self.pending.bytes.len();
        let at = (self.position, now);
        let (outcome, enabled) = self.state.apply_checked(batch, at, &mut self.pending).inspect_err(|_| {
            // An unfinished batch may have told some of its effects.
            self.pending.truncate(before);
        })?;
        self.position = outcome.position();
        if enabled {
            self.state.note_enabled(batch.shard, self.position);
        }
        let written = (self.pending.bytes.len() - before) as u64;
        if written > 0 {
            self.effective = self.position;
            self.room -= written + if before == FRAME_BYTES + TIME_BYTES { FRAME_OVERHEAD } else { 0 };
        }
        let settled = self.is_settled();
        Ok(Attempt::Decided { outcome, enabled, wake_committer: written > 0 && !self.writing, settled })
    }

    /// Batches are admitted. One admitted after closing has begun might not be written any more.
    pub(super) fn is_open(&self) -> Result<(), Error> {
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None if self.closing => Err(Error::Unavailable("the journal is closed".into())),
            None => Ok(()),
        }
    }

    /// The most room a batch can take.
    pub(super) fn needed(batch: &Batch) -> u64 {
        codec::bytes_max(batch) + FRAME_OVERHEAD
    }

    pub(super) fn has_room(&self, needed: u64) -> bool {
        needed <= self.room
    }

    fn has_pending(&self) -> bool {
        self.pending.bytes.len() > FRAME_BYTES + TIME_BYTES
    }

    /// Everything applied is as durable as it will get.
    fn is_settled(&self) -> bool {
        !self.writing && !self.has_pending() && self.durable >= self.framed
    }

    /// Takes the next task, if any. `spare` is an empty buffer to go on with; `awaited` says that a caller waits until
    /// the written frames are durable.
    pub(super) fn take_work(&mut self, spare: &mut Vec<u8>, awaited: bool) -> Option<Work> {
        if self.fault.is_some() {
            return self.closing.then_some(Work::Close);
        }
        if let Some(group) = self.take_group(spare) {
            return Some(Work::Write(group));
        }
        if awaited && self.durable < self.framed {
            self.writing = true;
            return Some(Work::Sync(self.framed));
        }
        if self.wanted > self.room {
            return Some(Work::Grow(self.wanted));
        }
        if std::mem::take(&mut self.wants_tending) {
            return Some(Work::Tend);
        }
        self.closing.then_some(Work::Close)
    }

    /// There is a next task.
    pub(super) fn has_work(&self, awaited: bool) -> bool {
        if self.fault.is_some() {
            return self.closing;
        }
        let is_to_sync = awaited && self.durable < self.framed;
        self.has_pending() || is_to_sync || self.wanted > self.room || self.wants_tending || self.closing
    }

    /// Takes the batches that wait to be written. `spare` is an empty buffer to go on with.
    pub(super) fn take_group(&mut self, spare: &mut Vec<u8>) -> Option<Group> {
        if self.fault.is_some() || !self.has_pending() {
            return None;
        }
        FrameHeader::begin(spare);
        let frame = std::mem::replace(&mut self.pending.bytes, std::mem::take(spare));
        self.pending.forget();
        let first = Position(self.framed.0 + 1);
        self.framed = self.position;
        self.writing = true;
        Some(Group { first, last: self.framed, time: self.clock.latest(), frame })
    }

    /// A group is written.
    pub(super) fn written(&mut self) {
        self.writing = false;
    }

    /// Everything up to `last` is as durable as was promised; answers up to where everything is.
    pub(super) fn secured(&mut self, last: Position) -> Position {
        self.writing = false;
        // Batches without effects behind the group have nothing that could be lost.
        self.durable = if self.has_pending() { last } else { self.position };
        self.durable
    }

    /// The last position of the frames taken so far.
    pub(super) fn framed(&self) -> Position {
        self.framed
    }

    /// Sets the space left in the current segment, of which pending frames will take some.
    pub(super) fn set_room(&mut self, segment: u64) {
        let header = FRAME_BYTES + TIME_BYTES;
        let pending = if self.has_pending() { (self.pending.bytes.len() - header) as u64 + FRAME_OVERHEAD } else { 0 };
        self.room = segment.saturating_sub(pending);
        if self.wanted <= self.room {
            self.wanted = 0;
        }
    }

    /// How much the pending frame will take.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.pending.bytes.len() as u64 + FRAME_OVERHEAD
    }

    /// The disk has no more room.
    pub(super) fn refuse_room(&mut self, why: Error) {
        self.refusals += 1;
        self.refusal = Some(why);
        self.wanted = 0;
    }
}
