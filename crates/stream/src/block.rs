//! A block of records: the unit that is stored, sent and acknowledged. All its records have consecutive ids of one
//! producer and one stamp.
//!
//! Bytes: version, producer, first number, stamp (8 bytes each, little-endian), count (4), earliest event time (8), then
//! for each record its event time above the earliest, key length, value length (varints), key, value; last a CRC-32 of
//! everything before it.

use crate::{
    event_time::EventTime,
    identity::{ProducerId, Stamp},
};
use onceflow_core::Row;
use std::ops::Range;

/// The format that [`BlockBuilder`] writes.
const VERSION: u8 = 1;

const HEADER_BYTES: usize = 1 + 8 + 8 + 8 + 4 + 8;
const CHECKSUM_BYTES: usize = 4;

/// Bytes of records after which a block is closed: large enough that a block's fixed costs vanish, and far below the
/// bytes of a row.
pub const BLOCK_BYTES_MAX: usize = 64 << 10;

/// Bytes of one record's key and value together: it must fit a row with its block's header.
pub const RECORD_BYTES_MAX: usize = onceflow_core::limits::ROW_BYTES_MAX - 1024;

/// The reason why bytes are not a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBlock {
    /// The bytes end too early, or something follows the last record.
    #[error("a block has a wrong length")]
    Length,
    /// Another version wrote it.
    #[error("a block has format {0}, and this version reads format {VERSION}")]
    Version(u8),
    /// The bytes are not those that were written.
    #[error("a block does not have its checksum")]
    Checksum,
}

/// Collects records for one destination within a bundle. It keeps its memory from block to block.
#[derive(Clone, Debug)]
pub struct BlockBuilder {
    /// Room for the header, unless it is empty; then the records.
    encoded: Vec<u8>,
    count: u32,
    base: EventTime,
    earliest: EventTime,
}

impl Default for BlockBuilder {
    fn default() -> Self {
        BlockBuilder { encoded: Vec::new(), count: 0, base: EventTime::MIN, earliest: EventTime::MAX }
    }
}

impl BlockBuilder {
    /// Adds a record.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8], time: EventTime) {
        if self.count == 0 {
            self.base = time;
            self.encoded.resize(HEADER_BYTES, 0);
        }
        let (mut head, mut end) = ([0; 3 * VARINT_BYTES_MAX], 0);
        for number in [zigzag(time.0.wrapping_sub(self.base.0)), key.len() as u64, value.len() as u64] {
            put_varint(&mut head, &mut end, number);
        }
        self.encoded.extend_from_slice(&head[..end]);
        self.encoded.extend_from_slice(key);
        self.encoded.extend_from_slice(value);
        self.earliest = self.earliest.min(time);
        self.count += 1;
    }

    /// Returns the bytes of its records.
    pub fn bytes(&self) -> usize {
        self.encoded.len().saturating_sub(HEADER_BYTES)
    }

    /// Returns how many records it has.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the earliest event time of its records.
    pub fn earliest(&self) -> EventTime {
        self.earliest
    }

    /// Encodes the block, and empties the builder.
    pub fn finish(&mut self, producer: ProducerId, first: u64, stamp: Stamp) -> Row {
        let mut bytes = std::mem::take(&mut self.encoded);
        bytes.resize(bytes.len().max(HEADER_BYTES), 0);
        bytes[0] = VERSION;
        bytes[1..9].copy_from_slice(&producer.to_bytes());
        bytes[9..17].copy_from_slice(&first.to_le_bytes());
        bytes[17..25].copy_from_slice(&stamp.0.to_le_bytes());
        bytes[25..29].copy_from_slice(&self.count.to_le_bytes());
        bytes[29..HEADER_BYTES].copy_from_slice(&self.base.0.to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        let row = Row::new(&bytes);
        bytes.clear();
        *self = BlockBuilder { encoded: bytes, ..BlockBuilder::default() };
        row
    }
}

/// A block that was stored or received; sharing it copies nothing.
#[derive(Clone, Debug)]
pub struct RecordBlock {
    bytes: Row,
    producer: ProducerId,
    first: u64,
    stamp: Stamp,
    count: u32,
    base: EventTime,
}

/// One record of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// Its number at its producer.
    pub seq: u64,
    /// When it says it happened.
    pub time: EventTime,
    /// The encoded key.
    pub key: &'a [u8],
    /// The encoded value.
    pub value: &'a [u8],
}

impl RecordBlock {
    /// Decodes a block; the records are checked too.
    ///
    /// # Errors
    /// If the bytes are anything but what [`BlockBuilder::finish`] made.
    pub fn decode(bytes: Row) -> Result<Self, BadBlock> {
        let version = *bytes.first().ok_or(BadBlock::Length)?;
        if version != VERSION {
            return Err(BadBlock::Version(version));
        }
        let end = bytes.len().checked_sub(CHECKSUM_BYTES).filter(|end| *end >= HEADER_BYTES).ok_or(BadBlock::Length)?;
        let stored: [u8; CHECKSUM_BYTES] = bytes[end..].try_into().expect("four bytes");
        if crc32fast::hash(&bytes[..end]).to_le_bytes() != stored {
            return Err(BadBlock::Checksum);
        }
        let eight = |at: usize| -> [u8; 8] { bytes[at..at + 8].try_into().expect("eight bytes of a header") };
        let block = RecordBlock {
            producer: ProducerId::from_bytes(eight(1)),
            first: u64::from_le_bytes(eight(9)),
            stamp: Stamp(u64::from_le_bytes(eight(17))),
            count: u32::from_le_bytes(bytes[25..29].try_into().expect("four bytes of a header")),
            base: EventTime(i64::from_le_bytes(eight(29))),
            bytes,
        };
        block.first.checked_add(u64::from(block.count)).ok_or(BadBlock::Length)?;
        let mut records = block.records();
        if records.by_ref().count() as u64 != u64::from(block.count) || !records.rest.is_empty() {
            return Err(BadBlock::Length);
        }
        Ok(block)
    }

    /// Returns its sender.
    pub fn producer(&self) -> ProducerId {
        self.producer
    }

    /// Returns the numbers of its records.
    pub fn seqs(&self) -> Range<u64> {
        self.first..self.first + u64::from(self.count)
    }

    /// Returns the stamp of all its records.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Returns its encoded form.
    pub fn bytes(&self) -> &Row {
        &self.bytes
    }

    /// Returns its records in order of their numbers.
    pub fn records(&self) -> RecordIter<'_> {
        let rest = &self.bytes[HEADER_BYTES..self.bytes.len() - CHECKSUM_BYTES];
        RecordIter { rest, seq: self.first, end: self.seqs().end, base: self.base }
    }

    /// Returns the earliest event time of its records.
    pub fn earliest(&self) -> EventTime {
        self.records().map(|record| record.time).min().unwrap_or(EventTime::MAX)
    }
}

/// The records of a block, in order.
#[derive(Clone, Debug)]
pub struct RecordIter<'a> {
    rest: &'a [u8],
    seq: u64,
    end: u64,
    base: EventTime,
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = RawRecord<'a>;

    #[inline]
    fn next(&mut self) -> Option<RawRecord<'a>> {
        if self.seq == self.end {
            return None;
        }
        let mut rest = self.rest;
        let delta = take_varint(&mut rest)?;
        let key = usize::try_from(take_varint(&mut rest)?).ok()?;
        let value = usize::try_from(take_varint(&mut rest)?).ok()?;
        let (key, rest) = rest.split_at_checked(key)?;
        let (value, rest) = rest.split_at_checked(value)?;
        let record =
            RawRecord { seq: self.seq, time: EventTime(self.base.0.wrapping_add(unzigzag(delta))), key, value };
        (self.rest, self.seq) = (rest, self.seq + 1);
        Some(record)
    }
}

const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

const fn unzigzag(number: u64) -> i64 {
    ((number >> 1) as i64) ^ -((number & 1) as i64)
}

/// Bytes of a number, at most: seven bits in each.
const VARINT_BYTES_MAX: usize = 10;

#[inline]
fn put_varint(into: &mut [u8], end: &mut usize, mut number: u64) {
    while number >= 0x80 {
        into[*end] = number as u8 | 0x80;
        (*end, number) = (*end + 1, number >> 7);
    }
    into[*end] = number as u8;
    *end += 1;
}

#[inline]
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn build(records: &[(Vec<u8>, Vec<u8>, i64)]) -> Row {
        let mut builder = BlockBuilder::default();
        for (key, value, time) in records {
            builder.push(key, value, EventTime(*time));
        }
        builder.finish(ProducerId::new(1, 2, 3, 4), 40, Stamp(5))
    }

    proptest! {
        #[test]
        fn a_block_survives_being_stored(records: Vec<(Vec<u8>, Vec<u8>, i64)>) {
            let block = RecordBlock::decode(build(&records)).unwrap();
            prop_assert_eq!((block.producer(), block.stamp()), (ProducerId::new(1, 2, 3, 4), Stamp(5)));
            prop_assert_eq!(block.seqs(), 40..40 + records.len() as u64);
            let read: Vec<_> = block.records().map(|r| (r.key.to_vec(), r.value.to_vec(), r.time.0)).collect();
            prop_assert_eq!(&read, &records);
            prop_assert_eq!(block.earliest().0, records.iter().map(|r| r.2).min().unwrap_or(i64::MAX));
        }

        #[test]
        fn damaged_bytes_are_refused(records: Vec<(Vec<u8>, Vec<u8>, i64)>, at: prop::sample::Index, flip in 1u8..=255) {
            let mut bytes = build(&records).to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(RecordBlock::decode(Row::from(bytes.clone())).is_err());
            bytes.truncate(at);
            prop_assert!(RecordBlock::decode(Row::from(bytes)).is_err());
        }

        #[test]
        fn bytes_with_a_right_checksum_that_are_no_block_are_refused_or_read(mut bytes in prop::collection::vec(any::<u8>(), HEADER_BYTES..200)) {
            bytes[0] = VERSION;
            let checksum = crc32fast::hash(&bytes).to_le_bytes();
            bytes.extend(checksum);
            if let Ok(block) = RecordBlock::decode(Row::from(bytes)) {
                prop_assert_eq!(block.records().count() as u64, block.seqs().end - block.seqs().start);
            }
        }
    }

    #[test]
    fn a_builder_is_empty_after_it_has_finished_a_block() {
        let mut builder = BlockBuilder::default();
        builder.push(b"k", b"v", EventTime(9));
        let _ = builder.finish(ProducerId::new(0, 0, 0, 0), 0, Stamp(1));
        assert_eq!((builder.count(), builder.bytes()), (0, 0));
        builder.push(b"k", b"w", EventTime(3));
        let block = RecordBlock::decode(builder.finish(ProducerId::new(0, 0, 0, 0), 1, Stamp(2))).unwrap();
        assert_eq!(block.earliest(), EventTime(3));
    }
}
