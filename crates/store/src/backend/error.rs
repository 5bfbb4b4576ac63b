//! Why a store in a directory does not open: what, where, and what to do.

use std::{io, path::PathBuf};

/// Why the rows in a directory cannot be opened. Nothing in the directory was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The stored bytes are not those that were written.
    #[error("{what}\n  --> {}{}\nhint: {hint}", file.display(), offset.map_or(String::new(), |offset| format!(", byte {offset}")))]
    Damaged {
        /// The symptom.
        what: String,
        /// In which file.
        file: PathBuf,
        /// Where in it, if that is one place.
        offset: Option<u64>,
        /// The advice for the user.
        hint: &'static str,
    },
    /// The files with the rows are gone, or are another store's.
    #[error(
        "{what}\n  --> {}\nhint: put back what belongs to this store ({files}), or remove the whole directory to begin anew; nothing was \
         changed",
        file.display()
    )]
    NotThisStore {
        /// The symptom.
        what: String,
        /// Where.
        file: PathBuf,
        /// The files that hold its rows.
        files: &'static str,
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
