//! Values as data: immutable content that refers to other values, the edges that keep it alive, and the changes to
//! both.
//! `onceflow_store::values` stores them.

mod change;
pub mod id;
mod object;
pub mod source;

pub use change::{Element, Expect, Update, ValueChange};
pub use id::{EdgeName, ValueId};
pub use object::{BadName, ObjectName};
pub use source::{FileStat, SourceFile};

use crate::{digest::Digest, key::Name};

/// A value, as it was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The values it refers to, in order and with repetitions. It keeps them alive.
    pub refs: Vec<ValueId>,
    /// Its own content.
    pub content: Content,
}

/// The content of a value, beside its references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes in the value's row.
    Inline(Vec<u8>),
    /// A list that owns the elements under a prefix; see [`ValueChange::gather`].
    Gathered {
        /// The prefix of the elements' edges.
        prefix: Name,
        /// The number of elements.
        n: u64,
        /// The digest of the list, as the caller computed it.
        digest: Digest,
    },
    /// A blob.
    Object {
        /// The object that holds its bytes.
        name: ObjectName,
        /// The number of bytes.
        len: u64,
    },
    /// A file of the user's, by reference.
    Source(SourceFile),
}

impl Content {
    /// Returns the bytes, if they are inline.
    pub fn as_inline(&self) -> Option<&[u8]> {
        match self {
            Content::Inline(bytes) => Some(bytes),
            Content::Gathered { .. } | Content::Object { .. } | Content::Source(_) => None,
        }
    }
}
