//! Rows in a file of pages ([redb]), for state larger than memory: chosen as `paged:DIR`.
//!
//! A batch is applied in memory, to the changes since the last write; the committer writes all changes that came while
//! it wrote the last group in one transaction of redb, which ends with a sync. So a batch found wrong needs no rollback, and
//! one sync serves all callers that wait. Reads look at the changes first, then at the pages as last written.
//!
//! | part | what it owns |
//! |---|---|
//! | `pages` | the file: keys, checksummed rows, transactions, snapshots |
//! | `layer` | rows that were changed and are not written yet |
//! | `book` | changes, queues and positions, under one lock |
//! | `committer` | the task that writes |
//!
//! Queues with their claims live in memory, where claiming needs them in order; ready rows are written as all others,
//! claims and deadlines never. What is ready is bounded by what is in flight.

mod book;
mod committer;
mod error;
mod layer;
mod pages;

pub use error::OpenError;
pub use pages::FORMAT;

use super::{
    journal::{ExpectedStore, Recovered, files::Files},
    shared::{check_get, wait_for},
};
use crate::{
    records::{CommitResult, Error, InProcessRecords, Page, Position, Records, Scan},
    state::StandingClaim,
    sync::{Mutex, lock},
    wake::{Signal, Watermark},
    world::{BoxFuture, World},
};
use book::{Attempt, Book};
use committer::Committer;
use onceflow_core::{Batch, Key, Kind, Row, Shard, Timestamp, batch::BatchLimits, limits};
use pages::Pages;
use std::sync::Arc;

/// The name of the file that holds the rows.
pub const FILE_NAME: &str = pages::NAME;

/// The settings of a paged store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of pages kept in memory.
    pub cache_bytes: usize,
    /// Bytes of changes that may wait to be written; then batches wait.
    pub unwritten_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { cache_bytes: 128 << 20, unwritten_bytes_max: 32 << 20 }
    }
}

/// The mark of a task that has ended.
const ENDED: Position = Position(1);

/// A store in a file of pages that this process owns.
pub struct Paged {
    inner: Arc<Inner>,
}

/// The state that the callers and the committer share.
struct Inner {
    world: Arc<dyn World>,
    options: Options,
    store: u128,
    book: Mutex<Book>,
    /// Up to where everything is durable.
    durable: Watermark,
    /// Wakes the committer.
    work: Signal,
    /// Wakes callers that wait until changes are written.
    room: Signal,
    /// Wakes callers that wait for free rows.
    enabled: Signal,
    /// Raised to [`ENDED`] when no thread touches the file any more.
    committer_ended: Watermark,
}

impl Paged {
    /// Opens the store in a directory, making one if there is none and none is expected. The caller ensures that no
    /// other process has it open.
    ///
    /// # Errors
    /// If the file cannot be read or written, was written by a later version, is damaged, gone, or another store's.
    pub fn open(
        files: Arc<dyn Files>,
        options: Options,
        world: Arc<dyn World>,
        known: ExpectedStore,
    ) -> Result<(Paged, Recovered), OpenError> {
        let (pages, found) = Pages::open(&files, options.cache_bytes, known, || world.random())?;
        let recovered = Recovered { is_new: found.is_new, rows: found.rows, ..Recovered::default() };
        let inner = Arc::new(Inner {
            world,
            options,
            store: found.store,
            book: Mutex::new(Book::new(found.queues, found.snapshot, found.time)),
            durable: Watermark::default(),
            work: Signal::default(),
            room: Signal::default(),
            enabled: Signal::default(),
            committer_ended: Watermark::default(),
        });
        let committer = Committer::new(inner.clone(), pages);
        inner.world.dedicate("onceflow-pages", Box::pin(committer.run()));
        Ok((Paged { inner }, recovered))
    }

    /// Waits until everything is written and no thread touches the file any more. Later calls are refused.
    pub async fn close(&self) -> Result<(), Error> {
        self.begin_close();
        self.inner.committer_ended.reach(ENDED).await
    }

    fn begin_close(&self) {
        lock(&self.inner.book).closing = true;
        self.inner.work.notify();
        self.inner.room.notify();
    }

    /// The identity of this store, different from every other's, for ever.
    pub fn id(&self) -> u128 {
        self.inner.store
    }

    /// The claims that stand now.
    pub fn claims(&self) -> Vec<StandingClaim> {
        lock(&self.inner.book).queues.claims()
    }

    /// Suspends or resumes claims: while they are suspended, no claim finds a row.
    pub fn hold_grants(&self, held: bool) {
        let mut book = lock(&self.inner.book);
        book.grants_held = held;
        let position = Position(book.position.0 + 1);
        if !held {
            book.queues.note_all_enabled(position);
        }
        drop(book);
        self.inner.enabled.notify();
    }

    /// Claims are suspended.
    pub fn holds_grants(&self) -> bool {
        lock(&self.inner.book).grants_held
    }

    /// Succeeds while the store takes batches. After an I/O error it takes none, and is to be opened again.
    pub fn health(&self) -> Result<(), Error> {
        lock(&self.inner.book).fault.clone().map_or(Ok(()), Err)
    }

    fn attempt(&self, batch: &Batch) -> Result<Option<CommitResult>, Error> {
        let world = self.inner.world.clock();
        let tried = lock(&self.inner.book).attempt(batch, world, self.inner.options.unwritten_bytes_max);
        let Attempt::Decided { outcome, enabled, wake_committer, settled } = tried.inspect_err(|error| {
            if matches!(error, Error::Damaged(_) | Error::Unavailable(_)) {
                self.inner.work.notify();
            }
        })?
        else {
            self.inner.work.notify();
            return Ok(None);
        };
        if wake_committer {
            self.inner.work.notify();
        }
        if settled {
            self.inner.durable.raise(outcome.position());
        }
        if enabled {
            self.inner.enabled.notify();
        }
        Ok(Some(outcome))
    }

    /// Commits when enough of the changes before it are written.
    async fn commit_with_room(&self, batch: Batch) -> Result<CommitResult, Error> {
        loop {
            if let Some(outcome) = self.attempt(&batch)? {
                return Ok(outcome);
            }
            let look = || {
                let book = lock(&self.inner.book);
                let has_room = book.layer.bytes() < self.inner.options.unwritten_bytes_max;
                (has_room || book.is_open().is_err()).then_some(())
            };
            self.inner.room.until(look).await;
        }
    }

    /// Looks at what is in memory, under the lock, unless the store has failed: then that may not be on the disk.
    fn look<T>(&self, look: impl FnOnce(&mut Book) -> T) -> Result<T, Error> {
        let mut book = lock(&self.inner.book);
        match &book.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(look(&mut book)),
        }
    }

    fn get_now(&self, shard: Shard, keys: &[Key]) -> Result<Vec<Option<Row>>, Error> {
        check_get(keys)?;
        let (found, snapshot) = self.look(|book| {
            let found: Vec<_> = keys.iter().map(|key| book.find(shard, key)).collect();
            (found, book.snapshot.clone())
        })?;
        let fill = |(found, key): (Option<Option<Row>>, &Key)| match found {
            Some(row) => Ok(row),
            None => snapshot.get(shard, key),
        };
        found.into_iter().zip(keys).map(fill).collect()
    }

    fn scan_now(&self, shard: Shard, scan: &Scan) -> Result<Page, Error> {
        if scan.group.kind() != Kind::Rows {
            return self.look(|book| book.queues.scan(shard, scan));
        }
        let limit = scan.limit.min(limits::SCAN_ROWS_MAX);
        let (changes, snapshot) = self.look(|book| (book.changes(shard, scan, limit), book.snapshot.clone()))?;
        snapshot.page(shard, scan, changes, limit)
    }
}

impl Drop for Paged {
    /// Lets the committer write all applied batches and end. [`Paged::close`] waits for it.
    fn drop(&mut self) {
        self.begin_close();
    }
}

impl Records for Paged {
    fn get<'a>(&'a self, shard: Shard, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Row>>, Error>> {
        Box::pin(std::future::ready(self.get_now(shard, keys)))
    }

    fn scan(&self, shard: Shard, scan: Scan) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(std::future::ready(self.scan_now(shard, &scan)))
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<CommitResult, Error>> {
        match self.try_commit(&batch) {
            Some(decided) => Box::pin(std::future::ready(decided)),
            None => Box::pin(self.commit_with_room(batch)),
        }
    }

    fn durable(&self, position: Position) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.inner.durable.reach(position))
    }

    fn position(&self) -> Position {
        lock(&self.inner.book).position
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        let world = self.inner.world.clock();
        Box::pin(std::future::ready(self.look(|book| book.clock.read(world))))
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let now = self.now().await?;
            let look = || {
                let book = lock(&self.inner.book);
                (book.fault.is_some() || book.queues.enabled_at(shard) > seen).then_some(())
            };
            wait_for(&*self.inner.world, &self.inner.enabled, look, until.ms_since(now)).await;
            self.look(|_| ())
        })
    }

    fn batch_limits(&self) -> BatchLimits {
        BatchLimits::EMBEDDED
    }

    fn in_process(&self) -> Option<&dyn InProcessRecords> {
        Some(self)
    }
}

impl InProcessRecords for Paged {
    fn try_commit(&self, batch: &Batch) -> Option<Result<CommitResult, Error>> {
        let checked = batch.check_within(BatchLimits::EMBEDDED).map_err(Error::from);
        checked.and_then(|()| self.attempt(batch)).transpose()
    }

    fn peek(&self, shard: Shard, key: &Key) -> Option<Result<Option<Row>, Error>> {
        let found = self.get_now(shard, std::slice::from_ref(key));
        Some(found.map(|mut found| found.pop().flatten()))
    }

    fn is_durable(&self, position: Position) -> bool {
        self.inner.durable.has_reached(position)
    }
}
