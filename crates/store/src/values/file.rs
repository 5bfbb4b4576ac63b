//! Files as values, whatever their size: small ones in a row, large ones in a blob. A reader need not know which.

use super::{
    Content, Error, Integrity, Uploads, ValueChange, ValueId, contents::ValueBytes, limits::INLINE_FILE_BYTES_MAX,
};
use crate::{
    blobs::{self, ContentInfo, content},
    blocking::blocking,
    fs::remove_if_there,
    tree,
};
use onceflow_core::payload::Stored;
use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Values that come from files, or become files.
#[derive(Clone, Copy)]
pub struct FileValues<'a> {
    pub(super) contents: ValueBytes<'a>,
    pub(super) uploads: Uploads<'a>,
}

impl FileValues<'_> {
    /// Moves a file into the store. Returns the change that puts it, and the value it becomes; the file is no longer at
    /// its path afterwards. A small file is read into the change; a larger one is uploaded when this returns, and
    /// reclaimed unless the change is committed.
    ///
    /// # Errors
    /// [`blobs::Error::Content`] when there is no such regular file; symbolic links are not followed.
    pub async fn take(&self, path: &Path) -> Result<(ValueChange, Stored), Error> {
        let owned = path.to_owned();
        let small = move || {
            if !std::fs::symlink_metadata(&owned)?.is_file() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
            }
            let small = read_small(&owned)?;
            if small.is_some() {
                remove_if_there(&owned)?;
            }
            Ok(small)
        };
        match blocking(small).await.map_err(|error| self.unreadable(path, &error))? {
            Some(bytes) => Ok(self.uploads.writer.put_inline(bytes)),
            None => Ok(self.uploads.adopt(path).await?.into_change()),
        }
    }

    /// As [`FileValues::take`], but the file stays where it is. If a blob of equal content is stored already, the file
    /// is not stored again; `known` is the content of the file, if the caller knows it.
    ///
    /// # Errors
    /// [`blobs::Error::Content`] when it cannot be read.
    pub async fn copy(&self, path: &Path, known: Option<ContentInfo>) -> Result<(ValueChange, Stored), Error> {
        if let Some(known) = known.filter(|known| known.len > INLINE_FILE_BYTES_MAX)
            && self.is_there(known).await?
        {
            let stored = Stored { id: ValueId::of_blob(known.digest), digest: known.digest, len: known.len };
            return Ok((ValueChange::RequireValue { id: stored.id.clone() }, stored));
        }
        let owned = path.to_owned();
        match blocking(move || read_small(&owned)).await.map_err(|error| self.unreadable(path, &error))? {
            Some(bytes) => Ok(self.uploads.writer.put_inline(bytes)),
            None => {
                let content = content::from_path(path).await.map_err(|error| self.unreadable(path, &error))?;
                Ok(self.uploads.upload(content).await?.into_change())
            }
        }
    }

    /// A blob of this content is stored, and its object is there and whole.
    async fn is_there(&self, known: ContentInfo) -> Result<bool, Error> {
        match self.contents.integrity.check(&ValueId::of_blob(known.digest)).await {
            Ok(()) => Ok(true),
            Err(Error::Missing { .. } | Error::Lost { .. } | Error::Broken { .. } | Error::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the path of the file of a value that is a blob in a directory of this machine. The file is read-only,
    /// checked, and exists for as long as something holds the value.
    ///
    /// # Errors
    /// [`Broken`](Error::Broken) if the file is not what was stored.
    pub async fn local_path(&self, id: &ValueId) -> Result<Option<PathBuf>, Error> {
        let Integrity { rows, blobs, .. } = self.contents.integrity;
        let Some(blobs) = blobs else { return Ok(None) };
        Ok(match rows.get(id).await?.content {
            Content::Object { name, len } => match blobs.local(name) {
                None => None,
                Some(path) => {
                    self.contents.integrity.check_object(id, name, len).await?;
                    Some(path)
                }
            },
            Content::Inline(_) | Content::Gathered { .. } | Content::Source(_) => None,
        })
    }

    fn unreadable(&self, path: &Path, error: &io::Error) -> Error {
        let name = self.uploads.writer.fresh_object();
        Error::Blobs(blobs::Error::Content { name, why: format!("{}: {error}", path.display()).into() })
    }
}

/// Reads the bytes of a file; `None` if the file is too large to be inline.
fn read_small(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = tree::open_regular(path)?;
    let metadata = file.metadata()?;
    if metadata.len() > INLINE_FILE_BYTES_MAX {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    file.take(INLINE_FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= INLINE_FILE_BYTES_MAX).then_some(bytes))
}
