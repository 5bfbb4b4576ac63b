//! Moves a claimed step to another queue, where workers look that can perform it: that of its class, or that of a task
//! which this worker does not offer (`worker/unserved.rs`).

use super::Work;
use crate::{
    Error,
    worker::unserved::{Unserved, unserved_of},
};
use onceflow_core::{
    Batch, Group,
    model::TaskSpec,
    protocol::{keys, rows},
};

/// The queue of the step's class, if the step is in the internal queue and this worker does not claim its class,
/// or in the queue of a class that it had before the settings of the run changed.
pub(super) fn other_queue(work: &Work<'_>, spec: &TaskSpec) -> Option<Group> {
    let is_former = keys::class_of(&work.taken.claim.queue).is_some_and(|class| class != spec.class);
    let is_internal = work.taken.claim.queue == keys::internal_queue();
    let is_not_here = is_internal && !work.worker.capacity.takes(&spec.class);
    (is_former || is_not_here).then(|| keys::class_queue(&spec.class))
}

/// Leaves the step to workers that offer its task.
pub(super) async fn leave_to_offering(work: &Work<'_>, why: &str) -> Result<(), Error> {
    if !work.shared().options.is_shared() {
        tracing::warn!(%why, "a step waits for a worker that offers its task");
        return work.pause_and_give_back().await;
    }
    tracing::info!(%why, "a step is left to workers that offer its task");
    let unserved = unserved_of(&work.run, &work.taken).expect("only tasks lack code");
    move_to(work, keys::unserved_queue(&unserved.name()), Some(unserved)).await
}

/// Moves the step to another queue, unchanged. Does nothing if the step is not ours any more.
pub(super) async fn move_to(work: &Work<'_>, queue: Group, unserved: Option<Unserved>) -> Result<(), Error> {
    let (shared, taken) = (work.shared(), &work.taken);
    let Some(row) = shared.row(taken.claim.ready_key()).await? else { return Ok(()) };
    let state = work.run.state();
    let mut batch = Batch::new(shared.shard());
    // While a new plan is made, steps stay where they are: planning reads them.
    batch.require_equals(work.run.plan.keys.state(), state.to_row());
    taken.claim.move_to(&mut batch, &queue, row);
    if let Some(unserved) = unserved {
        batch.put(keys::unserved().key(unserved.name()), rows::write(&unserved));
    }
    work.worker.alive.release(taken.claim.fence);
    match shared.records.commit(batch).await?.is_applied() {
        true => Ok(()),
        false => stay(work).await,
    }
}

/// Gives back a step that could not be moved: the run has changed, or the step is not ours any more.
async fn stay(work: &Work<'_>) -> Result<(), Error> {
    work.shared().runs.see_state(&work.run).await?;
    work.pause_and_give_back().await
}
