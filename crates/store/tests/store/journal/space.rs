//! The disk space a journal takes, and its behaviour when there is none.

use super::support::*;
use onceflow_store::{
    Error, Records,
    backend::journal::Options,
    core::{Batch, Row},
    testing::disk::Disk,
};

#[tokio::test]
async fn a_full_disk_refuses_before_anything_is_visible_and_goes_on_when_there_is_room() {
    let disk = Disk::new();
    let (journal, _) = open(&disk, Options::default()).unwrap();
    // A new store is small, and takes more as it is used: some of what it asks for is there.
    disk.limit_bytes(Some(disk.bytes() + (1 << 20)));
    let large = Row::from(vec![7; 100_000]);
    let (mut there, mut full) = (0, None);
    for count in 0..100 {
        let mut batch = Batch::new(SHARD);
        batch.put(key(&format!("large-{count}")), large.clone());
        match commit(&journal, batch).await {
            Ok(_) => there += 1,
            Err(error) => {
                full = Some((count, error));
                break;
            }
        }
    }
    let (count, error) = full.expect("the disk never filled up");
    assert!(matches!(error, Error::Full(_)), "{error}");
    assert!(there >= 5, "only {there} batches went in");
    assert_eq!(journal.get(SHARD, &[key(&format!("large-{count}"))]).await.unwrap(), [None]);
    assert!(journal.health().is_ok(), "a full disk is no fault");
    // Small ones still fit into the prepared space; stored rows are safe.
    let (reopened, _) = open(&disk.after_power_cut(1), Options::default()).unwrap();
    assert_eq!(rows(&reopened.state()).len(), there);
    disk.limit_bytes(None);
    commit(&journal, put("again", "1")).await.unwrap();
    let mut batch = Batch::new(SHARD);
    batch.put(key("large again"), large);
    commit(&journal, batch).await.unwrap();
}

#[tokio::test]
async fn the_disk_holds_what_is_live_and_not_what_has_been() {
    let disk = Disk::new();
    let options = Options { snapshot_log_bytes_min: 100_000, ..Options::default() };
    let (journal, _) = open(&disk, options.clone()).unwrap();
    for count in 0..20_000u32 {
        let mut batch = Batch::new(SHARD);
        batch.put(key(&format!("{count}")), Row::from(vec![1; 100]));
        batch.delete(key(&format!("{}", count.wrapping_sub(100))));
        let outcome = journal.commit(batch).await.unwrap();
        if count % 64 == 0 {
            journal.durable(outcome.position()).await.unwrap();
        }
    }
    let last = journal.position();
    journal.durable(last).await.unwrap();
    // Twenty thousand rows of a hundred bytes have passed through; a hundred of them are there.
    let log_and_snapshot = 2 << 20;
    assert!(disk.bytes() < 100_000 + log_and_snapshot, "{} bytes for 100 rows", disk.bytes());
    let left = disk.after_power_cut(3);
    let (reopened, recovered) = open(&left, options).unwrap();
    assert_eq!(recovered.rows, 100);
    assert_eq!(rows(&reopened.state()), rows(&journal.state()));
}

#[tokio::test]
async fn the_largest_batch_fits() {
    use onceflow_store::core::limits;
    let disk = Disk::new();
    let (journal, _) = open(&disk, Options::default()).unwrap();
    let mut batch = Batch::new(SHARD);
    for count in 0..limits::BATCH_BYTES_MAX / limits::ROW_BYTES_MAX {
        batch.put(key(&format!("{count}")), Row::from(vec![3; limits::ROW_BYTES_MAX]));
    }
    for _ in 0..8 {
        commit(&journal, batch.clone()).await.unwrap();
    }
    let (reopened, _) = open(&disk.after_power_cut(1), Options::default()).unwrap();
    assert_eq!(rows(&reopened.state()), rows(&journal.state()));
}

#[tokio::test]
async fn a_log_that_nobody_waits_for_goes_on_in_further_segments_and_is_synced_on_the_way() {
    const ROW_BYTES: usize = 200_000;
    const ROWS: usize = 40 << 20 >> 17;
    let disk = Disk::new();
    let options = Options { snapshot_log_bytes_min: u64::MAX, ..Options::default() };
    let (journal, _) = open(&disk, options.clone()).unwrap();
    for count in 0..ROWS {
        let mut batch = Batch::new(SHARD);
        batch.put(key(&format!("{}", count % 3)), Row::from(vec![count as u8; ROW_BYTES]));
        assert!(journal.commit(batch).await.unwrap().is_applied());
    }
    let last = journal.position();
    journal.durable(last).await.unwrap();
    let names = disk.names();
    let sizes: Vec<_> =
        names.iter().filter(|name| name.starts_with("log-")).map(|name| disk.read(name).len()).collect();
    assert!(sizes.len() >= 3, "{sizes:?}");
    assert!(sizes.iter().all(|bytes| *bytes < 19 << 20), "{sizes:?}");
    let (reopened, _) = open(&disk.after_power_cut(1), options).unwrap();
    assert_eq!(rows(&reopened.state()), rows(&journal.state()));
}

#[tokio::test]
async fn a_store_that_was_emptied_keeps_hardly_any_log_when_it_is_closed() {
    let disk = Disk::new();
    let (journal, _) = open(&disk, Options::default()).unwrap();
    commit(&journal, put("stays", "1")).await.unwrap();
    for count in 0..40 {
        let mut batch = Batch::new(SHARD);
        batch.put(key("large"), Row::from(vec![count; 50_000]));
        commit(&journal, batch).await.unwrap();
    }
    let mut batch = Batch::new(SHARD);
    batch.delete(key("large"));
    commit(&journal, batch).await.unwrap();
    assert!(disk.bytes() > 2_000_000, "{}", disk.bytes());
    journal.close().await.unwrap();
    assert!(disk.bytes() < 150_000, "{} bytes are left for one small row", disk.bytes());
    let left = disk.bytes();
    for disk in [disk.after_power_cut(1), disk.clone()] {
        let (journal, recovered) = open(&disk, Options::default()).unwrap();
        assert_eq!(rows(&journal.state()).len(), 1, "{recovered:?}");
        commit(&journal, put("again", "2")).await.unwrap();
        journal.close().await.unwrap();
        let (journal, _) = open(&disk, Options::default()).unwrap();
        assert_eq!(rows(&journal.state()).len(), 2);
        journal.close().await.unwrap();
    }
    assert!(disk.bytes() < left + 10_000, "closing a small journal again writes no other snapshot");
}
