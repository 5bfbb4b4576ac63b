//! The promises of [`crate::blobs`], one function each.

use super::{generated, generated_at};
use crate::blobs::{
    Blobs, ByteStream, ContentInfo, Digest, Error, Listed, ObjectName, ObjectState, Page,
    content::{from_bytes, read_bytes, read_checked},
};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, TryStreamExt, future::join_all, stream};
use onceflow_core::{
    Fences,
    limits::{CHUNK_BYTES_MAX, LIST_OBJECTS_MAX},
};
use std::{io, sync::Arc};

/// Holds a blob store to the contract. `make` gives an empty one each time.
///
/// # Panics
/// When it breaks a promise.
pub async fn contract<B: Blobs>(make: impl AsyncFn() -> B) {
    what_is_created_is_read_back(&make().await).await;
    a_range_gives_exactly_its_bytes(&make().await).await;
    what_is_not_there_is_missing(&make().await).await;
    a_name_is_created_once(&make().await).await;
    deleting_twice_is_fine(&make().await).await;
    content_that_fails_leaves_nothing(&make().await).await;
    a_dropped_create_leaves_nothing_to_read(&make().await).await;
    an_adopted_file_moves_into_the_store(&make().await).await;
    what_cannot_be_adopted_stays_where_it_is(&make().await).await;
    pages_are_ordered_and_complete(&make().await).await;
    what_one_maker_made_is_one_range(&make().await).await;
}

/// Holds a store to its promises about content of `len` bytes, however large: give it more than a part of an upload.
///
/// # Panics
/// When it breaks a promise.
pub async fn contract_of_large<B: Blobs>(make: impl AsyncFn() -> B, len: u64) {
    let (blobs, fences) = (make().await, Fences::new(6));
    let name = ObjectName::new(fences.next());
    let stored = blobs.create(name, generated(1, len, 100_000)).await.unwrap();
    assert_eq!(stored.len, len);
    let chunks = read_checked(&blobs, name, stored).await.unwrap();
    let read = chunks.try_fold(0, async |at, chunk| {
        assert!(!chunk.is_empty() && chunk.len() <= CHUNK_BYTES_MAX, "a chunk of {} bytes", chunk.len());
        assert_eq!(chunk, generated_at(1, at, chunk.len()), "from byte {at}");
        Ok(at + chunk.len() as u64)
    });
    assert_eq!(read.await.unwrap(), len);
    assert_eq!(range(&blobs, name, len - 9..len - 1).await.unwrap(), generated_at(1, len - 9, 8));
    assert_eq!(blobs.create(name, generated(1, len, 77_777)).await.unwrap(), stored, "a second try is compared");
    let other = blobs.create(name, generated(2, len, 100_000)).await;
    assert!(matches!(other, Err(Error::Exists { .. })), "{other:?}");
    assert_eq!(blobs.size(name).await.unwrap(), len);
    assert_eq!(all(&blobs).await, [Listed { name, state: ObjectState::Whole { len } }]);
    let stopped = ObjectName::new(fences.next());
    let failed = blobs.create(stopped, failing_after(generated(3, len, 100_000))).await;
    assert!(matches!(failed, Err(Error::Content { .. })), "{failed:?}");
    assert_missing(&blobs, stopped).await;
    blobs.delete(name).await.unwrap();
    assert_eq!(all(&blobs).await, []);
}

/// Eight writers of one name, which should not be: one of them wins and the others are told.
///
/// # Panics
/// When it breaks a promise.
pub async fn contract_of_races<B: Blobs>(make: impl AsyncFn() -> B, len: u64) {
    let (blobs, fences) = (Arc::new(make().await), Fences::new(8));
    for _ in 0..8 {
        let name = ObjectName::new(fences.next());
        let create = |seed| {
            let blobs = blobs.clone();
            // On threads of their own where the runtime has several.
            tokio::runtime::Handle::current().spawn(async move { blobs.create(name, generated(seed, len, 1000)).await })
        };
        let outcomes = join_all((0..8).map(create)).await;
        let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
        let won: Vec<ContentInfo> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok().copied()).collect();
        assert_eq!(won.len(), 1, "{outcomes:?}");
        let lost = outcomes.iter().filter(|outcome| matches!(outcome, Err(Error::Exists { .. }))).count();
        assert_eq!(lost, 7, "{outcomes:?}");
        let chunks = read_checked(&*blobs, name, won[0]).await.unwrap();
        chunks.try_for_each(async |_| Ok(())).await.unwrap();
    }
    assert!(all(&*blobs).await.iter().all(|listed| listed.state == ObjectState::Whole { len }));
}

async fn what_is_created_is_read_back(blobs: &dyn Blobs) {
    let fences = Fences::new(1);
    for len in [0, 1, 1000, CHUNK_BYTES_MAX - 1, CHUNK_BYTES_MAX, 2 * CHUNK_BYTES_MAX + 1] {
        for chunk in [777, CHUNK_BYTES_MAX, 3 * CHUNK_BYTES_MAX] {
            let name = ObjectName::new(fences.next());
            let content = generated_at(9, 0, len);
            let stored = blobs.create(name, generated(9, len as u64, chunk)).await.unwrap();
            assert_eq!(stored, ContentInfo { len: len as u64, digest: Digest::of(&content) });
            assert_eq!(blobs.size(name).await.unwrap(), len as u64);
            assert_eq!(read_bytes(blobs, name, len as u64).await.unwrap(), content);
            let chunks: Vec<Bytes> = blobs.read(name, None).await.unwrap().try_collect().await.unwrap();
            assert!(chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK_BYTES_MAX));
        }
    }
    let name = ObjectName::new(fences.next());
    let empty = stream::iter([Ok(Bytes::new()), Ok(Bytes::from_static(b"a")), Ok(Bytes::new())]).boxed();
    assert_eq!(blobs.create(name, empty).await.unwrap().len, 1, "empty chunks mean nothing");
}

async fn a_range_gives_exactly_its_bytes(blobs: &dyn Blobs) {
    let (len, name) = (2 * CHUNK_BYTES_MAX as u64 + 10, ObjectName::new(Fences::new(1).next()));
    blobs.create(name, generated(4, len, 5000)).await.unwrap();
    for at in [0, 1, len / 2, len - 1, len] {
        for end in [at, at + 1, at + 3, at + CHUNK_BYTES_MAX as u64 + 1, len] {
            let found = range(blobs, name, at..end).await;
            if end <= len && at <= end {
                assert_eq!(found.unwrap(), generated_at(4, at, (end - at) as usize), "{at}..{end}");
            } else {
                assert!(matches!(found, Err(Error::Range { len: of, .. }) if of == len), "{at}..{end}: {found:?}");
            }
        }
    }
    #[expect(clippy::reversed_empty_ranges, reason = "that is the question")]
    for wrong in [2..1, len + 1..len + 1, u64::MAX - 1..u64::MAX] {
        let found = range(blobs, name, wrong).await;
        assert!(matches!(found, Err(Error::Range { .. })), "{found:?}");
    }
}

async fn what_is_not_there_is_missing(blobs: &dyn Blobs) {
    let name = ObjectName::new(Fences::new(1).next());
    assert_missing(blobs, name).await;
    assert!(matches!(range(blobs, name, 0..1).await, Err(Error::Missing { .. })));
    assert!(matches!(range(blobs, name, 0..0).await, Err(Error::Missing { .. })));
    assert_eq!(all(blobs).await, []);
}

async fn a_name_is_created_once(blobs: &dyn Blobs) {
    let name = ObjectName::new(Fences::new(1).next());
    let stored = blobs.create(name, from_bytes("one")).await.unwrap();
    assert_eq!(blobs.create(name, from_bytes("one")).await.unwrap(), stored, "a second try answers what the first did");
    for other in ["two", "", "one "] {
        let refused = blobs.create(name, from_bytes(other)).await;
        assert!(matches!(refused, Err(Error::Exists { name: found, .. }) if found == name), "{refused:?}");
    }
    assert_eq!(read_bytes(blobs, name, 3).await.unwrap(), "one");
    assert_eq!(all(blobs).await, [Listed { name, state: ObjectState::Whole { len: 3 } }]);
}

async fn deleting_twice_is_fine(blobs: &dyn Blobs) {
    let fences = Fences::new(1);
    let (name, kept) = (ObjectName::new(fences.next()), ObjectName::new(fences.next()));
    blobs.delete(name).await.unwrap();
    for name in [name, kept] {
        blobs.create(name, from_bytes("one")).await.unwrap();
    }
    for _ in 0..2 {
        blobs.delete(name).await.unwrap();
        assert_missing(blobs, name).await;
    }
    assert_eq!(all(blobs).await, [Listed { name: kept, state: ObjectState::Whole { len: 3 } }]);
}

async fn content_that_fails_leaves_nothing(blobs: &dyn Blobs) {
    let name = ObjectName::new(Fences::new(1).next());
    for len in [0, 10, 3 * CHUNK_BYTES_MAX as u64] {
        let failed = blobs.create(name, failing_after(generated(1, len, 1000))).await;
        assert!(matches!(&failed, Err(Error::Content { why, .. }) if why.contains("broken pipe")), "{failed:?}");
        assert_missing(blobs, name).await;
    }
    blobs.create(name, from_bytes("now")).await.unwrap();
    assert_eq!(all(blobs).await, [Listed { name, state: ObjectState::Whole { len: 3 } }]);
}

async fn a_dropped_create_leaves_nothing_to_read(blobs: &dyn Blobs) {
    let name = ObjectName::new(Fences::new(1).next());
    for len in [0, 10, 3 * CHUNK_BYTES_MAX as u64] {
        stop_in_the_middle(blobs, name, generated(1, len, 1000)).await;
        assert_missing(blobs, name).await;
    }
    // Remains, if any, are listed, and are deleted with the name.
    assert!(all(blobs).await.iter().all(|listed| *listed == Listed { name, state: ObjectState::Unfinished }));
    blobs.delete(name).await.unwrap();
    assert_eq!(all(blobs).await, []);
}

async fn an_adopted_file_moves_into_the_store(blobs: &dyn Blobs) {
    let (scratch, fences) = (tempfile::tempdir().unwrap(), Fences::new(1));
    for len in [0, 10, 3 * CHUNK_BYTES_MAX + 1] {
        let (name, path, content) =
            (ObjectName::new(fences.next()), scratch.path().join("out"), generated_at(5, 0, len));
        std::fs::write(&path, &content).unwrap();
        let stored = blobs.adopt(name, &path).await.unwrap();
        assert_eq!(stored, ContentInfo { len: len as u64, digest: Digest::of(&content) });
        assert!(!path.exists(), "it is in the store now");
        assert_eq!(read_bytes(blobs, name, len as u64).await.unwrap(), content);
        assert_eq!(blobs.adopt(name, &path).await.unwrap(), stored, "the first try took the file");
        std::fs::write(&path, &content).unwrap();
        assert_eq!(blobs.adopt(name, &path).await.unwrap(), stored, "the first try stopped before removing it");
        assert!(!path.exists());
    }
    assert_eq!(all(blobs).await.len(), 3);
}

async fn what_cannot_be_adopted_stays_where_it_is(blobs: &dyn Blobs) {
    let (scratch, fences) = (tempfile::tempdir().unwrap(), Fences::new(1));
    let (name, taken) = (ObjectName::new(fences.next()), ObjectName::new(fences.next()));
    blobs.create(taken, from_bytes("taken")).await.unwrap();
    let file = scratch.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    assert!(matches!(blobs.adopt(taken, &file).await, Err(Error::Exists { .. })));
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    for wrong in [scratch.path().join("nothing"), scratch.path().to_owned()] {
        let refused = blobs.adopt(name, &wrong).await;
        assert!(matches!(refused, Err(Error::Content { .. })), "{refused:?}");
    }
    #[cfg(unix)]
    {
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(matches!(blobs.adopt(name, &link).await, Err(Error::Content { .. })));
        assert!(link.exists());
    }
    assert_eq!(all(blobs).await.len(), 1);
}

async fn pages_are_ordered_and_complete(blobs: &dyn Blobs) {
    let makers = [3, 1, 2].map(Fences::new);
    let mut names: Vec<ObjectName> = (0..12).map(|at| ObjectName::new(makers[at % 3].next())).collect();
    for (len, name) in names.iter().enumerate() {
        blobs.create(*name, from_bytes(vec![0; len])).await.unwrap();
    }
    let whole: Vec<_> = names.iter().copied().enumerate().collect();
    names.sort();
    for limit in [1, 2, 5, 12, 13, LIST_OBJECTS_MAX + 1] {
        let pages = pages(blobs, None, limit).await;
        assert!(pages.iter().all(|page| page.objects.len() <= limit), "{pages:?}");
        let listed: Vec<Listed> = pages.into_iter().flat_map(|page| page.objects).collect();
        assert_eq!(listed.iter().map(|listed| listed.name).collect::<Vec<_>>(), names, "in pages of {limit}");
        for (len, name) in &whole {
            assert!(listed.contains(&Listed { name: *name, state: ObjectState::Whole { len: *len as u64 } }));
        }
    }
}

async fn what_one_maker_made_is_one_range(blobs: &dyn Blobs) {
    let makers = [0, 6, 7, 8].map(Fences::new);
    for maker in &makers {
        for _ in 0..2 {
            blobs.create(ObjectName::new(maker.next()), from_bytes("x")).await.unwrap();
        }
    }
    for maker in [0, 6, 7, 8] {
        let page = blobs.list(ObjectName::before_all_of(maker), 2).await.unwrap();
        assert!(page.objects.iter().all(|listed| listed.name.made_by() == maker), "{page:?}");
        assert_eq!(page.objects.len(), 2);
    }
}

/// The same content, with an error in place of its end.
fn failing_after(content: ByteStream) -> ByteStream {
    let broken = io::Error::new(io::ErrorKind::BrokenPipe, "broken pipe");
    content.chain(stream::iter([Err(broken)])).boxed()
}

/// Begins to create, and drops it when all content was taken and its end is awaited.
async fn stop_in_the_middle(blobs: &dyn Blobs, name: ObjectName, content: ByteStream) {
    let (taken, all_taken) = tokio::sync::oneshot::channel::<()>();
    let end = async move {
        let _ = taken.send(());
        std::future::pending().await
    };
    let create = blobs.create(name, content.chain(end.into_stream()).boxed());
    futures_util::future::select(create, all_taken).await;
}

async fn range(blobs: &dyn Blobs, name: ObjectName, range: std::ops::Range<u64>) -> Result<Bytes, Error> {
    let chunks: Vec<Bytes> = blobs.read(name, Some(range)).await?.try_collect().await?;
    Ok(chunks.concat().into())
}

async fn pages(blobs: &dyn Blobs, mut after: Option<ObjectName>, limit: usize) -> Vec<Page> {
    let mut pages: Vec<Page> = Vec::new();
    while pages.last().is_none_or(|page| page.more) {
        let page = blobs.list(after, limit).await.unwrap();
        after = page.objects.last().map(|listed| listed.name).or(after);
        pages.push(page);
    }
    pages
}

/// Everything that is listed.
pub(super) async fn all(blobs: &dyn Blobs) -> Vec<Listed> {
    pages(blobs, None, LIST_OBJECTS_MAX).await.into_iter().flat_map(|page| page.objects).collect()
}

async fn assert_missing(blobs: &dyn Blobs, name: ObjectName) {
    assert!(matches!(blobs.size(name).await, Err(Error::Missing { name: missing, .. }) if missing == name));
    assert!(matches!(blobs.read(name, None).await.map(drop), Err(Error::Missing { .. })));
}
