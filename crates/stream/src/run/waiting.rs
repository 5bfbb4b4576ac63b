//! Since when input waits: the stamps of the oldest blocks that no durable bundle has consumed, read from inboxes and
//! outboxes. The blocks of one sender are in order of their stamps, so the first of each is enough.

use super::{
    installed::{InstalledPlan, InstalledStage},
    keys::StreamKeys,
    partition::SHARD,
};
use crate::{block::RecordBlock, error::StreamError, identity::Stamp};
use onceflow_core::{Group, Name};
use onceflow_store::{Records, records::Scan};
use std::collections::BTreeMap;

/// Rows that are looked at in one inbox or outbox: a stage has few senders, and a partition few chunks for sinks.
const LOOKS_MAX: usize = 256;

/// Bytes of the name of a block, of which the first eight are its sender's.
const BLOCK_NAME_BYTES: usize = 16;

/// Returns, for every stage with input that waits, the stamp of the oldest.
pub(super) async fn since(
    records: &dyn Records,
    keys: &StreamKeys,
    plan: &InstalledPlan,
) -> Result<BTreeMap<u16, Stamp>, StreamError> {
    let mut oldest = BTreeMap::new();
    for station in plan.stages.iter().flat_map(InstalledStage::stations) {
        for group in [keys.inbox(station), keys.outbox(station)] {
            for block in first_blocks(records, group).await? {
                let Some(to) = plan.receiver(block.producer().edge()) else { continue };
                let oldest = oldest.entry(to).or_insert(block.stamp());
                *oldest = block.stamp().min(*oldest);
            }
        }
    }
    Ok(oldest)
}

/// Returns the first block of every sender.
async fn first_blocks(records: &dyn Records, group: Group) -> Result<Vec<RecordBlock>, StreamError> {
    let (mut blocks, mut after) = (Vec::new(), None);
    for _ in 0..LOOKS_MAX {
        let page = records.scan(SHARD, Scan::of(group.clone(), 1).after(after)).await?;
        let Some((name, row)) = page.rows.into_iter().next() else { break };
        after = Some(match name.as_bytes() {
            bytes if bytes.len() == BLOCK_NAME_BYTES => {
                blocks.push(RecordBlock::decode(row)?);
                Name::join(&[&bytes[..8], &[u8::MAX; 8]])
            }
            _ => name,
        });
    }
    Ok(blocks)
}
