//! Clears roots and leases by the prefix of their names: for an owner that keeps no list of what it holds.

use super::{EdgeName, Error, Update, Values};
use crate::records::Scan;
use onceflow_core::Name;

/// Edges cleared by one update: each takes a few operations of its batch.
const CLEARED_AT_ONCE: usize = 100;

impl Values {
    /// Clears the roots and leases whose names begin with `prefix` and that `goes` selects; returns how many. Small
    /// updates, each atomic; safe to repeat and to stop at any await. Not durable when it returns: see
    /// [`Values::apply`].
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn clear_roots(&self, prefix: &[u8], goes: impl Fn(&[u8]) -> bool) -> Result<usize, Error> {
        let under = EdgeName::root(prefix).to_row_name();
        let (mut cleared, mut after): (usize, Option<Name>) = (0, None);
        loop {
            let scan = Scan::of(self.keys.edges.clone(), CLEARED_AT_ONCE).prefix(&under).after(after);
            let page = self.records.scan(self.shard, scan).await?;
            after = page.rows.last().map(|(name, _)| name.clone());
            let named = page.rows.iter().filter_map(|(name, _)| EdgeName::from_row_name(name.as_bytes()));
            let going: Vec<_> = named.filter(|edge| goes(edge.name().as_bytes())).collect();
            if !going.is_empty() {
                self.apply(going.iter().fold(Update::new(), |update, edge| update.clear(edge))).await?;
                cleared += going.len();
            }
            if !page.more {
                return Ok(cleared);
            }
        }
    }
}
