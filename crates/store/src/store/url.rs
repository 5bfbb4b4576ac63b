//! Stores by the scheme of their URL. A new backend adds a line to [`SCHEMES`].

use crate::backend::{embedded::EmbeddedBackend, journal, paged};
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// A kind of store that a URL can name.
pub struct Scheme {
    /// How such a URL begins.
    pub prefix: &'static str,
    /// The form of such a URL and the store it opens, for people.
    pub help: &'static str,
    kind: SchemeKind,
}

enum SchemeKind {
    /// A directory with the rows of this backend.
    Directory(fn() -> EmbeddedBackend),
    /// A server, which gets the whole URL.
    Server,
}

/// Every kind of store that a URL can name. Whatever begins otherwise is a directory, opened as the backend whose store is
/// there.
pub const SCHEMES: [Scheme; 4] = [
    Scheme {
        prefix: "journal:",
        help: "journal:DIR: a directory, all rows in memory behind a log; the default",
        kind: SchemeKind::Directory(|| journal::Options::default().into()),
    },
    Scheme {
        prefix: "paged:",
        help: "paged:DIR: a directory, rows in a file of pages, for state larger than memory",
        kind: SchemeKind::Directory(|| paged::Options::default().into()),
    },
    Scheme { prefix: "redis://", help: "redis://HOST: a server that machines share", kind: SchemeKind::Server },
    Scheme { prefix: "rediss://", help: "rediss://HOST: the same over TLS", kind: SchemeKind::Server },
];

/// The place of a store.
#[derive(Clone, Debug)]
pub enum StoreUrl {
    /// A directory, and the backend that the URL names.
    Directory(PathBuf, Option<EmbeddedBackend>),
    /// The URL of a server. It may hold a password.
    Server(String),
}

impl StoreUrl {
    /// Reads a URL, or the path of a directory. A URL with an unknown scheme before `://` counts as a server's: it is refused when
    /// it is connected to.
    pub fn parse(given: &Path) -> Self {
        let Some(text) = given.to_str() else { return StoreUrl::Directory(given.into(), None) };
        for scheme in &SCHEMES {
            let Some(rest) = text.strip_prefix(scheme.prefix) else { continue };
            return match scheme.kind {
                SchemeKind::Directory(backend) => StoreUrl::Directory(rest.into(), Some(backend())),
                SchemeKind::Server => StoreUrl::Server(text.to_owned()),
            };
        }
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
        match text.split_once("://") {
            Some((scheme, _)) if !scheme.is_empty() && scheme.chars().all(is_plain) => {
                StoreUrl::Server(text.to_owned())
            }
            _ => StoreUrl::Directory(given.into(), None),
        }
    }

    /// The same, where a relative directory is relative to this one.
    #[must_use]
    pub fn below(self, base: &Path) -> Self {
        match self {
            StoreUrl::Directory(path, backend) => StoreUrl::Directory(base.join(path), backend),
            StoreUrl::Server(url) => StoreUrl::Server(url),
        }
    }
}

/// The URL as [`StoreUrl::parse`] reads it.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Directory(path, Some(backend)) => write!(f, "{}:{}", backend.scheme(), path.display()),
            StoreUrl::Directory(path, None) => path.display().fmt(f),
            StoreUrl::Server(url) => f.write_str(url),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_of_a_url_says_which_store_it_is() {
        for (given, kind, below) in [
            ("plain", "directory None", "/base/plain"),
            ("/plain:colon", "directory None", "/plain:colon"),
            ("journal:rows", "directory Some(\"journal\")", "journal:/base/rows"),
            ("paged:/rows", "directory Some(\"paged\")", "paged:/rows"),
            ("redis://host", "server", "redis://host"),
            ("rediss://host", "server", "rediss://host"),
            ("mongo://host", "server", "mongo://host"),
            ("./paged:rows", "directory None", "/base/./paged:rows"),
        ] {
            let url = StoreUrl::parse(Path::new(given));
            let found = match &url {
                StoreUrl::Directory(_, backend) => {
                    format!("directory {:?}", backend.as_ref().map(EmbeddedBackend::scheme))
                }
                StoreUrl::Server(_) => String::from("server"),
            };
            assert_eq!((found.as_str(), url.below(Path::new("/base")).to_string().as_str()), (kind, below), "{given}");
        }
    }
}
