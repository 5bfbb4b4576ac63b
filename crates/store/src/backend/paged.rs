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
mod layer;
mod pages;

pub use super::error::OpenError;
pub use pages::FORMAT;

use super::{
    front::{ENDED, Front},
    journal::{ExpectedStore, Recovered, files::Files},
    shared::check_get,
};
use crate::{
    records::{CommitResult, Error, InProcessRecords, Page, Position, Records, Scan},
    state::StandingClaim,
    sync::lock,
    world::{BoxFuture, World},
};
use book::Book;
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

/// A store in a file of pages that this process owns.
pub struct Paged {
    front: Arc<Front<Book>>,
    options: Options,
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
        let book = Book::new(found.queues, found.snapshot, found.time);
        let front = Arc::new(Front::new(world, found.store, book, Position::default()));
        let committer = Committer::new(front.clone(), pages);
        front.world.dedicate("onceflow-pages", Box::pin(committer.run()));
        Ok((Paged { front, options }, recovered))
    }

    /// Waits until everything is written and no thread touches the file any more. Later calls are refused.
    pub async fn close(&self) -> Result<(), Error> {
        self.front.begin_close();
        self.front.committer_ended.reach(ENDED).await
    }

    /// The identity of this store, different from every other's, for ever.
    pub fn id(&self) -> u128 {
        self.front.store
    }

    /// The claims that stand now.
    pub fn claims(&self) -> Vec<StandingClaim> {
        self.front.claims()
    }

    /// Suspends or resumes claims: while they are suspended, no claim finds a row.
    pub fn hold_grants(&self, held: bool) {
        self.front.hold_grants(held);
    }

    /// Claims are suspended.
    pub fn holds_grants(&self) -> bool {
        self.front.holds_grants()
    }

    /// Succeeds while the store takes batches. After an I/O error it takes none, and is to be opened again.
    pub fn health(&self) -> Result<(), Error> {
        self.front.look(|_| ())
    }

    fn attempt(&self, batch: &Batch) -> Result<Option<CommitResult>, Error> {
        let world = self.front.world.clock();
        let tried = lock(&self.front.book).attempt(batch, world, self.options.unwritten_bytes_max);
        let attempt = tried.inspect_err(|error| {
            if matches!(error, Error::Damaged(_) | Error::Unavailable(_)) {
                self.front.work.notify();
            }
        })?;
        Ok(self.front.tell(attempt))
    }

    /// Commits when enough of the changes before it are written.
    async fn commit_with_room(&self, batch: Batch) -> Result<CommitResult, Error> {
        loop {
            if let Some(outcome) = self.attempt(&batch)? {
                return Ok(outcome);
            }
            let look = || {
                let book = lock(&self.front.book);
                let has_room = book.layer.bytes() < self.options.unwritten_bytes_max;
                (has_room || book.is_open().is_err()).then_some(())
            };
            self.front.room.until(look).await;
        }
    }

    fn get_now(&self, shard: Shard, keys: &[Key]) -> Result<Vec<Option<Row>>, Error> {
        check_get(keys)?;
        let (found, snapshot) = self.front.look(|book| {
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
            return self.front.look(|book| book.queues.scan(shard, scan));
        }
        let limit = scan.limit.min(limits::SCAN_ROWS_MAX);
        let (changes, snapshot) = self.front.look(|book| (book.changes(shard, scan, limit), book.snapshot.clone()))?;
        snapshot.page(shard, scan, changes, limit)
    }
}

impl Drop for Paged {
    /// Lets the committer write all applied batches and end. [`Paged::close`] waits for it.
    fn drop(&mut self) {
        self.front.begin_close();
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
        Box::pin(self.front.durable.reach(position))
    }

    fn position(&self) -> Position {
        self.front.position()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, Error>> {
        Box::pin(std::future::ready(self.front.now()))
    }

    fn wait(&self, shard: Shard, seen: Position, until: Timestamp) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.front.wait(shard, seen, until))
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
        self.front.durable.has_reached(position)
    }
}
