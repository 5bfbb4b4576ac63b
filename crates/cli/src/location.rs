//! The location of the store: `--store`, `ONCEFLOW_STORE`, the nearest `.onceflow/` upwards, or a new one here. A store
//! on a server has a directory too, in the user's cache, for work directories and logs.

use crate::{codes, exit::Exit, fault::Fault, session::Who};
use onceflow_store::{
    backend::{embedded::EmbeddedBackend, redis::Address},
    store::StoreUrl,
    tree::Dir,
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// The name of a store's directory.
pub(crate) const NAME: &str = ".onceflow";

/// A store's directory, there already or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreLocation {
    pub(crate) directory: PathBuf,
    pub(crate) is_there: bool,
    /// An option, the environment or a setting names it.
    pub(crate) is_given: bool,
    /// The backend that the option names, if it is a directory.
    pub(crate) backend: Option<EmbeddedBackend>,
    /// The server it is on, if it is on one.
    pub(crate) server: Option<Server>,
    /// The most bytes that large values in it may take together.
    pub(crate) bytes_max: Option<u64>,
}

/// The address of a server. It may hold a password, so it is never shown as it is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Server(String);

impl Server {
    /// The address with its password, to connect to.
    pub(crate) fn url(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// The address without its password. One that is understood shows which store of the server it is.
impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Ok(address) = Address::parse(&self.0) {
            return address.fmt(f);
        }
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        // The host is behind the last `@`, whatever is in the password.
        let rest = rest.rsplit('@').next().unwrap_or_default();
        let host = rest.split(['?', '#']).next().unwrap_or_default();
        write!(f, "{scheme}://{host}")
    }
}

/// Returns the text that names a store, without the password of a server.
pub(crate) fn without_password(store: &Path) -> String {
    match StoreUrl::parse(store) {
        StoreUrl::Server(url) => Server(url).to_string(),
        StoreUrl::Directory(..) => store.display().to_string(),
    }
}

/// The directory for a store on a server: below the user's cache, by the server's address without its password.
fn cache(server: &Server) -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let base = base.or_else(|| set("HOME").map(|home| home.join(".cache"))).unwrap_or_else(std::env::temp_dir);
    base.join("onceflow").join(&blake3::hash(server.to_string().as_bytes()).to_hex()[..16])
}

/// Finds the store, seen from `here`. `given` is the store that the option or the environment names.
pub(crate) fn find(given: Option<&Path>, here: &Path) -> StoreLocation {
    let nowhere = StoreLocation {
        directory: here.join(NAME),
        is_there: false,
        is_given: given.is_some(),
        backend: None,
        server: None,
        bytes_max: None,
    };
    match given.map(StoreUrl::parse) {
        Some(StoreUrl::Server(url)) => {
            let server = Server(url);
            StoreLocation { directory: cache(&server), is_there: true, server: Some(server), ..nowhere }
        }
        Some(StoreUrl::Directory(given, backend)) => {
            let directory = here.join(given);
            StoreLocation { is_there: is_store(&directory), directory, backend, ..nowhere }
        }
        None => match here.ancestors().map(|above| above.join(NAME)).find(|directory| directory.is_dir()) {
            Some(directory) => StoreLocation { directory, is_there: true, ..nowhere },
            None => nowhere,
        },
    }
}

/// A directory that exists counts as a store; an empty one is a store without rows.
fn is_store(directory: &Path) -> bool {
    directory.is_dir()
}

impl StoreLocation {
    /// Returns which processes take the steps of its runs by default.
    pub(crate) fn who(&self) -> Who {
        if self.server.is_some() { Who::Any } else { Who::Attending }
    }

    /// Refuses a store that is not there, for commands that do not make one.
    ///
    /// # Errors
    /// If there is no store.
    pub(crate) fn must_be_there(self) -> Result<Self, Fault> {
        if self.is_there {
            return Ok(self);
        }
        let message = format!("there is no store at {self}");
        // A named store that does not exist is an error of usage; without a name, none may have been made here yet.
        let exit = if self.is_given { Exit::Usage } else { Exit::No };
        Err(Fault::new(exit, codes::NO_STORE, message)
            .hint("go to a directory where a flow was run, or name the store with `--store DIR`"))
    }

    /// Makes the directory, with a note that keeps it out of version control.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn make(&self) -> Result<(), Fault> {
        if self.is_there {
            return Ok(());
        }
        // Closed to other users from the first moment.
        let mut private = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(private.recursive(true), 0o700);
        private.create(&self.directory).map_err(Fault::store("make", &self.directory))?;
        let ignore = self.directory.join(".gitignore");
        std::fs::write(&ignore, "*\n").map_err(Fault::store("write", &ignore))
    }

    /// The line that names the store, if it was found in a directory above `here`, where people may not expect it.
    pub(crate) fn found_above(&self, here: &Path) -> Option<String> {
        let is_above =
            self.is_there && !self.is_given && self.server.is_none() && self.directory.parent() != Some(here);
        is_above.then(|| format!("using the store at {self}"))
    }

    /// The directory of a run: its work directories and logs.
    pub(crate) fn run(&self, run: impl std::fmt::Display) -> PathBuf {
        self.directory.join("runs").join(run.to_string())
    }

    /// Opens the directory of a run, and makes it if it is missing. Links below the store are not followed: a step may
    /// have put one there.
    ///
    /// # Errors
    /// If it cannot be made, or a link or a file is in its place.
    pub(crate) fn run_dir(&self, run: impl std::fmt::Display) -> io::Result<Dir> {
        std::fs::create_dir_all(&self.directory)?;
        Dir::open(&self.directory)?.make_beneath(&Path::new("runs").join(run.to_string()))
    }
}

impl std::fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.server {
            Some(server) => server.fmt(f),
            None => self.directory.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_store_upwards_is_found_and_a_given_one_wins() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b/c");
        std::fs::create_dir_all(&deep).unwrap();
        let new = find(None, &deep);
        assert_eq!(
            new,
            StoreLocation {
                directory: deep.join(NAME),
                is_there: false,
                is_given: false,
                backend: None,
                server: None,
                bytes_max: None
            }
        );
        assert!(new.clone().must_be_there().is_err());
        std::fs::create_dir(root.path().join("a").join(NAME)).unwrap();
        let above = find(None, &deep);
        assert_eq!(above.directory, root.path().join("a").join(NAME));
        assert!(above.found_above(&deep).is_some() && above.found_above(&root.path().join("a")).is_none());
        let given = find(Some(Path::new("other")), &deep);
        assert_eq!((given.directory.clone(), given.is_there), (deep.join("other"), false));
        assert_eq!(given.clone().must_be_there().map_err(|fault| fault.exit), Err(Exit::Usage));
        assert!(given.found_above(&deep).is_none());
        let paged = find(Some(Path::new("paged:other")), &deep);
        assert_eq!(paged.directory, given.directory);
        assert_eq!(paged.backend.map(|backend| backend.scheme()), Some("paged"));
        given.make().unwrap();
        assert_eq!(std::fs::read_to_string(deep.join("other/.gitignore")).unwrap(), "*\n");
    }

    #[test]
    fn the_password_in_the_address_of_a_server_is_never_shown() {
        for (url, shown) in [
            ("redis://host", "redis://host:6379/0"),
            ("redis://user:hunter2@host:6380/2?prefix=team", "redis://host:6380/2?prefix=team"),
            ("rediss://user:hunter2@host:6379/0?db=1&password=hunter2", "rediss://host:6379/0"),
            ("redis://:hunter2@host", "redis://host:6379/0"),
            ("redis://user:hunt@er2@host/1?what=ever", "redis://host/1"),
            ("redis://user:hunt/er2?#@host/1", "redis://host/1"),
        ] {
            let location = find(Some(Path::new(url)), Path::new("/here"));
            let told = format!("{location} {location:?}");
            assert!(!told.contains("hunter2") && !told.contains("er2"), "{told}");
            assert!(told.starts_with(&format!("{shown} ")), "{told}");
        }
        let of = |url: &str| find(Some(Path::new(url)), Path::new("/here")).directory;
        assert_eq!(of("redis://a:b@host/1"), of("redis://host/1"));
        assert_ne!(of("redis://host/1"), of("redis://host/2"));
        assert_ne!(of("redis://host/1"), of("redis://host/1?prefix=team"));
        assert_eq!(of("redis"), Path::new("/here/redis"));
    }
}
