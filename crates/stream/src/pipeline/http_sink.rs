//! Records sent to a server with `POST`. A server that does not answer, or asks to wait, is asked again, more and more
//! slowly, and until it takes the records nothing further is sent; each request has a key that stays the same, so a server
//! that knows keys takes each record once. A refusal ends the pipeline.

use super::{
    secret::SecretText,
    sink::{SinkChunk, SinkWriter, StreamSink, WriteProgress},
};
use onceflow_store::{World, world::RealWorld};
use reqwest::{
    Client, Response, StatusCode, Url,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING},
};
use std::{
    io::{Error, Result},
    sync::OnceLock,
    time::Duration,
};

/// The pause after the first request that failed; it doubles with each.
const PAUSE_MS_MIN: u64 = 500;

/// The longest pause, also if the server asks for a longer one.
const PAUSE_MS_MAX: u64 = 60_000;

/// The time a server has to answer.
const ANSWER_MS_MAX: u64 = 60_000;

/// Characters of an answer that a message shows.
const SHOWN_CHARS_MAX: usize = 300;

/// The header of a request's key.
const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// How records are divided among requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpPayload {
    /// A request for each record; records end with a line feed, which is not sent.
    #[default]
    Record,
    /// A request for some records together, as lines.
    Lines,
}

/// Sends records to a server.
#[derive(Clone, Debug)]
pub struct HttpSink {
    url: Url,
    /// The beginning of every key: the pipeline and the sink.
    name: String,
    payload: HttpPayload,
    content_type: &'static str,
    headers: Vec<(HeaderName, SecretText)>,
    client: OnceLock<Client>,
}

impl HttpSink {
    /// Returns the sink that sends to an address. `name` is the beginning of its keys, and should be that of the
    /// pipeline and the sink.
    ///
    /// # Errors
    /// If it is no address of a server.
    pub fn new(url: &str, name: impl Into<String>) -> std::result::Result<Self, String> {
        let parsed = Url::parse(url).map_err(|error| format!("`{url}` is no address: {error}"))?;
        if !matches!(parsed.scheme(), "http" | "https") || parsed.host().is_none() {
            return Err(format!("`{url}` is no address of a server: it begins with http:// or https://"));
        }
        let (payload, content_type) = (HttpPayload::Record, "application/json");
        let (name, headers) = (name.into(), Vec::new());
        Ok(HttpSink { url: parsed, name, payload, content_type, headers, client: OnceLock::new() })
    }

    /// Sets how records are divided among requests.
    #[must_use]
    pub fn payload(self, payload: HttpPayload) -> Self {
        HttpSink { payload, ..self }
    }

    /// Sets the type of a request's body.
    #[must_use]
    pub fn content_type(self, content_type: &'static str) -> Self {
        HttpSink { content_type, ..self }
    }

    /// Adds a header to every request. Its value is made when the sink is opened, and shown nowhere.
    ///
    /// # Errors
    /// If this cannot be the name of a header, or the sink sets it itself.
    pub fn header(mut self, name: &str, value: SecretText) -> std::result::Result<Self, String> {
        HttpSink::is_header(name)?;
        let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
        self.headers.push((name, value));
        Ok(self)
    }

    /// Checks the name of a header.
    ///
    /// # Errors
    /// If this cannot be the name of a header, or the sink sets it itself.
    pub fn is_header(name: &str) -> std::result::Result<(), String> {
        match HeaderName::try_from(name) {
            Err(_) => Err(format!("`{name}` cannot be the name of a header")),
            Ok(own) if [KEY_HEADER, CONTENT_LENGTH, HOST, TRANSFER_ENCODING].contains(&own) => {
                Err(format!("the header `{name}` is set by the sink itself"))
            }
            Ok(_) => Ok(()),
        }
    }

    /// Makes the headers, and the secrets that no message may show.
    fn make_headers(&self) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        for (name, value) in &self.headers {
            let mut value = HeaderValue::try_from(value.reveal()?).map_err(|_| {
                Error::other(format!("the header `{name}` would have characters that no header can have"))
            })?;
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
        Ok(headers)
    }

    fn client(&self) -> Result<Client> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        // Fails if the embedding program has already installed a provider, which works as well.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .user_agent(concat!("onceflow/", env!("CARGO_PKG_VERSION")))
            .timeout(Duration::from_millis(ANSWER_MS_MAX))
            .redirect(reqwest::redirect::Policy::none())
            .build();
        let client = client.map_err(Error::other)?;
        Ok(self.client.get_or_init(|| client).clone())
    }
}

impl StreamSink for HttpSink {
    fn open(&self, partition: u16, _: u16) -> Result<Box<dyn SinkWriter>> {
        let headers = self.make_headers()?;
        Ok(Box::new(HttpWriter { sink: self.clone(), client: self.client()?, headers, partition }))
    }
}

#[derive(Clone)]
struct HttpWriter {
    sink: HttpSink,
    client: Client,
    headers: HeaderMap,
    partition: u16,
}

impl SinkWriter for HttpWriter {
    fn write(&mut self, _: &SinkChunk) -> Result<()> {
        Err(Error::other("a chunk is sent without waiting"))
    }

    fn begin_write(&mut self, chunk: &SinkChunk) -> Result<WriteProgress> {
        let (writer, chunk) = (self.clone(), chunk.clone());
        Ok(WriteProgress::Going(Box::pin(async move { writer.send(&chunk).await })))
    }
}

impl HttpWriter {
    async fn send(&self, chunk: &SinkChunk) -> Result<()> {
        // The chunk's own checksum tells it from that of another pipeline of the same name.
        let key = format!(
            "{}/{}/{}-{:08x}",
            self.sink.name,
            self.partition,
            chunk.number,
            crc32fast::hash(&chunk.bytes) ^ chunk.crc_before
        );
        match self.sink.payload {
            HttpPayload::Lines => self.post(&key, chunk.bytes.to_vec()).await,
            HttpPayload::Record => {
                let lines = chunk.bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                for (at, line) in lines.enumerate() {
                    self.post(&format!("{key}.{at}"), line.to_vec()).await?;
                }
                Ok(())
            }
        }
    }

    /// The address without a password, which no message may show.
    fn shown_url(&self) -> Url {
        let mut url = self.sink.url.clone();
        // Both can only fail for an address without a host, which was refused.
        let (_, _) = (url.set_password(None), url.set_username(""));
        url
    }

    /// Replaces the values of headers in the words of a server, which may repeat what it was sent.
    fn masked(&self, said: String) -> String {
        let values = self.headers.values().filter(|value| value.is_sensitive());
        values.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok()).fold(said, |said, value| {
            // A scheme such as `Bearer` is no secret, the word behind it is.
            let secret = value.rsplit(' ').next().unwrap_or(value);
            [value, secret]
                .into_iter()
                .filter(|secret| !secret.is_empty())
                .fold(said, |said, it| said.replace(it, "***"))
        })
    }

    /// Sends a body until the server has taken or refused it.
    async fn post(&self, key: &str, body: Vec<u8>) -> Result<()> {
        let (url, mut pause_ms) = (self.shown_url(), PAUSE_MS_MIN);
        loop {
            let request = self.client.post(self.sink.url.clone()).headers(self.headers.clone()).header(KEY_HEADER, key);
            let sent = request.body(body.clone()).send().await;
            let wait_ms = match sent {
                Ok(answer) if answer.status().is_success() => return Ok(()),
                Ok(answer) if may_pass(&answer) => {
                    let asked_ms = retry_after_ms(answer.headers());
                    tracing::warn!(%url, status = %answer.status(), "the server did not take a record; sending it again");
                    asked_ms.unwrap_or(pause_ms).max(pause_ms)
                }
                Ok(answer) => {
                    let status = answer.status();
                    // Masked as a whole: a secret that is cut off would not be known any more.
                    let text = self.masked(answer.text().await.unwrap_or_default());
                    let begins: String = text.trim().chars().take(SHOWN_CHARS_MAX).collect();
                    let sent: String = String::from_utf8_lossy(&body).chars().take(SHOWN_CHARS_MAX).collect();
                    let said = if begins.is_empty() { String::new() } else { format!(", {begins:?}") };
                    return Err(Error::other(format!("POST {url} was refused with {status}{said}; sent was {sent}")));
                }
                Err(error) => {
                    tracing::warn!(%error, %url, "the server did not answer; sending the record again in {pause_ms} ms");
                    pause_ms
                }
            };
            RealWorld::here().sleep(wait_ms.min(PAUSE_MS_MAX)).await;
            pause_ms = (pause_ms * 2).min(PAUSE_MS_MAX);
        }
    }
}

/// The server may accept the same request later, so it is repeated.
fn may_pass(answer: &Response) -> bool {
    let status = answer.status();
    match status.as_u16() {
        408 | 425 | 429 => true,
        // A request with this key is being worked on.
        409 => answer.headers().contains_key(RETRY_AFTER),
        _ => status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED,
    }
}

fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    seconds.checked_mul(1000)
}
