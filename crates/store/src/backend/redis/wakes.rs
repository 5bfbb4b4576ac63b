//! A caller that waits for work is woken by a message that the script publishes when a row becomes free. Positions are
//! this process's own count of calls and messages: a call is counted when it is sent, a message when it arrives, so a
//! row that became free after a call was executed has a higher number than the call.
//!
//! The listener also reports whether the server is lost: when the connection breaks, and when a call was not answered
//! in time, for a server that is silent breaks nothing. The server is back when it accepts a new subscription.

use super::link::{Link, text};
use crate::{
    records::{Error, Position},
    sync::{Mutex, lock},
    wake::Signal,
    world::{World, in_service},
};
use futures_util::{
    FutureExt, StreamExt,
    future::{Either, select},
};
use onceflow_core::Shard;
use redis::aio::{PubSub, PubSubStream};
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};
use tokio::sync::{oneshot, watch};

/// How long to wait before trying a lost server again.
const RETRY_MS: u64 = 100;

/// The rows that became ready, as far as this process has heard.
#[derive(Default)]
pub(super) struct Wakes {
    count: AtomicU64,
    heard: Mutex<Heard>,
    pub(super) bell: Signal,
    /// The server is lost.
    pub(super) lost: watch::Sender<bool>,
}

#[derive(Default)]
struct Heard {
    shards: BTreeMap<Shard, Position>,
    /// When messages may last have been missed.
    all: Position,
}

impl Wakes {
    /// A number above all before it.
    pub(super) fn next(&self) -> Position {
        Position(self.count.fetch_add(1, SeqCst) + 1)
    }

    /// The last number.
    pub(super) fn last(&self) -> Position {
        Position(self.count.load(SeqCst))
    }

    /// When a row of the shard last became free.
    pub(super) fn at(&self, shard: Shard) -> Position {
        let heard = lock(&self.heard);
        heard.shards.get(&shard).copied().unwrap_or_default().max(heard.all)
    }

    /// A row of the shard became free just now.
    pub(super) fn note(&self, shard: Shard) {
        let now = self.next();
        lock(&self.heard).shards.insert(shard, now);
        self.bell.notify();
    }

    /// Messages may have been missed.
    fn note_all(&self) {
        let now = self.next();
        lock(&self.heard).all = now;
        self.bell.notify();
    }
}

/// Listens for messages until `closed` is dropped; first of all, makes sure that it can.
pub(super) async fn listen(
    link: Arc<Link>,
    wakes: Arc<Wakes>,
    world: &Arc<dyn World>,
) -> Result<oneshot::Sender<()>, Error> {
    let (asking, here) = (link.clone(), world.clone());
    let first = async move { subscribe(&asking, &*here).await };
    let first = in_service(&**world, "onceflow redis subscribe", first).await?;
    let (closed, until_closed) = oneshot::channel();
    let task = keep_listening(link, wakes, world.clone(), first, until_closed);
    world.spawn("onceflow redis wake-ups", Box::pin(task));
    Ok(closed)
}

async fn keep_listening(
    link: Arc<Link>,
    wakes: Arc<Wakes>,
    world: Arc<dyn World>,
    mut messages: PubSubStream,
    mut closed: oneshot::Receiver<()>,
) {
    loop {
        let heard = match select(select(pin!(messages.next()), pin!(link.silent())), &mut closed).await {
            Either::Left((Either::Left((heard, _)), _)) => heard,
            Either::Left((Either::Right(((), _)), _)) => None,
            Either::Right(_) => return,
        };
        match heard.map(|message| link.address().shard_of(message.get_channel_name())) {
            Some(Some(shard)) => wakes.note(shard),
            Some(None) => wakes.note_all(),
            None => {
                wakes.note_all();
                wakes.lost.send_replace(true);
                match again(&link, &*world, &mut closed).await {
                    Some(stream) => messages = stream,
                    None => return,
                }
                // Calls that were not answered before are no reason to doubt it again.
                let _known = link.silent().now_or_never();
                wakes.lost.send_replace(false);
                wakes.note_all();
            }
        }
    }
}

/// Subscribes again, however long it takes; `None` when the store was dropped meanwhile.
async fn again(link: &Link, world: &dyn World, closed: &mut oneshot::Receiver<()>) -> Option<PubSubStream> {
    loop {
        match select(world.sleep(RETRY_MS), &mut *closed).await {
            Either::Left(_) => {}
            Either::Right(_) => return None,
        }
        match subscribe(link, world).await {
            Ok(messages) => return Some(messages),
            Err(error) => tracing::debug!(%error, "no wake-ups arrive; trying again"),
        }
    }
}

async fn subscribe(link: &Link, world: &dyn World) -> Result<PubSubStream, Error> {
    let mut last = String::new();
    for node in link.any() {
        let connect = async {
            let client = link.address().client(node.as_deref())?;
            let mut messages: PubSub = client.get_async_pubsub().await?;
            messages.psubscribe(link.address().channels()).await?;
            Ok::<_, redis::RedisError>(messages.into_on_message())
        };
        match select(pin!(connect), world.sleep(link.address().reply_ms_max)).await {
            Either::Left((Ok(messages), _)) => return Ok(messages),
            Either::Left((Err(error), _)) => last = text(&error),
            Either::Right(_) => last = String::from("it does not answer"),
        }
    }
    Err(Error::Unavailable(format!("{}: {last}", link.address()).into()))
}
