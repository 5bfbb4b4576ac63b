//! How a partition takes input: from its source, from its inbox, or from the blocks that were received.

use super::{
    admission::Admission,
    keys::Station,
    meta::Published,
    options::EdgeMode,
    outbox::Effect,
    partition::{BUNDLE_BYTES, Partition, Program, SHARD, Stop},
    transport::StreamMessage,
};
use crate::{
    block::{RawRecord, RecordBlock},
    error::StreamError,
    event_time::EventTime,
    identity::Stamp,
    pipeline::source::ReadResult,
    seams,
};
use onceflow_core::{Key, Name, Row, limits::GET_KEYS_MAX};
use onceflow_store::records::{Scan, get_one};
use std::sync::atomic::Ordering::Relaxed;

/// Blocks of the inbox that one bundle takes.
const BLOCKS_MAX: usize = 64;

/// Blocks of the inbox that a watermark waits for; with more in the inbox, it is looked at again later.
const BLOCKS_SEEN_MAX: usize = 1024;

/// Received blocks that wait in memory, in bytes; further ones are dropped and come again.
const ARRIVED_BYTES_MAX: usize = 16 << 20;

/// Bytes of input that a source reads for one bundle: records that are combined or left out take no room among its outputs.
const INPUT_BYTES_MAX: u64 = 8 << 20;

impl Partition {
    /// Takes records until the bundle is full or there are none.
    pub(super) async fn take_input(&mut self, effects: &mut Vec<Effect>) -> Result<(), Stop> {
        let watermark = match (&self.program, self.runtime.options.edges) {
            (Program::Source(_), _) => Some(self.read_source(effects)?),
            (Program::Stage(_), EdgeMode::Local) => self.take_inbox().await?,
            (Program::Stage(_), EdgeMode::Retry) => {
                self.take_arrived(effects)?;
                self.hear_promises()
            }
        };
        self.read_cells().await?;
        self.judge_client_ids().await?;
        if let Program::Stage(program) = &mut self.program {
            program.run(&mut self.bundle, &mut self.cells)?;
        }
        if let Some(watermark) = watermark {
            self.meta.watermark_in = self.meta.watermark_in.max(watermark);
        }
        Ok(())
    }

    /// Records this bundle may still take, by all its bounds.
    fn has_room(&self, taken: usize) -> bool {
        taken < self.room.records
            && self.bundle.bytes < BUNDLE_BYTES
            && !self.bundle.has_many_chunks()
            && self.cells.touched() < self.room.state_rows
            && !matches!(&self.program, Program::Stage(program) if program.is_full())
            && self.bundle.problem.is_none()
    }

    fn read_source(&mut self, effects: &mut Vec<Effect>) -> Result<EventTime, Stop> {
        let (limit, mut taken) = (self.room.records, 0);
        let Program::Source(source) = &mut self.program else { unreachable!("the caller looked") };
        let (mut ended, mut is_full) = (false, true);
        let limit = if self.runtime.holds_sources.load(Relaxed) { 0 } else { limit };
        let read_before = source.bytes_read();
        while taken < limit
            && self.bundle.bytes < BUNDLE_BYTES
            && !self.bundle.has_many_chunks()
            && source.bytes_read().saturating_sub(read_before) < INPUT_BYTES_MAX
            && self.bundle.problem.is_none()
        {
            match source.read(&mut self.bundle)? {
                ReadResult::Read => taken += 1,
                ReadResult::Pending => {
                    is_full = false;
                    break;
                }
                ReadResult::Ended => {
                    (ended, is_full) = (true, false);
                    break;
                }
            }
        }
        match is_full {
            true if taken > 0 => {
                let (now, gather_ms) = (self.runtime.world.clock(), self.runtime.options.gather_ms);
                self.runtime.backlog.begin(self.station, now, gather_ms);
            }
            true => {}
            false => self.runtime.backlog.end(self.station),
        }
        if taken > 0 {
            let position = source.position();
            self.meta.positions[0] = seams::position(self.meta.positions[0].take(), position.clone());
            if seams::tells_source_early() {
                source.committed(&position)?;
            }
            effects.push(Effect::TellSource(position));
        }
        self.meta.counts.records_in += taken as u64;
        // The watermark of a source may follow the clock: windows of a paused pipeline stay open.
        if self.runtime.is_paused.load(Relaxed) {
            return Ok(self.meta.watermark_in);
        }
        Ok(if ended { EventTime::MAX } else { source.watermark() })
    }

    /// Takes blocks of the inbox. Returns the watermark of the input once everything that senders had committed when
    /// they published it was consumed.
    async fn take_inbox(&mut self) -> Result<Option<EventTime>, Stop> {
        let records = self.runtime.records.clone();
        let published = match &self.coming_watermark {
            Some(_) => None,
            None => Some(self.published_watermark().await?),
        };
        let inbox = self.runtime.keys.inbox(self.station);
        let mut blocks: Vec<(Name, Row)> = Vec::new();
        // The block that was consumed in part goes first, so that there is only one.
        if let Some((name, _)) = &self.meta.consumed {
            let name = Name::new(name);
            let row = get_one(&*records, SHARD, Key { group: inbox.clone(), name: name.clone() }).await?;
            blocks.push((name, row.ok_or(StreamError::Damaged("a block in use is gone"))?));
        }
        let limit = if published.is_some() { BLOCKS_SEEN_MAX } else { BLOCKS_MAX };
        let page = records.scan(SHARD, Scan::of(inbox, limit)).await?;
        self.rest.has_room &= !page.more && page.rows.len() <= BLOCKS_MAX;
        if let Some(watermark) = published.filter(|_| !page.more) {
            let names = page.rows.iter().map(|(name, _)| name.clone()).collect();
            self.coming_watermark = Some((watermark, names));
        }
        let first = blocks.first().map(|(name, _)| name.clone());
        blocks.extend(page.rows.into_iter().filter(|(name, _)| Some(name) != first.as_ref()).take(BLOCKS_MAX));
        self.take_blocks(blocks)?;
        if let Some((_, names)) = &mut self.coming_watermark {
            names.retain(|name| !self.consumed_rows.contains(name));
        }
        Ok(self.coming_watermark.take_if(|(_, names)| names.is_empty()).map(|(watermark, _)| watermark))
    }

    /// Returns the earliest watermark that senders have published.
    async fn published_watermark(&mut self) -> Result<EventTime, Stop> {
        let senders = self.layout().senders().map(|(_, station)| self.runtime.keys.published(station));
        let senders: Vec<Key> = senders.collect();
        let mut watermark = EventTime::MAX;
        for keys in senders.chunks(GET_KEYS_MAX) {
            for row in self.runtime.records.get(SHARD, keys).await? {
                let published = Published::from_row(row.as_ref());
                watermark =
                    watermark.min(published.ok_or(StreamError::Damaged("a watermark cannot be read"))?.watermark);
            }
        }
        Ok(watermark)
    }

    fn take_blocks(&mut self, blocks: Vec<(Name, Row)>) -> Result<(), Stop> {
        let mut taken = 0;
        for (name, row) in blocks {
            let block = RecordBlock::decode(row)?;
            let skipped = self.meta.consumed.take().map_or(0, |(_, skipped)| skipped);
            let (count, mut at) = (block.seqs().end - block.seqs().start, skipped);
            let port = self.port(&block)?;
            for record in block.records().skip(usize::try_from(skipped).unwrap_or(usize::MAX)) {
                if !self.has_room(taken) {
                    self.rest.has_room = false;
                    break;
                }
                self.offer(port, record)?;
                (taken, at) = (taken + 1, at + 1);
            }
            if at < count {
                self.meta.consumed = (at > 0).then(|| (name.as_bytes().to_vec(), at));
                return Ok(());
            }
            self.consumed_rows.push(name);
        }
        Ok(())
    }

    /// Returns the input that a block belongs to.
    fn port(&self, block: &RecordBlock) -> Result<usize, StreamError> {
        let edge = block.producer().edge();
        let port = self.layout().inputs.iter().find(|layout| layout.id == edge).map(|layout| layout.port);
        port.ok_or(StreamError::Damaged("a block came on an edge that does not lead here"))
    }

    #[inline]
    fn offer(&mut self, port: usize, record: RawRecord<'_>) -> Result<(), Stop> {
        let Program::Stage(program) = &mut self.program else { unreachable!("a source has no inputs") };
        self.meta.counts.records_in += 1;
        Ok(program.offer(&mut self.bundle, &mut self.cells, port, record.key, record.value, record.time)?)
    }

    /// Takes in messages.
    pub(super) async fn receive(&mut self) -> Result<(), Stop> {
        if self.runtime.options.edges == EdgeMode::Local {
            return Ok(());
        }
        for message in self.runtime.transport.receive(self.station).await? {
            match message {
                StreamMessage::Acknowledged { producer, first } => self.acknowledged(producer, first),
                StreamMessage::Progress { sender, watermark, reclaim } => {
                    let promise = self.promises.entry(sender).or_insert((EventTime::MIN, Stamp::ZERO));
                    *promise = (promise.0.max(watermark), promise.1.max(reclaim));
                }
                StreamMessage::Records(row) => {
                    let waiting: usize = self.arrived.iter().map(|block| block.bytes().len()).sum();
                    if waiting < ARRIVED_BYTES_MAX {
                        let block = RecordBlock::decode(row)?;
                        if seams::acknowledges_on_arrival() {
                            let (to, told) = self.acknowledgement(&block)?;
                            self.runtime.transport.send(to, told).await?;
                        }
                        self.arrived.push_back(block);
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes received blocks; the catalog decides which of their records are new. Every block is acknowledged once this
    /// bundle is durable, copies and remnants too: otherwise they would come for ever.
    fn take_arrived(&mut self, effects: &mut Vec<Effect>) -> Result<(), Stop> {
        let mut taken = 0;
        while let Some(block) = self.arrived.front().cloned() {
            let before = taken;
            if !self.take_block(&block, &mut taken)? {
                return Ok(());
            }
            self.arrived.pop_front();
            self.arrived_consumed = 0;
            if seams::acknowledges(taken == before) {
                let (to, told) = self.acknowledgement(&block)?;
                effects.push(Effect::Tell(to, told));
            }
        }
        Ok(())
    }

    /// The acknowledgement of a block, and where it goes.
    fn acknowledgement(&self, block: &RecordBlock) -> Result<(Station, StreamMessage), StreamError> {
        let producer = block.producer();
        let edge = self.layout().inputs.iter().find(|edge| edge.id == producer.edge());
        let stage = edge.ok_or(StreamError::Damaged("a block came on an edge that does not lead here"))?.from.0;
        let told = StreamMessage::Acknowledged { producer, first: block.seqs().start };
        Ok((Station { stage, partition: producer.from() }, told))
    }

    /// Consumes one block; false if the bundle is full before its end.
    fn take_block(&mut self, block: &RecordBlock, taken: &mut usize) -> Result<bool, Stop> {
        let count = block.seqs().end - block.seqs().start;
        if count == 0 {
            self.meta.ended_senders.insert((block.producer().edge(), block.producer().from()));
            return Ok(true);
        }
        let deduplicates = self.runtime.options.deduplicate;
        let admission = match deduplicates {
            true if self.arrived_consumed == 0 => self.catalog.admit(block, self.meta.reclaimed),
            true => Admission::Mixed,
            false => Admission::New,
        };
        if admission == Admission::Remnant {
            self.meta.counts.remnants += count;
            return Ok(true);
        }
        let port = self.port(block)?;
        let start = block.seqs().start + self.arrived_consumed;
        for record in block.records().skip(usize::try_from(self.arrived_consumed).unwrap_or(usize::MAX)) {
            if !self.has_room(*taken) {
                self.rest.has_room = false;
                self.catalog_add(block, start..record.seq);
                return Ok(false);
            }
            self.arrived_consumed += 1;
            if admission == Admission::Mixed && self.catalog.contains(block, record.seq) {
                self.meta.counts.duplicates += 1;
                continue;
            }
            *taken += 1;
            self.offer(port, record)?;
        }
        self.catalog_add(block, start..block.seqs().end);
        Ok(true)
    }

    fn catalog_add(&mut self, block: &RecordBlock, seqs: std::ops::Range<u64>) {
        if self.runtime.options.deduplicate && seams::catalogs_ids() {
            self.catalog.add(block, seams::consumed_ids(seqs));
        }
    }

    /// Returns the watermark that all senders have promised, and advances the reclaim watermark.
    fn hear_promises(&mut self) -> Option<EventTime> {
        let (mut watermark, mut reclaim) = (EventTime::MAX, Stamp::NEVER);
        for (edge, station) in self.layout().senders() {
            let sender = (edge, station.partition);
            if self.meta.ended_senders.contains(&sender) {
                continue;
            }
            let promise = self.promises.get(&sender).copied().unwrap_or((EventTime::MIN, Stamp::ZERO));
            (watermark, reclaim) = (watermark.min(promise.0), reclaim.min(promise.1));
        }
        if reclaim < Stamp::NEVER {
            self.meta.reclaimed = self.meta.reclaimed.max(reclaim);
        }
        Some(watermark)
    }
}
