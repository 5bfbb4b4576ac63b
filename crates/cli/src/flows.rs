//! Caches large flows as they were loaded, in the directory `flows` of the store, so that a flow of a thousand steps
//! that did not change is not read, lowered and checked every time. The cache may be deleted; `--verify` ignores it,
//! and so does another version of the program.

use crate::{exit::Exit, fault::Fault};
use onceflow_spec::{LoadOptions, LoadedFlow};
use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

/// The name of the directory.
const NAME: &str = "flows";

/// A flow with fewer steps than this is not worth caching.
const STEPS_MIN: usize = 100;

/// The most flows that are cached.
const FLOWS_MAX: usize = 16;

/// A loaded flow that is yet to be written to the cache; nothing if it came from there.
pub(crate) struct Remember {
    path: PathBuf,
    bytes: Option<Vec<u8>>,
}

/// Reads a flow file, or takes it from the cache.
///
/// # Errors
/// All problems of the flow file.
pub(crate) fn load(path: &Path, store: &Path, verify: bool) -> Result<(LoadedFlow, Remember), Fault> {
    let at = store.join(NAME).join(name(path));
    let known = match verify {
        false => fs::read(&at).ok().and_then(|bytes| LoadedFlow::remembered(bytes.strip_prefix(program().as_slice())?)),
        true => None,
    };
    if let Some(flow) = known {
        return Ok((flow, Remember { path: at, bytes: None }));
    }
    let flow = read(path)?;
    let steps: usize = flow.checked.library().flows.values().map(|graph| graph.modules.len()).sum();
    let bytes = (steps >= STEPS_MIN).then(|| [program().as_slice(), &flow.to_bytes()].concat());
    Ok((flow, Remember { path: at, bytes }))
}

/// Reads a flow file.
///
/// # Errors
/// All problems of the flow file.
pub(crate) fn read(path: &Path) -> Result<LoadedFlow, Fault> {
    if onceflow_spec::is_stream(path) {
        let message = format!("{} is a stream file, and this command takes flow files only", path.display());
        return Err(Fault::usage(message).hint(crate::streams::VERBS));
    }
    onceflow_spec::load(path, &LoadOptions::default()).map_err(|problems| {
        // A path that leads to no file is an error of usage; any other problem is one of the flow.
        let exit = if path.exists() && !path.is_dir() { Exit::Flow } else { Exit::Usage };
        Fault::problems(exit, problems)
    })
}

impl Remember {
    /// Writes the flow to the cache. If that fails, the flow is read again next time.
    pub(crate) fn save(&mut self) {
        let Some(bytes) = self.bytes.take() else { return };
        let directory = self.path.parent().expect("it was joined");
        let beside = self.path.with_extension(std::process::id().to_string());
        let written = fs::create_dir_all(directory)
            .and_then(|()| fs::write(&beside, bytes))
            .and_then(|()| fs::rename(&beside, &self.path))
            .and_then(|()| make_room(directory));
        if let Err(error) = written {
            tracing::debug!(%error, "the flow is not remembered");
        }
    }
}

/// Removes the flows that were cached first, if there are too many.
fn make_room(directory: &Path) -> std::io::Result<()> {
    let mut there = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        there.push((entry.metadata()?.modified()?, entry.path()));
    }
    there.sort();
    let many = there.len().saturating_sub(FLOWS_MAX);
    there.into_iter().take(many).try_for_each(|(_, path)| fs::remove_file(path))
}

/// Returns the name of a flow in the cache: by the current directory and the path as given, because messages name its
/// files that way.
fn name(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    digest([here.as_os_str(), path.as_os_str()])[..32].to_owned()
}

/// Identifies this program: another version may read flows differently.
fn program() -> [u8; 32] {
    let look = std::env::current_exe().and_then(fs::metadata);
    let look = look.map(|data| (data.dev(), data.ino(), data.size(), data.mtime(), data.mtime_nsec())).ok();
    *blake3::hash(format!("onceflow flow 4 {} {look:?}", env!("CARGO_PKG_VERSION")).as_bytes()).as_bytes()
}

fn digest<const N: usize>(parts: [&OsStr; N]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&part.len().to_le_bytes()).update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(at: &Path, name: &str, said: &str) -> PathBuf {
        let steps: String =
            (0..STEPS_MIN).map(|n| format!("  s{n}: {{ run: echo {said}, out: {{ said: text }} }}\n")).collect();
        let path = at.join(name);
        fs::write(&path, format!("flow: large\nsteps:\n{steps}outputs: {{ said: s0.said }}\n")).unwrap();
        path
    }

    fn is_remembered(path: &Path, store: &Path) -> bool {
        let (_, mut remember) = load(path, store, false).unwrap_or_else(|fault| panic!("{fault}"));
        let known = remember.bytes.is_none();
        remember.save();
        known
    }

    #[test]
    fn a_large_flow_is_read_once_until_it_changes() {
        let at = tempfile::tempdir().unwrap();
        let store = at.path().join("store");
        let path = flow(at.path(), "a.yaml", "one");
        assert!(!is_remembered(&path, &store));
        assert!(is_remembered(&path, &store));
        assert!(load(&path, &store, true).is_ok_and(|(_, remember)| remember.bytes.is_some()), "--verify reads it");
        flow(at.path(), "a.yaml", "two");
        assert!(!is_remembered(&path, &store));
        assert!(is_remembered(&path, &store));
    }

    #[test]
    fn only_so_many_flows_are_remembered() {
        let at = tempfile::tempdir().unwrap();
        let store = at.path().join("store");
        for n in 0..FLOWS_MAX + 3 {
            is_remembered(&flow(at.path(), &format!("{n}.yaml"), "one"), &store);
        }
        assert_eq!(fs::read_dir(store.join(NAME)).unwrap().count(), FLOWS_MAX);
    }

    #[test]
    fn a_cached_flow_of_another_build_is_ignored() {
        let at = tempfile::tempdir().unwrap();
        let store = at.path().join("store");
        let path = flow(at.path(), "a.yaml", "one");
        is_remembered(&path, &store);
        let file = store.join(NAME).join(name(&path));
        let mut bytes = fs::read(&file).unwrap();
        bytes[0] ^= 1;
        fs::write(&file, bytes).unwrap();
        assert!(!is_remembered(&path, &store));
    }
}
