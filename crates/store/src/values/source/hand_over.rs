//! Turns objects into files of the user's: for a result that should not lie in the store as well.
//!
//! ```text
//! object    gets a second name, outside of the store
//! value     refers to the file of that name      (durable; the batch also writes unlink/object)
//! object    its name in the store goes, as that of any object which nothing needs
//! ```
//! A crash leaves the file with both names, or with the outer one alone; the value is there in either case.

use super::{Content, Error, FileStat, Head, SETTLED_NS, SourceFile, ValueId, now_ns};
use crate::{
    blobs::verified,
    blocking::blocking,
    values::{FileValues, Integrity, Tried, stored::value_row},
};
use onceflow_core::{Batch, Digest, Row, row::counter};
use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

impl FileValues<'_> {
    /// Gives the object of a value a second name, and makes the directories above it. Returns false if the value has no
    /// object on this machine, or the file system allows no link: then it has to be copied. Something must hold the
    /// value meanwhile.
    ///
    /// # Errors
    /// [`Error::Export`] if the directories cannot be made.
    pub async fn link(&self, id: &ValueId, path: &Path) -> Result<bool, Error> {
        let Some(object) = self.local_path(id).await? else { return Ok(false) };
        let to = path.to_owned();
        let link = move || {
            if let Some(directory) = to.parent() {
                fs::create_dir_all(directory)?;
            }
            match verified::link(&object, &to) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
                // Another file system, one without links, or one that allows no more of them.
                Err(_) => Ok(false),
            }
        };
        blocking(link).await.map_err(|error| Error::Export { path: path.to_owned(), why: error.to_string() })
    }

    /// Makes a blob refer to the file at a path, which must be another name of its object. Returns false if it is not,
    /// if there is no such blob, or if it has more than one holder. Durable when it returns.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn hand_over(&self, digest: Digest, path: &Path) -> Result<bool, Error> {
        let Integrity { rows, .. } = self.contents.integrity;
        let id = ValueId::of_blob(digest);
        let key = rows.keys.value(&id);
        // Another holder may be reading the object.
        let count = rows.row(rows.keys.count(&id)).await?;
        if count.is_none_or(|count| counter::read(&count) != Some(1)) {
            return Ok(false);
        }
        let Some(row) = rows.row(key.clone()).await? else { return Ok(false) };
        let Some(Content::Object { name, .. }) = Head::read(&row).and_then(|head| head.content()) else {
            return Ok(false);
        };
        let Some(object) = self.contents.integrity.blobs()?.local(name) else { return Ok(false) };
        let path = path.to_owned();
        let Some(source) = blocking(move || same_file(digest, &object, path)).await else { return Ok(false) };
        let mut batch = Batch::new(rows.shard);
        batch.require_equals(key.clone(), row).put(key, value_row(&[], &Content::Source(source)));
        batch.put(rows.keys.unlink(name), Row::default());
        match rows.send(batch).await? {
            Tried::Applied(position) => rows.records.durable(position).await?,
            // Another writer changed the row; nothing is lost if the store keeps its object.
            Tried::Refused(_) => return Ok(false),
            Tried::Unknown(why) => return Err(why.into()),
        }
        rows.news.notify();
        Ok(true)
    }
}

/// The file at a path as a file of the user's, who may write to it, if it is this object.
fn same_file(digest: Digest, object: &Path, path: PathBuf) -> Option<SourceFile> {
    let (ours, theirs) = (fs::metadata(object).ok()?, fs::metadata(&path).ok()?);
    if FileStat::of(&ours) != FileStat::of(&theirs) {
        return None;
    }
    let mut permissions = theirs.permissions();
    permissions.set_mode(permissions.mode() | 0o200);
    fs::set_permissions(&path, permissions).ok()?;
    let stat = FileStat::of(&fs::metadata(&path).ok()?);
    let path = std::path::absolute(path).ok()?;
    // Its name and mode have changed just now; a writer changes the modification time of its content.
    let is_settled = stat.modified_ns + SETTLED_NS < now_ns();
    Some(SourceFile { path, digest, stat, is_settled })
}
