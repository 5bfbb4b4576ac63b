//! Performs a claimed step. One file per kind of step; this one has their common parts.

mod closing;
mod container;
mod folding;
pub(crate) mod logs;
mod memo;
mod moving;
mod notes;
pub(crate) mod patience;
mod removing;
mod settling;
mod task;
mod undoing;
mod work;

pub(crate) use task::{decide_done, may_decide};
use undoing::Undoing;
pub(crate) use work::{CommitEvents, Work};

use crate::{
    Error,
    kernel::Job,
    seams,
    shared::Shared,
    worker::{Slot, Worker},
};
use onceflow_core::{
    Inbox,
    payload::Outcome,
    protocol::{
        ids::{END, LANE, SETTLE, StepId, TEARDOWN, UNDO},
        keys::Keys,
        rows::{self, ReadyStep, Received},
        step::{self, Taken},
    },
};
use onceflow_store::{records::Scan, values::ValueChange};
use patience::Trouble;
use std::sync::Arc;

/// Performs a step; answers the step that its commit claimed.
pub(crate) async fn perform(worker: &Worker, job: &Job, slot: &Slot) -> Result<Option<Job>, Error> {
    let shared = &*worker.shared;
    let Some((id, step)) = StepId::from_queue_name(job.claim.name.as_bytes()) else {
        return Err(Error::damaged(format!("a row in a queue is called {:?}", job.claim.name)));
    };
    let ready_step =
        step::ready_step(&job.claim.row).ok_or_else(|| Error::damaged(format!("the ready row of step {step:?}")))?;
    let run = match shared.runs.run(id, Some(ready_step.generation)).await? {
        Some(run) if run.plan.keys.generation == ready_step.generation => run,
        // Rare futures are boxed here and below: a slot is as large as its largest future, and moved when it starts.
        _ if step.node == TEARDOWN => return Box::pin(removing::remove_plan(shared, job, id, step, &ready_step)).await,
        _ => {
            let keys = Keys::new(id, ready_step.generation);
            return Box::pin(drop_stale(shared, job, keys, step, &ready_step)).await;
        }
    };
    let Some(frame) = shared.runs.frame(&run, step.frame).await? else {
        let what = format!("the frame of step {step:?} of run `{}`", run.key);
        return Box::pin(missing(shared, job, what)).await;
    };
    let inbox = arrived(shared, job).await?;
    let taken = Taken { step, claim: job.claim.clone(), ready_step, frame, inbox };
    let work = Work { worker, slot, run, taken, position: job.position };
    let ending = match step.node {
        SETTLE => Some(Box::pin(settling::settle(&work)).await),
        UNDO => Some(Box::pin(Undoing::new(&work).perform()).await),
        TEARDOWN => Some(Box::pin(removing::tear_down(&work)).await),
        _ => None,
    };
    match ending {
        Some(Err(error)) if !worker.is_stopping() => return Err(Box::pin(Trouble::new(&work, error).count()).await),
        Some(performed) => return performed,
        None => {}
    }
    if !work.run.state().phase.dispatches() {
        return Box::pin(work.stand_back()).await;
    }
    let performed = match step.node {
        LANE => Box::pin(container::open_chunk(&work)).await,
        END => closing::end(&work).await,
        _ => container::perform_node(&work).await,
    };
    match performed {
        Err(error) if error.is_damage() || !worker.is_stopping() => Box::pin(Trouble::new(&work, error).settle()).await,
        performed => performed,
    }
}

/// The deliveries in a step's inbox.
async fn arrived(shared: &Shared, job: &Job) -> Result<Vec<Received>, Error> {
    let mut rows = job.inputs.clone();
    if job.more {
        let inbox = Inbox::from_row(&job.claim.row).ok_or_else(|| Error::damaged("a row in a queue"))?;
        let after = rows.last().map(|(name, _)| name.clone());
        let scan = Scan::of(inbox.group, onceflow_core::limits::SCAN_ROWS_MAX).prefix(&inbox.prefix).after(after);
        rows.extend(shared.records.scan(shared.shard(), scan).await?.rows);
    }
    let read = |(_, row): &(_, onceflow_core::Row)| rows::read(row).ok_or_else(|| Error::damaged("an arrival"));
    seams::arrivals(rows).iter().map(read).collect()
}

/// A row that the step needs is missing. If the step is still ours, rows were lost; else another worker has it.
async fn missing(shared: &Shared, job: &Job, what: String) -> Result<Option<Job>, Error> {
    if shared.kernel.is_ours(&job.claim).await? {
        return Err(Error::damaged(format!("{what} is missing")));
    }
    Ok(None)
}

/// Drops a step of a generation that is not valid any more, and releases its deliveries.
async fn drop_stale(
    shared: &Shared,
    job: &Job,
    keys: Keys,
    step: StepId,
    ready_step: &ReadyStep,
) -> Result<Option<Job>, Error> {
    let mut batch = job.claim.drop_work(shared.shard());
    let clear = |received: &Received| {
        let stored = onceflow_core::protocol::draft::stored(&received.outcome)?;
        let edge = keys.edge(&keys.arrival(step, received.port), received.port);
        Some(ValueChange::clear(edge, stored.clone()))
    };
    let changes: Vec<_> = ready_step.inputs.iter().filter(|received| received.owned).filter_map(clear).collect();
    shared.values.add_changes(&mut batch, &changes).await?;
    let _refused_if_not_ours = shared.records.commit(batch).await?;
    Ok(None)
}

/// The first failure among inputs.
pub(crate) fn failure(inputs: &[rows::Held]) -> Option<&Arc<str>> {
    inputs.iter().find_map(|input| match &input.outcome {
        Outcome::Failed(why) => Some(why),
        Outcome::Value(_) | Outcome::None => None,
    })
}
