//! The queues in which steps stand, ready or claimed: that of each class, that of each task which the workers of its class
//! do not offer, and the internal one, which every worker looks at. Read row by row, so an answer is no snapshot.

use crate::{Backlog, Error, WorkerStep, kernel::Kernel, runs::Runs, worker::unserved::Unserved};
use onceflow_core::{
    Batch, Group, Key, Name, Row, Timestamp,
    limits::SCAN_ROWS_MAX,
    protocol::{
        claim,
        draft::InstalledProgram,
        ids::{Generation, RunId, StepId},
        keys,
        rows::{self, Head, ReadyStep},
        step,
    },
};
use onceflow_store::records::Scan;
use std::collections::BTreeSet;

/// Steps of one class that are counted.
const COUNTED_MAX: usize = 100_000;

/// The queues of a store.
pub(crate) struct Queues<'a> {
    kernel: &'a Kernel,
    runs: &'a Runs,
}

/// The reason why steps are not performed any more.
#[derive(Clone)]
pub(crate) enum Stopped {
    /// Their generation is not valid any more.
    Stale,
    /// Their run has stopped, while its state is so.
    While(Key, Row),
}

impl<'a> Queues<'a> {
    pub(crate) fn new(kernel: &'a Kernel, runs: &'a Runs) -> Self {
        Queues { kernel, runs }
    }

    /// The unserved tasks, each with its row as it was read.
    pub(crate) async fn unserved(&self) -> Result<Vec<(Name, Row, Unserved)>, Error> {
        let page = self.kernel.records.scan(self.kernel.shard, Scan::of(keys::unserved(), SCAN_ROWS_MAX)).await?;
        let read = |(name, row): (Name, Row)| {
            let unserved = rows::read::<Unserved>(&row).ok_or_else(|| Error::damaged("the row of an unserved task"))?;
            Ok((name, row, unserved))
        };
        page.rows.into_iter().map(read).collect()
    }

    /// The queues of unserved tasks.
    pub(crate) async fn unserved_queues(&self) -> Result<Vec<Group>, Error> {
        Ok(self.unserved().await?.iter().map(|(name, ..)| keys::unserved_queue(name)).collect())
    }

    /// Moves unclaimed steps of a stopped run to the internal queue, so that any worker can park them. Answers how
    /// many.
    pub(crate) async fn free_for_all(
        &self,
        queue: &Group,
        steps: Vec<(Name, Row)>,
        stopped: &Stopped,
    ) -> Result<usize, Error> {
        let mut moved = 0;
        for (name, row) in steps {
            let mut batch = Batch::new(self.kernel.shard);
            if let Stopped::While(state, seen) = stopped {
                batch.require_equals(state.clone(), seen.clone());
            }
            claim::move_free(&mut batch, &queue.key(&name), row, &keys::internal_queue());
            moved += usize::from(self.kernel.records.commit(batch).await?.is_applied());
        }
        Ok(moved)
    }

    /// The reason why the steps of a generation are only parked, dropped or undone now; `None` if they are to be
    /// performed.
    pub(crate) async fn stopped(&self, id: RunId, generation: Generation) -> Result<Option<Stopped>, Error> {
        let Some(run) = self.runs.read_run(id).await? else { return Ok(Some(Stopped::Stale)) };
        let state = run.state();
        Ok(match state.generation == generation {
            false => Some(Stopped::Stale),
            true if state.phase.is_undoing() || state.phase.is_open() && !state.phase.dispatches() => {
                Some(Stopped::While(run.plan.keys.state(), state.to_row()))
            }
            true => None,
        })
    }

    /// The steps of a generation that stand in queues, claimed or not.
    pub(crate) async fn ready_steps(&self, plan: &InstalledProgram) -> Result<Vec<(Key, StepId, ReadyStep)>, Error> {
        let keys = &plan.keys;
        let classes = plan.classes();
        let queues = classes.iter().map(|class| keys::class_queue(class)).chain([keys::internal_queue()]);
        let mut found = Vec::new();
        for queue in queues.chain(self.unserved_queues().await?) {
            for (name, row) in self.kernel.all_rows(queue.clone(), &keys.run.0).await? {
                let step = StepId::from_queue_name(name.as_bytes()).map(|(_, step)| step);
                let ready_step = step::ready_step(&row);
                let (step, ready_step) = step.zip(ready_step).ok_or_else(|| Error::damaged("a row in a queue"))?;
                if ready_step.generation == keys.generation {
                    found.push((queue.key(name), step, ready_step));
                }
            }
        }
        Ok(found)
    }

    /// The queues that steps of a program may stand in, but for the internal one; each with its class, and the tasks it
    /// is for.
    pub(crate) async fn of_program(
        &self,
        plan: &InstalledProgram,
    ) -> Result<Vec<(Group, String, Vec<(String, String)>)>, Error> {
        let classes = plan.classes();
        let unserved = self.unserved().await?;
        let unserved = unserved.into_iter().map(|(name, _, it)| (keys::unserved_queue(&name), it.class, it.tasks));
        Ok(classes.into_iter().map(|class| (keys::class_queue(&class), class, vec![])).chain(unserved).collect())
    }

    /// The steps of a run that stand in a queue and are not taken.
    pub(crate) async fn free_steps(&self, queue: &Group, run: RunId) -> Result<Vec<(Name, Row)>, Error> {
        let steps = self.kernel.all_rows(queue.clone(), &run.0).await?;
        if steps.is_empty() {
            return Ok(steps);
        }
        let taken: BTreeSet<_> =
            self.kernel.all_rows(queue.claims(), &run.0).await?.into_iter().map(|(name, _)| name).collect();
        Ok(steps.into_iter().filter(|(name, _)| !taken.contains(name)).collect())
    }

    /// Frees the steps of a run in a queue whose claims are past their deadline: no worker looks at that queue.
    pub(crate) async fn free_overdue(&self, queue: &Group, run: RunId) -> Result<(), Error> {
        let claims = self.kernel.all_rows(queue.claims(), &run.0).await?;
        if claims.is_empty() {
            return Ok(());
        }
        let now = self.kernel.records.now().await?;
        for (name, fence) in claims {
            let ready = queue.key(&name);
            let Some(deadline) = self.kernel.row(claim::deadline_key(&ready)).await? else { continue };
            if claim::is_overdue(&deadline, now) {
                self.kernel.apply(claim::take_over(self.kernel.shard, &ready, fence, deadline)).await?;
            }
        }
        Ok(())
    }

    /// The run and the address of a step in a queue.
    pub(crate) async fn step_at(&self, queue: &Group, name: &Name) -> Result<Option<WorkerStep>, Error> {
        let Some(row) = self.kernel.row(queue.key(name)).await? else { return Ok(None) };
        let ready_step = step::ready_step(&row);
        let Some(((id, step), ready_step)) = StepId::from_queue_name(name.as_bytes()).zip(ready_step) else {
            return Ok(None);
        };
        let Some(run) = self.runs.run(id, Some(ready_step.generation)).await? else { return Ok(None) };
        let address = match self.runs.place(&run, step.frame, step.index).await {
            Ok(place) if run.plan.keys.generation == ready_step.generation => {
                let node = run.plan.program.blocks[ready_step.block as usize].nodes.get(step.node as usize);
                node.map(|node| place.address(&node.path)).unwrap_or_default()
            }
            _ => String::new(),
        };
        Ok(Some(WorkerStep { run: run.key.to_string(), address }))
    }

    /// Counts the steps in a queue.
    pub(crate) async fn count(&self, queue: &Group) -> Result<Backlog, Error> {
        let claims: BTreeSet<_> =
            self.kernel.all_rows(queue.claims(), b"").await?.into_iter().map(|(name, _)| name).collect();
        let (mut counted, mut runs, mut after) = (Backlog::default(), BTreeSet::new(), None);
        loop {
            let page = self
                .kernel
                .records
                .scan(self.kernel.shard, Scan::of(queue.clone(), SCAN_ROWS_MAX).after(after))
                .await?;
            for (name, _) in &page.rows {
                if claims.contains(name) {
                    counted.taken += 1;
                } else {
                    counted.ready += 1;
                    runs.extend(StepId::from_queue_name(name.as_bytes()).map(|(run, _)| run));
                }
            }
            after = page.rows.last().map(|(name, _)| name.clone());
            if !page.more || (counted.ready + counted.taken) as usize >= COUNTED_MAX {
                break;
            }
        }
        for run in runs {
            let started = self.runs.run(run, None).await?.map(|run| run.header.started);
            counted.since = counted.since.into_iter().chain(started).min();
        }
        Ok(counted)
    }

    /// Frees a step whatever the deadline of its claim; its worker is gone.
    pub(crate) async fn free_claim(&self, queue: &Group, name: &Name, fence: Row) -> Result<bool, Error> {
        self.kernel.apply(claim::release_dead(self.kernel.shard, &queue.key(name), fence)).await
    }

    /// The queues that steps of unfinished runs may stand in.
    pub(crate) async fn all(&self) -> Result<Vec<Group>, Error> {
        let mut classes = BTreeSet::new();
        let mut after = None;
        loop {
            let scan = Scan::of(keys::heads(), SCAN_ROWS_MAX).after(after);
            let page = self.kernel.records.scan(self.kernel.shard, scan).await?;
            for (_, row) in &page.rows {
                if let Some(Head::Active(id)) = rows::read::<Head>(row)
                    && let Some(run) = self.runs.run(id, None).await?
                {
                    classes.extend(run.plan.program.tasks.iter().map(|task| task.class.clone()));
                }
            }
            after = page.rows.last().map(|(name, _)| name.clone());
            if !page.more {
                break;
            }
        }
        let of_classes = classes.iter().map(|class| keys::class_queue(class));
        Ok(of_classes.chain([keys::internal_queue()]).chain(self.unserved_queues().await?).collect())
    }

    /// The deadline of the claim on a step in a queue, if it has not passed.
    pub(crate) async fn held_until(&self, key: &Key) -> Result<Option<Timestamp>, Error> {
        let rows = [claim::claim_key(key), claim::deadline_key(key)];
        let [Some(_), Some(deadline)] = &self.kernel.records.get(self.kernel.shard, &rows).await?[..] else {
            return Ok(None);
        };
        let deadline = Timestamp::from_sortable(deadline).ok_or_else(|| Error::damaged("the deadline of a claim"))?;
        Ok((deadline > self.kernel.records.now().await?).then_some(deadline))
    }
}
