//! The socket. Whatever a guest says, the owner hears it out or closes the door on it, serves the others as before, and can
//! stop. Whatever an owner says, a guest's calls end with an answer or an error.
//!
//! The first byte of an input says who talks nonsense, and whether the rest are bytes as they are or bodies, each with its
//! length and its call before it, to be framed.

use super::Target;
use futures_util::future::{Either, join, join4, select};
use onceflow_core::{Batch, Group, Key, Row, Shard, Timestamp};
use onceflow_store::{
    Position, Records, World,
    backend::{
        memory::Memory,
        socket::{
            Socket, Welcome, serve,
            testing::{commit, framed, greeting, hear, replies, requests, welcome},
        },
    },
    testing::oracle::script,
    world::RealWorld,
};
use std::{cell::Cell, path::Path, pin::pin, sync::Arc};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    runtime::Runtime,
};

pub(super) const TARGET: Target =
    Target { name: "socket", run, seeds, words: &[b"\x00", b"\xff\xff\xff\xff\x0f", b"\x80"] };

/// What takes longer than this does not end at all.
const ENDLESS_MS: u64 = 10_000;

const OWNER_TALKS: u8 = 1;
const AS_IT_IS: u8 = 2;
const NO_GREETING: u8 = 4;

thread_local! {
    static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    static DIRECTORY: TempDir = tempfile::tempdir().expect("a place for a socket");
    static SOCKETS: Cell<u64> = const { Cell::new(0) };
}

fn run(input: &[u8]) -> String {
    let (mode, rest) = input.split_first().map_or((0, input), |(mode, rest)| (*mode, rest));
    let bytes = if mode & AS_IT_IS == 0 { frames(rest) } else { rest.to_vec() };
    let heard = hear(&bytes);
    let number = SOCKETS.replace(SOCKETS.get() + 1);
    let path = DIRECTORY.with(|directory| directory.path().join(format!("{number}")));
    let came_out = RUNTIME.with(|runtime| {
        runtime.block_on(async {
            match mode & OWNER_TALKS == 0 {
                true => guest_talks(&path, &bytes, mode & NO_GREETING == 0).await,
                false => owner_talks(&path, bytes).await,
            }
        })
    });
    std::fs::remove_file(&path).expect("the socket is there");
    let broken = heard.broken.map_or(String::new(), |broken| format!("{broken:?}").chars().take(9).collect());
    format!("{} {} {} {broken} {came_out}", heard.frames.min(4), heard.requests.min(4), heard.replies.min(2))
}

/// Frames around bodies: a byte for the length, a byte for the call, the body.
fn frames(mut rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![];
    while let [length, call, more @ ..] = rest {
        let (body, after) = more.split_at(more.len().min(usize::from(*length)));
        bytes.extend(framed(u64::from(*call), body));
        rest = after;
    }
    bytes
}

/// Waits for something that must come.
async fn ends<T>(world: &dyn World, what: &str, future: impl Future<Output = T>) -> T {
    match select(pin!(future), world.sleep(ENDLESS_MS)).await {
        Either::Left((value, _)) => value,
        Either::Right(_) => panic!("{what} does not end"),
    }
}

/// A row that no input names by chance.
fn key(name: &str) -> Key {
    Group::rows("of the guest that behaves").key(name)
}

fn put(name: &str) -> Batch {
    let mut batch = Batch::new(Shard(0));
    batch.require_absent(key(name)).put(key(name), Row::new(name));
    batch
}

async fn guest_talks(path: &Path, bytes: &[u8], greets: bool) -> String {
    let world = RealWorld::here();
    let listener = UnixListener::bind(path).expect("a socket");
    let us = Welcome { opening: 7, holder: String::from("the fuzzer") };
    let server = serve(listener, Arc::new(Memory::new(world.clone())), us, world.clone());
    let good = Socket::connect(path, &*world).await.expect("the owner is there");
    assert!(good.commit(put("before")).await.expect("the owner answers").is_applied());

    let mut bad = UnixStream::connect(path).await.expect("the owner is there");
    let said = if greets { [&greeting()[..], bytes].concat() } else { bytes.to_vec() };
    let talk = async {
        // The owner may have closed before everything was said.
        drop(bad.write_all(&said).await);
        drop(bad.shutdown().await);
        let mut answer = Vec::new();
        drop(bad.read_to_end(&mut answer).await);
        answer.len()
    };
    let answered = ends(&*world, "a conversation with a guest that has left", talk).await;

    let still = async {
        assert!(good.commit(put("after")).await.expect("the owner still answers").is_applied());
        let rows = good.get(Shard(0), &[key("before"), key("after")]).await.expect("the owner still answers");
        assert_eq!(rows, [Some(Row::new("before")), Some(Row::new("after"))], "the rows of another guest have changed");
    };
    ends(&*world, "a call of another guest", still).await;
    ends(&*world, "stopping", server.stop()).await;
    format!("{}", answered.checked_ilog2().unwrap_or(0))
}

async fn owner_talks(path: &Path, bytes: Vec<u8>) -> String {
    let world = RealWorld::here();
    let listener = UnixListener::bind(path).expect("a socket");
    let owner = async {
        let (mut stream, _) = listener.accept().await.expect("a guest");
        let us = Welcome { opening: 7, holder: String::from("the fuzzer") };
        let mut said = greeting().to_vec();
        said.extend(framed(0, &welcome(&us)));
        drop(stream.write_all(&said).await);
        // The greeting, and then at least one request.
        let mut asked = [0; 1 << 12];
        let mut read = 0;
        while read <= 12 {
            match stream.read(&mut asked).await {
                Ok(more @ 1..) => read += more,
                _ => break,
            }
        }
        drop(stream.write_all(&bytes).await);
    };
    let guest = async {
        let socket = Socket::connect(path, &*world).await.expect("the greeting was right");
        let keys = [key("a"), key("b")];
        let calls = join4(
            socket.commit(put("a")),
            socket.get(Shard(0), &keys),
            socket.now(),
            socket.wait(Shard(0), Position(0), Timestamp::ZERO),
        );
        let (committed, rows, now, woken) = calls.await;
        if let Ok(rows) = &rows {
            assert_eq!(rows.len(), keys.len(), "rows for other keys than were asked");
        }
        format!("{} {} {} {}", committed.is_ok(), rows.is_ok(), now.is_ok(), woken.is_ok())
    };
    ends(&*world, "a call whose owner is gone", join(owner, guest)).await.1
}

/// Every message, alone and one behind the other; some batches; replies to the calls that are made.
fn seeds() -> Vec<Vec<u8>> {
    let input = |mode: u8, bodies: &[Vec<u8>]| {
        let chunk = |(call, body): (usize, &Vec<u8>)| [&[body.len() as u8, call as u8][..], body].concat();
        let short = bodies.iter().filter(|body| body.len() < 256);
        std::iter::once(mode).chain(short.enumerate().flat_map(chunk)).collect::<Vec<u8>>()
    };
    let batches: Vec<_> = script(3, 12).into_iter().map(commit).collect();
    let mut seeds: Vec<_> = requests().into_iter().chain(batches.clone()).map(|body| input(0, &[body])).collect();
    seeds.extend([input(0, &requests()), input(0, &batches)]);
    for reply in replies() {
        seeds.push(input(OWNER_TALKS, &[reply.clone(), reply.clone(), reply.clone(), reply]));
    }
    seeds.push(input(OWNER_TALKS, &replies()));
    seeds.push([&[AS_IT_IS][..], &framed(0, &requests()[0])].concat());
    seeds.push([&[AS_IT_IS | NO_GREETING][..], b"GET / HTTP/1.1\r\n\r\n"].concat());
    seeds
}
