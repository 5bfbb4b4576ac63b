//! Counts all values: how large each is, what it refers to, and which roots hold it. Answers where the space goes.
//! Takes memory for all rows but their contents.

use super::{
    Content, EdgeName, Error, ValueId, Values,
    keys::read_due,
    stored::{Head, Standing},
};
use crate::blocking::blocking;
use onceflow_core::{Name, Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::MetadataExt,
    path::PathBuf,
};

/// All values, and the roots that hold them, at about one moment.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// Roots and leases.
    pub roots: Vec<Root>,
    values: BTreeMap<ValueId, Counted>,
    /// Per prefix, the values that list elements refer to, and the bytes that elements hold themselves.
    elements: BTreeMap<Name, (Vec<ValueId>, u64)>,
}

/// A root, a lease, or the elements of a list not gathered yet: something that holds values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Its name.
    pub name: Name,
    /// The value it holds; none for elements of a list that was not gathered yet.
    pub target: Option<ValueId>,
    /// Its deadline, if it is a lease.
    pub deadline: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Counted {
    weight: Weight,
    refs: Vec<ValueId>,
    prefix: Option<Name>,
}

/// The size of some values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// The number of values.
    pub values: u64,
    /// Bytes of their contents that are in the store.
    pub bytes: u64,
    /// Bytes of files by reference: they are the user's, and not in the store.
    pub referenced: u64,
    /// Bytes of objects that also have a name outside the store, for instance in `results/`: removing the value frees
    /// them only when that name is removed as well. They are included in `bytes`.
    pub linked: u64,
}

impl std::ops::AddAssign for Weight {
    fn add_assign(&mut self, other: Weight) {
        self.values += other.values;
        self.bytes += other.bytes;
        self.referenced += other.referenced;
        self.linked += other.linked;
    }
}

impl Census {
    /// Weighs the values that these roots hold and that are not in `seen`, each counted once, and adds them to `seen`.
    pub fn weigh<'a>(&self, roots: impl IntoIterator<Item = &'a Root>, seen: &mut BTreeSet<ValueId>) -> Weight {
        let mut weight = Weight::default();
        let mut look: Vec<ValueId> = Vec::new();
        for root in roots {
            match &root.target {
                Some(target) => look.push(target.clone()),
                None => {
                    if let Some((elements, bytes)) = self.elements.get(&root.name) {
                        weight.bytes += bytes;
                        look.extend(elements.iter().cloned());
                    }
                }
            }
        }
        while let Some(id) = look.pop() {
            let Some(counted) = self.values.get(&id).filter(|_| !seen.contains(&id)) else { continue };
            seen.insert(id);
            weight += counted.weight;
            look.extend(counted.refs.iter().cloned());
            if let Some((elements, bytes)) = counted.prefix.as_ref().and_then(|prefix| self.elements.get(prefix)) {
                weight.bytes += bytes;
                look.extend(elements.iter().cloned());
            }
        }
        weight
    }

    /// The weight of everything in the store.
    pub fn total(&self) -> Weight {
        let elements: u64 = self.elements.values().map(|(_, bytes)| bytes).sum();
        let mut total = Weight { bytes: elements, ..Weight::default() };
        self.values.values().for_each(|counted| total += counted.weight);
        total
    }
}

/// The objects whose files have other names.
fn with_other_names(objects: Vec<(ValueId, PathBuf)>) -> Vec<ValueId> {
    let is_linked = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|metadata| metadata.nlink() > 1);
    objects.into_iter().filter(|(_, path)| is_linked(path)).map(|(id, _)| id).collect()
}

/// The work that a call of [`Values::reclaim`] would find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimable {
    /// Values that nothing refers to; the values that only they refer to follow later.
    pub values: u64,
    /// Leases that have ended.
    pub leases: u64,
    /// Objects that no value names any more.
    pub objects: u64,
}

impl Census {
    /// Counts everything. On a store in use, concurrent changes may be missed.
    ///
    /// # Errors
    /// If the store does not answer, or is damaged.
    pub async fn of(values: &Values) -> Result<Self, Error> {
        let (mut census, mut objects) = (Census::default(), Vec::new());
        for (name, row) in values.rows.all_rows(&values.rows.keys.values).await? {
            let id = ValueId::checked(name.as_bytes()).ok_or_else(|| Error::damaged(format!("value {name:?}")))?;
            let head = Head::read(&row).ok_or_else(|| Error::damaged(format!("value {id}")))?;
            let (mut weight, mut prefix) = (Weight { values: 1, ..Weight::default() }, None);
            match head.content() {
                Some(Content::Inline(bytes)) => weight.bytes = bytes.len() as u64,
                Some(Content::Object { len, name }) => {
                    weight.bytes = len;
                    objects.extend(values.blobs.as_ref().and_then(|blobs| Some((id.clone(), blobs.local(name)?))));
                }
                Some(Content::Source(source)) => weight.referenced = source.stat.len,
                Some(Content::Gathered { prefix: owned, .. }) => prefix = Some(owned),
                None => {}
            }
            census.values.insert(id, Counted { weight, refs: head.refs().collect(), prefix });
        }
        for id in blocking(move || with_other_names(objects)).await {
            census.values.entry(id).and_modify(|counted| counted.weight.linked = counted.weight.bytes);
        }
        for (name, row) in values.rows.all_rows(&values.rows.keys.edges).await? {
            let damaged = || Error::damaged(format!("edge {name:?}"));
            let standing = Standing::from_row(&row).ok_or_else(damaged)?;
            match (EdgeName::from_row_name(name.as_bytes()).ok_or_else(damaged)?, standing) {
                (EdgeName::Root(name), Standing::Edge(edge)) => {
                    let deadline = edge.deadline.filter(|at| *at != Timestamp::NEVER);
                    census.roots.push(Root { name, target: Some(edge.target), deadline });
                }
                (EdgeName::Element { prefix, .. }, Standing::Edge(edge)) => {
                    census.elements.entry(prefix).or_default().0.push(edge.target);
                }
                (EdgeName::Element { prefix, .. }, Standing::Inline(bytes)) => {
                    census.elements.entry(prefix).or_default().1 += bytes.len() as u64;
                }
                (EdgeName::Root(_), Standing::Inline(_)) => return Err(damaged()),
            }
        }
        let gathered: BTreeSet<_> = census.values.values().filter_map(|counted| counted.prefix.clone()).collect();
        let open = census.elements.keys().filter(|prefix| !gathered.contains(*prefix));
        let open: Vec<_> = open.map(|name| Root { name: name.clone(), target: None, deadline: None }).collect();
        census.roots.extend(open);
        Ok(census)
    }
}

impl Reclaimable {
    /// Counts the work that a call of [`Values::reclaim`] would find now. Garbage that this work uncovers is not
    /// counted.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn of(values: &Values) -> Result<Self, Error> {
        let now = values.rows.records.now().await?;
        let leases = values.rows.all_rows(&values.rows.keys.due).await?;
        let is_due = |name: &Name| read_due(name.as_bytes()).is_some_and(|(deadline, _)| deadline <= now);
        Ok(Reclaimable {
            values: values.rows.all_rows(&values.rows.keys.zero).await?.len() as u64,
            leases: leases.iter().filter(|(name, _)| is_due(name)).count() as u64,
            objects: values.rows.all_rows(&values.rows.keys.unlink).await?.len() as u64,
        })
    }
}
