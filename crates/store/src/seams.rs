//! Decisions of this crate that a known mistake can replace, one function each. A normal build makes the plain decision that
//! the function's first sentence states. A build with the feature `hazards` makes the mistake instead while its
//! [switch](onceflow_core::hazard) is on, and the simulator must notice.

use onceflow_core::{Batch, Key, Op, Row, hazard::is_on, row::bitmap};

/// A counter at zero fires only when no bitmap is full.
pub(crate) fn bitmaps_fire_first() -> bool {
    !is_on("counters-fire-first")
}

/// An arrival sets its own bit, so that repeating it changes nothing.
pub(crate) fn bit_of_arrival(bit: u32, row: Option<&Row>, of: u32) -> u32 {
    if !is_on("arrivals-counted") {
        return bit;
    }
    let is_set = |bit: &u32| row.is_some_and(|row| bitmap::with(Some(&**row), *bit, of).0 == *row);
    (0..of).find(|bit| !is_set(bit)).unwrap_or(0)
}

/// Workers that live assert their claims to the next owner of a store.
pub(crate) fn asserts_claims() -> bool {
    !is_on("claims-void-with-owner")
}

/// Recovery reads a log up to its first torn frame, and nothing behind it.
pub(crate) fn stops_at_torn_frame() -> bool {
    !is_on("torn-tail-believed")
}

/// An object is deleted only after it is durable that nothing names it.
pub(crate) fn waits_before_unlink() -> bool {
    !is_on("unlinked-before-durable")
}

/// A lease ends by the store's clock, never by the clock of the process that sweeps.
pub(crate) fn ends_leases_by_store_clock() -> bool {
    !is_on("lease-by-client-clock")
}

/// A value is swept only if no edge refers to it when the batch happens.
pub(crate) fn require_unreferenced(batch: &mut Batch, count: Key) {
    if !is_on("buried-though-referenced") {
        batch.require_absent(count);
    }
}

/// A value named by its content is put only where the row is as it was seen.
pub(crate) fn require_content_as_seen(batch: &mut Batch, key: Key, stored: Option<Row>) {
    if !is_on("content-named-blindly") {
        batch.require_seen(key, stored);
    }
}

/// Clearing an edge leaves the value to the sweeper.
pub(crate) fn after_clear(ops: &mut Vec<Op>, value: Key) {
    if is_on("ack-deletes-value") {
        ops.push(Op::Delete(value));
    }
}
