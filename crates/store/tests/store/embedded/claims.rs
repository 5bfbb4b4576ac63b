//! Claims belong to the process that made them: they outlive the owner of the directory, however it ends, and end with
//! their own process, however that ends.

use super::*;
use onceflow_core::{Claim, Claimed, Fence, Fences, Inbox, Name, Pick};
use std::process::Stdio;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

/// Tells a process that it is a child: where the store is, and whether it claims a step.
const DIR: &str = "ONCEFLOW_TEST_CLAIMS_DIR";
const CLAIMS: &str = "ONCEFLOW_TEST_CLAIMS";

/// A lease far longer than any test.
const LEASE_MS: u64 = 3_600_000;

fn queue() -> Group {
    Group::queue("q")
}

async fn put_steps(store: &Embedded, names: &[&str]) {
    let mut batch = Batch::new(SHARD);
    for name in names {
        let inbox = Inbox { group: Group::rows("inputs"), prefix: Name::new(name), note: vec![] };
        batch.put(queue().key(name), inbox.to_row());
    }
    assert!(store.commit(batch).await.unwrap().is_applied());
}

async fn take(store: &Embedded, fence: Fence) -> Option<Claimed> {
    let mut batch = Batch::new(SHARD);
    batch.claim = Some(Claim { queues: vec![queue()], fence, ttl_ms: LEASE_MS, pick: Pick::InTurn });
    loop {
        match store.commit(batch.clone()).await {
            Ok(CommitResult::Applied(committed)) => return committed.claimed,
            // Sent to an owner that was killed: the claims it granted never reached a caller.
            Err(Error::Unknown(_)) => {}
            other => panic!("a claim requires nothing: {other:?}"),
        }
    }
}

/// Takes a step as soon as one is free.
async fn take_when_free(store: &Embedded, fences: &Fences) -> Claimed {
    loop {
        let seen = store.position();
        if let Some(claimed) = take(store, fences.next()).await {
            return claimed;
        }
        store.wait(SHARD, seen, Timestamp::NEVER).await.unwrap();
    }
}

/// Commits a step, if it is still claimed under this fence.
async fn finish(store: &Embedded, name: &Name, fence: Fence) -> bool {
    let mut batch = Batch::new(SHARD);
    let claim = queue().claims().key(name);
    batch.require_equals(claim.clone(), Row::new(fence.to_bytes()));
    batch.delete(queue().key(name)).delete(claim).delete(queue().deadlines().key(name));
    store.commit(batch).await.unwrap().is_applied()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guests_keep_their_claims_when_the_owner_closes() {
    let dir = tempfile::tempdir().unwrap();
    let (mut owner, holder) = (open(dir.path()).await, open(dir.path()).await);
    put_steps(&owner, &["s"]).await;
    let (mine, others) = (Fences::new(1), Fences::new(2));
    let fence = mine.next();
    let step = take(&holder, fence).await.unwrap().name;
    // Owners come and go, one after the other; the process that has claimed a step lives on.
    for _ in 0..10 {
        let next = open(dir.path()).await;
        assert_eq!(take(&next, others.next()).await, None);
        owner.close().await.unwrap();
        assert_eq!(take(&next, others.next()).await, None, "a claim went with the owner");
        owner = next;
    }
    assert!(finish(&holder, &step, fence).await, "its holder lost it");
    holder.close().await.unwrap();
}

#[tokio::test]
async fn claims_are_void_at_once_when_their_process_closes_as_guest_or_as_owner() {
    let dir = tempfile::tempdir().unwrap();
    let (owner, guest) = (open(dir.path()).await, open(dir.path()).await);
    put_steps(&owner, &["s"]).await;
    let (mine, others) = (Fences::new(1), Fences::new(2));
    take(&guest, mine.next()).await.unwrap();
    assert_eq!(take(&owner, others.next()).await, None);
    guest.close().await.unwrap();
    take_when_free(&owner, &others).await;
    let next = open(dir.path()).await;
    assert_eq!(take(&next, mine.next()).await, None);
    owner.close().await.unwrap();
    take_when_free(&next, &mine).await;
}

fn say(line: &str) {
    let said = std::io::stdout().lock().write_all(format!("@{line}\n").as_bytes());
    said.expect("the parent listens");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let (Ok(dir), Ok(claims)) = (std::env::var(DIR), std::env::var(CLAIMS)) else { return };
    let store = open(Path::new(&dir)).await;
    if claims == "1" {
        assert!(take(&store, Fences::new(u128::from(std::process::id())).next()).await.is_some());
    }
    say("ready");
    std::future::pending::<()>().await;
}

/// A process of its own that has the store open.
async fn process(dir: &Path, claims: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "embedded::claims::child", "--test-threads=1"]);
    command.env(DIR, dir).env(CLAIMS, if claims { "1" } else { "0" });
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while !lines.next_line().await.unwrap().expect("it says that it is ready").contains("@ready") {}
    child
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guests_keep_their_claims_when_the_owner_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut owner = process(dir.path(), false).await;
    let (one, two) = (open(dir.path()).await, open(dir.path()).await);
    assert!(matches!(one.role(), Role::Guest { .. }));
    put_steps(&one, &["a", "b"]).await;
    let (ones, twos) = (Fences::new(1), Fences::new(2));
    let (fence_of_one, fence_of_two) = (ones.next(), twos.next());
    let of_one = take(&one, fence_of_one).await.unwrap().name;
    let of_two = take(&two, fence_of_two).await.unwrap().name;
    assert_ne!(of_one, of_two);
    owner.kill().await.unwrap();
    // Whichever of them owns the directory now: neither is granted a claim that the other has.
    assert_eq!((take(&one, ones.next()).await, take(&two, twos.next()).await), (None, None));
    assert!(finish(&one, &of_one, fence_of_one).await && finish(&two, &of_two, fence_of_two).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_a_killed_process_are_void_at_once_whether_guest_or_owner() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    put_steps(&store, &["s"]).await;
    let mut guest = process(dir.path(), true).await;
    let fences = Fences::new(1);
    assert_eq!(take(&store, fences.next()).await, None);
    guest.kill().await.unwrap();
    let fence = fences.next();
    let step = take_when_free(&store, &fences).await;
    assert_eq!(step.name, Name::new("s"));
    assert!(!finish(&store, &step.name, fence).await, "claimed under another fence");
    store.close().await.unwrap();
    let mut owner = process(dir.path(), true).await;
    let guest = open(dir.path()).await;
    assert!(matches!(guest.role(), Role::Guest { .. }));
    assert_eq!(take(&guest, fences.next()).await, None);
    owner.kill().await.unwrap();
    take_when_free(&guest, &fences).await;
    guest.close().await.unwrap();
    assert_eq!(std::fs::read_dir(dir.path().join("members")).unwrap().count(), 0, "the dead leave nothing");
}
