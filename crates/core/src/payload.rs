//! The payload of a connection: small values themselves, large values by reference.
//!
//! A small value is copied to every consumer, so it needs no counting; a large value is stored, and each holder of the
//! payload has an edge to it. A payload therefore has at most one reference.

use crate::{digest::Digest, row::Row, value::ValueId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A value of a port, as rows hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// The bytes, inline.
    Inline(Row),
    /// A short list with its elements inline; `None` is an element without a value.
    List(#[serde(deserialize_with = "crate::model::program::nested::deeper")] Arc<[Option<Payload>]>),
    /// Bytes in the store.
    Stored(Stored),
    /// A list in the store: gathered, or one value that holds all elements.
    StoredList(Stored),
    /// A file in the store.
    File {
        /// The file's name: the last part of a path, or a relative path inside a directory.
        name: String,
        /// The file's content.
        content: Stored,
    },
}

/// A reference to a stored value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The value's id.
    pub id: ValueId,
    /// The digest of its content.
    pub digest: Digest,
    /// The number of bytes, or of elements of a list.
    pub len: u64,
}

impl Payload {
    /// Returns a payload with these bytes inline.
    pub fn inline(bytes: impl AsRef<[u8]>) -> Self {
        Payload::Inline(Row::new(bytes))
    }

    /// Returns the only value of type unit, JSON's null.
    pub fn unit() -> Self {
        Payload::inline("null")
    }

    /// Returns the stored value behind the payload, to which its holder needs an edge.
    pub fn stored(&self) -> Option<&Stored> {
        match self {
            Payload::Inline(_) | Payload::List(_) => None,
            Payload::Stored(stored) | Payload::StoredList(stored) | Payload::File { content: stored, .. } => {
                Some(stored)
            }
        }
    }

    /// Returns the number of elements, if the payload is a list.
    pub fn list_len(&self) -> Option<u64> {
        match self {
            Payload::List(elements) => Some(elements.len() as u64),
            Payload::StoredList(stored) => Some(stored.len),
            Payload::Inline(_) | Payload::Stored(_) | Payload::File { .. } => None,
        }
    }

    /// Returns the digest of the content: equal for equal content, whether it is inline or stored.
    pub fn digest(&self) -> Digest {
        match self {
            Payload::Inline(bytes) => Digest::of(bytes),
            Payload::List(elements) => list_digest(elements.iter().map(|element| digest_of(element.as_ref()))),
            Payload::Stored(stored) | Payload::StoredList(stored) => stored.digest,
            Payload::File { name, content } => {
                let mut hasher = blake3::Hasher::new_derive_key("onceflow file");
                hasher.update(content.digest.as_bytes()).update(name.as_bytes());
                hasher.finalize().into()
            }
        }
    }
}

/// Returns the digest of an option.
pub fn digest_of(payload: Option<&Payload>) -> Digest {
    payload.map_or(Digest::NONE, Payload::digest)
}

/// Returns the digest of a list, from those of its elements.
pub fn list_digest(elements: impl Iterator<Item = Digest>) -> Digest {
    let mut hasher = ListHasher::default();
    elements.for_each(|digest| hasher.push(digest));
    hasher.finish()
}

/// Computes the digest of a list element by element.
pub struct ListHasher {
    hasher: blake3::Hasher,
    len: u64,
}

impl Default for ListHasher {
    fn default() -> Self {
        ListHasher { hasher: blake3::Hasher::new_derive_key("onceflow list"), len: 0 }
    }
}

impl ListHasher {
    /// Appends the digest of an element.
    pub fn push(&mut self, element: Digest) {
        self.hasher.update(element.as_bytes());
        self.len += 1;
    }

    /// The number of elements so far.
    pub fn count(&self) -> u64 {
        self.len
    }

    /// The digest of the list.
    pub fn finish(mut self) -> Digest {
        self.hasher.update(&self.len.to_le_bytes());
        self.hasher.finalize().into()
    }
}

/// The outcome delivered to a port. Every port gets one; otherwise its consumer would wait for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// A value.
    Value(Payload),
    /// No value: an option that is none.
    None,
    /// A failure, with its cause. Delivered only where a module with `attempt` around it handles the failure.
    Failed(Arc<str>),
}

impl Outcome {
    /// Returns the outcome for a payload, or [`Outcome::None`].
    pub fn of(payload: Option<Payload>) -> Self {
        payload.map_or(Outcome::None, Outcome::Value)
    }

    /// Returns the payload, if the outcome is a value.
    pub fn value(&self) -> Option<&Payload> {
        match self {
            Outcome::Value(payload) => Some(payload),
            Outcome::None | Outcome::Failed(_) => None,
        }
    }

    /// Returns the payload, if the outcome is a value.
    pub fn into_value(self) -> Option<Payload> {
        match self {
            Outcome::Value(payload) => Some(payload),
            Outcome::None | Outcome::Failed(_) => None,
        }
    }

    /// The outcome is the value true (in MessagePack): a guard or a condition holds.
    pub fn is_true(&self) -> bool {
        matches!(self, Outcome::Value(Payload::Inline(bytes)) if bytes[..] == [0xc3])
    }

    /// Returns the digest: equal for equal outcomes.
    pub fn digest(&self) -> Digest {
        match self {
            Outcome::Value(payload) => payload.digest(),
            Outcome::None => digest_of(None),
            Outcome::Failed(why) => Digest::of(why.as_bytes()),
        }
    }
}
