//! Every interleaving of the store's locks, as a test binary of its own: the signal, the watermark, the committer and the
//! snapshotter with shuttle's scheduler deciding which thread runs at every lock. A lost wake-up is a deadlock to shuttle,
//! which prints the schedule to replay.
//!
//! The root stands in `src/` so that the few files with locks are compiled into this test with shuttle's [`sync`], beside
//! the library and not instead of it: the store is not built a second time.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    unused_imports,
    unfulfilled_lint_expectations,
    reason = "only the part of the store that these tests need"
)]

mod fs;
mod records;
mod seams;
mod state;
mod wake;
mod world;

/// The library's `sync`, with shuttle's locks.
mod sync {
    pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic::AtomicU64};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("a thread panicked while it held the store's lock")
    }
}

mod backend {
    mod clock;
    mod error;
    mod front;
    pub(crate) mod journal;
    pub(crate) mod memory;
    mod shared;
}

mod testing {
    pub(crate) mod disk;
    pub(crate) mod random;
}

use backend::{
    journal::{Journal, Options},
    memory::Memory,
};
use onceflow_core::{Batch, Claim, Fences, Group, Inbox, Key, Name, Pick, Row, Shard, Timestamp};
use records::{CommitResult, Records, commit_durably};
use shuttle::{future::block_on, thread};
use std::sync::Arc;
use testing::disk::Disk;
use world::{BoxFuture, World};

const SHARD: Shard = Shard(0);

/// How many schedules are tried.
fn schedules() -> usize {
    if std::env::var_os("ONCEFLOW_LONG").is_some() { 5_000 } else { 150 }
}

/// Random schedules find what is likely; schedules of bounded depth find what needs a few unlucky switches.
fn check(test: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(test, schedules());
    shuttle::check_pct(test, schedules(), 3);
}

/// Tasks are threads of shuttle. Time stands still, so that a wait for time never ends.
struct Shuttled;

impl World for Shuttled {
    fn clock(&self) -> Timestamp {
        Timestamp::from_ms(1)
    }
    fn random(&self) -> u128 {
        7
    }
    fn sleep(&self, _: u64) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
    fn spawn(&self, _: &'static str, task: BoxFuture<'static, ()>) {
        thread::spawn(|| block_on(task));
    }
    fn dedicate(&self, _: &'static str, task: BoxFuture<'static, ()>) {
        thread::spawn(|| block_on(task));
    }
}

fn key(name: &str) -> Key {
    Group::rows("g").key(name)
}

fn put(name: &str) -> Batch {
    let mut batch = Batch::new(SHARD);
    batch.put(key(name), Row::new("1"));
    batch
}

fn open(disk: &Disk, options: Options) -> Arc<Journal> {
    Arc::new(Journal::open(Arc::new(disk.clone()), options, Arc::new(Shuttled)).expect("the disk is in order").0)
}

#[test]
fn durability_waiters_wake_and_find_their_batch_on_disk() {
    check(|| {
        let disk = Disk::new();
        let journal = open(&disk, Options::default());
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (journal, disk) = (journal.clone(), disk.clone());
                thread::spawn(move || {
                    let name = format!("row-{writer}");
                    block_on(async {
                        assert!(commit_durably(&*journal, put(&name)).await.unwrap().is_applied());
                    });
                    let left = open(&disk.after_power_cut(writer), Options::default());
                    assert!(left.state().get(SHARD, &key(&name)).is_some(), "acknowledged and lost");
                    block_on(left.close()).unwrap();
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        block_on(journal.close()).unwrap();
    });
}

#[test]
fn close_during_commits_answers_all_and_keeps_acknowledged_rows() {
    check(|| {
        let disk = Disk::new();
        let journal = open(&disk, Options { snapshot_log_bytes_min: 100, ..Options::default() });
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let journal = journal.clone();
                thread::spawn(move || {
                    let mut kept = Vec::new();
                    for round in 0..2 {
                        let name = format!("row-{writer}-{round}");
                        if block_on(commit_durably(&*journal, put(&name))).is_ok_and(|outcome| outcome.is_applied()) {
                            kept.push(name);
                        }
                    }
                    kept
                })
            })
            .collect();
        block_on(journal.close()).unwrap();
        let kept: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        let left = open(&disk.after_power_cut(1), Options::default());
        for name in kept {
            assert!(left.state().get(SHARD, &key(&name)).is_some(), "{name} was acknowledged and lost");
        }
        block_on(left.close()).unwrap();
    });
}

#[test]
fn a_full_disk_refuses_every_waiting_commit() {
    check(|| {
        let disk = Disk::new();
        let journal = open(&disk, Options::default());
        disk.limit_bytes(Some(disk.bytes()));
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let journal = journal.clone();
                thread::spawn(move || {
                    let mut batch = Batch::new(SHARD);
                    batch.put(key(&format!("{writer}")), Row::from(vec![1; 50_000]));
                    block_on(commit_durably(&*journal, batch)).is_ok()
                })
            })
            .collect();
        let fitted = writers.into_iter().map(|writer| writer.join().unwrap()).filter(|ok| *ok).count();
        assert_eq!(fitted, 1, "there is room for one");
        block_on(journal.close()).unwrap();
    });
}

/// Puts a row into a queue that someone waits for, and waits until it is claimed.
fn hand_over(records: Arc<dyn Records>) {
    let queue = Group::queue("q");
    let claimer = {
        let (records, queue) = (records.clone(), queue.clone());
        thread::spawn(move || {
            let fences = Fences::new(1);
            block_on(async {
                loop {
                    let seen = records.position();
                    let mut batch = Batch::new(SHARD);
                    let (queues, fence) = (vec![queue.clone()], fences.next());
                    batch.claim(Claim { queues, fence, ttl_ms: 1000, pick: Pick::InTurn });
                    let CommitResult::Applied(committed) = records.commit(batch).await.unwrap() else { unreachable!() };
                    if let Some(claimed) = committed.claimed {
                        return claimed.name;
                    }
                    records.wait(SHARD, seen, Timestamp::NEVER).await.unwrap();
                }
            })
        })
    };
    let mut batch = Batch::new(SHARD);
    let inbox = Inbox { group: Group::rows("g"), prefix: Name::new("in/"), note: vec![] };
    batch.put(queue.key("lane-000/step"), inbox.to_row());
    assert!(block_on(records.commit(batch)).unwrap().is_applied());
    assert_eq!(claimer.join().unwrap(), Name::new("lane-000/step"));
}

#[test]
fn a_row_freed_between_claim_and_wait_is_not_missed() {
    check(|| hand_over(Arc::new(Memory::new(Arc::new(Shuttled)))));
    check(|| {
        let journal = open(&Disk::new(), Options::default());
        hand_over(journal.clone());
        block_on(journal.close()).unwrap();
    });
}
