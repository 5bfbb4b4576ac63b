//! Whether a pipeline is quiet: nothing is on its way between stages or to sinks, and no call is open. All that it has is
//! then in positions, states and catalogs, which stay as they are until a source is read.

use super::{
    installed::{InstalledPlan, InstalledStage},
    keys::StreamKeys,
    partition::SHARD,
};
use crate::step::{CALL, CALLED};
use onceflow_store::{Error, Records, records::Scan};

/// Returns whether nothing is on its way.
pub(super) async fn is_quiet(records: &dyn Records, keys: &StreamKeys, plan: &InstalledPlan) -> Result<bool, Error> {
    for station in plan.stages.iter().flat_map(InstalledStage::stations) {
        let state = || Scan::of(keys.state(station), 1);
        let blocks = [Scan::of(keys.inbox(station), 1), Scan::of(keys.outbox(station), 1)];
        for scan in blocks.into_iter().chain([CALL, CALLED].map(|tag| state().prefix([tag]))) {
            if !records.scan(SHARD, scan).await?.rows.is_empty() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
