//! Operations that call a flow: a run for each message, whose steps any worker of the store may take. The run goes on when
//! the host of its session ends, so it is ended on purpose. An order passes through three states, each a commit:
//!
//! | rows of the order | state |
//! |---|---|
//! | ready row and input | its run begins, or is met: the start requires the input |
//! | ready row and answer | the answer stands; its run is cancelled if it has not ended, undone, and removed |
//! | event | the session has the answer, and nothing of the run is left |
//!
//! An order that was told to end gets the answer that it was dropped, before its run is looked for: no other host can begin
//! one after that.

use super::{
    activity::{BodyEnd, must_end},
    body::DurableBody,
    host::ScopeHost,
    keys::{EventPlace, FeedRow, Hop, SessionId},
    writer::Claimed,
};
use crate::{
    Engine, Error, RunStatus, Start, Summary,
    engine::WeakEngine,
    kernel::{Decision, Job, Stop, WorkCommit},
    task::Data,
};
use futures_util::future::{Either, select};
use onceflow_core::{
    Batch, Group, Key, Row,
    limits::RUN_KEY_BYTES_MAX,
    model::CheckedFlow,
    protocol::{
        ids::RunId,
        rows::{read, write},
    },
    scope::{Emitted, Feed, Mishap, OpId, OrderFailure, OrderId, ScopeEvent},
};
use onceflow_store::World;
use std::{pin::pin, sync::Arc};

/// The pause before something is tried again that the store refused.
const PAUSE_MS: u64 = 500;

/// The longest time until a run that waits for an operator or an event is looked at again.
const LOOK_MS: u64 = 1000;

/// Values of a flow's inputs or outputs, by name.
pub type FlowValues = Vec<(String, Data)>;

/// A flow that an operation calls.
pub struct FlowCall {
    /// The flow.
    pub flow: CheckedFlow,
    /// The classes of workers that take its steps: see [`Start::classes`].
    pub classes: Vec<(String, String)>,
    /// Makes the inputs of a run from the message.
    pub inputs: Arc<dyn Fn(&Row) -> Result<FlowValues, String> + Send + Sync>,
    /// Makes the message that the operation gives from the outputs of the run.
    pub output: Arc<dyn Fn(FlowValues) -> Result<Row, String> + Send + Sync>,
}

/// The engine that runs what the operations of a scope call.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) engine: WeakEngine,
    pub(crate) world: Arc<dyn World>,
    /// The run whose step has entered the scope.
    pub(crate) run: RunId,
}

/// The key of the run of a call: it begins with the key of the run that calls; the id has the session and the order.
pub(super) fn run_key(caller: &str, op: &str, id: &str) -> String {
    let room = RUN_KEY_BYTES_MAX - id.len() - 2;
    // Operations that a front end has added have signs in their names that names of users cannot have.
    let op = clipped(op.split(':').next().unwrap_or(op), room / 2);
    format!("{}/{op}/{id}", clipped(caller, room - op.len()))
}

/// The beginning of a text that takes at most so many bytes.
fn clipped(text: &str, bytes_max: usize) -> &str {
    let end = text.char_indices().map(|(at, letter)| at + letter.len_utf8()).take_while(|end| *end <= bytes_max).last();
    &text[..end.unwrap_or(0)]
}

/// A call of an order that a host has claimed.
pub(super) struct Called {
    session: SessionId,
    order: OrderId,
    /// The operation.
    op: String,
    flow: Arc<FlowCall>,
}

impl ScopeHost {
    /// The call that a claimed order is; `None` if it is another kind of work.
    pub(super) fn call_of(
        &self,
        queue: &Group,
        (session, order): (SessionId, OrderId),
        (path, op): (&[Hop], OpId),
    ) -> Option<Called> {
        let scope = self.scope_at(queue, path)?;
        match scope.bodies.get(op.at())? {
            DurableBody::Call(flow) => {
                let op = scope.scope.operations()[op.at()].name.clone();
                Some(Called { session, order, op, flow: flow.clone() })
            }
            _ => None,
        }
    }

    /// Performs a call.
    pub(super) async fn call(self: &Arc<Self>, job: &Job, called: Called) -> Result<(), Error> {
        let Called { session, order, .. } = called;
        let keys = [session.order(order), session.feed(order), session.call_answer(order), session.lane(order)];
        let rows = self.kernel.records.get(self.kernel.shard, &keys).await?;
        let damaged = || Error::damaged("the call of an order of a scope");
        let mut answer = match (&rows[0], &rows[1], &rows[2]) {
            (_, _, Some(answer)) => read(answer).ok_or_else(damaged)?,
            (Some(order_row), Some(feed), None) => {
                let is_cancelled = must_end(order_row, rows[3].as_ref())?;
                let feed = read::<FeedRow>(feed).ok_or_else(damaged)?.3;
                match self.run_call(job, &called, is_cancelled, feed).await? {
                    Some(answer) => answer,
                    None => return Ok(()),
                }
            }
            // Its session has gone with all its rows; only a store that was changed by hand has such work.
            _ => return self.kernel.apply(job.claim.drop_work(self.kernel.shard)).await.map(drop),
        };
        // What the answer rests on goes now.
        let records = &self.kernel.records;
        records.durable(records.position()).await?;
        let problems = {
            // A session that ends now changes nothing for a call that has its answer: no order has this name.
            let watch = self.alive.watch(job.claim.fence, true, (session.nested(order), order));
            match select(pin!(self.end_call(&called)), pin!(watch.stopped())).await {
                Either::Left((ended, _)) => ended?,
                Either::Right((Stop::Lost, _)) => return Ok(()),
                Either::Right((Stop::Interrupted | Stop::Cancelled, _)) => return self.give_back(job).await,
            }
        };
        add_mishaps(&mut answer, &called.op, problems);
        let mut batch = Batch::new(self.kernel.shard);
        job.claim.require(&mut batch);
        job.claim.leave(&mut batch);
        batch.delete(session.call_answer(order));
        batch.put(session.event(&EventPlace::Order(order, u64::MAX)), write(&answer));
        if self.commit_call(job, batch).await? {
            self.tell(session);
        }
        Ok(())
    }

    /// Runs the flow, and stores the answer in the place of the input. `None` if the order is not ours any more.
    async fn run_call(
        self: &Arc<Self>,
        job: &Job,
        called: &Called,
        is_cancelled: bool,
        feed: Feed<Row>,
    ) -> Result<Option<ScopeEvent<Row>>, Error> {
        let Called { session, order, .. } = *called;
        let dropped = || ScopeEvent::Dropped { order, mishaps: Vec::new() };
        let answer = match is_cancelled {
            true => dropped(),
            false => {
                self.kernel.records.durable(job.position).await?;
                let watch = self.alive.watch(job.claim.fence, true, (session, order));
                let key = self.key_of(called).await?;
                let runs = outputs_of(self.caller()?.clone(), called.flow.clone(), key, session.feed(order), feed);
                match self.run_body(Box::pin(runs), &watch, (session, order)).await? {
                    BodyEnd::Answered(event) => event,
                    BodyEnd::Stopped(Stop::Cancelled) => dropped(),
                    BodyEnd::Stopped(Stop::Lost) => return Ok(None),
                    BodyEnd::Stopped(Stop::Interrupted) => return self.give_back(job).await.map(|()| None),
                }
            }
        };
        let mut batch = Batch::new(self.kernel.shard);
        job.claim.require(&mut batch);
        batch.delete(session.feed(order)).put(session.call_answer(order), write(&answer));
        Ok(self.commit_call(job, batch).await?.then_some(answer))
    }

    /// Commits a state of a call; false if another host has it.
    async fn commit_call(&self, job: &Job, batch: Batch) -> Result<bool, Error> {
        let decide = || Some(Decision::from(batch.clone()));
        let committed = self.kernel.commit(&Claimed(&job.claim), None, &[], decide).await?;
        Ok(matches!(committed, WorkCommit::Committed { .. }))
    }

    fn caller(&self) -> Result<&Caller, Error> {
        let outside = || Error::Inputs(String::from("a scope that calls flows is entered by a step of a run"));
        self.caller.as_ref().ok_or_else(outside)
    }

    async fn key_of(&self, called: &Called) -> Result<String, Error> {
        let caller = self.caller()?;
        let run = caller.engine()?.shared.runs.read_run(caller.run).await?;
        // The run that has the session open is there as long as the session.
        let run = run.ok_or_else(|| Error::damaged("a session without its run"))?;
        Ok(run_key(&run.header.key, &called.op, &called.session.activity_key(called.order)))
    }

    /// Ends the run of a call, whatever its outcome, and removes it. Answers what could not be undone: that is left to an
    /// operator.
    async fn end_call(&self, called: &Called) -> Result<Vec<String>, Error> {
        let (caller, key) = (self.caller()?, self.key_of(called).await?);
        loop {
            match end_run(&caller.engine()?, &key).await {
                Ok(Some(problems)) => return Ok(problems),
                Ok(None) => {}
                Err(Error::Closed) => std::future::pending().await,
                // It changed, or an operator attends it.
                Err(error @ Error::Refused { .. }) => {
                    tracing::debug!(%error, key, "failed to remove the run of a call; retrying in {PAUSE_MS} ms");
                    caller.world.sleep(PAUSE_MS).await;
                }
                Err(error) if may_pass(&error) => {
                    tracing::warn!(%error, key, "failed to end the run of a call; retrying in {PAUSE_MS} ms");
                    caller.world.sleep(PAUSE_MS).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Caller {
    fn engine(&self) -> Result<Engine, Error> {
        self.engine.upgrade().ok_or(Error::Closed)
    }
}

/// Runs the flow, or meets the run, until it has ended, and makes the message of its outputs.
async fn outputs_of(
    caller: Caller,
    call: Arc<FlowCall>,
    key: String,
    input: Key,
    feed: Feed<Row>,
) -> Result<Emitted<Row>, String> {
    let Feed::One(message) = feed else { return Err(String::from("a call takes one message")) };
    let mut start = Start::new(&key, call.flow.clone());
    start.classes.clone_from(&call.classes);
    start.inputs = (call.inputs)(&message)?;
    start.while_there = vec![input];
    loop {
        let ran = match caller.engine() {
            Ok(engine) => run_to_its_end(&engine, &start).await,
            Err(error) => Err(error),
        };
        match ran {
            Ok(Ok(outputs)) => return Ok(Emitted::One(0, (call.output)(outputs)?)),
            Ok(Err(summary)) => return Err(format!("run `{key}`: {summary}")),
            // The process leaves, or another host has answered: this one is told so.
            Err(Error::Closed | Error::Unwanted { .. }) => std::future::pending().await,
            Err(error) if may_pass(&error) => {
                tracing::warn!(%error, key, "failed to call a flow; retrying in {PAUSE_MS} ms");
                caller.world.sleep(PAUSE_MS).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Waits for the end of a run; `Err` inside is a run without outputs.
async fn run_to_its_end(engine: &Engine, start: &Start) -> Result<Result<FlowValues, Box<Summary>>, Error> {
    let handle = engine.start(start.clone()).await?;
    let summary = loop {
        let summary = handle.wait().await?;
        if summary.status != RunStatus::Waiting {
            break summary;
        }
        handle.until_changed(LOOK_MS).await?;
    };
    if summary.status != RunStatus::Done {
        return Ok(Err(Box::new(summary)));
    }
    let mut outputs = Vec::new();
    for (name, _) in &summary.outputs {
        outputs.push((name.clone(), handle.output(name).await?));
    }
    Ok(Ok(outputs))
}

/// Cancels a run that has not ended, waits until it is undone, and removes it. `None` if it must be looked at again.
async fn end_run(engine: &Engine, key: &str) -> Result<Option<Vec<String>>, Error> {
    let handle = match engine.find(key).await {
        Err(Error::NoRun(_)) => return Ok(Some(vec![])),
        found => found?,
    };
    let summary = match handle.summary().await {
        Err(Error::NoRun(_)) => return Ok(Some(vec![])),
        summary => summary?,
    };
    if summary.status.has_ended() {
        return engine.forget(&summary).await.map(|_| Some(vec![]));
    }
    if summary.status == RunStatus::NotUndone {
        return Ok(Some(vec![format!("run `{key}`: {summary}")]));
    }
    match handle.cancel().await {
        Ok(()) | Err(Error::Ended { .. }) => {}
        Err(error) => return Err(error),
    }
    handle.wait().await.map(|_| None)
}

/// The store did not answer, so the same may succeed later.
fn may_pass(error: &Error) -> bool {
    use onceflow_store::Error as Store;
    matches!(error, Error::Busy { .. } | Error::Store(Store::Unavailable(_) | Store::Unknown(_) | Store::Full(_)))
}

/// Adds the problems of the end of a run to the answer of its call.
fn add_mishaps(answer: &mut ScopeEvent<Row>, op: &str, problems: Vec<String>) {
    let (ScopeEvent::Ended { mishaps, .. } | ScopeEvent::Failed { mishaps, .. } | ScopeEvent::Dropped { mishaps, .. }) =
        answer
    else {
        return;
    };
    let mishap = |why| Mishap::LateFailure { at: op.to_owned(), why: OrderFailure::Error(why) };
    mishaps.extend(problems.into_iter().map(mishap));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_call_is_its_own_and_no_longer_than_a_key_can_be() {
        let session = SessionId::of_key("s", "");
        assert_eq!(run_key("order-7", "reserve:fast", "s-3"), "order-7/reserve/s-3");
        let (long, id) = ("ä".repeat(300), format!("{session:?}-{}", u32::MAX));
        let key = run_key(&long, &long, &id);
        assert!(key.len() <= RUN_KEY_BYTES_MAX && key.ends_with(&id), "{key}");
    }
}
