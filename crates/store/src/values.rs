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
//! | `rows` | reads the rows of values, and commits batches to them |
//! | `writer` | names that no other process uses, and the end of a process that wrote |
//! | `contents` | the bytes of values, wherever they lie |
//! | `file`, `export` | files as values, inline or as blobs, and values as files |
//! | `elements` | the elements of lists that are gathered: references, or the bytes themselves |
//! | [`lease`] | edges that end by themselves, and the keeper that renews one |
//! | [`reclaim`] | expires leases, pays debts, sweeps values; in small steps |
//! | `roots` | clears roots by the prefix of their names |
//! | `blob` | large bytes, as values |
//! | [`source`] | files of the user's, by reference |
//! | `whole` | checks bytes before they are handed out, and drops an object that is damaged |
//! | [`list`] | long lists, as trees of pages |
//! | [`hold`] | values put ahead of a batch that is too small for them |
//! | [`fsck`] | proves that all rows fit together, and repairs those that do not |
//! | [`census`] | counts the values, and the roots that hold them |
//! | [`limits`] | every bound, with its reason |
//!
//! [`Values`] holds the parts that live as long as it does (`ValueRows`, `ValueWriter`, `Sources`, the blob store) and the
//! calls on values as such. Each other idea is a view that borrows the parts it needs: [`ValueBytes`], [`Uploads`], [`FileValues`],
//! [`SourceValues`], [`Integrity`].
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
pub mod census;
mod changes;
mod contents;
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
mod rows;
pub mod source;
mod stored;
mod update;
mod whole;
mod writer;

pub use blob::{Upload, Uploads};
pub use contents::ValueBytes;
pub use error::Error;
pub use file::FileValues;
pub use hold::Hold;
pub use lease::Keeper;
pub use onceflow_core::value::{
    Content, EdgeName, Element, Expect, FileStat, SourceFile, Update, Value, ValueChange, ValueId,
};
pub use reclaim::Reclaimed;
pub use source::{SourceError, SourceValues};
pub use whole::Integrity;
pub use writer::Enlisting;

use crate::{
    blobs::Blobs,
    records::{Position, Records},
    world::World,
};
use bytes::Bytes;
use elements::PrefixRelease;
use keys::Keys;
use news::News;
use onceflow_core::{Fences, Name, Shard, Timestamp, payload::Stored};
use rows::{Tried, ValueRows};
use source::Sources;
use std::sync::Arc;
use writer::ValueWriter;

/// The values of one shard.
pub struct Values {
    rows: ValueRows,
    world: Arc<dyn World>,
    writer: ValueWriter,
    blobs: Option<Arc<dyn Blobs>>,
    sources: Arc<Sources>,
}

impl Values {
    /// Opens the values of this shard. Any number of `Values` may work on one store at a time.
    pub fn new(records: Arc<dyn Records>, world: Arc<dyn World>, shard: Shard) -> Self {
        let writer = ValueWriter::new(Fences::new(world.random()));
        let rows = ValueRows { records, shard, keys: Keys::new(), news: News::default() };
        Values { rows, world, writer, blobs: None, sources: Arc::default() }
    }

    /// Keeps the bytes of blobs in `blobs`, which must be this shard's own: an object that no row of the shard names is
    /// an orphan.
    pub fn with_blobs(self, blobs: Arc<dyn Blobs>) -> Self {
        Values { blobs: Some(blobs), ..self }
    }

    /// Returns a value as it was put. It stays as long as something refers to it.
    pub async fn get(&self, id: &ValueId) -> Result<Value, Error> {
        self.rows.get(id).await
    }

    /// Returns the target of an edge; `None` if it is not set.
    pub async fn edge(&self, edge: &EdgeName) -> Result<Option<ValueId>, Error> {
        Ok(self.rows.edge_row(edge).await?.map(|(_, edge)| edge.target))
    }

    /// Returns the deadline of an edge; `None` if the edge is not set or is no lease.
    pub async fn deadline(&self, edge: &EdgeName) -> Result<Option<Timestamp>, Error> {
        Ok(self.rows.edge_row(edge).await?.and_then(|(_, edge)| edge.deadline))
    }

    /// Puts values and changes edges: all of it, or nothing. Repeating it does nothing more. The state that the answer
    /// rests on, also that of an error, is durable: the caller may pass it on to anyone.
    ///
    /// # Errors
    /// [`Missing`](Error::Missing), [`Conflict`](Error::Conflict), [`Stale`](Error::Stale), [`Sealed`](Error::Sealed)
    /// and [`TooLarge`](Error::TooLarge) mean that nothing was written.
    /// [`records::Error::Unknown`](crate::records::Error::Unknown) means that a reply was lost, and that the rows stored now do not tell whether the
    /// batch was applied: other callers may have acted since. The update is not decided anew then, for that could undo
    /// their work.
    pub async fn update(&self, update: Update) -> Result<Position, Error> {
        let answer = self.apply(update).await;
        self.rows.told(answer).await
    }

    /// As [`Values::update`], but does not wait until the update is durable. For callers that go on inside the process,
    /// and await [`Records::durable`] of the position before telling anyone.
    pub async fn apply(&self, update: Update) -> Result<Position, Error> {
        self.rows.apply(update).await
    }

    /// Clears the roots and leases whose names begin with `prefix` and that `goes` selects; returns how many. Small
    /// updates, each atomic; safe to repeat and to stop at any await. Not durable when it returns: see
    /// [`Values::apply`].
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn clear_roots(&self, prefix: &[u8], goes: impl Fn(&[u8]) -> bool) -> Result<usize, Error> {
        roots::clear(&self.rows, prefix, goes).await
    }

    /// Moves the deadline of a lease to `ttl_ms` from now; never to an earlier time. Returns the deadline. Durable when
    /// it returns.
    ///
    /// The lease is identified by its name only: if it may have ended, and another process may have taken the name, use
    /// a [`Keeper`].
    ///
    /// # Errors
    /// [`LeaseLost`](Error::LeaseLost) if it has ended, was cleared, or is no lease.
    pub async fn renew(&self, edge: &EdgeName, ttl_ms: u64) -> Result<Timestamp, Error> {
        let answer = lease::NamedLease { rows: &self.rows, edge }.renew(ttl_ms).await;
        self.rows.told(answer).await
    }

    /// Returns elements under a prefix, in order of their index, from `first` on: at most `limit`, and at most
    /// [`SCAN_ROWS_MAX`](onceflow_core::limits::SCAN_ROWS_MAX).
    pub async fn elements(
        &self,
        prefix: impl AsRef<[u8]>,
        first: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Element)>, Error> {
        elements::page(&self.rows, prefix.as_ref(), first, limit).await
    }

    /// Deletes every element under `prefix`, in small steps of [`Values::reclaim`]; none can be set meanwhile. For
    /// lists that were never gathered; the elements of a gathered one are deleted with its value. Durable when it
    /// returns.
    ///
    /// # Errors
    /// [`Sealed`](Error::Sealed) if a list owns the elements; [`records::Error::Unknown`](crate::records::Error::Unknown) as for [`Values::update`].
    pub async fn release(&self, prefix: impl AsRef<[u8]>) -> Result<Position, Error> {
        let answer = PrefixRelease { rows: &self.rows, prefix: &Name::new(prefix) }.apply().await;
        self.rows.told(answer).await
    }

    /// Returns the change that puts these bytes, and the value they become: up to
    /// [`INLINE_VALUE_BYTES_MAX`](limits::INLINE_VALUE_BYTES_MAX) an inline value, beyond that a blob, which is uploaded
    /// when this returns and reclaimed unless the change is committed.
    ///
    /// Inline values cost no I/O, and are not shared with equal ones: finding those would take a read.
    pub async fn put_bytes(&self, bytes: impl Into<Bytes>) -> Result<(ValueChange, Stored), Error> {
        self.uploads().put_bytes(bytes.into()).await
    }

    /// Reads all bytes of an inline value or a blob into memory. Something must hold the value meanwhile.
    ///
    /// # Errors
    /// [`Senseless`](Error::Senseless) for a gathered list; [`Broken`](Error::Broken) if an object is not what its name
    /// says.
    pub async fn read_all(&self, id: &ValueId) -> Result<Bytes, Error> {
        self.contents().all(id).await
    }

    /// An id for a new value, unique for ever.
    pub fn fresh_id(&self) -> ValueId {
        self.writer.fresh_id()
    }

    /// The incarnation of this writer: its objects, and its leases on values put ahead, are named by it.
    pub fn writer(&self) -> u128 {
        self.writer.incarnation()
    }

    /// Sets how this writer is registered before it writes for the first time, for blob stores that cannot detect the
    /// end of a writer. Only the first call counts.
    pub fn enlist_with(&self, enlisting: Enlisting) {
        self.writer.enlist_with(enlisting);
    }

    /// Turns the uploads of a writer that the caller knows to have ended, and the values it had put ahead of a batch,
    /// into garbage. If the writer lives after all, its batches that need any of them are refused.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn abandon_writer(&self, writer: u128) -> Result<(), Error> {
        writer::abandon(&self.rows, writer).await
    }

    /// Returns a new hold, which holds nothing yet.
    pub fn hold(&self) -> Hold {
        Hold::new(self.writer.fence())
    }

    /// Objects of this writer, which become blobs.
    pub fn uploads(&self) -> Uploads<'_> {
        Uploads { integrity: self.integrity(), writer: &self.writer }
    }

    /// Values that come from files, or become files.
    pub fn files(&self) -> FileValues<'_> {
        FileValues { contents: self.contents(), uploads: self.uploads() }
    }

    /// Values that are files of the user's, by reference.
    pub fn sources(&self) -> SourceValues<'_> {
        SourceValues { rows: &self.rows, verified: &self.sources, writer: &self.writer }
    }

    /// Checks of the bytes of values.
    pub fn integrity(&self) -> Integrity<'_> {
        Integrity { rows: &self.rows, blobs: self.blobs.as_ref(), sources: self.sources() }
    }

    /// The bytes of values, wherever they lie.
    pub fn contents(&self) -> ValueBytes<'_> {
        ValueBytes { integrity: self.integrity() }
    }
}
