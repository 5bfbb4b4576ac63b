//! Adds changes of values to a batch of the caller's, so that they happen with that batch or not at all.
//!
//! [`Values::update`] reads, decides and commits by itself, and checks every change. Here changes are taken as true without
//! reading anything (but for blobs, [`ValueChange::RequireValue`] and [`ValueChange::ReleaseHold`]), and no requires are
//! added for them: the caller's own requires guarantee them. **Why that is right:**
//!
//! - *A new value is new* because its id is made from a fence ([`Values::fresh_id`]) that was never used before.
//! - *A target exists* because an edge holds it in every state in which the batch is applied: the target is put by the same
//!   batch, or an edge to it is known to be set, and only a batch that invalidates one of these requires clears that
//!   edge. A step that passes on an input holds it by its inbox's edge, which is deleted with the inbox row, which
//!   the batch requires. A value that is held is not swept: its count is not zero.
//! - *An edge is not set yet* because its name is unique to this delivery: made of the step, its generation and the port;
//!   and the batch uses up the permission to deliver.
//! - *An edge is set to this target* because the batch that set it recorded the target beside it, in rows that this batch
//!   requires, and because edges of these names are changed in no other way.
//!
//! If the batch is refused, nothing of it happened, and the caller decides again. If the caller was wrong, counts differ
//! from the edges they count, and `fsck` reports it.
//!
//! Counts are summed over all changes: a reference that moves from one edge to another changes no count.

mod check;

use super::{
    Content, EdgeName, Element, Error, Value, ValueChange, ValueId, Values,
    rows::ValueRows,
    stored::{Debt, Edge, Seal, Standing, value_row},
    update::{self, Facts},
    writer::ValueWriter,
};
use crate::records::Committed;
use onceflow_core::{Batch, Op, Require, Row};
use std::collections::{BTreeMap, BTreeSet};

impl Values {
    /// Adds the operations and requires of these changes to a batch of this shard, after those that are there already: a
    /// refusal that names an earlier require is one of the caller's own.
    ///
    /// Reads the rows of blobs, required values and held leases, and nothing if there are none. When the batch is
    /// refused because one of them changed, add the changes to a new batch: another writer has put the same blob, or it was
    /// reclaimed.
    ///
    /// # Errors
    /// [`UploadLost`](Error::UploadLost), [`Missing`](Error::Missing) and [`LeaseLost`](Error::LeaseLost) if a required row
    /// is gone, and [`Conflict`](Error::Conflict) if a blob's id is another value's. The batch is unchanged then.
    pub async fn add_changes(&self, batch: &mut Batch, changes: &[ValueChange]) -> Result<(), Error> {
        let mut added = Added::new(self);
        let mut requires = added.read_required(changes).await?;
        let blobs: Vec<_> = changes.iter().filter_map(update::Put::of).filter(update::Put::is_blob).collect();
        if !blobs.is_empty() {
            let wanted = update::wanted_by_blobs(&self.rows.keys, &blobs)?;
            let rows = self.rows.records.get(self.rows.shard, &wanted).await?;
            let (named, born) = update::blobs(&self.rows.keys, self.rows.shard, &Facts::new(wanted, rows), &blobs)?;
            added.ops.extend(named.ops);
            added.born = born;
            requires.extend(named.requires);
        }
        batch.requires.extend(requires);
        batch.ops.extend(added.all(changes));
        Ok(())
    }

    /// The operations of changes that need no read, also for a trigger. Operations of several calls may be in one batch,
    /// in triggers or not: they agree about what happens when a count is zero, and a count that a full bitmap's trigger
    /// raises again was never zero.
    ///
    /// # Panics
    /// If a change must be read: a blob, a required value or a hold.
    pub fn blind_ops(&self, changes: &[ValueChange]) -> Vec<Op> {
        assert!(!changes.iter().any(must_be_read), "only `Values::add_changes` reads what a change requires");
        Added::new(self).all(changes)
    }

    /// Wakes the reclaim loop if a batch with changes left garbage. Without this call the garbage waits until the loop's
    /// next periodic look.
    pub fn notify_committed(&self, committed: &Committed) {
        if committed.fired.iter().any(|key| key.group == self.rows.keys.counts) {
            self.rows.news.notify();
        }
    }
}

/// The change rests on a row that may have changed, and must be read.
fn must_be_read(change: &ValueChange) -> bool {
    match change {
        ValueChange::RequireValue { .. } | ValueChange::ReleaseHold { .. } | ValueChange::Move { .. } => true,
        ValueChange::Put { value, .. } => matches!(value.content, Content::Object { .. }),
        _ => false,
    }
}

/// The operations of changes, while they are collected.
struct Added<'a> {
    rows: &'a ValueRows,
    writer: &'a ValueWriter,
    ops: Vec<Op>,
    /// Values that are new.
    born: BTreeSet<ValueId>,
    /// The sum of the changes to each count.
    deltas: BTreeMap<ValueId, i64>,
}

impl<'a> Added<'a> {
    fn new(values: &'a Values) -> Self {
        Added {
            rows: &values.rows,
            writer: &values.writer,
            ops: vec![],
            born: BTreeSet::new(),
            deltas: BTreeMap::new(),
        }
    }

    /// Reads the values and leases that must exist, and requires that they stay as they were read.
    async fn read_required(&mut self, changes: &[ValueChange]) -> Result<Vec<Require>, Error> {
        let mut requires = Vec::new();
        for change in changes {
            match change {
                ValueChange::RequireValue { id } => {
                    let key = self.rows.keys.value(id);
                    let row = self.rows.row(key.clone()).await?.ok_or_else(|| Error::Missing { id: id.clone() })?;
                    requires.push(Require::Equals(key, row));
                }
                ValueChange::ReleaseHold { edge } => {
                    let found = self.rows.edge_row(edge).await?;
                    let (row, held) = found.ok_or_else(|| Error::LeaseLost { edge: edge.clone() })?;
                    requires.push(Require::Equals(self.rows.keys.edge(edge), row));
                    self.ops.push(Op::Delete(self.rows.keys.edge(edge)));
                    self.ops.extend(held.deadline.map(|deadline| Op::Delete(self.rows.keys.due(deadline, edge))));
                    self.count(&held.target, -1);
                }
                _ => {}
            }
        }
        Ok(requires)
    }

    fn all(mut self, changes: &[ValueChange]) -> Vec<Op> {
        if cfg!(debug_assertions) {
            check::check(changes);
        }
        for change in changes {
            self.change(change);
        }
        self.count_all();
        self.ops
    }

    fn change(&mut self, change: &ValueChange) {
        let keys = &self.rows.keys;
        match change {
            ValueChange::Put { id, value } => self.put(id, value),
            // Added when their rows were read.
            ValueChange::RequireValue { .. } | ValueChange::ReleaseHold { .. } => {}
            ValueChange::Move { edge, .. } => {
                panic!("edge {edge} is read before it is moved: only an update does that")
            }
            ValueChange::Set { edge, to, deadline } => {
                let row = Edge { target: to.clone(), deadline: *deadline }.to_row();
                self.ops.push(Op::Put(keys.edge(edge), row));
                if let Some(deadline) = deadline {
                    self.ops.push(Op::Put(keys.due(*deadline, edge), Row::default()));
                }
                self.count(to, 1);
            }
            ValueChange::Clear { edge, from, deadline } => {
                self.ops.push(Op::Delete(keys.edge(edge)));
                crate::seams::after_clear(&mut self.ops, keys.value(from));
                if let Some(deadline) = deadline {
                    self.ops.push(Op::Delete(keys.due(*deadline, edge)));
                }
                self.count(from, -1);
            }
            ValueChange::Element { prefix, index, element } => {
                let key = keys.edge(&EdgeName::Element { prefix: prefix.clone(), index: *index });
                let row = self.element_row(element);
                self.ops.push(Op::Put(key, row));
            }
            ValueChange::Release { prefix } => {
                self.ops.push(Op::Put(keys.sealed(prefix), Seal::Released.to_row()));
                self.ops.push(Op::Put(keys.owed.key(Debt::release_name(prefix)), Debt::release_row()));
            }
        }
    }

    fn put(&mut self, id: &ValueId, value: &Value) {
        match &value.content {
            // Added when its row was read.
            Content::Object { .. } => return,
            Content::Gathered { prefix, .. } => {
                let seal = Seal::OwnedBy(id.clone()).to_row();
                self.ops.push(Op::Put(self.rows.keys.sealed(prefix), seal));
            }
            Content::Inline(_) | Content::Source(_) => {}
        }
        self.ops.push(Op::Put(self.rows.keys.value(id), value_row(&value.refs, &value.content)));
        value.refs.iter().for_each(|id| self.count(id, 1));
        self.born.insert(id.clone());
    }

    fn element_row(&mut self, element: &Element) -> Row {
        let target = match element {
            Element::Inline(bytes) => return Standing::inline_row(bytes),
            Element::Ref(target) => target.clone(),
            Element::Described { bytes, to } => {
                let front = self.writer.fresh_id();
                self.put(&front, &Value { refs: vec![to.clone()], content: Content::Inline(bytes.to_vec()) });
                front
            }
        };
        self.count(&target, 1);
        Edge { target, deadline: None }.to_row()
    }

    fn count(&mut self, id: &ValueId, delta: i64) {
        *self.deltas.entry(id.clone()).or_default() += delta;
    }

    /// One operation for each count that changes. A new value without a reference adds zero to an absent count: that fires
    /// the trigger at zero, which queues it to be swept, and the answer to the batch reports it.
    fn count_all(&mut self) {
        self.deltas.retain(|_, delta| *delta != 0);
        for id in std::mem::take(&mut self.born) {
            let delta = *self.deltas.entry(id).or_default();
            debug_assert!(delta >= 0, "more edges to a new value are cleared than set");
        }
        let keys = &self.rows.keys;
        for (id, delta) in std::mem::take(&mut self.deltas) {
            self.ops.push(Op::Add {
                key: keys.count(&id),
                delta,
                at_zero: vec![Op::Put(keys.zero(&id), Row::default())],
            });
        }
    }
}
