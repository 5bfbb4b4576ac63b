//! Where the store is: `--store`, `ONCEFLOW_STORE`, the nearest `.onceflow/` upwards, or a new one here.

use crate::{codes, exit::Exit, fault::Fault};
use std::path::{Path, PathBuf};

/// What a store's directory is called.
pub(crate) const NAME: &str = ".onceflow";

/// A store's directory, there already or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    pub(crate) is_there: bool,
    /// Somebody named it.
    pub(crate) is_given: bool,
}

/// Finds the store, seen from `here`. `given` is what the option or the environment says.
pub(crate) fn find(given: Option<&Path>, here: &Path) -> Place {
    if let Some(given) = given {
        let directory = here.join(given);
        return Place { is_there: is_store(&directory), is_given: true, directory };
    }
    match here.ancestors().map(|above| above.join(NAME)).find(|directory| directory.is_dir()) {
        Some(directory) => Place { directory, is_there: true, is_given: false },
        None => Place { directory: here.join(NAME), is_there: false, is_given: false },
    }
}

/// An empty directory is a store that has nothing yet; one with other things in it is not ours to fill.
fn is_store(directory: &Path) -> bool {
    directory.is_dir()
}

impl Place {
    /// For commands that need something to be there.
    ///
    /// # Errors
    /// If there is no store.
    pub(crate) fn must_be_there(self) -> Result<Self, Fault> {
        if self.is_there {
            return Ok(self);
        }
        let message = format!("there is no store at {}", self.directory.display());
        Err(Fault::new(Exit::No, codes::NO_STORE, message)
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
        std::fs::create_dir_all(&self.directory).map_err(Fault::store("make", &self.directory))?;
        let ignore = self.directory.join(".gitignore");
        std::fs::write(&ignore, "*\n").map_err(Fault::store("write", &ignore))
    }

    /// Where talk about a run lies.
    pub(crate) fn run(&self, run: impl std::fmt::Display) -> PathBuf {
        self.directory.join("runs").join(run.to_string())
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
        assert_eq!(new, Place { directory: deep.join(NAME), is_there: false, is_given: false });
        assert!(new.clone().must_be_there().is_err());
        std::fs::create_dir(root.path().join("a").join(NAME)).unwrap();
        assert_eq!(find(None, &deep).directory, root.path().join("a").join(NAME));
        let given = find(Some(Path::new("other")), &deep);
        assert_eq!((given.directory.clone(), given.is_there), (deep.join("other"), false));
        given.make().unwrap();
        assert_eq!(std::fs::read_to_string(deep.join("other/.gitignore")).unwrap(), "*\n");
    }
}
