//! Records that clients send: `POST` requests on a port of this machine. A request is answered when its records are
//! durable, so a client that got no answer sends it again; records have ids, and each counts once.
//!
//! Everything is bounded: the size of a body, the time to send it, connections, and the bytes that wait to be read. With
//! more, a client is told to come again.

use super::{
    http_guard::{KnownHeaders, RequiredHeaders},
    secret::SecretText,
    source::{NextRecord, SplitReader, StreamSource, number_at},
};
use crate::{data::StreamData, event_time::EventTime, pipeline::tail::Clock, run::control::StreamControl};
use bytes::Bytes;
use futures_util::future::{Either, select};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use onceflow_store::{World, world::RealWorld};
use std::{
    collections::VecDeque,
    convert::Infallible,
    io::{Error, Result},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};
use tokio::sync::oneshot;

/// Bytes of a request's body, at most.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// Bytes of bodies whose records wait to be read, at most; with more, clients are told to come again.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// Connections at a time; further ones are closed unanswered.
const CONNECTIONS_MAX: usize = 256;

/// Characters of an idempotency key.
const KEY_CHARS_MAX: usize = 200;

/// The time a client has to send a request.
const REQUEST_MS_MAX: u64 = 30_000;

/// When a client that was sent away should come again, in seconds.
const RETRY_AFTER_S: &str = "1";

/// The watermark of records without a time of their own advances with the clock in such steps: each is a commit.
const CLOCK_STEP_MS: i64 = 1000;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestRequest {
    /// The header `Idempotency-Key`.
    pub key: Option<String>,
    /// The body.
    pub body: Bytes,
}

/// A record of a request, with the id that its client chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestedRecord<T> {
    /// The id.
    pub id: String,
    /// The record.
    pub record: T,
    /// The time of the event; `None` stands for the time of arrival.
    pub time: Option<EventTime>,
}

/// Makes the records of a request, or says what is wrong with it; then none is taken.
pub type DecodeRequest<T> =
    Arc<dyn Fn(&IngestRequest) -> std::result::Result<Vec<IngestedRecord<T>>, String> + Send + Sync>;

/// Records that clients send over HTTP, with their ids: [`Stream::once_per_id`](crate::Stream::once_per_id) is the next
/// step.
pub struct HttpIngest<T> {
    address: SocketAddr,
    out_of_order_ms: i64,
    required: RequiredHeaders,
    shared: Arc<Ingest<T>>,
}

/// The part that connections and the reader share.
struct Ingest<T> {
    decode: DecodeRequest<T>,
    control: StreamControl,
    clock: Clock,
    queue: Mutex<Queue<T>>,
}

/// Records that wait to be read, and requests that wait until theirs are durable.
struct Queue<T> {
    /// With the bytes of its request, on the request's last record.
    records: VecDeque<(IngestedRecord<T>, usize)>,
    bytes: usize,
    /// The number of the record that comes next into the queue.
    next: u64,
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
    has_reader: bool,
}

impl<T> Ingest<T> {
    fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: StreamData> HttpIngest<T> {
    /// Returns the source that listens at an address. `control` is that of its pipeline.
    pub fn new(address: SocketAddr, control: StreamControl, clock: Clock, decode: DecodeRequest<T>) -> Self {
        let queue = Queue { records: VecDeque::new(), bytes: 0, next: 0, waiting: VecDeque::new(), has_reader: false };
        let shared = Arc::new(Ingest { decode, control, clock, queue: Mutex::new(queue) });
        HttpIngest { address, out_of_order_ms: 0, required: RequiredHeaders::default(), shared }
    }

    /// Answers 401 to requests without this header, such as a token. Its value is made when the source is opened, and shown
    /// nowhere.
    ///
    /// # Errors
    /// If this cannot be the name of a header.
    pub fn require_header(mut self, name: &str, value: SecretText) -> std::result::Result<Self, String> {
        self.required.add(name, value)?;
        Ok(self)
    }

    /// Records may be up to this much earlier than one before them; others are late.
    #[must_use]
    pub fn out_of_order_ms(self, out_of_order_ms: i64) -> Self {
        HttpIngest { out_of_order_ms, ..self }
    }
}

impl<T: StreamData> StreamSource for HttpIngest<T> {
    type Item = (String, T);

    fn splits(&self) -> u16 {
        1
    }

    fn open(&self, _: u16, position: Option<&[u8]>) -> Result<Box<dyn SplitReader<(String, T)>>> {
        let read = number_at(position)?;
        let required = Arc::new(self.required.reveal()?);
        let listening = Listening::start(self.address, (self.shared.clone(), required))?;
        let mut queue = self.shared.queue();
        (queue.next, queue.has_reader) = (read, true);
        drop(queue);
        Ok(Box::new(IngestReader {
            shared: self.shared.clone(),
            read,
            bytes: 0,
            latest: EventTime::MIN,
            clocked: i64::MIN,
            out_of_order_ms: self.out_of_order_ms,
            _listening: listening,
        }))
    }
}

struct IngestReader<T> {
    shared: Arc<Ingest<T>>,
    read: u64,
    bytes: u64,
    latest: EventTime,
    /// The latest time of the clock that the watermark has followed; the least number while records have times.
    clocked: i64,
    out_of_order_ms: i64,
    _listening: Listening,
}

impl<T: StreamData> SplitReader<(String, T)> for IngestReader<T> {
    fn next(&mut self) -> Result<NextRecord<(String, T)>> {
        let mut queue = self.shared.queue();
        let Some((ingested, bytes)) = queue.records.pop_front() else { return Ok(NextRecord::Pending) };
        queue.bytes -= bytes;
        drop(queue);
        self.read += 1;
        self.bytes += bytes as u64;
        let time = ingested.time.unwrap_or_else(|| {
            // The clock may be set back; the watermark is not.
            self.clocked = self.clocked.max(i64::try_from((self.shared.clock)()).unwrap_or(i64::MAX));
            EventTime(self.clocked)
        });
        self.latest = self.latest.max(time);
        Ok(NextRecord::Record((ingested.id, ingested.record), time))
    }

    fn position(&self) -> Vec<u8> {
        self.read.to_be_bytes().to_vec()
    }

    fn watermark(&self) -> EventTime {
        match self.latest {
            EventTime::MIN => EventTime::MIN,
            latest if self.clocked == i64::MIN => latest.plus_ms(-self.out_of_order_ms),
            latest => {
                let now = i64::try_from((self.shared.clock)()).unwrap_or(i64::MAX);
                // A record that is read next is given the time of the clock, or of the latest one.
                let reached = latest.0.max(now / CLOCK_STEP_MS * CLOCK_STEP_MS);
                EventTime(reached).plus_ms(-self.out_of_order_ms)
            }
        }
    }

    fn bytes_read(&self) -> u64 {
        self.bytes
    }

    fn committed(&mut self, position: &[u8]) -> Result<()> {
        let durable = number_at(Some(position))?;
        let mut queue = self.shared.queue();
        while queue.waiting.front().is_some_and(|(last, _)| *last <= durable) {
            let (_, answer) = queue.waiting.pop_front().expect("there is a first");
            // A client that has gone away sends the records again; they are copies then.
            let _gone = answer.send(());
        }
        Ok(())
    }
}

impl<T> Drop for IngestReader<T> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        // Their clients are told to send them again.
        queue.records.clear();
        queue.waiting.clear();
        (queue.bytes, queue.has_reader) = (0, false);
    }
}

/// A thread that accepts connections until this is dropped; then the port is free.
struct Listening {
    address: SocketAddr,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    fn start<T: StreamData>(address: SocketAddr, shared: (Arc<Ingest<T>>, Arc<KnownHeaders>)) -> Result<Self> {
        let named = |error| Error::other(format!("cannot listen at {address}: {error}"));
        let listener = TcpListener::bind(address).map_err(named)?;
        let (address, stops) = (listener.local_addr().map_err(named)?, Arc::new(AtomicBool::new(false)));
        tracing::info!(%address, "listening for records");
        let (runtime, asked) = (tokio::runtime::Handle::current(), stops.clone());
        let accept = move || {
            let open = Arc::new(AtomicUsize::new(0));
            for stream in listener.incoming() {
                if asked.load(Ordering::SeqCst) {
                    return;
                }
                let stream = match stream {
                    Ok(stream) if open.load(Ordering::SeqCst) < CONNECTIONS_MAX => stream,
                    Ok(_) => continue,
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept a connection of a client");
                        continue;
                    }
                };
                let (shared, slot) = (shared.clone(), ConnectionSlot::take(&open));
                runtime.spawn(async move {
                    let _slot = slot;
                    if let Err(error) = serve(stream, shared).await {
                        tracing::debug!(%error, "a connection of a client ended");
                    }
                });
            }
        };
        let thread = std::thread::Builder::new().name(String::from("onceflow ingest")).spawn(accept)?;
        Ok(Listening { address, stops, thread: Some(thread) })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::SeqCst);
        let mut here = self.address;
        if here.ip().is_unspecified() {
            here.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        // Wakes the thread, so that the port is free when this returns.
        let woken = TcpStream::connect_timeout(&here, Duration::from_secs(1));
        match (woken, self.thread.take()) {
            (Ok(_), Some(thread)) => drop(thread.join()),
            (Err(error), _) => tracing::warn!(%error, %here, "failed to stop listening for records"),
            (Ok(_), None) => {}
        }
    }
}

/// One of the connections that are open at a time.
struct ConnectionSlot(Arc<AtomicUsize>);

impl ConnectionSlot {
    fn take(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        ConnectionSlot(open.clone())
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve<T: StreamData>(
    stream: TcpStream,
    (shared, required): (Arc<Ingest<T>>, Arc<KnownHeaders>),
) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let io = TokioIo::new(tokio::net::TcpStream::from_std(stream)?);
    let service = service_fn(move |request| {
        let (shared, required) = (shared.clone(), required.clone());
        async move {
            Ok::<_, Infallible>(match required.admits(request.headers()) {
                true => answer(&shared, request).await,
                false => told(StatusCode::UNAUTHORIZED, "error", "a header that says who you are is missing, or wrong"),
            })
        }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(Duration::from_millis(REQUEST_MS_MAX));
    server.serve_connection(io, service).await?;
    Ok(())
}

type Answer = Response<Full<Bytes>>;

fn told(status: StatusCode, field: &str, value: impl Into<serde_json::Value>) -> Answer {
    let body = serde_json::json!({ field: value.into() }).to_string() + "\n";
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}

/// Tells a client to send the same request again.
fn come_again(why: &str) -> Answer {
    let mut answer = told(StatusCode::SERVICE_UNAVAILABLE, "error", why);
    let after = header::HeaderValue::from_static(RETRY_AFTER_S);
    answer.headers_mut().insert(header::RETRY_AFTER, after);
    answer
}

/// Takes the records of a request, and answers when they are durable.
async fn answer<T: StreamData>(shared: &Ingest<T>, request: Request<Incoming>) -> Answer {
    if request.method() != Method::POST {
        let mut answer = told(StatusCode::METHOD_NOT_ALLOWED, "error", "records are sent with POST");
        answer.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("POST"));
        return answer;
    }
    if request.uri().path() != "/" {
        return told(StatusCode::NOT_FOUND, "error", "records are sent to the path /");
    }
    let key = match request.headers().get("idempotency-key").map(header::HeaderValue::to_str) {
        None => None,
        Some(Ok(key)) if !key.is_empty() && key.len() <= KEY_CHARS_MAX => Some(key.to_owned()),
        Some(_) => {
            let why = format!("`Idempotency-Key` is text of 1 to {KEY_CHARS_MAX} characters");
            return told(StatusCode::BAD_REQUEST, "error", why);
        }
    };
    let collecting = pin!(Limited::new(request.into_body(), BODY_BYTES_MAX).collect());
    let body = match select(collecting, RealWorld::here().sleep(REQUEST_MS_MAX)).await {
        Either::Left((Ok(body), _)) => body.to_bytes(),
        Either::Left((Err(error), _)) if error.is::<LengthLimitError>() => {
            let why = format!("a request has {BODY_BYTES_MAX} bytes at most; send several");
            return told(StatusCode::PAYLOAD_TOO_LARGE, "error", why);
        }
        Either::Left((Err(error), _)) => {
            return told(StatusCode::BAD_REQUEST, "error", format!("the body cannot be read: {error}"));
        }
        Either::Right(_) => return told(StatusCode::REQUEST_TIMEOUT, "error", "the body did not come in time"),
    };
    let bytes = body.len();
    let records = match (shared.decode)(&IngestRequest { key, body }) {
        Ok(records) => records,
        Err(why) => return told(StatusCode::BAD_REQUEST, "error", why),
    };
    let count = records.len();
    if count == 0 {
        return told(StatusCode::OK, "records", 0);
    }
    let durable = match take(shared, records, bytes) {
        Ok(durable) => durable,
        Err(why) => return come_again(why),
    };
    shared.control.ring();
    match durable.await {
        Ok(()) => told(StatusCode::OK, "records", count),
        Err(_) => come_again("the stream stopped before the records were durable; send them again"),
    }
}

/// Puts the records of a request into the queue, all or none. The answer comes when the last of them is durable.
fn take<T>(
    shared: &Ingest<T>,
    records: Vec<IngestedRecord<T>>,
    bytes: usize,
) -> std::result::Result<oneshot::Receiver<()>, &'static str> {
    if shared.control.is_draining() {
        return Err("the stream is being stopped");
    }
    let mut queue = shared.queue();
    if !queue.has_reader {
        return Err("the stream is not reading now");
    }
    if queue.bytes > 0 && queue.bytes + bytes > WAITING_BYTES_MAX {
        return Err("too many records are waiting");
    }
    let count = records.len();
    queue.bytes += bytes;
    queue.next += count as u64;
    let with_bytes = |(at, record)| (record, if at + 1 == count { bytes } else { 0 });
    queue.records.extend(records.into_iter().enumerate().map(with_bytes));
    let (answer, durable) = oneshot::channel();
    let last = queue.next;
    queue.waiting.push_back((last, answer));
    Ok(durable)
}
