//! The rows that the owner of a directory has open: which backend they are in, and what an owner needs of it beyond
//! [`Records`].

use super::join::OpenError;
use crate::{
    backend::{
        journal::{self, ExpectedStore, Journal, Recovered, files::Files},
        paged::{self, Paged},
    },
    records::{Error, Records},
    state::StandingClaim,
    world::{BoxFuture, World},
};
use std::{io, path::Path, sync::Arc};

/// The backend of a store in a directory, with its settings. They matter when this process is, or becomes, the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbeddedBackend {
    /// All rows in memory, behind a log: the default.
    Journal(journal::Options),
    /// Rows in a file of pages, for state larger than memory.
    Paged(paged::Options),
}

impl Default for EmbeddedBackend {
    fn default() -> Self {
        EmbeddedBackend::Journal(journal::Options::default())
    }
}

impl From<journal::Options> for EmbeddedBackend {
    fn from(options: journal::Options) -> Self {
        EmbeddedBackend::Journal(options)
    }
}

impl From<paged::Options> for EmbeddedBackend {
    fn from(options: paged::Options) -> Self {
        EmbeddedBackend::Paged(options)
    }
}

impl EmbeddedBackend {
    /// The scheme of such a store's URL.
    pub fn scheme(&self) -> &'static str {
        match self {
            EmbeddedBackend::Journal(_) => "journal",
            EmbeddedBackend::Paged(_) => "paged",
        }
    }

    /// The backend of the store that is in a directory, with default settings; `None` if there is none.
    ///
    /// # Errors
    /// If the directory cannot be listed.
    pub fn found_in(dir: &Path) -> io::Result<Option<Self>> {
        match std::fs::read_dir(dir) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
            Ok(entries) => {
                let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
                Ok(found_among(&names.collect::<io::Result<Vec<_>>>()?))
            }
        }
    }

    /// The format of the files that this version writes for it.
    pub fn format(&self) -> u32 {
        match self {
            EmbeddedBackend::Journal(_) => journal::FORMAT,
            EmbeddedBackend::Paged(_) => paged::FORMAT,
        }
    }

    /// Refuses a directory that holds a store of another backend.
    pub(super) fn refuse_other(&self, dir: &Path, found: Option<EmbeddedBackend>) -> Result<(), OpenError> {
        match found {
            Some(found) if found.scheme() != self.scheme() => {
                Err(OpenError::OtherBackend { dir: dir.into(), found: found.scheme(), asked: self.scheme() })
            }
            _ => Ok(()),
        }
    }

    /// Opens the rows in a directory, unless they are another backend's.
    pub(super) fn open(
        &self,
        files: Arc<dyn Files>,
        world: Arc<dyn World>,
        known: ExpectedStore,
    ) -> Result<(Arc<dyn OwnedRecords>, Recovered), OpenError> {
        let names = files.list().map_err(OpenError::io("list", &files.path("")))?;
        self.refuse_other(&files.path(""), found_among(&names))?;
        Ok(match self {
            EmbeddedBackend::Journal(options) => {
                let (journal, recovered) = Journal::open_expecting(files, options.clone(), world, known)?;
                (Arc::new(journal), recovered)
            }
            EmbeddedBackend::Paged(options) => {
                let (paged, recovered) = Paged::open(files, options.clone(), world, known)?;
                (Arc::new(paged), recovered)
            }
        })
    }
}

/// The backend whose files are among these.
fn found_among(names: &[String]) -> Option<EmbeddedBackend> {
    let is_log = |name: &String| name.starts_with("log-") || name.starts_with("snap-");
    match () {
        () if names.iter().any(|name| name == paged::FILE_NAME) => Some(paged::Options::default().into()),
        () if names.iter().any(is_log) => Some(EmbeddedBackend::default()),
        () => None,
    }
}

/// Rows that a process owns. Claims in them are known to it alone.
pub(super) trait OwnedRecords: Records {
    /// The identity of the store, different from every other's, for ever.
    fn id(&self) -> u128;

    /// The claims that stand now.
    fn claims(&self) -> Vec<StandingClaim>;

    /// Suspends or resumes claims: while they are suspended, no claim finds a row.
    fn hold_grants(&self, held: bool);

    /// Claims are suspended.
    fn holds_grants(&self) -> bool;

    /// Waits until everything is written and no thread touches the files any more.
    fn close(&self) -> BoxFuture<'_, Result<(), Error>>;
}

/// Both have these as methods of their own, which tests use.
macro_rules! owned_records {
    ($backend:ty) => {
        impl OwnedRecords for $backend {
            fn id(&self) -> u128 {
                <$backend>::id(self)
            }

            fn claims(&self) -> Vec<StandingClaim> {
                <$backend>::claims(self)
            }

            fn hold_grants(&self, held: bool) {
                <$backend>::hold_grants(self, held);
            }

            fn holds_grants(&self) -> bool {
                <$backend>::holds_grants(self)
            }

            fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
                Box::pin(<$backend>::close(self))
            }
        }
    };
}

owned_records!(Journal);
owned_records!(Paged);
