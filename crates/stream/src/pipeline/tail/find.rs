//! Finds files again that are known by their inode and the beginning of their content.

use super::{FilePosition, TailedFile};
use crate::pipeline::content::{id_of, named, unless_gone};
use std::{io::Result, os::unix::fs::DirEntryExt, path::Path};

/// Finds a file again: at its path, or, if it was renamed, beside it. One that was removed, or moved to where it is not
/// looked for, is left out: its other lines are not read.
pub(super) fn find(position: &FilePosition) -> Result<Option<TailedFile>> {
    let is_it = |path: &Path| -> Result<bool> {
        let metadata = unless_gone(path.metadata()).map_err(named(path))?;
        Ok(metadata.is_some_and(|metadata| id_of(&metadata) == position.id))
    };
    if is_it(&position.path)? {
        return TailedFile::open(&position.path)?.resume(position);
    }
    let directory = position.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(entries) = unless_gone(std::fs::read_dir(directory)).map_err(named(directory))? else { return Ok(None) };
    for entry in entries {
        let entry = entry.map_err(named(directory))?;
        // The inode of an entry is known without reading it, so a neighbour that may not be read does no harm.
        if entry.ino() == position.id.1 && is_it(&entry.path())? {
            return TailedFile::open(&entry.path())?.resume(position);
        }
    }
    Ok(None)
}
