//! Changes what does not fit, each thing by a batch of its own, under the sweeper's turn and only if the rows are as
//! they were read. What is about the truth comes first; counts and queues follow from it.

use super::{Finding, Report};
use crate::values::{
    Error, Tried, Values,
    id::ValueId,
    stored::{Belongings, Debt, Head, Seal, Sweeper, lost_row},
};
use onceflow_core::{Batch, Row, Timestamp, row::counter};

impl Values {
    /// One pass. What was changed by others meanwhile is left for the next.
    pub(super) async fn repair(&self, report: &Report) -> Result<(), Error> {
        let findings = || report.problems.iter().chain(&report.leaks);
        let truth_is_broken = findings().any(Finding::is_about_truth);
        for finding in findings().filter(|finding| finding.is_about_truth() == truth_is_broken) {
            let Some(batch) = self.remedy(finding).await? else { continue };
            tracing::warn!(%finding, "repairing");
            match self.try_commit(batch).await? {
                Tried::Applied(_) | Tried::Refused(_) | Tried::Unknown => {}
            }
        }
        Ok(())
    }

    async fn remedy(&self, finding: &Finding) -> Result<Option<Batch>, Error> {
        let keys = &self.keys;
        let seen = self.row(keys.sweeper()).await?;
        let old = seen.as_deref().and_then(Sweeper::from_row);
        let sweeper = Sweeper {
            turn: self.fences.next(),
            back_by: old.map_or(Timestamp::NEVER, |old| old.back_by),
            grace_until: old.map_or(Timestamp::ZERO, |old| old.grace_until),
        };
        let mut batch = Batch::new(self.shard);
        batch.require_seen(keys.sweeper(), seen);
        match finding {
            Finding::Damaged(id) | Finding::Cycle(id) | Finding::Missing(id) | Finding::Elements { list: id, .. } => {
                if !self.give_up(&mut batch, id, sweeper).await? {
                    return Ok(None);
                }
            }
            // It may have been stored after the objects were listed.
            Finding::NoObject(_, object) if self.blobs()?.size(*object).await.is_ok() => return Ok(None),
            Finding::NoObject(id, _) => {
                if !self.give_up(&mut batch, id, sweeper).await? {
                    return Ok(None);
                }
            }
            Finding::Orphan(object) => {
                batch.put(keys.unlink(*object), Row::default());
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
                batch.put(keys.zero(id), Row::default());
            }
            Finding::NotDue(edge, deadline) => {
                let Some((row, _)) = self.edge_row(edge).await? else { return Ok(None) };
                batch.require_equals(keys.edge(edge), row).put(keys.due(*deadline, edge), Row::default());
            }
            Finding::NoLease(edge, deadline) => {
                batch.delete(keys.due(*deadline, edge));
            }
            Finding::NotSealed(list, prefix) => {
                batch.put(keys.sealed(prefix), Seal::OwnedBy(list.clone()).to_row());
            }
            Finding::NoOwner(prefix) => {
                batch.put(keys.owed.key(Debt::release_name(prefix)), Debt::release_row());
            }
            Finding::ReleasedTooEarly(prefix) => {
                batch.delete(keys.owed.key(Debt::release_name(prefix)));
            }
            Finding::ReleasedOpen(prefix) => {
                batch.put(keys.sealed(prefix), Seal::Released.to_row());
            }
        }
        batch.put(keys.sweeper(), sweeper.to_row());
        Ok(Some(batch))
    }

    /// Puts a placeholder in a value's place. What it referred to, if that can be read, is owed; what it owned is to
    /// be released.
    async fn give_up(&self, batch: &mut Batch, id: &ValueId, sweeper: Sweeper) -> Result<bool, Error> {
        let keys = &self.keys;
        let row = self.row(keys.value(id)).await?;
        batch.require_seen(keys.value(id), row.clone()).put(keys.value(id), lost_row());
        let Some(head) = row.as_deref().and_then(Head::read) else { return Ok(true) };
        if head.is_lost() {
            return Ok(false);
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
        Ok(true)
    }
}
