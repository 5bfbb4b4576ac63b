//! Copies the bytes of files by reference: into files of their own, as streams, into memory. Only bytes that match the
//! row are handed out; of a stream, the reader must compare the digest at its end.

use super::{SourceError, SourceFile, SourceValues, gone};
use crate::{
    blobs::{self, Chunks, content},
    blocking::blocking,
    values::{Error, FileStat},
};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use onceflow_core::Digest;
use std::{
    fs::File,
    io::{self, Seek, SeekFrom},
    ops::Range,
    path::Path,
};

impl SourceValues<'_> {
    /// Copies a file by reference into a new file.
    pub(in crate::values) async fn write(&self, source: SourceFile, path: &Path, file: File) -> Result<(), Error> {
        let source = self.find(source).await?;
        let (to, from) = (path.to_owned(), source.path.clone());
        let copied = blocking(move || copy(&source, file, &to)).await;
        match copied {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::Source(Box::new(SourceError::Changed { path: from }))),
            Err(error) => Err(Error::Export { path: path.to_owned(), why: error.to_string() }),
        }
    }

    /// All bytes of a file by reference, in memory.
    pub(in crate::values) async fn read(&self, source: SourceFile) -> Result<Bytes, Error> {
        let source = self.find(source).await?;
        let read = blocking(move || match std::fs::read(&source.path) {
            Ok(bytes) if Digest::of(&bytes) == source.digest => Ok(bytes.into()),
            Ok(_) => Err(SourceError::Changed { path: source.path.clone() }),
            Err(error) => Err(gone(&source, &error)),
        });
        read.await.map_err(|error| Error::Source(Box::new(error)))
    }

    /// The bytes of a file by reference, or a range of them.
    pub(in crate::values) async fn stream(
        &self,
        source: SourceFile,
        range: Option<Range<u64>>,
    ) -> Result<Chunks, Error> {
        let source = self.find(source).await?;
        let name = self.writer.fresh_object();
        let open = move || {
            let mut file = File::open(&source.path).map_err(|error| gone(&source, &error))?;
            let range = range.unwrap_or(0..source.stat.len);
            file.seek(SeekFrom::Start(range.start)).map_err(|error| gone(&source, &error))?;
            Ok((file, range.end.saturating_sub(range.start)))
        };
        let (file, len) = blocking(open).await.map_err(|error: SourceError| Error::Source(Box::new(error)))?;
        let failed = move |error: io::Error| blobs::Error::Content { name, why: error.to_string().into() };
        Ok(content::from_file(file, len).map_err(failed).boxed())
    }
}

/// Copies from file to file: the system does it, and shares blocks where it can. Returns false if the copy has other
/// content: the file was written meanwhile.
fn copy(source: &SourceFile, mut to: File, path: &Path) -> io::Result<bool> {
    let mut from = File::open(&source.path)?;
    let before = FileStat::of(&from.metadata()?);
    io::copy(&mut from, &mut to)?;
    let is_known = source.is_settled && before == source.stat && FileStat::of(&from.metadata()?) == before;
    Ok(is_known || content::digest_file(&mut File::open(path)?)?.digest == source.digest)
}
