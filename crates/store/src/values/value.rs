//! What a value is, and what an update asks for.

use super::{
    id::{EdgeName, ValueId},
    source::SourceFile,
};
use crate::blobs::ObjectName;
use onceflow_core::Name;

/// A digest of content that is stored elsewhere.
pub type Digest = [u8; 32];

/// What a value holds beside its references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// These bytes.
    Inline(Vec<u8>),
    /// The elements under a prefix, which it owns from now on; see [`Update::gather`].
    Gathered {
        /// What the elements' edges have in common.
        prefix: Name,
        /// How many there are.
        n: u64,
        /// What they amount to, as the caller computed it.
        digest: Digest,
    },
    /// A blob.
    Object {
        /// The object that holds its bytes.
        name: ObjectName,
        /// How many bytes.
        len: u64,
    },
    /// A file of the user's, by reference: see [`source`](super::source).
    Source(SourceFile),
}

impl Content {
    /// The bytes, if they are inline.
    pub fn as_inline(&self) -> Option<&[u8]> {
        match self {
            Content::Inline(bytes) => Some(bytes),
            Content::Gathered { .. } | Content::Object { .. } | Content::Source(_) => None,
        }
    }
}

/// A value as it was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// What it refers to, in order, as often as it does.
    pub refs: Vec<ValueId>,
    /// What it holds.
    pub content: Content,
}

/// Puts a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Its id.
    pub id: ValueId,
    /// What it is.
    pub value: Value,
}

/// What an edge must be for a change to happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// Whatever it is.
    #[default]
    Anything,
    /// Not set.
    Unset,
    /// Set to this value.
    Target(ValueId),
}

/// Changes an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeChange {
    /// Which.
    pub edge: EdgeName,
    /// To this value; `None` clears it.
    pub to: Option<ValueId>,
    /// Only if it is this, or already what it shall be.
    pub expect: Expect,
    /// Makes it a lease, which ends so much later on the store's clock unless it is renewed.
    pub ttl_ms: Option<u64>,
}

/// Values to put and edges to change: all of it, or nothing.
///
/// ```
/// use onceflow_store::values::{EdgeName, Update};
/// let root = EdgeName::root("result");
/// let update = Update::new().leaf("leaf", "text").put("list", ["leaf", "leaf"], "").set(&root, "list");
/// # assert_eq!((update.puts.len(), update.edges.len()), (2, 1));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// In an order where a value stands after those it refers to, unless they are stored already.
    pub puts: Vec<Put>,
    /// Each edge at most once.
    pub edges: Vec<EdgeChange>,
}

impl Update {
    /// Nothing yet.
    pub fn new() -> Self {
        Update::default()
    }

    /// Puts a value that refers to nothing.
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
    pub fn put_value(mut self, id: impl Into<ValueId>, value: Value) -> Self {
        self.puts.push(Put { id: id.into(), value });
        self
    }

    /// Puts a list that owns the elements under `prefix` from now on. Costs the same for any number of them: no
    /// count changes. Their edges can no longer be set, moved or cleared, and go when the list is buried.
    ///
    /// That there are `n` is the caller's word; `fsck` checks it.
    pub fn gather(self, id: impl Into<ValueId>, prefix: impl AsRef<[u8]>, n: u64, digest: Digest) -> Self {
        let content = Content::Gathered { prefix: Name::new(prefix), n, digest };
        self.put_value(id, Value { refs: vec![], content })
    }

    /// Changes an edge.
    pub fn change(mut self, change: EdgeChange) -> Self {
        self.edges.push(change);
        self
    }

    /// Sets an edge, whatever it was.
    pub fn set(self, edge: &EdgeName, to: impl Into<ValueId>) -> Self {
        let (edge, to) = (edge.clone(), Some(to.into()));
        self.change(EdgeChange { edge, to, expect: Expect::Anything, ttl_ms: None })
    }

    /// Sets an edge that ends by itself.
    pub fn lease(self, edge: &EdgeName, to: impl Into<ValueId>, ttl_ms: u64) -> Self {
        let (edge, to) = (edge.clone(), Some(to.into()));
        self.change(EdgeChange { edge, to, expect: Expect::Anything, ttl_ms: Some(ttl_ms) })
    }

    /// Moves an edge from one value to another.
    pub fn compare_and_set(self, edge: &EdgeName, from: Expect, to: impl Into<ValueId>) -> Self {
        let (edge, to) = (edge.clone(), Some(to.into()));
        self.change(EdgeChange { edge, to, expect: from, ttl_ms: None })
    }

    /// Clears an edge, whatever it was.
    pub fn clear(self, edge: &EdgeName) -> Self {
        self.change(EdgeChange { edge: edge.clone(), to: None, expect: Expect::Anything, ttl_ms: None })
    }
}
