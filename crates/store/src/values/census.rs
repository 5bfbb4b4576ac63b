//! Counts what there is: every value, how large it is, what it refers to, and which roots hold it. For those who want to
//! know what takes the room. Takes memory for all rows but their contents.

use super::{
    Content, Error, Values,
    id::{EdgeName, ValueId},
    keys::read_due,
    stored::{Head, Standing},
};
use onceflow_core::{Name, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// All values, and what holds them, at about one moment.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// Roots and leases.
    pub roots: Vec<Root>,
    values: BTreeMap<ValueId, Counted>,
    /// What the elements of a list hold: other values, and bytes of their own.
    elements: BTreeMap<Name, (Vec<ValueId>, u64)>,
}

/// Something that holds values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// What it is called.
    pub name: Name,
    /// The value it holds; none for elements of a list that nobody has gathered yet.
    pub target: Option<ValueId>,
    /// When it ends by itself.
    pub deadline: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Counted {
    bytes: u64,
    refs: Vec<ValueId>,
    prefix: Option<Name>,
}

/// How much something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Values.
    pub values: u64,
    /// Bytes of their contents.
    pub bytes: u64,
}

impl Census {
    /// How much these roots hold, what they have in common counted once; and what of it is not in `seen`, which then has
    /// it.
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
            weight.values += 1;
            weight.bytes += counted.bytes;
            look.extend(counted.refs.iter().cloned());
            if let Some((elements, bytes)) = counted.prefix.as_ref().and_then(|prefix| self.elements.get(prefix)) {
                weight.bytes += bytes;
                look.extend(elements.iter().cloned());
            }
        }
        weight
    }

    /// All there is.
    pub fn total(&self) -> Weight {
        let elements: u64 = self.elements.values().map(|(_, bytes)| bytes).sum();
        let values: u64 = self.values.values().map(|counted| counted.bytes).sum();
        Weight { values: self.values.len() as u64, bytes: values + elements }
    }
}

/// What a call of [`Values::reclaim`] would find to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimable {
    /// Values that nothing refers to; what they alone refer to follows.
    pub values: u64,
    /// Leases that have ended.
    pub leases: u64,
    /// Objects that no value names any more.
    pub objects: u64,
}

impl Values {
    /// Counts everything. On a store in use, what changes meanwhile may be missed.
    ///
    /// # Errors
    /// If the store does not answer, or is damaged.
    pub async fn census(&self) -> Result<Census, Error> {
        let mut census = Census::default();
        for (name, row) in self.all_rows(&self.keys.values).await? {
            let id = ValueId::checked(name.as_bytes()).ok_or_else(|| Error::damaged(format!("value {name:?}")))?;
            let head = Head::read(&row).ok_or_else(|| Error::damaged(format!("value {id}")))?;
            let (bytes, prefix) = match head.content() {
                Some(Content::Inline(bytes)) => (bytes.len() as u64, None),
                Some(Content::Object { len, .. }) => (len, None),
                Some(Content::Gathered { prefix, .. }) => (0, Some(prefix)),
                None => (0, None),
            };
            census.values.insert(id, Counted { bytes, refs: head.refs().collect(), prefix });
        }
        for (name, row) in self.all_rows(&self.keys.edges).await? {
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

    /// What a call of [`Values::reclaim`] would find to do now. What that uncovers is not counted.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn reclaimable(&self) -> Result<Reclaimable, Error> {
        let now = self.records.now().await?;
        let leases = self.all_rows(&self.keys.due).await?;
        let is_due = |name: &Name| read_due(name.as_bytes()).is_some_and(|(deadline, _)| deadline <= now);
        Ok(Reclaimable {
            values: self.all_rows(&self.keys.zero).await?.len() as u64,
            leases: leases.iter().filter(|(name, _)| is_due(name)).count() as u64,
            objects: self.all_rows(&self.keys.unlink).await?.len() as u64,
        })
    }
}
