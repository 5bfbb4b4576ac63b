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

    /// The row is in a queue and unclaimed.
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

/// Plain rows that are not in maps, and a note of every durable row that changes.
pub(crate) trait PlainRows {
    /// The state that a change replaced.
    type Before;
    /// The state that clearing a group replaced.
    type Cleared;

    /// Calls `look` with the content of a plain row.
    fn look<T>(&self, key: &Key, look: impl FnOnce(Option<&Row>) -> T) -> T;

    /// Makes a row hold this, or be gone: a plain one, or one of a queue, which is only noted.
    fn set(&mut self, key: &Key, row: Option<Row>) -> Self::Before;

    /// Takes a [`PlainRows::set`] back.
    fn restore(&mut self, key: &Key, before: Self::Before);

    /// Makes a group empty: a plain one, or a queue, which is only noted.
    fn clear(&mut self, group: &Group) -> Self::Cleared;

    /// Takes a [`PlainRows::clear`] back.
    fn restore_group(&mut self, group: &Group, cleared: Self::Cleared);

    /// The first plain rows of a group whose names begin with this.
    fn page(&self, group: &Group, prefix: &[u8], limit: usize) -> Page;
}

/// Queues in maps, and plain rows elsewhere.
pub(super) struct SplitView<'a, P> {
    pub(super) queues: MapView<'a>,
    pub(super) plain: &'a mut P,
}

/// A replaced row.
pub(super) enum SplitReplaced<B> {
    Plain(B),
    /// A queue's row, and the note of it.
    Queue(Option<Row>, B),
    /// A claim or a deadline, which no effect records.
    Volatile(Option<Row>),
}

/// A cleared group: the rows in maps, and what the note of it replaced.
type SplitCleared<C> = (Rows, Option<C>);

impl<P: PlainRows> ShardView for SplitView<'_, P> {
    type Replaced = SplitReplaced<P::Before>;
    type Cleared = SplitCleared<P::Cleared>;

    fn look<T>(&self, key: &Key, look: impl FnOnce(Option<&Row>) -> T) -> T {
        match key.group.kind() {
            Kind::Rows => self.plain.look(key, look),
            _ => self.queues.look(key, look),
        }
    }

    fn set(&mut self, key: &Key, row: Option<Row>) -> Option<Self::Replaced> {
        let is_put = row.is_some();
        match key.group.kind() {
            Kind::Rows => Some(SplitReplaced::Plain(self.plain.set(key, row))),
            Kind::Queue => {
                let old = self.queues.set(key, row.clone());
                (is_put || old.is_some()).then(|| SplitReplaced::Queue(old, self.plain.set(key, row)))
            }
            Kind::Claims | Kind::Deadlines => {
                let old = self.queues.set(key, row);
                (is_put || old.is_some()).then_some(SplitReplaced::Volatile(old))
            }
        }
    }

    fn restore(&mut self, key: &Key, replaced: Option<Self::Replaced>) {
        match replaced {
            None => {}
            Some(SplitReplaced::Plain(before)) => self.plain.restore(key, before),
            Some(SplitReplaced::Queue(old, before)) => {
                self.queues.restore(key, old);
                self.plain.restore(key, before);
            }
            Some(SplitReplaced::Volatile(old)) => self.queues.restore(key, old),
        }
    }

    fn clear(&mut self, group: &Group) -> Self::Cleared {
        let rows = if group.kind() == Kind::Rows { Rows::new() } else { self.queues.clear(group) };
        let noted = (!group.kind().is_volatile()).then(|| self.plain.clear(group));
        (rows, noted)
    }

    fn claims_in(cleared: &Self::Cleared) -> impl Iterator<Item = &Name> {
        cleared.0.keys()
    }

    fn restore_group(&mut self, group: &Group, (rows, noted): Self::Cleared) {
        self.queues.restore_group(group, rows);
        if let Some(noted) = noted {
            self.plain.restore_group(group, noted);
        }
    }

    fn is_free(&self, queue: &Group, name: &Name) -> bool {
        self.queues.is_free(queue, name)
    }

    fn next_in_turn(&mut self, queue: &Group) -> Option<&Name> {
        self.queues.next_in_turn(queue)
    }

    fn claim(&mut self, queue: &Group, name: &Name, fence: Row, deadline: Row) -> Row {
        self.queues.claim(queue, name, fence, deadline)
    }

    fn page(&mut self, group: &Group, prefix: &[u8], limit: usize) -> Page {
        match group.kind() {
            Kind::Rows => self.plain.page(group, prefix, limit),
            _ => self.queues.page(group, prefix, limit),
        }
    }

    fn rest(&mut self, group: &Group) {
        self.queues.rest(group);
    }
}
