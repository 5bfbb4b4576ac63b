//! One guest, on the server's side. Its requests are executed one after the other as they arrive; beside that, its
//! replies leave in the same order, each when what it was decided on is durable. `wait`s stand apart.

use super::{
    frame::{self, Broken, Reader},
    limits::{
        GREETING_MS_MAX, PAGE_BYTES_MAX, REPLIES_MAX, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, WAITS_MAX, WRITE_BYTES_MAX,
    },
    peer, protocol,
    protocol::{Hello, Reply, ReplyBody, Request},
    server::{Phase, Shared},
    wire::FlatError,
};
use crate::{
    records::{CommitResult, Error, Position},
    sync::{Mutex, lock},
};
use futures_util::{
    FutureExt,
    future::{AbortHandle, Either, abortable, select},
};
use onceflow_core::{Name, Row, Shard, Timestamp, batch::Invalid};
use std::{collections::BTreeMap, pin::pin, sync::Arc};
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{OwnedSemaphorePermit, mpsc},
};

/// A message that waits to be sent.
enum Outgoing {
    Reply(Decided),
    /// All that was executed stands before this.
    Goodbye,
}

/// A reply on its way out.
struct Decided {
    call: u64,
    /// The answer is sent when this position is durable.
    position: Position,
    is_commit: bool,
    answer: Result<ReplyBody, Error>,
}

/// Serves one guest until it leaves, says something that is no message, or the server stops.
pub(super) async fn run(shared: Arc<Shared>, stream: UnixStream, place: OwnedSemaphorePermit) {
    let gone = shared.clone();
    let gone = pin!(gone.until(Phase::Gone));
    if let Either::Right((Err(broken), _)) = select(gone, pin!(serve(shared, stream, place))).await {
        tracing::warn!(%broken, "closing the connection to another process that uses the store");
    }
}

async fn serve(shared: Arc<Shared>, stream: UnixStream, place: OwnedSemaphorePermit) -> Result<(), Broken> {
    peer::check_same_user(&stream)?;
    let (read, mut write) = stream.into_split();
    let mut reader = Reader::new(read, REQUEST_BYTES_MAX);
    let hello = hear_hello(&shared, &mut reader, &mut write).await?;
    let member = hello.member;
    if let Err(error) = shared.guests.arrived(hello).await {
        tracing::warn!(%error, "failed to register another process that uses the store; closing its connection");
        return Ok(());
    }
    let present = Present { shared: shared.clone(), member };
    protocol::welcome(&mut write, &shared.welcome).await?;
    let place = Arc::new(place);
    let (replies, outgoing) = mpsc::channel(REPLIES_MAX);
    shared.world.spawn("socket replies", Box::pin(send(shared.clone(), outgoing, write, place.clone())));
    let guest = Guest { shared, replies, waits: Waits::default(), place, present };
    guest.take_requests(reader).await?;
    guest.waits.end_all();
    // A guest that has left does not hear it.
    drop(guest.replies.send(Outgoing::Goodbye).await);
    Ok(())
}

async fn hear_hello(
    shared: &Shared,
    reader: &mut Reader<OwnedReadHalf>,
    write: &mut OwnedWriteHalf,
) -> Result<Hello, Broken> {
    let greeting = pin!(protocol::hear_hello(reader, write));
    match select(greeting, shared.world.sleep(GREETING_MS_MAX)).await {
        Either::Left((greeted, _)) => greeted,
        Either::Right(_) => Err(Broken::Truncated),
    }
}

/// A guest that has arrived; the account of guests is told when it leaves, however it does.
struct Present {
    shared: Arc<Shared>,
    member: u128,
}

impl Drop for Present {
    fn drop(&mut self) {
        self.shared.guests.left(self.member);
    }
}

/// The calls executed for one guest.
struct Guest {
    shared: Arc<Shared>,
    replies: mpsc::Sender<Outgoing>,
    waits: Waits,
    /// Held by everything that uses the records for this guest, so that a stopped server knows when nothing does.
    place: Arc<OwnedSemaphorePermit>,
    present: Present,
}

impl Guest {
    /// Ends when the guest leaves or the server stops; then everything that was read is executed.
    async fn take_requests(&self, mut reader: Reader<OwnedReadHalf>) -> Result<(), Broken> {
        let shared = self.shared.clone();
        let mut stopping = pin!(shared.until(Phase::Stopping));
        loop {
            let frame = match select(&mut stopping, pin!(reader.next())).await {
                Either::Left(_) => return Ok(()),
                Either::Right((frame, _)) => frame?,
            };
            let Some(frame) = frame else { return Ok(()) };
            let reply = match frame.request()? {
                Request::Wait { shard, seen, until } => self.wait(frame.call, shard, seen, until)?,
                Request::Cancel => {
                    self.waits.end(frame.call);
                    None
                }
                request => Some(self.execute(frame.call, request).await?),
            };
            // The sender of replies ends first only when the guest cannot be written to any more.
            if let Some(reply) = reply
                && self.replies.send(Outgoing::Reply(reply)).await.is_err()
            {
                return Ok(());
            }
        }
    }

    async fn execute(&self, call: u64, request: Request) -> Result<Decided, Broken> {
        let records = &*self.shared.records;
        let is_commit = matches!(request, Request::Commit(_));
        let answer = match request {
            Request::Get { shard, keys } => records.get(shard, &keys).await.and_then(rows),
            Request::Scan { shard, scan } => records.scan(shard, scan).await.map(|mut page| {
                page.more |= cut(&mut page.rows);
                ReplyBody::Page(page)
            }),
            Request::Commit(batch) => {
                let batch = batch.into_batch().map_err(|what| Broken::Garbage(what.into()))?;
                self.shared.guests.commits(self.present.member, &batch);
                records.commit(batch).await.map(|outcome| ReplyBody::Committed(cut_claimed(outcome)))
            }
            Request::Now => records.now().await.map(ReplyBody::Now),
            Request::Wait { .. } | Request::Cancel => unreachable!("told apart by take_requests"),
        };
        let position = match &answer {
            Ok(ReplyBody::Committed(outcome)) => outcome.position(),
            _ => records.position(),
        };
        Ok(Decided { call, position, is_commit, answer })
    }

    /// Lets a wait run beside. Answers at once only that it cannot.
    fn wait(&self, call: u64, shard: Shard, seen: Position, until: Timestamp) -> Result<Option<Decided>, Broken> {
        // A second one of the same call could not be ended, and would keep its place for ever.
        if self.waits.has(call) {
            return Err(Broken::Garbage("a call that waits already".into()));
        }
        let (shared, replies, waits) = (self.shared.clone(), self.replies.clone(), self.waits.clone());
        let place = self.place.clone();
        let waiting = async move {
            let answer = shared.records.wait(shard, seen, until).await.map(|()| ReplyBody::Woken);
            let position = shared.records.position();
            waits.forget(call);
            let reply = Decided { call, position, is_commit: false, answer };
            drop(replies.send(Outgoing::Reply(reply)).await);
            drop(place);
        };
        let (waiting, handle) = abortable(waiting);
        if let Err(error) = self.waits.begin(call, handle) {
            let position = self.shared.records.position();
            return Ok(Some(Decided { call, position, is_commit: false, answer: Err(error) }));
        }
        self.shared.world.spawn("socket wait", Box::pin(waiting.map(drop)));
        Ok(None)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.waits.end_all();
    }
}

/// The waits of one guest that are under way, by call.
#[derive(Clone, Default)]
struct Waits(Arc<Mutex<BTreeMap<u64, AbortHandle>>>);

impl Waits {
    fn has(&self, call: u64) -> bool {
        lock(&self.0).contains_key(&call)
    }

    fn begin(&self, call: u64, handle: AbortHandle) -> Result<(), Error> {
        let mut waits = lock(&self.0);
        if waits.len() >= WAITS_MAX {
            let why = format!("a process may have {WAITS_MAX} waits at a time (socket::limits::WAITS_MAX)");
            return Err(Error::Unavailable(why.into()));
        }
        waits.insert(call, handle);
        Ok(())
    }

    fn forget(&self, call: u64) {
        lock(&self.0).remove(&call);
    }

    fn end(&self, call: u64) {
        if let Some(handle) = lock(&self.0).remove(&call) {
            handle.abort();
        }
    }

    fn end_all(&self) {
        let waits = std::mem::take(&mut *lock(&self.0));
        waits.into_values().for_each(|handle| handle.abort());
    }
}

fn rows(rows: Vec<Option<Row>>) -> Result<ReplyBody, Error> {
    // Beside the rows: for each whether it is there and its length; for all their number, the call and the position.
    let found = 64 + rows.iter().map(|row| 6 + row.as_ref().map_or(0, |row| row.len())).sum::<usize>();
    let limit = REPLY_BYTES_MAX;
    if found <= limit {
        return Ok(ReplyBody::Rows(rows));
    }
    Err(Invalid::TooMany { what: "bytes of an answer", found, limit, name: "REPLY_BYTES_MAX" }.into())
}

/// Cuts rows that are too many bytes for one reply; answers whether it did. One always stays.
fn cut(rows: &mut Vec<(Name, Row)>) -> bool {
    let mut bytes = 0;
    let fit = rows.iter().position(|(name, row)| {
        bytes += name.as_bytes().len() + row.len();
        bytes > PAGE_BYTES_MAX
    });
    let Some(fit) = fit else { return false };
    let fit = fit.max(1);
    let is_cut = fit < rows.len();
    rows.truncate(fit);
    is_cut
}

fn cut_claimed(mut outcome: CommitResult) -> CommitResult {
    if let CommitResult::Applied(committed) = &mut outcome
        && let Some(claimed) = &mut committed.claimed
    {
        claimed.more |= cut(&mut claimed.inputs);
    }
    outcome
}

fn reason(error: &Error) -> String {
    match error {
        Error::Full(why) | Error::Unavailable(why) | Error::Unknown(why) => why.to_string(),
        Error::Damaged(why) | Error::Lost(why) => why.to_string(),
        Error::Invalid(invalid) => invalid.to_string(),
    }
}

/// Sends replies in order, as many as are durable in one write.
async fn send(
    shared: Arc<Shared>,
    outgoing: mpsc::Receiver<Outgoing>,
    write: OwnedWriteHalf,
    place: Arc<OwnedSemaphorePermit>,
) {
    let gone = shared.clone();
    let gone = pin!(gone.until(Phase::Gone));
    let sender = pin!(Sender { shared, outgoing, write, held: None, buffer: Vec::new() }.run());
    if let Either::Right((Err(error), _)) = select(gone, sender).await {
        tracing::debug!(%error, "a guest left before its replies");
    }
    drop(place);
}

struct Sender {
    shared: Arc<Shared>,
    outgoing: mpsc::Receiver<Outgoing>,
    write: OwnedWriteHalf,
    /// Taken from the queue, and next.
    held: Option<Outgoing>,
    buffer: Vec<u8>,
}

impl Sender {
    async fn run(mut self) -> std::io::Result<()> {
        while let Some(next) = self.next().await {
            let Outgoing::Reply(next) = next else {
                frame::append(&mut self.buffer, 0, &Reply::Goodbye, REPLY_BYTES_MAX).expect("a goodbye is short");
                self.flush().await?;
                break;
            };
            let durable = self.shared.records.durable(next.position).await;
            self.append(next, durable);
            while self.buffer.len() < WRITE_BYTES_MAX && self.append_another() {}
            self.flush().await?;
        }
        self.write.shutdown().await
    }

    async fn next(&mut self) -> Option<Outgoing> {
        match self.held.take() {
            Some(held) => Some(held),
            None => self.outgoing.recv().await,
        }
    }

    /// Appends the next reply if there is one that needs no waiting; else holds it.
    fn append_another(&mut self) -> bool {
        match self.outgoing.try_recv() {
            Ok(Outgoing::Reply(next)) => match self.shared.records.durable(next.position).now_or_never() {
                Some(durable) => self.append(next, durable),
                None => self.held = Some(Outgoing::Reply(next)),
            },
            Ok(Outgoing::Goodbye) => self.held = Some(Outgoing::Goodbye),
            Err(_) => return false,
        }
        self.held.is_none()
    }

    fn append(&mut self, reply: Decided, durable: Result<(), Error>) {
        let Decided { call, position, is_commit, answer } = reply;
        let answer = match durable {
            Ok(()) => answer.map_err(FlatError::from),
            // The answer rests on a state that may be gone after a crash, so it may not be sent.
            Err(error) if is_commit => Err(FlatError::Unknown(reason(&error))),
            Err(error) => Err(FlatError::Unavailable(reason(&error))),
        };
        let reply = Reply::To { position, answer };
        frame::append(&mut self.buffer, call, &reply, REPLY_BYTES_MAX).expect("answers are cut to fit");
    }

    async fn flush(&mut self) -> std::io::Result<()> {
        self.write.write_all(&self.buffer).await?;
        self.buffer.clear();
        // A rare large reply should not keep its memory for ever.
        self.buffer.shrink_to(WRITE_BYTES_MAX);
        Ok(())
    }
}
