//! The groups of values: ten groups of plain rows per shard.
//!
//! | group | row |
//! |---|---|
//! | `values` | id → references and content; immutable |
//! | `values.counts` | id → how many references, edges and debts point at it; absent is zero |
//! | `values.edges` | edge → target and deadline; with the references, the truth. An element of a list may hold its bytes instead |
//! | `values.zero` | id → nothing: its count is or was zero, so it may be swept |
//! | `values.owed` | decrements still to be made, or a prefix whose edges are to be released |
//! | `values.due` | deadline and edge → nothing: which lease ends next |
//! | `values.sealed` | prefix → the list that owns it, or that it is being released |
//! | `values.uploads` | object → until when its upload may take |
//! | `values.unlink` | object → nothing: no value names it any more |
//! | `values.sweeper` | the turn to reclaim, and when the next sweep is scheduled; and the last trusted time |

use super::{EdgeName, ValueId};
use crate::blobs::ObjectName;
use onceflow_core::{Group, Key, Name, Timestamp};

/// The name of the row with the last trusted time.
pub(super) const WITNESS: &str = "time";

pub(super) struct Keys {
    pub(super) values: Group,
    pub(super) counts: Group,
    pub(super) edges: Group,
    pub(super) zero: Group,
    pub(super) owed: Group,
    pub(super) due: Group,
    pub(super) sealed: Group,
    pub(super) uploads: Group,
    pub(super) unlink: Group,
    pub(super) sweeper: Group,
}

impl Keys {
    pub(super) fn new() -> Self {
        Keys {
            values: Group::rows("values"),
            counts: Group::rows("values.counts"),
            edges: Group::rows("values.edges"),
            zero: Group::rows("values.zero"),
            owed: Group::rows("values.owed"),
            due: Group::rows("values.due"),
            sealed: Group::rows("values.sealed"),
            uploads: Group::rows("values.uploads"),
            unlink: Group::rows("values.unlink"),
            sweeper: Group::rows("values.sweeper"),
        }
    }

    /// All groups, for callers that read everything.
    pub(super) fn all(&self) -> [&Group; 10] {
        [
            &self.values,
            &self.counts,
            &self.edges,
            &self.zero,
            &self.owed,
            &self.due,
            &self.sealed,
            &self.uploads,
            &self.unlink,
            &self.sweeper,
        ]
    }

    pub(super) fn value(&self, id: &ValueId) -> Key {
        named(&self.values, id.name())
    }

    pub(super) fn count(&self, id: &ValueId) -> Key {
        named(&self.counts, id.name())
    }

    pub(super) fn zero(&self, id: &ValueId) -> Key {
        named(&self.zero, id.name())
    }

    pub(super) fn edge(&self, edge: &EdgeName) -> Key {
        named(&self.edges, &edge.to_row_name())
    }

    pub(super) fn due(&self, deadline: Timestamp, edge: &EdgeName) -> Key {
        self.due.key(Name::join(&[&deadline.to_sortable(), edge.to_row_name().as_bytes()]))
    }

    pub(super) fn sealed(&self, prefix: &Name) -> Key {
        named(&self.sealed, prefix)
    }

    pub(super) fn upload(&self, object: ObjectName) -> Key {
        self.uploads.key(object.fence().to_bytes())
    }

    pub(super) fn unlink(&self, object: ObjectName) -> Key {
        self.unlink.key(object.fence().to_bytes())
    }

    pub(super) fn sweeper(&self) -> Key {
        self.sweeper.key("")
    }

    /// The row with the last trusted time, beside the sweeper's.
    pub(super) fn witness(&self) -> Key {
        self.sweeper.key(WITNESS)
    }
}

fn named(group: &Group, name: &Name) -> Key {
    Key { group: group.clone(), name: name.clone() }
}

/// Reads the name of a row in `due`.
pub(super) fn read_due(name: &[u8]) -> Option<(Timestamp, EdgeName)> {
    let (deadline, edge) = name.split_at_checked(8)?;
    Some((Timestamp::from_sortable(deadline)?, EdgeName::from_row_name(edge)?))
}
