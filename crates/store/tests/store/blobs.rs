//! The blob stores that need no server, held to the contract, and tests of the directory alone.

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use onceflow_store::{
    blobs::{
        Blobs, Digest, DirectoryBlobs, Error, Listed, ObjectName, ObjectState, Objects,
        content::{from_bytes, read_bytes, read_checked},
    },
    core::{Fences, limits::CHUNK_BYTES_MAX},
    testing::blobs::{self, generated, generated_at},
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A new directory each time, all of them gone at the end of the test.
struct Directories {
    root: TempDir,
    made: AtomicU64,
}

impl Directories {
    fn new() -> Self {
        Directories { root: tempfile::tempdir().unwrap(), made: AtomicU64::new(0) }
    }

    async fn make(&self) -> DirectoryBlobs {
        let path = self.root.path().join(self.made.fetch_add(1, Relaxed).to_string());
        DirectoryBlobs::open(path.join("blobs")).await.unwrap()
    }
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    blobs::contract(async || Objects::memory()).await;
    blobs::contract_of_large(async || Objects::memory(), 20 * MIB).await;
    blobs::contract_under_faults(async || Objects::memory()).await;
}

#[tokio::test]
async fn a_directory_keeps_the_contract() {
    let directories = Directories::new();
    blobs::contract(async || directories.make().await).await;
    blobs::contract_of_large(async || directories.make().await, 20 * MIB).await;
    blobs::contract_under_faults(async || directories.make().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_eight_writers_of_a_name_wins() {
    let directories = Directories::new();
    for len in [10, 5000, 2 * MIB] {
        blobs::contract_of_races(async || Objects::memory(), len).await;
        blobs::contract_of_races(async || directories.make().await, len).await;
    }
}

fn name(count: usize) -> ObjectName {
    let fences = Fences::new(1);
    (0..=count).map(|_| ObjectName::new(fences.next())).last().unwrap()
}

async fn open(root: &Path) -> DirectoryBlobs {
    DirectoryBlobs::open(root).await.unwrap()
}

fn files(directory: PathBuf) -> Vec<String> {
    let mut files: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_create_stopped_at_any_chunk_leaves_no_file() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).await;
    for chunks in 0..6 {
        let (sent, all_sent) = tokio::sync::oneshot::channel::<()>();
        let end = async move {
            let _ = sent.send(());
            std::future::pending().await
        };
        let content = generated(1, chunks * CHUNK_BYTES_MAX as u64, CHUNK_BYTES_MAX).chain(end.into_stream());
        let create = store.create(name(0), content.boxed());
        let stopped = futures_util::future::select(create, all_sent).await;
        let on_the_way = files(root.path().join("unfinished"));
        assert_eq!(on_the_way.len(), 1);
        assert!(on_the_way[0].starts_with(&name(0).to_string()));
        let listed = store.list(None, 10).await.unwrap().objects;
        assert_eq!(listed, [Listed { name: name(0), state: ObjectState::Unfinished }]);
        drop(stopped);
        assert_eq!(files(root.path().join("unfinished")), [""; 0]);
        assert_eq!(files(root.path().join("objects")), [""; 0]);
    }
}

/// The files a process leaves that is killed: before its file was linked, and after.
#[tokio::test]
async fn partial_uploads_of_a_killed_writer_are_listed_and_removed_by_name() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).await;
    let [unfinished, objects] = ["unfinished", "objects"].map(|directory| root.path().join(directory));
    fs::write(unfinished.join(format!("{}.99-0", name(0))), "hal").unwrap();
    store.create(name(1), from_bytes("whole")).await.unwrap();
    fs::hard_link(objects.join(name(1).to_string()), unfinished.join(format!("{}.99-1", name(1)))).unwrap();
    let left = [
        Listed { name: name(0), state: ObjectState::Unfinished },
        Listed { name: name(1), state: ObjectState::Whole { len: 5 } },
    ];
    assert_eq!(open(root.path()).await.list(None, 10).await.unwrap().objects, left);

    // The same writer tries again: the remains of its first try are removed.
    store.create(name(0), from_bytes("half")).await.unwrap();
    assert_eq!(files(unfinished.clone()), [format!("{}.99-1", name(1))]);
    for name in [name(0), name(1)] {
        store.delete(name).await.unwrap();
    }
    assert_eq!((files(unfinished), files(objects)), (vec![], vec![]));
}

#[tokio::test]
async fn a_writer_whose_name_is_deleted_stores_nothing() {
    let root = tempfile::tempdir().unwrap();
    let store = Arc::new(open(root.path()).await);
    let deleting = store.clone();
    let end = async move {
        deleting.delete(name(0)).await.unwrap();
        Ok(Bytes::from_static(b"end"))
    };
    let content = generated(1, MIB, 1000).chain(end.into_stream()).boxed();
    assert!(matches!(store.create(name(0), content).await, Err(Error::Missing { .. })));
    assert_eq!(store.list(None, 10).await.unwrap().objects, []);
}

#[tokio::test]
async fn files_of_others_are_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).await;
    let notes = ["objects/README", "unfinished/x.1"].map(|file| root.path().join(file));
    notes.iter().for_each(|file| fs::write(file, "?").unwrap());
    assert_eq!(store.list(None, 10).await.unwrap().objects, []);
    store.delete(name(0)).await.unwrap();
    assert!(notes.iter().all(|file| file.exists()));
}

#[cfg(unix)]
#[tokio::test]
async fn an_adopted_file_keeps_its_inode() {
    use std::os::unix::fs::MetadataExt;
    let root = tempfile::tempdir().unwrap();
    let store = open(&root.path().join("store")).await;
    let file = root.path().join("out");
    fs::write(&file, "result").unwrap();
    let inode = fs::metadata(&file).unwrap().ino();
    store.adopt(name(0), &file).await.unwrap();
    let object = fs::metadata(root.path().join("store/objects").join(name(0).to_string())).unwrap();
    assert_eq!((object.ino(), object.nlink()), (inode, 1));
    assert_eq!(files(root.path().join("store/unfinished")), [""; 0]);
}

/// On Linux `/dev/shm` is a file system of its own.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_of_another_file_system_is_copied_and_removed() {
    use std::os::unix::fs::MetadataExt;
    let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    assert_ne!(device(root.path()), device(elsewhere.path()), "this test needs two file systems");
    let (store, file) = (open(root.path()).await, elsewhere.path().join("out"));
    fs::write(&file, generated_at(3, 0, 1_000_000)).unwrap();
    let stored = store.adopt(name(0), &file).await.unwrap();
    assert_eq!(stored.digest, Digest::of(&generated_at(3, 0, 1_000_000)));
    assert!(!file.exists());
    assert_eq!(store.adopt(name(0), &file).await.unwrap(), stored);
    assert_eq!(read_bytes(&store, name(0), MIB).await.unwrap(), generated_at(3, 0, 1_000_000));
}

/// Neither side may run ahead of the other by more than a few chunks.
#[tokio::test]
async fn a_large_blob_is_never_in_memory_at_once() {
    const LEN: u64 = 64 * MIB;
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).await;
    let (object, made) = (root.path().to_owned(), Arc::new(AtomicU64::new(0)));
    let counted = made.clone();
    let content = generated(1, LEN, 1 << 16).inspect_ok(move |chunk| {
        let ahead = counted.fetch_add(chunk.len() as u64, Relaxed) - written(&object);
        assert!(ahead <= 2 * CHUNK_BYTES_MAX as u64, "{ahead} bytes are made and not written");
    });
    let stored = store.create(name(0), content.boxed()).await.unwrap();
    assert_eq!((stored.len, made.load(Relaxed)), (LEN, LEN));

    let chunks = read_checked(&store, name(0), stored).await.unwrap();
    let expected = generated(1, LEN, CHUNK_BYTES_MAX).map_err(|error| panic!("{error}"));
    let read = chunks.zip(expected).fold(0, async |read, (chunk, expected)| {
        let chunk = chunk.unwrap();
        assert!(chunk.len() <= CHUNK_BYTES_MAX && expected.is_ok_and(|expected| expected == chunk));
        read + chunk.len() as u64
    });
    assert_eq!(read.await, LEN);
}

/// Bytes in the one unfinished file.
fn written(root: &Path) -> u64 {
    fs::read_dir(root.join("unfinished")).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[tokio::test]
async fn damage_shows_at_the_end_of_a_checked_read() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).await;
    let stored = store.create(name(0), from_bytes("what was written")).await.unwrap();
    let check = async || {
        let chunks = read_checked(&store, name(0), stored).await.unwrap();
        chunks.try_for_each(async |_| Ok(())).await
    };
    check().await.unwrap();
    for wrong in ["What was written", "what was", ""] {
        fs::write(root.path().join("objects").join(name(0).to_string()), wrong).unwrap();
        let found = check().await;
        assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
    }
}

#[tokio::test]
async fn errors_say_what_where_and_what_to_do() {
    let store = Objects::memory();
    let missing = store.size(name(1)).await.unwrap_err();
    expect_test::expect!["object 00000000000000000000000000000001-0000000000000001 is not in memory"]
        .assert_eq(&missing.to_string());
    let broken = stream::iter([Err(std::io::Error::other("the pipe broke"))]).boxed();
    let content = store.create(name(1), broken).await.unwrap_err();
    expect_test::expect![
        "the content of object 00000000000000000000000000000001-0000000000000001 was not stored: the pipe broke"
    ]
    .assert_eq(&content.to_string());
    expect_test::expect!["mend what produces the content and store it again under a new name"]
        .assert_eq(content.hint());
}
