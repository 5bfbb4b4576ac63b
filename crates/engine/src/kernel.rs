//! The kernel: the way of a piece of work from its claim to its durable commit, whatever the work is.
//!
//! | stage | file |
//! |---|---|
//! | **claim**: a ready row is taken under a fence, alone or with the commit of the work before | `claims` |
//! | **heartbeat**: the deadline of the claim is renewed until the work ends | `heartbeat` |
//! | **commit**: one batch, decided again while only a fact it rests on has changed | `commit` |
//! | **lost reply**: the same batch is sent again, then the rows tell whether it happened | `commit`, `claims` |
//! | **refused**: another worker has the work, or the run went on; the work is dropped without a trace | `commit` |
//! | **takeover**: work of a worker whose deadline has passed is freed | `heartbeat` |
//! | **timer**: work that is suspended is woken at its deadline | `timers` |
//! | **drain**: no further claims, and work in progress is waited for | `drain` |
//!
//! The batches are decided in [`onceflow_core::protocol::claim`] (claims) and by the owner of the work (its commit). The
//! kernel knows the work by its [`WorkClaim`] and asks the rest of its owner, through [`ClaimedWork`].

mod claims;
mod commit;
mod drain;
mod heartbeat;
mod timers;

use crate::Error;
pub(crate) use claims::{Asked, Job};
pub(crate) use commit::{Decision, OutsideCommit, WorkCommit};
pub(crate) use drain::{Busy, Drain};
pub(crate) use heartbeat::{Heartbeat, Heartbeats, Hold, Stop};
use onceflow_core::{Batch, Fences, Group, Key, Name, Row, Shard, limits::SCAN_ROWS_MAX, protocol::claim::WorkClaim};
use onceflow_store::{
    Records,
    records::{Scan, get_one},
    values::Values,
};
use std::sync::Arc;

/// Claims work and commits it.
pub(crate) struct Kernel {
    pub(crate) records: Arc<dyn Records>,
    pub(crate) values: Arc<Values>,
    pub(crate) fences: Fences,
    pub(crate) shard: Shard,
    /// How long a claim stands without a heartbeat.
    pub(crate) lease_ms: u64,
    /// The ready row as it was claimed, and as it is now, stand for the same attempt: the claim may be put back if the
    /// store has forgotten it.
    pub(crate) is_same_attempt: fn(&Row, &Row) -> bool,
}

/// A piece of claimed work, as the kernel sees it.
pub(crate) trait ClaimedWork: Sync {
    /// The claim that it is done under.
    fn claim(&self) -> &WorkClaim;

    /// The rows that stand for the work while it is not done, beside its ready row: it was moved or parked.
    fn elsewhere(&self) -> Vec<Key>;

    /// A row that the decision rests on, other than the claim, was found changed: answers how the commit goes on.
    fn refused(&self, key: &Key, found: Option<&Row>) -> Refusal;
}

/// How a refused commit goes on.
pub(crate) enum Refusal {
    /// The changed fact is known now, and the same outputs can be committed: decide again.
    Again,
    /// The work is not ours any more.
    Lost,
    /// The owner must read other rows before it can decide again.
    Changed,
}

impl Kernel {
    pub(crate) async fn row(&self, key: Key) -> Result<Option<Row>, Error> {
        Ok(get_one(&*self.records, self.shard, key).await?)
    }

    /// All rows of a group under a prefix. Read page by page: no snapshot.
    pub(crate) async fn all_rows(&self, group: Group, prefix: &[u8]) -> Result<Vec<(Name, Row)>, Error> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let scan = Scan::of(group.clone(), SCAN_ROWS_MAX).prefix(prefix).after(after);
            let page = self.records.scan(self.shard, scan).await?;
            after = page.rows.last().map(|(name, _)| name.clone());
            found.extend(page.rows);
            if !page.more {
                return Ok(found);
            }
            if after.is_none() {
                return Err(Error::damaged("a page without rows says that more follow"));
            }
        }
    }

    /// Commits a batch about a claim. True if it was applied: else the claim is not as it was read.
    pub(crate) async fn apply(&self, batch: Batch) -> Result<bool, Error> {
        Ok(self.records.commit(batch).await?.is_applied())
    }
}
