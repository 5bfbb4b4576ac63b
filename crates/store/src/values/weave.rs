//! Changes values inside a batch of the caller's: what a step's commit does to values happens with that commit or not
//! at all.
//!
//! [`Values::update`] reads, decides and commits by itself, and can be told anything. A weave reads nothing (but what
//! [`Weave::Blob`], [`Weave::There`] and [`Weave::Let`] need) and requires nothing: it says what is so, and the caller's own requires guarantee that it is.
//! **Why that is right:**
//!
//! - *A new value is new* because its id is made from a fence ([`Values::fresh_id`]), which nobody had before.
//! - *A target is there* because somebody holds it in every state in which the batch happens: it is put by the same
//!   weave, or an edge to it is known to be set, and only a batch that invalidates one of these requires clears that
//!   edge. A step that passes on what it has read holds it by its inbox's edge, which goes with the inbox row, which
//!   the batch requires. A value that is held is not buried: its count is not zero.
//! - *An edge is not set yet* because its name is unique to this delivery: made of the step, its generation and the port;
//!   and the batch uses up the permission to deliver.
//! - *An edge is set to this target* because whoever set it wrote the target down beside it, in rows that the batch
//!   requires, and because edges of these names are changed by weaves alone.
//!
//! If the batch is refused, nothing of it happened, and the caller decides again. If the caller was wrong, counts differ
//! from what they count, and `fsck` says so.
//!
//! Counts are summed over the whole weave: what goes from one edge to another is counted not at all.

mod bytes;
mod check;

use super::{
    Element, Error, Update, Upload, Values,
    id::{EdgeName, ValueId},
    stored::{Debt, Edge, Seal, Standing, value_row},
    update::{self, Facts},
    value::{Content, Digest, Value},
};
use crate::records::Committed;
use onceflow_core::{Batch, Name, Op, Require, Row, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// A change to values inside a batch. What stands earlier in a weave happens first: a value stands before what refers
/// to it, an element before the list it is gathered into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Weave {
    /// A new value under an id that nobody used before. If nothing in this weave refers to it, it is garbage from birth.
    Put {
        /// Made by [`Values::fresh_id`].
        id: ValueId,
        /// What it is. Its references are put earlier in this weave, or held for sure.
        value: Value,
    },
    /// The blob of an upload: named by its content, so it may be there already. What is there is read, and required.
    Blob(Upload),
    /// A value that may have gone meanwhile, which the batch refers to: that it is there is read, and required.
    There {
        /// Which.
        id: ValueId,
    },
    /// Lets go what was put ahead of this batch ([`Hold`](super::hold::Hold)): that it is held is read, and required.
    Let {
        /// Its lease.
        edge: EdgeName,
    },
    /// Sets an edge that is not set.
    Set {
        /// Its name, unique to this delivery.
        edge: EdgeName,
        /// Put earlier in this weave, or held for sure.
        to: ValueId,
        /// Makes it a lease, which ends then by itself.
        deadline: Option<Timestamp>,
    },
    /// Clears an edge that is set.
    Clear {
        /// Its name.
        edge: EdgeName,
        /// What it is set to.
        from: ValueId,
        /// When it ends, if it is a lease. A lease that is renewed, or may have ended, cannot be cleared blindly.
        deadline: Option<Timestamp>,
    },
    /// An element of a list to be gathered under this prefix. One row.
    Element {
        /// What all elements of the list have in common. Neither gathered nor released yet.
        prefix: Name,
        /// Which element; there is none of this index.
        index: u64,
        /// What it is.
        element: Element,
    },
    /// Gathers a prefix into a new list, which owns the elements from now on.
    Gather {
        /// Made by [`Values::fresh_id`].
        id: ValueId,
        /// What all elements of the list have in common.
        prefix: Name,
        /// How many there are.
        n: u64,
        /// What they amount to.
        digest: Digest,
    },
    /// Every element under the prefix goes, in small steps of [`Values::reclaim`]; see [`Values::release`]. Call
    /// [`Values::wake_reclaim`] afterwards, or it takes until the reclaim loop looks by itself.
    Release {
        /// Not gathered, and not released before.
        prefix: Name,
    },
}

impl Weave {
    /// How many operations of a batch it takes at most, those in triggers included.
    pub fn ops(&self) -> usize {
        /// A count that changes, and what follows at zero.
        const COUNT: usize = 2;
        match self {
            Weave::Put { value, .. } => 1 + COUNT + COUNT * value.refs.len(),
            Weave::Blob(_) => 2 + COUNT,
            Weave::There { .. } => 0,
            Weave::Let { .. } => 2 + COUNT,
            Weave::Set { deadline, .. } | Weave::Clear { deadline, .. } => 1 + COUNT + usize::from(deadline.is_some()),
            Weave::Element { element: Element::Ref(_), .. } => 1 + COUNT,
            Weave::Element { element: Element::Inline(_), .. } => 1,
            Weave::Gather { .. } => 2 + COUNT,
            Weave::Release { .. } => 2,
        }
    }
}

impl Values {
    /// Adds what these changes take to a batch of this shard. Its operations come after those that stand there, its
    /// requires too, so a refusal that names an earlier require is one of the caller's own.
    ///
    /// Reads the rows of blobs, and of what it is told is there or held, and nothing if there are none. When the batch is
    /// refused for what was read, weave again: somebody else has put the same blob, or it was reclaimed.
    ///
    /// # Errors
    /// [`UploadLost`](Error::UploadLost), [`Missing`](Error::Missing) and [`LeaseLost`](Error::LeaseLost) if what it needs
    /// is gone, and [`Conflict`](Error::Conflict) if a blob's id is another value's. The batch is as it was.
    pub async fn weave(&self, batch: &mut Batch, changes: &[Weave]) -> Result<(), Error> {
        let mut blobs = Update::new();
        for change in changes {
            if let Weave::Blob(upload) = change {
                blobs = blobs.blob(upload);
            }
        }
        let mut weaving = Weaving::new(self);
        let mut requires = self.there(changes, &mut weaving).await?;
        if !blobs.puts.is_empty() {
            let wanted = update::wanted(&self.keys, &blobs)?;
            let rows = self.records.get(self.shard, &wanted).await?;
            let (named, born) = update::blobs(&self.keys, self.shard, &Facts::new(wanted, rows), &blobs)?;
            weaving.ops.extend(named.ops);
            weaving.born = born;
            requires.extend(named.requires);
        }
        batch.requires.extend(requires);
        batch.ops.extend(weaving.weave(changes));
        Ok(())
    }

    /// What must be there, as it was read, and what lets go of it.
    async fn there(&self, changes: &[Weave], weaving: &mut Weaving<'_>) -> Result<Vec<Require>, Error> {
        let mut requires = Vec::new();
        for change in changes {
            match change {
                Weave::There { id } => {
                    let key = self.keys.value(id);
                    let row = self.row(key.clone()).await?.ok_or_else(|| Error::Missing { id: id.clone() })?;
                    requires.push(Require::Equals(key, row));
                }
                Weave::Let { edge } => {
                    let found = self.edge_row(edge).await?;
                    let (row, held) = found.ok_or_else(|| Error::LeaseLost { edge: edge.clone() })?;
                    requires.push(Require::Equals(self.keys.edge(edge), row));
                    weaving.ops.push(Op::Delete(self.keys.edge(edge)));
                    weaving.ops.extend(held.deadline.map(|deadline| Op::Delete(self.keys.due(deadline, edge))));
                    weaving.count(&held.target, -1);
                }
                _ => {}
            }
        }
        Ok(requires)
    }

    /// As [`Values::weave`], for changes without a blob.
    ///
    /// # Panics
    /// If there is a blob.
    pub fn weave_blind(&self, batch: &mut Batch, changes: &[Weave]) {
        batch.ops.extend(self.woven(changes));
    }

    /// The operations of changes without a blob, for what follows from a trigger. Operations of several weaves may
    /// stand in one batch, in triggers or not: they agree about what happens when a count is zero, and a count that
    /// a full bitmap's trigger raises again was never zero.
    ///
    /// # Panics
    /// If there is a blob.
    pub fn woven(&self, changes: &[Weave]) -> Vec<Op> {
        let reads = |change: &Weave| matches!(change, Weave::Blob(_) | Weave::There { .. } | Weave::Let { .. });
        assert!(!changes.iter().any(reads), "what may be there or not, only `Values::weave` finds out");
        Weaving::new(self).weave(changes)
    }

    /// Wakes the reclaim loop if a batch that was woven into left something to reclaim. Without it, that waits until the
    /// loop looks by itself.
    pub fn noticed(&self, committed: &Committed) {
        if committed.fired.iter().any(|key| key.group == self.keys.counts) {
            self.news.notify();
        }
    }

    /// Wakes the reclaim loop of this process.
    pub fn wake_reclaim(&self) {
        self.news.notify();
    }

    /// An id for a new value, that nobody had before.
    pub fn fresh_id(&self) -> ValueId {
        ValueId::of_fence(self.fences.next())
    }
}

/// A weave on its way.
struct Weaving<'a> {
    values: &'a Values,
    ops: Vec<Op>,
    /// Values that are new.
    born: BTreeSet<ValueId>,
    /// How counts change, all told.
    deltas: BTreeMap<ValueId, i64>,
}

impl<'a> Weaving<'a> {
    fn new(values: &'a Values) -> Self {
        Weaving { values, ops: vec![], born: BTreeSet::new(), deltas: BTreeMap::new() }
    }

    fn weave(mut self, changes: &[Weave]) -> Vec<Op> {
        if cfg!(debug_assertions) {
            check::check(changes);
        }
        for change in changes {
            self.change(change);
        }
        self.count_all();
        self.ops
    }

    fn change(&mut self, change: &Weave) {
        let keys = &self.values.keys;
        match change {
            Weave::Put { id, value } => self.put(id, &value.refs, &value.content),
            // Done by the update that names it, and by what has read it.
            Weave::Blob(_) | Weave::There { .. } | Weave::Let { .. } => {}
            Weave::Set { edge, to, deadline } => {
                let row = Edge { target: to.clone(), deadline: *deadline }.to_row();
                self.ops.push(Op::Put(keys.edge(edge), row));
                if let Some(deadline) = deadline {
                    self.ops.push(Op::Put(keys.due(*deadline, edge), Row::default()));
                }
                self.count(to, 1);
            }
            Weave::Clear { edge, from, deadline } => {
                self.ops.push(Op::Delete(keys.edge(edge)));
                crate::seams::after_clear(&mut self.ops, keys.value(from));
                if let Some(deadline) = deadline {
                    self.ops.push(Op::Delete(keys.due(*deadline, edge)));
                }
                self.count(from, -1);
            }
            Weave::Element { prefix, index, element } => {
                let key = keys.edge(&EdgeName::Element { prefix: prefix.clone(), index: *index });
                let row = match element {
                    Element::Inline(bytes) => Standing::inline_row(bytes),
                    Element::Ref(target) => {
                        self.count(target, 1);
                        Edge { target: target.clone(), deadline: None }.to_row()
                    }
                };
                self.ops.push(Op::Put(key, row));
            }
            Weave::Gather { id, prefix, n, digest } => {
                self.put(id, &[], &Content::Gathered { prefix: prefix.clone(), n: *n, digest: *digest });
                self.ops.push(Op::Put(keys.sealed(prefix), Seal::OwnedBy(id.clone()).to_row()));
            }
            Weave::Release { prefix } => {
                self.ops.push(Op::Put(keys.sealed(prefix), Seal::Released.to_row()));
                self.ops.push(Op::Put(keys.owed.key(Debt::release_name(prefix)), Debt::release_row()));
            }
        }
    }

    fn put(&mut self, id: &ValueId, refs: &[ValueId], content: &Content) {
        self.ops.push(Op::Put(self.values.keys.value(id), value_row(refs, content)));
        refs.iter().for_each(|id| self.count(id, 1));
        self.born.insert(id.clone());
    }

    fn count(&mut self, id: &ValueId, delta: i64) {
        *self.deltas.entry(id.clone()).or_default() += delta;
    }

    /// One operation for each count that changes. A new value that nothing refers to adds nothing to nothing: that is
    /// zero, so it is queued to be buried, and the answer to the batch tells.
    fn count_all(&mut self) {
        self.deltas.retain(|_, delta| *delta != 0);
        for id in std::mem::take(&mut self.born) {
            let delta = *self.deltas.entry(id).or_default();
            debug_assert!(delta >= 0, "more edges to a new value are cleared than set");
        }
        let keys = &self.values.keys;
        for (id, delta) in std::mem::take(&mut self.deltas) {
            self.ops.push(Op::Add {
                key: keys.count(&id),
                delta,
                at_zero: vec![Op::Put(keys.zero(&id), Row::default())],
            });
        }
    }
}
