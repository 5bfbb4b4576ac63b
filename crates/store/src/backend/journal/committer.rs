//! The committer writes the log. All batches applied while the last group was being written are the next group, and one
//! sync serves all callers that wait for it, so nothing needs tuning. Batches that no caller waits for are written at
//! once too, so that they outlive the process, and are synced with the next group that a caller waits for.
//!
//! Space is prepared, and the next segment made, while callers still have room in this one; so that this takes no longer
//! than they have room, frames that no caller waits for are synced too when [`UNSYNCED_BYTES_MAX`] of them are written.
//!
//! A failed write or sync ends the journal: which bytes reached the disk is not known, and a retry would not tell.

use super::{
    Durability, ENDED, Inner,
    book::{Group, Work},
    format::{FrameHeader, FrameKind},
    segment::{NotCreated, PREPARE_BYTES, Segment},
};
use crate::{
    fs::is_full,
    records::{Error, Position},
    sync::lock,
};
use std::{io, sync::Arc};

/// A segment is followed by the next when it holds so much.
pub(super) const SEGMENT_BYTES: u64 = 16 << 20;
/// A snapshot is made when the log holds more than this and more than the rows do. Less than a segment, so that the log, the
/// next segment's first space and a small snapshot together take about a segment.
pub(super) const SNAPSHOT_LOG_BYTES_MIN: u64 = 12 << 20;
/// Closing a journal whose log takes more than this, and more than [`COMPACT_LIVE_TIMES`] the rows, replaces it by a
/// snapshot: a store that was emptied stays small. For less, a few more syncs would cost more than they are worth.
pub(super) const COMPACT_LOG_BYTES_MIN: u64 = 512 << 10;
const COMPACT_LIVE_TIMES: u64 = 4;

/// Frames that no caller waits for are synced when so many bytes of them are written: the sync at the end of a segment
/// keeps callers waiting that find no room meanwhile.
const UNSYNCED_BYTES_MAX: u64 = 1 << 20;

pub(super) struct Committer {
    inner: Arc<Inner>,
    segment: Segment,
    marker: Box<dyn super::files::StoreFile>,
    /// Up to where the disk has everything, whatever happens.
    synced: Position,
    log_bytes: u64,
    /// Bytes written since the last sync.
    unsynced_bytes: u64,
    spare: Vec<u8>,
}

impl Committer {
    pub(super) fn new(
        inner: Arc<Inner>,
        segment: Segment,
        marker: Box<dyn super::files::StoreFile>,
        synced: Position,
        log_bytes: u64,
    ) -> Self {
        Committer { inner, segment, marker, synced, log_bytes, unsynced_bytes: 0, spare: Vec::new() }
    }

    /// Works until the journal is closed or the disk fails.
    pub(super) async fn run(mut self) {
        loop {
            let inner = self.inner.clone();
            let spare = &mut self.spare;
            let look = || {
                let awaited = inner.durable.is_awaited();
                lock(&inner.book).take_work(spare, awaited)
            };
            let work = inner.work.until(look).await;
            let done = match work {
                Work::Write(group) => self.write(group),
                Work::Sync(last) => self.sync(last),
                Work::Grow(needed) => self.grow(needed),
                Work::Close => break,
            };
            if let Err(error) = done {
                self.fail(&error);
            }
        }
        self.close();
        self.compact_if_worth_it().await;
    }

    fn write(&mut self, group: Group) -> io::Result<()> {
        let Group { first, last, time, mut frame } = group;
        let head = FrameHeader { kind: FrameKind::Group, first, last, durable: self.synced };
        head.finish(time, &mut frame);
        self.segment.append(&frame)?;
        self.unsynced_bytes += frame.len() as u64;
        match self.inner.options.durability {
            Durability::Flushed => self.tell_secured(last),
            Durability::Synced if self.inner.durable.is_awaited() || self.unsynced_bytes >= UNSYNCED_BYTES_MAX => {
                self.sync(last)?;
            }
            Durability::Synced => lock(&self.inner.book).written(),
        }
        self.log_bytes += frame.len() as u64;
        self.spare = frame;
        // A snapshot begins a new segment, which has room.
        self.start_snapshot_if_due()?;
        self.keep_room()
    }

    fn sync(&mut self, last: Position) -> io::Result<()> {
        self.segment.sync()?;
        (self.synced, self.unsynced_bytes) = (last, 0);
        // Losing the marker loses no batch, only the certainty that a torn last group was torn.
        if let Err(error) = self.marker.write_at(&super::format::encode_marker(last), 0) {
            tracing::warn!(%error, "the journal's durable marker could not be written");
        }
        self.tell_secured(last);
        Ok(())
    }

    fn tell_secured(&self, last: Position) {
        let reached = lock(&self.inner.book).secured(last);
        self.inner.durable.raise(reached);
    }

    /// Prepares space, in this segment or the next, before a caller has to wait for it. If there is none, the caller that
    /// needs it gets the error.
    fn keep_room(&mut self) -> io::Result<()> {
        let (stride, room) = (self.segment.stride(), self.segment.room());
        // A busy log has a whole stride left when the next is prepared; the first bytes of a new store cost less.
        let room_min = if stride == PREPARE_BYTES { stride } else { stride / 2 };
        if room >= room_min {
            return Ok(());
        }
        let grown = match self.segment.used() + room < SEGMENT_BYTES {
            true => self.segment.prepare(stride).map_err(NotCreated::NoTrace),
            // Whatever is let in meanwhile is let in against the old segment's room, so the new one has no less.
            false => self.rotate(room.max(PREPARE_BYTES)),
        };
        match grown {
            Ok(()) => self.tell_room(),
            Err(NotCreated::NoTrace(error)) => tracing::debug!(%error, "failed to prepare space ahead of the log"),
            Err(NotCreated::Unclear(error)) => return Err(error),
        }
        Ok(())
    }

    /// Prepares space that callers wait for, or tells them that there is none.
    fn grow(&mut self, needed: u64) -> io::Result<()> {
        let missing = needed + lock(&self.inner.book).pending_bytes();
        let grown = if self.segment.used() >= SEGMENT_BYTES {
            self.rotate(missing.max(self.segment.room() + needed).max(PREPARE_BYTES))
        } else {
            self.segment.prepare(missing.max(self.segment.stride())).map_err(NotCreated::NoTrace)
        };
        match grown {
            Ok(()) => self.tell_room(),
            Err(NotCreated::NoTrace(error)) if is_full(&error) => {
                lock(&self.inner.book).refuse_room(Error::Full(format!("{error}").into()));
                self.inner.room.notify();
            }
            Err(not) => return Err(not.into()),
        }
        Ok(())
    }

    /// Goes on in a new segment. All before it is durable then, whatever was promised.
    fn rotate(&mut self, room: u64) -> Result<(), NotCreated> {
        let framed = lock(&self.inner.book).framed();
        if self.synced < framed {
            self.sync(framed).map_err(NotCreated::Unclear)?;
        }
        self.segment = Segment::create(&*self.inner.files, self.inner.store, Position(framed.0 + 1), room)?;
        Ok(())
    }

    fn tell_room(&self) {
        lock(&self.inner.book).set_room(self.segment.room());
        self.inner.room.notify();
    }

    fn start_snapshot_if_due(&mut self) -> io::Result<()> {
        let (live, busy) = {
            let book = lock(&self.inner.book);
            (book.state.durable_bytes(), book.snapshot_due.is_some())
        };
        if busy || self.log_bytes < live.max(self.inner.options.snapshot_log_bytes_min) {
            return Ok(());
        }
        // Whatever is let in meanwhile is let in against the old segment's room, so the new one has no less.
        match self.rotate(self.segment.room().max(PREPARE_BYTES)) {
            Ok(()) => {
                self.log_bytes = 0;
                let mut book = lock(&self.inner.book);
                book.snapshot_due = Some(book.framed());
                drop(book);
                self.tell_room();
                self.inner.snapshot.notify();
            }
            Err(NotCreated::NoTrace(error)) if is_full(&error) => {
                tracing::warn!(%error, "no room for a new segment; the log goes on growing");
            }
            Err(not) => return Err(not.into()),
        }
        Ok(())
    }

    fn fail(&mut self, error: &io::Error) {
        tracing::error!(%error, "the journal could not be written; it takes nothing more and is to be opened again");
        let why: Arc<str> = format!("the journal could not be written ({error}); open it again").into();
        lock(&self.inner.book).fault = Some(Error::Unavailable(why.clone()));
        self.inner.durable.fail(Error::Unknown(why));
        self.inner.room.notify();
        self.inner.enabled.notify();
    }

    /// Writes the remaining frames, and reports that there will be no more.
    fn close(&mut self) {
        let (framed, failed) = {
            let book = lock(&self.inner.book);
            (book.framed(), book.fault.is_some())
        };
        if !failed
            && self.synced < framed
            && let Err(error) = self.sync(framed)
        {
            self.fail(&error);
        }
    }
}

impl Committer {
    /// Nothing comes any more: a long log of little is replaced by a snapshot. If that fails the log stays, and holds all.
    async fn compact_if_worth_it(&mut self) {
        let (live, framed, failed) = {
            let book = lock(&self.inner.book);
            (book.state.durable_bytes(), book.framed(), book.fault.is_some())
        };
        let log_bytes = self.log_bytes + self.segment.room();
        let min = self.inner.options.compact_log_bytes_min;
        if failed || log_bytes < min.max(live.saturating_mul(COMPACT_LIVE_TIMES)) {
            return;
        }
        // The snapshotter stops when the journal closes, and removes its unfinished snapshot; or it waits for frames
        // that are no longer written.
        self.inner.durable.fail(Error::Unavailable("the journal is closed".into()));
        if self.inner.snapshotter_ended.reach(ENDED).await.is_err() {
            return;
        }
        let compacted = match self.rotate(super::segment::PREPARE_BYTES_MIN) {
            Ok(()) => super::snapshotter::make_last(&self.inner, framed),
            Err(not) => Err(not.into()),
        };
        if let Err(error) = compacted {
            tracing::warn!(%error, "the log could not be replaced by a snapshot; it stays as it is");
            super::snapshot::abandon(&*self.inner.files, framed);
        }
    }
}

impl Drop for Committer {
    /// However the committer ends, by closing or by a panic, no caller waits for it any more.
    fn drop(&mut self) {
        let closed: Arc<str> = "the journal is closed".into();
        lock(&self.inner.book).fault.get_or_insert_with(|| Error::Unavailable(closed.clone()));
        self.inner.durable.fail(Error::Unavailable(closed));
        self.inner.room.notify();
        self.inner.enabled.notify();
        self.inner.snapshot.notify();
        self.inner.committer_ended.raise(ENDED);
    }
}
