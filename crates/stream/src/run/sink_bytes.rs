//! The bytes that sinks were given, by length and checksum: enough to know whether a file is what a pipeline wrote, and so
//! may be replaced when the pipeline begins anew.

use super::{
    installed::InstalledPlan,
    keys::{Station, StreamKeys},
    meta::{ChunkPlace, Meta},
    partition::SHARD,
    sink_parts::{PartPlace, part_of, place_of},
    worker::StreamResult,
};
use crate::{
    data,
    error::StreamError,
    pipeline::sink::{SinkChunk, is_same_but_for_hole},
};
use onceflow_core::{Row, limits::SCAN_ROWS_MAX};
use onceflow_store::{
    Records,
    records::{Scan, get_one},
};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{Read, Result as IoResult},
    path::Path,
};

/// Bytes of a file that are compared at a time.
const PIECE_BYTES: usize = 64 << 10;

/// All bytes that one partition gave to a sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkTotal {
    /// The sink.
    pub sink: String,
    /// The part of the sink, such as the file of a day; empty if it has none.
    pub part: String,
    /// The partition.
    pub partition: u16,
    /// The number of partitions.
    pub of: u16,
    /// The number of bytes.
    pub bytes: u64,
    /// Their CRC-32.
    pub crc: u32,
}

impl SinkTotal {
    pub(crate) fn new(sink: String, partition: u16, of: u16, place: ChunkPlace) -> Self {
        SinkTotal { sink, part: String::new(), partition, of, bytes: place.offset, crc: place.crc }
    }
}

/// The bytes that one partition gave to a sink, of which the last may not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkBytes {
    /// All of them.
    pub total: SinkTotal,
    /// Chunks that may be written, in part or not at all.
    waiting: Vec<SinkChunk>,
}

impl SinkBytes {
    /// The file holds these bytes, or the first of them up to a chunk that may not be written, and nothing else.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn wrote(&self, path: &Path) -> IoResult<bool> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let places = self.waiting.iter().map(|chunk| (chunk.offset, chunk.crc_before, chunk.bytes.clone()));
        let end = (self.total.bytes, self.total.crc, Row::default());
        let Some((offset, crc, bytes)) = places.chain([end]).rfind(|(offset, ..)| *offset <= length) else {
            return Ok(false);
        };
        let (mut hasher, mut left, mut piece) = (crc32fast::Hasher::new(), offset, vec![0; PIECE_BYTES]);
        while left > 0 {
            let read = file.read(&mut piece[..PIECE_BYTES.min(usize::try_from(left).unwrap_or(PIECE_BYTES))])?;
            if read == 0 {
                return Ok(false);
            }
            hasher.update(&piece[..read]);
            left -= read as u64;
        }
        let mut rest = Vec::new();
        file.take(bytes.len() as u64 + 1).read_to_end(&mut rest)?;
        Ok(hasher.finalize() == crc && is_same_but_for_hole(&rest, &bytes))
    }
}

/// Returns the bytes that a pipeline gave to its sinks; none if the store has no pipeline of this name.
///
/// # Errors
/// If the store does not answer, or its rows are damaged.
pub async fn sink_bytes(records: &dyn Records, name: &str) -> Result<Vec<SinkBytes>, StreamError> {
    let keys = StreamKeys::new(name);
    let Some(row) = get_one(records, SHARD, keys.plan()).await? else { return Ok(Vec::new()) };
    let installed = InstalledPlan::from_row(name, &row)?;
    let mut all = Vec::new();
    let result = get_one(records, SHARD, keys.result()).await?;
    if let Some(row) = &result {
        let totals = data::decode::<StreamResult>(row)?.sinks;
        all.extend(totals.into_iter().map(|total| SinkBytes { total, waiting: Vec::new() }));
    }
    for stage in &installed.stages {
        let (of, sinks) = (stage.partitions, stage.sinks().map(str::to_owned).collect::<Vec<_>>());
        for station in stage.stations().filter(|_| !sinks.is_empty()) {
            let chunks = waiting_chunks(records, &keys, station, sinks.len()).await?;
            let waiting_of = |sink: usize, part: &str| -> Vec<SinkChunk> {
                chunks[sink].iter().filter(|chunk| chunk.part == part).cloned().collect()
            };
            for (sink, part, place) in parts(records, &keys, station).await? {
                let name = sinks.get(sink).ok_or(StreamError::Damaged("a part belongs to no sink"))?;
                let place = ChunkPlace { number: 0, offset: place.offset, crc: place.crc };
                let mut total = SinkTotal::new(name.clone(), station.partition, of, place);
                let waiting = waiting_of(sink, &part);
                total.part = part;
                all.push(SinkBytes { total, waiting });
            }
            let Some(row) = get_one(records, SHARD, keys.meta(station)).await? else { continue };
            for (sink, (name, place)) in sinks.iter().zip(Meta::from_row(&row)?.chunks).enumerate() {
                let total = SinkTotal::new(name.clone(), station.partition, of, place);
                all.push(SinkBytes { total, waiting: waiting_of(sink, "") });
            }
        }
    }
    Ok(all)
}

/// Returns the chunks in the outbox of a partition, for each of its sinks.
async fn waiting_chunks(
    records: &dyn Records,
    keys: &StreamKeys,
    station: Station,
    sinks: usize,
) -> Result<Vec<Vec<SinkChunk>>, StreamError> {
    let (mut waiting, mut after) = (vec![Vec::new(); sinks], None);
    loop {
        let page = records.scan(SHARD, Scan::of(keys.outbox(station), SCAN_ROWS_MAX).after(after)).await?;
        after = page.rows.last().map(|(name, _)| name.clone());
        for (name, row) in page.rows {
            if let Some((sink, [_, _, _, _, _, _, _, _])) = name.as_bytes().split_first_chunk::<2>()
                && let Some(of_sink) = waiting.get_mut(usize::from(u16::from_be_bytes(*sink)))
            {
                of_sink.push(SinkChunk::from_row(&row)?);
            }
        }
        if !page.more {
            return Ok(waiting);
        }
    }
}

/// Returns the parts of the sinks of a partition, each with the number of its sink.
async fn parts(
    records: &dyn Records,
    keys: &StreamKeys,
    station: Station,
) -> Result<Vec<(usize, String, PartPlace)>, StreamError> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = records.scan(SHARD, Scan::of(keys.sink_parts(station), SCAN_ROWS_MAX).after(after)).await?;
        after = page.rows.last().map(|(name, _)| name.clone());
        for (name, row) in page.rows {
            let (sink, part) = part_of(&name).ok_or(StreamError::Damaged("the row of a sink's part has no name"))?;
            found.push((sink, part, place_of(&row)?));
        }
        if !page.more {
            return Ok(found);
        }
    }
}
