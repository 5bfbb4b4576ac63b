//! Clears roots and leases by the prefix of their names: for an owner that keeps no list of what it holds.

use super::{EdgeName, Error, Update, rows::ValueRows};
use crate::records::Scan;
use onceflow_core::Name;

/// Edges cleared by one update: each takes a few operations of its batch.
const CLEARED_AT_ONCE: usize = 100;

/// Clears roots and leases: see [`Values::clear_roots`](super::Values::clear_roots).
pub(super) async fn clear(rows: &ValueRows, prefix: &[u8], goes: impl Fn(&[u8]) -> bool) -> Result<usize, Error> {
    let under = EdgeName::root(prefix).to_row_name();
    let (mut cleared, mut after): (usize, Option<Name>) = (0, None);
    loop {
        let scan = Scan::of(rows.keys.edges.clone(), CLEARED_AT_ONCE).prefix(&under).after(after);
        let page = rows.records.scan(rows.shard, scan).await?;
        after = page.rows.last().map(|(name, _)| name.clone());
        let named = page.rows.iter().filter_map(|(name, _)| EdgeName::from_row_name(name.as_bytes()));
        let going: Vec<_> = named.filter(|edge| goes(edge.name().as_bytes())).collect();
        if !going.is_empty() {
            rows.apply(going.iter().fold(Update::new(), |update, edge| update.clear(edge))).await?;
            cleared += going.len();
        }
        if !page.more {
            return Ok(cleared);
        }
    }
}
