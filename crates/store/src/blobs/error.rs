//! The errors of a store of objects.

use super::ObjectName;
use std::{fmt, io, ops::Range, sync::Arc};

/// The failure of a store, and where it happened. [`Error::hint`] tells what to do about it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// There is no such object.
    #[error("object {name} is not in {place}")]
    Missing {
        /// The object.
        name: ObjectName,
        /// The store.
        place: Arc<str>,
    },
    /// The name holds other content, and keeps it.
    #[error("object {name} is already in {place}, with other content")]
    Exists {
        /// The object.
        name: ObjectName,
        /// The store.
        place: Arc<str>,
    },
    /// The object has no such bytes.
    #[error("object {name} in {place} has {len} bytes, which do not include {range:?}")]
    Range {
        /// The object.
        name: ObjectName,
        /// The store.
        place: Arc<str>,
        /// The bytes asked for.
        range: Range<u64>,
        /// The length of the object.
        len: u64,
    },
    /// The content to be stored could not be read, or was too large. Nothing was stored.
    #[error("the content of object {name} was not stored: {why}")]
    Content {
        /// The object.
        name: ObjectName,
        /// The reason.
        why: Arc<str>,
    },
    /// There is no room. Nothing changed.
    #[error("{place} has no room for this: {why}")]
    Full {
        /// The store.
        place: Arc<str>,
        /// The store's error.
        why: Arc<str>,
    },
    /// The store cannot be asked now. Nothing changed.
    #[error("{place} is unavailable: {why}")]
    Unavailable {
        /// The store.
        place: Arc<str>,
        /// The store's error.
        why: Arc<str>,
    },
    /// The change may have happened or not, or not durably.
    #[error("{place} did not confirm it, so whether it happened is not known: {why}")]
    Unknown {
        /// The store.
        place: Arc<str>,
        /// The store's error.
        why: Arc<str>,
    },
    /// The stored bytes are not those that were written.
    #[error("object {name} in {place} is damaged: {why}")]
    Damaged {
        /// The object.
        name: ObjectName,
        /// The store.
        place: Arc<str>,
        /// The symptom.
        why: Arc<str>,
    },
}

impl Error {
    /// The next step for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Missing { .. } => {
                "the same `onceflow run` computes it again; `fsck` tells if something refers to it"
            }
            Error::Exists { .. } => "a name is used once: make a new one from a new fence",
            Error::Range { .. } => "ask for bytes within the object; if its record says they are there, run `fsck`",
            Error::Content { .. } => "mend what produces the content and store it again under a new name",
            Error::Full { .. } => "make room (`onceflow gc` deletes what nothing needs) and try again",
            Error::Unavailable { .. } => "try again; if it stays, look at the path, the address and the permissions",
            Error::Unknown { .. } => "try again with the same name and content: it is compared, not stored twice",
            Error::Damaged { .. } => {
                "the same `onceflow run` computes it again; `onceflow fsck --deep` finds all there are"
            }
        }
    }

    pub(super) fn content(name: ObjectName, why: impl fmt::Display) -> Self {
        Error::Content { name, why: text(why) }
    }

    pub(super) fn unavailable(place: &Arc<str>, why: impl fmt::Display) -> Self {
        Error::Unavailable { place: place.clone(), why: text(why) }
    }

    pub(super) fn unknown(place: &Arc<str>, why: impl fmt::Display) -> Self {
        Error::Unknown { place: place.clone(), why: text(why) }
    }

    pub(super) fn damaged(name: ObjectName, place: &Arc<str>, why: impl fmt::Display) -> Self {
        Error::Damaged { name, place: place.clone(), why: text(why) }
    }

    pub(crate) fn of_other_length(name: ObjectName, wanted: u64, found: u64) -> Self {
        Error::damaged(name, &"the store".into(), format_args!("it should have {wanted} bytes, and has {found}"))
    }

    pub(crate) fn of_other_content(name: ObjectName, wanted: super::ContentInfo, found: super::ContentInfo) -> Self {
        if wanted.len != found.len {
            return Error::of_other_length(name, wanted.len, found.len);
        }
        let why =
            format_args!("the digest of its {} bytes should be {}, and is {}", wanted.len, wanted.digest, found.digest);
        Error::damaged(name, &"the store".into(), why)
    }

    /// The object is not there, or not what was stored.
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Missing { .. } | Error::Damaged { .. })
    }

    /// The error for a failed system call that changed nothing.
    pub(super) fn io(place: &Arc<str>, error: &io::Error) -> Self {
        if crate::fs::is_full(error) {
            return Error::Full { place: place.clone(), why: text(error) };
        }
        Error::unavailable(place, error)
    }
}

fn text(why: impl fmt::Display) -> Arc<str> {
    why.to_string().into()
}
