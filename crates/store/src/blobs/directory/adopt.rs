//! Adopts a file without copying it: the file gets a second name, in the store, and then loses its first.

use super::{
    layout::Layout,
    unfinished::{digest, digest_unless_given_up, settle},
};
use crate::{
    blobs::{
        ContentInfo, Error, ObjectName,
        verified::{Hints, Look},
    },
    blocking::{GivenUp, blocking},
    fs::{make_read_only, remove_if_there, sync_directory},
};
use std::{
    fs::{self, File},
    io::{self, ErrorKind, Seek},
    path::Path,
};

/// The result of linking a file into the store.
pub(super) enum Linked {
    /// The file is an object now.
    ContentInfo(ContentInfo),
    /// The file cannot be linked from where it is and must be copied: the open file, and its length.
    Elsewhere(File, u64),
}

pub(super) fn link(
    layout: &Layout,
    name: ObjectName,
    path: &Path,
    hints: &Hints,
    given_up: &GivenUp,
) -> Result<Linked, Error> {
    if path.parent().is_some_and(|parent| parent == layout.objects) {
        // Adopting the file of another object would take it from its owner.
        return Err(unreadable(name, path, &io::Error::new(ErrorKind::InvalidInput, "it is an object of the store")));
    }
    let (mut file, len) = match open_regular(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => return already(layout, name, path, &error),
        Err(error) => return Err(unreadable(name, path, &error)),
    };
    if !same_file_system(&file, layout).map_err(|error| Error::io(&layout.place, &error))? {
        return Ok(Linked::Elsewhere(file, len));
    }
    let before = file.metadata().ok().and_then(|metadata| Look::of(&metadata));
    let stored = digest_unless_given_up(&mut file, given_up).map_err(|error| unreadable(name, path, &error))?;
    make_read_only(&file);
    file.sync_all().map_err(|error| Error::io(&layout.place, &error))?;
    let linked = fs::hard_link(path, layout.object(name));
    if linked.as_ref().is_err_and(cannot_be_linked) {
        file.rewind().map_err(|error| unreadable(name, path, &error))?;
        return Ok(Linked::Elsewhere(file, len));
    }
    settle(layout, name, linked, stored)?;
    remove_now(layout, path)?;
    hints.remember(&layout.object(name), before, stored);
    Ok(Linked::ContentInfo(stored))
}

/// The error means that the file must be copied: another mount, a file with too many names or of another owner.
fn cannot_be_linked(error: &io::Error) -> bool {
    use ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(error.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported)
}

/// The file is gone. If the object exists, this is a second try, and the first one took the file.
fn already(layout: &Layout, name: ObjectName, path: &Path, gone: &io::Error) -> Result<Linked, Error> {
    match digest(&layout.object(name)) {
        Ok(stored) => {
            sync_directory(&layout.objects).map_err(|error| Error::unknown(&layout.place, error))?;
            Ok(Linked::ContentInfo(stored))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Err(unreadable(name, path, gone)),
        Err(error) => Err(Error::io(&layout.place, &error)),
    }
}

/// Opens a regular file. A link or a device under the object's name would make the object something that changes.
pub(in crate::blobs) fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let file = crate::tree::open_regular(path)?;
    let len = file.metadata()?.len();
    Ok((file, len))
}

pub(in crate::blobs) fn unreadable(name: ObjectName, path: &Path, error: &io::Error) -> Error {
    Error::content(name, format_args!("{}: {error}", path.display()))
}

#[cfg(unix)]
fn same_file_system(file: &File, layout: &Layout) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok(file.metadata()?.dev() == fs::metadata(&layout.objects)?.dev())
}

#[cfg(not(unix))]
fn same_file_system(_: &File, _: &Layout) -> io::Result<bool> {
    Ok(false)
}

/// Takes the file's first name away, durably: if it came back after a crash, writing to it would change the object.
pub(super) async fn remove(layout: &Layout, path: &Path) -> Result<(), Error> {
    let (layout, path) = (layout.clone(), path.to_owned());
    blocking(move || remove_now(&layout, &path)).await
}

fn remove_now(layout: &Layout, path: &Path) -> Result<(), Error> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    remove_if_there(path)
        .and_then(|()| sync_directory(parent))
        .map_err(|error| Error::unknown(&layout.place, format_args!("{}: {error}", path.display())))
}
