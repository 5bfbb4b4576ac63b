//! The contract of sources that deliver a record again until they hear that it is durable: clients that wait for an
//! answer, or a broker.

use crate::{EventTime, NextRecord, SplitReader, StreamSource};
use onceflow_store::{World, world::RealWorld};
use std::{collections::BTreeSet, ops::Range};

/// Records of a round.
const RECORDS: u64 = 12;

/// A source under test, and those who send to it.
pub trait SenderBed {
    /// The source.
    type Source: StreamSource;

    /// Makes the source anew, as another process would. Senders whose records are not acknowledged send on.
    fn source(&mut self) -> Self::Source;
    /// Begins to send the record of a number, and sends it again until it is acknowledged. A number that was sent before
    /// is a copy: its sender lost the answer, and waits for another.
    fn send(&mut self, number: u64);
    /// Returns the number of a record.
    fn number(&self, record: &<Self::Source as StreamSource>::Item) -> u64;
    /// The sender of the last copy of this number knows that the record is durable.
    fn is_acknowledged(&self, number: u64) -> bool;
}

/// Checks a source of one split that delivers its records until they are acknowledged. A record that has not come after
/// `patience_ms` is missing, and so is an acknowledgement.
///
/// # Errors
/// The first thing that breaks the contract.
pub async fn check(bed: &mut impl SenderBed, patience_ms: u64) -> Result<(), String> {
    let splits = bed.source().splits();
    if splits != 1 {
        return Err(format!("it has {splits} splits, and the suite knows what is sent to one only"));
    }
    dies_before_commit(bed, patience_ms).await?;
    let position = commits_in_part(bed, patience_ms).await?;
    copies(bed, &position, patience_ms).await
}

/// The numbers of a round.
fn numbers(round: u64) -> Range<u64> {
    round * RECORDS..(round + 1) * RECORDS
}

/// A worker that reads everything and dies before its commit has acknowledged nothing: the next one reads it again.
async fn dies_before_commit(bed: &mut impl SenderBed, patience_ms: u64) -> Result<(), String> {
    let source = bed.source();
    let mut reader = Reading::open(&source, None, patience_ms)?;
    numbers(0).for_each(|number| bed.send(number));
    reader.read(bed, numbers(0).collect()).await?;
    not_acknowledged(bed, numbers(0), "before it was durable")?;
    if let NextRecord::Ended = reader.look()? {
        return Err(String::from("it has ended before its records were acknowledged"));
    }
    drop((reader, source));
    let source = bed.source();
    let mut reader = Reading::open(&source, None, patience_ms)?;
    reader.read(bed, numbers(0).collect()).await.map_err(|why| format!("after a worker died: {why}"))?;
    not_acknowledged(bed, numbers(0), "because a worker died")?;
    reader.commit(&reader.reader.position())?;
    acknowledged(bed, numbers(0), patience_ms).await
}

/// A commit acknowledges what was read before its position, and nothing else. Answers the position.
async fn commits_in_part(bed: &mut impl SenderBed, patience_ms: u64) -> Result<Vec<u8>, String> {
    let source = bed.source();
    let mut reader = Reading::open(&source, None, patience_ms)?;
    numbers(1).for_each(|number| bed.send(number));
    let mut before = BTreeSet::new();
    while before.len() < numbers(1).count() / 2 {
        before.extend(reader.next(bed).await?);
    }
    let position = reader.reader.position();
    let after: BTreeSet<u64> = numbers(1).filter(|number| !before.contains(number)).collect();
    reader.read(bed, after.clone()).await?;
    reader.commit(&position)?;
    acknowledged(bed, before.iter().copied(), patience_ms).await?;
    not_acknowledged(bed, after.iter().copied(), "by the commit of a position before it")?;
    drop((reader, source));
    let source = bed.source();
    let mut reader = Reading::open(&source, Some(&position), patience_ms)?;
    let again = reader.read(bed, after.clone()).await;
    again.map_err(|why| format!("opened at a position that was committed: {why}"))?;
    let position = reader.reader.position();
    reader.commit(&position)?;
    acknowledged(bed, after, patience_ms).await?;
    Ok(position)
}

/// A copy of a record that is durable is acknowledged like any other: its sender would send it for ever.
async fn copies(bed: &mut impl SenderBed, position: &[u8], patience_ms: u64) -> Result<(), String> {
    let source = bed.source();
    let mut reader = Reading::open(&source, Some(position), patience_ms)?;
    numbers(0).for_each(|number| bed.send(number));
    for _ in 0..patience_ms {
        // The source may give the copies, or know them itself.
        while let NextRecord::Record(..) | NextRecord::Skipped = reader.look()? {}
        // A commit may be told again.
        for _ in 0..2 {
            reader.commit(&reader.reader.position())?;
        }
        if numbers(0).all(|number| bed.is_acknowledged(number)) {
            return Ok(());
        }
        RealWorld::here().sleep(1).await;
    }
    Err(String::from("a copy of a record that is durable is never acknowledged"))
}

struct Reading<T> {
    reader: Box<dyn SplitReader<T>>,
    watermark: EventTime,
    patience_ms: u64,
}

impl<T> Reading<T> {
    fn open(source: &impl StreamSource<Item = T>, position: Option<&[u8]>, patience_ms: u64) -> Result<Self, String> {
        let reader = source.open(0, position).map_err(|error| format!("it is not opened: {error}"))?;
        Ok(Reading { watermark: reader.watermark(), reader, patience_ms })
    }

    fn look(&mut self) -> Result<NextRecord<T>, String> {
        let next = self.reader.next().map_err(|error| error.to_string())?;
        let watermark = self.reader.watermark();
        if watermark < self.watermark {
            return Err(format!("the watermark went back from {} to {watermark}", self.watermark));
        }
        self.watermark = watermark;
        Ok(next)
    }

    /// Returns the number of the next record, if it has one before its end.
    async fn next<B: SenderBed<Source: StreamSource<Item = T>>>(&mut self, bed: &B) -> Result<Option<u64>, String> {
        for _ in 0..self.patience_ms {
            match self.look()? {
                NextRecord::Record(record, _) => return Ok(Some(bed.number(&record))),
                NextRecord::Ended => return Err(String::from("it has ended before its records were acknowledged")),
                NextRecord::Skipped => return Ok(None),
                NextRecord::Pending => RealWorld::here().sleep(1).await,
            }
        }
        Err(format!("no record has come for {} ms", self.patience_ms))
    }

    /// Reads until every one of these records has come, in any order and any number of times.
    async fn read<B: SenderBed<Source: StreamSource<Item = T>>>(
        &mut self,
        bed: &B,
        mut wanted: BTreeSet<u64>,
    ) -> Result<(), String> {
        while !wanted.is_empty() {
            let next = self.next(bed).await.map_err(|why| format!("waiting for the records {wanted:?}: {why}"))?;
            next.map(|number| wanted.remove(&number));
        }
        Ok(())
    }

    fn commit(&mut self, position: &[u8]) -> Result<(), String> {
        self.reader.committed(position).map_err(|error| format!("a commit is not taken: {error}"))
    }
}

async fn acknowledged(
    bed: &impl SenderBed,
    numbers: impl IntoIterator<Item = u64>,
    patience_ms: u64,
) -> Result<(), String> {
    let mut waiting: Vec<u64> = numbers.into_iter().collect();
    for _ in 0..patience_ms {
        waiting.retain(|number| !bed.is_acknowledged(*number));
        if waiting.is_empty() {
            return Ok(());
        }
        RealWorld::here().sleep(1).await;
    }
    Err(format!("the records {waiting:?} are durable, and are not acknowledged"))
}

fn not_acknowledged(bed: &impl SenderBed, numbers: impl IntoIterator<Item = u64>, when: &str) -> Result<(), String> {
    match numbers.into_iter().find(|number| bed.is_acknowledged(*number)) {
        Some(number) => Err(format!("record {number} was acknowledged {when}")),
        None => Ok(()),
    }
}
