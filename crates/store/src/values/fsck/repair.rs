//! Repairs findings, each by a batch of its own, under the sweeper's turn and only if the rows are as they were judged.
//! Findings about the truth come first; counts and queues follow from it.
//!
//! Relies on an exact report. Each repair requires the rows it read, as far as other writers could have changed them
//! since; a count need not be compared with the references it counts, because a writer that changes those changes the
//! count too.

use super::{Finding, Report, read::Snapshot};
use crate::{
    blobs,
    values::{
        EdgeName, Error, Tried, ValueId, Values,
        rows::ValueRows,
        stored::{Belongings, Debt, Head, Seal, Sweeper, lost_row},
    },
};
use onceflow_core::{Batch, Key, Name, Row, Timestamp, row::counter};

/// One pass over the findings of a report.
pub(super) struct Repair<'a> {
    pub(super) values: &'a Values,
    /// The rows on which the report rests.
    pub(super) judged: &'a Snapshot,
}

impl Repair<'_> {
    /// Runs the pass. Rows changed by other writers meanwhile are left for the next.
    pub(super) async fn run(&self, report: &Report) -> Result<(), Error> {
        let truth_is_broken = report.findings().any(Finding::is_about_truth);
        for finding in report.findings().filter(|finding| finding.is_about_truth() == truth_is_broken) {
            let Some(batch) = self.remedy(finding).await? else { continue };
            tracing::warn!(%finding, "repairing a problem");
            match self.values.rows.try_commit(&batch).await? {
                Tried::Applied(_) | Tried::Refused(_) | Tried::Unknown(_) => {}
            }
        }
        Ok(())
    }

    async fn remedy(&self, finding: &Finding) -> Result<Option<Batch>, Error> {
        let Repair { values: Values { rows: ValueRows { keys, shard, .. }, writer, .. }, judged } = self;
        let seen = self.values.rows.row(keys.sweeper()).await?;
        let old = seen.as_deref().and_then(Sweeper::from_row);
        let sweeper = Sweeper {
            turn: writer.fence(),
            back_by: old.map_or(Timestamp::NEVER, |old| old.back_by),
            grace_until: old.map_or(Timestamp::ZERO, |old| old.grace_until),
        };
        let mut batch = Batch::new(*shard);
        batch.require_seen(keys.sweeper(), seen);
        let value = |id: &ValueId| (keys.value(id), judged.values.get(id).cloned());
        let edge = |name: &EdgeName| {
            let row = judged.edges.get(name).map(|edge| edge.to_row());
            (keys.edge(name), row.or_else(|| judged.inline.get(name).cloned()))
        };
        let sealed = |prefix: &Name| (keys.sealed(prefix), judged.sealed.get(prefix).map(Seal::to_row));
        let release = |prefix: &Name| keys.owed.key(Debt::release_name(prefix));
        match finding {
            Finding::Damaged(id) | Finding::Cycle(id) | Finding::Missing(id) | Finding::Elements { list: id, .. } => {
                if !self.give_up(&mut batch, id, sweeper) {
                    return Ok(None);
                }
            }
            Finding::NoObject(id, object) => {
                if !self.is_gone(*object).await? || !self.give_up(&mut batch, id, sweeper) {
                    return Ok(None);
                }
            }
            // The value is broken as long as its row names the object that was judged.
            Finding::WrongObject { id, .. } => {
                if !self.give_up(&mut batch, id, sweeper) {
                    return Ok(None);
                }
            }
            // No value can come to name the object: for that an upload's row would have to exist.
            Finding::Orphan(object) => {
                batch.require_absent(keys.upload(*object)).put(keys.unlink(*object), Row::default());
            }
            Finding::Unreadable(key, _) if *key == keys.sweeper() => {}
            Finding::Unreadable(key, row) => {
                batch.require_equals(key.clone(), row.clone()).delete(key.clone());
            }
            Finding::Count { id, found, right, .. } => {
                batch.require_seen(keys.count(id), found.clone());
                if *right == 0 {
                    batch.delete(keys.count(id)).put(keys.zero(id), Row::default());
                } else {
                    batch.put(keys.count(id), counter::write(*right));
                }
            }
            Finding::NotQueued(id) => {
                require(&mut batch, value(id)).put(keys.zero(id), Row::default());
            }
            Finding::NotDue(name, deadline) => {
                require(&mut batch, edge(name)).put(keys.due(*deadline, name), Row::default());
            }
            Finding::NoLease(name, deadline) => {
                require(&mut batch, edge(name)).delete(keys.due(*deadline, name));
            }
            Finding::NotSealed(list, prefix) => {
                require(&mut batch, value(list));
                require(&mut batch, sealed(prefix)).put(keys.sealed(prefix), Seal::OwnedBy(list.clone()).to_row());
            }
            Finding::NoOwner(prefix) => {
                if let Some(Seal::OwnedBy(list)) = judged.sealed.get(prefix) {
                    require(&mut batch, value(list));
                }
                require(&mut batch, sealed(prefix)).put(release(prefix), Debt::release_row());
            }
            Finding::ReleasedTooEarly(prefix) => {
                let Some(list) = owner(judged, prefix) else { return Ok(None) };
                require(&mut batch, value(list)).delete(release(prefix));
            }
            Finding::ReleasedOpen(prefix) => {
                batch.require_present(release(prefix));
                require(&mut batch, sealed(prefix)).put(keys.sealed(prefix), Seal::Released.to_row());
            }
        }
        batch.put(keys.sweeper(), sweeper.to_row());
        Ok(Some(batch))
    }

    /// The object is missing, asked again: it may have been stored after the objects were listed. An unanswered request
    /// proves nothing.
    async fn is_gone(&self, object: blobs::ObjectName) -> Result<bool, Error> {
        match self.values.integrity().blobs()?.size(object).await {
            Ok(_) => Ok(false),
            Err(blobs::Error::Missing { .. }) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts a placeholder in a value's place. The references of the value, if they can be read, become a debt; its
    /// elements or object are released. Returns true if there is anything to give up.
    fn give_up(&self, batch: &mut Batch, id: &ValueId, sweeper: Sweeper) -> bool {
        let keys = &self.values.rows.keys;
        let row = self.judged.values.get(id);
        batch.require_seen(keys.value(id), row.cloned()).put(keys.value(id), lost_row());
        let Some(head) = row.and_then(|row| Head::read(row)) else { return true };
        if head.is_lost() {
            return false;
        }
        let refs: Vec<_> = head.refs().collect();
        if !refs.is_empty() {
            let debt = Debt::decrements_row(refs.iter().map(|id| (id, 1)));
            batch.put(keys.owed.key(Debt::decrements_name(sweeper.turn)), debt);
        }
        match head.belongings() {
            None | Some(Belongings::None) => {}
            Some(Belongings::Prefix(prefix)) => {
                batch.put(keys.owed.key(Debt::release_name(&prefix)), Debt::release_row());
            }
            Some(Belongings::Object(object)) => {
                batch.put(keys.unlink(object), Row::default());
            }
        }
        true
    }
}

/// Requires a row as it was judged.
fn require(batch: &mut Batch, (key, row): (Key, Option<Row>)) -> &mut Batch {
    batch.require_seen(key, row)
}

/// The list that owns a prefix.
fn owner<'a>(judged: &'a Snapshot, prefix: &Name) -> Option<&'a ValueId> {
    let owns = |row: &Row| match Head::read(row)?.belongings()? {
        Belongings::Prefix(owned) => Some(owned == *prefix),
        Belongings::None | Belongings::Object(_) => None,
    };
    judged.values.iter().find(|(_, row)| owns(row) == Some(true)).map(|(id, _)| id)
}
