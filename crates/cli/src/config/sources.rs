//! Decides which input files are read in place, and which are copied into the store.
//!
//! A store in a directory belongs to one machine, whose steps find every file at its path. On a server's store, steps
//! of other machines find a file only if all machines share its path: such directories are declared (`shared_paths`).

use crate::location::StoreLocation;
use std::path::{Path, PathBuf};

/// The policy for input files, from the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourcePolicy {
    /// Input files are copied, even if the flow does not ask for it.
    pub(crate) stored: bool,
    /// Directories that all machines find at the same path.
    pub(crate) shared: Vec<PathBuf>,
}

/// The files that are referred to instead of copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByReference {
    all: bool,
    below: Vec<PathBuf>,
}

impl SourcePolicy {
    /// Returns the files that are referred to in this store; none if `flow_stores`, the flow's wish to have them
    /// copied.
    pub(crate) fn by_reference(&self, location: &StoreLocation, flow_stores: bool) -> ByReference {
        match (self.stored || flow_stores, &location.server) {
            (true, _) => ByReference::default(),
            (false, None) => ByReference { all: true, below: vec![] },
            (false, Some(_)) => ByReference { all: false, below: self.shared.clone() },
        }
    }
}

impl ByReference {
    /// This file is referred to: only regular files can be read twice.
    pub(crate) fn holds_for(&self, path: &Path) -> bool {
        let Ok(path) = std::path::absolute(path) else { return false };
        // A shared directory may hold a link to one that is not shared.
        let is_below = || {
            let real = std::fs::canonicalize(&path).unwrap_or_default();
            let holds = |shared: &PathBuf| {
                let shared = std::fs::canonicalize(shared).unwrap_or_else(|_| shared.clone());
                real.starts_with(shared)
            };
            self.below.iter().any(holds)
        };
        (self.all || is_below()) && path.is_file()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location;

    #[test]
    fn files_are_referred_to_on_this_machine_and_on_shared_paths_of_others() {
        let directory = tempfile::tempdir().unwrap();
        let (shared, own) = (directory.path().join("shared"), directory.path().join("own"));
        for at in [&shared, &own] {
            std::fs::create_dir(at).unwrap();
            std::fs::write(at.join("f"), "f").unwrap();
        }
        std::os::unix::fs::symlink(own.join("f"), shared.join("link")).unwrap();
        let here = location::find(Some(Path::new("store")), directory.path());
        let server = location::find(Some(Path::new("redis://host")), directory.path());
        let sources = SourcePolicy { stored: false, shared: vec![shared.clone()] };
        let holds = |sources: &SourcePolicy, location: &StoreLocation, flow: bool, path: PathBuf| {
            sources.by_reference(location, flow).holds_for(&path)
        };
        assert!(holds(&sources, &here, false, own.join("f")));
        assert!(!holds(&sources, &here, true, own.join("f")), "the flow wants it stored");
        assert!(!holds(&SourcePolicy { stored: true, ..sources.clone() }, &here, false, own.join("f")));
        assert!(!holds(&sources, &here, false, PathBuf::from("/dev/null")), "it is no file");
        assert!(holds(&sources, &server, false, shared.join("f")));
        assert!(!holds(&sources, &server, false, own.join("f")), "other machines do not find it");
        assert!(!holds(&sources, &server, false, shared.join("link")), "it leads to where they do not find it");
    }
}
