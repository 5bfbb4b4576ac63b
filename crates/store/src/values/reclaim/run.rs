//! The reclaim loop: works while there is something to do, then sleeps until the next lease ends or it is woken. It
//! never spins: every wait has a reason to end.

use super::super::{Error, Values, limits};
use crate::{
    records::{self, Records},
    world::yield_now,
};
use futures_util::future::{Either, select};
use onceflow_core::Timestamp;
use std::pin::pin;

/// Reclaims until it is dropped: see [`Values::reclaim_forever`].
pub(super) async fn forever(values: &Values) -> Error {
    let news = &values.rows.news;
    loop {
        let seen = news.seen();
        let rest_ms = match values.reclaim(values.reclaim_budget()).await {
            Ok(done) if done.more => {
                yield_now().await;
                continue;
            }
            Ok(done) => rest_ms(&*values.rows.records, done.next_deadline).await,
            Err(error) if is_final(&error) => return error,
            Err(error) => {
                tracing::warn!(%error, "failed to reclaim values; retrying");
                values.world.sleep(limits::RETRY_MS).await;
                continue;
            }
        };
        match select(pin!(news.after(seen)), values.world.sleep(rest_ms)).await {
            Either::Left(_) | Either::Right(_) => {}
        }
    }
}

/// Reclaims until there is nothing to do now: see [`Values::reclaim_all`].
pub(super) async fn all(values: &Values) -> Result<(), Error> {
    while values.reclaim(values.reclaim_budget()).await?.more {
        yield_now().await;
    }
    Ok(())
}

async fn rest_ms(records: &dyn Records, next_deadline: Option<Timestamp>) -> u64 {
    let Some(deadline) = next_deadline else { return limits::RECLAIM_LOOK_MS };
    match records.now().await {
        Ok(now) => deadline.ms_since(now).min(limits::RECLAIM_LOOK_MS),
        Err(_) => limits::RETRY_MS,
    }
}

fn is_final(error: &Error) -> bool {
    matches!(error, Error::Damaged { .. } | Error::Records(records::Error::Damaged(_) | records::Error::Invalid(_)))
}
