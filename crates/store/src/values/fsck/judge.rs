//! Decides which rows do not fit. Pure: rows in, findings out.

use super::{Report, cycle, read::Snapshot};
use crate::blobs::{ObjectName, ObjectState};
use crate::values::{
    EdgeName, ValueId,
    stored::{Belongings, Head, Seal},
};
use onceflow_core::{Key, Name, Row, Timestamp, row::counter};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// A contradiction between rows, or between rows and objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A value's row is not what was written.
    Damaged(ValueId),
    /// Something refers to a value that is not there.
    Missing(ValueId),
    /// A value from which references lead back to itself.
    Cycle(ValueId),
    /// A gathered list does not have as many elements as its row states.
    Elements {
        /// The list.
        list: ValueId,
        /// The number its row states.
        says: u64,
        /// The number found.
        found: u64,
    },
    /// A row that is not what was written, and is neither a value nor a count.
    Unreadable(Key, Row),
    /// A count that is not the number of references, edges and debts.
    Count {
        /// The value.
        id: ValueId,
        /// The row, if there is one.
        found: Option<Row>,
        /// The right number.
        right: i64,
        /// The part of it that is debt.
        owed: i64,
    },
    /// A value at zero that is not queued for reclaim.
    NotQueued(ValueId),
    /// A lease whose deadline is not in the index, so that it would never end.
    NotDue(EdgeName, Timestamp),
    /// A deadline in the index that no lease has.
    NoLease(EdgeName, Timestamp),
    /// A gathered list whose elements could still be changed.
    NotSealed(ValueId, Name),
    /// A prefix that no list owns and that is not being released.
    NoOwner(Name),
    /// A prefix that is to be released although its list is there.
    ReleasedTooEarly(Name),
    /// A blob whose object is not there.
    NoObject(ValueId, ObjectName),
    /// A blob whose object is not what was stored: of another length, or, if its bytes were read, of another digest.
    WrongObject {
        /// The blob.
        id: ValueId,
        /// Its object.
        object: ObjectName,
        /// The symptom.
        why: String,
    },
    /// An object that nothing names.
    Orphan(ObjectName),
    /// A prefix that is being released and whose elements could still be set.
    ReleasedOpen(Name),
}

impl Finding {
    /// Something would never be deleted. Otherwise, a value might be freed too early or read wrongly.
    pub fn is_leak(&self) -> bool {
        match self {
            Finding::NotQueued(_) | Finding::NotDue(..) | Finding::NoOwner(_) | Finding::Orphan(_) => true,
            Finding::Count { found, right, .. } => number(found.as_ref()).is_some_and(|found| found > *right),
            _ => false,
        }
    }

    /// Repairing this finding changes the truth (values, edges, debts), so that everything else must be judged again.
    pub(super) fn is_about_truth(&self) -> bool {
        use Finding::{Cycle, Damaged, Elements, Missing, NoObject, ReleasedTooEarly, Unreadable, WrongObject};
        let is_of_objects = matches!(self, NoObject(..) | WrongObject { .. });
        let is_of_values = matches!(self, Damaged(_) | Missing(_) | Cycle(_) | Elements { .. });
        is_of_objects || is_of_values || matches!(self, Unreadable(..) | ReleasedTooEarly(_))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Damaged(id) => write!(f, "value {id} is damaged"),
            Finding::Missing(id) => write!(f, "value {id} is referred to, but missing"),
            Finding::Cycle(id) => write!(f, "value {id} refers, through others, to itself"),
            Finding::Elements { list, says, found } => write!(f, "list {list} says {says} elements, but has {found}"),
            Finding::Unreadable(key, _) => write!(f, "row {key} is damaged"),
            Finding::Count { id, found, right, owed } => match number(found.as_ref()) {
                None => write!(f, "the count of {id} is damaged, and should be {right}"),
                // The references alone would fit: it is the debt that is too much.
                Some(found) if found < *right && found >= right - owed => {
                    write!(f, "a debt of {} too much to {id}, or its count of {found} is too low", right - found)
                }
                Some(found) => write!(f, "the count of {id} is {found}, and should be {right}"),
            },
            Finding::NotQueued(id) => write!(f, "value {id} is not referred to, and not queued to be swept"),
            Finding::NotDue(edge, at) => write!(f, "lease {edge} ends at {at}, but the index does not say so"),
            Finding::NoLease(edge, at) => write!(f, "the index says that {edge} ends at {at}, but no lease does"),
            Finding::NotSealed(list, prefix) => write!(f, "list {list} owns {prefix:?}, which is not sealed"),
            Finding::NoOwner(prefix) => write!(f, "prefix {prefix:?} is sealed, but it has no owner"),
            Finding::ReleasedTooEarly(prefix) => {
                write!(f, "prefix {prefix:?} is to be released, but its list is there")
            }
            Finding::NoObject(id, object) => write!(f, "blob {id} names object {object}, which is not there"),
            Finding::WrongObject { id, object, why } => write!(f, "object {object} of blob {id} is damaged: {why}"),
            Finding::Orphan(object) => write!(f, "object {object} is named by nothing"),
            Finding::ReleasedOpen(prefix) => write!(f, "prefix {prefix:?} is to be released, but is not sealed"),
        }
    }
}

/// Reads the number in a count's row; `None` if it cannot be read.
pub(super) fn number(row: Option<&Row>) -> Option<i64> {
    row.map_or(Some(0), |row| counter::read(row))
}

pub(super) fn judge(snapshot: &Snapshot) -> Report {
    let mut judge = Judge::new(snapshot);
    judge.values();
    judge.counts();
    judge.leases();
    judge.prefixes();
    judge.cycles();
    judge.objects();
    let Judge { findings, lost, .. } = judge;
    let (leaks, problems) = findings.into_iter().partition(Finding::is_leak);
    let (values, edges) = (snapshot.values.len(), snapshot.edges.len());
    let (objects, digests) = (snapshot.objects.as_ref().map_or(0, |objects| objects.len()), 0);
    Report { values, edges, objects, digests, problems, leaks, lost, exact: true, left: None }
}

struct Judge<'a> {
    snapshot: &'a Snapshot,
    /// Values whose references can be read.
    heads: BTreeMap<&'a ValueId, Head<'a>>,
    /// The lists, by the prefix they own.
    lists: BTreeMap<Name, &'a ValueId>,
    /// How many elements stand under each prefix.
    elements: BTreeMap<&'a Name, u64>,
    /// How many references and edges point at each value.
    referred: BTreeMap<ValueId, i64>,
    findings: Vec<Finding>,
    lost: Vec<ValueId>,
}

impl<'a> Judge<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        let heads: BTreeMap<_, _> =
            snapshot.values.iter().filter_map(|(id, row)| Some((id, Head::read(row)?))).collect();
        let mut lists = BTreeMap::new();
        let mut referred: BTreeMap<ValueId, i64> = BTreeMap::new();
        for (id, head) in &heads {
            head.refs().for_each(|to| *referred.entry(to).or_default() += 1);
            if let Some(Belongings::Prefix(prefix)) = head.belongings() {
                lists.insert(prefix, *id);
            }
        }
        let mut elements: BTreeMap<_, u64> = BTreeMap::new();
        for edge in snapshot.edges.values() {
            *referred.entry(edge.target.clone()).or_default() += 1;
        }
        for name in snapshot.edges.keys().chain(snapshot.inline.keys()) {
            if let EdgeName::Element { prefix, .. } = name {
                *elements.entry(prefix).or_default() += 1;
            }
        }
        let findings =
            snapshot.unreadable.iter().map(|(key, row)| Finding::Unreadable(key.clone(), row.clone())).collect();
        Judge { snapshot, heads, lists, elements, referred, findings, lost: vec![] }
    }

    fn values(&mut self) {
        for id in self.snapshot.values.keys() {
            match self.heads.get(id) {
                Some(head) if head.is_lost() => {
                    if self.referred.contains_key(id) {
                        self.lost.push(id.clone());
                    }
                }
                Some(head) if head.is_whole() => {}
                _ => self.findings.push(Finding::Damaged(id.clone())),
            }
        }
        let missing = self.referred.keys().filter(|id| !self.snapshot.values.contains_key(id));
        self.findings.extend(missing.map(|id| Finding::Missing(id.clone())));
    }

    fn counts(&mut self) {
        let Snapshot { values, counts, owed, zero, .. } = self.snapshot;
        let ids: BTreeSet<_> =
            values.keys().chain(counts.keys()).chain(self.referred.keys()).chain(owed.keys()).collect();
        for id in ids {
            let debt = owed.get(id).map_or(0, |n| i64::from(*n));
            let right = self.referred.get(id).copied().unwrap_or(0) + debt;
            let found = counts.get(id);
            // Zero is never stored, so a row with zero is wrong as well.
            if number(found) != Some(right) || (right == 0 && found.is_some()) {
                self.findings.push(Finding::Count { id: id.clone(), found: found.cloned(), right, owed: debt });
            } else if right == 0 && values.contains_key(id) && !zero.contains(id) {
                self.findings.push(Finding::NotQueued(id.clone()));
            }
        }
    }

    fn leases(&mut self) {
        let leases: BTreeSet<(Timestamp, &EdgeName)> =
            self.snapshot.edges.iter().filter_map(|(name, edge)| Some((edge.deadline?, name))).collect();
        for (deadline, name) in &leases {
            if !self.snapshot.due.contains(&(*deadline, (*name).clone())) {
                self.findings.push(Finding::NotDue((*name).clone(), *deadline));
            }
        }
        for (deadline, name) in &self.snapshot.due {
            if !leases.contains(&(*deadline, name)) {
                self.findings.push(Finding::NoLease(name.clone(), *deadline));
            }
        }
    }

    fn prefixes(&mut self) {
        let Snapshot { sealed, releases, .. } = self.snapshot;
        for (prefix, list) in &self.lists {
            let owner = Seal::OwnedBy((*list).clone());
            if releases.contains(prefix) {
                self.findings.push(Finding::ReleasedTooEarly(prefix.clone()));
            } else if sealed.get(prefix) != Some(&owner) {
                self.findings.push(Finding::NotSealed((*list).clone(), prefix.clone()));
            }
            let content = self.heads[list].content();
            let found = self.elements.get(prefix).copied().unwrap_or(0);
            if let Some(crate::values::Content::Gathered { n: says, .. }) = content
                && says != found
            {
                self.findings.push(Finding::Elements { list: (*list).clone(), says, found });
            }
        }
        let unowned = sealed.keys().filter(|prefix| !self.lists.contains_key(*prefix) && !releases.contains(*prefix));
        self.findings.extend(unowned.map(|prefix| Finding::NoOwner(prefix.clone())));
        let open = releases.iter().filter(|prefix| !sealed.contains_key(*prefix));
        self.findings.extend(open.map(|prefix| Finding::ReleasedOpen(prefix.clone())));
    }

    fn objects(&mut self) {
        let Snapshot { uploads, unlink, objects, wrong, .. } = self.snapshot;
        let Some(objects) = objects else { return };
        let mut named: BTreeSet<ObjectName> = uploads.union(unlink).copied().collect();
        for (id, head) in &self.heads {
            let Some(crate::values::Content::Object { name: object, len }) = head.content() else { continue };
            named.insert(object);
            let wrong_object = |why| Finding::WrongObject { id: (*id).clone(), object, why };
            match objects.get(&object) {
                None | Some(ObjectState::Unfinished) => self.findings.push(Finding::NoObject((*id).clone(), object)),
                Some(ObjectState::Whole { len: found }) if *found != len => {
                    self.findings.push(wrong_object(format!("it should have {len} bytes, and has {found}")));
                }
                Some(ObjectState::Whole { .. }) => self.findings.extend(wrong.get(&object).cloned().map(wrong_object)),
            }
        }
        let orphans = objects.keys().filter(|object| !named.contains(*object));
        self.findings.extend(orphans.map(|object| Finding::Orphan(*object)));
    }

    fn cycles(&mut self) {
        let index: BTreeMap<&ValueId, usize> = self.snapshot.values.keys().zip(0..).collect();
        let mut next = vec![Vec::new(); index.len()];
        for (id, head) in &self.heads {
            next[index[id]].extend(head.refs().filter_map(|to| index.get(&to).copied()));
        }
        for (name, edge) in &self.snapshot.edges {
            if let EdgeName::Element { prefix, .. } = name
                && let (Some(list), Some(to)) = (self.lists.get(prefix), index.get(&edge.target))
            {
                next[index[list]].push(*to);
            }
        }
        let closing: BTreeSet<_> = cycle::closing(&next).into_iter().collect();
        let ids = index.iter().filter(|(_, at)| closing.contains(at));
        self.findings.extend(ids.map(|(id, _)| Finding::Cycle((*id).clone())));
    }
}
