//! Stages a file of the store in a work directory: as an ordinary read-only file, so that nothing a step does to it
//! harms the store or other steps.
//!
//! | how | when |
//! |---|---|
//! | a clone that shares its blocks | where the file system can |
//! | a copy | it is small, or the step runs as a user who writes through every mode (root) |
//! | a hard link to the object | else; the step's user owns it, and could change its mode and write |
//!
//! A hard-linked file is compared afterwards. If it changed and only one step had it, that step fails. If several steps
//! had it, the writer is unknown, so all of them run again, from then on with copies: the writer then changes only its
//! own copy. The store detects by itself that the object has changed, and computes it again.

use onceflow_store::blobs::verified;
use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// Up to this size a copy costs about as much as a link.
const COPIED_BYTES_MAX: u64 = 1 << 20;

/// Set when a shared object was written to by an unknown step: from then on objects are copied, not linked.
static COPIES_ONLY: AtomicBool = AtomicBool::new(false);

/// The steps that have a hard link to an inode now.
static LINKED: LazyLock<Mutex<HashMap<Inode, Vec<Weak<LinkedInode>>>>> = LazyLock::new(Mutex::default);

type Inode = (u64, u64);

fn linked() -> MutexGuard<'static, HashMap<Inode, Vec<Weak<LinkedInode>>>> {
    LINKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An inode that a step has a link to; and whether another step had one at the same time.
struct LinkedInode {
    inode: Inode,
    is_shared: AtomicBool,
}

impl Drop for LinkedInode {
    fn drop(&mut self) {
        let mut linked = linked();
        if let Some(users) = linked.get_mut(&self.inode) {
            users.retain(|user| user.strong_count() > 0);
            if users.is_empty() {
                linked.remove(&self.inode);
            }
        }
    }
}

/// A file that was staged in a work directory, with its metadata at that time.
pub(super) struct Staged {
    /// The step's own file, or the object it is a link to.
    path: PathBuf,
    inode: Inode,
    size: u64,
    modified: (i64, i64),
    link: Option<Arc<LinkedInode>>,
}

/// The result of comparing an input file after the step: unchanged, or the writer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// The file was not written to.
    No,
    /// This step wrote to it.
    ByThisStep,
    /// It was written to, by this step or by another that had it at the same time.
    BySomeStep,
}

/// Stages a file in a work directory, under a name that is free there. A large file that was made for this attempt
/// alone may always be linked.
pub(super) fn put(original: &Path, at: &Path, is_of_this_attempt: bool) -> io::Result<Staged> {
    let data = fs::metadata(original)?;
    if data.len() > COPIED_BYTES_MAX {
        if reflink_copy::reflink(original, at).is_ok() {
            return own(&data, at);
        }
        let may_link = !rustix::process::geteuid().is_root() && !COPIES_ONLY.load(Relaxed) || is_of_this_attempt;
        // The link fails on another file system, or if the object has too many links.
        if may_link && let Ok(staged) = link(original, at, &data) {
            return Ok(staged);
        }
    }
    fs::copy(original, at)?;
    own(&data, at)
}

/// Makes a copied file read-only, else with the mode of its original.
fn own(original: &fs::Metadata, at: &Path) -> io::Result<Staged> {
    let (now, mode) = (fs::metadata(at)?, original.mode() & 0o777 & !0o222);
    if now.mode() & 0o777 != mode {
        fs::set_permissions(at, fs::Permissions::from_mode(mode))?;
    }
    Ok(Staged::of(at, &now, None))
}

fn link(original: &Path, at: &Path, data: &fs::Metadata) -> io::Result<Staged> {
    verified::link(original, at)?;
    let inode = (data.dev(), data.ino());
    let ours = Arc::new(LinkedInode { inode, is_shared: AtomicBool::new(false) });
    let mut linked = linked();
    let users = linked.entry(inode).or_default();
    let others: Vec<_> = users.iter().filter_map(Weak::upgrade).collect();
    for user in others.iter().chain((!others.is_empty()).then_some(&ours)) {
        assert_eq!(user.inode, inode, "a step is blamed for a change of a file that it has no link to");
        user.is_shared.store(true, Relaxed);
    }
    users.push(Arc::downgrade(&ours));
    drop(linked);
    Ok(Staged::of(original, data, Some(ours)))
}

impl Staged {
    fn of(path: &Path, data: &fs::Metadata, link: Option<Arc<LinkedInode>>) -> Self {
        let (inode, modified) = ((data.dev(), data.ino()), (data.mtime(), data.mtime_nsec()));
        assert!(
            link.as_ref().is_none_or(|link| link.inode == inode),
            "{path:?} is linked as another file than is compared"
        );
        Staged { path: path.to_owned(), inode, size: data.size(), modified, link }
    }

    /// Checks if the file was written to since. A step's own copy that is gone or replaced is no change, as no other
    /// step has it.
    pub(super) fn changed(&self) -> Changed {
        let now = fs::symlink_metadata(&self.path);
        let is_it = |data: &fs::Metadata| (data.dev(), data.ino()) == self.inode;
        let is_same =
            |data: &fs::Metadata| (data.size(), (data.mtime(), data.mtime_nsec())) == (self.size, self.modified);
        match (&self.link, now) {
            (None, Ok(now)) if is_it(&now) && !is_same(&now) => Changed::ByThisStep,
            (None, _) => Changed::No,
            (Some(_), Ok(now)) if is_it(&now) && is_same(&now) => Changed::No,
            (Some(link), _) if link.is_shared.load(Relaxed) => {
                COPIES_ONLY.store(true, Relaxed);
                Changed::BySomeStep
            }
            (Some(_), _) => Changed::ByThisStep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_through(path: &Path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(path, "changed").unwrap();
    }

    /// Makes an object and the links that steps have to it.
    fn linked_to(place: &Path, names: &[&str]) -> (PathBuf, Vec<Staged>) {
        let object = place.join("object");
        fs::write(&object, vec![7; 100]).unwrap();
        fs::set_permissions(&object, fs::Permissions::from_mode(0o444)).unwrap();
        let data = fs::metadata(&object).unwrap();
        let staged = names.iter().map(|name| link(&object, &place.join(name), &data).unwrap()).collect();
        (object, staged)
    }

    #[test]
    fn inputs_of_every_size_are_ordinary_files_of_one_mode() {
        let place = tempfile::tempdir().unwrap();
        for len in [0, 1, 5_000, COPIED_BYTES_MAX as usize + 1] {
            let (object, at) = (place.path().join(format!("o{len}")), place.path().join(format!("in{len}")));
            fs::write(&object, vec![7; len]).unwrap();
            fs::set_permissions(&object, fs::Permissions::from_mode(0o444)).unwrap();
            let staged = put(&object, &at, false).unwrap();
            let data = fs::symlink_metadata(&at).unwrap();
            assert!(data.is_file() && data.mode() & 0o777 == 0o444 && data.len() == len as u64, "{data:?}");
            assert_eq!(fs::read(&at).unwrap(), vec![7; len]);
            assert_eq!(staged.changed(), Changed::No);
        }
    }

    #[test]
    fn a_user_who_can_write_through_links_gets_copies() {
        let place = tempfile::tempdir().unwrap();
        let (object, at) = (place.path().join("object"), place.path().join("in"));
        fs::write(&object, vec![7; COPIED_BYTES_MAX as usize + 1]).unwrap();
        let staged = put(&object, &at, false).unwrap();
        if rustix::process::geteuid().is_root() {
            write_through(&at);
            assert_eq!(staged.changed(), Changed::ByThisStep);
            assert_eq!(fs::read(&object).unwrap(), vec![7; COPIED_BYTES_MAX as usize + 1]);
        }
    }

    #[test]
    fn a_step_that_moves_or_replaces_its_own_file_changed_nothing() {
        let place = tempfile::tempdir().unwrap();
        let (object, at) = (place.path().join("object"), place.path().join("in"));
        fs::write(&object, "text").unwrap();
        let staged = put(&object, &at, false).unwrap();
        fs::rename(&at, place.path().join("out")).unwrap();
        assert_eq!(staged.changed(), Changed::No);
        fs::write(&at, "another file of that name").unwrap();
        assert_eq!(staged.changed(), Changed::No);
    }

    #[test]
    fn the_only_step_that_had_a_changed_object_is_to_blame() {
        let place = tempfile::tempdir().unwrap();
        let (_object, staged) = linked_to(place.path(), &["a"]);
        assert_eq!(staged[0].changed(), Changed::No);
        write_through(&place.path().join("a"));
        assert_eq!(staged[0].changed(), Changed::ByThisStep);
    }

    #[test]
    fn steps_that_only_share_a_changed_object_are_not_blamed() {
        let place = tempfile::tempdir().unwrap();
        let (_object, staged) = linked_to(place.path(), &["a", "b"]);
        assert!(staged.iter().all(|staged| staged.changed() == Changed::No));
        write_through(&place.path().join("b"));
        assert!(staged.iter().all(|staged| staged.changed() == Changed::BySomeStep));
        assert!(linked().contains_key(&staged[0].inode));
        let inode = staged[0].inode;
        drop(staged);
        assert!(!linked().contains_key(&inode));
    }
}
