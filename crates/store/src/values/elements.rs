//! The elements of lists that are, or will be, gathered. They are owned by a prefix from birth, so that gathering them
//! costs the same however many there are.
//!
//! An element is an edge to a value, or the bytes themselves: one row that has no count. Both are deleted with the
//! list, or when the prefix is released.

use super::{
    EdgeName, Element, Error, Tried, Values, limits,
    stored::{Debt, Seal, Standing},
};
use crate::records::{Position, Scan};
use onceflow_core::{Batch, Name, Row, value::id::elements_of};

impl Values {
    /// Returns elements under a prefix, in order of their index, from `first` on: at most `limit`, and at most
    /// [`SCAN_ROWS_MAX`](onceflow_core::limits::SCAN_ROWS_MAX).
    pub async fn elements(
        &self,
        prefix: impl AsRef<[u8]>,
        first: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Element)>, Error> {
        let under = elements_of(prefix.as_ref());
        let last_before = first.checked_sub(1).map(|index| EdgeName::element(prefix.as_ref(), index).to_row_name());
        let scan = Scan::of(self.keys.edges.clone(), limit).prefix(under).after(last_before);
        let page = self.records.scan(self.shard, scan).await?;
        let elements: Option<Vec<_>> = page.rows.iter().map(|(name, row)| read(name, row)).collect();
        elements.ok_or_else(|| Error::damaged("an element"))
    }

    /// Deletes every element under `prefix`, in small steps of [`Values::reclaim`]; none can be set meanwhile. For
    /// lists that were never gathered; the elements of a gathered one are deleted with its value. Durable when it
    /// returns.
    ///
    /// # Errors
    /// [`Sealed`](Error::Sealed) if a list owns the elements; [`records::Error::Unknown`](crate::records::Error::Unknown) as for
    /// [`Values::update`].
    pub async fn release(&self, prefix: impl AsRef<[u8]>) -> Result<Position, Error> {
        let answer = self.apply_release(&Name::new(prefix)).await;
        self.told(answer).await
    }

    async fn apply_release(&self, prefix: &Name) -> Result<Position, Error> {
        let sealed = self.keys.sealed(prefix);
        for _ in 0..limits::TRIES_MAX {
            if self.is_released(prefix).await? {
                return Ok(self.records.position());
            }
            let mut batch = Batch::new(self.shard);
            batch.require_absent(sealed.clone()).put(sealed.clone(), Seal::Released.to_row());
            batch.put(self.keys.owed.key(Debt::release_name(prefix)), Debt::release_row());
            match self.send(batch).await? {
                Tried::Applied(position) => return Ok(position),
                Tried::Refused(_) => {}
                Tried::Unknown(why) => {
                    return match self.is_released(prefix).await {
                        Ok(true) => Ok(self.records.position()),
                        Ok(false) | Err(_) => Err(why.into()),
                    };
                }
            }
        }
        Err(Error::Contended(limits::TRIES_MAX))
    }

    async fn is_released(&self, prefix: &Name) -> Result<bool, Error> {
        match self.row(self.keys.sealed(prefix)).await?.as_deref().map(Seal::from_row) {
            None => Ok(false),
            Some(Some(Seal::Released)) => Ok(true),
            Some(_) => Err(Error::Sealed { prefix: prefix.clone() }),
        }
    }
}

fn read(name: &Name, row: &Row) -> Option<(u64, Element)> {
    let EdgeName::Element { index, .. } = EdgeName::from_row_name(name.as_bytes())? else { return None };
    Some((index, Standing::from_row(row)?.into_element()))
}
