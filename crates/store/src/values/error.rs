//! Why values did not do what was asked.

use super::{EdgeName, ValueId};
use crate::{blobs, records};
use onceflow_core::Name;

/// Why values did not do what was asked. Unless it says otherwise, nothing changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Referred to, and neither stored nor put before.
    #[error("value {id} is missing: it was never put, or has been reclaimed")]
    Missing {
        /// Which.
        id: ValueId,
    },
    /// Put again as something else. A value is what it was first put as, until it is reclaimed.
    #[error("value {id} is stored already with other references or content")]
    Conflict {
        /// Which.
        id: ValueId,
    },
    /// An edge is not what it was expected to be, nor what it was to become.
    #[error("edge {edge} is not what was expected: {}", found.as_ref().map_or("not set".into(), |id| format!("set to {id}")))]
    Stale {
        /// Which.
        edge: EdgeName,
        /// What it is set to.
        found: Option<ValueId>,
    },
    /// A lease that has ended, or was never taken, cannot be renewed.
    #[error("lease {edge} is lost: it has expired, or was cleared")]
    LeaseLost {
        /// Which.
        edge: EdgeName,
    },
    /// The elements under a prefix belong to a list, or are being released.
    #[error("the elements under {} are sealed", String::from_utf8_lossy(prefix.as_bytes()))]
    Sealed {
        /// Which.
        prefix: Name,
    },
    /// An upload that took longer than [`UPLOAD_MS_MAX`](super::limits::UPLOAD_MS_MAX), or was used for a blob that
    /// is gone again. Upload it again.
    #[error("the upload of {id} is lost: it took too long, or its blob has been reclaimed")]
    UploadLost {
        /// The blob.
        id: ValueId,
    },
    /// A value that was damaged beyond repair, and that somebody still refers to. Putting it again heals it.
    #[error("value {id} is lost: it was damaged, and fsck has put a placeholder in its place")]
    Lost {
        /// Which.
        id: ValueId,
    },
    /// The object of a blob is missing, or not what was stored. Nobody was given any of it.
    #[error("the bytes of value {id} are damaged: {why}")]
    Broken {
        /// Which.
        id: ValueId,
        /// How it shows.
        why: String,
    },
    /// A row that cannot be what was written.
    #[error("{what} is damaged; run fsck with repair")]
    Damaged {
        /// What.
        what: String,
    },
    /// Over a bound of [`limits`](super::limits).
    #[error("{what}: {found} is over the limit of {limit} ({name})")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large.
        found: usize,
        /// The bound.
        limit: usize,
        /// Its name.
        name: &'static str,
    },
    /// A request that cannot be meant.
    #[error("{0}")]
    Senseless(String),
    /// Others were faster, a thousand times in a row.
    #[error("the rows needed for this kept changing; tried {0} times")]
    Contended(usize),
    /// The store did not answer. Of an update nothing has happened, unless a reply was lost
    /// ([`records::Error::Unknown`]): then all or nothing has.
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
        /// Where.
        path: std::path::PathBuf,
        /// Why.
        why: String,
    },
}

impl Error {
    pub(super) fn damaged(what: impl ToString) -> Self {
        Error::Damaged { what: what.to_string() }
    }
}
