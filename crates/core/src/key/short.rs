//! Bytes that are mostly short, stored inline up to [`Short::INLINE_BYTES_MAX`] of them: names and ids are cloned and
//! compared more often than anything else here, and neither should touch the heap.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Visitor};
use std::{cmp::Ordering, fmt, hash::Hash, hash::Hasher};

/// A byte string. Compared, ordered and hashed as a slice of bytes.
#[derive(Clone)]
pub(super) enum Short {
    /// The bytes after the length are zeros, so that two inline strings are compared as whole arrays.
    Inline {
        length: u8,
        bytes: [u8; Short::INLINE_BYTES_MAX],
    },
    Heap(Box<[u8]>),
}

impl Short {
    /// The number of bytes that, with the length and the tag, fill four words: two more than a boxed slice takes.
    pub(super) const INLINE_BYTES_MAX: usize = 30;

    #[inline]
    pub(super) fn new(bytes: &[u8]) -> Self {
        Short::join(&[bytes])
    }

    /// Concatenates the parts.
    #[inline]
    pub(super) fn join(parts: &[&[u8]]) -> Self {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > Short::INLINE_BYTES_MAX {
            return Short::Heap(parts.concat().into());
        }
        let (mut bytes, mut end) = ([0; Short::INLINE_BYTES_MAX], 0);
        for part in parts {
            bytes[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        Short::Inline { length: length as u8, bytes }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Short::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Short::Heap(bytes) => bytes,
        }
    }
}

impl Default for Short {
    fn default() -> Self {
        Short::Inline { length: 0, bytes: [0; Short::INLINE_BYTES_MAX] }
    }
}

impl PartialEq for Short {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Short::Inline { length, bytes }, Short::Inline { length: other_length, bytes: other_bytes }) => {
                length == other_length && bytes == other_bytes
            }
            _ => self.as_bytes() == other.as_bytes(),
        }
    }
}

impl Eq for Short {}

impl Ord for Short {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            // Zeros sort first, so a prefix sorts before its extensions; if only zeros follow, the length decides.
            (Short::Inline { length, bytes }, Short::Inline { length: other_length, bytes: other_bytes }) => {
                let words = |at| word(bytes, at).cmp(&word(other_bytes, at));
                let rest = || words(16).then_with(|| words(Short::INLINE_BYTES_MAX - 8)).then(length.cmp(other_length));
                words(0).then_with(|| words(8)).then_with(rest)
            }
            _ => self.as_bytes().cmp(other.as_bytes()),
        }
    }
}

/// Returns eight bytes as a number that sorts as they do.
#[inline(always)]
fn word(bytes: &[u8; Short::INLINE_BYTES_MAX], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl PartialOrd for Short {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Short {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for Short {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Short;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Short, E> {
                Ok(Short::new(bytes))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_bytes_compare_as_slices_do() {
        let long = [7; Short::INLINE_BYTES_MAX + 1];
        let cases: Vec<&[u8]> = vec![
            b"",
            b"\0",
            b"\0\0",
            b"a",
            b"a\0",
            b"a\0b",
            b"ab",
            b"b",
            &[255],
            &[255; 30],
            &[255; 31],
            &long,
            &long[..30],
        ];
        for one in &cases {
            for other in &cases {
                assert_eq!(Short::new(one).cmp(&Short::new(other)), one.cmp(other), "{one:?} {other:?}");
                assert_eq!(Short::new(one) == Short::new(other), one == other, "{one:?} {other:?}");
            }
            assert_eq!(Short::new(one).as_bytes(), *one);
        }
    }

    #[test]
    fn a_short_takes_four_words() {
        assert_eq!(size_of::<Short>(), 32);
    }
}
