//! A page: its level, how many elements are below it, and its name.

use super::super::ValueId;

/// The content of a page beside its references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageHead {
    /// Zero if it refers to elements, else above the highest of the pages it refers to.
    pub(super) level: u8,
    /// How many elements are below it.
    pub(super) len: u64,
}

const MARK: &[u8; 4] = b"page";

impl PageHead {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        [&MARK[..], &[self.level], &self.len.to_le_bytes()].concat()
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (level, len) = bytes.strip_prefix(MARK)?.split_first()?;
        Some(PageHead { level: *level, len: u64::from_le_bytes(len.try_into().ok()?) })
    }
}

/// A name derived from the content: short enough to be kept inline, long enough not to collide.
pub(super) fn name(kind: u8, head: &[u8], refs: &[ValueId]) -> ValueId {
    const DIGEST_BYTES: usize = 20;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[kind]).update(head);
    for id in refs {
        hasher.update(&(id.as_bytes().len() as u16).to_le_bytes()).update(id.as_bytes());
    }
    let mut bytes = [0; 1 + DIGEST_BYTES];
    bytes[0] = kind;
    bytes[1..].copy_from_slice(&hasher.finalize().as_bytes()[..DIGEST_BYTES]);
    ValueId::new(bytes)
}
