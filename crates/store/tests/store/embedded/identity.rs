//! The parts of a store stay together: its lock, its log, its objects.

use super::*;
use std::{fs, path::PathBuf};

/// A directory with a store that has a row and, as large values have, an object.
async fn store_in(dir: &Path, row: &str) {
    let store = open(dir).await;
    assert!(store.commit(put(row)).await.unwrap().is_applied());
    store.close().await.unwrap();
    let objects = dir.join("blobs/0/objects");
    fs::create_dir_all(&objects).unwrap();
    fs::write(objects.join("object"), "content").unwrap();
    // The next process that opens the store records whose objects they are.
    open(dir).await.close().await.unwrap();
    assert_eq!(fs::read(dir.join("store-id")).unwrap(), fs::read(dir.join("blobs/store-id")).unwrap());
}

/// The files of the journal.
fn journal(dir: &Path) -> Vec<PathBuf> {
    let is_journals = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("log-") || name.starts_with("snap-") || name == "durable"
    };
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(is_journals).collect()
}

fn content(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = journal(dir);
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

async fn refused(dir: &Path) -> String {
    match Embedded::open(dir, Options::default(), RealWorld::here()).await {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_store_whose_log_is_gone_is_not_made_anew() {
    let parent = tempfile::tempdir().unwrap();
    for (name, removed) in [("both", &[][..]), ("old", &["store-id", "blobs/store-id"]), ("one", &["store-id"])] {
        let dir = parent.path().join(name);
        store_in(&dir, "a").await;
        journal(&dir).iter().for_each(|path| fs::remove_file(path).unwrap());
        removed.iter().for_each(|path| fs::remove_file(dir.join(path)).unwrap());
        for _ in 0..2 {
            let said = refused(&dir).await;
            assert!(said.contains("its log and its snapshot are gone") && said.contains("hint:"), "{name}: {said}");
            assert!(journal(&dir).is_empty(), "{name}: a new one was made");
        }
    }
}

#[tokio::test]
async fn another_stores_log_is_refused_and_left_alone() {
    let parent = tempfile::tempdir().unwrap();
    let (one, two) = (parent.path().join("one"), parent.path().join("two"));
    store_in(&one, "a").await;
    store_in(&two, "b").await;
    journal(&one).iter().for_each(|path| fs::remove_file(path).unwrap());
    for path in journal(&two) {
        fs::copy(&path, one.join(path.file_name().unwrap())).unwrap();
    }
    let before = content(&one);
    let said = refused(&one).await;
    assert!(said.contains("belongs to store") && said.contains("hint:"), "{said}");
    assert_eq!(content(&one), before);
}

#[tokio::test]
async fn a_store_of_an_earlier_version_is_told_its_name() {
    let dir = tempfile::tempdir().unwrap();
    store_in(dir.path(), "a").await;
    for name in ["store-id", "blobs/store-id"] {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    fs::remove_dir(dir.path().join("members")).unwrap();
    fs::write(dir.path().join("LOCK"), "").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let store = open(dir.path()).await;
    assert!(has(&store, "a").await);
    assert_eq!(dir.path().metadata().unwrap().permissions().mode() & 0o777, 0o700, "it is tightened");
    assert!(dir.path().join("store-id").exists() && dir.path().join("blobs/store-id").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_whose_lock_file_is_removed_stops_writing_and_no_second_owner_writes_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let owner = open(dir.path()).await;
    assert!(records::commit_durably(&*owner, put("a")).await.unwrap().is_applied());
    fs::remove_file(dir.path().join("LOCK")).unwrap();
    // The second is the first one's guest, or waits: the directory is locked, too.
    let second = open(dir.path()).await;
    assert!(!matches!(second.role(), Role::Owner { .. }));
    let before = content(dir.path());
    let error = records::commit_durably(&*owner, put("b")).await.unwrap_err().to_string();
    assert!(error.contains("was removed or replaced"), "{error}");
    assert_eq!(content(dir.path()), before, "it wrote all the same");
    assert!(owner.close().await.is_err());
    second.until_owner().await.unwrap();
    assert!(has(&second, "a").await && !has(&second, "b").await);
    assert!(records::commit_durably(&*second, put("c")).await.unwrap().is_applied());
}
