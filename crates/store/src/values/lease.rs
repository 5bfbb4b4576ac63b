//! Leases: edges that end by themselves. Time is the store's. The end of a lease is an event, the sweep's batch, at or
//! after the deadline; a renewal before that event wins, and after it the lease is lost, never silently taken again.

use super::{EdgeName, Error, Tried, Values, limits, rows::ValueRows, stored::Edge, update::lower};
use crate::{
    records::{self, Position},
    sync::{Mutex, lock},
    wake::Signal,
};
use futures_util::future::{Either, select};
use onceflow_core::{Batch, Row, Timestamp};
use std::{pin::pin, sync::Arc};

/// One lease, by its name.
pub(super) struct NamedLease<'a> {
    pub(super) rows: &'a ValueRows,
    pub(super) edge: &'a EdgeName,
}

impl NamedLease<'_> {
    /// Moves the deadline: see [`Values::renew`].
    pub(super) async fn renew(&self, ttl_ms: u64) -> Result<Timestamp, Error> {
        let deadline = self.rows.records.now().await?.plus_ms(ttl_ms);
        for _ in 0..limits::TRIES_MAX {
            let lost = || Error::LeaseLost { edge: self.edge.clone() };
            let (_, current) = self.rows.edge_row(self.edge).await?.ok_or_else(lost)?;
            let old = current.deadline.ok_or_else(lost)?;
            if old >= deadline {
                return Ok(old);
            }
            match self.rows.send(self.renewal(&current, old, deadline)).await? {
                Tried::Applied(_) => return Ok(deadline),
                Tried::Refused(_) => {}
                Tried::Unknown(why) => {
                    return match self.rows.edge_row(self.edge).await {
                        Ok(Some((_, Edge { deadline: Some(found), .. }))) if found >= deadline => Ok(found),
                        _ => Err(why.into()),
                    };
                }
            }
        }
        Err(Error::Contended(limits::TRIES_MAX))
    }

    /// The batch that moves the deadline of a lease, if the lease is still exactly as read.
    fn renewal(&self, current: &Edge, old: Timestamp, deadline: Timestamp) -> Batch {
        let next = Edge { deadline: Some(deadline), ..current.clone() };
        let mut batch = Batch::new(self.rows.shard);
        batch
            .require_equals(self.rows.keys.edge(self.edge), current.to_row())
            .put(self.rows.keys.edge(self.edge), next.to_row());
        batch.delete(self.rows.keys.due(old, self.edge)).put(self.rows.keys.due(deadline, self.edge), Row::default());
        batch
    }

    /// The batch that clears a lease, if the lease is still exactly as read.
    fn end(&self, current: &Edge, deadline: Timestamp) -> Batch {
        let mut batch = Batch::new(self.rows.shard);
        if let EdgeName::Element { prefix, .. } = self.edge {
            batch.require_absent(self.rows.keys.sealed(prefix));
        }
        batch.require_equals(self.rows.keys.edge(self.edge), current.to_row()).delete(self.rows.keys.edge(self.edge));
        batch.delete(self.rows.keys.due(deadline, self.edge));
        lower(&mut batch, &self.rows.keys, &current.target, 1);
        batch
    }
}

/// Renews a lease at a third of its life, for as long as it is kept. Dropping the keeper lets the lease run out.
///
/// It keeps the very lease it found when it started: if that ends and another process takes the name, or changes the
/// lease in any way, the lease is lost, and the other's is left alone.
///
/// The loss of a lease is final, and reported by [`Keeper::check`], by [`Keeper::lost`], and in the log.
pub struct Keeper {
    shared: Arc<Shared>,
}

struct Shared {
    values: Arc<Values>,
    edge: EdgeName,
    ttl_ms: u64,
    state: Mutex<State>,
    bell: Signal,
}

struct State {
    /// The states the lease may be in: as last read, and as renewals would leave it that were not answered yet.
    held: Vec<Edge>,
    lost: Option<Error>,
    stopped: bool,
}

impl Keeper {
    /// Keeps a lease that is set already.
    ///
    /// # Errors
    /// [`LeaseLost`](Error::LeaseLost) if it is not, or is no lease.
    pub async fn start(values: Arc<Values>, edge: EdgeName, ttl_ms: u64) -> Result<Self, Error> {
        let found = values.rows.edge_row(&edge).await?.filter(|(_, found)| found.deadline.is_some());
        let (_, found) = found.ok_or_else(|| Error::LeaseLost { edge: edge.clone() })?;
        let state = Mutex::new(State { held: vec![found], lost: None, stopped: false });
        let shared = Arc::new(Shared { values, edge, ttl_ms, state, bell: Signal::default() });
        let task = keep(shared.clone());
        shared.values.world.spawn("lease keeper", Box::pin(task));
        Ok(Keeper { shared })
    }

    /// The lease's edge.
    pub fn edge(&self) -> &EdgeName {
        &self.shared.edge
    }

    /// Succeeds while the lease is held, as far as is known.
    ///
    /// # Errors
    /// [`LeaseLost`](Error::LeaseLost): the caller no longer owns what the lease protected.
    pub fn check(&self) -> Result<(), Error> {
        lock(&self.shared.state).lost.clone().map_or(Ok(()), Err)
    }

    /// Waits until the lease is lost, and returns the reason.
    pub async fn lost(&self) -> Error {
        self.shared.bell.until(|| lock(&self.shared.state).lost.clone()).await
    }

    /// Clears the lease. Durable when it returns.
    ///
    /// # Errors
    /// [`LeaseLost`](Error::LeaseLost) if it has ended before, or is another process's now, which is left alone.
    pub async fn release(self) -> Result<Position, Error> {
        self.shared.stop();
        let answer = self.shared.clear().await;
        self.shared.values.rows.told(answer).await
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Shared {
    fn lease(&self) -> NamedLease<'_> {
        NamedLease { rows: &self.values.rows, edge: &self.edge }
    }

    fn stop(&self) {
        lock(&self.state).stopped = true;
        self.bell.notify();
    }

    /// Returns the lease as it is now, and its deadline, if it is still the one that is kept.
    async fn current(&self) -> Result<(Edge, Timestamp), Error> {
        let found = self.values.rows.edge_row(&self.edge).await?.map(|(_, found)| found);
        let found = found.filter(|found| lock(&self.state).held.contains(found));
        let found = found.and_then(|found| Some((found.deadline?, found)));
        found.map(|(deadline, found)| (found, deadline)).ok_or_else(|| Error::LeaseLost { edge: self.edge.clone() })
    }

    async fn renew(&self) -> Result<(), Error> {
        let deadline = self.values.rows.records.now().await?.plus_ms(self.ttl_ms);
        let (current, old) = self.current().await?;
        if old >= deadline {
            return Ok(());
        }
        let next = Edge { deadline: Some(deadline), ..current.clone() };
        // Before the batch is sent: its answer may never arrive.
        lock(&self.state).held.push(next.clone());
        match self.values.rows.send(self.lease().renewal(&current, old, deadline)).await? {
            Tried::Applied(position) => {
                lock(&self.state).held = vec![next];
                Ok(self.values.rows.records.durable(position).await?)
            }
            // Reading the lease again shows whose it is now.
            Tried::Refused(_) => self.current().await.map(drop),
            Tried::Unknown(why) => Err(why.into()),
        }
    }

    async fn clear(&self) -> Result<Position, Error> {
        for _ in 0..limits::TRIES_MAX {
            // A renewal may still be under way, and change the row after it was read.
            let (current, deadline) = self.current().await?;
            match self.values.rows.send(self.lease().end(&current, deadline)).await? {
                Tried::Applied(position) => return Ok(position),
                Tried::Refused(_) => {}
                Tried::Unknown(why) => {
                    return match self.current().await {
                        Err(Error::LeaseLost { .. }) => Ok(self.values.rows.records.position()),
                        Ok(_) | Err(_) => Err(why.into()),
                    };
                }
            }
        }
        Err(Error::Contended(limits::TRIES_MAX))
    }
}

async fn keep(shared: Arc<Shared>) {
    let Shared { values, edge, ttl_ms, state, bell } = &*shared;
    let mut rest_ms = third(*ttl_ms);
    loop {
        let stopped = pin!(bell.until(|| lock(state).stopped.then_some(())));
        if let Either::Left(_) = select(stopped, values.world.sleep(rest_ms)).await {
            return;
        }
        use records::Error::{Full, Unavailable, Unknown};
        match shared.renew().await {
            Ok(()) => rest_ms = third(*ttl_ms),
            Err(Error::Records(error @ (Unavailable(_) | Full(_) | Unknown(_)))) => {
                tracing::warn!(%edge, %error, "failed to renew a lease; retrying");
                rest_ms = retry_ms(rest_ms, *ttl_ms);
            }
            // Released meanwhile.
            Err(_) if lock(state).stopped => return,
            Err(error) => {
                tracing::error!(%edge, %error, "lost a lease: values that only it kept may be reclaimed");
                lock(state).lost = Some(error);
                return bell.notify();
            }
        }
    }
}

fn third(ms: u64) -> u64 {
    (ms / 3).max(limits::RENEW_MS_MIN)
}

/// Retries sooner as the deadline comes closer, but never so often that a store that is down gets a flood of requests.
fn retry_ms(rest_ms: u64, ttl_ms: u64) -> u64 {
    third(rest_ms).max(limits::RETRY_MS.min(third(ttl_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_stays_away_is_not_asked_all_the_time() {
        for (ttl_ms, least) in [(60_000, 1_000), (3_000, 1_000), (600, 200), (30, 50), (0, 50)] {
            let rests = std::iter::successors(Some(third(ttl_ms)), |rest_ms| Some(retry_ms(*rest_ms, ttl_ms)));
            assert_eq!(rests.take(50).min(), Some(least), "{ttl_ms}");
        }
    }
}
