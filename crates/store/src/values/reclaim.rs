//! Deletes unreferenced values in small steps: expires leases, pays debts, sweeps values whose count is zero.
//!
//! A round is one batch. It reads the turn, then the work to do, and commits under the turn it read
//! (`stored::Sweeper`): a caller that was overtaken reads again. So no value is ever half deleted: until the batch that
//! sweeps it, a value at zero can be referred to again, and after it, the value is gone with all its debts. References
//! of a value that do not fit into one batch are recorded as a debt, which counts as much as the references did.

mod expire;
mod objects;
mod run;
mod sweep;
mod there;
mod turn;
mod witness;

pub(super) use witness::Witness;

use super::{Error, Tried, Values, limits};
use crate::records::{Page, Scan, ServerRecords};
use futures_util::future::try_join;
use onceflow_core::{Batch, Group, Timestamp};
use std::sync::Arc;
use turn::Seen;

/// The work done by a call of [`Values::reclaim`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Values that were deleted.
    pub swept: u64,
    /// Leases that expired.
    pub expired: u64,
    /// References of swept values that no longer count.
    pub paid: u64,
    /// Objects that were deleted.
    pub objects_unlinked: u64,
    /// The budget was used up, so there may be more to do now.
    pub more: bool,
    /// The deadline of the next lease; call again then.
    pub next_deadline: Option<Timestamp>,
}

/// The result of a round.
enum Round {
    /// So many values, edges and decrements were touched.
    Did(usize),
    /// Another caller was faster, or the answer was lost: read again.
    Again,
    /// There is nothing to do before this time.
    Idle(Option<Timestamp>),
}

impl Values {
    /// Expires due leases, pays debts and sweeps unreferenced values, touching at most about `budget` values. Safe to
    /// call from anywhere, any number at a time, and to stop at any await.
    pub async fn reclaim(&self, budget: usize) -> Result<Reclaimed, Error> {
        ReclaimCall { values: self, done: Reclaimed::default(), left: budget.max(1), known: None }.run().await
    }

    /// Reclaims until it is dropped. Run one per process and shard.
    ///
    /// Garbage made through the same [`Values`] wakes it at once; garbage of other processes it finds within
    /// [`RECLAIM_LOOK_MS`](limits::RECLAIM_LOOK_MS).
    ///
    /// Returns only on an error that repeating cannot fix: the store is damaged, or a batch was wrong.
    pub async fn reclaim_forever(self: Arc<Self>) -> Error {
        run::forever(&self).await
    }

    /// Reclaims until there is nothing to do now. Yields in between, so that it can be stopped.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn reclaim_all(&self) -> Result<(), Error> {
        run::all(self).await
    }

    /// Values and decrements that one call of the reclaim loop touches.
    pub fn reclaim_budget(&self) -> usize {
        if self.rows.records.server().is_some() { limits::RECLAIM_THERE_BUDGET } else { limits::RECLAIM_BUDGET }
    }

    /// The time for deadlines of days: the store's clock, unless it jumped ahead and has not stayed there for long, as a clock
    /// that was set wrong does.
    pub async fn trusted_now(&self) -> Result<Timestamp, Error> {
        let known = self.rows.row(self.rows.keys.witness()).await?.as_deref().and_then(Witness::from_row);
        Ok(Witness::of(&*self.world, known).now(self.rows.records.now().await?))
    }
}

/// One call of [`Values::reclaim`]: rounds until the budget is used up or there is nothing to do.
struct ReclaimCall<'a> {
    values: &'a Values,
    done: Reclaimed,
    /// The values, edges and decrements that may still be touched.
    left: usize,
    /// The state left by the previous batch, if that was ours and swept something: then the sweeper's row need not be
    /// read, and leases were checked just before.
    known: Option<turn::Known>,
}

impl ReclaimCall<'_> {
    async fn run(mut self) -> Result<Reclaimed, Error> {
        let server = self.sweeping_server();
        let (mut overtaken, mut there) = (0, server.is_some());
        while self.left > 0 {
            // Small batches are overtaken less often, and the smallest only by a change of that very value.
            let touch_max = self.left.min((self.ops_max() >> overtaken.min(16)).max(1));
            let round = match server.filter(|_| std::mem::replace(&mut there, true)) {
                Some(server) => self.round_there(server, &mut there).await?,
                None => self.round(touch_max).await?,
            };
            match round {
                Round::Did(touched) => (self.left, overtaken) = (self.left.saturating_sub(touched), 0),
                Round::Again if overtaken == limits::TRIES_MAX => return Err(Error::Contended(overtaken)),
                Round::Again => overtaken += 1,
                Round::Idle(next_deadline) => return Ok(Reclaimed { next_deadline, ..self.done }),
            }
        }
        Ok(Reclaimed { more: true, ..self.done })
    }

    /// Sweeps on the server, if there is a turn to take. `there` is cleared when the next round must use a batch of this process,
    /// which looks at everything: the server found nothing to do, or something it cannot do.
    async fn round_there(&mut self, server: &dyn ServerRecords, there: &mut bool) -> Result<Round, Error> {
        self.known = None;
        let seen = self.seen_sweeper().await?;
        let due = self.page(&self.values.rows.keys.due, 1).await?;
        let next_deadline = match due.rows.is_empty() {
            true => None,
            false => match expire::look(&due.rows, seen.sweeper, self.now_for_leases(&seen).await?)? {
                expire::Due::Later(deadline) => Some(deadline),
                expire::Due::Grace { .. } | expire::Due::Now(..) => {
                    *there = false;
                    return Ok(Round::Did(0));
                }
            },
        };
        let Some((row, sweeper)) = seen.both() else {
            *there = false;
            return Ok(Round::Did(0));
        };
        let did = self.sweep_on_server(server, row, sweeper, next_deadline).await?;
        *there &= !did.is_odd && !matches!(did.round, Round::Did(0));
        Ok(did.round)
    }

    /// Commits at most one batch.
    async fn round(&mut self, touch_max: usize) -> Result<Round, Error> {
        let is_known = self.known.is_some();
        let turn::Known { seen, mut next_deadline } = match self.known.take() {
            Some(known) => known,
            None => {
                let seen = self.seen_sweeper().await?;
                let due =
                    self.page(&self.values.rows.keys.due, touch_max.min(self.ops_max() / expire::LEASE_OPS)).await?;
                let mut next_deadline = None;
                if !due.rows.is_empty() {
                    match expire::look(&due.rows, seen.sweeper, self.now_for_leases(&seen).await?)? {
                        expire::Due::Later(deadline) => next_deadline = Some(deadline),
                        expire::Due::Grace { until } => return self.give_grace(&seen, until).await,
                        expire::Due::Now(leases, now) => return self.expire(&seen, &leases, now).await,
                    }
                }
                turn::Known { seen, next_deadline }
            }
        };
        let keys = &self.values.rows.keys;
        let zero = self.page(&keys.zero, touch_max.min(self.ops_max() / sweep::CANDIDATE_OPS));
        let (owed, zero) = try_join(self.page(&keys.owed, 1), zero).await?;
        if owed.rows.is_empty() && zero.rows.is_empty() {
            if is_known {
                // Another round looks at everything before the sweeper rests.
                return Ok(Round::Did(0));
            }
            if let Some(round) = self.unlink(touch_max, &mut next_deadline).await? {
                return Ok(round);
            }
            return self.rest(&seen, next_deadline).await;
        }
        let Some(sweeper) = seen.sweeper else { return self.take_first_turn(next_deadline).await };
        self.sweep(seen, sweeper, sweep::Work { owed, zero, touch_max, next_deadline }).await
    }

    /// Operations a reclaiming batch is filled up to.
    fn ops_max(&self) -> usize {
        self.values.rows.records.batch_limits().ops_hint - limits::RECLAIM_OPS_SPARE
    }

    /// The store's clock, which alone decides when a lease ends, as far as it can be trusted.
    async fn now_for_leases(&self, seen: &Seen) -> Result<Timestamp, Error> {
        if !crate::seams::ends_leases_by_store_clock() {
            return Ok(self.values.world.clock());
        }
        Ok(Witness::of(&*self.values.world, seen.witness).now(self.values.rows.records.now().await?))
    }

    async fn page(&self, group: &Group, limit: usize) -> Result<Page, Error> {
        Ok(self.values.rows.records.scan(self.values.rows.shard, Scan::of(group.clone(), limit)).await?)
    }

    /// Commits the batch of a round that touched so much. A batch that was refused changed nothing, and after a lost
    /// answer the next round reads what is there.
    async fn commit(&self, batch: Batch, did: Round) -> Result<Round, Error> {
        Ok(match self.values.rows.try_commit(&batch).await? {
            Tried::Applied(_) => did,
            Tried::Refused(_) | Tried::Unknown(_) => Round::Again,
        })
    }
}
