//! Why a paged store does not open.

use std::{io, path::PathBuf};

/// Why a paged store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The stored bytes are not those that were written.
    #[error("{what}\n  --> {}\nhint: keep a copy of the directory, then restore a backup", file.display())]
    Damaged {
        /// The symptom.
        what: String,
        /// In which file.
        file: PathBuf,
    },
    /// The file is gone, or is another store's.
    #[error(
        "{what}\n  --> {}\nhint: put back the file `pages` that belongs to this store, or remove the whole directory to begin anew; nothing \
         was changed",
        file.display()
    )]
    NotThisStore {
        /// The symptom.
        what: String,
        /// Where.
        file: PathBuf,
    },
    /// Written by a later version.
    #[error("{} has format {found}; this version reads up to {known}\nhint: use the version of onceflow that wrote it", file.display())]
    TooNew {
        /// The file.
        file: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format this code reads.
        known: u32,
    },
    /// The file system did not do what it was asked.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The failed operation.
        what: &'static str,
        /// Of what.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
}

impl OpenError {
    pub(super) fn io(what: &'static str, path: PathBuf) -> impl FnOnce(io::Error) -> OpenError {
        move |source| OpenError::Io { what, path, source }
    }
}
