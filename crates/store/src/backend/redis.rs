//! Rows on a Redis server, shared by as many machines as reach it. One script executes a batch: one round trip,
//! atomic, and nothing is written before all of it is known to be right.
//!
//! A shard is six keys with one hash tag, all declared by every call, so it works on a cluster and while one is moved:
//!
//! | key | what it holds |
//! |---|---|
//! | `{prefix:shard}:rows` | every row, in one hash: kind, group and name are the field |
//! | `…:names` | the places of plain rows in order (a sorted set without scores), but those of [`UNORDERED_GROUPS`](crate::records::UNORDERED_GROUPS) |
//! | `…:free`, `…:held` | the places of queue rows that can be claimed; those that have a claim or a deadline |
//! | `…:turns` | which lane of a queue was served last, while workers wait |
//! | `…:clock` | the latest time the store's clock gave, and what tells the store from every other; expires when no client has asked for long |
//!
//! | a call when the connection is lost | |
//! |---|---|
//! | `get`, `scan`, `now` | [`Error::Unavailable`] |
//! | `commit` that was not sent, or that the server says it did not execute | [`Error::Unavailable`], [`Error::Full`] |
//! | `commit` sent and not answered | [`Error::Unknown`]; it is never sent again by itself |
//! | `wait` | ends when the connection is there again: something may have happened |
//!
//! A server that is silent, without breaking the connection, is given up after a while (`timeout` in the URL), with the same
//! outcomes.
//!
//! **Durable** means what the server's settings mean: with `appendonly yes` and `appendfsync always` a reply leaves the
//! server after its log is synced. A server whose settings can lose acknowledged commits is refused, unless that
//! [`Risk`] was accepted. With `replicas=N` a commit is durable when so many replicas have it, too.
//!
//! | module | what it owns |
//! |---|---|
//! | `address` | the URL: [`Address`] |
//! | `risks` | settings that lose commits: [`Risk`] |
//! | `link` | connections, and the nodes of a cluster |
//! | `scripts`, `*.lua` | what the server executes |
//! | `sums` | checksums, for scripts |
//! | `wire` | batches and answers as bytes |
//! | `wakes` | being woken |
//! | `replicas` | waiting for replicas |

mod address;
mod audit;
mod identity;
mod link;
mod replicas;
mod risks;
mod scripts;
mod sums;
mod wakes;
mod wire;

pub use address::{Address, BadAddress, BlobLocation, PASSWORD_VARIABLE, USERNAME_VARIABLE, redacted};
pub use risks::Risk;

use super::shared::{check_get, wait_for};
use crate::{
    records::{
        CommitResult, Error, Page, Position, Records, Scan, ServerRecords, SweepReport, SweepRequest, UnorderedPage,
    },
    world::{BoxFuture, World, service},
};
use link::{Link, Trouble};
use onceflow_core::{Batch, Group, Key, Name, Row, Shard, Timestamp, batch::BatchLimits};
use redis::{Cmd, Value};
use replicas::Replicas;

pub(crate) use scripts::Script as ObjectScript;
use std::sync::{Arc, OnceLock};
use tokio::sync::{oneshot, watch};
use wakes::Wakes;

/// Operations that take a server about a millisecond: it serves no other client meanwhile.
const BATCH_OPS_HINT: usize = 256;

/// Values that a sweeping script touches, and for how long it does; writing the result takes it half as long again.
const SWEEP_TOUCH_MAX: usize = 500;
const SWEEP_US_MAX: usize = 1400;

/// Such scripts under way at once. The server syncs its log once for all that it finds waiting, and syncing takes it as long as
/// one or two of them; more would keep others waiting for longer than that.
const CONCURRENT_SWEEPS: usize = 4;

/// A store on a Redis server. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    link: Arc<Link>,
    wakes: Arc<Wakes>,
    world: Arc<dyn World>,
    replicas: Arc<Replicas>,
    /// The shard whose node's clock is ours.
    shard: Shard,
    /// The world's clock is used instead of the server's: for tests that move time by hand.
    has_the_worlds_clock: bool,
    /// The identity of the store when we first wrote to it.
    id: Arc<OnceLock<String>>,
    _listening: Arc<oneshot::Sender<()>>,
}

/// Why a server cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL says nothing we understand.
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// The server does not answer, or not to us.
    #[error("{0}")]
    Unavailable(String),
    /// Its settings can lose acknowledged commits, and that was not accepted.
    #[error(
        "{address} can lose commits that were acknowledged: {}",
        risks.iter().map(|risk| format!("{risk}, `accept={}` accepts it", risk.word())).collect::<Vec<_>>().join("; ")
    )]
    Risky {
        /// The server.
        address: String,
        /// The risks of its settings.
        risks: Vec<Risk>,
    },
    /// The server lacks something we need.
    #[error("{address} cannot be used: {why}")]
    Unfit {
        /// The server.
        address: String,
        /// The missing ability.
        why: String,
    },
}

impl Redis {
    /// Connects to a server, and looks at its settings.
    ///
    /// # Errors
    /// If it does not answer, or its settings can lose acknowledged commits; see [`ConnectError`].
    pub async fn connect(address: Address, world: Arc<dyn World>) -> Result<Redis, ConnectError> {
        let world = service(&world);
        let link = Link::new(address, world.clone());
        let unavailable = |error: Error| ConnectError::Unavailable(error.to_string());
        let is_cluster = probe(&link).await?;
        let wakes = Arc::new(Wakes::default());
        let listening = wakes::listen(link.clone(), wakes.clone(), &world).await.map_err(unavailable)?;
        let replicas = Arc::new(Replicas::new(&link, is_cluster).await?);
        let shard = Shard::default();
        let listening = Arc::new(listening);
        Ok(Redis {
            link,
            wakes,
            world,
            replicas,
            shard,
            has_the_worlds_clock: false,
            id: Arc::default(),
            _listening: listening,
        })
    }

    /// The same store with the world's clock instead of the server's, for tests that move time by hand.
    #[cfg(feature = "testing")]
    pub fn with_the_worlds_clock(self) -> Redis {
        Redis { has_the_worlds_clock: true, ..self }
    }

    /// The command of a batch, for a caller that sends it by other means: a bare client to compare with.
    #[cfg(feature = "testing")]
    pub fn command(&self, batch: &Batch) -> Cmd {
        let keys = self.address().keys(batch.shard);
        let (packed, instead) = (wire::batch(batch), self.instead());
        scripts::by_hash(&scripts::BATCH, &keys.all, &[&packed[..], keys.channel.as_bytes(), instead.as_bytes()])
    }

    /// The time that scripts are given instead of the server's, if any.
    fn instead(&self) -> String {
        if self.has_the_worlds_clock { self.world.clock().as_ms().to_string() } else { String::new() }
    }

    /// The same store with the clock of the node that has this shard: for a caller that works on one shard of a
    /// cluster.
    pub fn at(&self, shard: Shard) -> Redis {
        Redis { shard, ..self.clone() }
    }

    /// Tells whether the server is lost, and every change of that. A silent server counts as lost when a call was not
    /// answered in time; a process that makes no calls does not notice.
    pub fn lost(&self) -> watch::Receiver<bool> {
        self.wakes.lost.subscribe()
    }

    /// The address of the server.
    pub fn address(&self) -> &Address {
        self.link.address()
    }

    /// The key of something that is no row.
    pub(crate) fn object_key(&self, shard: Shard, kind: &str) -> String {
        format!("{{{}:{}}}:{kind}", self.address().prefix, shard.0)
    }

    /// Sends a command for objects.
    pub(crate) async fn object_call(&self, shard: Shard, command: &Cmd) -> Result<Value, Error> {
        self.link.call(shard, command).await.map_err(Trouble::writing)
    }

    /// Runs a script for objects.
    pub(crate) async fn object_script(
        &self,
        shard: Shard,
        script: &ObjectScript,
        keys: &[String],
        arguments: &[&[u8]],
    ) -> Result<Value, Error> {
        scripts::run(&self.link, shard, script, keys, arguments).await.map_err(Trouble::writing)
    }

    /// 128 random bits.
    pub(crate) fn random(&self) -> u128 {
        self.world.random()
    }

    async fn try_batch(&self, batch: &Batch) -> Result<CommitResult, Error> {
        batch.check()?;
        let keys = self.address().keys(batch.shard);
        // Counted before it is sent: whatever becomes free after it was executed is heard of later.
        let position = self.wakes.next();
        let packed = wire::batch(batch);
        let instead = self.instead();
        let arguments = [&packed[..], keys.channel.as_bytes(), instead.as_bytes()];
        let answer = scripts::run(&self.link, batch.shard, &scripts::BATCH, &keys.all, &arguments).await;
        let (outcome, enabled) = wire::outcome(answer.map_err(Trouble::writing)?, batch.claim.as_ref(), position)?;
        if enabled {
            self.wakes.note(batch.shard);
        }
        Ok(outcome)
    }
}

/// Checks that the server has the features we need, and is safe; returns true if it is a cluster.
async fn probe(link: &Link) -> Result<bool, ConnectError> {
    let address = link.address();
    let unavailable = |trouble: Trouble| ConnectError::Unavailable(trouble.reading().to_string());
    let unfit = |why: String| ConnectError::Unfit { address: address.to_string(), why };
    let mut command = redis::cmd("INFO");
    let info = link.call_any(&command).await.map_err(unavailable)?;
    let info = redis::from_redis_value::<String>(info).map_err(|error| unfit(error.to_string()))?;
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    if field("role").is_some_and(|role| role != "master") {
        return Err(unfit("it is a replica: connect to its primary".into()));
    }
    let is_cluster = field("cluster_enabled") == Some("1");
    if is_cluster {
        learn(link).await;
    }
    command = redis::cmd("CONFIG");
    command.arg("GET");
    risks::SETTINGS.iter().for_each(|name| _ = command.arg(name));
    let settings = match link.call_any(&command).await {
        Ok(settings) => settings,
        Err(Trouble::Refused(_)) => Value::Nil,
        Err(other) => return Err(unavailable(other)),
    };
    let risks: Vec<_> = risks::of(settings).into_iter().filter(|risk| !address.accepted.contains(risk)).collect();
    if !risks.is_empty() {
        return Err(ConnectError::Risky { address: address.to_string(), risks });
    }
    // Servers of the same kind differ in what scripts may do, so ours is tried.
    let keys = address.keys(Shard::default());
    let empty = wire::batch(&Batch::new(Shard::default()));
    let tried = [&empty[..], keys.channel.as_bytes()];
    match scripts::run(link, Shard::default(), &scripts::BATCH, &keys.all, &tried).await {
        Ok(_) => Ok(is_cluster),
        // A server that has just been started loads its data first.
        Err(Trouble::Refused(error)) if link::passes(&error) => Err(unavailable(Trouble::Refused(error))),
        Err(Trouble::Refused(error)) => Err(unfit(format!("it does not run our script: {}", link::text(&error)))),
        Err(other) => Err(unavailable(other)),
    }
}

/// Asks for the other nodes of the cluster, to go on when the node of the URL is gone.
async fn learn(link: &Link) {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let Ok(Value::Array(ranges)) = link.call_any(&command).await else { return };
    let node = |part: &Value| match part {
        Value::Array(parts) => match &parts[..] {
            [Value::BulkString(host), Value::Int(port), ..] => {
                Some(format!("{}:{port}", String::from_utf8_lossy(host)))
            }
            _ => None,
        },
        _ => None,
    };
    let primaries = ranges.iter().filter_map(|range| match range {
        Value::Array(parts) => node(parts.get(2)?),
        _ => None,
    });
    link.learn(primaries);
}

impl Records for Redis {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        Box::pin(async move {
            check_get(keys)?;
            if keys.is_empty() {
                return Ok(vec![]);
            }
            let place = self.address().keys(shard);
            let mut command = redis::cmd("HMGET");
            command.arg(place.rows());
            keys.iter().for_each(|key| _ = command.arg(wire::field(key)));
            match self.link.call(shard, &command).await.map_err(Trouble::reading)? {
                Value::Array(rows) => rows.into_iter().map(wire::row).collect(),
                other => Err(wire::strange(&other)),
            }
        })
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(async move {
            if scan.limit == 0 {
                // Only whether there is any.
                let one = self.scan(shard, Scan { limit: 1, ..scan }).await?;
                return Ok(Page { more: !one.rows.is_empty(), rows: vec![] });
            }
            let place = self.address().keys(shard);
            let arguments = wire::scan(&scan);
            let arguments = arguments.each_ref().map(Vec::as_slice);
            let answer = scripts::run(&self.link, shard, &scripts::SCAN, &place.all[..4], &arguments).await;
            wire::page(answer.map_err(Trouble::reading)?)
        })
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        Box::pin(async move {
            let outcome = self.try_batch(&batch).await?;
            if outcome.is_applied() {
                self.remember_store().await;
            }
            Ok(outcome)
        })
    }

    fn durable(&self, _: Position) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.replicas.confirm(&self.link))
    }

    fn position(&self) -> Position {
        self.wakes.last()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        Box::pin(async move {
            let keys = self.address().keys(self.shard);
            let answer =
                scripts::run(&self.link, self.shard, &scripts::NOW, &[keys.clock()], &[self.instead().as_bytes()])
                    .await;
            match answer.map_err(Trouble::reading)? {
                Value::Int(ms) => Ok(Timestamp::from_ms(u64::try_from(ms).unwrap_or_default())),
                other => Err(wire::strange(&other)),
            }
        })
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let look = || (self.wakes.at(shard) > seen).then_some(());
            if look().is_some() {
                return Ok(());
            }
            let ms = match until {
                Timestamp::NEVER => u64::from(u32::MAX),
                until => until.ms_since(self.now().await?),
            };
            wait_for(&*self.world, &self.wakes.bell, look, ms).await;
            Ok(())
        })
    }

    fn batch_limits(&self) -> BatchLimits {
        BatchLimits { ops_hint: BATCH_OPS_HINT, ..BatchLimits::SERVER }
    }

    fn server(&self) -> Option<&dyn ServerRecords> {
        Some(self)
    }
}

impl ServerRecords for Redis {
    fn walk(
        &self,
        shard: Shard,
        group: Group,
        from: Option<Name>,
        limit: usize,
    ) -> BoxFuture<'_, Result<UnorderedPage, Error>> {
        Box::pin(async move {
            match wire::walk(self.address().keys(shard).rows(), &group, from.as_ref(), limit) {
                Some(command) => wire::walked(self.link.call(shard, &command).await.map_err(Trouble::reading)?, &group),
                None => Ok(self.scan(shard, Scan::of(group, limit).after(from)).await?.into()),
            }
        })
    }

    fn inconsistencies(&self, shard: Shard) -> BoxFuture<'_, Result<Vec<String>, Error>> {
        Box::pin(Redis::inconsistencies(self, shard))
    }

    fn concurrent_sweeps(&self) -> usize {
        CONCURRENT_SWEEPS
    }

    fn sweep(&self, shard: Shard, ask: SweepRequest) -> BoxFuture<'_, Result<Option<SweepReport>, Error>> {
        Box::pin(async move {
            let keys = self.address().keys(shard);
            let mut arguments = wire::sweep(&ask);
            arguments.extend([SWEEP_TOUCH_MAX, SWEEP_US_MAX].map(|most| most.to_string().into_bytes()));
            let arguments: Vec<_> = arguments.iter().map(Vec::as_slice).collect();
            let answer = scripts::run(&self.link, shard, &scripts::SWEEP, &keys.all[..2], &arguments).await;
            wire::swept(answer.map_err(Trouble::writing)?)
        })
    }

    fn check_store(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(Redis::check_store(self))
    }
}
