//! Writes the event logs of an engine, in a task beside its worker: steps never wait for it. Events are gathered for a
//! moment; what is not written when the process is killed is lost, and counts are corrected from the store.

use super::{
    Entry, EventLogOptions,
    counts::{Counting, add_counts},
    rows::{Block, Logged, LoggedEvent, WorkerHeader},
    sink::Sink,
};
use crate::{Error, events::EventKind, shared::Shared};
use futures_util::future::{Either, pending, select};
use onceflow_core::{
    Batch, Key, Row,
    protocol::{
        ids::RunId,
        keys,
        rows::{self, Head},
    },
};
use onceflow_store::world::BoxFuture;
use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::Arc,
};
use tokio::sync::{mpsc, watch};

/// Bytes of a run's blocks beyond which only exceptional events are listed; beyond twice as many, only that the run
/// starts and ends. Several workers may exceed it together, each by [`CHECK_BYTES`].
const LOG_BYTES_MAX: u64 = 4 << 20;

/// Bytes that a worker writes between two looks at how much the others have written.
const CHECK_BYTES: u64 = 64 << 10;

/// Bytes of a block. The last one is written again as it grows.
const BLOCK_BYTES: usize = 16 << 10;

/// Bytes of an entry; a longer one is counted only.
const ENTRY_BYTES_MAX: usize = 64 << 10;

/// Bytes of entries that wait to be written: then they are written at once.
const PENDING_BYTES: usize = 256 << 10;

/// Bytes of entries that wait for a store that does not answer; further ones are counted only.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// The first events after a pause are gathered for so long; then there are pauses between two writes, longer ones after a
/// write of many events; and after a failure.
const GATHER_MS: u64 = 10;
const PAUSE_MS: u64 = 40;
const BUSY_PAUSE_MS: u64 = 100;
const RETRY_MS: u64 = 1000;

/// A write of so many entries has many.
const BUSY_ENTRIES: usize = 16;

/// Logs that are held open.
const OPEN_MAX: usize = 64;

/// Tries to seal a log: each finds that another worker has just written.
const SEALS_MAX: u32 = 10;

/// Tries of one write. Each finds that a run ended or began again, or that its log was sealed.
const TRIES_MAX: usize = 20;

/// Tries to write everything when the engine closes.
const CLOSING_TRIES_MAX: usize = 3;

/// Writes the event logs of an engine.
pub(super) struct Writer {
    sink: Sink,
    open: BTreeMap<RunId, RunLog>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, options: EventLogOptions) -> Self {
        let sink = Sink::of(&shared, options);
        Writer { sink, open: BTreeMap::new() }
    }

    /// Writes entries until the queue closes; then everything is written, and `done` is told.
    pub(super) async fn run(mut self, mut entries: mpsc::UnboundedReceiver<Entry>, done: watch::Sender<bool>) {
        const AT_ONCE_MAX: usize = 256;
        let mut some = Vec::with_capacity(AT_ONCE_MAX);
        let (mut timer, mut is_gathering): (Option<BoxFuture<'static, ()>>, _) = (None, false);
        loop {
            let received = {
                let elapsed: BoxFuture<'_, ()> = match &mut timer {
                    Some(timer) => Box::pin(timer),
                    None => Box::pin(pending()),
                };
                match select(pin!(entries.recv_many(&mut some, AT_ONCE_MAX)), elapsed).await {
                    Either::Left((received, _)) => Some(received),
                    Either::Right(_) => None,
                }
            };
            let is_busy = self.open.values().map(|log| log.pending.len()).sum::<usize>() >= BUSY_ENTRIES;
            let is_written = match received {
                Some(0) => break,
                Some(_) => {
                    let ended: Vec<_> = some.drain(..).filter_map(|entry| self.add(entry)).collect();
                    for run in ended {
                        self.end(run).await;
                    }
                    let is_much = self.open.values().any(|log| log.pending_bytes >= PENDING_BYTES);
                    // After a failure the store is given time.
                    if is_much && (timer.is_none() || is_gathering) { Some(self.write_all().await) } else { None }
                }
                None => {
                    timer = None;
                    let is_anything = self.open.values().any(RunLog::has_news);
                    if is_anything { Some(self.write_all().await) } else { None }
                }
            };
            if let Some(is_written) = is_written {
                let pause = if is_busy { BUSY_PAUSE_MS } else { PAUSE_MS };
                timer = Some(self.sink.world.sleep(if is_written { pause } else { RETRY_MS }));
                is_gathering = false;
            } else if timer.is_none() && self.open.values().any(RunLog::has_news) {
                timer = Some(self.sink.world.sleep(GATHER_MS));
                is_gathering = true;
            }
        }
        for _ in 0..CLOSING_TRIES_MAX {
            if self.write_all().await {
                break;
            }
            self.sink.world.sleep(GATHER_MS).await;
        }
        // No engine waits for it if it was not closed, but dropped.
        let _dropped = done.send(true);
    }

    /// Adds an entry to the log of its run; returns the run if it rests now.
    fn add(&mut self, Entry { run, key, event }: Entry) -> Option<RunId> {
        let hides = |address: &str| (self.sink.options.is_hidden)(address);
        if let Logged::Event(what) = &event.what
            && what.address().is_some_and(hides)
            && !matches!(what, EventKind::DidFail(_))
        {
            return None;
        }
        if !self.open.contains_key(&run) && self.open.len() >= OPEN_MAX {
            self.open.retain(|_, log| log.has_news());
        }
        let ends = event.end().is_some();
        self.open.entry(run).or_insert_with(|| RunLog::new(key)).add(event);
        ends.then_some(run)
    }

    /// Writes the log of a run that rests, so that readers find its end, and seals it if the run has ended.
    async fn end(&mut self, run: RunId) {
        let Some(log) = self.open.get_mut(&run) else { return };
        log.seals_left = SEALS_MAX;
        match log.write_and_seal(&self.sink, run).await {
            Ok(true) => drop(self.open.remove(&run)),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, %run, "failed to write or seal the event log of a run; retrying"),
        }
    }

    /// Writes all logs; true if that succeeded.
    async fn write_all(&mut self) -> bool {
        let (mut all, mut over) = (true, Vec::new());
        for (run, log) in &mut self.open {
            match log.write_and_seal(&self.sink, *run).await {
                Ok(true) => over.push(*run),
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(%error, %run, "failed to write the event log of a run; retrying in {RETRY_MS} ms");
                    log.bound_pending();
                    all = false;
                }
            }
        }
        over.iter().for_each(|run| drop(self.open.remove(run)));
        all
    }
}

/// The part of a run's event log that this worker writes.
struct RunLog {
    key: Arc<str>,
    /// The header and the last block as they are stored.
    header: WorkerHeader,
    block: Block,
    /// The head row of the run and the stored header, if they were read; a write requires them unchanged.
    seen: Option<(Option<Row>, Option<Row>)>,
    /// A write whose reply was lost.
    tried: Option<Draft>,
    /// Bytes in the blocks of other workers, and how many this one wrote since it read that.
    others_bytes: u64,
    unchecked_bytes: u64,
    pending: Vec<LoggedEvent>,
    pending_bytes: usize,
    counting: Counting,
    /// The plan and the time of the last event that was counted.
    counted: (u32, u64),
    /// Addresses that the log shows as running or failed: their later events are listed.
    listed: BTreeSet<String>,
    /// Tries to seal the log that are left, of a run that rests.
    seals_left: u32,
}

/// The rows of a write, and what is stored once it is applied.
struct Draft {
    header: WorkerHeader,
    row: Row,
    blocks: Vec<(u32, Block)>,
}

/// The state of a run as its log finds it.
#[derive(PartialEq, Eq)]
enum Found {
    Here,
    /// The history of the run has ended, or its key leads to another run.
    Gone,
}

impl RunLog {
    fn new(key: Arc<str>) -> Self {
        RunLog {
            key,
            header: WorkerHeader::default(),
            block: vec![],
            seen: None,
            tried: None,
            others_bytes: 0,
            unchecked_bytes: 0,
            pending: vec![],
            pending_bytes: 0,
            counting: Counting::default(),
            counted: (0, 0),
            listed: BTreeSet::new(),
            seals_left: 0,
        }
    }

    fn has_news(&self) -> bool {
        !self.pending.is_empty() || !self.counting.counts().is_empty() || self.seals_left > 0
    }

    fn has_entries(&self) -> bool {
        !self.pending.is_empty() || !self.counting.counts().is_empty()
    }

    fn add(&mut self, event: LoggedEvent) {
        let bytes = rows::bytes(&event).len();
        if let Logged::Event(what) = &event.what
            && (!self.is_listed(what) || bytes > ENTRY_BYTES_MAX)
        {
            self.count(&event);
            return;
        }
        self.pending_bytes += bytes;
        self.pending.push(event);
    }

    fn count(&mut self, event: &LoggedEvent) {
        if let Logged::Event(what) = &event.what {
            self.counting.count(event.ms, what);
            self.counted = (event.plan, event.ms);
        }
    }

    /// Counts entries that wait for a store that does not answer, if there are too many.
    fn bound_pending(&mut self) {
        if self.pending_bytes > PENDING_BYTES_MAX {
            self.pending_bytes = 0;
            for event in std::mem::take(&mut self.pending) {
                self.count(&event);
            }
        }
    }

    /// The log has room to list the event.
    fn is_listed(&mut self, what: &EventKind) -> bool {
        let of = what.address();
        let was_listed = of.is_some_and(|address| self.listed.contains(address));
        let is_exceptional = match what {
            EventKind::DidFail(_) | EventKind::WillWait { .. } | EventKind::DidMarkUnknown { .. } => true,
            EventKind::DidUndo { .. } | EventKind::HeldUp { .. } | EventKind::CleanupFailed { .. } => true,
            EventKind::DidOpen { address, .. } => !address.trim_start_matches('/').contains(['/', '[', '@']),
            _ => was_listed,
        };
        let written = self.others_bytes + self.header.bytes + self.pending_bytes as u64;
        let listed = match what {
            EventKind::DidStart { .. } | EventKind::DidEnd { .. } => true,
            _ if is_exceptional => written < 2 * LOG_BYTES_MAX,
            _ => written < LOG_BYTES_MAX,
        };
        match (listed, what) {
            (true, EventKind::WillRun { address, .. }) => drop(self.listed.insert(address.clone())),
            (true, EventKind::DidFail(failed)) => drop(self.listed.insert(failed.address.to_string())),
            (true, EventKind::DidUse { .. } | EventKind::DidOpen { .. } | EventKind::DidTurn { .. }) => {}
            (true, _) => drop(of.map(|address| self.listed.remove(address))),
            (false, _) => {}
        }
        listed
    }

    /// Writes everything that waits, and seals the log of a run that rests; true if that is done, so that the log need
    /// not stay open.
    async fn write_and_seal(&mut self, sink: &Sink, run: RunId) -> Result<bool, Error> {
        self.write(sink, run).await?;
        if self.seals_left == 0 {
            return Ok(false);
        }
        self.seals_left -= 1;
        let is_sealed = super::seal::seal(sink, run, &self.key).await?;
        self.seals_left = if is_sealed { 0 } else { self.seals_left };
        Ok(self.seals_left == 0)
    }

    /// Writes everything that waits. If the run is gone, its log is too, and nothing is written.
    async fn write(&mut self, sink: &Sink, run: RunId) -> Result<(), Error> {
        if !self.has_entries() {
            return Ok(());
        }
        for _ in 0..TRIES_MAX {
            if self.seen.is_none() && self.look(sink, run).await? == Found::Gone {
                self.drop_news();
                return Ok(());
            }
            if !self.has_entries() {
                return Ok(());
            }
            let draft = self.draft(sink).await?;
            let batch = self.batch(sink, run, &draft);
            self.tried = Some(draft);
            let seen = self.seen.take();
            if sink.records.commit(batch).await?.is_applied() {
                let (head, _) = seen.expect("it was looked at");
                self.accept(Some(head));
                return Ok(());
            }
            // The run has ended or begun again, or another worker has sealed the log.
            self.tried = None;
        }
        Err(Error::Refused {
            key: self.key.to_string(),
            why: String::from("its event log is changed by other workers all the time"),
        })
    }

    fn drop_news(&mut self) {
        (self.pending, self.pending_bytes) = (vec![], 0);
        self.counting.clear();
    }

    /// The last write is stored.
    fn accept(&mut self, head: Option<Option<Row>>) {
        let Some(draft) = self.tried.take() else { return };
        assert_eq!(
            draft.header.version,
            self.header.version + 1,
            "a write was stored that does not follow the last one"
        );
        self.unchecked_bytes += draft.header.bytes.saturating_sub(self.header.bytes);
        if let Some((number, block)) = draft.blocks.into_iter().next_back() {
            assert_eq!(number, draft.header.block, "the last block of a write is the last of the worker");
            self.block = block;
        }
        self.header = draft.header;
        self.seen = head.filter(|_| self.unchecked_bytes < CHECK_BYTES).map(|head| (head, Some(draft.row)));
        self.drop_news();
    }

    /// Reads the head row of the run, the header of this worker, and how much others have written.
    async fn look(&mut self, sink: &Sink, run: RunId) -> Result<Found, Error> {
        let head: Key = keys::heads().key(self.key.as_bytes());
        let own = keys::events(run).key(keys::event_header(sink.worker));
        let mut found = sink.records.get(sink.shard, &[head, own]).await?.into_iter();
        let (head, own) = (found.next().flatten(), found.next().flatten());
        let is_here = match head.as_deref().and_then(rows::read::<Head>) {
            Some(Head::Active(id)) => id == run,
            Some(Head::Finished(finished)) => finished.run == run,
            None => false,
        };
        if !is_here {
            return Ok(Found::Gone);
        }
        let stored = own.as_deref().and_then(rows::read::<WorkerHeader>);
        match (&stored, &self.tried) {
            // Its reply was lost.
            (Some(stored), Some(tried)) if stored.version == tried.header.version => self.accept(None),
            (Some(stored), _) if stored.version == self.header.version => {}
            // The log was opened before, and let go.
            (Some(stored), _) => self.go_on(WorkerHeader { block: stored.block + 1, ..stored.clone() }),
            (None, _) if self.header.version == 0 => {}
            // The blocks of this worker were sealed.
            (None, _) => {
                let WorkerHeader { version, epoch, block, .. } = self.header;
                let header = WorkerHeader { version, epoch: epoch + 1, block: block + 1, ..WorkerHeader::default() };
                self.go_on(header);
            }
        }
        self.tried = None;
        let mut others_bytes = 0;
        for (name, row) in sink.rows(run, keys::EVENT_HEADERS).await? {
            if keys::of_event_header(name.as_bytes()).is_some_and(|worker| worker != sink.worker) {
                others_bytes += rows::read::<WorkerHeader>(&row).map_or(0, |header| header.bytes);
            }
        }
        (self.others_bytes, self.unchecked_bytes) = (others_bytes, 0);
        self.seen = Some((head, own));
        Ok(Found::Here)
    }

    /// Continues with a new block after this header.
    fn go_on(&mut self, header: WorkerHeader) {
        self.header = header;
        self.block.clear();
    }

    /// Packs everything that waits into blocks, with times on the store's clock.
    async fn draft(&self, sink: &Sink) -> Result<Draft, Error> {
        let ahead = i128::from(sink.records.now().await?.as_ms()) - i128::from(sink.world.clock().as_ms());
        let on_store = |ms: u64| u64::try_from((i128::from(ms) + ahead).max(0)).unwrap_or(u64::MAX);
        let mut header = self.header.clone();
        header.host.clone_from(&sink.host);
        header.version += 1;
        let mut block = self.block.clone();
        let mut bytes: usize = rows::bytes(&block).len();
        let (mut blocks, mut is_changed) = (Vec::new(), false);
        for event in &self.pending {
            let event = LoggedEvent { ms: on_store(event.ms), ..event.clone() };
            let more = rows::bytes(&event).len();
            if bytes + more > BLOCK_BYTES && !block.is_empty() {
                if is_changed {
                    blocks.push((header.block, std::mem::take(&mut block)));
                }
                block.clear();
                header.block += 1;
                bytes = 0;
            }
            (bytes, is_changed) = (bytes + more, true);
            header.bytes += more as u64;
            block.push(event);
        }
        if is_changed {
            blocks.push((header.block, block));
        }
        let counts = self.counting.counts();
        if !counts.is_empty() {
            let (plan, ms) = self.counted;
            // Under a new plan only its own events count.
            let known = header.unlisted.take().filter(|(of, ..)| *of == plan).map(|(_, _, counts)| counts);
            let mut known = known.unwrap_or_default();
            add_counts(&mut known, counts);
            header.unlisted = Some((plan, on_store(ms), known));
        }
        assert!(blocks.iter().all(|(_, block)| !block.is_empty()), "an empty block takes a row and says nothing");
        let row = rows::write(&header);
        Ok(Draft { header, row, blocks })
    }

    fn batch(&self, sink: &Sink, run: RunId, draft: &Draft) -> Batch {
        let (head, header) = self.seen.clone().expect("it was looked at");
        let group = keys::events(run);
        let own = group.key(keys::event_header(sink.worker));
        let mut batch = Batch::new(sink.shard);
        batch.require_seen(keys::heads().key(self.key.as_bytes()), head).require_seen(own.clone(), header);
        batch.put(own, draft.row.clone());
        for (number, block) in &draft.blocks {
            batch.put(group.key(keys::event_block(sink.worker, *number)), rows::write(block));
        }
        batch
    }
}
