//! The reclaim loop: works while there is something to do, then sleeps until the next lease ends or it is woken. It
//! never spins: every wait has a reason to end.

use super::super::{Error, Values, limits};
use crate::{records, world::yield_now};
use futures_util::future::{Either, select};
use onceflow_core::Timestamp;
use std::{pin::pin, sync::Arc};

impl Values {
    /// Reclaims until it is dropped. Run one per process and shard.
    ///
    /// Garbage made through the same [`Values`] wakes it at once; garbage of other processes it finds within
    /// [`RECLAIM_LOOK_MS`](limits::RECLAIM_LOOK_MS).
    ///
    /// Returns only on an error that repeating cannot fix: the store is damaged, or a batch was wrong.
    pub async fn reclaim_forever(self: Arc<Self>) -> Error {
        loop {
            let seen = self.news.seen();
            let rest_ms = match self.reclaim(self.reclaim_budget()).await {
                Ok(done) if done.more => {
                    yield_now().await;
                    continue;
                }
                Ok(done) => self.rest_ms(done.next_deadline).await,
                Err(error) if is_final(&error) => return error,
                Err(error) => {
                    tracing::warn!(%error, "could not reclaim; trying again");
                    self.world.sleep(limits::RETRY_MS).await;
                    continue;
                }
            };
            match select(pin!(self.news.after(seen)), self.world.sleep(rest_ms)).await {
                Either::Left(_) | Either::Right(_) => {}
            }
        }
    }

    /// Reclaims until there is nothing to do now. Yields in between, so that it can be stopped.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn reclaim_all(&self) -> Result<(), Error> {
        while self.reclaim(self.reclaim_budget()).await?.more {
            yield_now().await;
        }
        Ok(())
    }

    async fn rest_ms(&self, next_deadline: Option<Timestamp>) -> u64 {
        let Some(deadline) = next_deadline else { return limits::RECLAIM_LOOK_MS };
        match self.records.now().await {
            Ok(now) => deadline.ms_since(now).min(limits::RECLAIM_LOOK_MS),
            Err(_) => limits::RETRY_MS,
        }
    }
}

fn is_final(error: &Error) -> bool {
    matches!(error, Error::Damaged { .. } | Error::Records(records::Error::Damaged(_) | records::Error::Invalid(_)))
}
