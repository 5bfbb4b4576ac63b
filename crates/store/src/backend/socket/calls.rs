//! The calls of one connection, on the guest's side: those waiting to be sent, those waiting for a reply, and the
//! answer of each when the connection is lost.

use super::{
    frame::{self, Broken, Reader},
    limits::{OUTBOX_BYTES_MAX, REQUEST_BYTES_MAX},
    protocol::{Reply, ReplyBody, Request},
};
use crate::{
    backend::held::{HeldClaims, PendingClaims},
    records::{Error, Position},
    sync::{Mutex, lock},
    wake::Signal,
};
use futures_util::future::{Either, select};
use onceflow_core::batch::Invalid;
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tokio::{
    io::AsyncWriteExt,
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    sync::oneshot,
};

/// The state that callers, the sender and the receiver share.
pub(super) struct Wire {
    inner: Mutex<Inner>,
    /// The claims of this process. A reply is noted there before its caller has it, and before the connection counts as
    /// lost, so that the next owner is told of every claim that was answered.
    pub(super) held: Arc<HeldClaims>,
    /// Raised when there is something to send.
    filled: Signal,
    /// Raised when there is room for more.
    drained: Signal,
    /// Raised when the connection is lost.
    lost: Signal,
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
    kind: Kind,
    reply: oneshot::Sender<Result<ReplyBody, Error>>,
}

/// The effect of a call.
pub(super) enum Kind {
    Read,
    /// The claims that its answer grants or drops.
    Commit(Option<PendingClaims>),
}

impl Wire {
    pub(super) fn new(held: Arc<HeldClaims>) -> Self {
        Wire {
            inner: Mutex::default(),
            held,
            filled: Signal::default(),
            drained: Signal::default(),
            lost: Signal::default(),
            position: AtomicU64::new(0),
        }
    }

    /// The reason why the connection is lost, if it is.
    pub(super) fn is_lost(&self) -> Option<Arc<str>> {
        lock(&self.inner).lost.clone()
    }

    /// The latest position that an answer carried.
    pub(super) fn position(&self) -> Position {
        Position(self.position.load(Relaxed))
    }

    /// Puts a request into the outbox, when there is room.
    pub(super) async fn call(&self, request: Request, kind: Kind) -> Result<Waiting<'_>, Error> {
        let mut frame = Vec::new();
        frame::append(&mut frame, 0, &request, REQUEST_BYTES_MAX).map_err(|found| {
            let (what, name) = ("bytes of a request", "backend::socket::limits::REQUEST_BYTES_MAX");
            Invalid::TooMany { what, found, limit: REQUEST_BYTES_MAX, name }
        })?;
        let (reply, answer) = oneshot::channel();
        let mut call = Some(Call { kind, reply });
        let number = self.drained.until(|| self.enter(&mut frame, &mut call)).await?;
        self.filled.notify();
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
        self.filled.notify();
    }

    fn answer(&self, number: u64, position: Position, answer: Result<ReplyBody, Error>) {
        self.position.fetch_max(position.0, Relaxed);
        let mut inner = lock(&self.inner);
        if let Some(call) = inner.calls.remove(&number) {
            if let Kind::Commit(Some(expected)) = call.kind {
                match &answer {
                    Ok(ReplyBody::Committed(outcome)) => self.held.answered(expected, outcome),
                    Err(Error::Unknown(_)) => self.held.unanswered(expected),
                    _ => {}
                }
            }
            drop(inner);
            // A caller that does not wait any more gets no answer.
            drop(call.reply.send(answer));
        }
    }

    /// Gives up the connection. After a goodbye, unanswered calls were not executed.
    pub(super) fn lose(&self, why: &str, goodbye: bool) {
        let mut inner = lock(&self.inner);
        if inner.lost.is_some() {
            return;
        }
        let why: Arc<str> = format!("the connection to the store's owner is lost: {why}").into();
        inner.lost = Some(why.clone());
        let sent_before = if goodbye { 0 } else { inner.sent_before };
        let calls = std::mem::take(&mut inner.calls);
        inner.outbox = Vec::new();
        let mut told = Vec::new();
        for (number, call) in calls {
            let is_open = number < sent_before;
            let error = match call.kind {
                Kind::Commit(expected) if is_open => {
                    expected.into_iter().for_each(|expected| self.held.unanswered(expected));
                    Error::Unknown(why.clone())
                }
                _ => Error::Unavailable(why.clone()),
            };
            told.push((call.reply, error));
        }
        drop(inner);
        for (reply, error) in told {
            drop(reply.send(Err(error)));
        }
        self.filled.notify();
        self.drained.notify();
        self.lost.notify();
    }

    pub(super) async fn until_lost(&self) -> Arc<str> {
        self.lost.until(|| self.is_lost()).await
    }
}

/// A call that is not answered yet. Dropping it leaves nothing behind, here or on the other side.
pub(super) struct Waiting<'a> {
    wire: &'a Wire,
    number: u64,
    answer: oneshot::Receiver<Result<ReplyBody, Error>>,
    cancel: bool,
}

impl Waiting<'_> {
    pub(super) async fn reply(mut self) -> Result<ReplyBody, Error> {
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

/// Sends the requests in the outbox, all of them at a time.
pub(super) async fn send(wire: Arc<Wire>, mut write: OwnedWriteHalf) {
    while let Some(bytes) = wire.filled.until(|| wire.take_outbox()).await {
        wire.drained.notify();
        match select(pin!(wire.until_lost()), pin!(write.write_all(&bytes))).await {
            Either::Left(_) => return,
            Either::Right((Ok(()), _)) => {}
            // The other side may have answered and said goodbye before it closed: the receiver reads that first.
            Either::Right((Err(error), _)) => return tracing::debug!(%error, "cannot send to the store's owner"),
        }
    }
}

/// Hands out replies until the connection is lost.
pub(super) async fn receive(wire: Arc<Wire>, mut reader: Reader<OwnedReadHalf>) {
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
