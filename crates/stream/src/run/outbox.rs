//! Everything a partition sends out of its commit: blocks on retry edges, chunks for sinks, acknowledgements, promises.
//! Blocks and chunks are rows of the outbox until they are acknowledged or written, so a restart sends the same bytes
//! again and no user code runs for it. **Nothing goes out before the commit that made it is durable.**

use super::{
    bundle::ChunkBytes,
    keys::{Station, block_name, chunk_name},
    meta::Published,
    options::EdgeMode,
    partition::{Partition, Program, SHARD, Stop},
    sink_parts::OpenParts,
    slow_writes::SlowWrites,
    transport::StreamMessage,
};
use crate::{
    block::RecordBlock,
    event_time::EventTime,
    identity::{ProducerId, Stamp},
    pipeline::{
        call::CallId,
        sink::{SinkChunk, SinkWriter},
        source::io_error,
    },
    seams,
};
use futures_util::FutureExt;
use onceflow_core::{Batch, Key, Name, Row, limits::SCAN_ROWS_MAX};
use onceflow_store::{
    Position,
    records::{Scan, get_one},
};
use std::collections::{BTreeMap, VecDeque};

/// Bundles that may wait for their sync; with more, the partition waits too.
const UNSYNCED_MAX: usize = 4;

/// Bytes of blocks that are not acknowledged; with more, no input is taken.
const OUTBOX_BYTES_MAX: usize = 16 << 20;

/// Blocks in one inbox from one sender; with more, that sender takes no input.
const INBOX_BLOCKS_MAX: usize = 8;

/// Rows of the outbox that one bundle deletes.
const DELETED_MAX: usize = 128;

/// Something to do once a commit is durable.
pub(crate) enum Effect {
    /// Sends a block of the outbox.
    Send(Name),
    /// Writes a chunk of the outbox to its sink.
    Write(Name),
    /// Seals the part of this name of a sink.
    Seal(usize, String),
    /// Tells the source that everything before a position is durable.
    TellSource(Vec<u8>),
    /// Sends a message.
    Tell(Station, StreamMessage),
    /// Begins calls, and lets the target forget others.
    Call {
        /// Calls whose records are durable.
        opened: Vec<CallId>,
        /// Calls whose results are durable.
        ended: Vec<CallId>,
    },
}

/// A block that is not acknowledged.
struct Unacknowledged {
    to: Station,
    row: Row,
    edge: u16,
    stamp: Stamp,
    earliest: EventTime,
    sent_ms: Option<u64>,
}

/// The outbox of a partition.
#[derive(Default)]
pub(crate) struct Outbox {
    blocks: BTreeMap<Name, Unacknowledged>,
    bytes: usize,
    pub(super) chunks: BTreeMap<Name, (usize, SinkChunk)>,
    pub(super) parts: OpenParts,
    /// Rows that were acknowledged or written, to be deleted by the next bundle.
    pub(super) done: Vec<Name>,
    /// Effects that wait for a sync, in order of commits.
    waiting: VecDeque<(Position, Vec<Effect>)>,
    /// The last promises that are durable.
    promises: Vec<(Station, StreamMessage)>,
    promised_ms: u64,
    /// For each edge and destination, blocks sent into an inbox since it was last looked at.
    in_flight: BTreeMap<(usize, usize), usize>,
    pub(super) writers: Vec<Box<dyn SinkWriter>>,
    pub(super) slow: SlowWrites,
}

impl Outbox {
    pub(crate) fn new(writers: Vec<Box<dyn SinkWriter>>) -> Self {
        Outbox { writers, ..Outbox::default() }
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.done.is_empty() || self.parts.has_sealed()
    }

    /// Nothing waits for a sync.
    pub(crate) fn is_settled(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Nothing is left to be acknowledged or written; rows that are done are deleted by this bundle.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
            && self.chunks.is_empty()
            && self.slow.is_empty()
            && self.waiting.is_empty()
            && self.parts.is_empty()
            && self.done.len() <= DELETED_MAX
    }

    /// Every block was acknowledged.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(crate) fn committed(&mut self, position: Position, effects: Vec<Effect>) {
        if !effects.is_empty() {
            self.waiting.push_back((position, effects));
        }
    }

    fn add_block(&mut self, name: Name, block: Unacknowledged) {
        self.bytes += block.row.len();
        self.blocks.insert(name, block);
    }
}

impl Partition {
    /// Does what earlier commits left to be done once they were durable. Waits for the sync only if asked, or if too
    /// many commits wait for theirs.
    pub(super) async fn settle(&mut self, wait: bool) -> Result<(), Stop> {
        while let Some((position, _)) = self.outbox.waiting.front() {
            let durable = self.runtime.records.durable(*position);
            match wait || self.outbox.waiting.len() > UNSYNCED_MAX {
                true => durable.await?,
                false => match durable.now_or_never() {
                    Some(done) => done?,
                    None => return Ok(()),
                },
            }
            let (_, effects) = self.outbox.waiting.pop_front().expect("there is a first");
            for effect in effects {
                self.perform(effect).await?;
            }
        }
        Ok(())
    }

    async fn perform(&mut self, effect: Effect) -> Result<(), Stop> {
        match effect {
            Effect::Send(name) => self.send_block(&name).await,
            Effect::Tell(to, message) => {
                if let StreamMessage::Progress { .. } = message {
                    self.outbox
                        .promises
                        .retain(|(station, earlier)| !(*station == to && is_same_sender(earlier, &message)));
                    self.outbox.promises.push((to, message.clone()));
                }
                Ok(self.runtime.transport.send(to, message).await?)
            }
            Effect::TellSource(position) => match &mut self.program {
                Program::Source(source) => Ok(source.committed(&position)?),
                Program::Stage(_) => Ok(()),
            },
            Effect::Call { opened, ended } => {
                self.begin_calls(opened, ended);
                Ok(())
            }
            Effect::Write(name) => {
                let Some((sink, chunk)) = self.outbox.chunks.remove(&name) else { return Ok(()) };
                self.write_chunk(sink, name, chunk)
            }
            Effect::Seal(sink, part) => self.seal_part(sink, part),
        }
    }

    async fn send_block(&mut self, name: &Name) -> Result<(), Stop> {
        let Some(block) = self.outbox.blocks.get_mut(name) else { return Ok(()) };
        block.sent_ms = Some(self.bundle.now_ms);
        let (to, message) = (block.to, StreamMessage::Records(block.row.clone()));
        Ok(self.runtime.transport.send(to, message).await?)
    }

    /// Sends blocks and promises again that may have been lost.
    pub(super) async fn send_again(&mut self, now_ms: u64) -> Result<(), Stop> {
        let patience = self.runtime.options.resend_ms;
        let is_old = |sent: u64| now_ms >= sent.saturating_add(patience);
        let old: Vec<Name> = self
            .outbox
            .blocks
            .iter()
            .filter(|(_, block)| block.sent_ms.is_some_and(is_old))
            .map(|(name, _)| name.clone())
            .collect();
        self.bundle.now_ms = now_ms;
        for name in old {
            if !self.is_consumed_by_ended(&name).await? {
                self.send_block(&name).await?;
            }
        }
        if is_old(self.outbox.promised_ms) {
            self.outbox.promised_ms = now_ms;
            for (to, message) in self.outbox.promises.clone() {
                self.runtime.transport.send(to, message).await?;
            }
        }
        Ok(())
    }

    /// The receiver has ended, so it has consumed the block, and will not acknowledge it any more.
    async fn is_consumed_by_ended(&mut self, name: &Name) -> Result<bool, Stop> {
        let Some(block) = self.outbox.blocks.get(name).filter(|_| self.meta.end_sent) else { return Ok(false) };
        let row = get_one(&*self.runtime.records, SHARD, self.runtime.keys.published(block.to)).await?;
        let has_ended = Published::from_row(row.as_ref()).is_some_and(|published| published.has_ended);
        if has_ended && let Some(block) = self.outbox.blocks.remove(name) {
            self.outbox.bytes -= block.row.len();
            self.outbox.done.push(name.clone());
        }
        Ok(has_ended)
    }

    /// Takes in an acknowledgement: the block's row is deleted by the next bundle.
    pub(super) fn acknowledged(&mut self, producer: ProducerId, first: u64) {
        let name = block_name(producer, first);
        if let Some(block) = self.outbox.blocks.remove(&name) {
            self.outbox.bytes -= block.row.len();
            self.outbox.done.push(name);
        }
    }

    /// Adds the bundle's outputs to its batch, with stamps and ids that stay theirs.
    pub(super) fn store_outputs(&mut self, batch: &mut Batch, effects: &mut Vec<Effect>) {
        let runtime = self.runtime.clone();
        let (keys, station) = (&runtime.keys, self.station);
        let is_retry = runtime.options.edges == EdgeMode::Retry;
        let edges = runtime.stages[usize::from(station.stage)].outputs.clone();
        for name in self.outbox.done.drain(..self.outbox.done.len().min(DELETED_MAX)) {
            batch.delete(Key { group: keys.outbox(station), name });
        }
        let mut parcels = self.bundle.take();
        if is_retry && std::mem::take(&mut self.sends_end) {
            for (edge, layout) in edges.iter().enumerate() {
                parcels.extend((0..usize::from(layout.to.1)).map(|to| super::bundle::Parcel::end(edge, to)));
            }
        }
        let stamp = if parcels.is_empty() { Stamp::ZERO } else { self.meta.stamper.stamp(self.bundle.now_ms) };
        for mut parcel in parcels {
            let edge = &edges[parcel.edge];
            let to = Station { stage: edge.to.0, partition: u16::try_from(parcel.to).expect("few partitions") };
            let producer = ProducerId::new(edge.id, station.partition, to.partition, 0);
            let next = &mut self.meta.next_seq[parcel.edge][parcel.to];
            let (first, count) = (*next, parcel.block.count());
            *next += u64::from(count);
            let (name, earliest) = (block_name(producer, first), parcel.block.earliest());
            let row = parcel.block.finish(producer, first, stamp);
            self.bundle.recycle(parcel.block);
            if is_retry {
                let block =
                    Unacknowledged { to, row: row.clone(), edge: producer.edge(), stamp, earliest, sent_ms: None };
                self.outbox.add_block(name.clone(), block);
                effects.push(Effect::Send(name.clone()));
                if seams::stores_blocks() {
                    batch.put(Key { group: keys.outbox(station), name }, row);
                }
            } else {
                *self.outbox.in_flight.entry((parcel.edge, parcel.to)).or_default() += 1;
                batch.put(Key { group: keys.inbox(to), name }, row);
            }
        }
        for (sink, chunks) in self.bundle.sinks.iter_mut().enumerate() {
            for ChunkBytes { part, bytes } in chunks.drain(..) {
                let place = &mut self.meta.chunks[sink];
                let chunk = match part {
                    None => place.take(bytes),
                    Some(part) => self.outbox.parts.take(sink, &part.name, &mut place.number, bytes),
                };
                let name = chunk_name(u16::try_from(sink).expect("few sinks"), chunk.number);
                batch.put(Key { group: keys.outbox(station), name: name.clone() }, chunk.to_row());
                self.outbox.chunks.insert(name.clone(), (sink, chunk));
                effects.push(Effect::Write(name));
            }
        }
        self.outbox.parts.commit_into(batch, &keys.sink_parts(station));
        if self.outbox.done.is_empty() {
            effects.extend(self.outbox.parts.due(self.meta.watermark_out, &self.outbox.chunks));
        }
    }

    /// The promises that hold from this commit on, one for every receiver on a retry edge.
    pub(super) fn promise(&mut self) -> Vec<Effect> {
        if self.runtime.options.edges == EdgeMode::Local {
            return Vec::new();
        }
        let mut told = Vec::new();
        for edge in &self.layout().outputs {
            for partition in 0..edge.to.1 {
                let to = Station { stage: edge.to.0, partition };
                let unacknowledged =
                    || self.outbox.blocks.values().filter(|block| block.edge == edge.id && block.to == to);
                let watermark = unacknowledged().map(|block| block.earliest).min();
                let stamp = unacknowledged().map(|block| block.stamp).min();
                let watermark = seams::promised_watermark(self.meta.watermark_out, watermark);
                let reclaim = seams::reclaim_promise(self.meta.stamper.next_possible(), stamp);
                let sender = (edge.id, self.station.partition);
                told.push(Effect::Tell(to, StreamMessage::Progress { sender, watermark, reclaim }));
            }
        }
        told
    }

    /// Too much is on its way to the next stages: no input is taken until they have caught up.
    pub(super) async fn is_congested(&mut self) -> Result<bool, Stop> {
        if self.outbox.bytes > OUTBOX_BYTES_MAX || self.outbox.slow.is_full() {
            return Ok(true);
        }
        let full: Vec<_> = self
            .outbox
            .in_flight
            .iter()
            .filter(|(_, blocks)| **blocks >= INBOX_BLOCKS_MAX)
            .map(|(at, _)| *at)
            .collect();
        for (edge, to) in full {
            let layout = self.layout().outputs[edge];
            let to_station = Station { stage: layout.to.0, partition: u16::try_from(to).expect("few partitions") };
            let producer = ProducerId::new(layout.id, self.station.partition, to_station.partition, 0);
            let scan = Scan::of(self.runtime.keys.inbox(to_station), INBOX_BLOCKS_MAX).prefix(producer.to_bytes());
            let waiting = self.runtime.records.scan(SHARD, scan).await?.rows.len();
            self.outbox.in_flight.insert((edge, to), waiting);
            if waiting >= INBOX_BLOCKS_MAX {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the outbox after a restart: everything in it is sent or written again, the same bytes.
    pub(super) async fn load_outbox(&mut self) -> Result<(), Stop> {
        let (mut after, mut effects) = (None, Vec::new());
        loop {
            let scan = Scan::of(self.runtime.keys.outbox(self.station), SCAN_ROWS_MAX).after(after);
            let page = self.runtime.records.scan(SHARD, scan).await?;
            after = page.rows.last().map(|(name, _)| name.clone());
            for (name, row) in page.rows {
                match name.as_bytes().split_first_chunk::<2>() {
                    Some((sink, rest)) if rest.len() == 8 => {
                        let chunk = SinkChunk::from_row(&row)?;
                        self.outbox.chunks.insert(name.clone(), (usize::from(u16::from_be_bytes(*sink)), chunk));
                        effects.push(Effect::Write(name));
                    }
                    _ => {
                        let block = seams::sent_again(RecordBlock::decode(row)?);
                        let (edge, partition) = (block.producer().edge(), block.producer().to());
                        let stage = self.layout().outputs.iter().find(|layout| layout.id == edge);
                        let stage = stage.ok_or(crate::StreamError::Damaged("a block has no edge"))?.to.0;
                        let (row, stamp, earliest) = (block.bytes().clone(), block.stamp(), block.earliest());
                        let to = Station { stage, partition };
                        self.outbox
                            .add_block(name.clone(), Unacknowledged { to, row, edge, stamp, earliest, sent_ms: None });
                        effects.push(Effect::Send(name));
                    }
                }
            }
            if !page.more {
                break;
            }
        }
        self.load_parts().await?;
        effects.extend(self.outbox.parts.due(self.meta.watermark_out, &self.outbox.chunks));
        effects.extend(self.promise());
        self.resume_sinks()?;
        self.outbox.committed(self.runtime.records.position(), effects);
        Ok(())
    }

    pub(super) fn sink_name(&self, sink: usize) -> &str {
        &self.layout().sinks[sink]
    }

    /// Lets every sink look at its place before anything is written there.
    fn resume_sinks(&mut self) -> Result<(), Stop> {
        for (sink, place) in self.meta.chunks.iter().enumerate() {
            let is_of = |(of, chunk): &&(usize, SinkChunk)| *of == sink && chunk.part.is_empty();
            let waiting = self.outbox.chunks.values().filter(is_of).map(|(_, chunk)| chunk.offset);
            let written = waiting.min().unwrap_or(place.offset);
            let resumed = self.outbox.writers[sink].resume("", written, place.offset);
            resumed.map_err(|error| io_error(self.sink_name(sink), error))?;
        }
        Ok(())
    }
}

fn is_same_sender(a: &StreamMessage, b: &StreamMessage) -> bool {
    matches!((a, b), (StreamMessage::Progress { sender: a, .. }, StreamMessage::Progress { sender: b, .. }) if a == b)
}
