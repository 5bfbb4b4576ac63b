//! Records what must be durable before a body may run: the start of an at-most-once body, the registration of its
//! compensation, and, if it touches the world, every row it was decided on.

use super::super::Work;
use crate::{Error, data::Scratch, kernel::WorkCommit, seams, shared::lock};
use onceflow_core::{
    model::{Effect, TaskSpec, program::NodeOp},
    protocol::{
        rows::{Held, ReadyStep, RunState, Undo},
        step,
    },
};
use onceflow_store::{Position, records::Scan};

/// Permission to run a body. Its input files stay until this is dropped, which must not be before its outputs are
/// stored: it may give files that it was given.
pub(super) struct Began {
    pub(super) scratch: Scratch,
}

impl Work<'_> {
    /// Commits the records of the start, and waits until they are durable. `None` if the step is not ours any more.
    pub(super) async fn begin(
        &self,
        spec: &TaskSpec,
        ready_step: &mut ReadyStep,
        inputs: &[Held],
        scratch: Scratch,
    ) -> Result<Option<Began>, Error> {
        let mut position = self.position;
        let number = if seams::registers_undo(spec) { self.free_number().await? } else { None };
        if spec.effect == Effect::AtMostOnce {
            ready_step.started = Some(self.taken.claim.fence);
        }
        if number.is_some() || spec.effect == Effect::AtMostOnce {
            match self.write_start(spec, ready_step, inputs, number).await? {
                Some(written) => position = written,
                None => return Ok(None),
            }
        }
        self.until_durable(spec, position, false).await?;
        Ok(Some(Began { scratch }))
    }

    /// Waits until the rows that a task that touches the world was decided on are durable. However long that takes, the
    /// step stays ours. While enough other steps are ready to run it waits longer, so that one sync serves more of
    /// them.
    pub(super) async fn until_durable(&self, spec: &TaskSpec, position: Position, no_hurry: bool) -> Result<(), Error> {
        if !seams::waits_until_durable(spec) {
            return Ok(());
        }
        let _heartbeat = self.heartbeat(false);
        if no_hurry && self.worker.capacity.bounds_running() {
            self.worker.capacity.until_missed().await;
        }
        Ok(self.worker.shared.records.durable(position).await?)
    }

    async fn write_start(
        &self,
        spec: &TaskSpec,
        ready_step: &ReadyStep,
        inputs: &[Held],
        mut number: Option<u32>,
    ) -> Result<Option<Position>, Error> {
        let (shared, plan) = (&self.worker.shared, &self.run.plan);
        let task = plan.program.undo_of(spec);
        let address: std::sync::Arc<str> = self.address().await?.into();
        loop {
            let note = |state: RunState| {
                let mut draft = step::note(plan, state, &self.taken, ready_step);
                if let (Some(number), Some(task)) = (number, task) {
                    let undo = Undo {
                        step: self.taken.step,
                        address: address.clone(),
                        task,
                        inputs: inputs.to_vec(),
                        failed: 0,
                    };
                    step::register(plan, &mut draft, number, &undo);
                }
                draft
            };
            match shared.commit(&self.run, &self.taken, None, &[], note).await? {
                WorkCommit::Committed { position, .. } => return Ok(Some(position)),
                // The run may be frozen for a new plan: whoever has the step when it goes on begins it.
                WorkCommit::Lost => return self.pause_and_give_back().await.map(|()| None),
                // Another step took the number, or the reply was lost when this one did.
                WorkCommit::DecideAgain => match self.free_number().await? {
                    // The start mark must be this worker's, even if an earlier one registered the compensation.
                    None if spec.effect != Effect::AtMostOnce => return Ok(Some(shared.records.position())),
                    free => number = free,
                },
            }
        }
    }

    /// The number after the last registration: dependent steps register after those they depend on, so undoing by
    /// falling numbers undoes them first. `None` if an earlier attempt at this step has registered. One read answers
    /// both: a worker that had the step between then and our commit, and registered, took this number or a later one.
    async fn free_number(&self) -> Result<Option<u32>, Error> {
        let registered = self.registrations().await?;
        let is_registered = registered.iter().any(|(_, undo)| undo.step == self.taken.step);
        Ok((!is_registered).then(|| registered.last().map_or(0, |(number, _)| number + 1)))
    }

    /// The registrations, by rising numbers.
    pub(in crate::perform) async fn registrations(&self) -> Result<Vec<(u32, Undo)>, Error> {
        let (shared, keys) = (&self.worker.shared, &self.run.plan.keys);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let scan = Scan::of(keys.rows.clone(), onceflow_core::limits::SCAN_ROWS_MAX).prefix(b"u").after(after);
            let page = shared.records.scan(shared.shard(), scan).await?;
            for (name, row) in &page.rows {
                let number = name.as_bytes()[1..].try_into().ok().map(u32::from_be_bytes);
                let undo = onceflow_core::protocol::rows::read(row);
                found.push(number.zip(undo).ok_or_else(|| Error::damaged("a registration"))?);
            }
            after = page.rows.last().map(|(name, _)| name.clone());
            if !page.more {
                return Ok(found);
            }
        }
    }

    /// The directory for files of this attempt.
    pub(in crate::perform) fn scratch(&self) -> Scratch {
        let shared = &self.worker.shared;
        let directory = shared.options.scratch.join(format!("onceflow-{}", self.taken.claim.fence));
        Scratch::new(directory, shared.small.clone())
    }

    /// Checks that this worker offers all tasks of the step.
    pub(super) fn bodies(&self) -> Result<(), String> {
        match &self.taken.node(&self.run.plan).op {
            NodeOp::Task(task) => self.body(*task).map(drop),
            NodeOp::Fused(tasks) => tasks.iter().try_for_each(|fused| self.body(fused.task).map(drop)),
            _ => Ok(()),
        }
    }

    /// The body of a task.
    pub(in crate::perform) fn body(&self, task: u32) -> Result<std::sync::Arc<dyn crate::task::Body>, String> {
        let wanted = &self.run.plan.program.tasks[task as usize];
        let tasks = lock(&self.worker.shared.tasks);
        if let Some(body) = tasks.executor(&wanted.name) {
            return Ok(body.clone());
        }
        match tasks.version(&wanted.name, &wanted.version).or_else(|| tasks.get(&wanted.name)) {
            None => Err(format!("no worker here offers task `{}`; add the flow to the engine", wanted.name)),
            Some((spec, _)) if spec.version != wanted.version => Err(format!(
                "task `{}` is version {} here, and the run was planned for {}; start the run again to plan it anew",
                wanted.name, spec.version, wanted.version
            )),
            Some((_, body)) => Ok(body.clone()),
        }
    }
}
