//! Changes to values, as the protocol's drafts, the engine's batches and the store's updates all describe them.
//!
//! A change is applied in one of two ways. An [`Update`] reads the rows it concerns and refuses a change that does not
//! fit. A caller's batch takes a change as valid without reading anything, because the batch's own requires guarantee
//! it; only blobs, [`ValueChange::RequireValue`] and [`ValueChange::ReleaseHold`] are read and required there.

use super::{
    Content, Value,
    id::{EdgeName, ValueId},
};
use crate::{digest::Digest, key::Name, row::Row, time::Timestamp};

/// A change to values. Changes apply in order: a value comes before its referents' edges, an element before the list
/// that gathers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueChange {
    /// Puts a value. If no change refers to it, it is garbage from birth.
    ///
    /// In a caller's batch the id must be new ([`ValueId::of_fence`]), unless the content is a blob: a blob's id is the
    /// digest of its content, so it may be stored already. A gathered list owns its elements from now on.
    Put {
        /// The value's id.
        id: ValueId,
        /// The value. Its references are put earlier, or held by an edge that the batch keeps.
        value: Value,
    },
    /// Requires that a value exists, because the batch refers to it and it may have been reclaimed meanwhile.
    RequireValue {
        /// The value's id.
        id: ValueId,
    },
    /// Clears the lease on outputs that were written before this batch, and requires that it is still held.
    ReleaseHold {
        /// The lease.
        edge: EdgeName,
    },
    /// Sets an edge that is not set.
    Set {
        /// The edge, unique to this delivery.
        edge: EdgeName,
        /// A value put earlier in this batch, or held by an edge that the batch keeps.
        to: ValueId,
        /// Makes the edge a lease that expires then.
        deadline: Option<Timestamp>,
    },
    /// Clears an edge whose target and deadline are known.
    Clear {
        /// The edge.
        edge: EdgeName,
        /// Its target.
        from: ValueId,
        /// Its deadline, if it is a lease. A lease that may be renewed or expire meanwhile needs [`ValueChange::Move`].
        deadline: Option<Timestamp>,
    },
    /// Reads an edge, then sets, moves or clears it. Only in an [`Update`].
    Move {
        /// The edge.
        edge: EdgeName,
        /// The new target; `None` clears the edge.
        to: Option<ValueId>,
        /// The required current target. An edge that is already as wanted is accepted.
        expect: Expect,
        /// Makes the edge a lease that expires this much later on the store's clock, unless it is renewed.
        ttl_ms: Option<u64>,
    },
    /// Puts an element of a list that will be gathered, or released, under this prefix.
    Element {
        /// The prefix of all elements of the list; neither gathered nor released yet.
        prefix: Name,
        /// The element's index, used once.
        index: u64,
        /// The element.
        element: Element,
    },
    /// Deletes every element under a prefix that no list owns, in small steps of the reclaim loop.
    Release {
        /// The prefix; neither gathered nor released before.
        prefix: Name,
    },
}

/// An element of a list that is gathered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    /// A value, which the element keeps alive.
    Ref(ValueId),
    /// The bytes themselves.
    Inline(Row),
    /// Bytes that describe a value. Stored as a small value with these bytes that refers to `to`, and read back as a
    /// [`Element::Ref`] to that small value.
    Described {
        /// The description.
        bytes: Row,
        /// The value, which the element keeps alive.
        to: ValueId,
    },
}

/// The required state of an edge before it is moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// Any state.
    #[default]
    Anything,
    /// Not set.
    Unset,
    /// Set to this value.
    Target(ValueId),
}

impl ValueChange {
    /// Sets a root.
    pub fn set(edge: EdgeName, to: ValueId) -> Self {
        ValueChange::Set { edge, to, deadline: None }
    }

    /// Sets a lease that expires at `deadline`.
    pub fn lease(edge: EdgeName, to: ValueId, deadline: Timestamp) -> Self {
        ValueChange::Set { edge, to, deadline: Some(deadline) }
    }

    /// Clears a root.
    pub fn clear(edge: EdgeName, from: ValueId) -> Self {
        ValueChange::Clear { edge, from, deadline: None }
    }

    /// Puts a list that owns the elements under `prefix` from now on. The cost does not depend on their number: no
    /// count changes. Their edges can no longer be set, moved or cleared, and go when the list is reclaimed.
    ///
    /// The caller vouches for `n`; `fsck` checks it.
    pub fn gather(id: ValueId, prefix: Name, n: u64, digest: Digest) -> Self {
        ValueChange::Put { id, value: Value { refs: vec![], content: Content::Gathered { prefix, n, digest } } }
    }

    /// Returns an upper bound of the operations it takes in a batch, those in triggers included.
    pub fn ops(&self) -> usize {
        /// A count that changes, and the operation that follows at zero.
        const COUNT: usize = 2;
        match self {
            ValueChange::Put { value, .. } => {
                let beside = match value.content {
                    Content::Inline(_) | Content::Source(_) => 0,
                    // The upload's row or the list's seal.
                    Content::Object { .. } | Content::Gathered { .. } => 1,
                };
                1 + beside + COUNT + COUNT * value.refs.len()
            }
            ValueChange::RequireValue { .. } => 0,
            ValueChange::ReleaseHold { .. } => 2 + COUNT,
            ValueChange::Set { deadline, .. } | ValueChange::Clear { deadline, .. } => {
                1 + COUNT + usize::from(deadline.is_some())
            }
            ValueChange::Move { .. } => 3 + 2 * COUNT,
            ValueChange::Element { element, .. } => match element {
                Element::Inline(_) => 1,
                Element::Ref(_) => 1 + COUNT,
                Element::Described { .. } => 2 + 2 * COUNT,
            },
            ValueChange::Release { .. } => 2,
        }
    }
}

/// Changes that are applied together or not at all, each checked against the store.
///
/// ```
/// use onceflow_core::value::{EdgeName, Update};
/// let root = EdgeName::root("result");
/// let update = Update::new().leaf("leaf", "text").put("list", ["leaf", "leaf"], "").set(&root, "list");
/// # assert_eq!(update.changes.len(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// The changes. A value comes after those it refers to, unless they are stored already; each edge occurs once.
    pub changes: Vec<ValueChange>,
}

impl Update {
    /// Creates an update without changes.
    pub fn new() -> Self {
        Update::default()
    }

    /// Adds a change.
    pub fn change(mut self, change: ValueChange) -> Self {
        self.changes.push(change);
        self
    }

    /// Puts a value without references.
    pub fn leaf(self, id: impl Into<ValueId>, content: impl AsRef<[u8]>) -> Self {
        self.put(id, [] as [ValueId; 0], content)
    }

    /// Puts a value with inline content and these references.
    pub fn put<R: Into<ValueId>>(
        self,
        id: impl Into<ValueId>,
        refs: impl IntoIterator<Item = R>,
        content: impl AsRef<[u8]>,
    ) -> Self {
        let refs = refs.into_iter().map(Into::into).collect();
        self.put_value(id, Value { refs, content: Content::Inline(content.as_ref().to_vec()) })
    }

    /// Puts a value of any kind.
    pub fn put_value(self, id: impl Into<ValueId>, value: Value) -> Self {
        self.change(ValueChange::Put { id: id.into(), value })
    }

    /// Puts a gathered list; see [`ValueChange::gather`].
    pub fn gather(self, id: impl Into<ValueId>, prefix: impl AsRef<[u8]>, n: u64, digest: Digest) -> Self {
        self.change(ValueChange::gather(id.into(), Name::new(prefix), n, digest))
    }

    /// Sets an edge, whatever its current target.
    pub fn set(self, edge: &EdgeName, to: impl Into<ValueId>) -> Self {
        self.move_edge(edge, Some(to.into()), Expect::Anything, None)
    }

    /// Sets an edge that expires after `ttl_ms`.
    pub fn lease(self, edge: &EdgeName, to: impl Into<ValueId>, ttl_ms: u64) -> Self {
        self.move_edge(edge, Some(to.into()), Expect::Anything, Some(ttl_ms))
    }

    /// Moves an edge from one value to another.
    pub fn compare_and_set(self, edge: &EdgeName, from: Expect, to: impl Into<ValueId>) -> Self {
        self.move_edge(edge, Some(to.into()), from, None)
    }

    /// Clears an edge, whatever its current target.
    pub fn clear(self, edge: &EdgeName) -> Self {
        self.move_edge(edge, None, Expect::Anything, None)
    }

    fn move_edge(self, edge: &EdgeName, to: Option<ValueId>, expect: Expect, ttl_ms: Option<u64>) -> Self {
        self.change(ValueChange::Move { edge: edge.clone(), to, expect, ttl_ms })
    }
}
