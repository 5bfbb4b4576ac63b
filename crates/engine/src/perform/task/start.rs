//! Records what must be durable before a body may run: the start of an at-most-once body, the registration of its
//! compensation, and, if it touches the world, every row it was decided on.

use crate::{Error, data::Scratch, kernel::WorkCommit, perform::Work, seams};
use onceflow_core::{
    model::{Effect, TaskSpec},
    protocol::{
        rows::{Held, ReadyStep, RunState, Undo},
        step,
    },
};
use onceflow_store::Position;

/// Permission to run a body. Its input files stay until this is dropped, which must not be before its outputs are
/// stored: it may give files that it was given.
pub(super) struct Began {
    pub(super) scratch: Scratch,
}

/// The records that are written before a body starts.
pub(super) struct StartRecord<'a> {
    pub(super) work: &'a Work<'a>,
    pub(super) spec: &'a TaskSpec,
    pub(super) inputs: &'a [Held],
}

impl StartRecord<'_> {
    /// Commits the records of the start, and waits until they are durable. `None` if the step is not ours any more.
    pub(super) async fn begin(&self, ready_step: &mut ReadyStep, scratch: Scratch) -> Result<Option<Began>, Error> {
        let number = if seams::registers_undo(self.spec) { self.free_number().await? } else { None };
        if self.spec.effect == Effect::AtMostOnce {
            ready_step.started = Some(self.work.taken.claim.fence);
        }
        if number.is_some() || self.spec.effect == Effect::AtMostOnce {
            match self.write_start(ready_step, number).await? {
                // The rows before it are waited for already.
                Some(written) => self.until_durable(written, false).await?,
                None => return Ok(None),
            }
        }
        Ok(Some(Began { scratch }))
    }

    /// Waits until the rows that a task that touches the world was decided on are durable. However long that takes, the
    /// step stays ours. While enough other steps are ready to run it waits longer, so that one sync serves more of
    /// them.
    pub(super) async fn until_durable(&self, position: Position, no_hurry: bool) -> Result<(), Error> {
        if !seams::waits_until_durable(self.spec) {
            return Ok(());
        }
        if no_hurry && self.work.worker.capacity.bounds_running() {
            self.work.worker.capacity.until_missed().await;
        }
        Ok(self.work.slot.parking.until_durable(&*self.work.shared().records, position).await?)
    }

    async fn write_start(&self, ready_step: &ReadyStep, mut number: Option<u32>) -> Result<Option<Position>, Error> {
        let (shared, plan) = (self.work.shared(), &self.work.run.plan);
        let task = plan.program.undo_of(self.spec);
        let address: std::sync::Arc<str> = self.work.address().await?.into();
        loop {
            let note = |state: RunState| {
                let mut draft = step::note(plan, state, &self.work.taken, ready_step);
                if let (Some(number), Some(task)) = (number, task) {
                    let undo = Undo {
                        step: self.work.taken.step,
                        address: address.clone(),
                        task,
                        inputs: self.inputs.to_vec(),
                        failed: 0,
                    };
                    step::register(plan, &mut draft, number, &undo);
                }
                draft
            };
            match shared.commit(&self.work.run, &self.work.taken, None, &[], note).await? {
                WorkCommit::Committed { position, .. } => return Ok(Some(position)),
                // The run may be frozen for a new plan: the worker that has the step when it goes on begins it.
                WorkCommit::Lost => return self.work.pause_and_give_back().await.map(|()| None),
                // Another step took the number, or the reply was lost when this one did.
                WorkCommit::DecideAgain => match self.free_number().await? {
                    // The start mark must be this worker's, even if an earlier one registered the compensation.
                    None if self.spec.effect != Effect::AtMostOnce => return Ok(Some(shared.records.position())),
                    free => number = free,
                },
            }
        }
    }

    /// The number after the last registration: dependent steps register after those they depend on, so undoing by
    /// falling numbers undoes them first. `None` if an earlier attempt at this step has registered. One read answers
    /// both: a worker that had the step between then and our commit, and registered, took this number or a later one.
    async fn free_number(&self) -> Result<Option<u32>, Error> {
        let registered = self.work.rows().registrations().await?;
        let is_registered = registered.iter().any(|registration| registration.undo.step == self.work.taken.step);
        Ok((!is_registered).then(|| registered.last().map_or(0, |last| last.number + 1)))
    }
}
