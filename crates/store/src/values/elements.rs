//! The elements of lists that are, or will be, gathered. They are owned by a prefix from birth, so that gathering them
//! costs the same however many there are.
//!
//! An element is an edge to a value, or the bytes themselves: one row that has no count. Both are deleted with the
//! list, or when the prefix is released.

use super::{
    EdgeName, Element, Error, Tried, limits,
    rows::ValueRows,
    stored::{Debt, Seal, Standing},
};
use crate::records::{Position, Scan};
use onceflow_core::{Batch, Name, Row, value::id::elements_of};

/// Elements under a prefix from `first` on: see [`Values::elements`](super::Values::elements).
pub(super) async fn page(
    rows: &ValueRows,
    prefix: &[u8],
    first: u64,
    limit: usize,
) -> Result<Vec<(u64, Element)>, Error> {
    let under = elements_of(prefix);
    let last_before = first.checked_sub(1).map(|index| EdgeName::element(prefix, index).to_row_name());
    let scan = Scan::of(rows.keys.edges.clone(), limit).prefix(under).after(last_before);
    let page = rows.records.scan(rows.shard, scan).await?;
    let elements: Option<Vec<_>> = page.rows.iter().map(|(name, row)| read(name, row)).collect();
    elements.ok_or_else(|| Error::damaged("an element"))
}

/// The release of all elements under one prefix.
pub(super) struct PrefixRelease<'a> {
    pub(super) rows: &'a ValueRows,
    pub(super) prefix: &'a Name,
}

impl PrefixRelease<'_> {
    /// Marks the elements for deletion: see [`Values::release`](super::Values::release).
    pub(super) async fn apply(&self) -> Result<Position, Error> {
        let sealed = self.rows.keys.sealed(self.prefix);
        for _ in 0..limits::TRIES_MAX {
            if self.is_released().await? {
                return Ok(self.rows.records.position());
            }
            let mut batch = Batch::new(self.rows.shard);
            batch.require_absent(sealed.clone()).put(sealed.clone(), Seal::Released.to_row());
            batch.put(self.rows.keys.owed.key(Debt::release_name(self.prefix)), Debt::release_row());
            match self.rows.send(batch).await? {
                Tried::Applied(position) => return Ok(position),
                Tried::Refused(_) => {}
                Tried::Unknown(why) => {
                    return match self.is_released().await {
                        Ok(true) => Ok(self.rows.records.position()),
                        Ok(false) | Err(_) => Err(why.into()),
                    };
                }
            }
        }
        Err(Error::Contended(limits::TRIES_MAX))
    }

    async fn is_released(&self) -> Result<bool, Error> {
        match self.rows.row(self.rows.keys.sealed(self.prefix)).await?.as_deref().map(Seal::from_row) {
            None => Ok(false),
            Some(Some(Seal::Released)) => Ok(true),
            Some(_) => Err(Error::Sealed { prefix: self.prefix.clone() }),
        }
    }
}

fn read(name: &Name, row: &Row) -> Option<(u64, Element)> {
    let EdgeName::Element { index, .. } = EdgeName::from_row_name(name.as_bytes())? else { return None };
    Some((index, Standing::from_row(row)?.into_element()))
}
