//! The rows of edges, elements and seals.

use super::{body, checked, time};
use crate::values::{EdgeName, Element, Error, ValueId};
use onceflow_core::{Row, Timestamp};

/// An edge: its target, and its deadline if it is a lease.
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

    /// `None` if the row is damaged, or no edge.
    pub(in crate::values) fn from_row(row: &[u8]) -> Option<Self> {
        match Standing::from_row(row)? {
            Standing::Edge(edge) => Some(edge),
            Standing::Inline(_) => None,
        }
    }

    /// Reads the edge of this name, or the reason why its row holds none.
    pub(in crate::values) fn read(name: &EdgeName, row: &[u8]) -> Result<Self, Error> {
        match Standing::from_row(row) {
            Some(Standing::Edge(edge)) => Ok(edge),
            Some(Standing::Inline(_)) => Err(Error::Senseless(format!("element {name} holds bytes, and is no edge"))),
            None => Err(Error::damaged(format!("edge {name}"))),
        }
    }
}

/// The content of a row in `values.edges`.
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

    /// `None` if the row is damaged.
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

/// The reason why elements under a prefix can no longer be set.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_elements_and_seals_are_read_back_from_their_rows() {
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
