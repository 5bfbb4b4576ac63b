//! The port on the guest's side: one connection for all callers of a process.
//!
//! | when the connection is lost | is answered |
//! |---|---|
//! | to a commit that was sent | [`Error::Unknown`] |
//! | to a commit that was not, or that the server says it did not execute | [`Error::Unavailable`]: nothing changed |
//! | to anything else, and to every later call | [`Error::Unavailable`] |
//!
//! What a server answers is durable already, so [`durable`](Records::durable) has nothing to wait for, and
//! [`position`](Records::position) is the latest that an answer was decided at: never ahead of what the caller knows.

use super::{
    frame::{self, Broken, Reader},
    limits::{OUTBOX_BYTES_MAX, REPLY_BYTES_MAX, REQUEST_BYTES_MAX},
    peer, protocol,
    protocol::{Answer, Reply, Request, Welcome},
};
use crate::{
    backend::memory::check_get,
    records::{Error, Outcome, Page, Position, Records, Scan},
    sync::{Mutex, lock},
    wake::Bell,
    world::{BoxFuture, World},
};
use futures_util::future::{Either, select};
use onceflow_core::{Batch, Key, Row, Shard, Timestamp, batch::Invalid};
use std::{
    collections::BTreeMap,
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::oneshot,
};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no socket, or nobody listens there, or whoever did went away. Try again, or serve.
    #[error("nobody serves the store there: {0}")]
    Nobody(Broken),
    /// Somebody is there who cannot be talked to. Trying again will not help.
    #[error("the store there cannot be shared: {0}")]
    Refused(Broken),
}

impl From<Broken> for ConnectError {
    fn from(broken: Broken) -> Self {
        use std::io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected, NotFound, WouldBlock};
        const NOBODY: [std::io::ErrorKind; 6] =
            [NotFound, ConnectionRefused, ConnectionReset, BrokenPipe, NotConnected, WouldBlock];
        match &broken {
            Broken::Io(error) if NOBODY.contains(&error.kind()) => ConnectError::Nobody(broken),
            Broken::Truncated => ConnectError::Nobody(broken),
            _ => ConnectError::Refused(broken),
        }
    }
}

/// A store that another process serves.
pub struct Socket {
    wire: Arc<Wire>,
    welcome: Welcome,
}

/// What callers, the sender and the receiver share.
#[derive(Default)]
struct Wire {
    inner: Mutex<Inner>,
    /// Rings when there is something to send.
    filled: Bell,
    /// Rings when there is room for more.
    drained: Bell,
    /// Rings when the connection is lost.
    lost: Bell,
    position: AtomicU64,
}

#[derive(Default)]
struct Inner {
    /// Frames that are not sent yet, in order of their calls.
    outbox: Vec<u8>,
    next_call: u64,
    /// Calls before this one may have reached the server.
    sent_before: u64,
    calls: BTreeMap<u64, Call>,
    lost: Option<Arc<str>>,
}

struct Call {
    is_commit: bool,
    reply: oneshot::Sender<Result<Answer, Error>>,
}

impl Socket {
    /// Connects to the server that listens there, and waits until it is ready to serve.
    pub async fn connect(path: &Path, world: &dyn World) -> Result<Self, ConnectError> {
        let stream = UnixStream::connect(path).await.map_err(Broken::from)?;
        peer::check_same_user(&stream)?;
        let (read, mut write) = stream.into_split();
        let mut reader = Reader::new(read, REPLY_BYTES_MAX);
        let welcome = protocol::greet(&mut reader, &mut write).await?;
        let wire = Arc::new(Wire::default());
        world.spawn("socket send", Box::pin(send(wire.clone(), write)));
        world.spawn("socket receive", Box::pin(receive(wire.clone(), reader)));
        Ok(Socket { wire, welcome })
    }

    /// What the server said first.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Why the connection is lost, if it is.
    pub fn is_lost(&self) -> Option<Arc<str>> {
        lock(&self.wire.inner).lost.clone()
    }

    /// Ends when the connection is lost, or this is dropped; keeps nothing alive.
    pub fn lost(&self) -> BoxFuture<'static, Arc<str>> {
        let wire = self.wire.clone();
        Box::pin(async move { wire.until_lost().await })
    }

    /// Gives up the connection. Calls in flight are answered as if the other side had.
    pub fn close(&self) {
        self.wire.lose("this side closed it", false);
    }

    async fn read(&self, request: Request) -> Result<Answer, Error> {
        self.wire.call(request, false).await?.reply().await
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.close();
    }
}

impl Wire {
    /// Puts a request into the outbox, when there is room.
    async fn call(&self, request: Request, is_commit: bool) -> Result<Waiting<'_>, Error> {
        let mut frame = Vec::new();
        frame::append(&mut frame, 0, &request, REQUEST_BYTES_MAX).map_err(|found| {
            let (what, name) = ("bytes of a request", "backend::socket::limits::REQUEST_BYTES_MAX");
            Invalid::TooMany { what, found, limit: REQUEST_BYTES_MAX, name }
        })?;
        let (reply, answer) = oneshot::channel();
        let mut call = Some(Call { is_commit, reply });
        let number = self.drained.until(|| self.enter(&mut frame, &mut call)).await?;
        self.filled.ring();
        let is_wait = matches!(request, Request::Wait { .. });
        Ok(Waiting { wire: self, number, answer, cancel: is_wait })
    }

    fn enter(&self, frame: &mut Vec<u8>, call: &mut Option<Call>) -> Option<Result<u64, Error>> {
        let mut inner = lock(&self.inner);
        if let Some(why) = &inner.lost {
            return Some(Err(Error::Unavailable(why.clone())));
        }
        if inner.outbox.len() > OUTBOX_BYTES_MAX {
            return None;
        }
        let number = inner.next_call;
        inner.next_call += 1;
        frame::set_call(frame, number);
        inner.outbox.append(frame);
        inner.calls.insert(number, call.take().expect("a call enters once"));
        Some(Ok(number))
    }

    /// Everything that waits to be sent; `None` when it cannot be any more.
    fn take_outbox(&self) -> Option<Option<Vec<u8>>> {
        let mut inner = lock(&self.inner);
        if inner.lost.is_some() {
            return Some(None);
        }
        if inner.outbox.is_empty() {
            return None;
        }
        inner.sent_before = inner.next_call;
        Some(Some(std::mem::take(&mut inner.outbox)))
    }

    fn cancel(&self, number: u64) {
        let mut inner = lock(&self.inner);
        if inner.calls.remove(&number).is_none() || inner.lost.is_some() {
            return;
        }
        // Not held back by the outbox's bound: there is at most one for every call that was let in.
        frame::append(&mut inner.outbox, number, &Request::Cancel, REQUEST_BYTES_MAX).expect("a cancel is short");
        drop(inner);
        self.filled.ring();
    }

    fn answer(&self, number: u64, position: Position, answer: Result<Answer, Error>) {
        self.position.fetch_max(position.0, Relaxed);
        let call = lock(&self.inner).calls.remove(&number);
        if let Some(call) = call {
            // Who does not wait any more does not want to know.
            drop(call.reply.send(answer));
        }
    }

    /// Gives up the connection. After a goodbye, what is unanswered was not executed.
    fn lose(&self, why: &str, goodbye: bool) {
        let mut inner = lock(&self.inner);
        if inner.lost.is_some() {
            return;
        }
        let why: Arc<str> = format!("the connection to the store's owner is lost: {why}").into();
        inner.lost = Some(why.clone());
        let sent_before = if goodbye { 0 } else { inner.sent_before };
        let calls = std::mem::take(&mut inner.calls);
        inner.outbox = Vec::new();
        drop(inner);
        for (number, call) in calls {
            let is_open = call.is_commit && number < sent_before;
            let error = if is_open { Error::Unknown(why.clone()) } else { Error::Unavailable(why.clone()) };
            drop(call.reply.send(Err(error)));
        }
        self.filled.ring();
        self.drained.ring();
        self.lost.ring();
    }

    async fn until_lost(&self) -> Arc<str> {
        self.lost.until(|| lock(&self.inner).lost.clone()).await
    }
}

/// A call that is not answered yet. Dropping it leaves nothing behind, here or on the other side.
struct Waiting<'a> {
    wire: &'a Wire,
    number: u64,
    answer: oneshot::Receiver<Result<Answer, Error>>,
    cancel: bool,
}

impl Waiting<'_> {
    async fn reply(mut self) -> Result<Answer, Error> {
        let answer = (&mut self.answer).await;
        self.cancel = false;
        answer.expect("every call is answered, at the latest when the connection is lost")
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.cancel {
            self.wire.cancel(self.number);
        }
    }
}

async fn send(wire: Arc<Wire>, mut write: OwnedWriteHalf) {
    while let Some(bytes) = wire.filled.until(|| wire.take_outbox()).await {
        wire.drained.ring();
        match select(pin!(wire.until_lost()), pin!(write.write_all(&bytes))).await {
            Either::Left(_) => return,
            Either::Right((Ok(()), _)) => {}
            // The other side may have answered and said goodbye before it closed: the receiver reads that first.
            Either::Right((Err(error), _)) => return tracing::debug!(%error, "cannot send to the store's owner"),
        }
    }
}

async fn receive(wire: Arc<Wire>, mut reader: Reader<OwnedReadHalf>) {
    let lost = pin!(wire.until_lost());
    let receiving = pin!(receive_until_end(&wire, &mut reader));
    match select(lost, receiving).await {
        Either::Left(_) => {}
        Either::Right((Ok(true), _)) => wire.lose("it stopped", true),
        Either::Right((Ok(false), _)) => wire.lose("it is gone", false),
        Either::Right((Err(broken), _)) => wire.lose(&broken.to_string(), false),
    }
}

/// Hands out replies until the end; answers whether the server said goodbye.
async fn receive_until_end(wire: &Wire, reader: &mut Reader<OwnedReadHalf>) -> Result<bool, Broken> {
    while let Some(frame) = reader.next().await? {
        match frame.reply()? {
            Reply::To { position, answer } => wire.answer(frame.call, position, answer.map_err(Error::from)),
            Reply::Goodbye => return Ok(true),
        }
    }
    Ok(false)
}

impl Records for Socket {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        Box::pin(async move {
            check_get(keys)?;
            match self.read(Request::Get { shard, keys: keys.to_vec() }).await? {
                Answer::Rows(rows) if rows.len() == keys.len() => Ok(rows),
                other => Err(mismatch(&other)),
            }
        })
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(async move {
            match self.read(Request::Scan { shard, scan }).await? {
                Answer::Page(page) => Ok(page),
                other => Err(mismatch(&other)),
            }
        })
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Outcome, Error>> {
        Box::pin(async move {
            batch.check()?;
            let waiting = self.wire.call(Request::Commit(batch.into()), true).await?;
            match waiting.reply().await? {
                Answer::Outcome(outcome) => Ok(outcome),
                other => Err(Error::Unknown(mismatch(&other).to_string().into())),
            }
        })
    }

    fn durable(&self, _: Position) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn position(&self) -> Position {
        Position(self.wire.position.load(Relaxed))
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        Box::pin(async move {
            match self.read(Request::Now).await? {
                Answer::Now(now) => Ok(now),
                other => Err(mismatch(&other)),
            }
        })
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            match self.read(Request::Wait { shard, seen, until }).await? {
                Answer::Woken => Ok(()),
                other => Err(mismatch(&other)),
            }
        })
    }
}

fn mismatch(answer: &Answer) -> Error {
    Error::Unavailable(format!("the store's owner answered another question: {answer:?}").into())
}
