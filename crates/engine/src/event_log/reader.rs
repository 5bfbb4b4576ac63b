//! Reads the event log of a run, and continues as it grows.

use super::{
    EventLogOptions, LogEntry, LogEntryKind, ReportedOutcome,
    counts::{UnlistedCounts, counts_since},
    rows::{Block, Logged, SealedLog, SealedRow, WorkerHeader},
    seal::read_block,
};
use crate::{Error, Handle, RunHistory, events::EventKind};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Name, Row,
    protocol::{keys, rows},
};
use onceflow_store::values::{self, Values};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
};

/// Looks at a log that grows, until two in a row agree.
const LOOKS_MAX: usize = 8;

/// Reads the event log of a run. Entries of one worker come in order; those of several are merged by plan and time as
/// far as they were there.
pub struct EventLogReader {
    handle: Handle,
    /// The rows but the blocks, as they were read last.
    headers: Vec<(Name, Row)>,
    workers: BTreeMap<u128, Seen>,
    is_at_end: bool,
}

/// The part of a worker's log that was read.
#[derive(Default)]
struct Seen {
    block: u32,
    entries: usize,
    /// Counts of unlisted events, by plan and epoch.
    counts: BTreeMap<(u32, u32), UnlistedCounts>,
}

impl EventLogReader {
    pub(super) fn new(handle: Handle) -> Self {
        EventLogReader { handle, headers: vec![], workers: BTreeMap::new(), is_at_end: false }
    }

    /// The last entry that was read says that the run is at rest.
    pub fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// No entry was read yet.
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// The entries that were added since the last call. Costs one read of a few small rows if there are none.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn more(&mut self) -> BoxFuture<'_, Result<Vec<LogEntry>, Error>> {
        Box::pin(async move {
            let mut found = Vec::new();
            for _ in 0..LOOKS_MAX {
                let shared = &self.handle.shared;
                let headers = shared.kernel.all_rows(keys::events(self.handle.id()), keys::EVENT_HEADERS).await?;
                if headers == self.headers {
                    break;
                }
                let known: BTreeMap<_, _> = std::mem::take(&mut self.headers).into_iter().collect();
                for (name, row) in headers.iter().filter(|(name, row)| known.get(name) != Some(row)) {
                    if let Some(worker) = keys::of_event_header(name.as_bytes()) {
                        self.read_worker(worker, row, &mut found).await?;
                    } else if let Some(sealed) = rows::read::<SealedRow>(row) {
                        self.read_sealed(&sealed, &mut found).await?;
                    }
                }
                self.headers = headers;
            }
            found.sort_by_key(order);
            if let Some(last) = found.last() {
                self.is_at_end = matches!(last.kind, LogEntryKind::Event(EventKind::DidEnd { .. }));
            }
            Ok(found)
        })
    }

    async fn read_worker(&mut self, worker: u128, header: &Row, found: &mut Vec<LogEntry>) -> Result<(), Error> {
        let Some(header) = rows::read::<WorkerHeader>(header) else { return Ok(()) };
        let seen = self.workers.entry(worker).or_default();
        let (shared, group) = (&self.handle.shared, keys::events(self.handle.id()));
        let mut after = seen.block.checked_sub(1).map(|number| keys::event_block(worker, number));
        loop {
            let scan = onceflow_store::records::Scan::of(group.clone(), onceflow_core::limits::SCAN_ROWS_MAX);
            let scan = scan.prefix(keys::event_blocks(worker)).after(after);
            let page = shared.records.scan(shared.shard(), scan).await?;
            after = page.rows.last().map(|(name, _)| name.clone());
            let blocks: Vec<_> = page.rows.iter().filter_map(read_block).collect();
            seen.take(&header, &blocks, found);
            if !page.more {
                return Ok(());
            }
        }
    }

    async fn read_sealed(&mut self, sealed: &SealedRow, found: &mut Vec<LogEntry>) -> Result<(), Error> {
        for worker in read_sealed(&self.handle.shared.values, sealed).await?.workers {
            self.workers.entry(worker.worker).or_default().take(&worker.header, &worker.blocks, found);
        }
        Ok(())
    }
}

/// Reads the sealed part of a log; empty if its history has ended, or it is damaged.
pub(super) async fn read_sealed(values: &Values, sealed: &SealedRow) -> Result<SealedLog, Error> {
    match values.read_all(&sealed.stored.id).await {
        Ok(bytes) => Ok(rows::read(&bytes).unwrap_or_default()),
        Err(values::Error::Missing { .. }) => Ok(SealedLog::default()),
        Err(error) if Error::from(error.clone()).is_damage() => Ok(SealedLog::default()),
        Err(error) => Err(error.into()),
    }
}

impl Seen {
    /// Adds the entries of these blocks that were not read before.
    fn take(&mut self, header: &WorkerHeader, blocks: &[(u32, Block)], found: &mut Vec<LogEntry>) {
        let host: Arc<str> = header.host.as_str().into();
        let first = self.block;
        for (number, block) in blocks.iter().filter(|(number, _)| *number >= first) {
            let known = if *number == self.block { self.entries.min(block.len()) } else { 0 };
            (self.block, self.entries) = (*number, block.len());
            for event in &block[known..] {
                let kind = match event.what.clone() {
                    Logged::Event(what) => LogEntryKind::Event(what),
                    Logged::Reported { address, outcome } => LogEntryKind::Reported { address, outcome },
                    Logged::Resumed => LogEntryKind::Resumed,
                };
                found.push(LogEntry { ms: event.ms, plan: event.plan, host: host.clone(), kind });
            }
        }
        if let Some((plan, ms, counts)) = &header.unlisted {
            let known = self.counts.entry((*plan, header.epoch)).or_default();
            let since = counts_since(counts, known);
            known.clone_from(counts);
            if !since.is_empty() {
                found.push(LogEntry { ms: *ms, plan: *plan, host, kind: LogEntryKind::Unlisted(since) });
            }
        }
    }
}

/// The order of entries: by plan, which begins with its start, then by time.
fn order(entry: &LogEntry) -> (u32, bool, u64) {
    let is_start = matches!(entry.kind, LogEntryKind::Event(EventKind::DidStart { .. }));
    (entry.plan, !is_start, entry.ms)
}

impl<'a> RunHistory<'a> {
    /// All entries of the event log.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn logged_events(self) -> BoxFuture<'a, Result<Vec<LogEntry>, Error>> {
        Box::pin(async move { self.event_log().more().await })
    }

    /// The number of steps of the run that committed or were reused, under any plan, from its event log: a step that ran
    /// again counts once, and a step with others inside counts as those. Unlisted events count each time. Of a run that
    /// has ended this is one read of a small row.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn logged_steps(self) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let headers =
                self.handle.shared.kernel.all_rows(keys::events(self.handle.id()), keys::EVENT_HEADERS).await?;
            if let [(name, row)] = &headers[..]
                && *name == keys::sealed_events()
                && let Some(sealed) = rows::read::<SealedRow>(row)
            {
                return Ok(sealed.steps);
            }
            let mut steps = SettledSteps::new(self.handle.shared.options.event_log.unwrap_or_default());
            self.logged_events().await?.iter().for_each(|entry| steps.count(&entry.kind));
            Ok(steps.total())
        })
    }
}

/// The number of steps that a whole log lists as committed or reused.
pub(super) fn settled_steps(log: &SealedLog, options: EventLogOptions) -> u64 {
    let (mut steps, mut seen, mut found) = (SettledSteps::new(options), BTreeMap::<u128, Seen>::new(), Vec::new());
    for worker in &log.workers {
        seen.entry(worker.worker).or_default().take(&worker.header, &worker.blocks, &mut found);
    }
    found.iter().for_each(|entry| steps.count(&entry.kind));
    steps.total()
}

/// Steps that committed or were reused.
struct SettledSteps {
    options: EventLogOptions,
    listed: BTreeSet<String>,
    unlisted: u64,
}

impl SettledSteps {
    fn new(options: EventLogOptions) -> Self {
        SettledSteps { options, listed: BTreeSet::new(), unlisted: 0 }
    }

    fn count(&mut self, entry: &LogEntryKind) {
        match entry {
            LogEntryKind::Event(EventKind::DidCommit { address } | EventKind::DidReuse { address })
            | LogEntryKind::Reported { address, outcome: ReportedOutcome::Done { .. } } => {
                self.listed.insert((self.options.name)(address));
            }
            LogEntryKind::Unlisted(counts) => {
                self.unlisted += counts.values().map(|counts| counts.done + counts.reused).sum::<u64>();
            }
            _ => {}
        }
    }

    fn total(&self) -> u64 {
        let is_around = |step: &&String| {
            let below = self.listed.range::<String, _>((Excluded(*step), Unbounded));
            let mut below = below.take_while(|other| other.starts_with(*step));
            below.any(|other| other[step.len()..].starts_with(['/', '[', '@']))
        };
        self.unlisted + (self.listed.len() - self.listed.iter().filter(is_around).count()) as u64
    }
}
