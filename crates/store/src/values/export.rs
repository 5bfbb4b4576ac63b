//! Blobs as files: written to a path, for those who must have one.

use super::{Error, ValueId, Values};
use crate::blocking::blocking;
use futures_util::TryStreamExt;
use std::{fs, io::Write, path::Path};

impl Values {
    /// Writes the bytes of a blob to a new file, read-only, with the directories above it. Something must hold the value
    /// meanwhile. Nothing is left there if it fails half-way; nothing is synced.
    ///
    /// # Errors
    /// [`Senseless`](Error::Senseless) if the value is no blob; [`Export`](Error::Export) if the file cannot be written.
    pub async fn export(&self, id: &ValueId, path: &Path) -> Result<(), Error> {
        let mut chunks = self.read_blob(id, None).await?;
        let mut file = create(path).await.map_err(|error| content(path, error))?;
        let written = async {
            while let Some(chunk) = chunks.try_next().await? {
                file = blocking(move || file.write_all(&chunk).map(|()| file))
                    .await
                    .map_err(|error| content(path, error))?;
            }
            Ok(())
        };
        let written: Result<(), Error> = written.await;
        let owned = path.to_owned();
        let failed = written.is_err();
        let ended = blocking(move || if failed { fs::remove_file(owned) } else { read_only(&owned) }).await;
        written.and(ended.map_err(|error| content(path, error)))
    }
}

async fn create(path: &Path) -> std::io::Result<fs::File> {
    let path = path.to_owned();
    let create = move || {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::File::create_new(&path)
    };
    blocking(create).await
}

fn read_only(path: &Path) -> std::io::Result<()> {
    let mut permissions = fs::metadata(path)?.permissions();
    permissions.set_readonly(true);
    fs::set_permissions(path, permissions)
}

fn content(path: &Path, error: std::io::Error) -> Error {
    Error::Export { path: path.to_owned(), why: error.to_string() }
}
