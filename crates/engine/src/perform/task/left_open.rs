//! Ends what a body has left open, before a step of a cancelled run is given up: attempts that were stopped, by the cancel
//! or by the end of their process, may have opened sessions of scopes that must be cleaned.

use super::{body, tx_of};
use crate::{Error, perform::Work, task::Step};
use futures_util::future::{Either, select};
use onceflow_core::model::program::NodeOp;

/// Ends what attempts at the step have left open. False if the worker must stop first: the worker that claims the step
/// next goes on. A failure does not keep the run from ending; it is logged.
pub(in crate::perform) async fn end_left_open(work: &Work<'_>) -> Result<bool, Error> {
    let plan = &work.run.plan;
    let block = &plan.program.blocks[work.taken.ready_step.block as usize];
    let Some(node) = block.nodes.get(work.taken.step.node as usize) else { return Ok(true) };
    let NodeOp::Task(task) = node.op else { return Ok(true) };
    // A worker that lacks the task has claimed it by an older setting; no attempt has run there.
    let Ok(body) = body::body_of(work, task) else { return Ok(true) };
    let Some(inputs) = work.taken.inputs(plan, &node.inputs) else { return Ok(true) };
    let at = body::at(work, &inputs).await?;
    let step = Step { tx: Some(tx_of(work)), ..Step::new(at, task, work.taken.ready_step.failed + 1) };
    let Some(ends) = body.end_left_open(step) else { return Ok(true) };
    let watch = work.heartbeat_after_run();
    match select(ends, std::pin::pin!(watch.stopped())).await {
        Either::Left((Ok(()), _)) => Ok(true),
        Either::Left((Err(failure), _)) => {
            let address = work.address().await?;
            tracing::error!(address, causes = ?failure.causes, "a step of a cancelled run was not cleaned");
            Ok(true)
        }
        Either::Right(_) => Ok(false),
    }
}
