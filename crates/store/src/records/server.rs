//! The capability of a backend whose rows are on a server that others use, too: the server sweeps values by itself, walks
//! rows that it keeps in no order, and can lose or change rows behind our back.
//!
//! [`Records::server`](super::Records::server) answers it. A backend in this process has none, and its callers do the
//! same work with the methods of the port.

use super::{Error, Page, Records, Scan};
use crate::world::BoxFuture;
use onceflow_core::{Group, Key, Name, Row, Shard};

/// Groups whose rows are found by name, and otherwise only looked at all together, with [`walk`]. Where order costs
/// something, a store need not keep them in order; a scan of them may be slow then.
pub const UNORDERED_GROUPS: [&str; 2] = ["values", "values.counts"];

/// Some rows of a group, in any order.
#[derive(Clone, Debug, Default)]
pub struct UnorderedPage {
    /// The rows. One may come twice in a walk.
    pub rows: Vec<(Name, Row)>,
    /// Where the walk goes on; `None` at its end.
    pub next: Option<Name>,
}

impl From<Page> for UnorderedPage {
    fn from(page: Page) -> Self {
        let next = page.rows.last().filter(|_| page.more).map(|(name, _)| name.clone());
        UnorderedPage { rows: page.rows, next }
    }
}

/// Asks a store to sweep values by itself; see [`ServerRecords::sweep`].
#[derive(Clone, Debug)]
pub struct SweepRequest {
    /// The row of the turn, the content it must have, and its content afterwards.
    pub turn: (Key, Row, Row),
    /// The groups of values, counts, values at zero, and debts.
    pub groups: [Group; 4],
    /// The name of a debt that may be left: one that was never used before.
    pub debt: Name,
}

/// The work done by a store that was asked to sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Values that were deleted.
    pub swept: u64,
    /// References of swept values that no longer count.
    pub paid: u64,
    /// Values, edges and decrements that were looked at.
    pub touched: usize,
    /// There is more to do.
    pub more: bool,
    /// Some work is left to the caller: a value that owns something else, or a row that is not as it should be.
    pub odd: bool,
}

/// A store on a server. Its [`position`](super::Records::position) does not rise when other processes commit, so a change
/// is detected by reading twice.
pub trait ServerRecords: Send + Sync {
    /// Fails with [`Error::Lost`] if this is no longer the store that this client wrote to: for a caller that misses a
    /// row that was there.
    fn check_store(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// Every row of a group, some at a time, in any order; see [`walk`].
    fn walk(
        &self,
        shard: Shard,
        group: Group,
        from: Option<Name>,
        limit: usize,
    ) -> BoxFuture<'_, Result<UnorderedPage, Error>>;

    /// Reports inconsistencies in how the rows of a shard are kept, beside their contents: rows that were put or
    /// deleted behind the store's back. Concurrent changes may be reported too: a report that repeats while nothing
    /// else changes is real.
    fn inconsistencies(&self, shard: Shard) -> BoxFuture<'_, Result<Vec<String>, Error>>;

    /// How many calls of [`ServerRecords::sweep`] are best under way at once, at least 1. A server that syncs after each
    /// call would wait for its disk most of the time if there were one.
    fn concurrent_sweeps(&self) -> usize;

    /// Does the work of [`values::reclaim`](crate::values::reclaim) on the server: pays a debt and sweeps values at
    /// zero with the values they refer to, for about a millisecond or two. Atomic as a batch that requires the turn and
    /// puts the next one, and like one it answers [`Error::Unknown`] when the reply is lost; `None` if the turn is
    /// another's. If there is nothing to do, the turn stays.
    fn sweep(&self, shard: Shard, ask: SweepRequest) -> BoxFuture<'_, Result<Option<SweepReport>, Error>>;
}

/// Every row of a group, some at a time, in any order. A row that is there from the first call of a walk to its last comes
/// at least once; one that comes or goes meanwhile may come or not.
pub async fn walk(
    records: &dyn Records,
    shard: Shard,
    group: Group,
    from: Option<Name>,
    limit: usize,
) -> Result<UnorderedPage, Error> {
    match records.server() {
        Some(server) => server.walk(shard, group, from, limit).await,
        None => Ok(records.scan(shard, Scan::of(group, limit).after(from)).await?.into()),
    }
}
