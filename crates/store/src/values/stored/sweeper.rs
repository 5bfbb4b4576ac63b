//! The rows of the sweeper: its turn, and the debts it has yet to pay.

use super::{body, checked, put_id, take_id, time};
use crate::values::ValueId;
use onceflow_core::{Fence, Name, Row, Timestamp};

/// Work that is left for values that were swept already.
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

    /// The name of the row of a prefix to be released.
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

    /// The row of a prefix to be released; the prefix is in its name.
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

/// The turn to reclaim, and the time of the next sweep.
///
/// Every batch that reclaims requires this row as read and changes it. So no value is swept between the reads of such a
/// batch and the batch itself, and values need not be compared again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::values) struct Sweeper {
    /// Unique for ever.
    pub(in crate::values) turn: Fence,
    /// When the next sweep is scheduled.
    pub(in crate::values) back_by: Timestamp,
    /// No lease expires before this, because the sweeper was away.
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
    fn turns_and_debts_are_read_back_from_their_rows() {
        let turn = Fences::new(1).next();
        let owed = vec![(ValueId::new("a"), 3), (ValueId::new([9; 256]), 1)];
        let row = Debt::decrements_row(owed.iter().map(|(id, n)| (id, *n)));
        let name = Debt::decrements_name(turn);
        assert_eq!(Debt::read(name.as_bytes(), &row), Some(Debt::Decrements(owed)));
        let prefix = Name::new("p");
        let name = Debt::release_name(&prefix);
        assert_eq!(Debt::read(name.as_bytes(), &Debt::release_row()), Some(Debt::Release(prefix)));
        let sweeper = Sweeper { turn, back_by: Timestamp::from_ms(5), grace_until: Timestamp::ZERO };
        assert_eq!(Sweeper::from_row(&sweeper.to_row()), Some(sweeper));
    }
}
