//! The port every backend implements: small rows, changed by atomic batches.
//!
//! The contract, which `testing::contract` holds every backend to:
//!
//! | question | answer |
//! |---|---|
//! | atomic? | a batch happens as a whole or not at all; a `get` sees all its rows at one moment between batches |
//! | ordered? | the batches of one shard happen one after the other; nothing is promised between shards |
//! | visible when? | to every later call, by anyone, once `commit` has returned; not before the batch is decided |
//! | durable when? | once [`Records::durable`] has returned for the [`Position`] it was decided at; after a crash a shard holds what some prefix of its batches left, never less than what was durable |
//! | idempotent? | reads are; a batch is if [`Batch::is_repeatable`] says so, and others are refused in debug builds |
//! | when a reply is lost? | [`Error::Unknown`]: the caller reads again and decides; it never guesses |
//!
//! **Inside the process a caller may act on applied batches; nothing leaves the process before it is durable.** A
//! caller that tells anyone else (prints, replies, starts work that touches the world, unlinks a blob) awaits
//! [`Records::durable`] first; also for refusals and for rows it has read, see [`Records::position`].

mod in_process;
mod server;

pub use in_process::{InProcessRecords, commit_kept, get_one, is_durable};
pub use server::{ServerRecords, SweepReport, SweepRequest, UNORDERED_GROUPS, UnorderedPage, walk};

use crate::world::BoxFuture;
use onceflow_core::{
    Batch, Claimed, Group, Key, Name, Row, Shard, Timestamp,
    batch::{self, BatchLimits},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How many batches a store had applied when something was decided. Comparable within one opening of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position(pub u64);

/// The store's answer to a batch. A third answer, that the reply was lost, is [`Error::Unknown`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "a refused batch changed nothing"]
pub enum CommitResult {
    /// The batch was applied.
    Applied(Committed),
    /// A require did not hold; nothing changed.
    Refused(Refused),
}

impl CommitResult {
    /// The position the result was decided at: await its durability before telling anyone.
    pub fn position(&self) -> Position {
        match self {
            CommitResult::Applied(committed) => committed.position,
            CommitResult::Refused(refused) => refused.position,
        }
    }

    /// The batch was applied.
    pub fn is_applied(&self) -> bool {
        matches!(self, CommitResult::Applied(_))
    }

    /// The applied batch; `None` if it was refused.
    pub fn applied(self) -> Option<Committed> {
        match self {
            CommitResult::Applied(committed) => Some(committed),
            CommitResult::Refused(_) => None,
        }
    }
}

/// A batch that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// Where it stands among the batches of the store.
    pub position: Position,
    /// The rows whose triggers fired, in the order they did.
    pub fired: Vec<Key>,
    /// The row that its claim took.
    pub claimed: Option<Claimed>,
}

/// A batch that was not applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The state it was refused on.
    pub position: Position,
    /// The first require that did not hold, counted from 0.
    pub which: usize,
    /// The content of that require's row.
    pub found: Option<Row>,
}

/// Some rows of a group, in order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The rows.
    pub rows: Vec<(Name, Row)>,
    /// There are more after the last one.
    pub more: bool,
}

/// Which rows a scan wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// Of this group,
    pub group: Group,
    /// whose names begin with this,
    pub prefix: Name,
    /// and come after this one,
    pub after: Option<Name>,
    /// at most so many (and at most [`SCAN_ROWS_MAX`](onceflow_core::limits::SCAN_ROWS_MAX)).
    pub limit: usize,
}

impl Scan {
    /// The first rows of a group.
    pub fn of(group: Group, limit: usize) -> Self {
        Scan { group, prefix: Name::default(), after: None, limit }
    }

    /// Only names that begin with this.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.prefix = Name::new(prefix);
        self
    }

    /// Only names after this one.
    pub fn after(mut self, name: Option<Name>) -> Self {
        self.after = name;
        self
    }
}

/// Why a store did not answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The request itself is wrong, whatever the store holds. Nothing changed.
    #[error("the batch is wrong: {0}")]
    Invalid(#[from] batch::Invalid),
    /// There is no room. Nothing changed, and what was there still is; make room and try again.
    #[error("the store has no room for this: {0}")]
    Full(Arc<str>),
    /// The store cannot be asked now. Nothing changed.
    #[error("the store is unavailable: {0}")]
    Unavailable(Arc<str>),
    /// The batch may have happened or not; read again, then decide.
    #[error("the answer was lost, so whether it happened is not known: {0}")]
    Unknown(Arc<str>),
    /// The stored bytes are not those that were written.
    #[error("the store is damaged: {0}")]
    Damaged(Arc<str>),
    /// All stored data is gone: the server was emptied, or is another one.
    #[error("the store has lost its data: {0}")]
    Lost(Arc<str>),
}

/// A store of rows. Object-safe; share it as `Arc<dyn Records>`. A backend implements the first seven methods; the
/// others have an answer that suits a small store on this machine.
pub trait Records: Send + Sync + 'static {
    /// The content of some rows, all at one moment. At most [`GET_KEYS_MAX`](onceflow_core::limits::GET_KEYS_MAX).
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>>;

    /// Rows of one group in order of their names, all at one moment. The next page, asked for with the last
    /// name of this one, sees what has changed since.
    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>>;

    /// Tries a batch. Dropping the future before it ends leaves open whether the batch happened.
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>>;

    /// Waits until everything up to `position` will outlive a crash. An error means that it may not; the store takes
    /// nothing more then, and is to be opened again.
    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), Error>>;

    /// The last position applied. Rows read before this call are durable once this position is.
    fn position(&self) -> Position;

    /// The store's clock: one for all processes that share it, and it never goes back. Opened again, a store gives no
    /// time before that of any durable batch.
    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>>;

    /// Waits until a row became free in any queue of the shard after `seen`, or a batch [rang](Batch::ring), or until
    /// `until`; also ends now and then for no reason. A hint: the rows are the truth. No wake-up between `seen` and this
    /// call is missed.
    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>>;

    /// The size of a batch that this store accepts. A batch over it is [`Error::Invalid`].
    fn batch_limits(&self) -> BatchLimits {
        BatchLimits::SERVER
    }

    /// The abilities of a store whose rows are in this process; `None` if they are elsewhere.
    fn in_process(&self) -> Option<&dyn InProcessRecords> {
        None
    }

    /// The abilities of a store whose rows are on a server; `None` if they are in this process or on this machine.
    fn server(&self) -> Option<&dyn ServerRecords> {
        None
    }
}

/// Commits and waits until the answer, whichever it is, is durable.
pub async fn commit_durably(records: &dyn Records, batch: Batch) -> Result<CommitResult, Error> {
    let outcome = records.commit(batch).await?;
    records.durable(outcome.position()).await?;
    Ok(outcome)
}
