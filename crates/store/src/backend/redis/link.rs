//! Connections to a server, or to the nodes of a cluster. A call is sent once: if its reply is lost it may have been
//! executed, and it is never sent again automatically. A node that says "not here" has not executed the call, so the
//! call is sent to the node it named.
//!
//! Every call has an end: a server that does not answer in time is given up, as if the connection had broken, and the
//! listener for wake-ups is told ([`Link::silent`]). Calls that are meant to wait have connections of their own, and
//! longer (`replicas`).

use super::address::Address;
use crate::{
    records::Error,
    sync::{Mutex, lock},
    world::{World, in_service},
};
use onceflow_core::Shard;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, RedisError, ServerErrorKind, Value, aio::MultiplexedConnection};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// How long a server may take to let us in.
const CONNECT_MS_MAX: u64 = 5_000;

/// How often a call follows a cluster that says it is elsewhere.
const MOVES_MAX: usize = 8;

/// The fate of a call that has no reply.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// The call was not sent.
    NotSent(String),
    /// The call may have been executed.
    Lost(String),
    /// The server says that it was not executed, or why it failed.
    Refused(RedisError),
}

impl Trouble {
    /// The error for a call that only reads.
    pub(super) fn reading(self) -> Error {
        match self {
            Trouble::NotSent(why) | Trouble::Lost(why) => Error::Unavailable(why.into()),
            Trouble::Refused(error) => refusal(&error),
        }
    }

    /// The error for a call that changes something.
    pub(super) fn writing(self) -> Error {
        match self {
            Trouble::Lost(why) => Error::Unknown(why.into()),
            other => other.reading(),
        }
    }
}

/// The error for a call that the server refused. Scripts check everything before they write, so nothing changed.
fn refusal(error: &RedisError) -> Error {
    let said = text(error);
    match error.code().unwrap_or_default() {
        "OOM" => Error::Full(said.into()),
        "WRONGTYPE" => {
            Error::Damaged(format!("a key of the store holds something else; is its prefix taken? {said}").into())
        }
        "ERR" => Error::Damaged(format!("the server could not execute a script: {said}").into()),
        _ => Error::Unavailable(said.into()),
    }
}

/// The server executes nothing now, but will soon: it starts, is busy, or a cluster is not ready.
pub(super) fn passes(error: &RedisError) -> bool {
    matches!(error.code(), Some("LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN"))
}

/// The text of an error, on one line.
pub(super) fn text(error: &RedisError) -> String {
    error.to_string().replace('\n', " ")
}

/// Connections, and which node has which shard.
pub(super) struct Link {
    address: Address,
    /// Connections are made, and served, on its service thread: user code that blocks its own thread keeps no call of others
    /// waiting, heartbeats above all.
    world: Arc<dyn World>,
    /// Itself, for the task that connects.
    me: Weak<Link>,
    nodes: Mutex<Nodes>,
    /// Held while connecting, so that a thousand callers that wait for a connection do not open one each, one after the
    /// other.
    connecting: tokio::sync::Mutex<BTreeMap<Option<String>, Failed>>,
    /// Numbers the tries to connect, and the connections.
    tries: AtomicU64,
    /// Raised when a server did not answer in time.
    silent: Notify,
}

/// The last try to connect that failed: its number, and its error.
type Failed = (u64, String);

/// A connection and its number.
type Open = (u64, MultiplexedConnection);

#[derive(Default)]
struct Nodes {
    /// By address; the one that the URL names is `None`.
    open: BTreeMap<Option<String>, Open>,
    /// The node that last had a shard.
    routes: BTreeMap<Shard, String>,
    /// Known nodes, to be asked when the one of the URL is gone.
    known: BTreeSet<String>,
}

impl Link {
    pub(super) fn new(address: Address, world: Arc<dyn World>) -> Arc<Self> {
        Arc::new_cyclic(|me| Link {
            address,
            world,
            me: me.clone(),
            nodes: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            tries: AtomicU64::new(0),
            silent: Notify::new(),
        })
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Ends when a server did not answer in time since this last ended.
    pub(super) async fn silent(&self) {
        self.silent.notified().await;
    }

    /// Nodes of the cluster, if it is one, other than that of the URL.
    pub(super) fn learn(&self, nodes: impl IntoIterator<Item = String>) {
        lock(&self.nodes).known.extend(nodes);
    }

    /// Nodes to ask, in this order, when any will do.
    pub(super) fn any(&self) -> Vec<Option<String>> {
        let known = lock(&self.nodes).known.clone();
        [None].into_iter().chain(known.into_iter().map(Some)).collect()
    }

    /// Sends a command to the node that has a shard.
    pub(super) async fn call(&self, shard: Shard, command: &Cmd) -> Result<Value, Trouble> {
        let (mut node, mut asking) = (lock(&self.nodes).routes.get(&shard).cloned(), false);
        for _ in 0..MOVES_MAX {
            let answer = match self.open(node.as_ref()).await {
                Ok(connection) => self.send(connection, node.as_ref(), command, asking).await,
                Err(trouble) => {
                    let next = self.another(shard, node.as_ref());
                    let Some(next) = next else { return Err(trouble) };
                    node = next;
                    continue;
                }
            };
            let Err(Trouble::Refused(error)) = &answer else { return answer };
            let Some((elsewhere, _)) = error.redirect_node() else { return answer };
            asking = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
            node = Some(elsewhere.to_owned());
            let mut nodes = lock(&self.nodes);
            nodes.known.insert(elsewhere.to_owned());
            if !asking {
                nodes.routes.insert(shard, elsewhere.to_owned());
            }
        }
        Err(Trouble::NotSent(format!("the cluster sent us from node to node {MOVES_MAX} times")))
    }

    /// Sends a command on a connection of its own choice: the first that works.
    pub(super) async fn call_any(&self, command: &Cmd) -> Result<Value, Trouble> {
        let mut last = None;
        for node in self.any() {
            match self.open(node.as_ref()).await {
                Ok(connection) => return self.send(connection, node.as_ref(), command, false).await,
                Err(trouble) => last = Some(trouble),
            }
        }
        Err(last.expect("the URL names one"))
    }

    /// Whom to ask after a node could not be reached.
    fn another(&self, shard: Shard, failed: Option<&String>) -> Option<Option<String>> {
        let mut nodes = lock(&self.nodes);
        if nodes.routes.get(&shard) == failed && failed.is_some() {
            nodes.routes.remove(&shard);
            return Some(None);
        }
        let after = nodes.known.iter().find(|one| failed.is_none_or(|failed| *one > failed));
        after.cloned().map(Some)
    }

    async fn send(
        &self,
        (number, mut connection): Open,
        node: Option<&String>,
        command: &Cmd,
        asking: bool,
    ) -> Result<Value, Trouble> {
        let answer = if asking {
            let mut both = redis::pipe();
            both.cmd("ASKING").ignore().add_command(command.clone());
            both.query_async::<Value>(&mut connection).await.map(|value| match value {
                Value::Array(mut one) if one.len() == 1 => one.remove(0),
                other => other,
            })
        } else {
            connection.send_packed_command(command).await.and_then(Value::extract_error)
        };
        answer.map_err(|error| {
            if error.code().is_some() {
                if matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly)) {
                    // The node was the primary once.
                    let _was_open = self.close(node, number);
                }
                return Trouble::Refused(error);
            }
            // One that went out before the connection was given up says nothing new.
            if self.close(node, number) {
                self.note(&error);
            }
            Trouble::Lost(format!("{}: {}", self.name(node), text(&error)))
        })
    }

    fn name(&self, node: Option<&String>) -> String {
        node.cloned().unwrap_or_else(|| self.address.to_string())
    }

    /// Notes that a server may be silent; the listener decides whether it is.
    fn note(&self, error: &RedisError) {
        if error.is_timeout() {
            self.silent.notify_one();
        }
    }

    /// Gives a connection up, unless there is another one since. Whether it was open.
    fn close(&self, node: Option<&String>, number: u64) -> bool {
        let mut nodes = lock(&self.nodes);
        let is_open = nodes.open.get(&node.cloned()).is_some_and(|(open, _)| *open == number);
        if is_open {
            nodes.open.remove(&node.cloned());
            nodes.routes.retain(|_, at| Some(&*at) != node);
        }
        is_open
    }

    async fn open(&self, node: Option<&String>) -> Result<Open, Trouble> {
        let find = || lock(&self.nodes).open.get(&node.cloned()).cloned();
        if let Some(open) = find() {
            return Ok(open);
        }
        let (me, node, came) = (self.me.upgrade(), node.cloned(), self.tries.load(SeqCst));
        let me = me.expect("a link that is used is there");
        let connecting = async move { me.open_anew(node.as_ref(), came).await };
        in_service(&*self.world, "onceflow redis connect", connecting).await
    }

    /// Connects, unless another caller did, or tried in vain, since try number `came`.
    async fn open_anew(&self, node: Option<&String>, came: u64) -> Result<Open, Trouble> {
        let find = || lock(&self.nodes).open.get(&node.cloned()).cloned();
        let mut failed = self.connecting.lock().await;
        if let Some(open) = find() {
            return Ok(open);
        }
        // A caller that waited while another one tried in vain need not try too: a thousand would have to wait for each
        // other.
        if let Some((_, why)) = failed.get(&node.cloned()).filter(|(number, _)| *number > came) {
            return Err(Trouble::NotSent(why.clone()));
        }
        let number = self.tries.fetch_add(1, SeqCst) + 1;
        match self.connect(node).await {
            Ok(connection) => {
                failed.remove(&node.cloned());
                lock(&self.nodes).open.insert(node.cloned(), (number, connection.clone()));
                Ok((number, connection))
            }
            Err(error) => {
                self.note(&error);
                let why = format!("{}: {}", self.name(node), text(&error));
                failed.insert(node.cloned(), (number, why.clone()));
                Err(Trouble::NotSent(why))
            }
        }
    }

    async fn connect(&self, node: Option<&String>) -> Result<MultiplexedConnection, RedisError> {
        let reply_ms = self.address.reply_ms_max;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_millis(CONNECT_MS_MAX.min(reply_ms))))
            .set_response_timeout(Some(Duration::from_millis(reply_ms)));
        self.address.client(node.map(String::as_str))?.get_multiplexed_async_connection_with_config(&config).await
    }
}
