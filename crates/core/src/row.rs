//! The content of a row: bytes. A batch can treat those bytes as a counter or a bitmap and compute with them; for reads
//! and comparisons both are plain rows.

use serde::{Deserialize, Serialize};
use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

/// The content of a row. Cloning copies a short one and shares the bytes of a long one.
#[derive(Clone)]
pub struct Row(Content);

/// Counters, fences, deadlines and small bitmaps are most of the rows that a commit touches: they stay off the heap.
#[derive(Clone)]
enum Content {
    Inline { length: u8, bytes: [u8; Row::INLINE_BYTES_MAX] },
    Shared(Arc<[u8]>),
}

impl Row {
    /// The number of bytes that, with the length and the tag, fill four words.
    const INLINE_BYTES_MAX: usize = 30;

    /// Creates a row with these bytes.
    #[inline]
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        Row::from(bytes.as_ref())
    }
}

impl Default for Row {
    fn default() -> Self {
        Row(Content::Inline { length: 0, bytes: [0; Row::INLINE_BYTES_MAX] })
    }
}

impl Deref for Row {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Content::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Content::Shared(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for Row {
    fn from(bytes: Vec<u8>) -> Self {
        Row::from(&bytes[..])
    }
}

impl From<&[u8]> for Row {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        if bytes.len() > Row::INLINE_BYTES_MAX {
            return Row(Content::Shared(bytes.into()));
        }
        let mut inline = [0; Row::INLINE_BYTES_MAX];
        inline[..bytes.len()].copy_from_slice(bytes);
        Row(Content::Inline { length: bytes.len() as u8, bytes: inline })
    }
}

impl PartialEq for Row {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            // The bytes after the length are zeros, so two short rows are compared as whole arrays.
            (Content::Inline { length, bytes }, Content::Inline { length: other_length, bytes: other_bytes }) => {
                length == other_length && bytes == other_bytes
            }
            _ => **self == **other,
        }
    }
}

impl Eq for Row {}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Row {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Row {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_BYTES_MAX: usize = 64;
        let shown = &self[..self.len().min(SHOWN_BYTES_MAX)];
        write!(f, "\"{}\"", shown.escape_ascii())?;
        if shown.len() < self.len() { write!(f, "… ({} bytes)", self.len()) } else { Ok(()) }
    }
}

impl Serialize for Row {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self)
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl serde::de::Visitor<'_> for Bytes {
            type Value = Row;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Row, E> {
                Ok(Row::from(bytes))
            }
            fn visit_byte_buf<E: serde::de::Error>(self, bytes: Vec<u8>) -> Result<Row, E> {
                Ok(Row::from(bytes))
            }
        }
        deserializer.deserialize_byte_buf(Bytes)
    }
}

/// A number in a row: eight bytes, little-endian. Zero is never stored: a counter at zero is deleted.
pub mod counter {
    use super::Row;

    /// Returns the number in a row; `None` if the row is not a counter.
    pub fn read(row: &[u8]) -> Option<i64> {
        Some(i64::from_le_bytes(row.try_into().ok()?))
    }

    /// Returns the row for a number.
    pub fn write(count: i64) -> Row {
        Row::new(count.to_le_bytes())
    }
}

/// A set of the numbers below `of` in a row: `of` as four bytes, little-endian, then a bit for each,
/// the lowest bit of the first byte first.
pub mod bitmap {
    use super::Row;

    const SMALL_BYTES: usize = 64;

    /// The row is a bitmap over the numbers below `of`. A row with bits at or above `of` is not one: those bits would
    /// be counted in place of missing ones.
    pub fn fits(row: &[u8], of: u32) -> bool {
        row.len() == bytes(of)
            && row[..4] == of.to_le_bytes()
            && (of.is_multiple_of(8) || row[row.len() - 1] >> (of % 8) == 0)
    }

    /// Returns the size of a bitmap and the numbers it holds; `None` if the row is not a bitmap.
    pub fn read(row: &[u8]) -> Option<(u32, Vec<u32>)> {
        let of = u32::from_le_bytes(row.get(..4)?.try_into().ok()?);
        fits(row, of).then(|| (of, (0..of).filter(|bit| holds(row, *bit)).collect()))
    }

    /// Returns the bitmap with one more number in it, and whether it is full now. `row` is `None` for the empty set.
    pub fn with(row: Option<&[u8]>, bit: u32, of: u32) -> (Row, bool) {
        assert!(bit < of, "bit {bit} stands outside a bitmap of {of}");
        assert!(row.is_none_or(|row| fits(row, of)), "the row is no bitmap of {of}");
        // Most sets are small: those are built on the stack and copied once.
        let (mut small, mut large) = ([0; SMALL_BYTES], Vec::new());
        let set = match small.get_mut(..bytes(of)) {
            Some(small) => small,
            None => {
                large.resize(bytes(of), 0);
                &mut large[..]
            }
        };
        match row {
            Some(row) => set.copy_from_slice(row),
            None => set[..4].copy_from_slice(&of.to_le_bytes()),
        }
        set[4 + bit as usize / 8] |= 1 << (bit % 8);
        let full = is_full(set);
        (Row::new(set), full)
    }

    /// The row is a bitmap that holds every number it ranges over.
    pub fn is_full(row: &[u8]) -> bool {
        let Some((of, set)) = row.split_first_chunk::<4>() else { return false };
        let of = u32::from_le_bytes(*of);
        fits(row, of) && set.iter().map(|byte| byte.count_ones()).sum::<u32>() == of
    }

    fn holds(row: &[u8], bit: u32) -> bool {
        row[4 + bit as usize / 8] & (1 << (bit % 8)) != 0
    }

    fn bytes(of: u32) -> usize {
        4 + of.div_ceil(8) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bitmap_is_full_when_every_number_arrived_in_any_order_and_any_number_of_times() {
        for of in [1, 7, 8, 9, 64, 100] {
            let mut row: Option<Row> = None;
            for bit in (0..of).rev() {
                for _ in 0..2 {
                    let (next, full) = bitmap::with(row.as_deref(), bit, of);
                    assert_eq!(full, bit == 0, "{bit} of {of}");
                    row = Some(next);
                }
            }
            assert_eq!(bitmap::read(&row.unwrap()), Some((of, (0..of).collect())));
        }
    }

    #[test]
    fn short_and_long_rows_compare_as_their_bytes_do() {
        let bytes = |length: usize, last: u8| [vec![7; length], vec![last]].concat();
        let all: Vec<_> =
            [0, 1, 28, 29, 30, 31].into_iter().flat_map(|length| [bytes(length, 0), bytes(length, 9)]).collect();
        assert_eq!(Row::default(), Row::new([]));
        for one in &all {
            assert_eq!(&*Row::new(one), &one[..]);
            for other in &all {
                let (row, other_row) = (Row::new(one), Row::new(other));
                assert_eq!(row == other_row, one == other);
                assert_eq!(row.cmp(&other_row), one.cmp(other));
            }
        }
    }

    #[test]
    fn other_rows_are_neither_counters_nor_bitmaps() {
        assert_eq!(counter::read(b"1234567"), None);
        assert_eq!(counter::read(&counter::write(-3)), Some(-3));
        assert_eq!(bitmap::read(b""), None);
        assert_eq!(bitmap::read(&[9, 0, 0, 0, 0]), None);
        assert!(!bitmap::is_full(&[2, 0, 0, 0, 0b101]), "one of the two is missing, and another counts for it");
        assert_eq!(bitmap::read(&[2, 0, 0, 0, 0b101]), None);
        assert_eq!(bitmap::read(&[8, 0, 0, 0, 0b1000_0001]), Some((8, vec![0, 7])));
    }
}
