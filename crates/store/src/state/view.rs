//! The rows of one shard, as applying a batch sees and changes them. Memory and the journal give maps ([`MapView`]); a
//! backend whose rows are elsewhere gives what it has changed over what it last wrote.

use super::{
    Totals,
    shard::{Rows, ShardState},
};
use crate::records::Page;
use onceflow_core::{Group, Key, Kind, Name, Row};

/// Rows that a batch is applied to. One implementation per backend, and `apply` is compiled for each.
pub(crate) trait ShardView {
    /// A replaced row, for [`ShardView::restore`].
    type Replaced;
    /// The rows of a cleared group, for [`ShardView::restore_group`].
    type Cleared;

    /// Calls `look` with the content of a row.
    fn look<T>(&self, key: &Key, look: impl FnOnce(Option<&Row>) -> T) -> T;

    /// Makes a row hold this, or be gone. The answer is `None` if the row was not there; a view that does not look may
    /// answer something all the same, but not for a claim. [`ShardView::rest`] follows before the batch ends.
    fn set(&mut self, key: &Key, row: Option<Row>) -> Option<Self::Replaced>;

    /// Takes a [`ShardView::set`] back.
    fn restore(&mut self, key: &Key, replaced: Option<Self::Replaced>);

    /// Makes a group empty.
    fn clear(&mut self, group: &Group) -> Self::Cleared;

    /// The names of cleared claims.
    fn claims_in(cleared: &Self::Cleared) -> impl Iterator<Item = &Name>;

    /// Takes a [`ShardView::clear`] back.
    fn restore_group(&mut self, group: &Group, cleared: Self::Cleared);

    /// The row is in a queue, and nobody has claimed it.
    fn is_free(&self, queue: &Group, name: &Name) -> bool;

    /// The free row of a queue whose turn it is.
    fn next_in_turn(&mut self, queue: &Group) -> Option<&Name>;

    /// Claims a free row, and answers it.
    fn claim(&mut self, queue: &Group, name: &Name, fence: Row, deadline: Row) -> Row;

    /// The first rows of a group whose names begin with this.
    fn page(&mut self, group: &Group, prefix: &[u8], limit: usize) -> Page;

    /// The batch ends; it changed this group, which is a queue's.
    fn rest(&mut self, group: &Group);
}

/// Rows in maps, and their totals.
pub(super) struct MapView<'a> {
    pub(super) rows: &'a mut ShardState,
    pub(super) durable: &'a mut Totals,
}

impl ShardView for MapView<'_> {
    type Replaced = Row;
    type Cleared = Rows;

    #[inline]
    fn look<T>(&self, key: &Key, look: impl FnOnce(Option<&Row>) -> T) -> T {
        look(self.rows.get(key))
    }

    #[inline]
    fn set(&mut self, key: &Key, row: Option<Row>) -> Option<Row> {
        self.durable.set(self.rows, key, row)
    }

    fn restore(&mut self, key: &Key, replaced: Option<Row>) {
        self.durable.set(self.rows, key, replaced);
    }

    fn clear(&mut self, group: &Group) -> Rows {
        self.durable.clear(self.rows, group)
    }

    fn claims_in(cleared: &Rows) -> impl Iterator<Item = &Name> {
        cleared.keys()
    }

    fn restore_group(&mut self, group: &Group, cleared: Rows) {
        for (name, row) in cleared {
            self.durable.set(self.rows, &Key { group: group.clone(), name }, Some(row));
        }
    }

    #[inline]
    fn is_free(&self, queue: &Group, name: &Name) -> bool {
        self.rows.is_free(queue, name)
    }

    fn next_in_turn(&mut self, queue: &Group) -> Option<&Name> {
        self.rows.next_in_turn(queue)
    }

    fn claim(&mut self, queue: &Group, name: &Name, fence: Row, deadline: Row) -> Row {
        self.rows.claim(queue, name, fence, deadline)
    }

    fn page(&mut self, group: &Group, prefix: &[u8], limit: usize) -> Page {
        if group.kind() != Kind::Rows {
            self.rows.settle(group);
        }
        self.rows.page(group, prefix, None, limit)
    }

    fn rest(&mut self, group: &Group) {
        self.rows.rest(group);
    }
}
