//! Hosts of durable scopes, and their sessions from outside: opened by a key, awaited by any process, forgotten when their end
//! was taken.

use super::{
    builder::{DurableScope, StreamTag},
    medium::{Durable, Message},
};
use crate::{Engine, Error};
use onceflow_core::{
    Row,
    scope::{CancelCause, Cancellation, Mishap},
};
use onceflow_engine::scope::{ScopeHost, SessionId};
use std::{marker::PhantomData, sync::Arc};

impl Engine {
    /// Lets this process drive sessions of a durable scope, of any process that opened them on this store. All that host a name
    /// mean the same scope. The host works until it is [closed](Host::close) or dropped.
    ///
    /// ```
    /// use onceflow::{Engine, scope::{BufferKeep, DurableScope, Scope}};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// let release: DurableScope<(Vec<u32>,), ()> = Scope::durable(|s| {
    ///     s.start().map_async(|(rooms,)| async move { println!("gives back {rooms:?}") }).named("give back").terminate(s);
    /// })?;
    /// let deliver: DurableScope<u32, String> = Scope::durable(|s| {
    ///     let reserved = s.buffer_named::<u32>("reserved", BufferKeep::All);
    ///     let [reserve, drive] = s.start().fork_clone();
    ///     reserve.store(reserved);
    ///     drive.map_async(|room| async move { format!("at {room}") }).named("drive").terminate(s);
    ///     s.on_cleanup("release", (reserved,), &release).unlimited();
    /// })?;
    ///
    /// let engine = Engine::in_memory(); // or a directory: kill the process anywhere, and the next one goes on
    /// let deliveries = engine.host("deliveries", &deliver)?;
    /// let session = deliveries.open("order-17", 7).await?; // the same key is the same session
    /// assert_eq!(session.end().await?.result?, "at 7");
    /// session.forget().await?;
    /// deliveries.close().await;
    /// engine.close().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the engine is closed.
    pub fn host<I: Message<Durable>, O: Message<Durable>>(
        &self,
        name: &str,
        scope: &DurableScope<I, O>,
    ) -> Result<Host<I, O>, Error> {
        let scopes = [(name.to_owned(), scope.compiled.clone())];
        let host = self.untyped().host_scopes(scopes)?;
        let streams = scope.compiled.scope().streams().to_vec();
        let hosting = Arc::new(Hosting { host, name: name.to_owned(), streams, _engine: self.clone() });
        Ok(Host { hosting, types: PhantomData })
    }
}

impl<I, O> DurableScope<I, O> {
    /// The scope as hosts of the untyped engine take it.
    pub fn untyped(&self) -> &Arc<onceflow_engine::scope::DurableScope> {
        &self.compiled
    }
}

struct Hosting {
    host: Arc<ScopeHost>,
    name: String,
    streams: Vec<String>,
    /// It is closed when its last clone is gone.
    _engine: Engine,
}

impl Drop for Hosting {
    fn drop(&mut self) {
        self.host.stop();
    }
}

/// Drives sessions of a durable scope; see [`Engine::host`]. Clones are the same host. Dropped with the last of its
/// sessions, it leaves them to other hosts.
pub struct Host<I, O> {
    hosting: Arc<Hosting>,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Clone for Host<I, O> {
    fn clone(&self) -> Self {
        Host { hosting: self.hosting.clone(), types: PhantomData }
    }
}

impl<I: Message<Durable>, O: Message<Durable>> Host<I, O> {
    /// Opens a session, unless this key has opened it before: then this is that session, and the input is not looked at.
    /// It is durable when this returns, and goes on whether or not a caller waits for it.
    ///
    /// # Errors
    /// If the input cannot be written, the store does not answer, or the session was opened when the scope had other
    /// operations.
    pub async fn open(&self, key: &str, input: I) -> Result<DurableSession<O>, Error> {
        let first = input.pack().map_err(onceflow_engine::Error::Inputs)?;
        let id = self.hosting.host.open(&self.hosting.name, key, first).await?;
        Ok(DurableSession { hosting: self.hosting.clone(), id, types: PhantomData })
    }

    /// Stops activities that run here, which begin again elsewhere, and leaves the sessions to other hosts.
    pub async fn close(&self) {
        self.hosting.host.close().await;
    }
}

/// A session of a durable scope. Dropped, it goes on.
pub struct DurableSession<O> {
    hosting: Arc<Hosting>,
    id: SessionId,
    types: PhantomData<fn() -> O>,
}

impl<O: Message<Durable>> DurableSession<O> {
    /// Waits for the end of the session. The end stays in the store until it is [forgotten](DurableSession::forget).
    ///
    /// # Errors
    /// If the store does not answer, or the result is no `O`.
    pub async fn end(&self) -> Result<DurableOutcome<O>, Error> {
        let end = self.hosting.host.end(self.id).await?;
        let result = end.result.map(O::unpack);
        let result = match result {
            Ok(result) => Ok(result.map_err(onceflow_engine::Error::Inputs)?),
            Err(cancelled) => Err(cancelled),
        };
        let streams = self.hosting.streams.clone();
        Ok(DurableOutcome { result, mishaps: end.mishaps, streamed: end.streamed, streams })
    }

    /// Asks the session to end, and gives the reason. An uninterruptible one goes on to its own end; one that has ended is
    /// not concerned.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn cancel(&self, why: &str) -> Result<(), Error> {
        let cause = CancelCause::Requested(why.to_owned());
        Ok(self.hosting.host.cancel(&self.hosting.name, self.id, cause).await?)
    }

    /// Deletes the end of the session. Opened again, its key enters the scope anew.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn forget(self) -> Result<(), Error> {
        Ok(self.hosting.host.forget(self.id).await?)
    }
}

/// The end of a session of a durable scope.
#[derive(Debug)]
pub struct DurableOutcome<O> {
    /// The result, or why there is none. Cleanup has ended in either case.
    pub result: Result<O, Cancellation>,
    /// Problems that did not change the result.
    pub mishaps: Vec<Mishap>,
    streamed: Vec<(u32, Row)>,
    streams: Vec<String>,
}

impl<O> DurableOutcome<O> {
    /// The messages that the session has sent by a stream, in order. A scope without such a stream sends none.
    ///
    /// # Errors
    /// If one of them is no `S`.
    pub fn stream<S: Message<Durable>>(&self, tag: StreamTag<S>) -> Result<Vec<S>, Error> {
        let is_of = |stream: u32| self.streams.get(stream as usize).is_some_and(|name| name == tag.name);
        let sent = self.streamed.iter().filter(|(stream, _)| is_of(*stream));
        let read = sent.map(|(_, row)| S::unpack(row.clone()));
        Ok(read.collect::<Result<_, String>>().map_err(onceflow_engine::Error::Inputs)?)
    }
}
