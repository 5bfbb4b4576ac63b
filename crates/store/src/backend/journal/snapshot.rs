//! All rows in one file, so that the log before it can be deleted.
//!
//! Written while batches go on: the rows are walked in small steps, each at its own moment. That is sound because the
//! log holds effects, which state the new content of a row: replaying the log from where the walk began to where it
//! ended corrects every row that the walk saw too early or too late. So a snapshot is whole only with the log up to its
//! end, and it takes its name only when that much is durable.

use super::{
    OpenError,
    codec::{self, Encoder},
    files::{Files, StoreFile},
    format::{FRAME_BYTES, FileKind, FrameHeader, FrameKind, HEADER_BYTES, Header, UNFINISHED, snapshot_name},
    recover::{bad_header, damaged},
    segment::remove_if_there,
};
use crate::{
    records::Position,
    state::{Effects, RowCursor, StoreState},
};
use onceflow_core::{Key, Row, Shard, Timestamp};
use std::io;

/// How many rows are walked at one moment; commits wait meanwhile.
pub(super) const STEP_ROWS: usize = 256;
/// A frame is written when it has so many bytes.
const FRAME_FULL_BYTES: usize = 256 << 10;

/// A snapshot on its way to the disk.
pub(super) struct Writer<'a> {
    files: &'a dyn Files,
    file: Box<dyn StoreFile>,
    position: Position,
    at: u64,
    frame: Encoder,
}

impl<'a> Writer<'a> {
    /// Begins a snapshot of the rows after `position`.
    pub(super) fn begin(files: &'a dyn Files, store: u128, position: Position) -> io::Result<Writer<'a>> {
        let name = unfinished(position);
        remove_if_there(files, &name)?;
        let file = files.create(&name)?;
        file.write_at(&Header { store, position }.encode(FileKind::Snapshot), 0)?;
        let mut writer = Writer { files, file, position, at: HEADER_BYTES as u64, frame: Encoder::default() };
        FrameHeader::begin(&mut writer.frame.bytes);
        Ok(writer)
    }

    pub(super) fn rows(&mut self, rows: &[(Shard, Key, Row)]) -> io::Result<()> {
        for (shard, key, row) in rows {
            self.frame.shard(*shard);
            self.frame.put(key, row);
            if self.frame.bytes.len() >= FRAME_FULL_BYTES {
                self.write(FrameKind::Rows, self.position, Timestamp::ZERO)?;
            }
        }
        Ok(())
    }

    /// Ends the walk at `whole_at`, which must be durable. The snapshot is there and durable when this returns.
    pub(super) fn finish(mut self, whole_at: Position, time: Timestamp) -> io::Result<()> {
        self.write(FrameKind::Rows, self.position, Timestamp::ZERO)?;
        self.write(FrameKind::End, whole_at, time)?;
        self.file.sync()?;
        self.files.rename(&unfinished(self.position), &snapshot_name(self.position))?;
        self.files.sync()
    }

    fn write(&mut self, kind: FrameKind, last: Position, time: Timestamp) -> io::Result<()> {
        let head = FrameHeader { kind, first: self.position, last, durable: self.position };
        head.finish(time, &mut self.frame.bytes);
        self.file.write_at(&self.frame.bytes, self.at)?;
        self.at += self.frame.bytes.len() as u64;
        FrameHeader::begin(&mut self.frame.bytes);
        self.frame.forget();
        Ok(())
    }
}

/// Removes the remains of a snapshot that was not finished.
pub(super) fn abandon(files: &dyn Files, position: Position) {
    let _ = files.remove(&unfinished(position));
}

fn unfinished(position: Position) -> String {
    format!("{}{UNFINISHED}", snapshot_name(position))
}

/// Where a walk over all rows stands.
#[derive(Default)]
pub(super) enum Walk {
    #[default]
    Start,
    After(RowCursor),
    Done,
}

impl Walk {
    /// The next rows; none when all were walked.
    pub(super) fn step(&mut self, state: &StoreState) -> Vec<(Shard, Key, Row)> {
        let place = match self {
            Walk::Start => None,
            Walk::After(place) => Some(&*place),
            Walk::Done => return Vec::new(),
        };
        let (rows, next) = state.durable_after(place, STEP_ROWS);
        *self = next.map_or(Walk::Done, Walk::After);
        rows
    }
}

/// A snapshot read back.
pub(super) struct Snapshot {
    pub(super) store: u128,
    pub(super) state: StoreState,
    pub(super) time: Timestamp,
    /// How far the log must be replayed for the rows to be right.
    pub(super) whole_at: Position,
}

/// Reads a snapshot. It has its name only since it was whole and durable, so whatever is wrong with it is damage.
pub(super) fn read(files: &dyn Files, position: Position) -> Result<Snapshot, OpenError> {
    let name = snapshot_name(position);
    let path = files.path(&name);
    let file = files.open(&name).map_err(OpenError::io("open", path.clone()))?;
    let read_at = |at: u64, length: usize| {
        let mut bytes = vec![0; length];
        let read = file.read_at(&mut bytes, at).map_err(OpenError::io("read", path.clone()))?;
        bytes.truncate(read);
        Ok(bytes)
    };
    let header = Header::decode(&read_at(0, HEADER_BYTES)?, FileKind::Snapshot);
    let header = header.map_err(|bad| bad_header(files, &name, bad))?;
    if header.position != position || position.0 == u64::MAX {
        return Err(damaged(files, &name, 0, "the snapshot's name and header disagree about its position"));
    }
    let mut snapshot =
        Snapshot { store: header.store, state: StoreState::new(), time: Timestamp::ZERO, whole_at: position };
    let mut at = HEADER_BYTES as u64;
    loop {
        let broken = |what| damaged(files, &name, at, what);
        let head = read_at(at, FRAME_BYTES)?;
        let payload = FrameHeader::payload_bytes(&head).ok_or_else(|| broken("the snapshot breaks off"))?;
        let bytes = read_at(at, FRAME_BYTES + payload)?;
        let read = FrameHeader::read(&bytes).filter(|(frame, ..)| frame.first == position);
        let (frame, time, effects, length) = read.ok_or_else(|| broken("a part of the snapshot is damaged"))?;
        match frame.kind {
            FrameKind::Rows => codec::replay(effects, &mut snapshot.state).map_err(broken)?,
            FrameKind::Group => return Err(broken("a log's frame stands in a snapshot")),
            FrameKind::End => {
                (snapshot.time, snapshot.whole_at) = (time, frame.last);
                return Ok(snapshot);
            }
        }
        at += length as u64;
    }
}
