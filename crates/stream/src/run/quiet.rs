//! Whether a pipeline is quiet: nothing is on its way between stages or to sinks, no call is open, and every watermark has
//! come through. All that it has is then in positions, states and catalogs, which stay as they are until a source is
//! read.

use super::{
    installed::{InstalledPlan, InstalledStage},
    keys::StreamKeys,
    meta::Meta,
    partition::SHARD,
};
use crate::{
    error::StreamError,
    event_time::EventTime,
    step::{CALL, CALLED},
};
use onceflow_core::Key;
use onceflow_store::{Records, records::Scan};
use std::collections::BTreeMap;

/// Returns whether nothing is on its way.
pub(super) async fn is_quiet(
    records: &dyn Records,
    keys: &StreamKeys,
    plan: &InstalledPlan,
) -> Result<bool, StreamError> {
    for station in plan.stages.iter().flat_map(InstalledStage::stations) {
        let state = || Scan::of(keys.state(station), 1);
        let blocks = [Scan::of(keys.inbox(station), 1), Scan::of(keys.outbox(station), 1)];
        for scan in blocks.into_iter().chain([CALL, CALLED].map(|tag| state().prefix([tag]))) {
            if !records.scan(SHARD, scan).await?.rows.is_empty() {
                return Ok(false);
            }
        }
    }
    have_watermarks_arrived(records, keys, plan).await
}

/// Every partition has heard of the watermarks that are before it, and has done everything that they made due.
async fn have_watermarks_arrived(
    records: &dyn Records,
    keys: &StreamKeys,
    plan: &InstalledPlan,
) -> Result<bool, StreamError> {
    // Of each stage, the earliest watermark that its partitions have heard of, and the earliest that they have passed on.
    let mut watermarks: BTreeMap<u16, (EventTime, EventTime)> = BTreeMap::new();
    for stage in &plan.stages {
        let metas: Vec<Key> = stage.stations().map(|station| keys.meta(station)).collect();
        let (mut heard, mut passed_on) = (EventTime::MAX, EventTime::MAX);
        for row in records.get(SHARD, &metas).await? {
            let meta = row.as_ref().map(Meta::from_row).transpose()?;
            let (own, out) =
                meta.map_or((EventTime::MIN, EventTime::MIN), |meta| (meta.watermark_in, meta.watermark_out));
            if out < own {
                return Ok(false);
            }
            (heard, passed_on) = (heard.min(own), passed_on.min(out));
        }
        watermarks.insert(stage.id, (heard, passed_on));
    }
    let of = |stage: u16| watermarks.get(&stage).copied().unwrap_or((EventTime::MIN, EventTime::MIN));
    let has_arrived = |stage: &InstalledStage| {
        let before = plan.edges.iter().filter(|edge| edge.to.0 == stage.id).map(|edge| of(edge.from.0).1);
        before.min().is_none_or(|before| of(stage.id).0 >= before)
    };
    Ok(plan.stages.iter().all(has_arrived))
}
