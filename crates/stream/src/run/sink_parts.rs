//! The parts of sinks, such as the files of days: where the next chunk of each goes.
//!
//! A part has a row of its own. While records may come, the row is among the open ones, which are read at the start. When
//! the watermark has passed the part, its writer seals it, and its row moves to the sealed ones: they are read only if a
//! late record comes, and say for ever which bytes are the pipeline's.

use super::{
    meta::ChunkPlace,
    outbox::Effect,
    partition::{Partition, SHARD, Stop},
};
use crate::{
    data,
    error::StreamError,
    event_time::EventTime,
    pipeline::{sink::SinkChunk, source::io_error},
};
use onceflow_core::{Batch, Group, Key, Name, Row, limits::SCAN_ROWS_MAX};
use onceflow_store::records::Scan;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Rows of open parts begin so.
const OPEN: u8 = b'o';
/// Rows of sealed parts begin so.
const SEALED: u8 = b's';

/// Parts that one bundle seals: each is two rows of the next one.
const SEALED_AT_ONCE_MAX: usize = 24;

/// The row of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartPlace {
    /// Bytes of the part that were committed, and their CRC-32.
    pub(crate) offset: u64,
    pub(crate) crc: u32,
    end: EventTime,
}

struct OpenPart {
    /// Its number is not used: numbers are those of the sink.
    place: ChunkPlace,
    end: EventTime,
    is_changed: bool,
    /// The store has its row among the sealed ones.
    was_sealed: bool,
    seal: Seal,
}

impl OpenPart {
    /// A part without records, until this time.
    fn until(end: EventTime) -> Self {
        OpenPart { place: ChunkPlace::default(), end, is_changed: false, was_sealed: false, seal: Seal::Not }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Seal {
    Not,
    UnderWay,
    Done,
}

/// The parts of a partition's sinks that are not sealed.
#[derive(Default)]
pub(crate) struct OpenParts {
    parts: BTreeMap<(usize, String), OpenPart>,
}

fn row_name(tag: u8, sink: usize, part: &str) -> Name {
    let sink = u16::try_from(sink).expect("few sinks");
    Name::join(&[&[tag], &sink.to_be_bytes(), part.as_bytes()])
}

/// Returns the sink and the part of a row; `None` if it is no such row.
pub(crate) fn part_of(name: &Name) -> Option<(usize, String)> {
    let (_, rest) = name.as_bytes().split_first()?;
    let (sink, part) = rest.split_first_chunk::<2>()?;
    Some((usize::from(u16::from_be_bytes(*sink)), std::str::from_utf8(part).ok()?.to_owned()))
}

/// Reads the row of a part.
pub(crate) fn place_of(row: &Row) -> Result<PartPlace, StreamError> {
    data::decode(row).map_err(|_| StreamError::Damaged("the row of a sink's part cannot be decoded"))
}

impl OpenParts {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Parts were sealed since the last commit.
    pub(crate) fn has_sealed(&self) -> bool {
        self.parts.values().any(|part| part.seal == Seal::Done)
    }

    /// Returns the next chunk of a part.
    pub(crate) fn take(&mut self, sink: usize, part: &str, next_number: &mut u64, bytes: Vec<u8>) -> SinkChunk {
        let name = (sink, part.to_owned());
        let open = self.parts.get_mut(&name).expect("the parts of a bundle are opened before it commits");
        (open.is_changed, open.seal) = (true, Seal::Not);
        open.place.take_for_part(name.1, next_number, bytes)
    }

    /// Puts the rows of parts that have changed, and moves those of parts that were sealed.
    pub(crate) fn commit_into(&mut self, batch: &mut Batch, group: &Group) {
        let key = |tag, (sink, part): &(usize, String)| Key { group: group.clone(), name: row_name(tag, *sink, part) };
        self.parts.retain(|name, part| {
            let place = PartPlace { offset: part.place.offset, crc: part.place.crc, end: part.end };
            if part.seal == Seal::Done {
                batch.delete(key(OPEN, name)).put(key(SEALED, name), data::encode(&place));
                return false;
            }
            if std::mem::take(&mut part.is_changed) {
                batch.put(key(OPEN, name), data::encode(&place));
                if std::mem::take(&mut part.was_sealed) {
                    batch.delete(key(SEALED, name));
                }
            }
            true
        });
    }

    /// Returns the effects that seal what a watermark has passed, but for parts with chunks to be written. The rows of written
    /// chunks must be gone with the bundle: after a crash they would be written to a part that was sealed and moved away.
    pub(crate) fn due(&mut self, watermark: EventTime, waiting: &BTreeMap<Name, (usize, SinkChunk)>) -> Vec<Effect> {
        let waits =
            |(sink, part): &(usize, String)| waiting.values().any(|(of, chunk)| of == sink && chunk.part == *part);
        let due = self
            .parts
            .iter_mut()
            .filter(|(name, part)| part.seal == Seal::Not && part.end <= watermark && !waits(name));
        due.take(SEALED_AT_ONCE_MAX)
            .map(|((sink, name), part)| {
                part.seal = Seal::UnderWay;
                Effect::Seal(*sink, name.clone())
            })
            .collect()
    }
}

impl Partition {
    /// Reads the open parts, and lets their writers look at their places.
    pub(super) async fn load_parts(&mut self) -> Result<(), Stop> {
        let group = self.runtime.keys.sink_parts(self.station);
        let mut after = None;
        loop {
            let scan = Scan::of(group.clone(), SCAN_ROWS_MAX).prefix([OPEN]).after(after);
            let page = self.runtime.records.scan(SHARD, scan).await?;
            after = page.rows.last().map(|(name, _)| name.clone());
            for (row_name, row) in page.rows {
                let name = part_of(&row_name).filter(|(sink, _)| *sink < self.outbox.writers.len());
                let name = name.ok_or(StreamError::Damaged("a part belongs to no sink"))?;
                let place = place_of(&row)?;
                let is_of = |(sink, chunk): &&(usize, SinkChunk)| (*sink, &chunk.part) == (name.0, &name.1);
                let waiting = self.outbox.chunks.values().filter(is_of).map(|(_, chunk)| chunk.offset).min();
                // A crash may have come between the seal and the commit that notes it; a sealed part may be moved away.
                let may_be_sealed = waiting.is_none() && place.end <= self.meta.watermark_out;
                let seal = if may_be_sealed && self.is_gone(&name)? { Seal::Done } else { Seal::Not };
                if seal == Seal::Not {
                    self.resume_part(&name, waiting.unwrap_or(place.offset), place.offset)?;
                }
                self.open_part(name, Some(place), OpenPart { seal, ..OpenPart::until(place.end) });
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    /// Makes sure that the place of every part is known that this bundle has chunks for.
    pub(super) async fn find_parts(&mut self) -> Result<(), Stop> {
        let (mut missing, mut sealed) = (BTreeMap::new(), BTreeSet::new());
        for (sink, chunks) in self.bundle.sinks.iter().enumerate() {
            for part in chunks.iter().filter_map(|chunk| chunk.part.as_deref()) {
                let name = (sink, part.name.clone());
                match self.outbox.parts.parts.get(&name) {
                    None => drop(missing.insert(name, part.clone())),
                    Some(open) if open.seal == Seal::Done => drop(sealed.insert(name)),
                    Some(_) => {}
                }
            }
        }
        for name in sealed {
            if self.is_gone(&name)?
                && let Some(open) = self.outbox.parts.parts.get_mut(&name)
            {
                open.place = ChunkPlace::default();
            }
        }
        let group = self.runtime.keys.sink_parts(self.station);
        for (name, part) in missing {
            let key = Key { group: group.clone(), name: row_name(SEALED, name.0, &name.1) };
            let row = onceflow_store::records::get_one(&*self.runtime.records, SHARD, key).await?;
            let was_sealed = row.is_some();
            let is_gone = was_sealed && self.is_gone(&name)?;
            let place = row.filter(|_| !is_gone).as_ref().map(place_of).transpose()?;
            let written = place.map_or(0, |place| place.offset);
            self.resume_part(&name, written, written)?;
            self.open_part(name, place, OpenPart { was_sealed, ..OpenPart::until(part.end) });
        }
        Ok(())
    }

    fn resume_part(&mut self, (sink, part): &(usize, String), written: u64, committed: u64) -> Result<(), Stop> {
        let resumed = self.outbox.writers[*sink].resume(part, written, committed);
        Ok(resumed.map_err(|error| io_error(self.sink_name(*sink), error))?)
    }

    fn is_gone(&mut self, (sink, part): &(usize, String)) -> Result<bool, Stop> {
        let gone = self.outbox.writers[*sink].is_gone(part);
        Ok(gone.map_err(|error| io_error(self.sink_name(*sink), error))?)
    }

    fn open_part(&mut self, name: (usize, String), place: Option<PartPlace>, part: OpenPart) {
        let place =
            place.map_or(ChunkPlace::default(), |place| ChunkPlace { number: 0, offset: place.offset, crc: place.crc });
        self.outbox.parts.parts.insert(name, OpenPart { place, ..part });
    }

    /// Seals a part, unless a late record came meanwhile: its commit seals the part once more.
    pub(super) fn seal_part(&mut self, sink: usize, part: String) -> Result<(), Stop> {
        if self.outbox.chunks.values().any(|(of, chunk)| *of == sink && chunk.part == part) {
            return Ok(());
        }
        let sealed = self.outbox.writers[sink].seal(&part);
        sealed.map_err(|error| io_error(self.sink_name(sink), error))?;
        if let Some(open) = self.outbox.parts.parts.get_mut(&(sink, part)).filter(|part| part.seal == Seal::UnderWay) {
            open.seal = Seal::Done;
        }
        Ok(())
    }
}
