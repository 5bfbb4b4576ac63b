//! The port on the guest's side: one connection for all callers of a process.
//!
//! | when the connection is lost | is answered |
//! |---|---|
//! | to a commit that was sent | [`Error::Unknown`] |
//! | to a commit that was not, or that the server says it did not execute | [`Error::Unavailable`]: nothing changed |
//! | to anything else, and to every later call | [`Error::Unavailable`] |
//!
//! A server's answers are durable already, so [`durable`](Records::durable) has nothing to wait for, and
//! [`position`](Records::position) is the latest that an answer was decided at: never ahead of what the caller knows.

use super::{
    calls::{self, Kind, Wire},
    frame::{Broken, Reader},
    limits::REPLY_BYTES_MAX,
    peer, protocol,
    protocol::{Hello, ReplyBody, Request, Welcome},
};
use crate::{
    backend::{held::HeldClaims, shared::check_get},
    records::{CommitResult, Error, Page, Position, Records, Scan},
    world::{BoxFuture, World},
};
use onceflow_core::{Batch, Key, Row, Shard, Timestamp, batch::BatchLimits};
use std::{path::Path, sync::Arc};
use tokio::net::UnixStream;

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no socket, or no process listens there, or the server went away. Try again, or serve.
    #[error("no process serves the store there: {0}")]
    Unserved(Broken),
    /// A server is there that cannot be talked to. Trying again will not help.
    #[error("the store there cannot be shared: {0}")]
    Refused(Broken),
}

impl From<Broken> for ConnectError {
    fn from(broken: Broken) -> Self {
        use std::io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected, NotFound, WouldBlock};
        const ABSENT: [std::io::ErrorKind; 6] =
            [NotFound, ConnectionRefused, ConnectionReset, BrokenPipe, NotConnected, WouldBlock];
        match &broken {
            Broken::Io(error) if ABSENT.contains(&error.kind()) => ConnectError::Unserved(broken),
            Broken::Truncated => ConnectError::Unserved(broken),
            _ => ConnectError::Refused(broken),
        }
    }
}

/// A store that another process serves.
pub struct Socket {
    wire: Arc<Wire>,
    welcome: Welcome,
}

impl Socket {
    /// Connects to the server that listens there, and waits until it is ready to serve.
    pub async fn connect(path: &Path, world: &dyn World) -> Result<Self, ConnectError> {
        Socket::join(path, world, world.random(), Arc::default()).await
    }

    /// The same, as a process that may have claims already: it asserts all claims in `held`, and from then on records
    /// new ones there.
    pub async fn join(
        path: &Path,
        world: &dyn World,
        member: u128,
        held: Arc<HeldClaims>,
    ) -> Result<Self, ConnectError> {
        let stream = UnixStream::connect(path).await.map_err(Broken::from)?;
        peer::check_same_user(&stream)?;
        let (read, mut write) = stream.into_split();
        let mut reader = Reader::new(read, REPLY_BYTES_MAX);
        let welcome = protocol::greet(&mut reader, &mut write, Hello { member, claims: held.all() }).await?;
        let wire = Arc::new(Wire::new(held));
        world.spawn("socket send", Box::pin(calls::send(wire.clone(), write)));
        world.spawn("socket receive", Box::pin(calls::receive(wire.clone(), reader)));
        Ok(Socket { wire, welcome })
    }

    /// The server's first message.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Why the connection is lost, if it is.
    pub fn is_lost(&self) -> Option<Arc<str>> {
        self.wire.is_lost()
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

    async fn read(&self, request: Request) -> Result<ReplyBody, Error> {
        self.wire.call(request, Kind::Read).await?.reply().await
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.close();
    }
}

impl Records for Socket {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        Box::pin(async move {
            check_get(keys)?;
            match self.read(Request::Get { shard, keys: keys.to_vec() }).await? {
                ReplyBody::Rows(rows) if rows.len() == keys.len() => Ok(rows),
                other => Err(mismatch(&other)),
            }
        })
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(async move {
            match self.read(Request::Scan { shard, scan }).await? {
                ReplyBody::Page(page) => Ok(page),
                other => Err(mismatch(&other)),
            }
        })
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        Box::pin(async move {
            batch.check_within(BatchLimits::EMBEDDED)?;
            let kind = Kind::Commit(self.wire.held.expect(&batch));
            let waiting = self.wire.call(Request::Commit(batch.into()), kind).await?;
            match waiting.reply().await? {
                ReplyBody::Committed(outcome) => Ok(outcome),
                other => Err(Error::Unknown(mismatch(&other).to_string().into())),
            }
        })
    }

    fn durable(&self, _: Position) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn position(&self) -> Position {
        self.wire.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        Box::pin(async move {
            match self.read(Request::Now).await? {
                ReplyBody::Now(now) => Ok(now),
                other => Err(mismatch(&other)),
            }
        })
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            match self.read(Request::Wait { shard, seen, until }).await? {
                ReplyBody::Woken => Ok(()),
                other => Err(mismatch(&other)),
            }
        })
    }

    fn batch_limits(&self) -> BatchLimits {
        BatchLimits::EMBEDDED
    }
}

fn mismatch(answer: &ReplyBody) -> Error {
    Error::Unavailable(format!("the store's owner answered another question: {answer:?}").into())
}
