//! Reads every row of every group, decoded as far as it can be.

use super::super::{
    EdgeName, Error, ValueId,
    blob::object,
    keys::{Keys, WITNESS, read_due},
    reclaim::Witness,
    stored::{Debt, Edge, Seal, Standing, Sweeper},
};
use super::Check;
use crate::blobs::{ObjectName, ObjectState};
use onceflow_core::{Group, Key, Name, Row, Timestamp, limits};
use std::collections::{BTreeMap, BTreeSet};

/// All rows, at about one moment.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) values: BTreeMap<ValueId, Row>,
    pub(super) counts: BTreeMap<ValueId, Row>,
    pub(super) edges: BTreeMap<EdgeName, Edge>,
    /// Elements that hold their bytes, with their rows.
    pub(super) inline: BTreeMap<EdgeName, Row>,
    pub(super) zero: BTreeSet<ValueId>,
    pub(super) owed: BTreeMap<ValueId, u32>,
    pub(super) releases: BTreeSet<Name>,
    pub(super) due: BTreeSet<(Timestamp, EdgeName)>,
    pub(super) sealed: BTreeMap<Name, Seal>,
    /// Objects that rows beside the values name.
    pub(super) uploads: BTreeSet<ObjectName>,
    pub(super) unlink: BTreeSet<ObjectName>,
    /// Objects that are there, if there is a blob store.
    pub(super) objects: Option<BTreeMap<ObjectName, ObjectState>>,
    /// Of those, the ones whose bytes were read and are not what their values say.
    pub(super) wrong: BTreeMap<ObjectName, String>,
    /// Rows that cannot be read, other than values and counts.
    pub(super) unreadable: Vec<(Key, Row)>,
}

impl Check<'_> {
    async fn all_objects(&self) -> Result<Option<BTreeMap<ObjectName, ObjectState>>, Error> {
        let Some(blobs) = &self.values.blobs else { return Ok(None) };
        let mut objects = BTreeMap::new();
        loop {
            let page = blobs.list(objects.keys().next_back().copied(), limits::LIST_OBJECTS_MAX).await?;
            objects.extend(page.objects.iter().map(|listed| (listed.name, listed.state)));
            if !page.more || page.objects.is_empty() {
                return Ok(Some(objects));
            }
        }
    }

    pub(super) async fn snapshot(&self) -> Result<Snapshot, Error> {
        // Objects before rows: an object is there only after a row says so.
        let objects = self.all_objects().await?;
        let mut snapshot = Snapshot { objects, wrong: self.deep.wrong.clone(), ..Snapshot::default() };
        for group in self.values.rows.keys.all() {
            for (name, row) in self.values.rows.all_rows(group).await? {
                if snapshot.take(&self.values.rows.keys, group, &name, &row).is_none() {
                    snapshot.unreadable.push((group.key(&name), row));
                }
            }
        }
        Ok(snapshot)
    }
}

impl Snapshot {
    /// Takes a row in; `None` if it cannot be read.
    fn take(&mut self, keys: &Keys, group: &Group, name: &Name, row: &Row) -> Option<()> {
        let id = || ValueId::checked(name.as_bytes());
        if group == &keys.values {
            self.values.insert(id()?, row.clone());
        } else if group == &keys.counts {
            self.counts.insert(id()?, row.clone());
        } else if group == &keys.zero {
            self.zero.insert(id()?);
        } else if group == &keys.edges {
            match (EdgeName::from_row_name(name.as_bytes())?, Standing::from_row(row)?) {
                (name, Standing::Edge(edge)) => drop(self.edges.insert(name, edge)),
                (name @ EdgeName::Element { .. }, Standing::Inline(_)) => drop(self.inline.insert(name, row.clone())),
                (EdgeName::Root(_), Standing::Inline(_)) => return None,
            }
        } else if group == &keys.owed {
            match Debt::read(name.as_bytes(), row)? {
                Debt::Decrements(owed) => {
                    owed.into_iter().for_each(|(id, n)| *self.owed.entry(id).or_default() += n);
                }
                Debt::Release(prefix) => {
                    self.releases.insert(prefix);
                }
            }
        } else if group == &keys.due {
            self.due.insert(read_due(name.as_bytes())?);
        } else if group == &keys.sealed {
            self.sealed.insert(name.clone(), Seal::from_row(row)?);
        } else if group == &keys.uploads {
            self.uploads.insert(object(name)?);
        } else if group == &keys.unlink {
            self.unlink.insert(object(name)?);
        } else if name.as_bytes() == WITNESS.as_bytes() {
            Witness::from_row(row)?;
        } else {
            Sweeper::from_row(row)?;
        }
        Some(())
    }
}
