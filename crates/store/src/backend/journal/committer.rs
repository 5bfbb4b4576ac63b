//! The committer writes the log. All batches applied while the last group was being written are the next group, and one
//! sync serves all callers that wait for it, so nothing needs tuning. Batches that no caller waits for are written at
//! once too, so that they outlive the process, and are synced with the next group that a caller waits for.
//!
//! Space is prepared, and the next segment made, while callers still have room in this one; so that this takes no longer
//! than they have room, frames that no caller waits for are synced too when [`UNSYNCED_BYTES_MAX`] of them are written.
//!
//! Where a batch is durable when the operating system has it, a caller that finds no other waiting writes its batch itself
//! ([`write_here`]): a write is done sooner than a thread is woken. What takes longer is left to the committer.
//!
//! A failed write or sync ends the journal: which bytes reached the disk is not known, and a retry would not tell.

use super::{
    Durability, ENDED, Inner,
    book::{Book, Group, Work},
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

/// The log being written. Its lock is held while the disk works.
pub(super) struct Log {
    segment: Segment,
    marker: Box<dyn super::files::StoreFile>,
    /// Up to where the disk has everything, whatever happens.
    synced: Position,
    log_bytes: u64,
    /// Bytes written since the last sync.
    unsynced_bytes: u64,
    spare: Vec<u8>,
}

impl Log {
    pub(super) fn new(
        segment: Segment,
        marker: Box<dyn super::files::StoreFile>,
        synced: Position,
        log_bytes: u64,
    ) -> Self {
        Log { segment, marker, synced, log_bytes, unsynced_bytes: 0, spare: Vec::new() }
    }
}

/// Works until the journal is closed or the disk fails.
pub(super) async fn run(inner: Arc<Inner>) {
    let _ended = Ended(inner.clone());
    loop {
        let look = || {
            let awaited = inner.durable.is_awaited();
            lock(&inner.book).has_work(awaited).then_some(())
        };
        inner.work.until(look).await;
        let mut log = lock(&inner.log);
        let log = log.as_mut().expect("the log is taken away by the committer when it ends");
        if (Committer { inner: &inner, log }).work() {
            break;
        }
    }
    let mut log = lock(&inner.log).take().expect("the log is taken away once");
    let mut committer = Committer { inner: &inner, log: &mut log };
    committer.close();
    committer.compact_if_worth_it().await;
}

/// Writes what is applied on the thread of a caller, if it is durable then, no caller waits for the committer, and the log
/// is free. False if the committer must do it.
pub(super) fn write_here(inner: &Inner) -> bool {
    if inner.options.durability != Durability::Flushed || inner.durable.is_awaited() {
        return false;
    }
    let Ok(mut log) = inner.log.try_lock() else { return false };
    let Some(log) = log.as_mut() else { return false };
    Committer { inner, log }.write_only();
    true
}

/// A thread that writes the log.
struct Committer<'a> {
    inner: &'a Inner,
    log: &'a mut Log,
}

impl Committer<'_> {
    /// Does the next work, if there still is any. True if the journal is to end.
    fn work(&mut self) -> bool {
        let awaited = self.inner.durable.is_awaited();
        let Some(work) = lock(&self.inner.book).take_work(&mut self.log.spare, awaited) else { return false };
        let done = match work {
            Work::Write(group) => self.write(group),
            Work::Sync(last) => self.sync(last),
            Work::Grow(needed) => self.grow(needed),
            Work::Tend => self.tend(),
            Work::Close => return true,
        };
        if let Err(error) = done {
            self.fail(&error);
        }
        false
    }

    /// Writes the next frame, and leaves all else to the committer.
    fn write_only(&mut self) {
        // Without a frame, another caller wrote it.
        let Some(group) = lock(&self.inner.book).take_group(&mut self.log.spare) else { return };
        if let Err(error) = self.append(group) {
            return self.fail(&error);
        }
        let lacks_room = self.lacks_room();
        let mut book = lock(&self.inner.book);
        book.wants_tending |= lacks_room || self.is_snapshot_due(&book);
        let is_left = book.has_work(false);
        drop(book);
        if is_left {
            self.inner.work.notify();
        }
    }

    fn write(&mut self, group: Group) -> io::Result<()> {
        self.append(group)?;
        self.tend()
    }

    /// Makes a snapshot if one is due, and keeps room for callers.
    fn tend(&mut self) -> io::Result<()> {
        // A snapshot begins a new segment, which has room.
        self.start_snapshot_if_due()?;
        self.keep_room()
    }

    fn append(&mut self, group: Group) -> io::Result<()> {
        let Group { first, last, time, mut frame } = group;
        let head = FrameHeader { kind: FrameKind::Group, first, last, durable: self.log.synced };
        head.finish(time, &mut frame);
        self.log.segment.append(&frame)?;
        self.log.unsynced_bytes += frame.len() as u64;
        match self.inner.options.durability {
            Durability::Flushed => self.tell_secured(last),
            Durability::Synced if self.inner.durable.is_awaited() || self.log.unsynced_bytes >= UNSYNCED_BYTES_MAX => {
                self.sync(last)?;
            }
            Durability::Synced => lock(&self.inner.book).written(),
        }
        self.log.log_bytes += frame.len() as u64;
        self.log.spare = frame;
        Ok(())
    }

    fn sync(&mut self, last: Position) -> io::Result<()> {
        self.log.segment.sync()?;
        (self.log.synced, self.log.unsynced_bytes) = (last, 0);
        // Losing the marker loses no batch, only the certainty that a torn last group was torn.
        if let Err(error) = self.log.marker.write_at(&super::format::encode_marker(last), 0) {
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
        if !self.lacks_room() {
            return Ok(());
        }
        let (stride, room) = (self.log.segment.stride(), self.log.segment.room());
        let grown = match self.log.segment.used() + room < SEGMENT_BYTES {
            true => self.log.segment.prepare(stride).map_err(NotCreated::NoTrace),
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

    /// Little space is left.
    fn lacks_room(&self) -> bool {
        let stride = self.log.segment.stride();
        // A busy log has a whole stride left when the next is prepared; the first bytes of a new store cost less.
        let room_min = if stride == PREPARE_BYTES { stride } else { stride / 2 };
        self.log.segment.room() < room_min
    }

    /// Prepares space that callers wait for, or tells them that there is none.
    fn grow(&mut self, needed: u64) -> io::Result<()> {
        let missing = needed + lock(&self.inner.book).pending_bytes();
        let grown = if self.log.segment.used() >= SEGMENT_BYTES {
            self.rotate(missing.max(self.log.segment.room() + needed).max(PREPARE_BYTES))
        } else {
            self.log.segment.prepare(missing.max(self.log.segment.stride())).map_err(NotCreated::NoTrace)
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
        if self.log.synced < framed {
            self.sync(framed).map_err(NotCreated::Unclear)?;
        }
        self.log.segment = Segment::create(&*self.inner.files, self.inner.store, Position(framed.0 + 1), room)?;
        Ok(())
    }

    fn tell_room(&self) {
        lock(&self.inner.book).set_room(self.log.segment.room());
        self.inner.room.notify();
    }

    /// The log has grown larger than the rows, and no snapshot is made.
    fn is_snapshot_due(&self, book: &Book) -> bool {
        let live = book.state.durable_bytes();
        book.snapshot_due.is_none() && self.log.log_bytes >= live.max(self.inner.options.snapshot_log_bytes_min)
    }

    fn start_snapshot_if_due(&mut self) -> io::Result<()> {
        if !self.is_snapshot_due(&lock(&self.inner.book)) {
            return Ok(());
        }
        // Whatever is let in meanwhile is let in against the old segment's room, so the new one has no less.
        match self.rotate(self.log.segment.room().max(PREPARE_BYTES)) {
            Ok(()) => {
                self.log.log_bytes = 0;
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
            && self.log.synced < framed
            && let Err(error) = self.sync(framed)
        {
            self.fail(&error);
        }
    }
}

impl Committer<'_> {
    /// Nothing comes any more: a long log of little is replaced by a snapshot. If that fails the log stays, and holds all.
    async fn compact_if_worth_it(&mut self) {
        let (live, framed, failed) = {
            let book = lock(&self.inner.book);
            (book.state.durable_bytes(), book.framed(), book.fault.is_some())
        };
        let log_bytes = self.log.log_bytes + self.log.segment.room();
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
            Ok(()) => super::snapshotter::make_last(self.inner, framed),
            Err(not) => Err(not.into()),
        };
        if let Err(error) = compacted {
            tracing::warn!(%error, "the log could not be replaced by a snapshot; it stays as it is");
            super::snapshot::abandon(&*self.inner.files, framed);
        }
    }
}

/// However the committer ends, by closing or by a panic, no caller waits for it any more.
struct Ended(Arc<Inner>);

impl Drop for Ended {
    fn drop(&mut self) {
        let Ended(inner) = self;
        let closed: Arc<str> = "the journal is closed".into();
        lock(&inner.book).fault.get_or_insert_with(|| Error::Unavailable(closed.clone()));
        inner.durable.fail(Error::Unavailable(closed));
        inner.room.notify();
        inner.enabled.notify();
        inner.snapshot.notify();
        inner.committer_ended.raise(ENDED);
    }
}
