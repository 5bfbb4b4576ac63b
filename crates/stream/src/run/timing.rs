//! How long commits take, from their beginning until they are durable. One at a time is timed, so that this costs no more
//! than a look; the sums become part of the counts of a later bundle.

use super::{Runtime, meta::Counts};
use futures_util::FutureExt;
use onceflow_core::Timestamp;
use onceflow_store::Position;

/// The commit that is being timed, and those whose times are not in the counts yet.
#[derive(Debug, Default)]
pub(crate) struct CommitTiming {
    under_way: Option<(Timestamp, Position)>,
    timed: u64,
    ms: u64,
}

impl CommitTiming {
    /// A commit that began at this time was applied.
    pub(crate) fn begin(&mut self, begun: Timestamp, position: Position) {
        self.under_way.get_or_insert((begun, position));
    }

    /// Ends the timing if the commit is durable. A store that failed says so where it is asked for its sake.
    pub(crate) fn look(&mut self, runtime: &Runtime) {
        let Some((begun, position)) = self.under_way else { return };
        if let Some(durable) = runtime.records.durable(position).now_or_never() {
            self.under_way = None;
            if durable.is_ok() {
                self.timed += 1;
                // The wall clock may have been set back.
                self.ms += runtime.world.clock().as_ms().saturating_sub(begun.as_ms());
            }
        }
    }

    /// Moves the times to the counts.
    pub(crate) fn add_to(&mut self, counts: &mut Counts) {
        counts.commits_timed += std::mem::take(&mut self.timed);
        counts.commit_ms += std::mem::take(&mut self.ms);
    }
}
