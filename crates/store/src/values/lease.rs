//! Leases: edges that end by themselves. Time is the store's. That a lease ends is an event, the sweep's batch, at or
//! after the deadline; a renewal before that event wins, and after it the lease is lost, never quietly taken again.

use super::{Error, Tried, Values, id::EdgeName, limits, stored::Edge};
use crate::{
    records::{self, Position},
    sync::{Mutex, lock},
    wake::Bell,
};
use futures_util::future::{Either, select};
use onceflow_core::{Batch, Row, Timestamp};
use std::{pin::pin, sync::Arc};

impl Values {
    /// Moves the deadline of a lease to `ttl_ms` from now; never to an earlier time. Answers the deadline.
    ///
    /// # Errors
    /// [`LeaseLost`](Error::LeaseLost) if it has ended, was cleared, or is no lease.
    pub async fn renew(&self, edge: &EdgeName, ttl_ms: u64) -> Result<Timestamp, Error> {
        let deadline = self.records.now().await?.plus_ms(ttl_ms);
        for _ in 0..limits::TRIES_MAX {
            let lost = || Error::LeaseLost { edge: edge.clone() };
            let (seen, current) = self.edge_row(edge).await?.ok_or_else(lost)?;
            let old = current.deadline.ok_or_else(lost)?;
            if old >= deadline {
                return Ok(old);
            }
            let next = Edge { deadline: Some(deadline), ..current };
            let mut batch = Batch::new(self.shard);
            batch.require_equals(self.keys.edge(edge), seen).put(self.keys.edge(edge), next.to_row());
            batch.delete(self.keys.due(old, edge)).put(self.keys.due(deadline, edge), Row::default());
            if let Tried::Applied(_) = self.try_commit(batch).await? {
                return Ok(deadline);
            }
        }
        Err(Error::Contended(limits::TRIES_MAX))
    }
}

/// Renews a lease at a third of its life, for as long as it is kept. Dropping the keeper lets the lease run out.
///
/// The loss of a lease is told once and for all: by [`Keeper::check`], by [`Keeper::lost`], and in the log.
pub struct Keeper {
    values: Arc<Values>,
    edge: EdgeName,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    bell: Bell,
}

#[derive(Default)]
struct State {
    lost: Option<Error>,
    stopped: bool,
}

impl Keeper {
    /// Keeps a lease that is set already.
    pub fn start(values: Arc<Values>, edge: EdgeName, ttl_ms: u64) -> Self {
        let shared = Arc::new(Shared::default());
        let task = keep(values.clone(), edge.clone(), ttl_ms, shared.clone());
        values.world.spawn("lease keeper", Box::pin(task));
        Keeper { values, edge, shared }
    }

    /// The lease's edge.
    pub fn edge(&self) -> &EdgeName {
        &self.edge
    }

    /// Whether the lease is still held, as far as is known.
    ///
    /// # Errors
    /// [`LeaseLost`](Error::LeaseLost): whatever it protected is no longer yours.
    pub fn check(&self) -> Result<(), Error> {
        lock(&self.shared.state).lost.clone().map_or(Ok(()), Err)
    }

    /// Ends when the lease is lost.
    pub async fn lost(&self) -> Error {
        self.shared.bell.until(|| lock(&self.shared.state).lost.clone()).await
    }

    /// Clears the lease.
    pub async fn release(self) -> Result<Position, Error> {
        self.values.update(super::Update::new().clear(&self.edge)).await
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        lock(&self.shared.state).stopped = true;
        self.shared.bell.ring();
    }
}

async fn keep(values: Arc<Values>, edge: EdgeName, ttl_ms: u64, shared: Arc<Shared>) {
    let mut rest_ms = third(ttl_ms);
    loop {
        let stopped = pin!(shared.bell.until(|| lock(&shared.state).stopped.then_some(())));
        if let Either::Left(_) = select(stopped, values.world.sleep(rest_ms)).await {
            return;
        }
        match values.renew(&edge, ttl_ms).await {
            Ok(_) => rest_ms = third(ttl_ms),
            Err(Error::Records(error @ (records::Error::Unavailable(_) | records::Error::Full(_)))) => {
                tracing::warn!(%edge, %error, "a lease could not be renewed; trying again");
                rest_ms = third(rest_ms);
            }
            Err(error) => {
                tracing::error!(%edge, %error, "a lease is lost");
                lock(&shared.state).lost = Some(error);
                return shared.bell.ring();
            }
        }
    }
}

fn third(ms: u64) -> u64 {
    (ms / 3).max(1)
}
