//! The rows of a queue, and the answer to a claim.
//!
//! A row of a queue says that a step is ready and where its inbox is. The row is *free* unless the queue's claims have
//! a row of the same name. A claim puts that row (the fence) and its deadline; the worker that finishes the step
//! deletes all three in the batch that commits it, requiring the fence. A step is given back, or taken from a worker
//! whose deadline has passed, by deleting the claim.

use crate::{
    fence::Fence,
    key::{Group, Kind, Name},
    limits::LANE_BYTES,
    row::Row,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// The content of a queue's row: where the step's inputs are, and a note for the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbox {
    /// The group that holds the inputs.
    pub group: Group,
    /// The inputs are the rows of that group whose names begin with this.
    pub prefix: Name,
    /// A note for the worker that claims the row; the store does not interpret it.
    pub note: Vec<u8>,
}

impl Inbox {
    /// Encodes the inbox as a row.
    pub fn to_row(&self) -> Row {
        Inbox::with_head(&self.group, self.prefix.as_bytes(), |head| {
            Row::from([&head.concat()[..], &self.note].concat())
        })
    }

    /// Hands on the bytes of a row before its note.
    pub(crate) fn with_head<T>(group: &Group, prefix: &[u8], rest: impl FnOnce(&[&[u8]]) -> T) -> T {
        let length = |part: &[u8]| {
            let length = u16::try_from(part.len()).expect("names are shorter than limits::NAME_BYTES_MAX");
            length.to_le_bytes()
        };
        rest(&[&[group.kind() as u8], &length(group.id()), group.id(), &length(prefix), prefix])
    }

    /// Decodes a row that [`Inbox::to_row`] encoded; `None` if the row is not an inbox.
    pub fn from_row(row: &[u8]) -> Option<Self> {
        let (kind, [id, prefix, note]) = parts(row)?;
        Some(Inbox { group: Group::of_kind(kind, id), prefix: Name::new(prefix), note: note.to_vec() })
    }

    /// Returns the group and the name prefix of the inputs, from a row that [`Inbox::to_row`] encoded.
    pub fn place(row: &[u8]) -> Option<(Group, &[u8])> {
        let (kind, [id, prefix, _]) = parts(row)?;
        Some((Group::of_kind(kind, id), prefix))
    }

    /// Returns the note, from a row that [`Inbox::to_row`] encoded.
    pub fn note(row: &[u8]) -> Option<&[u8]> {
        let (_, [.., note]) = parts(row)?;
        Some(note)
    }

    /// [`Inbox::from_row`] can decode this row.
    pub fn is_row(row: &[u8]) -> bool {
        parts(row).is_some()
    }
}

fn parts(row: &[u8]) -> Option<(Kind, [&[u8]; 3])> {
    let (kind, rest) = row.split_first()?;
    let (id, rest) = part(rest)?;
    let (prefix, note) = part(rest)?;
    Some((Kind::from_number(*kind)?, [id, prefix, note]))
}

fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))
}

/// Returns the lane of a queue row: the first bytes of its name. Claims take turns between lanes, so that a run with a
/// million ready steps does not starve a run with one. After a batch that leaves no row of a queue free, no lane is
/// waiting and the turn is forgotten: the next claim begins with the first lane.
pub fn lane(name: &[u8]) -> &[u8] {
    &name[..name.len().min(LANE_BYTES)]
}

/// The rule by which a claim chooses a free row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pick {
    /// Takes a row that this batch made ready (it put the row, or deleted its claim): the first it named, in whichever
    /// of the claim's queues; else the next lane's first. Keeps a chain of steps on its worker. Counts as that lane's
    /// turn.
    EnabledFirst,
    /// Takes the next lane's first row. Used now and then, so that a chain does not keep its worker for ever.
    InTurn,
}

/// A request for one free row, executed last in a batch. The claim takes one row or none; it never makes the batch
/// fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The queues to search; a later queue is searched only if the earlier ones have no free row.
    pub queues: Vec<Group>,
    /// The fence that the claim is recorded under. Use each fence for one claim: after a lost reply, the claim is found
    /// again by scanning the queues' claims for it.
    pub fence: Fence,
    /// How long the claim is valid unless its deadline is moved.
    pub ttl_ms: u64,
    /// The rule by which a free row is chosen.
    pub pick: Pick,
}

/// A claimed row, with its inputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// The queue it stands in.
    pub queue: Group,
    /// The row's name there, and that of its claim and deadline.
    pub name: Name,
    /// Its content, an [`Inbox`].
    pub row: Row,
    /// The inbox: its rows in order of their names, at most [`CLAIM_ROWS_MAX`](crate::limits::CLAIM_ROWS_MAX).
    pub inputs: Vec<(Name, Row)>,
    /// The inbox has more rows than were returned; read them by `scan`.
    pub more: bool,
    /// The time from which on another worker may take over the claim.
    pub deadline: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbox_survives_being_stored_and_nothing_else_reads_as_one() {
        let inbox = Inbox { group: Group::rows("run"), prefix: Name::new("a/3/"), note: vec![1, 2] };
        assert_eq!(Inbox::from_row(&inbox.to_row()), Some(inbox.clone()));
        assert_eq!(Inbox::note(&inbox.to_row()), Some(&inbox.note[..]));
        assert_eq!(Inbox::place(&inbox.to_row()), Some((inbox.group.clone(), inbox.prefix.as_bytes())));
        for cut in 0..inbox.to_row().len() - inbox.note.len() {
            assert_eq!(Inbox::from_row(&inbox.to_row()[..cut]), None, "cut at {cut}");
        }
        assert_eq!(Inbox::from_row(&[9, 0, 0, 0, 0]), None);
    }
}
