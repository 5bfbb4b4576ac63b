//! The contract of sinks.

use crate::{EventTime, SinkChunk, SinkWriter, StreamSink, WriteProgress};
use std::collections::BTreeMap;

/// The promise of a sink about a chunk that comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkPromise {
    /// Its records are there once.
    ExactlyOnce,
    /// They may be there twice, in order.
    AtLeastOnce,
}

/// A sink under test, and the place it writes to.
pub trait SinkBed {
    /// The sink.
    type Sink: StreamSink;

    /// Makes a place that no sink has written to, and forgets the last one.
    fn clear(&mut self);
    /// Makes the sink anew, as another process would.
    fn sink(&self) -> Self::Sink;
    /// Returns the lines that a partition of so many has written to a part (empty if the sink has no parts), in order.
    fn lines(&self, part: &str, partition: u16, of: u16) -> Vec<String>;
    /// Puts something of another into the place of partition 0 of one; false if it has no such place.
    fn spoil(&mut self, part: &str) -> bool;
}

/// Checks a sink. Its records are lines of JSON: `{"n":1}`.
///
/// # Errors
/// The first thing that breaks the contract.
pub async fn check(bed: &mut impl SinkBed, promise: SinkPromise) -> Result<(), String> {
    let chunks = chunks(&bed.sink(), 0)?;
    bed.clear();
    let mut writer = Writer::open(&bed.sink(), (0, 1), &BTreeMap::new(), &BTreeMap::new())?;
    for chunk in &chunks {
        writer.write(chunk).await?;
    }
    drop(writer);
    wrote(bed, &chunks, (0, 1), SinkPromise::ExactlyOnce, "written once")?;
    for at in 0..chunks.len() {
        bed.clear();
        killed_behind(bed, &chunks, at, promise).await.map_err(|why| format!("killed behind chunk {at}: {why}"))?;
    }
    partitions(bed).await?;
    for part in parts(&chunks).into_keys() {
        bed.clear();
        if bed.spoil(&part) {
            refuses(bed, &chunks, &part).await?;
        }
    }
    Ok(())
}

/// Makes some chunks for a partition; for a sink with parts, of two parts, mixed.
fn chunks(sink: &impl StreamSink, first: u64) -> Result<Vec<SinkChunk>, String> {
    let day = |day: i64| EventTime(1_767_225_600_000 + day * 86_400_000);
    let names = match sink.parts() {
        None => vec![String::new()],
        Some(parts) => {
            let [a, b] = [day(0), day(400)].map(|time| parts.of(time));
            let (a, b) = (a?, b?);
            if a.name == b.name {
                return Err(String::from("two times that are 400 days apart are one part"));
            }
            vec![a.name, b.name]
        }
    };
    let mut ends: BTreeMap<&str, (u64, u32)> = BTreeMap::new();
    let mut chunks = Vec::new();
    for number in 0..5u64 {
        let part = &names[usize::try_from(number).unwrap_or(0) % names.len()];
        let lines = (0..=number % 3).map(|line| format!("{{\"n\":{}}}\n", first + number * 10 + line));
        let bytes: String = lines.collect();
        let (offset, crc_before) = ends.get(part.as_str()).copied().unwrap_or_default();
        let mut hasher = crc32fast::Hasher::new_with_initial_len(crc_before, offset);
        hasher.update(bytes.as_bytes());
        ends.insert(part, (offset + bytes.len() as u64, hasher.finalize()));
        chunks.push(SinkChunk { part: part.clone(), number, offset, crc_before, bytes: bytes.into_bytes().into() });
    }
    Ok(chunks)
}

/// Returns the bytes of each part up to a chunk.
fn parts(chunks: &[SinkChunk]) -> BTreeMap<String, u64> {
    chunks.iter().map(|chunk| (chunk.part.clone(), chunk.offset + chunk.bytes.len() as u64)).collect()
}

struct Writer(Box<dyn SinkWriter>);

impl Writer {
    /// Opens a sink whose parts have so many bytes that are noted as written, and that were committed.
    fn open(
        sink: &impl StreamSink,
        (partition, of): (u16, u16),
        written: &BTreeMap<String, u64>,
        committed: &BTreeMap<String, u64>,
    ) -> Result<Self, String> {
        let mut writer = sink.open(partition, of).map_err(|error| format!("it is not opened: {error}"))?;
        let has_parts = sink.parts().is_some();
        let mut resumed = committed.clone();
        if !has_parts {
            resumed.entry(String::new()).or_insert(0);
        }
        for (part, committed) in resumed {
            let written = written.get(&part).copied().unwrap_or(0);
            let resumed = writer.resume(&part, written, committed);
            resumed
                .map_err(|error| format!("it does not resume {part:?} at {written} of {committed} bytes: {error}"))?;
        }
        Ok(Writer(writer))
    }

    async fn write(&mut self, chunk: &SinkChunk) -> Result<(), String> {
        let failed = |error| format!("chunk {} is not written: {error}", chunk.number);
        match self.0.begin_write(chunk).map_err(failed)? {
            WriteProgress::Done => Ok(()),
            WriteProgress::Going(write) => write.await.map_err(failed),
        }
    }
}

/// Writes the chunks up to one, dies, and goes on: from that chunk, which may not be noted as written, and from one before.
async fn killed_behind(
    bed: &mut impl SinkBed,
    chunks: &[SinkChunk],
    at: usize,
    promise: SinkPromise,
) -> Result<(), String> {
    let mut writer = Writer::open(&bed.sink(), (0, 1), &BTreeMap::new(), &BTreeMap::new())?;
    for chunk in &chunks[..=at] {
        writer.write(chunk).await?;
    }
    drop(writer);
    for back in 0..2 {
        let from = at.saturating_sub(back);
        let mut writer = Writer::open(&bed.sink(), (0, 1), &parts(&chunks[..from]), &parts(&chunks[..=at]))?;
        for chunk in &chunks[from..=at] {
            writer.write(chunk).await?;
        }
        // The same worker may write a chunk again, too.
        writer.write(&chunks[at]).await?;
    }
    let mut writer = Writer::open(&bed.sink(), (0, 1), &parts(&chunks[..=at]), &parts(&chunks[..=at]))?;
    for chunk in &chunks[at + 1..] {
        writer.write(chunk).await?;
    }
    for part in parts(chunks).into_keys() {
        // A sealed part takes a late chunk again, and sealing is repeated after a crash.
        for _ in 0..2 {
            writer.0.seal(&part).map_err(|error| format!("{part:?} is not sealed: {error}"))?;
        }
    }
    drop(writer);
    wrote(bed, chunks, (0, 1), promise, "after the kill")
}

/// Partitions do not write over each other.
async fn partitions(bed: &mut impl SinkBed) -> Result<(), String> {
    bed.clear();
    let of = [chunks(&bed.sink(), 0)?, chunks(&bed.sink(), 1000)?];
    for (partition, chunks) in (0..).zip(&of) {
        let mut writer = Writer::open(&bed.sink(), (partition, 2), &BTreeMap::new(), &BTreeMap::new())?;
        for chunk in chunks {
            writer.write(chunk).await?;
        }
    }
    for (partition, chunks) in (0..).zip(&of) {
        wrote(bed, chunks, (partition, 2), SinkPromise::ExactlyOnce, &format!("in partition {partition}"))?;
    }
    Ok(())
}

/// A place with the bytes of another is refused, before or with the first chunk, and left as it is.
async fn refuses(bed: &mut impl SinkBed, chunks: &[SinkChunk], part: &str) -> Result<(), String> {
    let before = bed.lines(part, 0, 1);
    let first = chunks.iter().find(|chunk| chunk.part == part).ok_or("there is no chunk of the part")?;
    let committed = [(part.to_owned(), 0)].into_iter().collect();
    let is_refused = match Writer::open(&bed.sink(), (0, 1), &BTreeMap::new(), &committed) {
        Ok(mut writer) => writer.write(first).await.is_err(),
        Err(_) => true,
    };
    match (is_refused, bed.lines(part, 0, 1) == before) {
        (true, true) => Ok(()),
        (false, _) => Err(String::from("it writes to a place that holds the bytes of another")),
        (true, false) => Err(String::from("it refuses a place, and has changed it")),
    }
}

/// The lines of chunks are where they belong.
fn wrote(
    bed: &impl SinkBed,
    chunks: &[SinkChunk],
    (partition, of): (u16, u16),
    promise: SinkPromise,
    when: &str,
) -> Result<(), String> {
    for part in parts(chunks).into_keys() {
        let of_part = chunks.iter().filter(|chunk| chunk.part == part);
        let texts = of_part.map(|chunk| String::from_utf8_lossy(&chunk.bytes).into_owned());
        let wanted: Vec<String> = texts.collect::<String>().lines().map(str::to_owned).collect();
        let mut found = bed.lines(&part, partition, of);
        if promise == SinkPromise::AtLeastOnce {
            let mut seen = Vec::new();
            found.retain(|line| {
                let is_new = !seen.contains(line);
                seen.push(line.clone());
                is_new
            });
        }
        if found != wanted {
            return Err(format!("{when}, {part:?} holds {found:?}, and not {wanted:?}"));
        }
    }
    Ok(())
}
