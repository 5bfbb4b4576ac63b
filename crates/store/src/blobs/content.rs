//! Streams of bytes: where they come from, how large their pieces are, and how they are checked on the way.

use super::{
    Blobs, ByteStream, Chunks, ContentInfo, Error, Hashing, ObjectName,
    directory::{open_regular, unreadable},
};
use crate::{blocking::blocking, tree};
use bytes::Bytes;
use futures_util::{
    Stream, StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use onceflow_core::limits::CHUNK_BYTES_MAX;
use std::{fs::File, io, io::Read, path::Path, sync::Arc};

/// Content that is in memory already.
pub fn from_bytes(bytes: impl Into<Bytes>) -> ByteStream {
    stream::iter([Ok(bytes.into())]).boxed()
}

/// The bytes of a file, which stays where it is.
///
/// # Errors
/// If it cannot be opened, or is no file.
pub async fn from_path(path: &Path) -> io::Result<ByteStream> {
    let path = path.to_owned();
    let open = move || -> io::Result<(File, u64)> {
        let file = tree::open_regular(&path)?;
        let len = file.metadata()?.len();
        Ok((file, len))
    };
    let (file, len) = blocking(open).await?;
    Ok(from_file(file, len))
}

/// Reads a file for its length and digest alone.
///
/// # Errors
/// If it cannot be read, or is no file.
pub async fn digest_of(path: &Path) -> io::Result<ContentInfo> {
    let path = path.to_owned();
    blocking(move || super::directory::digest_open(&mut tree::open_regular(&path)?)).await
}

/// Reads an open file from its current offset, for its length and digest alone. Blocks.
pub(crate) fn digest_file(file: &mut File) -> io::Result<ContentInfo> {
    super::directory::digest_open(file)
}

/// Adopts a file into a store that cannot keep the file itself: copies it, then removes it.
pub(super) async fn adopt_by_copying(
    blobs: &dyn Blobs,
    place: &Arc<str>,
    name: ObjectName,
    path: &Path,
) -> Result<ContentInfo, Error> {
    let from = path.to_owned();
    let (file, len) = match blocking(move || open_regular(&from)).await {
        Ok(opened) => opened,
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => {
            // If the object is there, this is a second try, and the first one took the file.
            return match blobs.read(name, None).await {
                Err(Error::Missing { .. }) => Err(unreadable(name, path, &gone)),
                read => digest(read?).await,
            };
        }
        Err(error) => return Err(unreadable(name, path, &error)),
    };
    let stored = blobs.create(name, from_file(file, len)).await?;
    let from = path.to_owned();
    match blocking(move || std::fs::remove_file(from)).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::unknown(place, format_args!("{}: {error}", path.display())))
        }
        _ => Ok(stored),
    }
}

/// The next `len` bytes of a file, read off the async threads; ends early where the file does.
pub(crate) fn from_file(file: File, len: u64) -> ByteStream {
    let next = |(mut file, left): (File, u64)| async move {
        if left == 0 {
            return Ok(None);
        }
        let (file, chunk) = blocking(move || read_chunk(&mut file, left).map(|chunk| (file, chunk))).await?;
        let read = chunk.len() as u64;
        Ok((read > 0).then(|| (chunk, (file, left - read))))
    };
    stream::try_unfold((file, len), next).boxed()
}

fn read_chunk(file: &mut File, left: u64) -> io::Result<Bytes> {
    let mut chunk = Vec::with_capacity(CHUNK_BYTES_MAX.min(usize::try_from(left).unwrap_or(CHUNK_BYTES_MAX)));
    file.take(chunk.capacity() as u64).read_to_end(&mut chunk)?;
    Ok(chunk.into())
}

/// The same bytes in pieces that are neither empty nor larger than [`CHUNK_BYTES_MAX`]. Nothing is copied, and
/// asking again after the end is fine.
pub(super) fn in_pieces<E: Send + 'static>(
    chunks: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> BoxStream<'static, Result<Bytes, E>> {
    chunks.map_ok(|chunk| stream::iter(pieces(chunk).map(Ok))).try_flatten().fuse().boxed()
}

fn pieces(mut chunk: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let len = chunk.len().min(CHUNK_BYTES_MAX);
        (len > 0).then(|| chunk.split_to(len))
    })
}

/// The same bytes, with an error at the end unless there were `len` of them: a stream that ends early must not
/// pass for a short object.
pub(super) fn of_len(chunks: Chunks, name: ObjectName, place: Arc<str>, len: u64) -> Chunks {
    let next = move |(mut chunks, left): (Chunks, u64)| {
        let place = place.clone();
        async move {
            let chunk = chunks.next().await.transpose()?;
            match (chunk, left) {
                (None, 0) => Ok(None),
                (Some(chunk), _) if chunk.len() as u64 <= left => {
                    let left = left - chunk.len() as u64;
                    Ok(Some((chunk, (chunks, left))))
                }
                _ => Err(Error::damaged(
                    name,
                    &place,
                    format!("{len} bytes were to be read, and a different number was"),
                )),
            }
        }
    };
    stream::try_unfold((chunks, len), next).boxed()
}

/// Reads a whole object and checks it on the way: the stream ends with [`Error::Damaged`] when the bytes are not what
/// the record says. A reader that must not act on wrong bytes waits for the end.
pub async fn read_checked(blobs: &dyn Blobs, name: ObjectName, stored: ContentInfo) -> Result<Chunks, Error> {
    let chunks = blobs.read(name, None).await?;
    let next = move |state: Option<(Chunks, Hashing)>| async move {
        let Some((mut chunks, mut hashing)) = state else { return Ok(None) };
        if let Some(chunk) = chunks.next().await.transpose()? {
            hashing.update(&chunk);
            return Ok(Some((chunk, Some((chunks, hashing)))));
        }
        let found = hashing.info();
        if found == stored {
            return Ok(None);
        }
        Err(Error::of_other_content(name, stored, found))
    };
    Ok(stream::try_unfold(Some((chunks, Hashing::default())), next).boxed())
}

/// Reads a whole object to verify that it is what the record says, even if it is remembered as verified.
///
/// # Errors
/// [`Error::Missing`] and [`Error::Damaged`].
pub async fn verify(blobs: &dyn Blobs, name: ObjectName, stored: ContentInfo) -> Result<(), Error> {
    let found = blobs.size(name).await?;
    if found != stored.len {
        return Err(Error::of_other_length(name, stored.len, found));
    }
    match digest(blobs.read(name, None).await?).await? {
        found if found == stored => Ok(()),
        found => Err(Error::of_other_content(name, stored, found)),
    }
}

/// Reads a whole object into memory, if it has at most `len_max` bytes; for small ones and for tests.
///
/// # Errors
/// [`Error::Range`] when it has more.
pub async fn read_bytes(blobs: &dyn Blobs, name: ObjectName, len_max: u64) -> Result<Bytes, Error> {
    let len = blobs.size(name).await?;
    if len > len_max {
        return Err(Error::Range { name, place: "the store".into(), range: 0..len_max, len });
    }
    let chunks: Vec<Bytes> = blobs.read(name, None).await?.try_collect().await?;
    Ok(chunks.concat().into())
}

/// Reads to the end for the digest alone.
pub(super) async fn digest(mut chunks: Chunks) -> Result<ContentInfo, Error> {
    let mut hashing = Hashing::default();
    while let Some(chunk) = chunks.try_next().await? {
        hashing.update(&chunk);
    }
    Ok(hashing.info())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_bounded_and_add_up() {
        for len in [0, 1, CHUNK_BYTES_MAX, CHUNK_BYTES_MAX + 1, 3 * CHUNK_BYTES_MAX] {
            let pieces: Vec<Bytes> = pieces(vec![7; len].into()).collect();
            assert_eq!(pieces.len(), len.div_ceil(CHUNK_BYTES_MAX));
            assert_eq!(pieces.concat().len(), len);
        }
    }
}
