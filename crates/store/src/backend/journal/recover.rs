//! Opens the files that a journal left, however it ended.
//!
//! Every frame carries the position that was known durable when it was written, and a small marker file carries the
//! last one. Where the log becomes unreadable *above* the highest such position, a crash tore frames that were never
//! acknowledged: they are cut off, with all behind them, since unsynced frames reach the disk in any order. Where it
//! becomes unreadable *at or below*, acknowledged batches are missing: that is damage, and opening is refused.
//!
//! Undetected: damage inside the last synced group, if the marker that named it was lost in a power failure. Then the
//! group looks torn.

use super::{
    ExpectedStore, OpenError, codec,
    files::{Files, StoreFile},
    format::{
        BadHeader, FileKind, FrameHeader, FrameKind, HEADER_BYTES, Header, MARKER_NAME, UNFINISHED, VERSION,
        decode_marker, parse_name,
    },
    segment::{Segment, write_zeros},
    snapshot,
};
use crate::{records::Position, state::StoreState};
use onceflow_core::Timestamp;
use std::path::PathBuf;

/// The files that hold the rows of a journal, for messages.
const FILE_NAMES: &str = "`log-*`, `snap-*`, `durable`";

const DAMAGE_HINT: &str = "batches that were acknowledged are missing here. Keep a copy of the directory, then restore a backup. If the \
                           damage is in a log, `Options::on_damage = OnDamage::LoseTheRest` opens the copy with what stands before this \
                           place";

/// The reaction to damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDamage {
    /// Do not open; change nothing.
    #[default]
    Refuse,
    /// Go on with the log before the damage. **Batches that were acknowledged are lost.** Only for a copy.
    LoseTheRest,
}

/// The result of opening a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The directory held no store and a new one was made.
    pub is_new: bool,
    /// How many rows are there.
    pub rows: u64,
    /// How many batches were replayed on top of the snapshot.
    pub batches_replayed: u64,
    /// The half-written end of the log that a crash had left, and that was cut off.
    pub torn: Option<Torn>,
}

/// The end of a log that a crash left half written. None of it had been acknowledged as durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// In which file.
    pub file: PathBuf,
    /// From where on.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// A journal's content, ready to go on.
pub(super) struct Opened {
    pub(super) store: u128,
    pub(super) state: StoreState,
    /// The last position, applied and durable.
    pub(super) position: Position,
    /// The store's clock must give no earlier time.
    pub(super) time: Timestamp,
    /// The place to go on; `None` in a new store, or one with nothing but a snapshot.
    pub(super) segment: Option<Segment>,
    /// Bytes of log that the next opening would replay.
    pub(super) log_bytes: u64,
    /// Files that are no longer needed.
    pub(super) obsolete: Vec<String>,
    /// Everything is known to be on the disk, the names of the files too: then opening writes nothing.
    pub(super) is_secured: bool,
    pub(super) recovered: Recovered,
}

impl Opened {
    /// A new store.
    pub(super) fn nothing(store: u128) -> Self {
        Opened {
            store,
            state: StoreState::new(),
            position: Position(0),
            time: Timestamp::ZERO,
            segment: None,
            log_bytes: 0,
            obsolete: vec![],
            is_secured: false,
            recovered: Recovered { is_new: true, ..Recovered::default() },
        }
    }
}

struct LogFile {
    name: String,
    first: Position,
    bytes: Vec<u8>,
}

pub(super) fn recover(files: &dyn Files, on_damage: OnDamage) -> Result<Option<Opened>, OpenError> {
    let listing = Listing::read(files)?;
    let mut opened = Opened { obsolete: listing.unfinished, recovered: Recovered::default(), ..Opened::nothing(0) };
    let mut whole_at = Position(0);
    if let Some((position, older)) = listing.snapshots.split_last() {
        let read = snapshot::read(files, *position)?;
        (opened.store, opened.state, opened.time) = (read.store, read.state, read.time);
        (opened.position, whole_at) = (*position, read.whole_at);
        opened.obsolete.extend(older.iter().map(|position| super::format::snapshot_name(*position)));
    }
    let mut logs = read_logs(files, &listing.logs)?;
    // A log is needed if the one behind it begins after what the snapshot lacks.
    while logs.len() > 1 && logs[1].first.0 <= opened.position.0.saturating_add(1) {
        opened.obsolete.push(logs.remove(0).name);
    }
    if logs.is_empty() && listing.snapshots.is_empty() {
        return if listing.marker.is_some() { Err(nothing_left(files)) } else { Ok(None) };
    }
    opened.store = check_headers(files, &logs, opened.store)?;
    replay_logs(files, logs, listing.marker.max(Some(whole_at)), on_damage, &mut opened)?;
    if opened.position < whole_at {
        let what =
            format!("the snapshot needs the log up to batch {}, which ends at {}", whole_at.0, opened.position.0);
        return Err(damaged(
            files,
            &super::format::snapshot_name(*listing.snapshots.last().expect("only a snapshot needs a log")),
            0,
            what,
        ));
    }
    opened.recovered.rows = opened.state.durable_rows();
    Ok(Some(opened))
}

/// Refuses a directory whose log is gone, or is another store's, before anything in it is changed.
pub(super) fn check_store(files: &dyn Files, known: ExpectedStore) -> Result<(), OpenError> {
    if known == ExpectedStore::Unknown {
        return Ok(());
    }
    let listing = Listing::read(files)?;
    let snapshots = listing.snapshots.iter().map(|at| (super::format::snapshot_name(*at), FileKind::Snapshot));
    let logs = listing.logs.iter().map(|at| (super::format::log_name(*at), FileKind::Log));
    let mut all = snapshots.chain(logs).peekable();
    if all.peek().is_none() {
        let what = match known {
            ExpectedStore::Id(id) => format!("store {id:032x} was here, but its log and its snapshot are gone"),
            _ => String::from("a store was here, but its log and its snapshot are gone; its objects are there"),
        };
        return Err(OpenError::NotThisStore { what, file: files.path(""), files: FILE_NAMES });
    }
    let ExpectedStore::Id(id) = known else { return Ok(()) };
    for (name, kind) in all {
        let mut header = [0; HEADER_BYTES];
        let file = files.open(&name).map_err(OpenError::io("open", files.path(&name)))?;
        let read = file.read_at(&mut header, 0).map_err(OpenError::io("read", files.path(&name)))?;
        // One that cannot be read is for recovery to judge.
        if let Ok(header) = Header::decode(&header[..read], kind)
            && header.store != id
        {
            let what = format!("{name} belongs to store {:032x}, and this directory to store {id:032x}", header.store);
            return Err(OpenError::NotThisStore { what, file: files.path(&name), files: FILE_NAMES });
        }
    }
    Ok(())
}

/// The journal's files, sorted.
struct Listing {
    snapshots: Vec<Position>,
    logs: Vec<Position>,
    unfinished: Vec<String>,
    marker: Option<Position>,
}

impl Listing {
    fn read(files: &dyn Files) -> Result<Listing, OpenError> {
        let names = files.list().map_err(OpenError::io("list", files.path("")))?;
        let mut listing = Listing { snapshots: vec![], logs: vec![], unfinished: vec![], marker: None };
        for name in names {
            match parse_name(&name) {
                Some((FileKind::Log, position)) => listing.logs.push(position),
                Some((FileKind::Snapshot, position)) => listing.snapshots.push(position),
                None if name == MARKER_NAME => listing.marker = decode_marker(&read_all(files, &name)?),
                None if name.ends_with(UNFINISHED) => listing.unfinished.push(name),
                None => {}
            }
        }
        listing.snapshots.sort_unstable();
        listing.logs.sort_unstable();
        Ok(listing)
    }
}

fn read_logs(files: &dyn Files, firsts: &[Position]) -> Result<Vec<LogFile>, OpenError> {
    let read = |first: &Position| {
        let name = super::format::log_name(*first);
        Ok(LogFile { bytes: read_all(files, &name)?, name, first: *first })
    };
    firsts.iter().map(read).collect()
}

/// Checks every segment's header and that all belong to one store.
fn check_headers(files: &dyn Files, logs: &[LogFile], snapshot_store: u128) -> Result<u128, OpenError> {
    let mut store = snapshot_store;
    for log in logs {
        let header = log.bytes.get(..HEADER_BYTES).unwrap_or(&log.bytes);
        let header = Header::decode(header, FileKind::Log).map_err(|bad| bad_header(files, &log.name, bad))?;
        if header.position != log.first {
            let what = "the segment's name and header disagree about its first position";
            return Err(damaged(files, &log.name, 0, what));
        }
        if log.first == Position(0) {
            return Err(damaged(files, &log.name, 0, "the segment begins before the first batch"));
        }
        if store != 0 && header.store != store {
            return Err(damaged(files, &log.name, 0, "the segment belongs to another store"));
        }
        store = header.store;
    }
    Ok(store)
}

/// Replays segment after segment while their frames follow each other, then decides what the end means.
fn replay_logs(
    files: &dyn Files,
    logs: Vec<LogFile>,
    known_durable: Option<Position>,
    on_damage: OnDamage,
    opened: &mut Opened,
) -> Result<(), OpenError> {
    let snapshot = opened.position;
    let Some(first) = logs.first() else {
        return refuse_short_log(files, "", 0, snapshot, known_durable);
    };
    let mut next = first.first;
    if next.0 > snapshot.0.saturating_add(1) {
        return Err(damaged(files, &first.name, 0, "the segments before this one are missing"));
    }
    let mut ended = (0, HEADER_BYTES);
    for (index, log) in logs.iter().enumerate() {
        if index > 0 && log.first != next {
            break;
        }
        let end = replay_log(files, log, snapshot, &mut next, opened)?;
        ended = (index, end);
    }
    let (index, end) = ended;
    let log = &logs[index];
    let durable =
        logs[index..].iter().map(|log| highest_durable(log, if log.first == logs[index].first { end } else { 0 }));
    let durable = durable.max().max(known_durable).unwrap_or_default();
    if next <= durable && on_damage == OnDamage::Refuse {
        return refuse_short_log(files, &log.name, end as u64, Position(next.0 - 1), Some(durable));
    }
    let behind = logs[index + 1..].iter().map(|log| log.name.clone());
    opened.obsolete.extend(behind);
    opened.position = Position(next.0 - 1).max(snapshot);
    // The marker follows a sync, and the sync of a frame follows that of the directory its segment was made in.
    opened.is_secured = opened.obsolete.is_empty()
        && known_durable.is_some_and(|known| known >= opened.position)
        && opened.position >= log.first;
    resume(files, log, end, first_uncertain(log, end, durable), opened)
}

/// Replays the frames of one segment that follow each other, and answers where they end.
fn replay_log(
    files: &dyn Files,
    log: &LogFile,
    snapshot: Position,
    next: &mut Position,
    opened: &mut Opened,
) -> Result<usize, OpenError> {
    let mut at = HEADER_BYTES;
    loop {
        if !crate::seams::stops_at_torn_frame() {
            // Whatever is whole behind the damage is taken for good.
            let whole =
                |at: &usize| FrameHeader::read(&log.bytes[*at..]).is_some_and(|(frame, ..)| frame.first >= *next);
            at = (at..log.bytes.len()).step_by(8).find(whole).unwrap_or(at);
            *next = FrameHeader::read(&log.bytes[at.min(log.bytes.len())..]).map_or(*next, |(frame, ..)| frame.first);
        }
        let Some((frame, time, effects, length)) = FrameHeader::read(&log.bytes[at.min(log.bytes.len())..]) else {
            break;
        };
        let follows = frame.kind == FrameKind::Group && frame.first == *next && frame.last >= frame.first;
        let Some(after) = frame.last.0.checked_add(1).filter(|_| follows) else { break };
        if frame.first > snapshot {
            codec::replay(effects, &mut opened.state).map_err(|what| damaged(files, &log.name, at as u64, what))?;
            opened.recovered.batches_replayed += after - frame.first.0;
            opened.log_bytes += length as u64;
        }
        opened.time = opened.time.max(time);
        *next = Position(after);
        at += length;
    }
    Ok(at)
}

/// The highest position that a segment, or any whole frame in it from `from` on, says was durable. A segment is begun only
/// when all before it is.
fn highest_durable(log: &LogFile, from: usize) -> Position {
    let begun = Position(log.first.0 - 1);
    let frames =
        (from.next_multiple_of(8)..log.bytes.len()).step_by(8).filter_map(|at| FrameHeader::read(&log.bytes[at..]));
    frames.map(|(frame, ..)| frame.durable).fold(begun, Position::max)
}

/// Where the first frame begins that is not known to be durable; `end` if all are.
fn first_uncertain(log: &LogFile, end: usize, durable: Position) -> usize {
    let mut at = HEADER_BYTES;
    while at < end
        && let Some((frame, _, _, length)) = FrameHeader::read(&log.bytes[at..])
        && frame.last <= durable
    {
        at += length;
    }
    at
}

/// Goes on at the end of the last segment. The bytes behind it are overwritten with zeros first: a whole frame there,
/// written before the crash and never acknowledged, must not come back to life behind the next frame. Frames not known
/// to be durable are written again: after a failed sync the system shows bytes that the disk has not, and would not
/// sync them again.
fn resume(
    files: &dyn Files,
    log: &LogFile,
    end: usize,
    uncertain: usize,
    opened: &mut Opened,
) -> Result<(), OpenError> {
    let path = files.path(&log.name);
    let file = files.open(&log.name).map_err(OpenError::io("open", path.clone()))?;
    let tail = log.bytes.get(end..).unwrap_or_default();
    if let Some(last) = tail.iter().rposition(|byte| *byte != 0) {
        let (offset, bytes) = (end as u64, last as u64 + 1);
        write_zeros(&*file, offset, offset + bytes).map_err(OpenError::io("cut", path.clone()))?;
        opened.recovered.torn = Some(Torn { file: path.clone(), offset, bytes });
    }
    if uncertain < end {
        let again = file.write_at(&log.bytes[uncertain..end.min(log.bytes.len())], uncertain as u64);
        again.map_err(OpenError::io("write", path.clone()))?;
    }
    // The bytes read may never have been synced; from here on they are relied on.
    opened.is_secured &= opened.recovered.torn.is_none() && uncertain >= end;
    if !opened.is_secured {
        file.sync().map_err(OpenError::io("sync", path.clone()))?;
    }
    opened.segment = Some(Segment::resume(file, end as u64).map_err(OpenError::io("open", path))?);
    Ok(())
}

fn refuse_short_log(
    files: &dyn Files,
    name: &str,
    offset: u64,
    ends_at: Position,
    durable: Option<Position>,
) -> Result<(), OpenError> {
    match durable {
        Some(durable) if durable > ends_at => {
            let what = format!("the log ends at batch {}, but batch {} was durable", ends_at.0, durable.0);
            Err(damaged(files, name, offset, what))
        }
        _ => Ok(()),
    }
}

fn nothing_left(files: &dyn Files) -> OpenError {
    damaged(files, MARKER_NAME, 0, "a store was here, but its log and its snapshot are gone")
}

pub(super) fn bad_header(files: &dyn Files, name: &str, bad: BadHeader) -> OpenError {
    match bad {
        BadHeader::TooNew(found) => OpenError::TooNew { file: files.path(name), found, known: VERSION },
        BadHeader::NotOurs => damaged(files, name, 0, "the file does not begin as a journal's file does"),
        BadHeader::Damaged => damaged(files, name, 0, "the file's header is damaged"),
    }
}

pub(super) fn damaged(files: &dyn Files, name: &str, offset: u64, what: impl Into<String>) -> OpenError {
    OpenError::Damaged { what: what.into(), file: files.path(name), offset: Some(offset), hint: DAMAGE_HINT }
}

pub(super) fn read_all(files: &dyn Files, name: &str) -> Result<Vec<u8>, OpenError> {
    let read = || {
        let file: Box<dyn StoreFile> = files.open(name)?;
        let mut bytes = vec![0; usize::try_from(file.len()?).expect("a file that fits into memory")];
        let length = file.read_at(&mut bytes, 0)?;
        bytes.truncate(length);
        Ok(bytes)
    };
    read().map_err(OpenError::io("read", files.path(name)))
}
