//! The rows beside the values: edges, elements, seals, debts, and the sweeper's.

use super::{body, checked, put_id, take_id, time};
use crate::values::{EdgeName, Element, Error, ValueId};
use onceflow_core::{Fence, Name, Row, Timestamp};

/// An edge: what it keeps alive, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::values) struct Edge {
    pub(in crate::values) target: ValueId,
    pub(in crate::values) deadline: Option<Timestamp>,
}

const EDGE: u8 = 1;
const INLINE: u8 = 2;

impl Edge {
    pub(in crate::values) fn to_row(&self) -> Row {
        // A root has no deadline, which is the one that is never reached.
        let deadline = self.deadline.unwrap_or(Timestamp::NEVER);
        checked(&[&[EDGE], &deadline.to_sortable(), self.target.as_bytes()])
    }

    /// `None` if it is damaged, or no edge.
    pub(in crate::values) fn from_row(row: &[u8]) -> Option<Self> {
        match Standing::from_row(row)? {
            Standing::Edge(edge) => Some(edge),
            Standing::Inline(_) => None,
        }
    }

    /// The edge of this name, or why there is none in its row.
    pub(in crate::values) fn read(name: &EdgeName, row: &[u8]) -> Result<Self, Error> {
        match Standing::from_row(row) {
            Some(Standing::Edge(edge)) => Ok(edge),
            Some(Standing::Inline(_)) => Err(Error::Senseless(format!("element {name} holds bytes, and is no edge"))),
            None => Err(Error::damaged(format!("edge {name}"))),
        }
    }
}

/// What stands under the name of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::values) enum Standing {
    Edge(Edge),
    /// An element's bytes.
    Inline(Row),
}

impl Standing {
    /// The row of an element that holds its bytes.
    pub(in crate::values) fn inline_row(bytes: &[u8]) -> Row {
        checked(&[&[INLINE], bytes])
    }

    /// `None` if it is damaged.
    pub(in crate::values) fn from_row(row: &[u8]) -> Option<Self> {
        match body(row)?.split_first()? {
            (&EDGE, rest) => {
                let (deadline, target) = rest.split_at_checked(8)?;
                let deadline = time(deadline)?;
                let deadline = (deadline != Timestamp::NEVER).then_some(deadline);
                Some(Standing::Edge(Edge { target: ValueId::checked(target)?, deadline }))
            }
            (&INLINE, bytes) => Some(Standing::Inline(Row::new(bytes))),
            _ => None,
        }
    }

    pub(in crate::values) fn into_element(self) -> Element {
        match self {
            Standing::Edge(edge) => Element::Ref(edge.target),
            Standing::Inline(bytes) => Element::Inline(bytes),
        }
    }
}

/// Why no element under a prefix may be set any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::values) enum Seal {
    /// This list owns them.
    OwnedBy(ValueId),
    /// They are being released.
    Released,
}

impl Seal {
    pub(in crate::values) fn to_row(&self) -> Row {
        match self {
            Seal::OwnedBy(list) => checked(&[list.as_bytes()]),
            Seal::Released => checked(&[]),
        }
    }

    pub(in crate::values) fn from_row(row: &[u8]) -> Option<Self> {
        match body(row)? {
            [] => Some(Seal::Released),
            list => ValueId::checked(list).map(Seal::OwnedBy),
        }
    }
}

/// What is still to be done for values that are buried already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::values) enum Debt {
    /// Take so much from each of these counts.
    Decrements(Vec<(ValueId, u32)>),
    /// Clear every edge under this prefix, then take its seal away.
    Release(Name),
}

const DECREMENTS: u8 = b'd';
const RELEASE: u8 = b'p';

impl Debt {
    /// The name of the row that holds decrements left over by the batch that took this turn.
    pub(in crate::values) fn decrements_name(turn: Fence) -> Name {
        Name::join(&[&[DECREMENTS], &turn.to_bytes()])
    }

    /// The name of the row that says that a prefix is to be released.
    pub(in crate::values) fn release_name(prefix: &Name) -> Name {
        Name::join(&[&[RELEASE], prefix.as_bytes()])
    }

    /// The row of some decrements.
    pub(in crate::values) fn decrements_row<'a>(owed: impl IntoIterator<Item = (&'a ValueId, u32)>) -> Row {
        let mut bytes = Vec::new();
        for (id, n) in owed {
            bytes.extend_from_slice(&n.to_le_bytes());
            put_id(&mut bytes, id);
        }
        checked(&[&bytes])
    }

    /// The row that says that a prefix is to be released: its name says it all.
    pub(in crate::values) fn release_row() -> Row {
        checked(&[])
    }

    pub(in crate::values) fn read(name: &[u8], row: &[u8]) -> Option<Self> {
        let mut bytes = body(row)?;
        match name.split_first()? {
            (&RELEASE, prefix) => Some(Debt::Release(Name::new(prefix))),
            (&DECREMENTS, _) => {
                let mut owed = Vec::new();
                while !bytes.is_empty() {
                    let (n, rest) = bytes.split_first_chunk::<4>()?;
                    bytes = rest;
                    owed.push((ValueId::checked(take_id(&mut bytes)?)?, u32::from_le_bytes(*n)));
                }
                Some(Debt::Decrements(owed))
            }
            _ => None,
        }
    }
}

/// Whose turn it is to reclaim, and what the sweeper promised.
///
/// Every batch that reclaims requires this row as read and changes it. So nothing is buried between what such a
/// batch has read and the batch itself, and values need not be compared again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::values) struct Sweeper {
    /// Unique for ever.
    pub(in crate::values) turn: Fence,
    /// When it said it would be back.
    pub(in crate::values) back_by: Timestamp,
    /// Nothing expires before this, because the sweeper was away.
    pub(in crate::values) grace_until: Timestamp,
}

impl Sweeper {
    pub(in crate::values) fn to_row(self) -> Row {
        checked(&[&self.turn.to_bytes(), &self.back_by.to_sortable(), &self.grace_until.to_sortable()])
    }

    pub(in crate::values) fn from_row(row: &[u8]) -> Option<Self> {
        let (turn, times) = body(row)?.split_at_checked(Fence::BYTES)?;
        let (back_by, grace_until) = times.split_at_checked(8)?;
        Some(Sweeper { turn: Fence::from_bytes(turn)?, back_by: time(back_by)?, grace_until: time(grace_until)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_core::Fences;

    #[test]
    fn what_is_written_is_read_back() {
        let target = ValueId::new("a");
        for deadline in [None, Some(Timestamp::ZERO), Some(Timestamp::from_ms(7))] {
            let edge = Edge { target: target.clone(), deadline };
            assert_eq!(Edge::from_row(&edge.to_row()), Some(edge));
        }
        for bytes in [&b""[..], b"text"] {
            assert_eq!(Standing::from_row(&Standing::inline_row(bytes)), Some(Standing::Inline(Row::new(bytes))));
            assert_eq!(Edge::from_row(&Standing::inline_row(bytes)), None);
        }
        for seal in [Seal::Released, Seal::OwnedBy(target.clone())] {
            assert_eq!(Seal::from_row(&seal.to_row()), Some(seal));
        }
        let turn = Fences::new(1).next();
        let owed = vec![(target, 3), (ValueId::new([9; 256]), 1)];
        let row = Debt::decrements_row(owed.iter().map(|(id, n)| (id, *n)));
        let name = Debt::decrements_name(turn);
        assert_eq!(Debt::read(name.as_bytes(), &row), Some(Debt::Decrements(owed)));
        let prefix = Name::new("p");
        let name = Debt::release_name(&prefix);
        assert_eq!(Debt::read(name.as_bytes(), &Debt::release_row()), Some(Debt::Release(prefix)));
        let sweeper = Sweeper { turn, back_by: Timestamp::from_ms(5), grace_until: Timestamp::ZERO };
        assert_eq!(Sweeper::from_row(&sweeper.to_row()), Some(sweeper));
    }

    #[test]
    fn a_flipped_bit_is_seen() {
        let edge = Edge { target: ValueId::new("a"), deadline: None }.to_row();
        for row in [edge, Standing::inline_row(b"bytes"), Standing::inline_row(b"")] {
            let mut row = row.to_vec();
            for bit in 0..row.len() * 8 {
                row[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Standing::from_row(&row), None);
                row[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
