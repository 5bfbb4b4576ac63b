//! The part of a store that the event logs of an engine are written to.

use super::EventLogOptions;
use crate::{Error, shared::Shared};
use onceflow_core::{
    Name, Row, Shard,
    limits::SCAN_ROWS_MAX,
    protocol::{ids::RunId, keys},
};
use onceflow_store::{Records, World, records::Scan, values::Values};
use std::sync::Arc;

/// The part of the store that logs are written to, and under which name.
pub(super) struct Sink {
    pub(super) records: Arc<dyn Records>,
    pub(super) values: Arc<Values>,
    pub(super) world: Arc<dyn World>,
    pub(super) shard: Shard,
    pub(super) worker: u128,
    pub(super) host: String,
    pub(super) options: EventLogOptions,
}

impl Sink {
    /// Holds parts of the engine and not the engine itself, which may be dropped without being closed.
    pub(super) fn of(shared: &Shared, options: EventLogOptions) -> Self {
        Sink {
            records: shared.records.clone(),
            values: shared.values.clone(),
            world: shared.world.clone(),
            shard: shared.shard(),
            worker: shared.kernel.fences.incarnation(),
            host: shared.options.about.clone().unwrap_or_else(|| crate::About::this_process("")).host,
            options,
        }
    }

    pub(super) async fn rows(&self, run: RunId, prefix: &[u8]) -> Result<Vec<(Name, Row)>, Error> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let scan = Scan::of(keys::events(run), SCAN_ROWS_MAX).prefix(prefix).after(after);
            let page = self.records.scan(self.shard, scan).await?;
            after = page.rows.last().map(|(name, _)| name.clone());
            found.extend(page.rows);
            if !page.more {
                return Ok(found);
            }
        }
    }
}
