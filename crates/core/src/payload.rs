//! The payload of a connection: small values themselves, large values by reference.
//!
//! A small value is copied to every consumer, so it needs no counting; a large value is stored, and each holder of the payload
//! has an edge to it. A payload therefore has at most one reference.

use crate::{digest::Digest, row::Row, value::ValueId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A value of a port, as rows hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// The bytes themselves.
    Inline(Row),
    /// A short list, the elements themselves; an option may be none.
    List(#[serde(deserialize_with = "crate::model::program::nested::deeper")] Arc<[Option<Payload>]>),
    /// Bytes in the store.
    Stored(Stored),
    /// A list in the store: gathered, or one value that holds all elements.
    StoredList(Stored),
    /// A file in the store.
    File {
        /// Its name: the last part of a path, or a relative path inside a directory.
        name: String,
        /// Its content.
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
    /// Bytes, or elements of a list.
    pub len: u64,
}

impl Payload {
    /// The bytes themselves.
    pub fn inline(bytes: impl AsRef<[u8]>) -> Self {
        Payload::Inline(Row::new(bytes))
    }

    /// The one value of type unit: what JSON calls null.
    pub fn unit() -> Self {
        Payload::inline("null")
    }

    /// The stored value behind the payload, to which its holder needs an edge.
    pub fn stored(&self) -> Option<&Stored> {
        match self {
            Payload::Inline(_) | Payload::List(_) => None,
            Payload::Stored(stored) | Payload::StoredList(stored) | Payload::File { content: stored, .. } => {
                Some(stored)
            }
        }
    }

    /// How many elements, if it is a list.
    pub fn list_len(&self) -> Option<u64> {
        match self {
            Payload::List(elements) => Some(elements.len() as u64),
            Payload::StoredList(stored) => Some(stored.len),
            Payload::Inline(_) | Payload::Stored(_) | Payload::File { .. } => None,
        }
    }

    /// Equal for equal content, whether it is here or in the store.
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

/// The digest of an option.
pub fn digest_of(payload: Option<&Payload>) -> Digest {
    payload.map_or(Digest::NONE, Payload::digest)
}

/// The digest of a list, from those of its elements.
pub fn list_digest(elements: impl Iterator<Item = Digest>) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("onceflow list");
    let mut len: u64 = 0;
    for digest in elements {
        hasher.update(digest.as_bytes());
        len += 1;
    }
    hasher.update(&len.to_le_bytes());
    hasher.finalize().into()
}

/// The outcome delivered to a port. Every port is delivered one, or its consumer would wait for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// A value.
    Value(Payload),
    /// No value: an option that is none.
    None,
    /// A failure, with its cause. Delivered only where something handles it.
    Failed(Arc<str>),
}

impl Outcome {
    /// A value, or none.
    pub fn of(payload: Option<Payload>) -> Self {
        payload.map_or(Outcome::None, Outcome::Value)
    }

    /// The value, if it is one.
    pub fn value(&self) -> Option<&Payload> {
        match self {
            Outcome::Value(payload) => Some(payload),
            Outcome::None | Outcome::Failed(_) => None,
        }
    }

    /// A guard or a condition holds: the value is true in MessagePack.
    pub fn is_true(&self) -> bool {
        matches!(self, Outcome::Value(Payload::Inline(bytes)) if bytes[..] == [0xc3])
    }

    /// Equal for equal outcomes.
    pub fn digest(&self) -> Digest {
        match self {
            Outcome::Value(payload) => payload.digest(),
            Outcome::None => digest_of(None),
            Outcome::Failed(why) => Digest::of(why.as_bytes()),
        }
    }
}
