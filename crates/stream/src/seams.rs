//! Decisions of this crate that a known bug can replace, one function each. A normal build makes the correct decision
//! that the function's first sentence states. A build with the feature `hazards` has the bug instead while its
//! [switch](onceflow_core::hazard) is on, and the proof tests must detect it.

use crate::{
    block::{BlockBuilder, RecordBlock},
    event_time::EventTime,
    identity::Stamp,
};
use onceflow_core::{Batch, Key, Row, hazard::is_on};

/// A stamp is after every earlier one of its sender, whatever the clock says.
pub(crate) fn stamp(now: Stamp, last: Stamp) -> Stamp {
    if is_on("stamps-follow-the-clock") { now } else { now.max(last.next()) }
}

/// A full filter is kept, and another one chained to it.
pub(crate) fn chain_filter<T>(chain: &mut Vec<T>) {
    if is_on("full-filter-is-reset") {
        chain.clear();
    }
}

/// A filter is believed only once it holds every stored id.
pub(crate) fn trusts_filter(is_complete: bool) -> bool {
    is_complete || is_on("incomplete-filter-trusted")
}

/// After a restart the filters hold every id that the scan of the catalog finds.
pub(crate) fn rebuilds_filters() -> bool {
    !is_on("filters-not-rebuilt")
}

/// A bucket of clients' ids is dropped when the reclaim watermark has passed its end.
pub(crate) fn bucket_passed(reclaimed: EventTime, bucket_ms: i64) -> EventTime {
    if is_on("bucket-dropped-at-its-beginning") { reclaimed.plus_ms(bucket_ms) } else { reclaimed }
}

/// A bundle requires the claim of its worker, and the bundle number that it read.
pub(crate) fn require_writer(batch: &mut Batch, claim: (Key, Row), meta: (Key, Option<Row>)) {
    if !is_on("bundle-without-claim") {
        batch.require_equals(claim.0, claim.1).require_seen(meta.0, meta.1);
    }
}

/// A block that is sent again after a restart is the one that was stored.
pub(crate) fn sent_again(block: RecordBlock) -> RecordBlock {
    if !is_on("identity-renewed") {
        return block;
    }
    let mut renewed = BlockBuilder::default();
    block.records().for_each(|record| renewed.push(record.key, record.value, record.time));
    let row = renewed.finish(block.producer(), block.seqs().start + 1_000_000, block.stamp());
    RecordBlock::decode(row).unwrap_or(block)
}

/// Blocks are stored with the bundle that made them.
pub(crate) fn stores_blocks() -> bool {
    !is_on("blocks-not-stored")
}

/// The position of a source is committed with everything that its records caused.
pub(crate) fn position(before: Option<Vec<u8>>, now: Vec<u8>) -> Option<Vec<u8>> {
    if is_on("position-committed-later") { before } else { Some(now) }
}

/// A block is acknowledged after the bundle that consumed it is durable.
pub(crate) fn acknowledges_on_arrival() -> bool {
    is_on("acknowledged-on-arrival")
}

/// A source hears that records are durable when they are: then it answers their clients.
pub(crate) fn tells_source_early() -> bool {
    is_on("source-told-before-durable")
}

/// Copies are acknowledged like other blocks.
pub(crate) fn acknowledges(is_copy: bool) -> bool {
    !(is_copy && is_on("copies-not-acknowledged"))
}

/// The ids of the bundle under way count as seen.
pub(crate) fn consults_pending(is_pending: bool) -> bool {
    !(is_pending && is_on("pending-not-consulted"))
}

/// The catalog has only ids that were consumed, with gaps.
pub(crate) fn consumed_ids(seqs: std::ops::Range<u64>) -> std::ops::Range<u64> {
    if is_on("order-assumed") { 0..seqs.end } else { seqs }
}

/// A record is a remnant if its stamp is below the reclaim watermark; at the watermark it is looked up.
pub(crate) fn is_remnant<T: PartialOrd>(stamp: T, reclaimed: T) -> bool {
    match () {
        () if is_on("remnants-looked-up") => false,
        () if is_on("watermark-is-a-remnant") => stamp <= reclaimed,
        () => stamp < reclaimed,
    }
}

/// The ids that a bundle consumes are stored with it.
pub(crate) fn catalogs_ids() -> bool {
    !is_on("ids-not-stored")
}

/// A sender promises no event time after the earliest record that is not acknowledged.
pub(crate) fn promised_watermark(out: EventTime, unacknowledged: Option<EventTime>) -> EventTime {
    match unacknowledged {
        Some(earliest) if !is_on("watermark-ignores-outbox") => out.min(earliest),
        _ => out,
    }
}

/// A sender promises no stamp after the earliest block that is not acknowledged.
pub(crate) fn reclaim_promise(next: Stamp, unacknowledged: Option<Stamp>) -> Stamp {
    match unacknowledged {
        Some(earliest) if !is_on("reclaim-ignores-outbox") => next.min(earliest),
        _ => next,
    }
}

/// A sender says that it has ended only after all its blocks were acknowledged.
pub(crate) fn ends_before_acknowledged() -> bool {
    is_on("end-overtakes-blocks")
}

/// Calls begin, and are forgotten, after the commit that says so is durable.
pub(crate) fn calls_before_commit() -> bool {
    is_on("calls-begin-before-commit")
}

/// The watermark passes no record whose call is open.
pub(crate) fn watermark_with_calls(watermark: EventTime, open: Option<EventTime>) -> EventTime {
    match open {
        Some(earliest) if !is_on("watermark-ignores-calls") => watermark.min(earliest),
        _ => watermark,
    }
}
