//! File operations that the standard library lacks: durable directories, removing files that may be gone, full disks.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
};

/// Makes a directory, with those above it, that only its user can enter, whatever the umask.
pub(crate) fn make_private_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes the permissions of other users on a directory, if they have any. Then they reach nothing inside, whatever
/// the modes of the files there.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    let mut permissions = fs::metadata(path)?.permissions();
    if permissions.mode() & 0o077 == 0 {
        return Ok(());
    }
    permissions.set_mode(permissions.mode() & !0o077);
    fs::set_permissions(path, permissions)
}

/// Makes all files made, renamed and removed in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// Removes a file, if it is there.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The error says that there is no room, and nothing worse.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

/// Takes the right to write away, as far as we may: it is no promise, but it turns a mistake into an error.
pub(crate) fn make_read_only(file: &fs::File) {
    let Ok(metadata) = file.metadata() else { return };
    let mut permissions = metadata.permissions();
    if !permissions.readonly() {
        permissions.set_readonly(true);
        let _ = file.set_permissions(permissions);
    }
}
