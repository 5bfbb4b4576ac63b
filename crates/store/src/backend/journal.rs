//! The embedded default: a directory.
//!
//! The state is memory's, small by construction; behind it stands a log of the effects of each batch, in checksummed
//! segments,
//! written in groups that one sync serves, and a snapshot when the log outgrows the rows. One process owns the
//! directory; [`embedded`](super::embedded) lets others of the same user share it.
//!
//! | part | what it owns |
//! |---|---|
//! | [`files`] | the directory, narrow enough to fake |
//! | `format`, `codec` | the bytes: frames and headers; effects |
//! | `book` | the applied state and the frames that wait to be written, under one lock |
//! | `committer` | the task that writes and syncs |
//! | `snapshot`, `snapshotter` | all rows in one file, and the task that makes it |
//! | `recover` | opening an existing journal: torn or damaged? |

mod book;
mod codec;
mod committer;
pub mod files;
mod format;
mod recover;
mod segment;
mod snapshot;
mod snapshotter;

pub use super::error::OpenError;
pub use recover::{OnDamage, Recovered, Torn};

use super::{
    front::{Attempt, ENDED, Front},
    shared::check_get,
};
use crate::{
    records::{CommitResult, Error, InProcessRecords, Page, Position, Records, Scan},
    state::{StandingClaim, StoreState},
    sync::{Mutex, lock},
    wake::{Signal, Watermark},
    world::{BoxFuture, World},
};
use book::Book;
use committer::Log;
use files::{Files, StoreFile};
use onceflow_core::{Batch, Key, Row, Shard, Timestamp, batch::BatchLimits};
use segment::{PREPARE_BYTES_MIN, Segment};
use std::{io, ops::Deref, sync::Arc};

/// The format of the files this code writes, and the newest it reads.
pub const FORMAT: u32 = format::VERSION;

/// When a batch counts as durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the disk has it: it survives a power failure.
    #[default]
    Synced,
    /// When the operating system has it: it survives the end of the process, not a power failure. After a power failure
    /// the store is in an earlier state, and blobs deleted since then are missing; `fsck` names them.
    Flushed,
}

/// The settings of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// When a batch counts as durable.
    pub durability: Durability,
    /// The reaction to damage when opening.
    pub on_damage: OnDamage,
    /// A snapshot is made when the log has more bytes than this, and more than the rows have.
    pub snapshot_log_bytes_min: u64,
    /// When the journal is closed, a log that takes more bytes on the disk than this, and several times as many as the
    /// rows, is replaced by a snapshot.
    pub compact_log_bytes_min: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            durability: Durability::default(),
            on_damage: OnDamage::default(),
            snapshot_log_bytes_min: committer::SNAPSHOT_LOG_BYTES_MIN,
            compact_log_bytes_min: committer::COMPACT_LOG_BYTES_MIN,
        }
    }
}

/// The store that the caller expects in the directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpectedStore {
    /// Any store or none; a new store is created in an empty directory.
    #[default]
    Unknown,
    /// A store whose id is not known. An empty directory is an error.
    Unnamed,
    /// The store with this id. An empty directory, or another store, is an error.
    Id(u128),
}

/// A store in a directory that this process owns.
pub struct Journal {
    inner: Arc<Inner>,
}

/// The state that the callers, the committer and the snapshotter share.
struct Inner {
    front: Front<Book>,
    files: Arc<dyn Files>,
    options: Options,
    /// The log, until the committer has ended.
    log: Mutex<Option<Log>>,
    /// Wakes the snapshotter.
    snapshot: Signal,
    /// Raised to [`ENDED`] when the snapshotter touches the files no more.
    snapshotter_ended: Watermark,
}

impl Deref for Inner {
    type Target = Front<Book>;

    fn deref(&self) -> &Front<Book> {
        &self.front
    }
}

impl Inner {
    /// Waits until everything up to `position` is durable. Written frames are synced only when a caller waits here.
    async fn reach_durable(&self, position: Position) -> Result<(), Error> {
        self.durable.reach_asking(position, || self.work.notify()).await
    }
}

impl Journal {
    /// Opens the journal in a directory, making one if there is none. The caller ensures that no other process has it
    /// open.
    ///
    /// # Errors
    /// If the directory cannot be read or written, was written by a later version, or is damaged; nothing is changed then.
    pub fn open(
        files: Arc<dyn Files>,
        options: Options,
        world: Arc<dyn World>,
    ) -> Result<(Journal, Recovered), OpenError> {
        Journal::open_expecting(files, options, world, ExpectedStore::Unknown)
    }

    /// The same where the identity of the store may be known. A store that is known to exist is never made anew.
    ///
    /// # Errors
    /// As [`Journal::open`]; and if the log is gone, or another store's.
    pub fn open_expecting(
        files: Arc<dyn Files>,
        options: Options,
        world: Arc<dyn World>,
        known: ExpectedStore,
    ) -> Result<(Journal, Recovered), OpenError> {
        recover::check_store(&*files, known)?;
        let opened = match recover::recover(&*files, options.on_damage)? {
            Some(opened) => opened,
            None => recover::Opened::nothing(world.random()),
        };
        let recovered = opened.recovered.clone();
        if let Some(torn) = &recovered.torn {
            tracing::warn!(file = %torn.file.display(), torn.offset, torn.bytes, "cut off what a crash had left half written");
        }
        let next = Position(opened.position.0 + 1);
        let segment = match opened.segment {
            Some(segment) => segment,
            None => Segment::create(&*files, opened.store, next, PREPARE_BYTES_MIN)
                .map_err(|not| OpenError::io("begin a log in", files.path(""))(not.into()))?,
        };
        let marker =
            open_marker(&*files, opened.position).map_err(OpenError::io("write", files.path(format::MARKER_NAME)))?;
        for name in &opened.obsolete {
            files.remove(name).map_err(OpenError::io("remove", files.path(name)))?;
        }
        if !opened.is_secured {
            files.sync().map_err(OpenError::io("sync", files.path("")))?;
        }
        let book = Book::new(opened.state, opened.position, opened.time, segment.room());
        let inner = Arc::new(Inner {
            front: Front::new(world, opened.store, book, opened.position),
            files,
            options,
            log: Mutex::new(Some(Log::new(segment, marker, opened.position, opened.log_bytes))),
            snapshot: Signal::default(),
            snapshotter_ended: Watermark::default(),
        });
        inner.world.dedicate("onceflow-commit", Box::pin(committer::run(inner.clone())));
        inner.world.dedicate("onceflow-snapshot", Box::pin(snapshotter::run(inner.clone())));
        Ok((Journal { inner }, recovered))
    }

    /// Waits until everything is written and no thread touches the directory any more. Later calls are refused.
    pub async fn close(&self) -> Result<(), Error> {
        self.begin_close();
        self.inner.committer_ended.reach(ENDED).await?;
        self.inner.snapshotter_ended.reach(ENDED).await
    }

    fn begin_close(&self) {
        self.inner.front.begin_close();
        self.inner.snapshot.notify();
    }

    /// The identity of this store, different from every other's, for ever.
    pub fn id(&self) -> u128 {
        self.inner.store
    }

    /// A copy of all rows.
    pub fn state(&self) -> StoreState {
        lock(&self.inner.book).state.clone()
    }

    /// The claims that stand now.
    pub fn claims(&self) -> Vec<StandingClaim> {
        self.inner.front.claims()
    }

    /// Suspends or resumes claims: while they are suspended, no claim finds a row. Callers that wait for free rows look
    /// again then.
    pub fn hold_grants(&self, held: bool) {
        self.inner.front.hold_grants(held);
    }

    /// Claims are suspended: no claim finds anything.
    pub fn holds_grants(&self) -> bool {
        self.inner.front.holds_grants()
    }

    /// Succeeds while the journal takes batches. After an I/O error it takes none, and is to be opened again.
    pub fn health(&self) -> Result<(), Error> {
        self.inner.look(|_| ())
    }

    fn attempt(&self, batch: &Batch) -> Result<Option<CommitResult>, Error> {
        let (world, needed) = (self.inner.world.clock(), Book::needed(batch));
        let mut tried = lock(&self.inner.book).attempt(batch, needed, world)?;
        if let Attempt::Decided { wake_committer, .. } = &mut tried
            && *wake_committer
        {
            *wake_committer = !committer::write_here(&self.inner);
        }
        Ok(self.inner.tell(tried))
    }

    /// Commits when the disk has made room, or says that it has none.
    async fn commit_with_room(&self, batch: Batch) -> Result<CommitResult, Error> {
        let needed = Book::needed(&batch);
        let refusals = lock(&self.inner.book).refusals;
        loop {
            if let Some(outcome) = self.attempt(&batch)? {
                return Ok(outcome);
            }
            let look = || {
                let book = lock(&self.inner.book);
                match &book.refusal {
                    Some(refusal) if book.refusals > refusals => Some(Err(refusal.clone())),
                    _ => (book.has_room(needed) || book.is_open().is_err()).then_some(Ok(())),
                }
            };
            self.inner.room.until(look).await?;
        }
    }
}

impl Drop for Journal {
    /// Lets the committer write all applied batches and end. [`Journal::close`] waits for it.
    fn drop(&mut self) {
        self.begin_close();
    }
}

impl Records for Journal {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        let get = |book: &mut Book| keys.iter().map(|key| book.state.get(shard, key).cloned()).collect();
        Box::pin(std::future::ready(check_get(keys).and_then(|()| self.inner.look(get))))
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(std::future::ready(self.inner.look(|book| book.state.scan(shard, &scan))))
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        match self.try_commit(&batch) {
            Some(decided) => Box::pin(std::future::ready(decided)),
            None => Box::pin(self.commit_with_room(batch)),
        }
    }

    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.inner.reach_durable(position))
    }

    fn position(&self) -> Position {
        self.inner.front.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        Box::pin(std::future::ready(self.inner.now()))
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.inner.front.wait(shard, seen, until))
    }

    fn batch_limits(&self) -> BatchLimits {
        BatchLimits::EMBEDDED
    }

    fn in_process(&self) -> Option<&dyn InProcessRecords> {
        Some(self)
    }
}

impl InProcessRecords for Journal {
    fn try_commit(&self, batch: &Batch) -> Option<Result<CommitResult, Error>> {
        let checked = batch.check_within(BatchLimits::EMBEDDED).map_err(Error::from);
        checked.and_then(|()| self.attempt(batch)).transpose()
    }

    fn peek(&self, shard: Shard, key: &Key) -> Option<Result<Option<Row>, Error>> {
        Some(self.inner.look(|book| book.state.get(shard, key).cloned()))
    }

    fn is_durable(&self, position: Position) -> bool {
        self.inner.durable.has_reached(position)
    }
}

/// The marker, saying that everything up to here is durable, as recovery has seen to.
fn open_marker(files: &dyn Files, durable: Position) -> io::Result<Box<dyn StoreFile>> {
    let marker = match files.open(format::MARKER_NAME) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => files.create(format::MARKER_NAME)?,
        opened => opened?,
    };
    let says = format::encode_marker(durable);
    let mut said = [0; size_of::<Position>() + 4];
    if marker.read_at(&mut said, 0)? != says.len() || said != says {
        marker.write_at(&says, 0)?;
    }
    Ok(marker)
}
