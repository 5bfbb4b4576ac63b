//! The key of a row: (group, name) within a shard. A batch names its shard once, so an operation across shards cannot
//! be expressed.

mod short;

use serde::{Deserialize, Serialize};
use short::Short;
use std::fmt;

/// A part of a store that commits independently. References never cross shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shard(pub u16);

/// The kind of a group: how the store treats its rows beyond storing them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Kind {
    /// Plain rows.
    Rows = 0,
    /// Every row is ready work: free until a claim takes it. Its content is an [`Inbox`](crate::Inbox).
    Queue = 1,
    /// Row `n` holds the fence that has claimed row `n` of the queue with the same id. Volatile.
    Claims = 2,
    /// Row `n` holds the deadline of that claim. Volatile.
    Deadlines = 3,
}

impl Kind {
    /// Rows of this kind are not logged by an embedded store, so that claims cost no write. They become void when the
    /// process that made them ends; when another process owns the store next, surviving processes assert their claims
    /// before any is granted.
    #[inline]
    pub const fn is_volatile(self) -> bool {
        matches!(self, Kind::Claims | Kind::Deadlines)
    }

    /// Returns the kind with this number, if there is one.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Kind::Rows),
            1 => Some(Kind::Queue),
            2 => Some(Kind::Claims),
            3 => Some(Kind::Deadlines),
            _ => None,
        }
    }
}

/// Rows that are scanned together and can be deleted together: one run's rows, a queue, the values.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Group {
    kind: Kind,
    id: Name,
}

impl Group {
    /// Returns the group of plain rows with this id.
    pub fn rows(id: impl AsRef<[u8]>) -> Self {
        Group::of_kind(Kind::Rows, id)
    }

    /// Returns the queue with this id; its claims and deadlines are the groups [`Group::claims`] and
    /// [`Group::deadlines`].
    pub fn queue(id: impl AsRef<[u8]>) -> Self {
        Group::of_kind(Kind::Queue, id)
    }

    /// Returns the group of this kind with this id.
    pub fn of_kind(kind: Kind, id: impl AsRef<[u8]>) -> Self {
        Group { kind, id: Name::new(id) }
    }

    /// Returns the group of the claims on a queue's rows.
    pub fn claims(&self) -> Self {
        self.companion(Kind::Claims)
    }

    /// Returns the group of the deadlines of the claims on a queue's rows.
    pub fn deadlines(&self) -> Self {
        self.companion(Kind::Deadlines)
    }

    /// Returns the group of another kind with the same id.
    #[inline]
    pub fn companion(&self, kind: Kind) -> Self {
        Group { kind, id: self.id.clone() }
    }

    /// Returns the kind of the group.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the bytes that distinguish this group from others of its kind.
    #[inline]
    pub fn id(&self) -> &[u8] {
        self.id.as_bytes()
    }

    /// Returns the id as a name: names compare faster than byte slices.
    #[inline]
    pub fn id_name(&self) -> &Name {
        &self.id
    }

    /// Returns the key of a row in this group.
    #[inline]
    pub fn key(&self, name: impl AsRef<[u8]>) -> Key {
        Key { group: self.clone(), name: Name::new(name) }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Rows => write!(f, "{:?}", self.id),
            kind => write!(f, "{kind:?}({:?})", self.id),
        }
    }
}

/// The name of a row within its group. Names sort as their bytes do.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Name(Short);

impl Name {
    /// Returns the name with these bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        Name(Short::new(bytes.as_ref()))
    }

    /// Returns the name made of the bytes of all parts, one after the other.
    pub fn join(parts: &[&[u8]]) -> Self {
        Name(Short::join(parts))
    }

    /// Returns the name's bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl std::borrow::Borrow<[u8]> for Name {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The key of a row within its shard.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The group it is in.
    pub group: Group,
    /// Its name there.
    pub name: Name,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{:?}", self.group, self.name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_borrows_as_its_bytes_with_the_same_order() {
        let names = ["", "a", "a\0", "ab", "b"].map(Name::new);
        for pair in names.windows(2) {
            assert!(pair[0] < pair[1]);
            assert!(pair[0].as_bytes() < pair[1].as_bytes());
        }
    }

    #[test]
    fn kinds_keep_their_numbers_because_they_are_stored() {
        for kind in [Kind::Rows, Kind::Queue, Kind::Claims, Kind::Deadlines] {
            assert_eq!(Kind::from_number(kind as u8), Some(kind));
        }
        assert_eq!(Kind::from_number(4), None);
    }
}
