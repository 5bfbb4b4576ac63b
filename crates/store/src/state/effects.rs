//! The effects of a batch, as facts that can be written to a log and replayed without deciding anything again.

use onceflow_core::{Group, Key, Row, Shard};

/// Receives all changes that must outlive a crash, in the order they happened. Rows of volatile groups are left out.
pub trait Effects {
    /// The next effects are on this shard.
    fn shard(&mut self, shard: Shard);
    /// The row holds this now.
    fn put(&mut self, key: &Key, row: &Row);
    /// The row is gone.
    fn delete(&mut self, key: &Key);
    /// All rows of the group are gone.
    fn delete_group(&mut self, group: &Group);
    /// One more bit is set in the row, which is still not full.
    fn set_bit(&mut self, key: &Key, bit: u32, of: u32);
}

/// Remembers nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEffects;

impl Effects for NoEffects {
    fn shard(&mut self, _: Shard) {}
    fn put(&mut self, _: &Key, _: &Row) {}
    fn delete(&mut self, _: &Key) {}
    fn delete_group(&mut self, _: &Group) {}
    fn set_bit(&mut self, _: &Key, _: u32, _: u32) {}
}
