//! Reads a partition into memory, after its claim was taken: no commit of an earlier owner can come after the claim, so
//! everything read here stays true until this owner changes it.

use super::{
    Runtime,
    admission::Catalog,
    bundle::Bundle,
    cells::Cells,
    claim::PartitionClaim,
    meta::{Meta, Published},
    outbox::Outbox,
    partition::{Partition, Program, Room, SHARD, Stop},
    rest::Rest,
    timing::CommitTiming,
};
use crate::error::StreamError;
use onceflow_core::limits::SCAN_ROWS_MAX;
use onceflow_store::records::Scan;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

impl Partition {
    /// Reads a claimed partition.
    pub(crate) async fn load(runtime: Arc<Runtime>, claim: PartitionClaim) -> Result<Self, Stop> {
        let (station, keys) = (claim.station, runtime.keys.clone());
        // All at one moment: a changed pipeline replaces the meta row together with the plan, so that a bundle of the
        // earlier one is refused.
        let rows = runtime.records.get(SHARD, &[keys.meta(station), keys.published(station), keys.plan()]).await?;
        let [meta_row, published, plan] =
            <[_; 3]>::try_from(rows).map_err(|_| StreamError::Damaged("rows are missing"))?;
        if plan.as_ref() != Some(&runtime.plan_row) {
            return Err(Stop::Failed(StreamError::Superseded { name: runtime.name.clone() }));
        }
        let layout = runtime.stages.get(usize::from(station.stage)).ok_or(StreamError::Damaged("an unknown stage"))?;
        let destinations = layout.destinations();
        let meta = match &meta_row {
            Some(row) => Meta::from_row(row)?,
            None => Meta::new(1, &destinations, layout.sinks.len()),
        };
        let mut catalog = Catalog::new(runtime.options.bucket_ms);
        for bucket in &meta.buckets {
            let mut after = None;
            loop {
                let scan = Scan::of(keys.seen(station, *bucket), SCAN_ROWS_MAX).after(after);
                let page = runtime.records.scan(SHARD, scan).await?;
                after = page.rows.last().map(|(name, _)| name.clone());
                page.rows.iter().try_for_each(|(name, row)| catalog.load(*bucket, name, row))?;
                if !page.more {
                    break;
                }
            }
        }
        let (program, writers) = (runtime.build)(station, meta.positions[0].as_deref())?;
        let due = match &program {
            // Nothing is known of what is stored: the first look finds out.
            Program::Stage(program) => program.due_kinds().into_iter().map(|kind| (kind, Some(i64::MIN))).collect(),
            Program::Source(_) => Vec::new(),
        };
        let published = published.map(|row| Published::from_row(Some(&row)));
        let mut partition = Partition {
            bundle: Bundle::new(&destinations, layout.sinks.len(), usize::from(station.partition)),
            cells: Cells::new(keys.state(station)),
            outbox: Outbox::new(writers),
            arrived: VecDeque::new(),
            arrived_consumed: 0,
            promises: BTreeMap::new(),
            consumed_rows: Vec::new(),
            published: published.flatten(),
            sends_end: false,
            timing: CommitTiming::default(),
            rest: Rest::default(),
            room: Room::default(),
            coming_watermark: None,
            runtime,
            station,
            claim,
            meta,
            meta_row,
            program,
            catalog,
            due,
        };
        partition.load_client_ids().await?;
        partition.load_calls().await?;
        partition.load_outbox().await?;
        Ok(partition)
    }
}
