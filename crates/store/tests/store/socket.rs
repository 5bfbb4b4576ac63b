//! A store on a socket: which answers are sent, when they are sent, and what callers get when the connection is lost.

use futures_util::future::{Either, join, join3, select};
use onceflow_core::{Batch, Group, Key, Row, Shard, Timestamp};
use onceflow_store::{
    BoxFuture, CommitResult, Error, Page, Position, Records, World,
    backend::{
        memory::Memory,
        socket::{self, ConnectError, ServerHandle, Socket, Welcome, limits},
    },
    records::{self, Scan},
    world::RealWorld,
};
use std::{
    fs::Permissions,
    future::{Future, poll_fn},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::{Semaphore, oneshot, watch},
};

const SHARD: Shard = Shard(0);

struct Served {
    dir: tempfile::TempDir,
    server: ServerHandle,
    world: Arc<RealWorld>,
}

impl Served {
    fn new(records: Arc<dyn Records>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let world = RealWorld::here();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        let welcome = Welcome { opening: 7, holder: "the test".into() };
        let server = socket::serve(listener, records, welcome, world.clone());
        Served { dir, server, world }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    async fn connect(&self) -> Arc<Socket> {
        Arc::new(Socket::connect(&self.path(), &*self.world).await.unwrap())
    }
}

fn memory() -> Arc<Memory> {
    Arc::new(Memory::new(RealWorld::here()))
}

fn key(name: impl AsRef<[u8]>) -> Key {
    Group::rows("group").key(name)
}

fn put(name: impl AsRef<[u8]>) -> Batch {
    let mut batch = Batch::new(SHARD);
    batch.require_absent(key(&name)).put(key(&name), Row::new("row"));
    batch
}

/// Runs a task beside, and returns its answer.
fn beside<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> oneshot::Receiver<T> {
    let (tell, told) = oneshot::channel();
    RealWorld::here().spawn("beside", Box::pin(async move { drop(tell.send(task.await)) }));
    told
}

/// Memory behind gates: commits wait to be let in, everything waits to become durable, and waits are counted.
struct Gated {
    memory: Memory,
    commits: Semaphore,
    commits_begun: watch::Sender<usize>,
    durable: watch::Sender<bool>,
    waits: Arc<watch::Sender<usize>>,
    asked_durable: AtomicUsize,
}

impl Gated {
    fn new(commits: usize, durable: bool) -> Arc<Self> {
        Arc::new(Gated {
            memory: Memory::new(RealWorld::here()),
            commits: Semaphore::new(commits),
            commits_begun: watch::Sender::new(0),
            durable: watch::Sender::new(durable),
            waits: Arc::new(watch::Sender::new(0)),
            asked_durable: AtomicUsize::new(0),
        })
    }

    async fn until_commits_begun(&self, count: usize) {
        self.commits_begun.subscribe().wait_for(|begun| *begun >= count).await.unwrap();
    }

    async fn until_waits(&self, count: usize) {
        self.waits.subscribe().wait_for(|waits| *waits == count).await.unwrap();
    }
}

struct CountedWait(Arc<watch::Sender<usize>>);

impl Drop for CountedWait {
    fn drop(&mut self) {
        self.0.send_modify(|waits| *waits -= 1);
    }
}

impl Records for Gated {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        self.memory.get(shard, keys)
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        self.memory.scan(shard, scan)
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        Box::pin(async move {
            self.commits_begun.send_modify(|begun| *begun += 1);
            self.commits.acquire().await.unwrap().forget();
            self.memory.commit(batch).await
        })
    }

    fn durable(&self, _: Position) -> BoxFuture<'_, Result<(), Error>> {
        self.asked_durable.fetch_add(1, SeqCst);
        Box::pin(async move {
            self.durable.subscribe().wait_for(|durable| *durable).await.unwrap();
            Ok(())
        })
    }

    fn position(&self) -> Position {
        self.memory.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        self.memory.now()
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.waits.send_modify(|waits| *waits += 1);
            let _counted = CountedWait(self.waits.clone());
            self.memory.wait(shard, seen, until).await
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_callers_share_one_connection() {
    let served = Served::new(memory());
    let socket = served.connect().await;
    let mut answers = Vec::new();
    for caller in 0..1000u32 {
        let socket = socket.clone();
        answers.push(beside(async move {
            for round in 0..10u32 {
                let name = [caller.to_be_bytes(), round.to_be_bytes()].concat();
                assert!(socket.commit(put(&name)).await.unwrap().is_applied());
                assert!(!socket.commit(put(&name)).await.unwrap().is_applied());
                assert!(records::get_one(&*socket, SHARD, key(&name)).await.unwrap().is_some());
            }
        }));
    }
    for answer in answers {
        answer.await.unwrap();
    }
    assert_eq!(socket.position(), Position(10_000));
    assert_eq!(socket.scan(SHARD, Scan::of(Group::rows("group"), 9999)).await.unwrap().rows.len(), 4096);
}

#[tokio::test]
async fn guests_see_what_the_others_did_and_the_same_positions() {
    let memory = memory();
    let served = Served::new(memory.clone());
    let (one, two) = (served.connect().await, served.connect().await);
    let outcome = one.commit(put("a")).await.unwrap();
    assert_eq!((outcome.position(), memory.position()), (Position(1), Position(1)));
    assert!(!two.commit(put("a")).await.unwrap().is_applied());
    assert_eq!(two.position(), Position(1));
    assert_eq!(one.welcome(), &Welcome { opening: 7, holder: "the test".into() });
    assert!(one.now().await.unwrap() > Timestamp::ZERO);
}

#[tokio::test]
async fn nothing_leaves_before_it_is_durable_also_refusals_and_reads() {
    let gated = Gated::new(10, false);
    let served = Served::new(gated.clone());
    let socket = served.connect().await;
    let keys = [key("a")];
    let calls = async {
        let applied = socket.commit(put("a"));
        let refused = socket.commit(put("a"));
        let read = socket.get(SHARD, &keys);
        let (applied, refused, read) = join3(applied, refused, read).await;
        (applied.unwrap().is_applied(), refused.unwrap().is_applied(), read.unwrap()[0].is_some())
    };
    let mut calls = pin!(calls);
    let begun = gated.until_commits_begun(2);
    assert!(matches!(select(&mut calls, pin!(begun)).await, Either::Right(_)));
    // All three are decided when a fourth call of the same connection has begun.
    let fourth = socket.commit(put("b"));
    let begun = gated.until_commits_begun(3);
    assert!(matches!(select(pin!(fourth), pin!(begun)).await, Either::Right(_)));
    assert_eq!(gated.position(), Position(2));
    let pending = poll_fn(|context| Poll::Ready(calls.as_mut().poll(context).is_pending())).await;
    assert!(pending, "answered before it was durable");
    gated.durable.send_replace(true);
    assert_eq!(calls.await, (true, false, true));
}

#[tokio::test]
async fn a_lost_connection_leaves_commits_unknown_and_reads_unavailable() {
    let gated = Gated::new(10, false);
    let served = Served::new(gated.clone());
    let socket = served.connect().await;
    let commit = beside({
        let socket = socket.clone();
        async move { socket.commit(put("a")).await }
    });
    gated.until_commits_begun(1).await;
    let read = beside({
        let socket = socket.clone();
        async move { records::get_one(&*socket, SHARD, key("a")).await }
    });
    let later = beside({
        let socket = socket.clone();
        async move { socket.commit(put("b")).await }
    });
    gated.until_commits_begun(2).await;
    drop(served.server);
    assert!(matches!(commit.await.unwrap(), Err(Error::Unknown(_))));
    assert!(matches!(later.await.unwrap(), Err(Error::Unknown(_))));
    assert!(matches!(read.await.unwrap(), Err(Error::Unavailable(_))));
    assert!(matches!(socket.commit(put("c")).await, Err(Error::Unavailable(_))));
    assert!(matches!(socket.now().await, Err(Error::Unavailable(_))));
    assert!(socket.lost().await.contains("lost"));
    assert!(gated.get(SHARD, &[key("a")]).await.unwrap()[0].is_some(), "it did happen");
}

#[tokio::test]
async fn a_server_that_stops_answers_what_it_executed_and_says_that_the_rest_was_not() {
    let gated = Gated::new(0, true);
    let served = Served::new(gated.clone());
    let socket = served.connect().await;
    let commit = |name: &'static str| {
        let socket = socket.clone();
        beside(async move { socket.commit(put(name)).await })
    };
    let first = commit("a");
    gated.until_commits_begun(1).await;
    let second = commit("b");
    let stop = served.server.stop();
    let let_in = async { gated.commits.add_permits(10) };
    join(stop, let_in).await;
    assert!(first.await.unwrap().unwrap().is_applied());
    let refused = second.await.unwrap();
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert_eq!(gated.position(), Position(1));
}

#[tokio::test]
async fn a_wait_ends_on_the_other_side_when_it_is_dropped_here() {
    let gated = Gated::new(10, true);
    let served = Served::new(gated.clone());
    let socket = served.connect().await;
    {
        let wait = socket.wait(SHARD, Position(0), Timestamp::NEVER);
        let begun = pin!(gated.until_waits(1));
        assert!(matches!(select(wait, begun).await, Either::Right(_)));
    }
    gated.until_waits(0).await;
    let other = beside({
        let socket = socket.clone();
        async move { socket.wait(SHARD, Position(0), Timestamp::NEVER).await }
    });
    gated.until_waits(1).await;
    socket.close();
    gated.until_waits(0).await;
    assert!(matches!(other.await.unwrap(), Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn a_guest_that_waits_twice_with_one_call_keeps_no_place_when_it_is_gone() {
    let gated = Gated::new(10, true);
    let served = Served::new(gated.clone());
    // Wait in shard 0, seen nothing, for ever; two frames of call 7.
    let wait = [&7u64.to_le_bytes()[..], &[4, 0, 0], &[0xff; 9], &[1]].concat();
    let frame = [&(wait.len() as u32).to_le_bytes()[..], &wait].concat();
    let greeting = [b"onceflow".as_slice(), &socket::VERSION.to_le_bytes()].concat();
    reads_to_end(&served.path(), &[&greeting[..], &frame, &frame].concat()).await;
    gated.until_waits(0).await;
    served.server.stop().await;
}

#[tokio::test]
async fn a_wait_wakes_for_what_another_guest_enables() {
    let served = Served::new(memory());
    let (one, two) = (served.connect().await, served.connect().await);
    let waiting = beside(async move { one.wait(SHARD, Position(0), Timestamp::NEVER).await });
    let queue = Group::queue("q");
    let inbox = onceflow_core::Inbox { group: Group::rows("in"), prefix: Default::default(), note: vec![] };
    let mut batch = Batch::new(SHARD);
    batch.require_absent(queue.key("n")).put(queue.key("n"), inbox.to_row());
    two.commit(batch).await.unwrap().is_applied().then_some(()).unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn pages_are_cut_to_fit_and_gets_over_the_limit_say_so() {
    let memory = memory();
    let served = Served::new(memory.clone());
    let socket = served.connect().await;
    let large = Row::from(vec![1; onceflow_core::limits::ROW_BYTES_MAX]);
    let rows = limits::REPLY_BYTES_MAX / large.len() + 1;
    for at in 0..rows {
        let mut batch = Batch::new(SHARD);
        batch.put(key(at.to_be_bytes()), large.clone());
        assert!(socket.commit(batch).await.unwrap().is_applied());
    }
    let (mut seen, mut after) = (0, None);
    loop {
        let page = socket.scan(SHARD, Scan::of(Group::rows("group"), 4096).after(after)).await.unwrap();
        assert!(!page.rows.is_empty() && page.rows.len() <= limits::PAGE_BYTES_MAX / large.len());
        seen += page.rows.len();
        after = page.rows.last().map(|(name, _)| name.clone());
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, rows);
    let keys: Vec<_> = (0..rows).map(|at| key(at.to_be_bytes())).collect();
    assert_eq!(socket.get(SHARD, &keys[..rows - 2]).await.unwrap().len(), rows - 2);
    let error = socket.get(SHARD, &keys).await.unwrap_err().to_string();
    assert!(error.contains("REPLY_BYTES_MAX"), "{error}");
    let mut batch = put("too large");
    for _ in 0..=limits::REQUEST_BYTES_MAX / large.len() {
        batch.require_equals(key("x"), large.clone());
    }
    let error = socket.commit(batch).await.unwrap_err().to_string();
    assert!(error.contains("REQUEST_BYTES_MAX"), "{error}");
    assert!(socket.commit(put("others are not hurt")).await.unwrap().is_applied());
}

#[tokio::test]
async fn an_error_of_the_store_reads_the_same_through_the_socket() {
    let memory = memory();
    let served = Served::new(memory.clone());
    let socket = served.connect().await;
    assert!(socket.commit(put("text")).await.unwrap().is_applied());
    let mut wrong = put("other");
    wrong.add(key("text"), 1, vec![]);
    let (here, there) = (memory.commit(wrong.clone()).await, socket.commit(wrong).await);
    assert_eq!(there.unwrap_err().to_string(), here.unwrap_err().to_string());
}

async fn reads_to_end(path: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(path).await.unwrap();
    // The other side may close before it has read everything.
    drop(stream.write_all(bytes).await);
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer).await);
    answer
}

#[tokio::test]
async fn a_guest_that_talks_nonsense_is_shown_out_and_the_others_stay() {
    let served = Served::new(memory());
    let socket = served.connect().await;
    let greeting = [b"onceflow".as_slice(), &socket::VERSION.to_le_bytes()].concat();
    let oversized = [greeting.as_slice(), &u32::MAX.to_le_bytes(), &[0; 100]].concat();
    let garbage = [greeting.as_slice(), &20u32.to_le_bytes(), &[255; 20]].concat();
    for nonsense in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), &oversized, &garbage] {
        reads_to_end(&served.path(), nonsense).await;
    }
    assert!(socket.commit(put("a")).await.unwrap().is_applied());
    let other_version = [b"onceflow".as_slice(), &99u32.to_le_bytes()].concat();
    assert_eq!(reads_to_end(&served.path(), &other_version).await, greeting, "it is told our version and no more");
}

#[tokio::test]
async fn a_server_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let world = RealWorld::here();
    let path = dir.path().join("s");
    let nobody = Socket::connect(&path, &*world).await;
    assert!(matches!(nobody, Err(ConnectError::Unserved(_))));
    let listener = UnixListener::bind(&path).unwrap();
    let replies: [(&[u8], &str); 3] = [
        (b"HTTP/1.1 400 Bad Request", "does not speak onceflow's protocol"),
        (b"onceflow\x63\0\0\0", "speaks protocol 99, this is 2"),
        (b"onceflow\x02\0\0\0\xff\xff\xff\xff", "a frame of 4294967295 bytes is over the limit"),
    ];
    for (reply, said) in replies {
        let answer = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(reply).await.unwrap();
            stream
        };
        let (connected, _stream) = join(Socket::connect(&path, &*world), answer).await;
        match connected {
            Err(ConnectError::Refused(broken)) => assert!(broken.to_string().contains(said), "{broken}"),
            other => panic!("{:?}", other.err()),
        }
    }
    let leave = async { drop(listener.accept().await.unwrap()) };
    let (connected, ()) = join(Socket::connect(&path, &*world), leave).await;
    assert!(matches!(connected, Err(ConnectError::Unserved(_))));
}

/// Tells a process that it is a child, and where to connect.
const STRANGER: &str = "ONCEFLOW_TEST_STRANGER_SOCKET";

#[tokio::test]
async fn a_stranger() {
    let Some(path) = std::env::var_os(STRANGER) else { return };
    match Socket::connect(Path::new(&path), &*RealWorld::here()).await {
        Err(ConnectError::Refused(broken)) => assert!(broken.to_string().contains("runs as user 0"), "{broken}"),
        other => panic!("{:?}", other.err()),
    }
    // A program without such manners is shown out all the same.
    let greeting = [b"onceflow".as_slice(), &socket::VERSION.to_le_bytes()].concat();
    assert_eq!(reads_to_end(Path::new(&path), &greeting).await, b"");
}

/// Only the superuser can become another user; for others the rule itself is tested beside it.
#[tokio::test]
async fn another_user_is_refused_by_both_sides() {
    let served = Served::new(memory());
    if served.path().metadata().unwrap().uid() != 0 {
        return;
    }
    // As if another user had been let into the directory.
    std::fs::set_permissions(served.dir.path(), Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(served.path(), Permissions::from_mode(0o666)).unwrap();
    let program = served.dir.path().join("stranger");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut stranger = tokio::process::Command::new(&program);
    stranger.args(["--exact", "socket::a_stranger"]).env(STRANGER, served.path()).uid(65_534).current_dir("/");
    let output = stranger.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
