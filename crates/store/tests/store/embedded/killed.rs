//! Real processes on one directory, whose owner is killed again and again while all of them commit.
//!
//! The test starts itself as a child: a process that commits, and says on its standard output what it was answered.
//! One line is one write, so it is said or not said; what was not said may have happened or not.

use super::*;
use onceflow_store::store::StoreUrl;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    process::Stdio,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
    sync::mpsc,
};

/// Tells a process that it is a child: the URL of the store, and its number.
const DIR: &str = "ONCEFLOW_TEST_CHILD_DIR";
const NUMBER: &str = "ONCEFLOW_TEST_CHILD_NUMBER";

/// Processes at a time.
const CHILDREN: usize = 3;
/// Callers in each.
const CALLERS: u32 = 4;
/// Longer is a hang.
const TEST_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(120);

/// Says a line to the parent. Not by `println!`, which the test harness keeps to itself.
fn say(line: &str) {
    let said = std::io::stdout().lock().write_all(format!("@{line}\n").as_bytes());
    said.expect("the parent listens");
}

#[test]
fn child() {
    let (Ok(dir), Ok(number)) = (std::env::var(DIR), std::env::var(NUMBER)) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(live(&dir, &number));
}

async fn open_url(url: &str) -> Arc<Embedded> {
    let StoreUrl::Directory(dir, Some(backend)) = StoreUrl::parse(Path::new(url)) else {
        panic!("no directory: {url}")
    };
    Embedded::open(dir, backend, RealWorld::here()).await.unwrap()
}

async fn live(url: &str, number: &str) {
    let store = open_url(url).await;
    let owned = store.clone();
    let owning = beside(async move {
        if owned.until_owner().await.is_ok() {
            say("owner");
        }
    });
    let (end, ended) = tokio::sync::watch::channel(false);
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let (store, ended, prefix) = (store.clone(), ended.clone(), format!("{number}-{caller}"));
        callers.push(beside(async move {
            let mut count = 0;
            while !*ended.borrow() {
                commit(&*store, &format!("{prefix}-{count}")).await;
                count += 1;
            }
        }));
    }
    // The parent says that it is enough by closing our input.
    until_input_ends().await;
    end.send_replace(true);
    for caller in callers {
        caller.await.unwrap();
    }
    store.close().await.unwrap();
    owning.await.unwrap();
    say("done");
}

async fn until_input_ends() {
    let (tell, told) = oneshot::channel::<()>();
    let read = async move {
        drop(std::io::stdin().lock().read_to_end(&mut Vec::new()));
        drop(tell);
    };
    RealWorld::here().dedicate("input", Box::pin(read));
    drop(told.await);
}

async fn commit(store: &dyn Records, name: &str) {
    match records::commit_durably(store, put(name)).await {
        Ok(CommitResult::Applied(_)) => say(&format!("acked {name}")),
        Err(Error::Unknown(_)) => return say(&format!("unknown {name}")),
        other => panic!("a new name was not applied: {other:?}"),
    }
    // An acknowledged row is there for every process, whoever owns the directory now: this batch is never applied.
    let mut never = Batch::new(SHARD);
    never.require_absent(key(name)).put(key(name), Row::new("again")).put(Group::rows("never").key(name), Row::new(""));
    match records::commit_durably(store, never).await {
        Ok(CommitResult::Refused(_)) | Err(Error::Unknown(_)) => {}
        other => panic!("{name} was acknowledged and is not there: {other:?}"),
    }
}

/// The parent's knowledge of its children.
struct Parent {
    dir: tempfile::TempDir,
    scheme: &'static str,
    tell: mpsc::UnboundedSender<(usize, String)>,
    told: mpsc::UnboundedReceiver<(usize, String)>,
    alive: BTreeMap<usize, Child>,
    started: usize,
    owner: Option<usize>,
    owners: usize,
    acked: BTreeSet<Vec<u8>>,
    unknown: BTreeSet<Vec<u8>>,
    done: usize,
}

impl Parent {
    fn new(scheme: &'static str) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        Parent {
            dir: tempfile::tempdir().unwrap(),
            scheme,
            tell,
            told,
            alive: BTreeMap::new(),
            started: 0,
            owner: None,
            owners: 0,
            acked: BTreeSet::new(),
            unknown: BTreeSet::new(),
            done: 0,
        }
    }

    fn url(&self) -> String {
        format!("{}:{}", self.scheme, self.dir.path().display())
    }

    fn start(&mut self) {
        let number = self.started;
        self.started += 1;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "embedded::killed::child", "--test-threads=1"]);
        command.env(DIR, self.url()).env(NUMBER, number.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let tell = self.tell.clone();
        let listen = async move {
            while let Ok(Some(line)) = lines.next_line().await {
                // The harness may have begun the line with the test's name.
                if let Some((_, line)) = line.split_once('@') {
                    drop(tell.send((number, line.to_owned())));
                }
            }
        };
        RealWorld::here().spawn("listen", Box::pin(listen));
        self.alive.insert(number, child);
    }

    /// Hears one line; answers whether it acknowledged a commit.
    async fn hear(&mut self) -> bool {
        let (number, line) = self.told.recv().await.unwrap();
        let (word, name) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "owner" if self.alive.contains_key(&number) => {
                let other = self.owner.replace(number);
                assert_eq!(other, None, "{number} owns the directory beside another");
                self.owners += 1;
            }
            // The process was killed before we heard.
            "owner" => self.owners += 1,
            "acked" => assert!(self.acked.insert(name.into()), "{name} was acknowledged twice"),
            "unknown" => drop(self.unknown.insert(name.into())),
            "done" => self.done += 1,
            other => panic!("{number} says {other}"),
        }
        word == "acked"
    }

    async fn kill(&mut self, number: usize) {
        let mut child = self.alive.remove(&number).unwrap();
        self.owner.take_if(|owner| *owner == number);
        child.kill().await.unwrap();
    }

    /// Hears until so many more commits are acknowledged under a living owner.
    async fn hear_acks(&mut self, acks: u64) -> usize {
        while self.owner.is_none() {
            self.hear().await;
        }
        let mut heard = 0;
        while heard < acks {
            heard += u64::from(self.hear().await);
        }
        self.owner.expect("it is killed by us alone")
    }

    async fn end_all(&mut self) {
        for child in self.alive.values_mut() {
            child.stdin.take().unwrap().shutdown().await.unwrap();
        }
        // Those that leave first hand over to those that leave later.
        let ending = self.alive.len();
        while self.done < ending {
            let word = self.told.recv().await.unwrap();
            match word.1.split_once(' ').unwrap_or((&word.1, "")) {
                ("acked", name) => drop(self.acked.insert(name.into())),
                ("unknown", name) => drop(self.unknown.insert(name.into())),
                ("done", _) => self.done += 1,
                _ => {}
            }
        }
        for child in self.alive.values_mut() {
            assert!(child.wait().await.unwrap().success());
        }
    }
}

async fn kill_owners(scheme: &'static str, kills: usize, seed: u64) {
    let mut random = onceflow_store::testing::random::Random::new(seed);
    let mut parent = Parent::new(scheme);
    for _ in 0..CHILDREN {
        parent.start();
    }
    for kill in 0..kills {
        let owner = parent.hear_acks(random.bits() % 20).await;
        parent.kill(owner).await;
        parent.start();
        if kill % 10 == 9 {
            // A guest, too, or one that is just about to take over.
            let guest = *parent.alive.keys().next().unwrap();
            if parent.owner != Some(guest) {
                parent.kill(guest).await;
                parent.start();
            }
        }
    }
    parent.hear_acks(20).await;
    parent.end_all().await;
    assert!(parent.owners > kills * 9 / 10, "{} owners for {kills} kills", parent.owners);
    let store = open_url(&parent.url()).await;
    assert!(matches!(store.role(), Role::Owner { .. }));
    let there = all_names(&*store, "group").await;
    for name in &parent.acked {
        assert!(there.contains(name), "{} was acknowledged and is lost", name.escape_ascii());
    }
    assert_eq!(all_names(&*store, "never").await, BTreeSet::new(), "a refused batch happened");
    let (acked, unknown) = (parent.acked.len(), parent.unknown.len());
    eprintln!(
        "{kills} kills, {acked} acknowledged, {unknown} unknown, {} there, {} owners",
        there.len(),
        parent.owners
    );
}

#[expect(clippy::disallowed_methods, reason = "a store that never answers is found out by the real clock alone")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_batches_outlive_a_hundred_killed_owners() {
    let times = if std::env::var_os("ONCEFLOW_LONG").is_some() { 20 } else { 1 };
    for seed in 1..=times {
        tokio::time::timeout(TEST_TIME_MAX, kill_owners("journal", 100, seed)).await.expect("it hangs");
    }
}

#[expect(clippy::disallowed_methods, reason = "a store that never answers is found out by the real clock alone")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_batches_in_pages_outlive_killed_owners() {
    let times = if std::env::var_os("ONCEFLOW_LONG").is_some() { 20 } else { 1 };
    for seed in 1..=times {
        tokio::time::timeout(TEST_TIME_MAX, kill_owners("paged", 40, seed)).await.expect("it hangs");
    }
}
