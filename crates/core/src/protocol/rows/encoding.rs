//! How the content of a row is encoded: a version byte, the content, and a checksum.

use crate::row::Row;
use serde::{Serialize, de::DeserializeOwned};

pub(super) const VERSION: u8 = 1;

/// The version of rows that end with a checksum. A store on a server has no checksums of its own.
const CHECKED: u8 = 2;

/// Encodes a row, with a checksum.
pub fn write<T: Serialize>(content: &T) -> Row {
    Row::from(bytes(content))
}

/// Encodes content that is too large for a row, in the same format.
pub fn bytes<T: Serialize>(content: &T) -> Vec<u8> {
    let mut bytes = postcard::to_extend(content, vec![CHECKED]).expect("rows are plain data");
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
            (crc32fast::hash(content) == u32::from_le_bytes(*sum)).then_some(&content[1..])
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
