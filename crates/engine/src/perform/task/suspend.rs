//! Suspended attempts: the body has left something outside that ends the attempt, an event or a job elsewhere. The step
//! leaves its queue in one commit, and comes back in one when it is woken.

use super::super::Work;
use crate::{
    Error,
    events::EventKind,
    kernel::{Job, WorkCommit},
    shared::lock,
    task::Suspension,
    worker::{Slot, Worker},
};
use onceflow_core::{
    limits,
    model::program::NodeOp,
    protocol::{
        draft::InstalledProgram,
        rows::{ReadyStep, RunState, Why},
        step,
    },
};

impl Work<'_> {
    /// Suspends the step with the handle of its attempt.
    pub(super) async fn suspend(
        &self,
        slot: &Slot,
        ready_step: &ReadyStep,
        suspension: Suspension,
    ) -> Result<Option<Job>, Error> {
        let Suspension { handle, timeout_ms } = suspension;
        if handle.len() > limits::HANDLE_BYTES_MAX {
            let why = format!("its handle has {} bytes, and may have {}", handle.len(), limits::HANDLE_BYTES_MAX);
            return self.fail(slot, ready_step.failed + 1, vec![why]).await;
        }
        let shared = &self.worker.shared;
        let wakes = match timeout_ms {
            Some(ms) => Some(shared.records.now().await?.plus_ms(ms)),
            None => None,
        };
        let address = self.address().await?;
        let why = Why::Suspended { address: address.as_str().into(), handle, wakes };
        let suspend = |state: RunState| step::suspend(&self.run.plan, state, &self.taken, ready_step, why.clone());
        let committed = self.commit_outcome(slot, &[], Some(EventKind::WillWait { address }), suspend).await?;
        if wakes.is_some() && matches!(committed, WorkCommit::Committed { .. }) {
            shared.signals.due.notify_one();
        }
        Ok(committed.next())
    }
}

impl Worker {
    /// Cancels, by their handles, the attempts of a generation that are suspended, before its rows are removed. A task that
    /// is not offered here cannot be asked: its handle is logged, and given up.
    pub(in crate::perform) async fn cancel_suspended(&self, plan: &InstalledProgram) -> Result<(), Error> {
        let is_suspended = |why: &Why| matches!(why, Why::Suspended { .. });
        for (step, _, parked) in self.shared.parked_for(&plan.keys, is_suspended, usize::MAX).await? {
            let Why::Suspended { address, handle, .. } = &parked.why else { continue };
            let node = &plan.program.blocks[parked.ready_step.block as usize].nodes[step.node as usize];
            let NodeOp::Task(task) = &node.op else { continue };
            let spec = &plan.program.tasks[*task as usize];
            let tasks = lock(&self.shared.tasks).clone();
            let offered = || tasks.version(&spec.name, &spec.version).map(|(_, body)| body);
            let Some(body) = tasks.executor(&spec.name).or_else(offered) else {
                tracing::warn!(%address, handle, "a suspended attempt is given up: its task is not offered here");
                continue;
            };
            if let Err(failure) = body.cancel(handle).await {
                tracing::warn!(%address, handle, causes = ?failure.causes, "failed to cancel a suspended attempt");
            }
        }
        Ok(())
    }
}
