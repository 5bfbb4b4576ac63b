//! The paged backend beyond the contract and crash suites: state larger than its cache, damage, failed syncs, and
//! directories of another backend.

use onceflow_store::{
    Error, Records, Store,
    backend::{
        embedded::{Embedded, OpenError},
        journal::{self, ExpectedStore},
        paged::{FILE_NAME, Options, Paged},
    },
    core::{Batch, Claim, Fences, Group, Inbox, Key, Name, Pick, Row, Shard, limits},
    records::{Scan, commit_durably, get_one},
    testing::{
        disk::{Disk, Trouble},
        random::Random,
        world::TestWorld,
    },
    world::RealWorld,
};
use std::{io::ErrorKind, path::Path, sync::Arc};

const SHARD: Shard = Shard(0);

fn open(disk: &Disk, options: Options) -> Result<Paged, onceflow_store::backend::paged::OpenError> {
    let opened = Paged::open(Arc::new(disk.clone()), options, TestWorld::new(1), ExpectedStore::Unknown);
    opened.map(|(paged, _)| paged)
}

fn key(name: impl AsRef<[u8]>) -> Key {
    Group::rows("g").key(name)
}

fn put(name: &str, row: &str) -> Batch {
    let mut batch = Batch::new(SHARD);
    batch.put(key(name), Row::new(row));
    batch
}

/// Resident memory of this process.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn state_larger_than_the_cache_is_read_back_and_memory_stays_bounded() {
    const ROWS: u32 = 60_000;
    let dir = tempfile::tempdir().unwrap();
    let options = Options { cache_bytes: 1 << 20, unwritten_bytes_max: 1 << 20 };
    let store = Embedded::open(dir.path(), options.clone(), RealWorld::here()).await.unwrap();
    let row = |n: u32| Row::from(vec![n as u8; 1000]);
    let before = resident_bytes();
    for n in (0..ROWS).step_by(1000) {
        let mut batch = Batch::new(SHARD);
        for n in n..n + 1000 {
            batch.put(key(n.wrapping_mul(2_654_435_761).to_be_bytes()), row(n));
        }
        assert!(store.commit(batch).await.unwrap().is_applied());
    }
    store.durable(store.position()).await.unwrap();
    let grown = resident_bytes().saturating_sub(before);
    // Other tests of this process run beside; sixty megabytes of rows would be seen all the same.
    assert!(grown < 48 << 20, "memory grew by {grown} bytes for 60 MB of rows behind a cache of 1 MiB");
    store.close().await.unwrap();
    let store = Embedded::open(dir.path(), options, RealWorld::here()).await.unwrap();
    let mut random = Random::new(5);
    for _ in 0..500 {
        let n = random.below(ROWS as usize) as u32;
        let name = n.wrapping_mul(2_654_435_761).to_be_bytes();
        assert_eq!(get_one(&*store, SHARD, key(name)).await.unwrap(), Some(row(n)));
    }
    let (mut seen, mut after) = (0, None);
    loop {
        let page = store.scan(SHARD, Scan::of(Group::rows("g"), 4096).after(after)).await.unwrap();
        seen += page.rows.len();
        after = page.rows.last().map(|(name, _)| name.clone());
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, ROWS as usize);
}

#[tokio::test]
async fn the_largest_batch_is_taken_as_a_whole() {
    let disk = Disk::new();
    let store = open(&disk, Options::default()).unwrap();
    let mut batch = Batch::new(SHARD);
    for n in 0..limits::PLAIN_OPS_MAX {
        batch.put(key(n.to_be_bytes()), Row::new("r"));
    }
    assert!(commit_durably(&store, batch).await.unwrap().is_applied());
    let mut clear = Batch::new(SHARD);
    clear.delete_group(Group::rows("g")).put(key("one"), Row::new("left"));
    assert!(store.commit(clear).await.unwrap().is_applied());
    store.close().await.unwrap();
    let store = open(&disk, Options::default()).unwrap();
    let page = store.scan(SHARD, Scan::of(Group::rows("g"), 10)).await.unwrap();
    assert_eq!(page.rows, [(Name::new("one"), Row::new("left"))]);
}

#[tokio::test]
async fn ready_rows_are_there_again_and_claims_are_not() {
    let disk = Disk::new();
    let store = open(&disk, Options::default()).unwrap();
    let queue = Group::queue("q");
    let inbox = Inbox { group: Group::rows("g"), prefix: Name::new("in"), note: vec![] };
    let mut batch = put("input", "1");
    batch.put(queue.key("a"), inbox.to_row()).put(queue.key("b"), inbox.to_row());
    let fences = Fences::new(3);
    let claim = || Claim { queues: vec![queue.clone()], fence: fences.next(), ttl_ms: 1000, pick: Pick::InTurn };
    batch.claim(claim());
    let claimed = commit_durably(&store, batch).await.unwrap().applied().unwrap().claimed.unwrap();
    assert_eq!(claimed.inputs, [(Name::new("input"), Row::new("1"))]);
    assert_eq!(store.claims().len(), 1);
    let store = open(&disk.after_kill(), Options::default()).unwrap();
    assert!(store.claims().is_empty());
    for _ in 0..2 {
        let mut take = Batch::new(SHARD);
        take.claim(claim());
        assert!(store.commit(take).await.unwrap().applied().unwrap().claimed.is_some());
    }
}

#[tokio::test]
async fn a_failed_sync_ends_the_store_and_is_never_tried_again() {
    let disk = Disk::new();
    let store = open(&disk, Options::default()).unwrap();
    assert!(commit_durably(&store, put("a", "1")).await.unwrap().is_applied());
    disk.trouble_at(1, Trouble::Fail(ErrorKind::Other));
    let outcome = store.commit(put("b", "2")).await.unwrap();
    let lost = store.durable(outcome.position()).await.unwrap_err();
    assert!(matches!(lost, Error::Unknown(_)) && lost.to_string().contains("open it again"), "{lost}");
    for refused in [store.commit(put("c", "3")).await.map(drop), store.get(SHARD, &[key("a")]).await.map(drop)] {
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    }
    assert!(store.health().is_err());
    let store = open(&disk.after_power_cut(1), Options::default()).unwrap();
    assert_eq!(get_one(&store, SHARD, key("a")).await.unwrap(), Some(Row::new("1")));
}

#[tokio::test]
async fn a_flipped_bit_never_gives_a_row_with_another_content() {
    const ROWS: usize = 300;
    let disk = Disk::new();
    let store = open(&disk, Options::default()).unwrap();
    let mut batch = Batch::new(SHARD);
    for n in 0..ROWS {
        batch.put(key(format!("row-{n:04}")), Row::from(format!("content {n}").repeat(5).into_bytes()));
    }
    assert!(commit_durably(&store, batch).await.unwrap().is_applied());
    let scan = || Scan::of(Group::rows("g"), 4096);
    let expected = store.scan(SHARD, scan()).await.unwrap();
    store.close().await.unwrap();
    let bytes = disk.read(FILE_NAME);
    let mut random = Random::new(1);
    let marks: Vec<_> = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, _)| at).collect();
    let (mut refused, mut tried) = (0, 0);
    for at in marks.iter().step_by(marks.len() / 400) {
        let flipped = disk.after_kill();
        let mut bytes = bytes.clone();
        bytes[*at] ^= 1 << random.below(8);
        flipped.overwrite(FILE_NAME, bytes);
        tried += 1;
        let Ok(store) = open(&flipped, Options::default()) else {
            refused += 1;
            continue;
        };
        match store.scan(SHARD, scan()).await {
            Ok(page) => {
                let other = page.rows.iter().find(|row| !expected.rows.contains(row));
                assert_eq!(other, None, "byte {at} was flipped, and a row is another one");
            }
            Err(Error::Damaged(_)) => refused += 1,
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
    // Most of the others are in pages that are not in use any more.
    assert!(refused * 4 > tried, "only {refused} of {tried} flipped bits were seen");
}

#[tokio::test]
async fn a_directory_of_another_backend_is_refused_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let url = |scheme: &str, dir: &Path| format!("{scheme}:{}", dir.display());
    for (made, asked) in [("journal", "paged"), ("paged", "journal")] {
        let dir = dir.path().join(made);
        let store = Store::open_url(url(made, &dir)).await.unwrap();
        // As a guest of the owner, and when no process has it open.
        for owned in [true, false] {
            let error = Store::open_url(url(asked, &dir)).await.err().expect("it is another store").to_string();
            let hint = format!("hint: open it as `{made}:");
            assert!(error.contains(&format!("holds a {made} store")) && error.contains(&hint), "{owned}: {error}");
            store.close().await.unwrap();
        }
        let found = Store::open(&dir).await.unwrap();
        found.close().await.unwrap();
    }
    let gone = dir.path().join("paged");
    std::fs::remove_file(gone.join(FILE_NAME)).unwrap();
    let error = Store::open_url(url("paged", &gone)).await.err().expect("its rows are gone");
    assert!(error.to_string().contains("its file `pages` is gone"), "{error}");
    let journal: Result<_, OpenError> =
        Embedded::open(&gone, journal::Options::default(), RealWorld::here()).await.map(drop);
    assert!(journal.is_err(), "nothing is made anew where a store was");
}
