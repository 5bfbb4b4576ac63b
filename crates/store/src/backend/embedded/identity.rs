//! Which store a directory holds. Segments and snapshots carry the store's id; two small files carry it beside them, one
//! in the directory and one among its objects. So a log that is gone is missed, and another store's is not taken for ours:
//! what the objects belong to is never made anew in silence.
//!
//! Stores of earlier versions have neither file; they get them when they are opened. Where there are objects and no log,
//! something is gone in any case.

use super::join::OpenError;
use crate::{backend::journal::ExpectedStore, fs::remove_if_there};
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// The name of both files.
const NAME: &str = "store-id";

/// Where objects are.
const OBJECTS: &str = "blobs";

/// The store's id, as the files in a directory give it.
pub(super) fn read(dir: &Path) -> Result<ExpectedStore, OpenError> {
    let (own, of_objects) = (dir.join(NAME), dir.join(OBJECTS).join(NAME));
    let ids = (read_id(&own)?, read_id(&of_objects)?);
    match ids {
        (Some(own_id), Some(id)) if own_id != id => Err(OpenError::Mixed {
            dir: dir.into(),
            what: format!("`{NAME}` names store {own_id:032x}, and `{OBJECTS}/{NAME}` store {id:032x}"),
        }),
        (Some(id), _) | (None, Some(id)) => Ok(ExpectedStore::Id(id)),
        (None, None) => match has_files(&dir.join(OBJECTS)).map_err(OpenError::io("list", dir))? {
            true => Ok(ExpectedStore::Unnamed),
            false => Ok(ExpectedStore::Unknown),
        },
    }
}

/// Writes down which store it is, where that is not written.
pub(super) fn write(dir: &Path, id: u128) -> Result<(), OpenError> {
    let objects = dir.join(OBJECTS);
    for directory in [Some(dir), objects.is_dir().then_some(objects.as_path())].into_iter().flatten() {
        let path = directory.join(NAME);
        if read_id(&path)? == Some(id) {
            continue;
        }
        match write_id(&path, id) {
            // The log carries the id too: a full disk does not keep a process from opening the store to make room.
            Err(error) if error.kind() == io::ErrorKind::StorageFull && directory != dir => {
                tracing::debug!(%error, ?path, "failed to write the store's id among its objects; the next opening does");
            }
            written => written.map_err(OpenError::io("write", &path))?,
        }
    }
    Ok(())
}

fn read_id(path: &Path) -> Result<Option<u128>, OpenError> {
    const ID_BYTES_MAX: u64 = 64;
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(ID_BYTES_MAX).read_to_string(&mut text)) {
        // One that was being written when the power went says nothing; the log does.
        Ok(_) => Ok(u128::from_str_radix(text.trim(), 16).ok()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => Ok(None),
        Err(error) => Err(OpenError::io("read", path)(error)),
    }
}

/// Whole or not at all: written beside, then renamed.
fn write_id(path: &Path, id: u128) -> io::Result<()> {
    let beside = path.with_extension("new");
    remove_if_there(&beside)?;
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(format!("{id:032x}\n").as_bytes())?;
    fs::rename(&beside, path)
}

/// The directory holds a file, however deep.
fn has_files(dir: &Path) -> io::Result<bool> {
    let mut look: Vec<PathBuf> = vec![dir.into()];
    while let Some(dir) = look.pop() {
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                return Ok(true);
            }
            look.push(entry.path());
        }
    }
    Ok(false)
}
