//! Seals the event log of a run that has ended: its blocks become one value, held as long as the run's history.

use super::{
    EventLogOptions,
    reader::{read_sealed, settled_steps},
    rows::{Block, SealedLog, SealedRow, SealedWorker, WorkerHeader},
    sink::Sink,
};
use crate::{Error, RunHistory, shared::Shared};
use onceflow_core::{
    Batch, Name, Row, Timestamp,
    payload::Stored,
    protocol::{
        ids::RunId,
        keys,
        rows::{self, Finished, Head},
        run::EVENTS,
    },
};
use onceflow_store::{
    CommitResult,
    values::{self, ValueChange},
};

/// A shorter log stays as rows, and so does that of a run whose history ends soon.
const SEAL_BYTES_MIN: u64 = 16 << 10;
const SEAL_HISTORY_MS_MIN: u64 = 60_000;

/// Bytes of a sealed log; of a longer one, events under earlier plans are dropped, the earliest first.
const SEALED_BYTES_MAX: usize = 16 << 20;

/// Rows that one batch deletes; those of further workers stay.
const ROWS_MAX: usize = 900;

/// Seals the log of a run, if it has ended and its log is long. False if a row changed meanwhile: another worker has
/// written its last events.
pub(super) async fn seal(sink: &Sink, run: RunId, key: &str) -> Result<bool, Error> {
    let head = keys::heads().key(key);
    let head_row = onceflow_store::records::get_one(&*sink.records, sink.shard, head.clone()).await?;
    let Some(Head::Finished(finished)) = head_row.as_deref().and_then(rows::read::<Head>) else { return Ok(true) };
    if finished.run != run || finished.header.history_ms < SEAL_HISTORY_MS_MIN {
        return Ok(true);
    }
    let headers = sink.rows(run, keys::EVENT_HEADERS).await?;
    let read = |row: &Row| rows::read::<WorkerHeader>(row);
    let workers = headers.iter().filter_map(|(name, row)| {
        keys::of_event_header(name.as_bytes()).zip(read(row)).map(|(worker, header)| (worker, header, name, row))
    });
    let workers: Vec<_> = workers.collect();
    let sealed_row = headers.iter().find(|(name, _)| *name == keys::sealed_events()).map(|(_, row)| row.clone());
    // The last events of a worker that comes late join a log that is sealed already, however few they are.
    let bytes: u64 = workers.iter().map(|(_, header, ..)| header.bytes).sum();
    if workers.is_empty() || sealed_row.is_none() && bytes < SEAL_BYTES_MIN {
        return Ok(true);
    }
    let before = sealed_row.as_deref().and_then(rows::read::<SealedRow>);
    let mut log = match &before {
        Some(before) => read_sealed(&sink.values, before).await?,
        None => SealedLog::default(),
    };
    let group = keys::events(run);
    let mut batch = Batch::new(sink.shard);
    batch.require_seen(head, head_row);
    for (worker, header, name, row) in workers {
        let blocks = sink.rows(run, keys::event_blocks(worker).as_bytes()).await?;
        if batch.ops.len() + blocks.len() + 1 > ROWS_MAX {
            continue;
        }
        batch.require_equals(group.key(name), row.clone()).delete(group.key(name));
        for (name, _) in &blocks {
            batch.delete(group.key(name));
        }
        log.workers.push(SealedWorker { worker, header, blocks: blocks.iter().filter_map(read_block).collect() });
    }
    assert!(batch.ops.len() <= ROWS_MAX, "a sealed log deletes {} rows in one batch", batch.ops.len());
    let bytes = log.shortened(SEALED_BYTES_MAX);
    let (put, stored) = sink.values.put_bytes(bytes).await?;
    let edge = before.as_ref().map_or(0, |before| 1 - before.edge.min(1));
    let until = history_end(&finished);
    let held = ValueChange::lease(keys::events_edge(run, EVENTS[usize::from(edge)]), stored.id.clone(), until);
    let steps = settled_steps(&log, sink.options);
    let own = group.key(keys::sealed_events());
    batch.require_seen(own.clone(), sealed_row);
    batch.put(own, rows::write(&SealedRow { stored, edge, steps }));
    let mut changes = vec![put, held];
    changes.extend(before.map(|before| ValueChange::ReleaseHold { edge: before.edge(run) }));
    if let Err(error) = sink.values.add_changes(&mut batch, &changes).await {
        // The history of an earlier plan has ended, and the edge with it.
        let values::Error::LeaseLost { .. } = error else { return Err(error.into()) };
        sink.values.add_changes(&mut batch, &changes[..2]).await?;
    }
    let CommitResult::Applied(committed) = sink.records.commit(batch).await? else { return Ok(false) };
    sink.values.notify_committed(&committed);
    Ok(true)
}

/// The end of the history of a run that has ended.
fn history_end(finished: &Finished) -> Timestamp {
    finished.ended.plus_ms(finished.header.history_ms)
}

/// Requires the sealed part of a run's event log as it is, in the batch that deletes the log; returns the change that
/// releases it. An engine that keeps no logs leaves that to the lease.
pub(crate) async fn release_sealed_events(
    shared: &Shared,
    batch: &mut Batch,
    run: RunId,
) -> Result<Option<ValueChange>, Error> {
    if shared.options.event_log.is_none() {
        return Ok(None);
    }
    let key = keys::events(run).key(keys::sealed_events());
    let row = shared.row(key.clone()).await?;
    let sealed = row.as_deref().and_then(rows::read::<SealedRow>);
    batch.require_seen(key, row);
    Ok(sealed.map(|sealed| ValueChange::ReleaseHold { edge: sealed.edge(run) }))
}

impl SealedRow {
    /// The row of a log that was not sealed before.
    pub(crate) fn first(stored: Stored, log: &SealedLog, options: Option<EventLogOptions>) -> Self {
        SealedRow { stored, edge: 0, steps: settled_steps(log, options.unwrap_or_default()) }
    }

    /// The edge that holds the value.
    pub(crate) fn edge(&self, run: RunId) -> onceflow_core::EdgeName {
        keys::events_edge(run, EVENTS[usize::from(self.edge.min(1))])
    }
}

pub(super) fn read_block((name, row): &(Name, Row)) -> Option<(u32, Block)> {
    let (_, number) = keys::of_event_block(name.as_bytes())?;
    Some((number, rows::read(row)?))
}

impl SealedLog {
    /// Reads a log that [`RunHistory::exported_events`] wrote; `None` if it is anything else, or too long.
    pub(crate) fn import(bytes: &[u8]) -> Option<Self> {
        rows::read(bytes).filter(|_| bytes.len() <= 2 * SEALED_BYTES_MAX)
    }

    /// Drops events under earlier plans until the log has at most so many bytes, if possible; returns it encoded.
    fn shortened(&mut self, bytes_max: usize) -> Vec<u8> {
        let plans = |log: &SealedLog| {
            let events = log.workers.iter().flat_map(|worker| worker.blocks.iter().flat_map(|(_, block)| block));
            events.map(|event| event.plan).collect::<std::collections::BTreeSet<_>>()
        };
        let mut plans = plans(self);
        plans.pop_last();
        loop {
            let bytes = rows::bytes(self);
            if bytes.len() <= bytes_max {
                return bytes;
            }
            let Some(plan) = plans.pop_first() else { return bytes };
            for (_, block) in self.workers.iter_mut().flat_map(|worker| &mut worker.blocks) {
                block.retain(|event| event.plan != plan);
            }
        }
    }
}

impl<'a> RunHistory<'a> {
    /// The whole event log, as a sealed one; `None` if there is none.
    pub(crate) async fn exported_events(self) -> Result<Option<Vec<u8>>, Error> {
        let (shared, group) = (&self.handle.shared, keys::events(self.handle.id()));
        let mut log = SealedLog::default();
        for (name, row) in shared.kernel.all_rows(group.clone(), keys::EVENT_HEADERS).await? {
            if let Some((worker, header)) = keys::of_event_header(name.as_bytes()).zip(rows::read(&row)) {
                let blocks = shared.kernel.all_rows(group.clone(), keys::event_blocks(worker).as_bytes()).await?;
                log.workers.push(SealedWorker {
                    worker,
                    header,
                    blocks: blocks.iter().filter_map(read_block).collect(),
                });
            } else if let Some(sealed) = rows::read::<SealedRow>(&row) {
                log.workers.extend(read_sealed(&shared.values, &sealed).await?.workers);
            }
        }
        Ok((!log.workers.is_empty()).then(|| log.shortened(SEALED_BYTES_MAX)))
    }
}
