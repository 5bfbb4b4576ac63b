//! The row format of values. Every row carries a checksum, so that a flipped bit is detected before the row is used; the
//! references have one of their own, because sweeping a value must trust them and need not read the content.
//!
//! ```text
//! value   checksum of head · kind · checksum of content · references · content
//! others  checksum · the rest
//! ```

use super::{Content, FileStat, SourceFile, ValueId};
use crate::blobs::ObjectName;
use onceflow_core::{Digest, Fence, Name, Row, Timestamp};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf};

mod edge;
mod sweeper;

pub(super) use edge::{Edge, Seal, Standing};
pub(super) use sweeper::{Debt, Sweeper};

const INLINE: u8 = 1;
const GATHERED: u8 = 2;
const OBJECT: u8 = 3;
const LOST: u8 = 4;
const SOURCE: u8 = 5;

const KIND: usize = 4;
const CONTENT_SUM: usize = 5;
const REFS: usize = 9;

/// The row of a value.
pub(super) fn value_row(refs: &[ValueId], content: &Content) -> Row {
    match content {
        Content::Inline(bytes) => row(INLINE, refs, bytes),
        Content::Gathered { prefix, n, digest } => {
            row(GATHERED, refs, &[&n.to_le_bytes()[..], digest.as_bytes(), prefix.as_bytes()].concat())
        }
        Content::Object { name, len } => {
            row(OBJECT, refs, &[&name.fence().to_bytes()[..], &len.to_le_bytes()].concat())
        }
        Content::Source(source) => row(SOURCE, refs, &source_bytes(source)),
    }
}

/// The row of a value that could not be saved.
pub(super) fn lost_row() -> Row {
    row(LOST, &[], b"")
}

fn row(kind: u8, refs: &[ValueId], content: &[u8]) -> Row {
    let refs_bytes = refs.iter().map(|id| 1 + id.as_bytes().len()).sum::<usize>();
    let mut row = Vec::with_capacity(REFS + 2 + refs_bytes + content.len());
    row.extend_from_slice(&[0; KIND]);
    row.push(kind);
    row.extend_from_slice(&crc32fast::hash(content).to_le_bytes());
    let count = u16::try_from(refs.len()).expect("a value has at most limits::REFS_PER_VALUE_MAX references");
    row.extend_from_slice(&count.to_le_bytes());
    for id in refs {
        put_id(&mut row, id);
    }
    let sum = crc32fast::hash(&row[KIND..]);
    row[..KIND].copy_from_slice(&sum.to_le_bytes());
    row.extend_from_slice(content);
    Row::from(row)
}

/// An id's length is 1 to 256, so one byte holds it, less one.
fn put_id(row: &mut Vec<u8>, id: &ValueId) {
    row.push((id.as_bytes().len() - 1) as u8);
    row.extend_from_slice(id.as_bytes());
}

fn take_id<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first()?;
    let (id, rest) = rest.split_at_checked(usize::from(*length) + 1)?;
    *bytes = rest;
    Some(id)
}

/// A value's row whose references can be trusted.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    kind: u8,
    refs_count: u16,
    refs: &'a [u8],
    content: &'a [u8],
    content_sum: u32,
}

impl<'a> Head<'a> {
    /// `None` if the row is damaged before its content.
    pub(super) fn read(row: &'a [u8]) -> Option<Self> {
        let sum = u32::from_le_bytes(row.get(..KIND)?.try_into().ok()?);
        let content_sum = u32::from_le_bytes(row.get(CONTENT_SUM..REFS)?.try_into().ok()?);
        let (count, rest) = row.get(REFS..)?.split_first_chunk::<2>()?;
        let mut content = rest;
        for _ in 0..u16::from_le_bytes(*count) {
            take_id(&mut content)?;
        }
        let refs = &rest[..rest.len() - content.len()];
        let head = &row[KIND..row.len() - content.len()];
        let is_whole = crc32fast::hash(head) == sum;
        is_whole.then_some(Head { kind: row[KIND], refs_count: u16::from_le_bytes(*count), refs, content, content_sum })
    }

    pub(super) fn is_lost(&self) -> bool {
        self.kind == LOST
    }

    pub(super) fn is_source(&self) -> bool {
        self.kind == SOURCE
    }

    pub(super) fn refs_count(&self) -> usize {
        usize::from(self.refs_count)
    }

    /// The references, in order, as often as they occur.
    pub(super) fn refs(&self) -> impl Iterator<Item = ValueId> + use<'a> {
        let mut refs = self.refs;
        std::iter::from_fn(move || ValueId::checked(take_id(&mut refs)?))
    }

    /// [`Head::belongings`] returns a prefix or an object.
    pub(super) fn owns_something(&self) -> bool {
        matches!(self.kind, GATHERED | OBJECT)
    }

    /// The elements or object to be deleted with a swept value; `None` if its row is damaged. Reads nothing of an inline
    /// content.
    pub(super) fn belongings(&self) -> Option<Belongings> {
        match self.kind {
            INLINE | LOST | SOURCE => Some(Belongings::None),
            _ => match self.content()? {
                Content::Gathered { prefix, .. } => Some(Belongings::Prefix(prefix)),
                Content::Object { name, .. } => Some(Belongings::Object(name)),
                Content::Inline(_) | Content::Source(_) => Some(Belongings::None),
            },
        }
    }

    /// The content; `None` if it is damaged, or lost.
    pub(super) fn content(&self) -> Option<Content> {
        if crc32fast::hash(self.content) != self.content_sum {
            return None;
        }
        match self.kind {
            INLINE => Some(Content::Inline(self.content.to_vec())),
            GATHERED => {
                let (n, rest) = self.content.split_first_chunk::<8>()?;
                let (digest, prefix) = rest.split_first_chunk::<{ Digest::BYTES }>()?;
                Some(Content::Gathered {
                    prefix: Name::new(prefix),
                    n: u64::from_le_bytes(*n),
                    digest: Digest::from_bytes(*digest),
                })
            }
            OBJECT => {
                let (name, len) = self.content.split_at_checked(Fence::BYTES)?;
                let len = u64::from_le_bytes(len.try_into().ok()?);
                Some(Content::Object { name: ObjectName::new(Fence::from_bytes(name)?), len })
            }
            SOURCE => source_from_bytes(self.content).map(Content::Source),
            _ => None,
        }
    }

    /// No part of the row is damaged.
    pub(super) fn is_whole(&self) -> bool {
        self.is_lost() || self.content().is_some()
    }
}

/// The things a value owns beside its references.
pub(super) enum Belongings {
    None,
    /// All edges under this prefix.
    Prefix(Name),
    /// This object.
    Object(ObjectName),
}

/// The content of a value by reference.
fn source_bytes(source: &SourceFile) -> Vec<u8> {
    let FileStat { device, inode, len, modified_ns, changed_ns } = source.stat;
    [
        &source.digest.as_bytes()[..],
        &device.to_le_bytes(),
        &inode.to_le_bytes(),
        &len.to_le_bytes(),
        &modified_ns.to_le_bytes(),
        &changed_ns.to_le_bytes(),
        &[u8::from(source.is_settled)],
        source.path.as_os_str().as_bytes(),
    ]
    .concat()
}

/// Reads what [`source_bytes`] wrote.
fn source_from_bytes(mut rest: &[u8]) -> Option<SourceFile> {
    fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
        let (taken, rest) = bytes.split_first_chunk::<N>()?;
        *bytes = rest;
        Some(*taken)
    }
    let digest = Digest::from_bytes(take(&mut rest)?);
    let stat = FileStat {
        device: u64::from_le_bytes(take(&mut rest)?),
        inode: u64::from_le_bytes(take(&mut rest)?),
        len: u64::from_le_bytes(take(&mut rest)?),
        modified_ns: i128::from_le_bytes(take(&mut rest)?),
        changed_ns: i128::from_le_bytes(take(&mut rest)?),
    };
    let [is_settled] = take(&mut rest)?;
    let path = PathBuf::from(OsStr::from_bytes(rest));
    Some(SourceFile { path, digest, stat, is_settled: is_settled != 0 })
}

/// Puts a checksum in front.
pub(super) fn checked(parts: &[&[u8]]) -> Row {
    let mut row = vec![0; 4];
    for part in parts {
        row.extend_from_slice(part);
    }
    let sum = crc32fast::hash(&row[4..]);
    row[..4].copy_from_slice(&sum.to_le_bytes());
    Row::from(row)
}

/// The bytes after the checksum; `None` if the checksum does not match.
pub(super) fn body(row: &[u8]) -> Option<&[u8]> {
    let (sum, body) = row.split_first_chunk::<4>()?;
    (crc32fast::hash(body) == u32::from_le_bytes(*sum)).then_some(body)
}

fn time(bytes: &[u8]) -> Option<Timestamp> {
    Timestamp::from_sortable(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_rows() -> Vec<Row> {
        let refs = [ValueId::new("a"), ValueId::new([7; 256]), ValueId::new("a")];
        let gathered = Content::Gathered { prefix: Name::new("p"), n: 3, digest: Digest::of(b"list") };
        let object = Content::Object { name: ObjectName::new(onceflow_core::Fences::new(3).next()), len: 9 };
        let stat = FileStat { device: 1, inode: 2, len: 3, modified_ns: -4, changed_ns: 5 };
        let source = SourceFile { path: "/data/a".into(), digest: Digest::of(b"file"), stat, is_settled: true };
        let source = Content::Source(source);
        vec![
            value_row(&[], &Content::Inline(vec![])),
            value_row(&refs, &Content::Inline(b"text".to_vec())),
            value_row(&refs, &gathered),
            value_row(&[], &object),
            value_row(&[], &source),
            lost_row(),
        ]
    }

    #[test]
    fn a_value_is_read_as_it_was_put() {
        let refs = [ValueId::new("a"), ValueId::new([7; 256]), ValueId::new("a")];
        let content = Content::Inline(b"text".to_vec());
        let row = value_row(&refs, &content);
        let head = Head::read(&row).unwrap();
        assert_eq!(head.refs().collect::<Vec<_>>(), refs);
        assert_eq!(head.content(), Some(content));
    }

    #[test]
    fn any_flipped_bit_is_seen() {
        for row in some_rows() {
            assert!(Head::read(&row).unwrap().is_whole());
            for at in 0..row.len() * 8 {
                let mut bytes = row.to_vec();
                bytes[at / 8] ^= 1 << (at % 8);
                assert!(!Head::read(&bytes).is_some_and(|head| head.is_whole()), "bit {at} of {row:?}");
            }
        }
    }

    #[test]
    fn a_row_cut_short_is_seen() {
        for row in some_rows() {
            for length in 0..row.len() {
                assert!(!Head::read(&row[..length]).is_some_and(|head| head.is_whole()), "{length} of {row:?}");
            }
        }
    }
}
