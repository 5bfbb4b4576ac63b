//! Ends the sessions of scopes, and other work, that steps of a run have left open, before the run ends or is undone: those of attempts
//! that were stopped, by a cancel or by the end of their process, and those of steps that a later plan does not contain
//! or enters with other inputs.

use super::tx_of;
use crate::{
    Error,
    events::EventKind,
    perform::Work,
    scope::OpenSession,
    task::{EndOpenWork, Step},
};
use futures_util::future::{Either, join_all, select};
use onceflow_core::{
    Batch, Key,
    model::{Effect, TaskSpec},
    protocol::ids::Generation,
};
use onceflow_store::{BoxFuture, records::commit_durably};

/// Sessions that are ended at once: each may start the commands of its cleanup.
const ENDS_AT_ONCE: usize = 16;

/// Ends all open sessions of the run. False if the worker must stop first, lacks the code of a session, or could not
/// end one: the worker that settles the run next goes on. A cleanup that fails does not keep the run from ending; it is
/// reported.
pub(in crate::perform) async fn end_open_sessions(work: &Work<'_>) -> Result<bool, Error> {
    let plan = &work.run.plan;
    let offered = work.shared().tasks();
    // Transactional steps open sessions, and some bodies other work. A body that is not known here may be such a one, and
    // an earlier plan may have had some.
    let may_open = |task: &TaskSpec| {
        task.effect == Effect::Transactional || offered.body_of(task).map_or(true, |body| body.opens_work())
    };
    if plan.keys.generation == Generation(0) && !plan.program.tasks.iter().any(may_open) {
        return Ok(true);
    }
    let mut open = OpenSession::all(&work.shared().kernel, plan.keys.run).await?;
    open.extend(OpenSession::all_work(&work.shared().kernel, plan.keys.run).await?);
    if open.is_empty() {
        return Ok(true);
    }
    work.shared().records.durable(work.position).await?;
    for open in open.chunks(ENDS_AT_ONCE) {
        let watch = work.heartbeat_after_run();
        let ends = join_all(open.iter().map(|(key, open)| end_one(work, key, open)));
        match select(Box::pin(ends), std::pin::pin!(watch.stopped())).await {
            Either::Left((ended, _)) => {
                for ended in ended {
                    if !ended? {
                        return Ok(false);
                    }
                }
            }
            Either::Right(_) => return Ok(false),
        }
    }
    Ok(true)
}

async fn end_one(work: &Work<'_>, key: &Key, open: &OpenSession) -> Result<bool, Error> {
    let shared = work.shared();
    let body = match shared.tasks().body_of(&open.task).cloned() {
        Ok(body) => body,
        Err(why) => {
            work.tell_held_up(&format!("the session that {} has open cannot be ended here: {why}", open.address)).await;
            return Ok(false);
        }
    };
    let step = Step { tx: Some(tx_of(work)), ..open.step(work.run.plan.keys.run, shared.resources()) };
    let of_engine = step.resource::<EndOpenWork>();
    let ends: BoxFuture<'_, _> = match (body.end_left_open(step.clone()), of_engine) {
        (Some(ends), _) => ends,
        (None, Some(end)) if body.opens_work() => (end.0)(step),
        (None, _) => Box::pin(std::future::ready(Ok(vec![]))),
    };
    let problems = match ends.await {
        Ok(problems) => problems,
        Err(failure) if failure.is_final => {
            let mut batch = Batch::new(shared.shard());
            batch.delete(key.clone());
            let _always_applied = commit_durably(&*shared.records, batch).await?;
            vec![failure.causes.join(": ")]
        }
        Err(failure) => {
            let why = failure.causes.join(": ");
            work.tell_held_up(&format!("the session that {} has open was not ended: {why}", open.address)).await;
            return Ok(false);
        }
    };
    for why in problems {
        tracing::warn!(address = open.address, why, "a cleanup failed; its run ends all the same");
        let what = EventKind::CleanupFailed { address: open.address.clone(), why };
        work.tell_in_order(shared.records.position(), what).await;
    }
    Ok(true)
}
