//! Records what must be durable before a body may run: the start of an at-most-once body, the registration of its
//! compensation, and, if it touches the world, every row it was decided on.

use super::super::Work;
use crate::{Error, data::Scratch, kernel::WorkCommit, seams, shared::lock, task::Body};
use onceflow_core::{
    model::{Effect, TaskSpec, program::NodeOp},
    protocol::{
        rows::{Held, ReadyStep, State, Undo},
        step,
    },
};
use onceflow_store::{
    Position,
    records::{self, Scan},
};
use std::sync::Arc;

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
        let number = if seams::registers_undo(spec) { self.free_number().await? } else { None };
        if spec.effect == Effect::AtMostOnce {
            ready_step.started = Some(self.taken.claim.fence);
        }
        if number.is_some() || spec.effect == Effect::AtMostOnce {
            match self.write_start(spec, ready_step, inputs, number).await? {
                // The rows before it are waited for already.
                Some(written) => self.until_durable(spec, written, false).await?,
                None => return Ok(None),
            }
        }
        Ok(Some(Began { scratch }))
    }

    /// Waits until the rows that a task that touches the world was decided on are durable. However long that takes, the
    /// step stays ours. While enough other steps are ready to run it waits longer, so that one sync serves more of
    /// them.
    pub(super) async fn until_durable(&self, spec: &TaskSpec, position: Position, no_hurry: bool) -> Result<(), Error> {
        if !seams::waits_until_durable(spec) {
            return Ok(());
        }
        let waits = no_hurry && self.worker.capacity.bounds_running();
        let records = &*self.worker.shared.records;
        // Rows that are durable already need no heartbeat.
        if !waits && records::is_durable(records, position) {
            return Ok(());
        }
        let _heartbeat = self.heartbeat(false);
        if waits {
            self.worker.capacity.until_missed().await;
        }
        Ok(records.durable(position).await?)
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
        let address: Arc<str> = self.address().await?.into();
        loop {
            let note = |state: State| {
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
                WorkCommit::Lost => return Ok(None),
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
        Scratch::new(self.taken.claim.fence, self.worker.shared.small.clone())
    }

    /// The bodies of all tasks of the step, if this worker offers them.
    pub(super) fn bodies(&self) -> Result<Vec<Arc<dyn Body>>, String> {
        match &self.taken.node(&self.run.plan).op {
            NodeOp::Task(task) => Ok(vec![self.body(*task)?]),
            NodeOp::Fused(tasks) => tasks.iter().map(|fused| self.body(fused.task)).collect(),
            _ => Ok(vec![]),
        }
    }

    /// The body of a task.
    pub(in crate::perform) fn body(&self, task: u32) -> Result<Arc<dyn Body>, String> {
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
