//! A store directory that processes share: its owner, and what callers see when the owner changes.

use futures_util::future::{Either, join, select};
use onceflow_core::{Batch, Group, Key, Row, Shard, Timestamp};
use onceflow_store::{
    CommitResult, Error, Position, Records, World,
    backend::{
        embedded::{Embedded, OpenError, Role},
        journal::Options,
    },
    records::{self, Scan},
    testing::world::TestWorld,
    world::RealWorld,
};
use std::{
    fs::File,
    future::Future,
    io::Write,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::Path,
    pin::pin,
    sync::Arc,
};
use tokio::sync::oneshot;

mod claims;
mod identity;
mod killed;

const SHARD: Shard = Shard(0);

fn key(name: impl AsRef<[u8]>) -> Key {
    Group::rows("group").key(name)
}

fn put(name: impl AsRef<[u8]>) -> Batch {
    let mut batch = Batch::new(SHARD);
    batch.require_absent(key(&name)).put(key(&name), Row::new("row"));
    batch
}

async fn open(dir: &Path) -> Arc<Embedded> {
    Embedded::open(dir, Options::default(), RealWorld::here()).await.unwrap()
}

async fn has(store: &Embedded, name: &str) -> bool {
    records::get_one(store, SHARD, key(name)).await.unwrap().is_some()
}

/// Runs a task beside, and returns its answer.
fn beside<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> oneshot::Receiver<T> {
    let (tell, told) = oneshot::channel();
    RealWorld::here().spawn("beside", Box::pin(async move { drop(tell.send(task.await)) }));
    told
}

#[tokio::test]
async fn the_first_owns_the_directory_and_the_others_are_its_guests() {
    let dir = tempfile::tempdir().unwrap();
    let owner = open(dir.path()).await;
    let guest = open(dir.path()).await;
    assert!(matches!(owner.role(), Role::Owner { recovered } if recovered.is_new));
    let me = format!("pid {} on ", std::process::id());
    assert!(matches!(guest.role(), Role::Guest { holder } if holder.starts_with(&me)));
    assert!(guest.commit(put("a")).await.unwrap().is_applied());
    assert!(has(&owner, "a").await);
    assert!(!owner.commit(put("a")).await.unwrap().is_applied());
    assert_eq!(guest.position(), Position(1));
}

#[tokio::test]
async fn the_directory_is_this_users_alone_and_left_as_it_was_found() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("store");
    let owner = open(&dir).await;
    let mode = |name: &str| dir.join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("store.sock"), mode("LOCK")), (0o700, 0o600, 0o600));
    assert!(dir.join("store.sock").metadata().unwrap().file_type().is_socket());
    assert!(!dir.join("store.new").exists());
    for entry in std::fs::read_dir(&dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert_eq!(mode(&name) & 0o077, 0, "others can use {name}");
    }
    owner.close().await.unwrap();
    assert!(!dir.join("store.sock").exists());
    assert!(std::fs::read(dir.join("LOCK")).unwrap().starts_with(b"closed in order"), "it names no process");
    assert_eq!(std::fs::read_dir(dir.join("members")).unwrap().count(), 0);
    assert_eq!(owner.role(), Role::Ended);
    assert!(matches!(owner.commit(put("a")).await, Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn a_path_too_long_for_a_socket_is_no_obstacle() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("x".repeat(200)).join("y".repeat(200));
    let owner = open(&dir).await;
    let guest = open(&dir).await;
    assert!(guest.commit(put("a")).await.unwrap().is_applied());
    owner.close().await.unwrap();
    guest.until_owner().await.unwrap();
    assert!(has(&guest, "a").await);
}

#[tokio::test]
async fn a_guest_takes_over_from_an_owner_that_closes_or_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(open(dir.path()).await);
    }
    let mut names = vec![];
    for (turn, store) in stores.into_iter().enumerate() {
        // Whichever of the guests took over, all answer.
        let name = format!("turn {turn}");
        assert!(store.commit(put(&name)).await.unwrap().is_applied());
        names.push(name);
        if turn % 2 == 0 { store.close().await.unwrap() } else { drop(store) }
    }
    let last = open(dir.path()).await;
    for name in names {
        assert!(has(&last, &name).await, "{name} is lost");
    }
}

#[tokio::test]
async fn positions_rise_over_a_change_and_old_ones_neither_hang_nor_fail() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, guest) = (open(dir.path()).await, open(dir.path()).await);
    for name in ["a", "b", "c"] {
        assert!(guest.commit(put(name)).await.unwrap().is_applied());
    }
    let old = guest.position();
    assert_eq!(old, Position(3));
    let waiting = beside({
        let guest = guest.clone();
        async move { guest.wait(SHARD, old, Timestamp::NEVER).await }
    });
    owner.close().await.unwrap();
    waiting.await.unwrap().unwrap();
    guest.until_owner().await.unwrap();
    assert!(guest.position() > old);
    guest.wait(SHARD, old, Timestamp::NEVER).await.unwrap();
    guest.durable(old).await.unwrap();
    let outcome = guest.commit(put("d")).await.unwrap();
    assert!(outcome.position() > old && outcome.position() == guest.position());
    guest.durable(outcome.position()).await.unwrap();
    let CommitResult::Refused(refused) = guest.commit(put("d")).await.unwrap() else { panic!("applied twice") };
    assert_eq!(refused.position, outcome.position());
    guest.close().await.unwrap();
    guest.durable(outcome.position()).await.expect("what was closed in order is durable");
}

#[tokio::test]
async fn closing_ends_the_waits_of_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, guest) = (open(dir.path()).await, open(dir.path()).await);
    for store in [guest, owner] {
        let seen = store.position();
        let waits = async { store.wait(SHARD, seen, Timestamp::NEVER).await };
        let (waited, closed) = join(waits, store.close()).await;
        assert!(matches!(waited, Err(Error::Unavailable(_))), "{waited:?}");
        closed.unwrap();
    }
}

/// The owner of the directory leaves after a few commits and comes back as a guest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_that_leave_in_order_are_not_noticed_by_their_guests() {
    const TURNS: u32 = 15;
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let mut workers = Vec::new();
    for worker in 0..3u32 {
        let dir = dir.clone();
        workers.push(beside(async move {
            let (mut turns, mut commits) = (0, 0u32);
            while turns < TURNS {
                let store = open(dir.path()).await;
                loop {
                    let name = [worker.to_be_bytes(), commits.to_be_bytes()].concat();
                    let outcome = store.commit(put(&name)).await.unwrap();
                    assert!(outcome.is_applied(), "{worker} {commits} {outcome:?}");
                    assert!(records::get_one(&*store, SHARD, key(&name)).await.unwrap().is_some());
                    commits += 1;
                    if commits.is_multiple_of(5) && matches!(store.role(), Role::Owner { .. }) {
                        break;
                    }
                }
                store.close().await.unwrap();
                turns += 1;
            }
            commits
        }));
    }
    let mut commits = Vec::new();
    for worker in workers {
        commits.push(worker.await.unwrap());
    }
    let store = open(dir.path()).await;
    assert_eq!(all_names(&*store, "group").await.len(), commits.into_iter().sum::<u32>() as usize);
}

async fn all_names(store: &dyn Records, group: &str) -> std::collections::BTreeSet<Vec<u8>> {
    let (mut names, mut after) = (std::collections::BTreeSet::new(), None);
    loop {
        let page = store.scan(SHARD, Scan::of(Group::rows(group), 1000).after(after)).await.unwrap();
        after = page.rows.last().map(|(name, _)| name.clone());
        names.extend(page.rows.into_iter().map(|(name, _)| name.as_bytes().to_vec()));
        if !page.more {
            return names;
        }
    }
}

/// A process that has the lock and serves nothing, as on another machine.
fn lock_only(dir: &Path, says: &str) -> File {
    let mut file = File::create(dir.join("LOCK")).unwrap();
    file.try_lock().unwrap();
    file.write_all(says.as_bytes()).unwrap();
    file
}

#[tokio::test]
async fn a_second_process_is_refused_by_name_when_the_owner_cannot_be_reached() {
    let dir = tempfile::tempdir().unwrap();
    let world = TestWorld::new(1);
    let _held = lock_only(dir.path(), "pid 77\nhost elsewhere\nsince 0\n");
    let refused = world.hurry(Embedded::open(dir.path(), Options::default(), world.clone())).await;
    let Err(error @ OpenError::Held { .. }) = refused else { panic!("not refused") };
    let error = error.to_string();
    assert!(
        error.contains("in use by pid 77 on elsewhere since 1970-01-01 00:00:00 UTC: no process serves"),
        "{error}"
    );
}

#[tokio::test]
async fn a_lock_that_is_let_go_while_one_waits_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let world = TestWorld::new(1);
    let held = lock_only(dir.path(), "");
    let mut opening = pin!(Embedded::open(dir.path(), Options::default(), world.clone()));
    let asleep = async {
        while world.sleeping() == 0 {
            tokio::task::yield_now().await;
        }
    };
    assert!(matches!(select(&mut opening, pin!(asleep)).await, Either::Right(_)));
    drop(held);
    let store = world.hurry(opening).await.unwrap();
    assert!(matches!(store.role(), Role::Owner { .. }));
}

#[tokio::test]
async fn a_journal_that_does_not_open_leaves_the_directory_to_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    assert!(store.commit(put("a")).await.unwrap().is_applied());
    store.close().await.unwrap();
    let log = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let log = log.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let content = std::fs::read(&log).unwrap();
    std::fs::write(&log, [&[0x55; 16], &content[16..]].concat()).unwrap();
    let damaged = Embedded::open(dir.path(), Options::default(), RealWorld::here()).await;
    assert!(matches!(damaged, Err(OpenError::Rows(_))), "{:?}", damaged.err());
    std::fs::write(&log, content).unwrap();
    let store = open(dir.path()).await;
    assert!(has(&store, "a").await);
}

#[tokio::test]
async fn a_guest_that_cannot_take_over_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, guest) = (open(dir.path()).await, open(dir.path()).await);
    assert!(guest.commit(put("a")).await.unwrap().is_applied());
    let log = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let log = log.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    File::options().write(true).open(&log).unwrap().write_all(&[0x55; 16]).unwrap();
    owner.close().await.unwrap();
    assert!(guest.until_owner().await.is_err());
    let error = guest.commit(put("b")).await.unwrap_err().to_string();
    assert!(error.contains(&log.display().to_string()), "{error}");
    guest.durable(guest.position()).await.expect("what was answered was durable");
}
