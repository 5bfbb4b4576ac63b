//! Every bound and every span of time of values, with its reason. Input that exceeds a bound fails at once, naming it.

pub use onceflow_core::limits::ID_BYTES_MAX;
use onceflow_core::limits::{BATCH_OPS_MAX, ROW_BYTES_MAX};

/// References of one value. They are counted in the batch that puts it, and each may take two operations;
/// a longer list is a tree of pages ([`list`](super::list)) or is gathered.
pub const REFS_PER_VALUE_MAX: usize = 500;

/// Bytes of a value with its references. Larger content is a blob.
pub const VALUE_BYTES_MAX: usize = ROW_BYTES_MAX;

/// Bytes that [`put_bytes`](super::Values::put_bytes) keeps in the store's memory; larger content is a blob. An object
/// costs two fsyncs, more than this many bytes in the log; but rows live in memory.
pub const INLINE_VALUE_BYTES_MAX: usize = 64 << 10;

/// Bytes of a file that is kept in the store's memory, and is part of the batch that puts it: an object would cost two
/// fsyncs and a row, far more than so few bytes in the log. A program that needs it as a file gets a copy.
pub const INLINE_FILE_BYTES_MAX: u64 = 4 << 10;

/// How long values put ahead of their batch ([`hold`](super::hold)) are held for it: longer than storing the largest
/// file between two updates takes, and short enough that the remains of a crash do not stay long.
pub const HOLD_MS: u64 = 3_600_000;

/// Operations of one update that puts ahead; a page of a list takes about half of it.
pub(super) const HOLD_OPS_MAX: usize = 800;

/// Bytes of one update that puts ahead; half of what a batch may hold.
pub(super) const HOLD_BYTES_MAX: usize = 2 << 20;

/// Bytes of an element that holds them itself: what a row holds beside its checksum and a mark.
pub const ELEMENT_BYTES_MAX: usize = ROW_BYTES_MAX - 5;

/// Operations an update may need: those of its batch.
pub const UPDATE_OPS_MAX: usize = BATCH_OPS_MAX;

/// Operations of a batch that a reclaiming one leaves free for the rows that close it.
pub(super) const RECLAIM_OPS_SPARE: usize = 16;

/// Values read at once. Each may have [`VALUE_BYTES_MAX`], and a socket refuses an answer over 64 MiB.
pub(super) const VALUES_READ_MAX: usize = 32;

/// Decrements that may be open while a batch is made, for each operation that it may have: those that do not fit are
/// written as one debt, which must be within the size of a row, and is rewritten by every batch that pays some of it.
/// The decrements of one value always fit.
pub(super) const OPEN_DECREMENTS_PER_OP: usize = 2;

/// Tries of an update that other writers keep overtaking. One of them succeeds each time, so this many in a row means
/// that something is wrong.
pub(super) const TRIES_MAX: usize = 1000;

/// How often a store that changes meanwhile is read again, at most, while something looks wrong: a count that moves all the
/// time may look wrong twice, and hardly four times in the same way.
pub(super) const READINGS_MAX: usize = 3;

/// How often repair reads again because the store changed while it read. Each time takes as long as reading everything,
/// so on a store that never rests for that long repair fails instead of reading for ever.
pub(super) const LOOKS_MAX: usize = 100;

/// How often a batch is sent again whose answer was lost, and a blob stored again under its name: enough for a
/// connection to be made anew, and too few to be noticed as a delay.
pub(super) const REPLIES_LOST_MAX: usize = 3;

/// Elements in a page of a list. An element may be put in the same batch as its page: two operations each.
pub const PAGE_ELEMENTS_MAX: usize = 400;

/// Bytes of the elements put together with one page; half of what a batch may hold.
pub const PAGE_BYTES_MAX: usize = 2 << 20;

/// How much later than scheduled the sweeper may come back before leases get grace for its absence: longer than any
/// pause of a healthy process, shorter than any restart worth forgiving.
pub const SWEEPER_LATE_MS_MAX: u64 = 60_000;

/// The longest grace: a day. After a longer absence, or with a clock that was set forward by years, leases are not kept
/// for as long again.
pub const GRACE_MS_MAX: u64 = 24 * 3_600_000;

/// How often the reclaim loop looks without being woken: garbage made by other processes waits this long at most.
pub const RECLAIM_LOOK_MS: u64 = 10_000;

/// The shortest pause of the reclaim loop and of a keeper after the store did not answer: more requests would only
/// burden it.
pub(super) const RETRY_MS: u64 = 1_000;

/// The shortest time between two renewals of a lease, however short it is.
pub(super) const RENEW_MS_MIN: u64 = 50;

/// Values and decrements one call of the reclaim loop touches: about two milliseconds of work.
pub const RECLAIM_BUDGET: usize = 1_000;

/// The same where the store sweeps by itself: others run while it does, so this is only how often leases are looked at.
pub const RECLAIM_THERE_BUDGET: usize = 20_000;

/// How long an upload may take before its object counts as abandoned. Only for writers whose death cannot be detected: a
/// directory knows its dead processes ([`Blobs::has_ended`](crate::blobs::Blobs::has_ended)), and a worker is known by its
/// lease ([`Values::abandon_writer`](super::Values::abandon_writer)). On a server, a command that is no worker has neither.
pub const UPLOAD_MS_MAX: u64 = 24 * 3_600_000;
