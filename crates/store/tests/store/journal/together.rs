//! Many at once, on real threads.

#![expect(clippy::disallowed_methods, reason = "these tests are about the real world")]

use super::support::*;
use onceflow_store::{
    Records,
    backend::journal::{Journal, Options, files::StoreDirectory},
    core::{Batch, Group, Row, row::counter},
    testing::disk::Disk,
    world::RealWorld,
};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_waiters_share_few_syncs_and_all_batches_survive() {
    let directory = tempfile::tempdir().unwrap();
    let files = || Arc::new(StoreDirectory::at(directory.path().join("store")).unwrap());
    let (journal, _) = Journal::open(files(), eager_snapshots(), RealWorld::here()).unwrap();
    let journal = Arc::new(journal);
    let tasks: Vec<_> = (0..200u32)
        .map(|task| {
            let journal = journal.clone();
            tokio::spawn(async move {
                for round in 0..20u32 {
                    let mut batch = Batch::new(SHARD);
                    let permit = key(&format!("{task}/{round}"));
                    batch.require_absent(permit.clone()).put(permit, Row::new("1"));
                    batch.add(Group::rows("n").key("sum"), 1, vec![]);
                    commit(&journal, batch).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    journal.close().await.unwrap();
    let (reopened, recovered) = Journal::open(files(), Options::default(), RealWorld::here()).unwrap();
    assert_eq!(recovered.rows, 4001);
    let sum = reopened.get(SHARD, &[Group::rows("n").key("sum")]).await.unwrap();
    assert_eq!(counter::read(sum[0].as_ref().unwrap()), Some(4000));
}

#[tokio::test]
async fn batches_applied_during_a_sync_form_the_next_group() {
    let disk = Disk::new();
    let (journal, _) = open(&disk, Options::default()).unwrap();
    disk.trouble_at(u64::MAX, onceflow_store::testing::disk::Trouble::Stop);
    let mut last = journal.position();
    for count in 0..1000 {
        last = journal.commit(put(&format!("{count}"), "1")).await.unwrap().position();
    }
    journal.durable(last).await.unwrap();
    assert!(disk.operations() <= 9, "a thousand batches took {} disk operations", disk.operations());
}

#[tokio::test]
async fn claims_and_heartbeats_write_nothing() {
    use onceflow_store::core::{Claim, Fences, Inbox, Name, Pick, Timestamp};
    let disk = Disk::new();
    let (journal, _) = open(&disk, Options::default()).unwrap();
    let queue = Group::queue("q");
    let mut ready = Batch::new(SHARD);
    let inbox = Inbox { group: Group::rows("g"), prefix: Name::new("in/"), note: vec![] };
    ready.put(queue.key("lane-000/step"), inbox.to_row());
    commit(&journal, ready).await.unwrap();
    disk.trouble_at(u64::MAX, onceflow_store::testing::disk::Trouble::Stop);
    let mut claim = Batch::new(SHARD);
    let fence = Fences::new(1).next();
    claim.claim(Claim { queues: vec![queue.clone()], fence, ttl_ms: 1000, pick: Pick::InTurn });
    commit(&journal, claim).await.unwrap();
    for beat in 0..100 {
        let mut renewal = Batch::new(SHARD);
        renewal.require_equals(queue.claims().key("lane-000/step"), Row::new(fence.to_bytes()));
        let deadline = Timestamp::from_ms(beat).to_sortable();
        renewal.put(queue.deadlines().key("lane-000/step"), Row::new(deadline));
        commit(&journal, renewal).await.unwrap();
    }
    assert_eq!(disk.operations(), 0);
}

/// Batches admitted while a snapshot begins a new segment must fit into that segment too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_while_segments_change_is_written_whole() {
    let directory = tempfile::tempdir().unwrap();
    let files = || Arc::new(StoreDirectory::at(directory.path()).unwrap());
    let options = || Options { snapshot_log_bytes_min: 1, ..Options::default() };
    let (journal, _) = Journal::open(files(), options(), RealWorld::here()).unwrap();
    let mut last = journal.position();
    for count in 0..600 {
        let mut batch = Batch::new(SHARD);
        batch.put(key(&format!("{}", count % 7)), Row::from(vec![count as u8; 100_000]));
        last = journal.commit(batch).await.unwrap().position();
    }
    journal.durable(last).await.unwrap();
    let before = rows(&journal.state());
    journal.close().await.unwrap();
    let (reopened, _) = Journal::open(files(), options(), RealWorld::here()).unwrap();
    assert_eq!(rows(&reopened.state()), before);
}

#[tokio::test]
async fn a_closed_journal_refuses_and_leaves_the_directory_alone() {
    let disk = Disk::new();
    let (journal, _) = open(&disk, Options::default()).unwrap();
    commit(&journal, put("a", "1")).await.unwrap();
    journal.close().await.unwrap();
    let refused = journal.commit(put("b", "2")).await.unwrap_err().to_string();
    assert!(refused.contains("closed"), "{refused}");
}
