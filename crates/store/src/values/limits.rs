//! Every bound and every span of time of values, with its reason. What exceeds a bound fails at once, naming it.

pub use onceflow_core::limits::ID_BYTES_MAX;
use onceflow_core::limits::{BATCH_OPS_MAX, ROW_BYTES_MAX};

/// References of one value. They are counted in the batch that puts it, and each may take two operations;
/// a longer list is a tree of pages ([`list`](super::list)) or is gathered.
pub const REFS_PER_VALUE_MAX: usize = 500;

/// Bytes of a value with its references. Larger content is a blob.
pub const VALUE_BYTES_MAX: usize = ROW_BYTES_MAX;

/// Bytes that [`put_bytes`](super::Values::put_bytes) keeps in the store's memory; larger content is a blob. An object
/// costs two fsyncs, which so many bytes in the log do not; and rows live in memory.
pub const INLINE_VALUE_BYTES_MAX: usize = 64 << 10;

/// Bytes of a file that is kept in the store's memory, and rides in the batch that gives it: an object would cost two
/// fsyncs and a row, which is far more than so few bytes in the log. Whoever must have it as a file gets a copy.
pub const INLINE_FILE_BYTES_MAX: u64 = 4 << 10;

/// How long what is put ahead of its batch ([`hold`](super::hold)) is kept for it: longer than storing the largest file
/// between two updates takes, and no longer than one likes to see what a crash left.
pub const HOLD_MS: u64 = 3_600_000;

/// Operations of one update that puts ahead; a page of a list takes about half of it.
pub(super) const HOLD_OPS_MAX: usize = 800;

/// Bytes of one update that puts ahead; half of what a batch may hold.
pub(super) const HOLD_BYTES_MAX: usize = 2 << 20;

/// Bytes of an element that holds them itself: what a row holds beside its checksum and a mark.
pub const ELEMENT_BYTES_MAX: usize = ROW_BYTES_MAX - 5;

/// Operations an update may need: those of its batch.
pub const UPDATE_OPS_MAX: usize = BATCH_OPS_MAX;

/// Operations of a batch that a reclaiming one is not filled up with: they are for the rows that close it.
pub(super) const RECLAIM_OPS_SPARE: usize = 16;

/// Values read at once. Each may have [`VALUE_BYTES_MAX`], and a socket refuses an answer over 64 MiB.
pub(super) const VALUES_READ_MAX: usize = 32;

/// Decrements that may be open while a batch is made, for each operation that it may have: what of them does not fit is
/// written down as one debt, which must be a lawful row, and is written again by every batch that pays some of it. Those of
/// one value fit in any case.
pub(super) const OPEN_DECREMENTS_PER_OP: usize = 2;

/// Tries of an update that others keep overtaking. Somebody succeeds each time, so this many in a row means that
/// something is wrong.
pub(super) const TRIES_MAX: usize = 1000;

/// How often a store that changes meanwhile is read again, at most, while something looks wrong: a count that moves all the
/// time may look wrong twice, and hardly four times in the same way.
pub(super) const READINGS_MAX: usize = 3;

/// How often repair looks again because the store changed while it read. Each takes as long as reading everything, so
/// a store that never rests for that long is told so instead of being looked at for ever.
pub(super) const LOOKS_MAX: usize = 100;

/// How often a batch is sent again whose answer was lost, and a blob stored again under its name: enough for a
/// connection that is made anew, and no more than one notices.
pub(super) const REPLIES_LOST_MAX: usize = 3;

/// Elements in a page of a list. An element may be put in the same batch as its page: two operations each.
pub const PAGE_ELEMENTS_MAX: usize = 400;

/// Bytes of the elements put together with one page; half of what a batch may hold.
pub const PAGE_BYTES_MAX: usize = 2 << 20;

/// How much later than promised the sweeper may come back before its absence is held against no one: longer than
/// any pause of a healthy process, shorter than any restart worth forgiving.
pub const SWEEPER_LATE_MS_MAX: u64 = 60_000;

/// How much grace is given at most: that of a day. Who was away for longer, or whose clock was set forward by years,
/// does not keep everything for as long again.
pub const GRACE_MS_MAX: u64 = 24 * 3_600_000;

/// How often the reclaim loop looks although nobody rang: garbage made by other processes waits so long at most.
pub const RECLAIM_LOOK_MS: u64 = 10_000;

/// How long the reclaim loop and a keeper rest, at least, after the store did not answer: it has other things to do
/// than to say so again.
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
