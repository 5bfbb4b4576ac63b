//! How the content of a row is encoded: a version byte, the content, and a checksum.

use crate::row::Row;
use serde::{Serialize, de::DeserializeOwned};

pub(super) const VERSION: u8 = 1;

/// The version of rows that end with a checksum. A store on a server has no checksums of its own.
const CHECKED: u8 = 2;

/// The size of the checksum.
const SUM_BYTES: usize = size_of::<u32>();

/// Rows up to this size are encoded on the stack, and copied once: most are, and every commit encodes some.
const SMALL_BYTES: usize = 256;

/// Encodes a row, with a checksum.
pub fn write<T: Serialize>(content: &T) -> Row {
    write_after(&[], content)
}

/// Encodes a row that begins with these bytes: the checksum is that of the content alone.
pub(crate) fn write_after<T: Serialize>(head: &[&[u8]], content: &T) -> Row {
    let mut small = [0; SMALL_BYTES];
    let start: usize = head.iter().map(|part| part.len()).sum();
    if start < SMALL_BYTES - SUM_BYTES
        && let Ok(encoded) = postcard::to_slice(content, &mut small[start + 1..SMALL_BYTES - SUM_BYTES])
    {
        let end = start + 1 + encoded.len();
        let mut at = 0;
        for part in head {
            small[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        small[start] = CHECKED;
        let sum = crc32fast::hash(&small[start..end]).to_le_bytes();
        small[end..end + SUM_BYTES].copy_from_slice(&sum);
        return Row::new(&small[..end + SUM_BYTES]);
    }
    Row::from([&head.concat()[..], &bytes(content)].concat())
}

/// Encodes content that is too large for a row, in the same format.
pub fn bytes<T: Serialize>(content: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SMALL_BYTES);
    bytes.push(CHECKED);
    let mut bytes = postcard::to_extend(content, bytes).expect("rows are plain data");
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

/// Decodes a row that [`write()`] encoded, also before rows had a checksum; `None` if the row is anything else.
pub fn read<T: DeserializeOwned>(row: &[u8]) -> Option<T> {
    postcard::from_bytes(content(row)?).ok()
}

/// The content of a row without version and checksum; `None` if the checksum does not match.
fn content(row: &[u8]) -> Option<&[u8]> {
    match row.split_first()? {
        (&VERSION, content) => Some(content),
        (&CHECKED, _) => {
            let (content, sum) = row.split_last_chunk::<4>()?;
            content.get(1..).filter(|_| crc32fast::hash(content) == u32::from_le_bytes(*sum))
        }
        _ => None,
    }
}

/// Encodes a list element by element: the bytes are those that [`bytes`] gives for all of them at once.
#[derive(Default)]
pub struct ListWriter {
    len: usize,
    elements: Vec<u8>,
}

impl ListWriter {
    /// Appends an element.
    pub fn push<T: Serialize>(&mut self, element: &T) {
        self.elements = postcard::to_extend(element, std::mem::take(&mut self.elements)).expect("rows are plain data");
        self.len += 1;
    }

    /// The encoded list.
    pub fn finish(self) -> Vec<u8> {
        let mut bytes = postcard::to_extend(&self.len, vec![CHECKED]).expect("a number is plain data");
        bytes.extend_from_slice(&self.elements);
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }
}

/// Decodes a list that [`bytes`] or [`ListWriter`] encoded, element by element; `None` if the bytes are anything else,
/// possibly after some elements.
pub fn read_list<T: DeserializeOwned>(row: &[u8], mut each: impl FnMut(T)) -> Option<()> {
    let (len, mut rest) = postcard::take_from_bytes::<usize>(content(row)?).ok()?;
    for _ in 0..len {
        let element;
        (element, rest) = postcard::take_from_bytes::<T>(rest).ok()?;
        each(element);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_that_is_cut_anywhere_is_no_row() {
        let row = write(&("some", 7, [1_u8; 20]));
        for len in 0..row.len() {
            assert_eq!(read::<(String, i32, [u8; 20])>(&row[..len]), None, "cut to {len} bytes");
        }
    }

    #[test]
    fn small_and_large_rows_have_the_same_format_and_any_head() {
        for len in [0, 1, 200, 240, 245, 250, 251, 252, 253, 256, 300, 5000] {
            let content = vec![7_u8; len];
            assert_eq!(&*write(&content), &bytes(&content)[..], "{len} bytes");
            assert_eq!(read(&write(&content)), Some(content.clone()));
            for head in [&[&b"h"[..]][..], &[b"", b"head"], &[&[9; 250], b"long"], &[&[9; 400]]] {
                let whole = [head.concat(), bytes(&content)].concat();
                assert_eq!(&*write_after(head, &content), &whole[..], "{len} bytes after {}", head.concat().len());
            }
        }
    }

    #[test]
    fn a_list_written_element_by_element_has_the_bytes_of_the_whole() {
        for len in [0_u32, 1, 127, 128, 5000] {
            let all: Vec<Option<u32>> = (0..len).map(|n| (n % 3 > 0).then_some(n * 7)).collect();
            let mut writer = ListWriter::default();
            all.iter().for_each(|element| writer.push(element));
            let written = writer.finish();
            assert_eq!(written, bytes(&all), "{len} elements");
            let mut back = Vec::new();
            assert_eq!(read_list(&written, |element: Option<u32>| back.push(element)), Some(()));
            assert_eq!(back, all);
            let mut damaged = written;
            *damaged.last_mut().expect("a checksum") ^= 1;
            assert_eq!(read_list(&damaged, |_: Option<u32>| panic!("damaged bytes are given out")), None);
        }
    }
}
