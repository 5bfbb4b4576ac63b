//! Deletes unreferenced values in small steps: expires leases, pays debts, sweeps values whose count is zero.
//!
//! A round is one batch. It reads the turn, then the work to do, and commits under the turn it read
//! (`stored::Sweeper`): a caller that was overtaken reads again. So no value is ever half deleted: until the batch that
//! sweeps it, a value at zero can be referred to again, and after it, the value is gone with all its debts. References
//! of a value that do not fit into one batch are recorded as a debt, which counts as much as the references did.

mod expire;
mod run;
mod sweep;
mod there;
mod turn;
mod witness;

pub(super) use witness::Witness;

use super::{Error, Values, limits};
use crate::records::{Page, Scan, ServerRecords};
use futures_util::future::try_join;
use onceflow_core::{Group, Timestamp};
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
pub(super) enum Round {
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
        let mut done = Reclaimed::default();
        let mut left = budget.max(1);
        let mut overtaken = 0;
        let mut known = None;
        let server = self.sweeping_server(left);
        let mut there = server.is_some();
        while left > 0 {
            // Small batches are overtaken less often, and the smallest only by a change of that very value.
            let round_max = left.min((self.reclaim_ops() >> overtaken.min(16)).max(1));
            let round = match server.filter(|_| std::mem::replace(&mut there, true)) {
                Some(server) => {
                    known = None;
                    self.round_there(server, &mut done, left, &mut there).await?
                }
                None => self.round(&mut done, round_max, &mut known).await?,
            };
            match round {
                Round::Did(touched) => (left, overtaken) = (left.saturating_sub(touched), 0),
                Round::Again if overtaken == limits::TRIES_MAX => return Err(Error::Contended(overtaken)),
                Round::Again => overtaken += 1,
                Round::Idle(next_deadline) => return Ok(Reclaimed { next_deadline, ..done }),
            }
        }
        Ok(Reclaimed { more: true, ..done })
    }

    /// Sweeps on the server, if there is a turn to take. `there` is cleared when the next round must use a batch of this process,
    /// which looks at everything: the server found nothing to do, or something it cannot do.
    async fn round_there(
        &self,
        server: &dyn ServerRecords,
        done: &mut Reclaimed,
        touch_max: usize,
        there: &mut bool,
    ) -> Result<Round, Error> {
        let seen = self.seen_sweeper().await?;
        let due = self.page(&self.keys.due, 1).await?;
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
        let did = self.sweep_on_server(server, done, row, sweeper, next_deadline, touch_max).await?;
        *there &= !did.is_odd && !matches!(did.round, Round::Did(0));
        Ok(did.round)
    }

    /// Commits at most one batch. `known` is the state left by the previous batch, if that was ours and swept something: then the
    /// sweeper's row need not be read, and leases were checked just before.
    async fn round(
        &self,
        done: &mut Reclaimed,
        touch_max: usize,
        known: &mut Option<turn::Known>,
    ) -> Result<Round, Error> {
        let is_known = known.is_some();
        let turn::Known { seen, mut next_deadline } = match known.take() {
            Some(known) => known,
            None => {
                let seen = self.seen_sweeper().await?;
                let due = self.page(&self.keys.due, touch_max.min(self.reclaim_ops() / expire::LEASE_OPS)).await?;
                let mut next_deadline = None;
                if !due.rows.is_empty() {
                    match expire::look(&due.rows, seen.sweeper, self.now_for_leases(&seen).await?)? {
                        expire::Due::Later(deadline) => next_deadline = Some(deadline),
                        expire::Due::Grace { until } => return self.give_grace(&seen, until).await,
                        expire::Due::Now(leases, now) => return self.expire(done, &seen, &leases, now).await,
                    }
                }
                turn::Known { seen, next_deadline }
            }
        };
        let zero = self.page(&self.keys.zero, touch_max.min(self.reclaim_ops() / sweep::CANDIDATE_OPS));
        let (owed, zero) = try_join(self.page(&self.keys.owed, 1), zero).await?;
        if owed.rows.is_empty() && zero.rows.is_empty() {
            if is_known {
                // Another round looks at everything before the sweeper rests.
                return Ok(Round::Did(0));
            }
            if let Some(round) = self.unlink(done, touch_max, &mut next_deadline).await? {
                return Ok(round);
            }
            return self.rest(&seen, next_deadline).await;
        }
        let Some(sweeper) = seen.sweeper else { return self.take_first_turn(next_deadline).await };
        let work = sweep::Work { owed, zero, touch_max, next_deadline };
        self.sweep(done, seen, sweeper, work, known).await
    }

    /// Operations a reclaiming batch is filled up to.
    fn reclaim_ops(&self) -> usize {
        self.records.batch_limits().ops_hint - limits::RECLAIM_OPS_SPARE
    }

    /// The store's clock, which alone decides when a lease ends, as far as it can be trusted.
    async fn now_for_leases(&self, seen: &Seen) -> Result<Timestamp, Error> {
        if !crate::seams::ends_leases_by_store_clock() {
            return Ok(self.world.clock());
        }
        Ok(self.witness(seen.witness).now(self.records.now().await?))
    }

    /// The time the store believes now.
    fn witness(&self, known: Option<Witness>) -> Witness {
        Witness::look(known, self.world.clock(), self.world.uptime())
    }

    /// The time for deadlines of days: the store's clock, unless it jumped ahead and has not stayed there for long, as a clock
    /// that was set wrong does.
    pub async fn trusted_now(&self) -> Result<Timestamp, Error> {
        let known = self.row(self.keys.witness()).await?.as_deref().and_then(Witness::from_row);
        Ok(self.witness(known).now(self.records.now().await?))
    }

    pub(super) async fn page(&self, group: &Group, limit: usize) -> Result<Page, Error> {
        Ok(self.records.scan(self.shard, Scan::of(group.clone(), limit)).await?)
    }
}
