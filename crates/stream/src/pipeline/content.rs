//! The content of a file of lines, unpacked if gzip has compressed it.

use super::lines::read_line;
use flate2::read::MultiGzDecoder;
use std::{
    fs::{File, Metadata},
    io::{BufReader, Error, ErrorKind, Read, Result, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::Path,
};

/// The first bytes of a file that gzip has compressed.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The content of a file.
pub(super) enum Content {
    Plain(BufReader<File>),
    /// A file that is decompressed while it is read; positions count decompressed bytes.
    Gzip(BufReader<MultiGzDecoder<File>>),
}

impl Content {
    pub(super) fn is_compressed(&self) -> bool {
        matches!(self, Content::Gzip(_))
    }

    pub(super) fn of(mut file: File) -> Result<Self> {
        let mut magic = Vec::new();
        file.by_ref().take(2).read_to_end(&mut magic)?;
        file.rewind()?;
        Ok(match magic == GZIP_MAGIC {
            true => Content::Gzip(BufReader::new(MultiGzDecoder::new(file))),
            false => Content::Plain(BufReader::new(file)),
        })
    }

    /// Reads on to the end of a line; false if the content ends before it.
    pub(super) fn read_line(&mut self, line: &mut Vec<u8>) -> Result<bool> {
        match self {
            Content::Plain(file) => read_line(file, line),
            Content::Gzip(unpacked) => read_line(unpacked, line),
        }
    }

    pub(super) fn read_head(&mut self, length: u64) -> Result<Vec<u8>> {
        let mut head = Vec::new();
        match self {
            Content::Plain(file) => file.by_ref().take(length).read_to_end(&mut head)?,
            Content::Gzip(unpacked) => unpacked.by_ref().take(length).read_to_end(&mut head)?,
        };
        Ok(head)
    }

    /// Goes to a position, from behind a beginning of this length that was read; false if the content ends before it.
    pub(super) fn go_to(&mut self, offset: u64, head: u64) -> Result<bool> {
        match self {
            Content::Plain(file) => {
                let is_there = file.get_ref().metadata()?.len() >= offset;
                file.seek(SeekFrom::Start(offset))?;
                Ok(is_there)
            }
            Content::Gzip(unpacked) => {
                let skipped = offset.saturating_sub(head);
                Ok(std::io::copy(&mut unpacked.by_ref().take(skipped), &mut std::io::sink())? == skipped)
            }
        }
    }
}

/// Returns the device and inode of a file.
pub(super) fn id_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Adds the path to an error.
pub(super) fn named(path: &Path) -> impl Fn(Error) -> Error {
    move |error| Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns nothing for a file that is not there.
pub(super) fn unless_gone<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}
