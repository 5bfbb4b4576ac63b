//! The rows of one shard's values: reads them, and commits batches that change them. Every other idea of this module
//! rests on it.

use super::{
    Error, Update, Value, ValueId,
    keys::Keys,
    limits,
    news::News,
    stored::{Edge, Head},
    update::{self, Asked, Facts},
    whole,
};
use crate::records::{self, CommitResult, Position, Records, Refused, commit_kept, get_one, walk};
use onceflow_core::{Batch, Group, Key, Name, Require, Row, Shard, Timestamp, value::EdgeName};
use std::{collections::BTreeMap, sync::Arc};

/// Rows read at once: about a millisecond of a server that others wait for.
const ROWS_AT_ONCE: usize = 1000;

/// The rows of one shard's values.
pub(super) struct ValueRows {
    pub(super) records: Arc<dyn Records>,
    pub(super) shard: Shard,
    pub(super) keys: Keys,
    /// Wakes the reclaim loop when a batch leaves something to reclaim.
    pub(super) news: News,
}

/// The result of sending a batch.
pub(super) enum Tried {
    Applied(Position),
    Refused(Require),
    /// The answer was lost.
    Unknown(records::Error),
}

impl ValueRows {
    /// Returns a value as it was put.
    pub(super) async fn get(&self, id: &ValueId) -> Result<Value, Error> {
        let Some(row) = self.row(self.keys.value(id)).await? else { return Err(Error::Missing { id: id.clone() }) };
        let head = Head::read(&row).ok_or_else(|| whole::row_damaged(id))?;
        if head.is_lost() {
            return Err(Error::Lost { id: id.clone() });
        }
        let content = head.content().ok_or_else(|| whole::row_damaged(id))?;
        Ok(Value { refs: head.refs().collect(), content })
    }

    pub(super) async fn row(&self, key: Key) -> Result<Option<Row>, Error> {
        Ok(get_one(&*self.records, self.shard, key).await?)
    }

    pub(super) async fn edge_row(&self, edge: &EdgeName) -> Result<Option<(Row, Edge)>, Error> {
        let Some(row) = self.row(self.keys.edge(edge)).await? else { return Ok(None) };
        let read = Edge::read(edge, &row)?;
        Ok(Some((row, read)))
    }

    /// Reads every row of a group.
    pub(super) async fn all_rows(&self, group: &Group) -> Result<BTreeMap<Name, Row>, Error> {
        let (mut rows, mut next) = (BTreeMap::new(), None);
        loop {
            let some = walk(&*self.records, self.shard, group.clone(), next, ROWS_AT_ONCE).await?;
            rows.extend(some.rows);
            next = some.next;
            if next.is_none() {
                return Ok(rows);
            }
        }
    }

    /// Decides and commits an update: see [`Values::apply`](super::Values::apply).
    pub(super) async fn apply(&self, update: Update) -> Result<Position, Error> {
        let asked = Asked::new(&update)?;
        let wanted = asked.wanted(&self.keys)?;
        // Read once: a second try must not mean another deadline.
        let now = if asked.needs_clock() { self.records.now().await? } else { Timestamp::ZERO };
        for _ in 0..limits::TRIES_MAX {
            let Some(batch) = self.decide(&wanted, &asked, now).await? else { return Ok(self.records.position()) };
            match self.send(batch).await? {
                Tried::Applied(position) => return Ok(position),
                Tried::Refused(Require::Present(key)) if key.group == self.keys.values => {
                    return Err(Error::Missing { id: ValueId::new(&key.name) });
                }
                Tried::Refused(_) => {}
                Tried::Unknown(why) => {
                    return match self.decide(&wanted, &asked, now).await {
                        Ok(None) => Ok(self.records.position()),
                        Ok(Some(_)) | Err(_) => Err(why.into()),
                    };
                }
            }
        }
        Err(Error::Contended(limits::TRIES_MAX))
    }

    /// Returns the batch for the part of an update that is not done yet; `None` if all of it is.
    async fn decide(&self, wanted: &[Key], asked: &Asked<'_>, now: Timestamp) -> Result<Option<Batch>, Error> {
        let rows = self.records.get(self.shard, wanted).await?;
        let facts = Facts::new(wanted.to_vec(), rows);
        update::decide(&self.keys, self.shard, &facts, asked, now)
    }

    /// Waits until the state that an answer was decided on is durable, unless the store gave no answer.
    pub(super) async fn told<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        if !matches!(answer, Err(Error::Records(_) | Error::TooLarge { .. } | Error::Senseless(_))) {
            self.records.durable(self.records.position()).await?;
        }
        answer
    }

    /// Commits a batch, and sends the very same batch again while its answer is lost, which is safe because it is
    /// idempotent. [`Tried::Unknown`] means that it may have been applied, at any time until now. The caller may read
    /// whether the state is as it wanted, but must not decide anew.
    pub(super) async fn send(&self, batch: Batch) -> Result<Tried, Error> {
        let lost = match self.try_commit(&batch).await? {
            Tried::Unknown(why) => why,
            answered => return Ok(answered),
        };
        for _ in 0..limits::REPLIES_LOST_MAX {
            match self.try_commit(&batch).await {
                Ok(Tried::Applied(position)) => return Ok(Tried::Applied(position)),
                Ok(Tried::Unknown(_)) => {}
                // Refused because of its own first try, or of other writers: the store cannot tell.
                Ok(Tried::Refused(_)) | Err(_) => break,
            }
        }
        Ok(Tried::Unknown(lost))
    }

    /// Commits a batch, and wakes the reclaim loop if the batch left something to reclaim.
    pub(super) async fn try_commit(&self, batch: &Batch) -> Result<Tried, Error> {
        let rings = self.news.concerns(&self.keys, batch);
        match commit_kept(&*self.records, batch).await {
            Ok(CommitResult::Applied(committed)) => {
                if rings || !committed.fired.is_empty() {
                    self.news.notify();
                }
                Ok(Tried::Applied(committed.position))
            }
            Ok(CommitResult::Refused(Refused { which, .. })) => Ok(Tried::Refused(batch.requires[which].clone())),
            Err(why @ records::Error::Unknown(_)) => {
                tracing::debug!(%why, "the answer to a batch was lost");
                Ok(Tried::Unknown(why))
            }
            Err(error) => Err(error.into()),
        }
    }
}
