//! Decides what an update does. Pure: facts in, batch out.
//!
//! Relies on two guarantees of reclaiming: a value is deleted only when its count is zero, and its count includes every
//! reference, edge and debt. The batch requires that a value referred to is still stored; the facts alone cannot tell.

use super::{
    Content, EdgeName, Element, Error, Expect, Keys, Update, Value, ValueChange, ValueId, limits,
    stored::{Edge, Head, Seal, value_row},
};
use crate::blobs::ObjectName;
use onceflow_core::{Batch, Key, Name, Op, Row, Shard, Timestamp, limits as batch_limits};
use std::collections::{BTreeMap, BTreeSet};

mod shape;
#[cfg(test)]
mod tests;

/// The rows of the store as they were read.
#[derive(Default)]
pub(super) struct Facts(BTreeMap<Key, Row>);

impl Facts {
    /// The facts from the answer to a `get` of `keys`.
    pub(super) fn new(keys: Vec<Key>, rows: Vec<Option<Row>>) -> Self {
        Facts(keys.into_iter().zip(rows).filter_map(|(key, row)| Some((key, row?))).collect())
    }

    fn get(&self, key: &Key) -> Option<&Row> {
        self.0.get(key)
    }
}

/// A value that an update puts.
#[derive(Clone, Copy)]
pub(super) struct Put<'a> {
    id: &'a ValueId,
    value: &'a Value,
}

impl<'a> Put<'a> {
    pub(super) fn of(change: &'a ValueChange) -> Option<Self> {
        let ValueChange::Put { id, value } = change else { return None };
        Some(Put { id, value })
    }

    pub(super) fn is_blob(&self) -> bool {
        matches!(self.value.content, Content::Object { .. })
    }

    /// The rows that putting it is decided on.
    fn wanted(&self, keys: &Keys, wanted: &mut BTreeSet<Key>) {
        wanted.insert(keys.value(self.id));
        wanted.extend(self.value.refs.iter().map(|id| keys.count(id)));
        match &self.value.content {
            Content::Gathered { prefix, .. } => drop(wanted.insert(keys.sealed(prefix))),
            Content::Object { name, .. } => drop(wanted.insert(keys.upload(*name))),
            Content::Inline(_) | Content::Source(_) => {}
        }
    }
}

/// When a lease expires.
#[derive(Clone, Copy)]
enum Until {
    /// This many milliseconds from now.
    After(u64),
    At(Timestamp),
}

/// The new target of an edge.
struct EdgeMove<'a> {
    edge: EdgeName,
    to: Option<&'a ValueId>,
    expect: Expect,
    until: Option<Until>,
}

impl<'a> EdgeMove<'a> {
    /// The edge that a change sets, moves or clears.
    fn of(change: &'a ValueChange) -> Option<Self> {
        let (edge, to, expect, until) = match change {
            ValueChange::Move { edge, to, expect, ttl_ms } => {
                (edge.clone(), to.as_ref(), expect.clone(), ttl_ms.map(Until::After))
            }
            ValueChange::Set { edge, to, deadline } => (edge.clone(), Some(to), Expect::Unset, deadline.map(Until::At)),
            ValueChange::Clear { edge, from, .. } => (edge.clone(), None, Expect::Target(from.clone()), None),
            ValueChange::Element { prefix, index, element: Element::Ref(to) } => {
                let edge = EdgeName::Element { prefix: prefix.clone(), index: *index };
                (edge, Some(to), Expect::Unset, None)
            }
            _ => return None,
        };
        Some(EdgeMove { edge, to, expect, until })
    }
}

/// An update, with the changes of each kind apart: values are put before edges move.
pub(super) struct Asked<'a> {
    puts: Vec<Put<'a>>,
    edges: Vec<EdgeMove<'a>>,
    required: Vec<&'a ValueId>,
}

impl<'a> Asked<'a> {
    /// # Errors
    /// [`Senseless`](Error::Senseless) for a change that only a batch of the caller's can make, and for what
    /// contradicts itself; [`TooLarge`](Error::TooLarge) for what exceeds a limit.
    pub(super) fn new(update: &'a Update) -> Result<Self, Error> {
        let mut asked = Asked { puts: vec![], edges: vec![], required: vec![] };
        for change in &update.changes {
            if let Some(put) = Put::of(change) {
                asked.puts.push(put);
            } else if let Some(edge) = EdgeMove::of(change) {
                asked.edges.push(edge);
            } else if let ValueChange::RequireValue { id } = change {
                asked.required.push(id);
            } else {
                return Err(Error::Senseless(format!("{change:?} needs a batch of the caller's, not an update")));
            }
        }
        shape::check(&asked)?;
        Ok(asked)
    }

    /// Some deadline is relative to the store's clock.
    pub(super) fn needs_clock(&self) -> bool {
        self.edges.iter().any(|change| matches!(change.until, Some(Until::After(_))))
    }

    /// The rows an update is decided on.
    pub(super) fn wanted(&self, keys: &Keys) -> Result<Vec<Key>, Error> {
        let mut wanted = BTreeSet::new();
        self.puts.iter().for_each(|put| put.wanted(keys, &mut wanted));
        for change in &self.edges {
            wanted.insert(keys.edge(&change.edge));
            wanted.extend(change.to.iter().map(|id| keys.count(id)));
            if let EdgeName::Element { prefix, .. } = &change.edge {
                wanted.insert(keys.sealed(prefix));
            }
        }
        shape::at_most("rows an update looks at", wanted.len(), batch_limits::GET_KEYS_MAX, "GET_KEYS_MAX")?;
        Ok(wanted.into_iter().collect())
    }
}

/// The rows that putting these blobs is decided on.
pub(super) fn wanted_by_blobs(keys: &Keys, blobs: &[Put<'_>]) -> Result<Vec<Key>, Error> {
    let mut wanted = BTreeSet::new();
    blobs.iter().for_each(|put| put.wanted(keys, &mut wanted));
    shape::at_most("rows an update looks at", wanted.len(), batch_limits::GET_KEYS_MAX, "GET_KEYS_MAX")?;
    Ok(wanted.into_iter().collect())
}

/// The batch that makes the changes at `now`; `None` if all of them are made already.
pub(super) fn decide(
    keys: &Keys,
    shard: Shard,
    facts: &Facts,
    asked: &Asked<'_>,
    now: Timestamp,
) -> Result<Option<Batch>, Error> {
    let mut decision = Decision::new(keys, shard, facts, &asked.puts);
    for (at, put) in asked.puts.iter().enumerate() {
        decision.put(at, *put)?;
    }
    for change in &asked.edges {
        decision.edge(change, now)?;
    }
    decision.required.extend(&asked.required);
    decision.finish()
}

/// The part of a batch that puts these blobs, and the ids of those that are new. The caller counts their references.
pub(super) fn blobs(
    keys: &Keys,
    shard: Shard,
    facts: &Facts,
    blobs: &[Put<'_>],
) -> Result<(Batch, BTreeSet<ValueId>), Error> {
    let mut decision = Decision::new(keys, shard, facts, blobs);
    for (at, put) in blobs.iter().enumerate() {
        decision.put(at, *put)?;
    }
    let born = decision.born.into_keys().cloned().collect();
    Ok((decision.batch, born))
}

struct Decision<'a> {
    keys: &'a Keys,
    facts: &'a Facts,
    batch: Batch,
    /// Where in the update each id is put first.
    first_put: BTreeMap<&'a ValueId, usize>,
    /// The values this update stores, and where in it.
    born: BTreeMap<&'a ValueId, (usize, Row)>,
    /// The blobs this update names an object for.
    blobs: BTreeMap<&'a ValueId, Row>,
    /// Objects that are not needed, because the blob was stored before.
    late: BTreeSet<ObjectName>,
    /// The prefixes this update gathers, and where in it.
    gathered: BTreeMap<&'a Name, usize>,
    /// How counts change, all told.
    deltas: BTreeMap<ValueId, i64>,
    /// Values that must be stored already.
    required: BTreeSet<&'a ValueId>,
}

impl<'a> Decision<'a> {
    fn new(keys: &'a Keys, shard: Shard, facts: &'a Facts, puts: &[Put<'a>]) -> Self {
        let first_put = puts.iter().enumerate().rev().map(|(at, put)| (put.id, at)).collect();
        Decision {
            keys,
            facts,
            batch: Batch::new(shard),
            first_put,
            born: BTreeMap::new(),
            blobs: BTreeMap::new(),
            late: BTreeSet::new(),
            gathered: BTreeMap::new(),
            deltas: BTreeMap::new(),
            required: BTreeSet::new(),
        }
    }

    fn put(&mut self, at: usize, put: Put<'a>) -> Result<(), Error> {
        let row = value_row(&put.value.refs, &put.value.content);
        shape::at_most("bytes in a value", row.len(), limits::VALUE_BYTES_MAX, "VALUE_BYTES_MAX")?;
        let conflict = || Error::Conflict { id: put.id.clone() };
        if let Content::Object { name, .. } = put.value.content {
            return self.put_blob(at, put, name, row);
        }
        if let Some((_, born)) = self.born.get(put.id) {
            return if *born == row { Ok(()) } else { Err(conflict()) };
        }
        let key = self.keys.value(put.id);
        match self.facts.get(&key) {
            Some(stored) if *stored == row => {
                self.batch.require_equals(key, row);
                return Ok(());
            }
            Some(stored) if Head::read(stored).is_some_and(|head| head.is_lost()) => {
                // With references, the value might be made to refer to a value that refers to it.
                if !put.value.refs.is_empty() || !matches!(put.value.content, Content::Inline(_)) {
                    return Err(Error::Lost { id: put.id.clone() });
                }
                self.batch.require_equals(key.clone(), stored.clone()).put(key, row);
                return Ok(());
            }
            Some(_) => return Err(conflict()),
            None => {}
        }
        self.batch.require_absent(key.clone()).put(key, row.clone());
        for id in &put.value.refs {
            self.refer(id, at)?;
        }
        if let Content::Gathered { prefix, .. } = &put.value.content {
            self.seal(put.id, prefix, at)?;
        }
        self.born.insert(put.id, (at, row));
        Ok(())
    }

    /// Makes a blob name the object just uploaded, unless the blob is stored already: then the object has come too
    /// late.
    fn put_blob(&mut self, at: usize, put: Put<'a>, object: ObjectName, row: Row) -> Result<(), Error> {
        let (key, upload) = (self.keys.value(put.id), self.keys.upload(object));
        let (stored, uploaded) = (self.facts.get(&key), self.facts.get(&upload));
        match self.blobs.get(put.id) {
            Some(blob) if *blob == row => return Ok(()),
            Some(blob) => return self.come_too_late(put, &blob.clone(), object),
            None if self.born.contains_key(put.id) => return Err(Error::Conflict { id: put.id.clone() }),
            None => {}
        }
        // A blob that was handed over is now a file of the user's, who may change it: an object is better.
        let gives_way = |row: &Row| Head::read(row).is_some_and(|head| head.is_lost() || head.is_source());
        match stored {
            Some(stored) if *stored == row => {
                self.batch.require_equals(key, row);
                return Ok(());
            }
            Some(stored) if !gives_way(stored) => {
                self.batch.require_equals(key, stored.clone());
                return self.come_too_late(put, stored, object);
            }
            _ => {}
        }
        let uploaded = uploaded.ok_or_else(|| Error::UploadLost { id: put.id.clone() })?;
        crate::seams::require_content_as_seen(&mut self.batch, key.clone(), stored.cloned());
        self.batch.put(key, row.clone());
        self.batch.require_equals(upload.clone(), uploaded.clone()).delete(upload);
        self.blobs.insert(put.id, row.clone());
        if stored.is_none() {
            self.born.insert(put.id, (at, row));
        }
        Ok(())
    }

    /// Discards the object just uploaded: the blob was stored before, or is put earlier in this very update.
    fn come_too_late(&mut self, put: Put<'_>, there: &Row, object: ObjectName) -> Result<(), Error> {
        if !same_blob(there, &put.value.content) {
            return Err(Error::Conflict { id: put.id.clone() });
        }
        let upload = self.keys.upload(object);
        if let Some(uploaded) = self.facts.get(&upload)
            && self.late.insert(object)
        {
            self.batch.require_equals(upload.clone(), uploaded.clone()).delete(upload);
            self.batch.put(self.keys.unlink(object), Row::default());
        }
        Ok(())
    }

    /// Counts one more reference to a value, made by the change at `at`.
    fn refer(&mut self, id: &'a ValueId, at: usize) -> Result<(), Error> {
        let is_stored = |decision: &Self| decision.facts.get(&decision.keys.value(id)).is_some();
        if !self.born.contains_key(id) {
            if self.first_put.get(id).is_some_and(|first| *first >= at) && !is_stored(self) {
                return Err(Error::Missing { id: id.clone() });
            }
            self.required.insert(id);
        }
        self.count(id, 1);
        Ok(())
    }

    fn seal(&mut self, list: &ValueId, prefix: &'a Name, at: usize) -> Result<(), Error> {
        let key = self.keys.sealed(prefix);
        if self.facts.get(&key).is_some() || self.gathered.insert(prefix, at).is_some() {
            return Err(Error::Sealed { prefix: prefix.clone() });
        }
        self.batch.require_absent(key.clone()).put(key, Seal::OwnedBy(list.clone()).to_row());
        Ok(())
    }

    fn edge(&mut self, change: &'a EdgeMove<'a>, now: Timestamp) -> Result<(), Error> {
        let key = self.keys.edge(&change.edge);
        let seen = self.facts.get(&key);
        let current = match seen {
            None => None,
            Some(row) => Some(Edge::read(&change.edge, row)?),
        };
        let deadline = change.until.map(|until| match until {
            Until::After(ttl_ms) => now.plus_ms(ttl_ms),
            Until::At(deadline) => deadline,
        });
        let next = change.to.map(|target| Edge { target: target.clone(), deadline });
        if current == next {
            return Ok(());
        }
        let old = current.as_ref().map(|edge| &edge.target);
        let moves = old != change.to;
        if moves && !holds(&change.expect, old) {
            return Err(Error::Stale { edge: change.edge.clone(), found: old.cloned() });
        }
        if let EdgeName::Element { prefix, .. } = &change.edge {
            self.must_be_open(prefix, change.to)?;
        }
        if let Some(deadline) = current.as_ref().and_then(|edge| edge.deadline) {
            self.batch.delete(self.keys.due(deadline, &change.edge));
        }
        if let Some(deadline) = next.as_ref().and(deadline) {
            self.batch.put(self.keys.due(deadline, &change.edge), Row::default());
        }
        self.batch.require_seen(key.clone(), seen.cloned());
        match &next {
            Some(edge) => self.batch.put(key, edge.to_row()),
            None => self.batch.delete(key),
        };
        if moves {
            self.move_edge(old, change)?;
        }
        Ok(())
    }

    fn move_edge(&mut self, old: Option<&ValueId>, change: &'a EdgeMove<'a>) -> Result<(), Error> {
        if let Some(target) = change.to {
            self.refer(target, usize::MAX)?;
        }
        if let Some(old) = old {
            self.count(old, -1);
        }
        Ok(())
    }

    fn count(&mut self, id: &ValueId, delta: i64) {
        match self.deltas.get_mut(id) {
            Some(sum) => *sum += delta,
            None => drop(self.deltas.insert(id.clone(), delta)),
        }
    }

    /// Requires that no list owns the elements under a prefix, since only then may they change. Elements set in the
    /// very update that gathers them must point at values stored before the list, so that no element can lead back to
    /// it.
    fn must_be_open(&mut self, prefix: &'a Name, to: Option<&ValueId>) -> Result<(), Error> {
        let key = self.keys.sealed(prefix);
        let gathered_at = self.gathered.get(prefix);
        let born_at = to.and_then(|to| self.born.get(to)).map(|(at, _)| at);
        let leads_back = gathered_at.is_some_and(|list| born_at.is_some_and(|target| target > list));
        let is_the_list = gathered_at.is_some() && gathered_at == born_at;
        if self.facts.get(&key).is_some() || leads_back || is_the_list {
            return Err(Error::Sealed { prefix: prefix.clone() });
        }
        if gathered_at.is_none() {
            self.batch.require_absent(key);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Option<Batch>, Error> {
        for (id, delta) in &self.deltas {
            match delta {
                1.. => {
                    self.batch.add(self.keys.count(id), *delta, vec![]);
                    if !self.born.contains_key(id) && self.facts.get(&self.keys.count(id)).is_none() {
                        self.batch.delete(self.keys.zero(id));
                    }
                }
                0 => {}
                _ => lower(&mut self.batch, self.keys, id, -delta),
            }
        }
        for id in self.born.keys().filter(|id| self.deltas.get(*id).copied().unwrap_or(0) == 0) {
            self.batch.put(self.keys.zero(id), Row::default());
        }
        if self.batch.ops.is_empty() && self.required.is_empty() {
            return Ok(None);
        }
        // Last, so that a value is reported missing only if all other rows are as they were read.
        for id in &self.required {
            self.batch.require_present(self.keys.value(id));
        }
        shape::fits(&self.batch)?;
        Ok(Some(self.batch))
    }
}

/// The row is a blob of the same length. Equal ids already mean equal bytes.
fn same_blob(stored: &Row, content: &Content) -> bool {
    let stored = Head::read(stored).and_then(|head| head.content());
    match (stored, content) {
        (Some(Content::Object { len: stored, .. }), Content::Object { len, .. }) => stored == *len,
        _ => false,
    }
}

fn holds(expect: &Expect, found: Option<&ValueId>) -> bool {
    match expect {
        Expect::Anything => true,
        Expect::Unset => found.is_none(),
        Expect::Target(id) => found == Some(id),
    }
}

/// Lowers the count of a value; at zero the value may be swept.
pub(super) fn lower(batch: &mut Batch, keys: &Keys, id: &ValueId, by: i64) {
    batch.add(keys.count(id), -by, vec![Op::Put(keys.zero(id), Row::default())]);
}
