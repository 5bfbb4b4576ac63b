//! The errors of values.

use super::{EdgeName, ValueId};
use crate::{blobs, records};
use onceflow_core::Name;

/// Why an operation on values failed. Unless a variant says otherwise, nothing changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A value that was referred to is neither stored nor put earlier in the same update.
    #[error("value {id} is missing: it was never put, or has been reclaimed")]
    Missing {
        /// The value.
        id: ValueId,
    },
    /// A value was put again with other content. A value is what it was first put as, until it is reclaimed.
    #[error("value {id} is stored already with other references or content")]
    Conflict {
        /// The value.
        id: ValueId,
    },
    /// An edge is not what it was expected to be, nor what it was to become.
    #[error("edge {edge} is not what was expected: {}", found.as_ref().map_or("not set".into(), |id| format!("set to {id}")))]
    Stale {
        /// The edge.
        edge: EdgeName,
        /// Its present target.
        found: Option<ValueId>,
    },
    /// A lease that has ended, or was never taken, cannot be renewed.
    #[error("lease {edge} is lost: it has expired, or was cleared")]
    LeaseLost {
        /// The edge of the lease.
        edge: EdgeName,
    },
    /// The elements under a prefix belong to a list, or are being released.
    #[error("the elements under {} are sealed", String::from_utf8_lossy(prefix.as_bytes()))]
    Sealed {
        /// The prefix.
        prefix: Name,
    },
    /// The upload took longer than [`UPLOAD_MS_MAX`](super::limits::UPLOAD_MS_MAX), or became a blob that was reclaimed
    /// since. Upload the bytes again.
    #[error("the upload of {id} is lost: it took too long, or its blob has been reclaimed")]
    UploadLost {
        /// The blob.
        id: ValueId,
    },
    /// A value was damaged beyond repair, and others still refer to it. Putting it again heals it.
    #[error("value {id} is lost: it was damaged, and fsck has put a placeholder in its place")]
    Lost {
        /// The value.
        id: ValueId,
    },
    /// The object of a blob is missing, or not what was stored. None of its bytes were handed out.
    #[error("the bytes of value {id} are damaged: {why}")]
    Broken {
        /// The value.
        id: ValueId,
        /// The symptom.
        why: String,
    },
    /// A row does not decode to anything that could have been written.
    #[error("{what} is damaged; run fsck with repair")]
    Damaged {
        /// The damaged row.
        what: String,
    },
    /// The request exceeds a bound of [`limits`](super::limits).
    #[error("{what}: {found} is over the limit of {limit} ({name})")]
    TooLarge {
        /// The thing that is too large.
        what: &'static str,
        /// Its size.
        found: usize,
        /// The bound.
        limit: usize,
        /// The name of the bound.
        name: &'static str,
    },
    /// The request contradicts itself, or does not fit the value.
    #[error("{0}")]
    Senseless(String),
    /// Other writers changed the rows first, a thousand times in a row.
    #[error("the rows needed for this kept changing; tried {0} times")]
    Contended(usize),
    /// The store did not answer. An update was not applied, unless a reply was lost ([`records::Error::Unknown`]): then
    /// it was applied as a whole or not at all.
    #[error(transparent)]
    Records(#[from] records::Error),
    /// The blob store did not answer.
    #[error(transparent)]
    Blobs(#[from] blobs::Error),
    /// A file of the user's that a value refers to is gone, or has changed.
    #[error(transparent)]
    Source(Box<super::SourceError>),
    /// A file could not be written.
    #[error("cannot write {path:?}: {why}")]
    Export {
        /// The path of the file.
        path: std::path::PathBuf,
        /// The system's error.
        why: String,
    },
}

impl Error {
    pub(super) fn damaged(what: impl ToString) -> Self {
        Error::Damaged { what: what.to_string() }
    }
}
