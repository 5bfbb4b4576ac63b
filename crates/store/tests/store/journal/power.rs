//! Power cuts, killed processes and failing disks, at every operation.

use super::support::*;
use onceflow_store::{
    Records,
    backend::journal::{Durability, Options},
    testing::disk::{Disk, Trouble},
};
use std::io::ErrorKind;

/// How many power cuts are tried at every operation; all their sectors fall differently.
fn cuts() -> u64 {
    if std::env::var_os("ONCEFLOW_LONG").is_some() { 64 } else { 4 }
}

/// Batches of a run that is stopped at each of its operations: the work grows with their square, and 40 see several
/// snapshots.
fn batches() -> usize {
    if std::env::var_os("ONCEFLOW_LONG").is_some() { 60 } else { 40 }
}

#[tokio::test]
async fn acknowledged_batches_outlive_closing_killing_and_a_power_cut() {
    let disk = Disk::new();
    let (journal, recovered) = open(&disk, Options::default()).unwrap();
    assert!(recovered.is_new);
    let (told, failed) = work(&journal, 1, 50).await;
    assert!(failed.is_none());
    check_left(&disk.after_kill(), &told, "killed").await;
    check_left(&disk.after_power_cut(1), &told, "power cut").await;
    journal.close().await.unwrap();
    check_left(&disk.after_power_cut(2), &told, "closed").await;
}

/// Runs to the n-th operation for every n, lets `left` make a disk of what there is then, and checks it.
async fn at_every_operation(trouble: Trouble, batches: usize, left: impl Fn(&Disk) -> Vec<Disk>) {
    for n in 1.. {
        let disk = Disk::new();
        disk.trouble_at(n, trouble);
        let told = match open(&disk, eager_snapshots()) {
            Ok((journal, _)) => work(&journal, 3, batches).await.0,
            Err(_) => Told { after: vec![Rows::new()], acknowledged: 0 },
        };
        for (which, left) in left(&disk).iter().enumerate() {
            check_left(left, &told, &format!("{trouble:?} at operation {n}, remains {which}")).await;
        }
        if !disk.is_in_trouble() {
            assert!(n as usize > batches, "too few operations to have been real");
            return;
        }
    }
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_whenever_the_power_is_cut() {
    at_every_operation(Trouble::Stop, batches(), |disk| (0..cuts()).map(|seed| disk.after_power_cut(seed)).collect())
        .await;
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_whenever_the_process_is_killed() {
    at_every_operation(Trouble::Stop, batches(), |disk| vec![disk.after_kill()]).await;
}

async fn fail_then_cut(kind: ErrorKind) {
    let left = |disk: &Disk| (0..cuts()).map(|seed| disk.after_power_cut(seed)).chain([disk.after_kill()]).collect();
    at_every_operation(Trouble::Fail(kind), batches(), left).await;
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_an_operation_fails_and_then_the_power() {
    fail_then_cut(ErrorKind::Other).await;
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_disk_is_full_and_then_the_power_fails() {
    fail_then_cut(ErrorKind::StorageFull).await;
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_closing_replaces_the_log_and_is_cut_at_any_operation() {
    const BATCHES: usize = 8;
    let options = || Options { compact_log_bytes_min: 1, ..Options::default() };
    for trouble in [Trouble::Stop, Trouble::Fail(ErrorKind::Other), Trouble::Fail(ErrorKind::StorageFull)] {
        for n in 1.. {
            let disk = Disk::new();
            disk.trouble_at(n, trouble);
            let told = match open(&disk, options()) {
                Ok((journal, _)) => {
                    let told = work(&journal, 3, BATCHES).await.0;
                    // A log that cannot be replaced stays.
                    let _closed = journal.close().await;
                    told
                }
                Err(_) => Told { after: vec![Rows::new()], acknowledged: 0 },
            };
            let cuts = (0..cuts()).map(|seed| disk.after_power_cut(seed));
            for (which, left) in cuts.chain([disk.after_kill()]).enumerate() {
                check_left(&left, &told, &format!("{trouble:?} at operation {n}, remains {which}")).await;
            }
            if !disk.is_in_trouble() {
                assert!(disk.names().iter().any(|name| name.starts_with("snap-")), "{:?}", disk.names());
                break;
            }
        }
    }
}

/// A crash during recovery from a crash, twice over.
#[tokio::test]
async fn recovery_can_itself_be_cut_at_every_operation() {
    let disk = Disk::new();
    disk.trouble_at(90, Trouble::Stop);
    let (journal, _) = open(&disk, eager_snapshots()).unwrap();
    let (told, _) = work(&journal, 5, 100).await;
    for seed in 0..cuts() {
        let torn = disk.after_power_cut(seed);
        for n in 1.. {
            let again = torn.after_kill();
            again.trouble_at(n, Trouble::Stop);
            let opened = open(&again, eager_snapshots());
            check_left(&again.after_power_cut(seed + n), &told, &format!("recovery cut at {n}")).await;
            if opened.is_ok() && !again.is_in_trouble() {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_failed_sync_ends_the_journal_and_is_never_tried_again() {
    let disk = Disk::new();
    let (journal, _) = open(&disk, Options::default()).unwrap();
    commit(&journal, put("a", "1")).await.unwrap();
    // The next commit writes, then syncs.
    disk.trouble_at(2, Trouble::Fail(ErrorKind::Other));
    let outcome = journal.commit(put("b", "2")).await.unwrap();
    let lost = journal.durable(outcome.position()).await.unwrap_err().to_string();
    assert!(lost.contains("not known") && lost.contains("open it again"), "{lost}");
    for refused in [journal.commit(put("c", "3")).await.map(drop), journal.get(SHARD, &[key("a")]).await.map(drop)] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("unavailable") && refused.contains("open it again"), "{refused}");
    }
    assert!(journal.health().is_err());
    // Of what came before, nothing is lost.
    let (reopened, _) = open(&disk.after_power_cut(1), Options::default()).unwrap();
    assert_eq!(reopened.get(SHARD, &[key("a")]).await.unwrap()[0].as_deref(), Some(&b"1"[..]));
}

#[tokio::test]
async fn flushed_batches_outlive_the_process_and_a_power_cut_leaves_a_moment_that_was() {
    let flushed = || Options { durability: Durability::Flushed, ..eager_snapshots() };
    for seed in 0..cuts() {
        let disk = Disk::new();
        let (journal, _) = open(&disk, flushed()).unwrap();
        let (mut told, _) = work(&journal, seed, 80).await;
        check_left(&disk.after_kill(), &told, "killed").await;
        told.acknowledged = 0;
        check_left(&disk.after_power_cut(seed), &told, "power cut").await;
    }
}

/// The committer and the snapshotter on threads of their own, and a caller that waits for nothing: a snapshot sees rows whose log
/// is not durable yet, and must not count before it is.
#[tokio::test]
async fn a_snapshot_taken_in_a_flood_never_outruns_its_log() {
    use onceflow_store::{backend::journal::Journal, testing::world::TestWorld};
    use std::sync::Arc;
    for seed in 0..25 * cuts() {
        let disk = Disk::new();
        disk.trouble_at(60 + seed * 7 % 400, Trouble::Stop);
        let Ok((journal, _)) = Journal::open(Arc::new(disk.clone()), eager_snapshots(), TestWorld::new(seed)) else {
            continue;
        };
        for count in 0..3_000 {
            if journal.commit(put(&format!("{}", count % 400), &format!("{count}"))).await.is_err() {
                break;
            }
        }
        let left = disk.after_power_cut(seed);
        if let Err(error) = open(&left, eager_snapshots()) {
            panic!("seed {seed}: {error}");
        }
    }
}

#[tokio::test]
async fn the_clock_does_not_go_back_when_the_journal_is_reopened() {
    use onceflow_store::{World, backend::journal::Journal, testing::world::TestWorld};
    use std::sync::Arc;
    let (disk, world) = (Disk::new(), TestWorld::new(1));
    let (journal, _) = Journal::open(Arc::new(disk.clone()), Options::default(), world.clone()).unwrap();
    world.advance(60_000);
    commit(&journal, put("a", "1")).await.unwrap();
    let before = journal.now().await.unwrap();
    let earlier = TestWorld::new(2);
    assert!(earlier.clock() < before);
    let (journal, _) = Journal::open(Arc::new(disk.after_kill()), Options::default(), earlier).unwrap();
    assert!(journal.now().await.unwrap() >= before);
}
