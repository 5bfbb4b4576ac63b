//! Serves any [`Records`] on a listener: accepts, bounds the number of guests, and stops in order.

use super::{
    connection,
    guests::{AllGuests, Guests},
    limits::{ACCEPT_RETRY_MS, CONNECTIONS_MAX, STOP_MS_MAX},
    protocol::Welcome,
};
use crate::{records::Records, world::World};
use futures_util::future::{Either, select};
use std::{pin::pin, sync::Arc};
use tokio::{
    net::UnixListener,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
};

/// How far a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Takes connections and requests.
    Serving,
    /// Takes neither; executed requests are still answered.
    Stopping,
    /// Sends nothing more.
    Gone,
}

/// The state that all connections of a server share.
pub(super) struct Shared {
    pub(super) records: Arc<dyn Records>,
    pub(super) guests: Arc<dyn Guests>,
    pub(super) world: Arc<dyn World>,
    pub(super) welcome: Welcome,
    phase: watch::Sender<Phase>,
    places: Arc<Semaphore>,
}

impl Shared {
    /// Ends when the server is that far.
    pub(super) async fn until(&self, phase: Phase) {
        let mut seen = self.phase.subscribe();
        let reached = seen.wait_for(|now| *now >= phase).await.map(drop);
        reached.expect("the sender is in self");
    }
}

/// A server at work. Dropping it cuts all connections; [`stop`](ServerHandle::stop) ends them in order.
///
/// The listener lives until the handle is dropped: a guest that connects to a stopped server waits, and is turned away
/// when the handle is dropped. An owner that hands over drops it after it has released its lock, so that guests try for
/// the lock at once, without polling.
pub struct ServerHandle {
    shared: Arc<Shared>,
    _listener: Arc<UnixListener>,
}

/// Serves `records` to processes of the same user until the handle is stopped or dropped. `welcome` is the first
/// message to guests. The socket's file should have mode 0600; the peer is checked in any case.
pub fn serve(
    listener: UnixListener,
    records: Arc<dyn Records>,
    welcome: Welcome,
    world: Arc<dyn World>,
) -> ServerHandle {
    serve_guests(listener, records, Arc::new(AllGuests), welcome, world)
}

/// The same, with an account of the guests.
pub fn serve_guests(
    listener: UnixListener,
    records: Arc<dyn Records>,
    guests: Arc<dyn Guests>,
    welcome: Welcome,
    world: Arc<dyn World>,
) -> ServerHandle {
    let listener = Arc::new(listener);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let shared =
        Arc::new(Shared { records, guests, world, welcome, phase: watch::Sender::new(Phase::Serving), places });
    shared.world.spawn("socket accept", Box::pin(accept(shared.clone(), listener.clone())));
    ServerHandle { shared, _listener: listener }
}

impl ServerHandle {
    /// Takes no more connections and requests, answers executed requests, and ends all connections; within
    /// [`STOP_MS_MAX`], whatever the guests do. After this nothing uses the records any more.
    pub async fn stop(&self) {
        self.shared.phase.send_replace(Phase::Stopping);
        let all_gone = pin!(self.shared.places.acquire_many(CONNECTIONS_MAX as u32));
        let in_time = select(all_gone, self.shared.world.sleep(STOP_MS_MAX)).await;
        self.shared.phase.send_replace(Phase::Gone);
        if let Either::Right((_, all_gone)) = in_time {
            drop(all_gone.await);
        }
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.shared.phase.send_replace(Phase::Gone);
    }
}

async fn accept(shared: Arc<Shared>, listener: Arc<UnixListener>) {
    loop {
        let stopping = pin!(shared.until(Phase::Stopping));
        match select(stopping, pin!(next(&shared, &listener))).await {
            Either::Left(_) => return,
            Either::Right((Ok((stream, place)), _)) => {
                let guest = connection::run(shared.clone(), stream, place);
                shared.world.spawn("socket connection", Box::pin(guest));
            }
            Either::Right((Err(error), _)) => {
                tracing::warn!(%error, "failed to accept a connection of another process; retrying in {ACCEPT_RETRY_MS} ms");
                shared.world.sleep(ACCEPT_RETRY_MS).await;
            }
        }
    }
}

async fn next(
    shared: &Shared,
    listener: &UnixListener,
) -> std::io::Result<(tokio::net::UnixStream, OwnedSemaphorePermit)> {
    let place = shared.places.clone().acquire_owned().await.expect("the places are never closed");
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}
