//! Runs one activity: waits until its claim is durable, runs the body until it ends or must end, and commits the answer
//! as an event of its session. An activity that was cancelled before it began is answered without running.

use super::{
    body::{Activity, DurableBody},
    host::ScopeHost,
    keys::{EventPlace, FeedRow, Hop, LanePlace, LaneRow, SessionId},
    orders::answer,
    writer::Claimed,
};
use crate::{
    Error,
    kernel::{Decision, Job, Stop, WorkCommit},
};
use futures_util::{
    FutureExt,
    future::{Either, select},
};
use onceflow_core::{
    Batch, Row,
    protocol::rows::{read, write},
    scope::{Emitted, OpId, OrderId, ScopeEvent, is_order_cancelled},
};
use onceflow_store::BoxFuture;
use std::{panic::AssertUnwindSafe, sync::Arc};

/// The end of a body that ran.
pub(super) enum BodyEnd {
    Answered(ScopeEvent<Row>),
    /// The work belongs to another host, or goes back to the queue.
    Stopped(Stop),
}

impl ScopeHost {
    pub(super) async fn act(
        self: &Arc<Self>,
        job: &Job,
        (session, order): (SessionId, OrderId),
        (path, op): (&[Hop], OpId),
    ) -> Result<(), Error> {
        let watch = self.alive.watch(job.claim.fence, true, (session, order));
        let records = &self.kernel.records;
        let keys = [session.order(order), session.feed(order), session.lane(order)];
        let rows = records.get(self.kernel.shard, &keys).await?;
        let [Some(order_row), Some(feed), lane] = &rows[..] else {
            // Its session has gone with all its rows; only a store that was changed by hand has such work.
            return self.kernel.apply(job.claim.drop_work(self.kernel.shard)).await.map(drop);
        };
        let is_cancelled = must_end(order_row, lane.as_ref())?;
        let feed = read::<FeedRow>(feed).ok_or_else(|| Error::damaged("the input of an activity"))?.3;
        let dropped = ScopeEvent::Dropped { order, mishaps: Vec::new() };
        let scope = self.scope_at(&job.claim.queue, path);
        let end = match scope.as_ref().and_then(|scope| scope.bodies.get(op.at())) {
            _ if is_cancelled => BodyEnd::Answered(dropped),
            Some(DurableBody::Activity(body)) => {
                records.durable(job.position).await?;
                let activity = Activity { key: session.activity_key(order), feed };
                let started = std::panic::catch_unwind(AssertUnwindSafe(|| body(activity)));
                match started {
                    Ok(future) => self.run_body(future, &watch, (session, order)).await?,
                    Err(panic) => BodyEnd::Answered(answer(order, Err(panic))),
                }
            }
            _ => return Err(Error::damaged("the code of an activity")),
        };
        drop(watch);
        match end {
            BodyEnd::Answered(event) => self.answer(job, session, order, &event).await,
            BodyEnd::Stopped(Stop::Lost) => Ok(()),
            BodyEnd::Stopped(Stop::Cancelled) => self.answer(job, session, order, &dropped_event(order)).await,
            BodyEnd::Stopped(Stop::Interrupted) => self.give_back(job).await,
        }
    }

    /// Runs a body. When this returns the future is dropped.
    pub(super) async fn run_body(
        &self,
        future: BoxFuture<'static, Result<Emitted<Row>, String>>,
        watch: &crate::kernel::Heartbeat<'_, (SessionId, OrderId)>,
        (session, order): (SessionId, OrderId),
    ) -> Result<BodyEnd, Error> {
        let mut body = AssertUnwindSafe(future).catch_unwind();
        loop {
            let stopped = std::pin::pin!(async {
                match select(std::pin::pin!(watch.stopped()), self.world.sleep(self.poll_ms)).await {
                    Either::Left((stop, _)) => Some(stop),
                    Either::Right(_) => None,
                }
            });
            match select(body, stopped).await {
                Either::Left((outcome, _)) => return Ok(BodyEnd::Answered(answer(order, outcome))),
                Either::Right((Some(stop), _)) => return Ok(BodyEnd::Stopped(stop)),
                Either::Right((None, still)) => body = still,
            }
            // The writer of the session may be another process, which cannot ring here.
            let keys = [session.order(order), session.lane(order)];
            match self.kernel.records.get(self.kernel.shard, &keys).await {
                Ok(rows) => match &rows[..] {
                    [Some(row), lane] if !must_end(row, lane.as_ref())? => {}
                    _ => return Ok(BodyEnd::Stopped(Stop::Cancelled)),
                },
                // A body that works is not begun again for that: its lease tells if it lasts.
                Err(error) => {
                    tracing::warn!(%error, "failed to read whether an activity is cancelled; reading again in {} ms", self.poll_ms);
                }
            }
        }
    }

    async fn answer(
        &self,
        job: &Job,
        session: SessionId,
        order: OrderId,
        event: &ScopeEvent<Row>,
    ) -> Result<(), Error> {
        let mut batch = Batch::new(self.kernel.shard);
        job.claim.require(&mut batch);
        job.claim.leave(&mut batch);
        batch.delete(session.feed(order)).put(session.event(&EventPlace::Order(order, u64::MAX)), write(event));
        let decide = || Some(Decision::from(batch.clone()));
        match self.kernel.commit(&Claimed(&job.claim), None, &[], decide).await? {
            WorkCommit::Committed { .. } => self.tell(session),
            // Another host has the activity, and answers it.
            WorkCommit::Lost | WorkCommit::DecideAgain => {}
        }
        Ok(())
    }
}

fn dropped_event(order: OrderId) -> ScopeEvent<Row> {
    ScopeEvent::Dropped { order, mishaps: Vec::new() }
}

/// An order must end: its session has told it, or a later one took its place in its lane.
pub(super) fn must_end(order: &Row, lane: Option<&Row>) -> Result<bool, Error> {
    let damaged = || Error::damaged("an order of a scope");
    let is_cancelled = is_order_cancelled(order).ok_or_else(damaged)?;
    let place = lane.map(|row| read::<LaneRow>(row).ok_or_else(damaged)).transpose()?;
    Ok(is_cancelled || place.is_some_and(|(.., place)| matches!(place, LanePlace::Stops)))
}
