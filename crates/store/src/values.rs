//! Immutable values that refer to each other, are kept alive by named edges, and are reclaimed when nothing needs
//! them any more. Written once, on [`Records`], for every backend.
//!
//! **Edges are the truth, counts are an index over them.** A value's references are fixed when it is put; roots and
//! leases are *named* edges; no caller can increment or decrement a count. So every operation is idempotent: putting a
//! value that is stored, or setting an edge to its present target, does nothing. A value can refer only to values
//! stored before it, so there are no cycles, and a count of zero means that nothing needs the value.
//!
//! | module | what it owns |
//! |---|---|
//! | `update` | decides the batch of an update; pure |
//! | `changes` | adds changes to a batch of the caller's, without reading anything |
//! | `bytes`, `file` | bytes and files as values, inline or as blobs |
//! | `elements` | the elements of lists that are gathered: references, or the bytes themselves |
//! | [`lease`] | edges that end by themselves, and the keeper that renews one |
//! | [`reclaim`] | expires leases, pays debts, sweeps values; in small steps |
//! | `blob` | large bytes, as values |
//! | [`source`] | files of the user's, by reference |
//! | `whole` | checks bytes before they are handed out, and drops an object that is damaged |
//! | [`list`] | long lists, as trees of pages |
//! | [`hold`] | values put ahead of a batch that is too small for them |
//! | [`fsck`] | proves that all rows fit together, and repairs those that do not |
//! | [`census`] | counts the values, and the roots that hold them |
//! | [`limits`] | every bound, with its reason |
//!
//! ```
//! # use onceflow_store::{backend::memory::Memory, world::RealWorld, values::{EdgeName, Update, Values}};
//! # use std::sync::Arc;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
//! # let world = RealWorld::here();
//! # let records = Arc::new(Memory::new(world.clone()));
//! let values = Values::new(records, world, Default::default());
//! let root = EdgeName::root("result");
//! values.update(Update::new().leaf("leaf", "text").put("pair", ["leaf", "leaf"], "").set(&root, "pair")).await?;
//! assert_eq!(values.get(&"pair".into()).await?.refs.len(), 2);
//!
//! values.update(Update::new().clear(&root)).await?;
//! assert_eq!(values.reclaim(usize::MAX).await?.swept, 2);
//! # Ok(()) }
//! ```

mod blob;
mod bytes;
pub mod census;
mod changes;
mod elements;
mod error;
mod export;
mod file;
pub mod fsck;
pub mod hold;
mod keys;
pub mod lease;
pub mod limits;
pub mod list;
mod news;
pub mod reclaim;
mod roots;
pub mod source;
mod stored;
mod update;
mod whole;

pub use blob::Upload;
pub use error::Error;
pub use hold::Hold;
pub use lease::Keeper;
pub use onceflow_core::value::{
    Content, EdgeName, Element, Expect, FileStat, SourceFile, Update, Value, ValueChange, ValueId,
};
pub use reclaim::Reclaimed;
pub use source::SourceError;

use crate::{
    blobs::Blobs,
    records::{self, CommitResult, Position, Records, Refused, get_one},
    world::{BoxFuture, World},
};
use keys::Keys;
use news::News;
use onceflow_core::{Batch, Fences, Key, Require, Row, Shard, Timestamp};
use source::Sources;
use std::sync::{Arc, OnceLock, atomic::AtomicBool};
use stored::{Edge, Head};
use update::{Asked, Facts};

/// The values of one shard.
pub struct Values {
    records: Arc<dyn Records>,
    world: Arc<dyn World>,
    shard: Shard,
    keys: Keys,
    fences: Fences,
    news: News,
    blobs: Option<Arc<dyn Blobs>>,
    /// This writer is registered where its end can be detected.
    is_enlisted: AtomicBool,
    enlisting: OnceLock<Enlisting>,
    sources: Arc<Sources>,
}

/// Registers a writer where other processes can detect its end.
pub type Enlisting = Box<dyn Fn() -> BoxFuture<'static, Result<(), Error>> + Send + Sync>;

impl Values {
    /// Opens the values of this shard. Any number of `Values` may work on one store at a time.
    pub fn new(records: Arc<dyn Records>, world: Arc<dyn World>, shard: Shard) -> Self {
        let fences = Fences::new(world.random());
        Values {
            records,
            world,
            shard,
            keys: Keys::new(),
            fences,
            news: News::default(),
            blobs: None,
            is_enlisted: AtomicBool::new(false),
            enlisting: OnceLock::new(),
            sources: Arc::default(),
        }
    }

    /// Returns a value as it was put. It stays as long as something refers to it.
    pub async fn get(&self, id: &ValueId) -> Result<Value, Error> {
        let Some(row) = self.row(self.keys.value(id)).await? else { return Err(Error::Missing { id: id.clone() }) };
        let head = Head::read(&row).ok_or_else(|| whole::row_damaged(id))?;
        if head.is_lost() {
            return Err(Error::Lost { id: id.clone() });
        }
        let content = head.content().ok_or_else(|| whole::row_damaged(id))?;
        Ok(Value { refs: head.refs().collect(), content })
    }

    /// Returns the target of an edge; `None` if it is not set.
    pub async fn edge(&self, edge: &EdgeName) -> Result<Option<ValueId>, Error> {
        Ok(self.edge_row(edge).await?.map(|(_, edge)| edge.target))
    }

    /// Returns the deadline of an edge; `None` if the edge is not set or is no lease.
    pub async fn deadline(&self, edge: &EdgeName) -> Result<Option<Timestamp>, Error> {
        Ok(self.edge_row(edge).await?.and_then(|(_, edge)| edge.deadline))
    }

    /// Puts values and changes edges: all of it, or nothing. Repeating it does nothing more. The state that the answer
    /// rests on, also that of an error, is durable: the caller may pass it on to anyone.
    ///
    /// # Errors
    /// [`Missing`](Error::Missing), [`Conflict`](Error::Conflict), [`Stale`](Error::Stale), [`Sealed`](Error::Sealed)
    /// and [`TooLarge`](Error::TooLarge) mean that nothing was written.
    /// [`records::Error::Unknown`] means that a reply was lost, and that the rows stored now do not tell whether the
    /// batch was applied: other callers may have acted since. The update is not decided anew then, for that could undo
    /// their work.
    pub async fn update(&self, update: Update) -> Result<Position, Error> {
        let answer = self.apply(update).await;
        self.told(answer).await
    }

    /// As [`Values::update`], but does not wait until the update is durable. For callers that go on inside the process,
    /// and await [`Records::durable`] of the position before telling anyone.
    pub async fn apply(&self, update: Update) -> Result<Position, Error> {
        let asked = Asked::new(&update)?;
        let wanted = asked.wanted(&self.keys)?;
        // Read once: a second try must not mean another deadline.
        let now = if asked.needs_clock() { self.records.now().await? } else { Timestamp::ZERO };
        for _ in 0..limits::TRIES_MAX {
            let Some(batch) = self.decide(&wanted, &asked, now).await? else { return Ok(self.records.position()) };
            match self.send(batch).await? {
                Tried::Applied(position) => return Ok(position),
                Tried::Refused(Require::Present(key)) if key.group == self.keys.values => {
                    return Err(Error::Missing { id: ValueId::new(&key.name) });
                }
                Tried::Refused(_) => {}
                Tried::Unknown(why) => {
                    return match self.decide(&wanted, &asked, now).await {
                        Ok(None) => Ok(self.records.position()),
                        Ok(Some(_)) | Err(_) => Err(why.into()),
                    };
                }
            }
        }
        Err(Error::Contended(limits::TRIES_MAX))
    }

    /// Returns the batch for the part of an update that is not done yet; `None` if all of it is.
    async fn decide(&self, wanted: &[Key], asked: &Asked<'_>, now: Timestamp) -> Result<Option<Batch>, Error> {
        let rows = self.records.get(self.shard, wanted).await?;
        let facts = Facts::new(wanted.to_vec(), rows);
        update::decide(&self.keys, self.shard, &facts, asked, now)
    }

    /// Waits until the state that an answer was decided on is durable, unless the store gave no answer.
    async fn told<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        if !matches!(answer, Err(Error::Records(_) | Error::TooLarge { .. } | Error::Senseless(_))) {
            self.records.durable(self.records.position()).await?;
        }
        answer
    }

    /// Commits a batch, and sends the very same batch again while its answer is lost, which is safe because it is
    /// idempotent. [`Tried::Unknown`] means that it may have been applied, at any time until now. The caller may read
    /// whether the state is as it wanted, but must not decide anew.
    async fn send(&self, batch: Batch) -> Result<Tried, Error> {
        let lost = match self.try_commit(batch.clone()).await? {
            Tried::Unknown(why) => why,
            answered => return Ok(answered),
        };
        for _ in 0..limits::REPLIES_LOST_MAX {
            match self.try_commit(batch.clone()).await {
                Ok(Tried::Applied(position)) => return Ok(Tried::Applied(position)),
                Ok(Tried::Unknown(_)) => {}
                // Refused because of its own first try, or of other writers: the store cannot tell.
                Ok(Tried::Refused(_)) | Err(_) => break,
            }
        }
        Ok(Tried::Unknown(lost))
    }

    /// Commits a batch, and wakes the reclaim loop if the batch left something to reclaim.
    async fn try_commit(&self, batch: Batch) -> Result<Tried, Error> {
        let rings = self.news.concerns(&self.keys, &batch);
        let requires = batch.requires.clone();
        match self.records.commit(batch).await {
            Ok(CommitResult::Applied(committed)) => {
                if rings || !committed.fired.is_empty() {
                    self.news.notify();
                }
                Ok(Tried::Applied(committed.position))
            }
            Ok(CommitResult::Refused(Refused { which, .. })) => Ok(Tried::Refused(requires[which].clone())),
            Err(why @ records::Error::Unknown(_)) => {
                tracing::debug!(%why, "the answer to a batch was lost");
                Ok(Tried::Unknown(why))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn row(&self, key: Key) -> Result<Option<Row>, Error> {
        Ok(get_one(&*self.records, self.shard, key).await?)
    }

    async fn edge_row(&self, edge: &EdgeName) -> Result<Option<(Row, Edge)>, Error> {
        let Some(row) = self.row(self.keys.edge(edge)).await? else { return Ok(None) };
        let read = Edge::read(edge, &row)?;
        Ok(Some((row, read)))
    }
}

/// The result of sending a batch.
enum Tried {
    Applied(Position),
    Refused(Require),
    /// The answer was lost.
    Unknown(records::Error),
}
