//! Waits until replicas have a commit, for callers that asked for it. One wait serves all callers that came before it.

use super::{
    ConnectError,
    link::{Link, Trouble, text},
};
use crate::records::Error;
use onceflow_core::Shard;
use redis::{Cmd, Value};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// How long replicas may take.
const WAIT_MS_MAX: u64 = 10_000;

/// How many replicas there must be, and how to ask for them.
pub(super) struct Replicas {
    count: u32,
    /// The server can confirm that its own log, and those of replicas, are synced.
    has_waitaof: bool,
    /// The number of callers that have asked.
    asked: AtomicU64,
    /// All callers up to this number were answered. Held while one asks the server.
    answered: tokio::sync::Mutex<u64>,
}

impl Replicas {
    pub(super) async fn new(link: &Link, is_cluster: bool) -> Result<Self, ConnectError> {
        let count = link.address().replicas;
        let unfit = |why: &str| ConnectError::Unfit { address: link.address().to_string(), why: why.into() };
        let mut has_waitaof = false;
        if count > 0 {
            if is_cluster {
                return Err(unfit("`replicas` is for one server, not for a cluster"));
            }
            let mut command = redis::cmd("COMMAND");
            command.arg("INFO").arg("WAITAOF");
            let known = link.call_any(&command).await;
            has_waitaof = matches!(&known, Ok(Value::Array(found)) if matches!(found.first(), Some(Value::Array(_))));
        }
        Ok(Replicas { count, has_waitaof, asked: AtomicU64::new(0), answered: tokio::sync::Mutex::new(0) })
    }

    /// Ends when everything that was answered before this call is where it should be.
    pub(super) async fn confirm(&self, link: &Link) -> Result<(), Error> {
        if self.count == 0 {
            // The server's reply came after its log was synced, or that risk was accepted.
            return Ok(());
        }
        let mine = self.asked.fetch_add(1, SeqCst) + 1;
        let mut answered = self.answered.lock().await;
        if *answered >= mine {
            return Ok(());
        }
        let all = self.asked.load(SeqCst);
        self.ask(link).await?;
        *answered = all;
        Ok(())
    }

    /// A server waits for the last write of the connection that asks, so there is one first: a mark that goes by itself.
    async fn ask(&self, link: &Link) -> Result<(), Error> {
        let mut client = link
            .address()
            .client(None)
            .map_err(|error| Error::Unavailable(text(&error).into()))?
            .get_multiplexed_async_connection()
            .await
            .map_err(|error| Error::Unavailable(text(&error).into()))?;
        let lost = |error: redis::RedisError| Trouble::Lost(text(&error)).writing();
        let mark = format!("{{{}:{}}}:mark", link.address().prefix, Shard::default().0);
        let mut mark_it = redis::cmd("SET");
        mark_it.arg(mark).arg("").arg("PX").arg(1000);
        client.set_response_timeout(std::time::Duration::from_millis(2 * WAIT_MS_MAX));
        mark_it.query_async::<Value>(&mut client).await.map_err(lost)?;
        let mut wait = Cmd::new();
        match self.has_waitaof {
            true => wait.arg("WAITAOF").arg(1).arg(self.count).arg(WAIT_MS_MAX),
            false => wait.arg("WAIT").arg(self.count).arg(WAIT_MS_MAX),
        };
        let have = match wait.query_async::<Value>(&mut client).await.map_err(lost)? {
            Value::Int(replicas) => replicas,
            Value::Array(parts) => match &parts[..] {
                [Value::Int(1..), Value::Int(replicas)] => *replicas,
                _ => 0,
            },
            _ => 0,
        };
        if have >= i64::from(self.count) {
            return Ok(());
        }
        Err(Error::Unavailable(format!("{have} of {} replicas have the last commits", self.count).into()))
    }
}
