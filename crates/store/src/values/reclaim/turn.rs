//! The turn to reclaim, and the schedule of the sweeper. The row exists only while there is something to reclaim or a
//! lease to watch.
//!
//! A batch never sweeps on the condition that the row is *absent*: it may have existed in between. A sweeper that finds
//! none first writes one, with a turn that is unique for ever, and reads again.

use super::{super::stored::Sweeper, Error, ReclaimCall, Round, Witness};
use onceflow_core::{Batch, Row, Timestamp};

/// The sweeper's row as read.
pub(super) struct Seen {
    pub(super) row: Option<Row>,
    pub(super) sweeper: Option<Sweeper>,
    /// The trusted time that was written last.
    pub(super) witness: Option<Witness>,
}

/// The state that one round passes on to the next.
pub(super) struct Known {
    pub(super) seen: Seen,
    /// When the next lease may end.
    pub(super) next_deadline: Option<Timestamp>,
}

impl ReclaimCall<'_> {
    pub(super) async fn seen_sweeper(&self) -> Result<Seen, Error> {
        let keys = &self.values.rows.keys;
        let rows = self.values.rows.records.get(self.values.rows.shard, &[keys.sweeper(), keys.witness()]).await?;
        let [row, witness] = <[Option<Row>; 2]>::try_from(rows).expect("a row, or none, for each key");
        // A row that cannot be read counts as none; fsck reports it.
        let witness = witness.as_deref().and_then(Witness::from_row);
        let sweeper = match &row {
            None => None,
            Some(row) => Some(Sweeper::from_row(row).ok_or_else(|| Error::damaged("the sweeper's row"))?),
        };
        Ok(Seen { row, sweeper, witness })
    }

    /// A batch that is applied only if no batch has reclaimed since `seen` was read, and after which every batch with
    /// an older `seen` is refused.
    pub(super) fn batch_after(&self, seen: &Seen) -> Batch {
        let mut batch = Batch::new(self.values.rows.shard);
        batch.require_seen(self.values.rows.keys.sweeper(), seen.row.clone());
        batch
    }

    pub(super) async fn take_first_turn(&self, next_deadline: Option<Timestamp>) -> Result<Round, Error> {
        let back_by = next_deadline.unwrap_or(Timestamp::NEVER);
        let sweeper = Sweeper { turn: self.values.writer.fence(), back_by, grace_until: Timestamp::ZERO };
        let mut batch = self.batch_after(&Seen { row: None, sweeper: None, witness: None });
        batch.put(self.values.rows.keys.sweeper(), sweeper.to_row());
        self.commit(batch, Round::Did(0)).await
    }

    /// Records that no lease expires before `until`, because the sweeper was away.
    pub(super) async fn give_grace(&self, seen: &Seen, until: Timestamp) -> Result<Round, Error> {
        tracing::warn!(%until, "the sweeper was away; no lease ends before");
        let sweeper = Sweeper { turn: self.values.writer.fence(), back_by: until, grace_until: until };
        let mut batch = self.batch_after(seen);
        batch.put(self.values.rows.keys.sweeper(), sweeper.to_row());
        self.commit(batch, Round::Did(0)).await
    }

    /// Nothing to do now: schedules the next sweep for the next lease, or deletes the sweeper's row.
    pub(super) async fn rest(&self, seen: &Seen, next_deadline: Option<Timestamp>) -> Result<Round, Error> {
        let mut batch = self.batch_after(seen);
        let witness = Witness::of(&*self.values.world, seen.witness);
        match (next_deadline, seen.sweeper) {
            (None, None) => return Ok(Round::Idle(None)),
            (None, Some(_)) => batch.delete(self.values.rows.keys.sweeper()).delete(self.values.rows.keys.witness()),
            (Some(back_by), Some(sweeper)) if sweeper.back_by == back_by && !witness.is_news(seen.witness) => {
                return Ok(Round::Idle(next_deadline));
            }
            (Some(back_by), sweeper) => {
                let grace_until = sweeper.map_or(Timestamp::ZERO, |sweeper| sweeper.grace_until);
                let sweeper = Sweeper { turn: self.values.writer.fence(), back_by, grace_until };
                batch
                    .put(self.values.rows.keys.sweeper(), sweeper.to_row())
                    .put(self.values.rows.keys.witness(), witness.to_row())
            }
        };
        self.commit(batch, Round::Idle(next_deadline)).await
    }
}
