//! Reads every row of every group, decoded as far as it can be.

use super::super::{
    Error, Values,
    id::{EdgeName, ValueId},
    keys::read_due,
    stored::{Debt, Edge, Seal},
};
use crate::records::Scan;
use onceflow_core::{Group, Key, Name, Row, Timestamp, limits};
use std::collections::{BTreeMap, BTreeSet};

/// All rows, at about one moment.
#[derive(Default)]
pub(super) struct Snapshot {
    pub(super) values: BTreeMap<ValueId, Row>,
    pub(super) counts: BTreeMap<ValueId, Row>,
    pub(super) edges: BTreeMap<EdgeName, Edge>,
    pub(super) zero: BTreeSet<ValueId>,
    pub(super) owed: BTreeMap<ValueId, u32>,
    pub(super) releases: BTreeSet<Name>,
    pub(super) due: BTreeSet<(Timestamp, EdgeName)>,
    pub(super) sealed: BTreeMap<Name, Seal>,
    /// Rows that cannot be read, other than values and counts.
    pub(super) unreadable: Vec<(Key, Row)>,
}

impl Values {
    pub(super) async fn all_rows(&self, group: &Group) -> Result<Vec<(Name, Row)>, Error> {
        let mut rows = Vec::new();
        loop {
            let after = rows.last().map(|(name, _): &(Name, Row)| name.clone());
            let scan = Scan::of(group.clone(), limits::SCAN_ROWS_MAX).after(after);
            let page = self.records.scan(self.shard, scan).await?;
            rows.extend(page.rows);
            if !page.more {
                return Ok(rows);
            }
        }
    }

    pub(super) async fn snapshot(&self) -> Result<Snapshot, Error> {
        let keys = &self.keys;
        let mut snapshot = Snapshot::default();
        let Snapshot { values, counts, edges, zero, owed, releases, due, sealed, .. } = &mut snapshot;
        let mut unreadable = Vec::new();
        let id = |name: &Name| ValueId::checked(name.as_bytes());
        // Each reader answers whether it could read the row.
        type Read<'a> = Box<dyn FnMut(&Name, &Row) -> Option<()> + Send + 'a>;
        let readers: [(&Group, Read<'_>); 7] = [
            (&keys.values, Box::new(|name, row| Some(drop(values.insert(id(name)?, row.clone()))))),
            (&keys.counts, Box::new(|name, row| Some(drop(counts.insert(id(name)?, row.clone()))))),
            (&keys.zero, Box::new(|name, _| zero.insert(id(name)?).then_some(()))),
            (
                &keys.edges,
                Box::new(|name, row| {
                    Some(drop(edges.insert(EdgeName::from_row_name(name.as_bytes())?, Edge::from_row(row)?)))
                }),
            ),
            (
                &keys.owed,
                Box::new(|name, row| {
                    match Debt::read(name.as_bytes(), row)? {
                        Debt::Decrements(debt) => {
                            debt.into_iter().for_each(|(id, n)| *owed.entry(id).or_default() += n)
                        }
                        Debt::Release(prefix) => drop(releases.insert(prefix)),
                    }
                    Some(())
                }),
            ),
            (&keys.due, Box::new(|name, _| due.insert(read_due(name.as_bytes())?).then_some(()))),
            (&keys.sealed, Box::new(|name, row| Some(drop(sealed.insert(name.clone(), Seal::from_row(row)?))))),
        ];
        for (group, mut read) in readers {
            for (name, row) in self.all_rows(group).await? {
                if read(&name, &row).is_none() {
                    unreadable.push((group.key(&name), row));
                }
            }
        }
        if let Some(row) = self.row(keys.sweeper()).await?
            && crate::values::stored::Sweeper::from_row(&row).is_none()
        {
            unreadable.push((keys.sweeper(), row));
        }
        Ok(Snapshot { unreadable, ..snapshot })
    }
}
