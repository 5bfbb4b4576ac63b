//! A bundle under way: the records it makes, by destination, until one batch commits them.

use crate::{
    block::{BLOCK_BYTES_MAX, BlockBuilder, RECORD_BYTES_MAX},
    error::StreamError,
    event_time::EventTime,
    pipeline::sink::SinkPart,
};
use std::sync::Arc;

/// Tags of rows in a partition's state are below this.
pub(crate) const TAGS: usize = 5;

/// Bytes of an encoded key: it is part of the names of rows.
pub(crate) const KEY_BYTES_MAX: usize = 400;

/// Bytes of a chunk for a sink, unless one record is larger.
const CHUNK_BYTES_MAX: usize = 256 << 10;

/// Chunks for sinks after which a bundle takes no further record: each is a row, and a part has another.
const CHUNKS_MAX: usize = 24;

/// Whole encoded records for a sink, or for one of its parts.
pub(crate) struct ChunkBytes {
    pub(crate) part: Option<Arc<SinkPart>>,
    pub(crate) bytes: Vec<u8>,
}

/// The outputs of a bundle. Steps push into it; the partition takes it out.
pub(crate) struct Bundle {
    /// For each outgoing edge, the records for each destination.
    edges: Vec<Vec<Destination>>,
    /// Emptied builders of blocks, with their memory.
    spare: Vec<BlockBuilder>,
    /// For each sink, its chunks.
    pub(crate) sinks: Vec<Vec<ChunkBytes>>,
    /// The number of chunks.
    pub(crate) chunks: usize,
    /// Bytes of all records so far.
    pub(crate) bytes: usize,
    /// Records that were made.
    pub(crate) records: u64,
    /// Records that were too late for their window.
    pub(crate) late: u64,
    /// Records that a step skipped.
    pub(crate) skipped: u64,
    /// The watermark that decides what is late.
    pub(crate) watermark: EventTime,
    /// The store's time.
    pub(crate) now_ms: u64,
    /// The number of the bundle, to tell which cells it has named.
    pub(crate) number: u64,
    /// For each kind of row that comes due, by its tag, the earliest time of a new one.
    pub(crate) earliest_due: [Option<i64>; TAGS],
    /// The first failure of a step.
    pub(crate) problem: Option<StreamError>,
    /// The partition, to spread records that have no key.
    partition: usize,
    /// Random bits of this bundle, and how many ids were made of them.
    ids: (u64, u16),
}

#[derive(Default)]
struct Destination {
    open: BlockBuilder,
    full: Vec<BlockBuilder>,
}

/// The blocks of one bundle for one destination.
pub(crate) struct Parcel {
    pub(crate) edge: usize,
    pub(crate) to: usize,
    pub(crate) block: BlockBuilder,
}

impl Parcel {
    /// An empty block: the last one of its producer.
    pub(crate) fn end(edge: usize, to: usize) -> Self {
        Parcel { edge, to, block: BlockBuilder::default() }
    }
}

impl Bundle {
    pub(crate) fn new(destinations: &[usize], sinks: usize, partition: usize) -> Self {
        Bundle {
            edges: destinations.iter().map(|count| (0..*count).map(|_| Destination::default()).collect()).collect(),
            spare: Vec::new(),
            sinks: (0..sinks).map(|_| Vec::new()).collect(),
            chunks: 0,
            bytes: 0,
            records: 0,
            late: 0,
            skipped: 0,
            watermark: EventTime::MIN,
            now_ms: 0,
            number: 0,
            earliest_due: [None; TAGS],
            problem: None,
            partition,
            ids: (0, 0),
        }
    }

    /// Starts the next bundle.
    pub(crate) fn begin(&mut self, number: u64, watermark: EventTime, now_ms: u64, random: u128) {
        self.ids = (random as u64, 0);
        (self.number, self.watermark, self.now_ms) = (number, watermark, now_ms);
        (self.bytes, self.records, self.late, self.skipped) = (0, 0, 0, 0);
        self.earliest_due = [None; TAGS];
        self.chunks = 0;
    }

    /// No further record should be taken, though there is room for its bytes.
    pub(crate) fn has_many_chunks(&self) -> bool {
        self.chunks >= CHUNKS_MAX
    }

    /// Adds a record for the partition that has its key. A key may be encoded as no bytes at all, as `()` is.
    #[inline]
    pub(crate) fn send(&mut self, edge: usize, key: &[u8], value: &[u8], time: EventTime) {
        let at = (xxhash_rust::xxh3::xxh3_64(key) % self.edges[edge].len() as u64) as usize;
        self.send_to(edge, at, key, value, time);
    }

    /// Adds a record without a key: it stays at this partition's number.
    #[inline]
    pub(crate) fn send_unkeyed(&mut self, edge: usize, value: &[u8], time: EventTime) {
        let at = self.partition % self.edges[edge].len();
        self.send_to(edge, at, &[], value, time);
    }

    #[inline]
    fn send_to(&mut self, edge: usize, at: usize, key: &[u8], value: &[u8], time: EventTime) {
        if key.len() > KEY_BYTES_MAX || key.len() + value.len() > RECORD_BYTES_MAX {
            return self.fail(StreamError::TooLarge { key: key.len(), value: value.len() });
        }
        let destination = &mut self.edges[edge][at];
        if destination.open.bytes() >= BLOCK_BYTES_MAX {
            let empty = self.spare.pop().unwrap_or_default();
            destination.full.push(std::mem::replace(&mut destination.open, empty));
        }
        destination.open.push(key, value, time);
        self.bytes += key.len() + value.len() + 4;
        self.records += 1;
    }

    /// Adds an encoded record for a sink, or for one of its parts.
    pub(crate) fn write(&mut self, sink: usize, part: Option<&Arc<SinkPart>>, record: &[u8]) {
        if record.len() > RECORD_BYTES_MAX {
            return self.fail(StreamError::TooLarge { key: 0, value: record.len() });
        }
        let of_part =
            |chunk: &&mut ChunkBytes| chunk.part.as_ref().map(|part| &part.name) == part.map(|part| &part.name);
        let has_room = |chunk: &&mut ChunkBytes| chunk.bytes.len() + record.len() <= CHUNK_BYTES_MAX;
        // The last chunk of the part: records stay in order.
        let open = self.sinks[sink].iter_mut().rev().find(of_part).filter(has_room);
        match open {
            Some(chunk) => chunk.bytes.extend_from_slice(record),
            None => {
                self.sinks[sink].push(ChunkBytes { part: part.cloned(), bytes: record.to_vec() });
                self.chunks += 1;
            }
        }
        self.bytes += record.len();
        self.records += 1;
    }

    /// Returns an id that no other bundle or process makes: by time, so that earlier ones come first, and by chance.
    pub(crate) fn unique_id(&mut self) -> [u8; 16] {
        let (random, count) = &mut self.ids;
        let id = (u128::from(self.now_ms) << 80) | (u128::from(*count) << 64) | u128::from(*random);
        *count += 1;
        id.to_be_bytes()
    }

    /// Says that a row with this tag comes due at this time.
    pub(crate) fn note_due(&mut self, tag: u8, time: i64) {
        let earliest = &mut self.earliest_due[usize::from(tag)];
        *earliest = Some(earliest.map_or(time, |earlier| earlier.min(time)));
    }

    /// Keeps the first failure; the bundle will not be committed.
    pub(crate) fn fail(&mut self, problem: impl Into<StreamError>) {
        if self.problem.is_none() {
            self.problem = Some(problem.into());
        }
    }

    /// Takes back a builder whose block is finished.
    pub(crate) fn recycle(&mut self, block: BlockBuilder) {
        self.spare.push(block);
    }

    /// Takes out all blocks.
    pub(crate) fn take(&mut self) -> Vec<Parcel> {
        let mut parcels = Vec::new();
        for (edge, destinations) in self.edges.iter_mut().enumerate() {
            for (to, destination) in destinations.iter_mut().enumerate() {
                let blocks = destination.full.drain(..);
                parcels.extend(blocks.map(|block| Parcel { edge, to, block }));
                if destination.open.count() > 0 {
                    let empty = self.spare.pop().unwrap_or_default();
                    let block = std::mem::replace(&mut destination.open, empty);
                    parcels.push(Parcel { edge, to, block });
                }
            }
        }
        parcels
    }
}
