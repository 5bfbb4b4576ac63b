//! The bytes of the journal's files. All numbers are little-endian.
//!
//! | file | what it is |
//! |---|---|
//! | `log-<first>` | a segment: a header, then frames, then zeros; `<first>` is the position of its first frame, in hex |
//! | `snap-<position>` | a snapshot: a header, then frames of rows, then an end frame |
//! | `durable` | the highest position known durable, written after each sync and itself not synced |
//! | `*.new` | a file being made; worthless after a crash |
//!
//! Header, 64 bytes: magic (8), version (4), crc of all the rest (4), store id (16), position (8), zeros.
//! FrameHeader, 40 bytes, then its payload, then zeros up to a multiple of eight: crc of all that follows (4), length of the
//! payload (4), first position (8), last position (8), position known durable when it was written (8), kind (4),
//! zeros (4). The payload begins with the store's time (8).

use crate::records::Position;
use onceflow_core::Timestamp;

/// The version this code writes, and the newest it reads.
pub(super) const VERSION: u32 = 1;
pub(super) const HEADER_BYTES: usize = 64;
pub(super) const FRAME_BYTES: usize = 40;
/// The store's time at the head of a payload.
pub(super) const TIME_BYTES: usize = 8;
/// A frame longer than this was not written by us: a group is cut off long before.
pub(super) const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// Which kind of file a header begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    Log,
    Snapshot,
}

impl FileKind {
    fn magic(self) -> [u8; 8] {
        match self {
            FileKind::Log => *b"onceLOG\n",
            FileKind::Snapshot => *b"onceSNP\n",
        }
    }
}

/// The first bytes of a log segment or a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) store: u128,
    /// A segment's first position; the position a snapshot was begun at.
    pub(super) position: Position,
}

/// Why some bytes are no header of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadHeader {
    NotOurs,
    TooNew(u32),
    Damaged,
}

impl Header {
    pub(super) fn encode(self, kind: FileKind) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&kind.magic());
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.position.0.to_le_bytes());
        let crc = whole_crc(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8], kind: FileKind) -> Result<Header, BadHeader> {
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().map_err(|_| BadHeader::Damaged)?;
        if bytes[..8] != kind.magic() {
            return Err(BadHeader::NotOurs);
        }
        let is_whole = whole_crc(bytes) == u32_at(bytes, 12);
        match u32_at(bytes, 8) {
            VERSION if is_whole => {}
            // Those written first have a checksum that is not of the version.
            VERSION if crc32fast::hash(&bytes[16..]) == u32_at(bytes, 12) => {}
            version if version > VERSION && is_whole => return Err(BadHeader::TooNew(version)),
            _ => return Err(BadHeader::Damaged),
        }
        let store = u128::from_le_bytes(bytes[16..32].try_into().expect("sixteen bytes"));
        Ok(Header { store, position: Position(u64_at(bytes, 32)) })
    }
}

/// The checksum of all of a header but itself: whatever else a later version changes, it is at the same place.
fn whole_crc(bytes: &[u8; HEADER_BYTES]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..12]);
    hasher.update(&bytes[16..]);
    hasher.finalize()
}

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// The effects of the batches from `first` to `last`.
    Group,
    /// Rows of a snapshot.
    Rows,
    /// The end of a snapshot; `last` is how far the log must be replayed for the snapshot to be whole.
    End,
}

impl FrameKind {
    fn number(self) -> u32 {
        match self {
            FrameKind::Group => 0x6f72_4701,
            FrameKind::Rows => 0x6f72_4702,
            FrameKind::End => 0x6f72_4703,
        }
    }

    fn from_number(number: u32) -> Option<Self> {
        [FrameKind::Group, FrameKind::Rows, FrameKind::End].into_iter().find(|kind| kind.number() == number)
    }
}

/// A frame's head. Its payload stands behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) kind: FrameKind,
    pub(super) first: Position,
    pub(super) last: Position,
    pub(super) durable: Position,
}

impl FrameHeader {
    /// Begins a frame: room for its head, then the time.
    pub(super) fn begin(into: &mut Vec<u8>) {
        into.clear();
        into.resize(FRAME_BYTES + TIME_BYTES, 0);
    }

    /// Completes what [`FrameHeader::begin`] began and others have filled.
    pub(super) fn finish(self, time: Timestamp, frame: &mut Vec<u8>) {
        let payload = frame.len() - FRAME_BYTES;
        assert!(payload <= PAYLOAD_BYTES_MAX, "a frame of {payload} bytes could not be read back");
        frame[4..8].copy_from_slice(&(payload as u32).to_le_bytes());
        frame[8..16].copy_from_slice(&self.first.0.to_le_bytes());
        frame[16..24].copy_from_slice(&self.last.0.to_le_bytes());
        frame[24..32].copy_from_slice(&self.durable.0.to_le_bytes());
        frame[32..36].copy_from_slice(&self.kind.number().to_le_bytes());
        frame[FRAME_BYTES..FRAME_BYTES + TIME_BYTES].copy_from_slice(&time.as_ms().to_le_bytes());
        let crc = crc32fast::hash(&frame[4..]);
        frame[..4].copy_from_slice(&crc.to_le_bytes());
        frame.resize(padded(frame.len()), 0);
    }

    /// How long the frame's payload claims to be, if these bytes can be the head of a frame at all.
    pub(super) fn payload_bytes(head: &[u8]) -> Option<usize> {
        let head = head.get(..FRAME_BYTES)?;
        FrameKind::from_number(u32_at(head, 32))?;
        let length = u32_at(head, 4) as usize;
        (TIME_BYTES..=PAYLOAD_BYTES_MAX).contains(&length).then_some(length)
    }

    /// The frame at the start of these bytes, its time, its effects, and its length with padding; `None` if none stands there
    /// whole and unharmed.
    pub(super) fn read(bytes: &[u8]) -> Option<(FrameHeader, Timestamp, &[u8], usize)> {
        let end = FRAME_BYTES + FrameHeader::payload_bytes(bytes)?;
        let whole = bytes.get(..end)?;
        if crc32fast::hash(&whole[4..]) != u32_at(whole, 0) {
            return None;
        }
        let frame = FrameHeader {
            kind: FrameKind::from_number(u32_at(whole, 32))?,
            first: Position(u64_at(whole, 8)),
            last: Position(u64_at(whole, 16)),
            durable: Position(u64_at(whole, 24)),
        };
        let time = Timestamp::from_ms(u64_at(whole, FRAME_BYTES));
        Some((frame, time, &whole[FRAME_BYTES + TIME_BYTES..], padded(end)))
    }
}

/// The `durable` file: a position and its checksum.
pub(super) fn encode_marker(position: Position) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&position.0.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..8]);
    bytes[8..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads what [`encode_marker`] wrote; a torn one says nothing.
pub(super) fn decode_marker(bytes: &[u8]) -> Option<Position> {
    let bytes: &[u8; 12] = bytes.try_into().ok()?;
    (crc32fast::hash(&bytes[..8]) == u32_at(bytes, 8)).then(|| Position(u64_at(bytes, 0)))
}

pub(super) fn log_name(first: Position) -> String {
    format!("log-{:016x}", first.0)
}

pub(super) fn snapshot_name(position: Position) -> String {
    format!("snap-{:016x}", position.0)
}

/// Parses the name of a log segment or a snapshot: its kind and position; `None` for other files.
pub(super) fn parse_name(name: &str) -> Option<(FileKind, Position)> {
    let (kind, position) = match name.strip_prefix("log-") {
        Some(position) => (FileKind::Log, position),
        None => (FileKind::Snapshot, name.strip_prefix("snap-")?),
    };
    let well_formed = position.len() == 16 && !position.contains('+');
    well_formed.then(|| u64::from_str_radix(position, 16).ok()).flatten().map(|position| (kind, Position(position)))
}

pub(super) const MARKER_NAME: &str = "durable";
pub(super) const UNFINISHED: &str = ".new";

fn padded(length: usize) -> usize {
    length.next_multiple_of(8)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        FrameHeader::begin(&mut bytes);
        bytes.extend_from_slice(payload);
        let head = FrameHeader { kind: FrameKind::Group, first: Position(5), last: Position(7), durable: Position(4) };
        head.finish(Timestamp::from_ms(99), &mut bytes);
        bytes
    }

    #[test]
    fn a_frame_reads_back_and_any_flipped_bit_or_missing_byte_is_seen() {
        let bytes = frame(b"hello");
        let (head, time, payload, length) = FrameHeader::read(&bytes).unwrap();
        assert_eq!((head.first, head.last, head.durable), (Position(5), Position(7), Position(4)));
        assert_eq!((time, payload, length), (Timestamp::from_ms(99), &b"hello"[..], bytes.len()));
        let written = FRAME_BYTES + TIME_BYTES + 5;
        for bit in 0..written * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(FrameHeader::read(&flipped).is_none(), "bit {bit}");
        }
        for cut in 0..written {
            assert!(FrameHeader::read(&bytes[..cut]).is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn a_header_reads_back_and_says_what_is_wrong_with_it() {
        let header = Header { store: 42, position: Position(7) };
        let bytes = header.encode(FileKind::Log);
        assert_eq!(Header::decode(&bytes, FileKind::Log), Ok(header));
        assert_eq!(Header::decode(&bytes, FileKind::Snapshot), Err(BadHeader::NotOurs));
        let mut newer = bytes;
        newer[8] = 2;
        assert_eq!(Header::decode(&newer, FileKind::Log), Err(BadHeader::Damaged), "the version itself was changed");
        let crc = whole_crc(&newer);
        newer[12..16].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(&newer, FileKind::Log), Err(BadHeader::TooNew(2)));
        let mut first = bytes;
        first[12..16].copy_from_slice(&crc32fast::hash(&bytes[16..]).to_le_bytes());
        assert_eq!(Header::decode(&first, FileKind::Log), Ok(header), "as the first stores have it");
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = Header::decode(&flipped, FileKind::Log);
            assert!(matches!(found, Err(BadHeader::Damaged | BadHeader::NotOurs)), "bit {bit}: {found:?}");
        }
        let mut damaged = bytes;
        damaged[20] ^= 1;
        assert_eq!(Header::decode(&damaged, FileKind::Log), Err(BadHeader::Damaged));
    }

    #[test]
    fn names_and_marker_read_back_and_nothing_else_does() {
        assert_eq!(parse_name(&log_name(Position(300))), Some((FileKind::Log, Position(300))));
        assert_eq!(parse_name(&snapshot_name(Position(0))), Some((FileKind::Snapshot, Position(0))));
        for other in ["LOCK", "log-", "log-12", "log-000000000000012c.new", "log-+00000000000012c"] {
            assert_eq!(parse_name(other), None, "{other}");
        }
        assert_eq!(decode_marker(&encode_marker(Position(9))), Some(Position(9)));
        assert_eq!(decode_marker(&[0; 12]), None);
    }
}
