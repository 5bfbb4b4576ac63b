//! Writes values to files, for programs that need a path.

use super::{
    Content, Error, FileValues, ValueId,
    whole::{broken, not_there},
};
use crate::blocking::blocking;
use futures_util::TryStreamExt;
use std::{fs, io, io::Write, path::Path};

impl FileValues<'_> {
    /// Writes the bytes of a value to a new file, and makes the directories above it; the file is read-only if
    /// `is_read_only`. It shares nothing with the store that could change. Something must hold the value meanwhile. A
    /// failure half-way leaves no file; nothing is synced. Where the file system can share blocks, no bytes are copied.
    ///
    /// # Errors
    /// [`Senseless`](Error::Senseless) for a gathered list; [`Export`](Error::Export) if the file cannot be written;
    /// [`Broken`](Error::Broken) if the value's object is not what was stored.
    pub async fn export(&self, id: &ValueId, path: &Path, is_read_only: bool) -> Result<(), Error> {
        let found = self.contents.integrity.rows.get(id).await?.content;
        if let Content::Gathered { .. } = found {
            return Err(Error::Senseless(format!("value {id} is a list, and has no bytes")));
        }
        let file = create(path).await.map_err(|error| content(path, error))?;
        let written = self.write(id, found, path, file).await;
        let (owned, failed) = (path.to_owned(), written.is_err());
        let ended = blocking(move || match failed {
            true => fs::remove_file(&owned),
            false if is_read_only => read_only(&owned),
            false => Ok(()),
        });
        let ended = ended.await;
        written.and(ended.map_err(|error| content(path, error)))
    }

    async fn write(&self, id: &ValueId, found: Content, path: &Path, mut file: fs::File) -> Result<(), Error> {
        let local = match found {
            Content::Object { name, len } => {
                let local = self.contents.integrity.blobs()?.local(name);
                if local.is_some() {
                    self.contents.integrity.check_object(id, name, len).await?;
                }
                local.map(|path| (path, len))
            }
            Content::Inline(bytes) => {
                let written = blocking(move || file.write_all(&bytes)).await;
                return written.map_err(|error| content(path, error));
            }
            Content::Source(source) => {
                let written = self.contents.integrity.sources.write(source, path, file).await;
                return written.map_err(|error| match error {
                    Error::Source(error) => not_there(id)(*error),
                    error => error,
                });
            }
            Content::Gathered { .. } => None,
        };
        if let Some((object, len)) = local {
            // The system copies from file to file, and shares blocks where it can.
            let copied = blocking(move || io::copy(&mut fs::File::open(object)?, &mut file)).await;
            return match copied {
                Ok(copied) if copied == len => Ok(()),
                Ok(copied) => Err(Error::Broken { id: id.clone(), why: format!("{copied} of {len} bytes were read") }),
                Err(error) => Err(content(path, error)),
            };
        }
        let mut chunks = self.contents.stream(id, None).await?;
        while let Some(chunk) = chunks.try_next().await.map_err(broken(id))? {
            file =
                blocking(move || file.write_all(&chunk).map(|()| file)).await.map_err(|error| content(path, error))?;
        }
        Ok(())
    }
}

async fn create(path: &Path) -> io::Result<fs::File> {
    let path = path.to_owned();
    let create = move || {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::File::create_new(&path)
    };
    blocking(create).await
}

fn read_only(path: &Path) -> io::Result<()> {
    let mut permissions = fs::metadata(path)?.permissions();
    permissions.set_readonly(true);
    fs::set_permissions(path, permissions)
}

fn content(path: &Path, error: io::Error) -> Error {
    Error::Export { path: path.to_owned(), why: error.to_string() }
}
