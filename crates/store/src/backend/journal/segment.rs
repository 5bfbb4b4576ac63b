//! The segment being written. Its space is prepared, as written zeros, before anything is put there: then a sync has no
//! metadata to carry, and a full disk says so before a batch is applied, not after.

use super::{
    files::{Files, StoreFile},
    format::{FileKind, HEADER_BYTES, Header, UNFINISHED, log_name},
};
use crate::records::Position;
use std::io;

/// How much is prepared at a time, at most.
pub(super) const PREPARE_BYTES: u64 = 1 << 20;

/// How much is prepared at a time, at least: a new store is made within milliseconds, and grows as it is used.
pub(super) const PREPARE_BYTES_MIN: u64 = 64 << 10;

pub(super) struct Segment {
    file: Box<dyn StoreFile>,
    /// Where the next frame goes.
    end: u64,
    /// Up to here the file is written, with frames or zeros.
    prepared: u64,
}

impl Segment {
    /// Makes a segment whose first frame will have this position. It is there, whole and durable, when this returns.
    pub(super) fn create(files: &dyn Files, store: u128, first: Position, room: u64) -> Result<Segment, NotCreated> {
        let name = log_name(first);
        let unfinished = format!("{name}{UNFINISHED}");
        let made = remove_if_there(files, &unfinished)
            .and_then(|()| Segment::make(files, &unfinished, Header { store, position: first }, room));
        let segment = made.map_err(|error| {
            // The remains of the file take space that is needed. If removing them fails too, the next opening does it.
            let _ = files.remove(&unfinished);
            NotCreated::NoTrace(error)
        })?;
        files.rename(&unfinished, &name).and_then(|()| files.sync()).map_err(NotCreated::Unclear)?;
        Ok(segment)
    }

    fn make(files: &dyn Files, name: &str, header: Header, room: u64) -> io::Result<Segment> {
        let file = files.create(name)?;
        file.write_at(&header.encode(FileKind::Log), 0)?;
        let mut segment = Segment { file, end: HEADER_BYTES as u64, prepared: HEADER_BYTES as u64 };
        segment.prepare(room.max(PREPARE_BYTES_MIN))?;
        segment.sync()?;
        Ok(segment)
    }

    /// Goes on with a segment whose frames end at `end`.
    pub(super) fn resume(file: Box<dyn StoreFile>, end: u64) -> io::Result<Segment> {
        let prepared = file.len()?.max(end);
        Ok(Segment { file, end, prepared })
    }

    /// How many bytes of frames it holds.
    pub(super) fn used(&self) -> u64 {
        self.end - HEADER_BYTES as u64
    }

    /// How many bytes can be written without asking the disk for more.
    pub(super) fn room(&self) -> u64 {
        self.prepared - self.end
    }

    /// How much to prepare next: as much as it holds.
    pub(super) fn stride(&self) -> u64 {
        self.used().clamp(PREPARE_BYTES_MIN, PREPARE_BYTES)
    }

    /// Prepares so many bytes more.
    pub(super) fn prepare(&mut self, bytes: u64) -> io::Result<()> {
        write_zeros(&*self.file, self.prepared, self.prepared + bytes)?;
        self.prepared += bytes;
        Ok(())
    }

    /// Writes a frame behind the others. Not durable before [`Segment::sync`].
    pub(super) fn append(&mut self, frame: &[u8]) -> io::Result<()> {
        assert!(frame.len() as u64 <= self.room(), "a frame was let in without room for it");
        self.file.write_at(frame, self.end)?;
        self.end += frame.len() as u64;
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

/// Why there is no new segment.
#[derive(Debug)]
pub(super) enum NotCreated {
    /// The segment could not be made; nothing has changed.
    NoTrace(io::Error),
    /// The segment may or may not exist after a crash.
    Unclear(io::Error),
}

impl From<NotCreated> for io::Error {
    fn from(not: NotCreated) -> io::Error {
        match not {
            NotCreated::NoTrace(error) | NotCreated::Unclear(error) => error,
        }
    }
}

pub(super) fn remove_if_there(files: &dyn Files, name: &str) -> io::Result<()> {
    match files.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn write_zeros(file: &dyn StoreFile, from: u64, to: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut at = from;
    while at < to {
        let bytes = (to - at).min(ZEROS.len() as u64);
        file.write_at(&ZEROS[..bytes as usize], at)?;
        at += bytes;
    }
    Ok(())
}
