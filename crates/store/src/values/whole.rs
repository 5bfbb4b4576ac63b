//! Ensures that no caller is given wrong bytes, and drops an object that is not what was stored.
//!
//! A blob's id is the digest of its bytes and its row states their number, so the right content of an object is always
//! known. Every function that hands out bytes or a path checks here first: the length always, the digest once per file
//! of this machine ([`Blobs::check`](crate::blobs::Blobs::check)) or on the way, where bytes are streamed.
//!
//! An object that is missing or damaged is not repaired but *dropped*: its value becomes a placeholder that reads as
//! [`Error::Lost`], and the object is deleted like any object that no value names. Putting the same content again heals
//! the value for all that refer to it.

use super::{
    Content, Error, SourceError, SourceValues, ValueId,
    rows::ValueRows,
    stored::{Head, lost_row},
};
use crate::{
    blobs::{self, Blobs, ContentInfo, ObjectName, content},
    records::commit_durably,
};
use onceflow_core::{Batch, Row};
use std::sync::Arc;

/// Values looked at by one read: inline ones come with their bytes.
const VALUES_AT_ONCE: usize = 256;

/// The length and digest that the object of a blob must have.
pub(super) fn wanted(id: &ValueId, len: u64) -> Result<ContentInfo, Error> {
    let digest = id.blob_digest().ok_or_else(|| Error::damaged(format!("the name of blob {id}")))?;
    Ok(ContentInfo { len, digest })
}

/// The error for a value whose row is damaged. A blob can be put again from its id alone, so it counts as broken.
pub(super) fn row_damaged(id: &ValueId) -> Error {
    match id.is_blob() {
        true => Error::Broken { id: id.clone(), why: String::from("its row is not what was written") },
        false => Error::damaged(format!("value {id}")),
    }
}

/// Turns an error about the object of a blob into [`Error::Broken`], if it means damage.
pub(super) fn broken(id: &ValueId) -> impl Fn(blobs::Error) -> Error + '_ {
    move |error| match error.is_damage() {
        true => Error::Broken { id: id.clone(), why: error.to_string() },
        false => Error::Blobs(error),
    }
}

/// Turns an error about the file of a value into an error of the value: a blob that was handed over is broken, so that
/// it is computed again.
pub(super) fn not_there(id: &ValueId) -> impl Fn(SourceError) -> Error + '_ {
    move |error| match id.is_blob() {
        true => Error::Broken { id: id.clone(), why: error.to_string() },
        false => Error::Source(Box::new(error)),
    }
}

/// Checks of the bytes of values.
#[derive(Clone, Copy)]
pub struct Integrity<'a> {
    pub(super) rows: &'a ValueRows,
    pub(super) blobs: Option<&'a Arc<dyn Blobs>>,
    pub(super) sources: SourceValues<'a>,
}

impl<'a> Integrity<'a> {
    /// The store of the objects.
    pub(super) fn blobs(self) -> Result<&'a Arc<dyn Blobs>, Error> {
        self.blobs.ok_or_else(|| Error::Senseless("these values were opened without a blob store".into()))
    }

    /// Verifies that a value can be read: its row is there and whole, and, if it is a blob, so is its object, as far as
    /// [`Blobs::check`](crate::blobs::Blobs::check) tells.
    ///
    /// # Errors
    /// [`Broken`](Error::Broken) if its object is missing or damaged; as [`Values::get`](super::Values::get) for
    /// what is wrong with its row.
    pub async fn check(&self, id: &ValueId) -> Result<(), Error> {
        let Some(row) = self.rows.row(self.rows.keys.value(id)).await? else {
            return Err(Error::Missing { id: id.clone() });
        };
        self.check_row(id, &row).await
    }

    /// Checks many values, and returns those that cannot be read.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn broken_of(&self, ids: &[ValueId]) -> Result<Vec<ValueId>, Error> {
        let mut found = Vec::new();
        for ids in ids.chunks(VALUES_AT_ONCE) {
            let keys: Vec<_> = ids.iter().map(|id| self.rows.keys.value(id)).collect();
            let rows = self.rows.records.get(self.rows.shard, &keys).await?;
            for (id, row) in ids.iter().zip(rows) {
                let whole = match row {
                    None => false,
                    Some(row) => match self.check_row(id, &row).await {
                        Ok(()) => true,
                        Err(Error::Broken { .. } | Error::Lost { .. } | Error::Damaged { .. }) => false,
                        Err(error) => return Err(error),
                    },
                };
                if !whole {
                    found.push(id.clone());
                }
            }
        }
        Ok(found)
    }

    async fn check_row(&self, id: &ValueId, row: &Row) -> Result<(), Error> {
        let damaged = || row_damaged(id);
        let head = Head::read(row).ok_or_else(damaged)?;
        if head.is_lost() {
            return Err(Error::Lost { id: id.clone() });
        }
        match head.content().ok_or_else(damaged)? {
            Content::Object { name, len } => self.check_object(id, name, len).await,
            // A blob that was handed over can be computed again; a file that is an input is checked by the step that
            // reads it.
            Content::Source(source) if id.is_blob() => self.sources.check(source).await.map_err(not_there(id)),
            Content::Inline(_) | Content::Gathered { .. } | Content::Source(_) => Ok(()),
        }
    }

    pub(super) async fn check_object(&self, id: &ValueId, name: ObjectName, len: u64) -> Result<(), Error> {
        self.blobs()?.check(name, wanted(id, len)?).await.map_err(broken(id))
    }

    /// Drops the object of a value if it is missing or, read once more to the last byte, not what was stored. Returns
    /// true if it was dropped. Durable when it returns.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn drop_if_broken(&self, id: &ValueId) -> Result<bool, Error> {
        let key = self.rows.keys.value(id);
        let Some(row) = self.rows.row(key.clone()).await? else { return Ok(false) };
        let mut batch = Batch::new(self.rows.shard);
        match Head::read(&row).and_then(|head| (!head.is_lost()).then(|| head.content()).flatten()) {
            Some(Content::Object { name, len }) => {
                match content::verify(&**self.blobs()?, name, wanted(id, len)?).await {
                    Ok(()) => return Ok(false),
                    Err(error) if error.is_damage() => tracing::warn!(%id, %error, "dropping a damaged object"),
                    Err(error) => return Err(error.into()),
                }
                batch.put(self.rows.keys.unlink(name), Row::default());
            }
            Some(Content::Source(source)) => match self.sources.check(source).await {
                Err(error) if id.is_blob() => {
                    tracing::warn!(%id, %error, "dropping a result that is not there any more");
                }
                _ => return Ok(false),
            },
            Some(Content::Inline(_) | Content::Gathered { .. }) => return Ok(false),
            // The row no longer tells which object it named; `fsck` finds that object as an orphan.
            None if id.is_blob() && row != lost_row() => tracing::warn!(%id, "dropping the damaged row of a blob"),
            None => return Ok(false),
        }
        batch.require_equals(key.clone(), row).put(key, lost_row());
        // Refused if another process dropped or healed the value meanwhile.
        let dropped = commit_durably(&*self.rows.records, batch).await?.is_applied();
        self.rows.news.notify();
        Ok(dropped)
    }

    /// Drops the stored object of this content if it is broken, so that it does not win over the new one just stored.
    pub(super) async fn mend(&self, id: &ValueId) -> Result<(), Error> {
        let broken = match self.check(id).await {
            Ok(()) | Err(Error::Missing { .. } | Error::Lost { .. }) => false,
            Err(Error::Broken { .. } | Error::Damaged { .. }) => true,
            Err(error) => return Err(error),
        };
        if broken {
            self.drop_if_broken(id).await?;
        }
        Ok(())
    }
}
