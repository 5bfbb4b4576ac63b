//! The contract of sources.

use crate::{EventTime, NextRecord, SplitReader, StreamSource};
use std::fmt::Debug;

/// Records that are read of one split, at most: a source under test is small, and ends.
const RECORDS_MAX: usize = 10_000;

/// Times that a reader may have no record before it is taken to be stuck.
const PENDING_MAX: usize = 1_000_000;

/// The promise of a source about its records and its watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lateness {
    /// No record is earlier than a watermark that was told before.
    OnTime,
    /// Some may be.
    Allowed,
}

/// Checks a source that ends and can be read again from any position. `make` makes it anew, as another process would.
///
/// # Errors
/// The first thing that breaks the contract.
pub fn check<S: StreamSource>(make: impl Fn() -> S, lateness: Lateness) -> Result<(), String>
where
    S::Item: PartialEq + Debug,
{
    let splits = make().splits();
    if make().splits() != splits {
        return Err(String::from("it has another number of splits when it is opened again"));
    }
    (0..splits).try_for_each(|split| check_split(&make, split, lateness).map_err(|why| format!("split {split}: {why}")))
}

/// A record, and the position behind it.
type ReadRecord<T> = (T, EventTime, Vec<u8>);

fn check_split<S: StreamSource>(make: &impl Fn() -> S, split: u16, lateness: Lateness) -> Result<(), String>
where
    S::Item: PartialEq + Debug,
{
    let open =
        |position: Option<&[u8]>| make().open(split, position).map_err(|error| format!("it is not opened: {error}"));
    let mut reader = open(None)?;
    let start = reader.position();
    let all = read_all(&mut *reader, lateness)?;
    let end = reader.position();
    if reader.next().map_err(|error| error.to_string())? != NextRecord::Ended || reader.position() != end {
        return Err(String::from("after its end it has another record, or another position"));
    }
    // The reader still lives, as that of a worker that lost its partition does.
    let same = |found: &[ReadRecord<S::Item>], from: usize, after: &str| {
        let wanted = &all[from..];
        let differs = found.iter().zip(wanted).position(|(a, b)| (&a.0, a.1) != (&b.0, b.1));
        match differs {
            Some(at) => Err(format!(
                "opened {after}, record {} is {:?} at {}, and was {:?} at {}",
                from + at,
                found[at].0,
                found[at].1,
                wanted[at].0,
                wanted[at].1
            )),
            None if found.len() != wanted.len() => {
                Err(format!("opened {after}, it has {} records, and had {}", found.len(), wanted.len()))
            }
            None => Ok(()),
        }
    };
    same(&read_all(&mut *open(None)?, lateness)?, 0, "again")?;
    same(&read_all(&mut *open(Some(&start))?, lateness)?, 0, "at the position before its first record")?;
    for (at, (_, _, position)) in all.iter().enumerate() {
        let mut reader = open(Some(position))?;
        let found = read_all(&mut *reader, lateness)?;
        same(&found, at + 1, &format!("at the position behind record {at}"))?;
        if let Some((_, _, again)) = found.first()
            && open(Some(again))?.next().map_err(|error| error.to_string())? == NextRecord::Ended
            && at + 2 < all.len()
        {
            return Err(format!("a position that was told after going on from record {at} leads to the end"));
        }
    }
    same(&read_all(&mut *open(Some(&end))?, lateness)?, all.len(), "at its end")
}

fn read_all<T: Debug>(reader: &mut dyn SplitReader<T>, lateness: Lateness) -> Result<Vec<ReadRecord<T>>, String> {
    let (mut all, mut pending) = (Vec::new(), 0);
    let (mut watermark, mut bytes) = (reader.watermark(), reader.bytes_read());
    loop {
        match reader.next().map_err(|error| format!("after {} records: {error}", all.len()))? {
            NextRecord::Record(record, time) => {
                if lateness == Lateness::OnTime && time < watermark {
                    return Err(format!("record {} has time {time}, and the watermark was {watermark}", all.len()));
                }
                all.push((record, time, reader.position()));
            }
            NextRecord::Skipped => {}
            NextRecord::Pending => {
                pending += 1;
                std::thread::yield_now();
            }
            NextRecord::Ended => return Ok(all),
        }
        if reader.watermark() < watermark {
            return Err(format!("the watermark went back from {watermark} to {}", reader.watermark()));
        }
        if reader.bytes_read() < bytes {
            return Err(format!("it has read {} bytes, and {bytes} before", reader.bytes_read()));
        }
        (watermark, bytes) = (reader.watermark(), reader.bytes_read());
        if all.len() > RECORDS_MAX || pending > PENDING_MAX {
            return Err(format!("it does not end: {} records so far", all.len()));
        }
    }
}
