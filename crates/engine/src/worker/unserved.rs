//! Steps whose task a worker does not have. Whoever takes one moves it into a queue of its own kind, where only those
//! look who have the task; so it is taken in vain once, whoever the other workers are.
//!
//! A row in `unserved` says that such a queue is there. It is written in the batch that puts a step there, with the claim
//! that did it in it, so that it is removed only by who saw the queue empty after the last step came.

use super::Worker;
use crate::{
    Error,
    perform::Work,
    shared::{Run, Shared, lock},
};
use onceflow_core::{
    Batch, Fence, Group, Key, Name, Row,
    limits::SCAN_ROWS_MAX,
    model::{TaskSpec, program::NodeOp},
    protocol::{
        ids::{Generation, RunId, StepId},
        keys,
        rows::{self, ReadyStep},
        step::Taken,
    },
};
use onceflow_store::records::Scan;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, btree_map::Entry};

/// Which task is unserved: what the row says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unserved {
    pub(crate) class: String,
    /// Name and version; several where they are one step.
    pub(crate) tasks: Vec<(String, String)>,
    /// Whoever put the last step there.
    by: Fence,
}

impl Unserved {
    fn name(&self) -> Name {
        keys::unserved_name(&self.class, self.tasks.iter().map(|(name, version)| (name.as_str(), version.as_str())))
    }
}

/// The tasks of a step; none if it is no task.
fn tasks_of<'a>(run: &'a Run, taken: &Taken) -> Vec<&'a TaskSpec> {
    let program = &run.plan.program;
    let nodes = &program.blocks[taken.ready_step.block as usize].nodes;
    match nodes.get(taken.step.node as usize).map(|node| &node.op) {
        Some(NodeOp::Task(task)) => vec![&program.tasks[*task as usize]],
        Some(NodeOp::Fused(tasks)) => tasks.iter().map(|fused| &program.tasks[fused.task as usize]).collect(),
        _ => vec![],
    }
}

/// What is unserved if a step is.
fn unserved_of(run: &Run, taken: &Taken) -> Option<Unserved> {
    let tasks = tasks_of(run, taken);
    let class = tasks.first()?.class.clone();
    let tasks = tasks.iter().map(|task| (task.name.clone(), task.version.clone())).collect();
    Some(Unserved { class, tasks, by: taken.fence })
}

/// Where else a step that is ready may stand.
pub(crate) fn elsewhere(run: &Run, taken: &Taken) -> Vec<Key> {
    let Some(unserved) = unserved_of(run, taken) else { return vec![] };
    let queues = [keys::unserved_queue(&unserved.name()), keys::class_queue(&unserved.class), keys::internal_queue()];
    queues.into_iter().filter(|queue| *queue != taken.queue).map(|queue| queue.key(&taken.name)).collect()
}

impl Shared {
    /// What is unserved, each with its row as it was seen.
    pub(crate) async fn unserved(&self) -> Result<Vec<(Name, Row, Unserved)>, Error> {
        let page = self.records.scan(self.shard(), Scan::of(keys::unserved(), SCAN_ROWS_MAX)).await?;
        let read = |(name, row): (Name, Row)| {
            let unserved = rows::read::<Unserved>(&row).ok_or_else(|| Error::damaged("what is wanted"))?;
            Ok((name, row, unserved))
        };
        page.rows.into_iter().map(read).collect()
    }

    /// The queues of what is unserved.
    pub(crate) async fn unserved_queues(&self) -> Result<Vec<Group>, Error> {
        Ok(self.unserved().await?.iter().map(|(name, ..)| keys::unserved_queue(name)).collect())
    }

    /// Moves steps that nobody has taken to where every worker looks: those of a run that takes no steps any more, which
    /// have to be put aside by somebody, whoever has their tasks. How many.
    pub(crate) async fn free_for_all(
        &self,
        queue: &Group,
        steps: Vec<(Name, Row)>,
        stopped: &Stopped,
    ) -> Result<usize, Error> {
        let mut moved = 0;
        for (name, row) in steps {
            let (from, claim) = (queue.key(&name), queue.claims().key(&name));
            let mut batch = Batch::new(self.shard());
            if let Stopped::While(state, seen) = stopped {
                batch.require_equals(state.clone(), seen.clone());
            }
            batch.require_equals(from.clone(), row.clone()).require_absent(claim);
            batch.delete(from).put(keys::internal_queue().key(&name), row);
            moved += usize::from(self.records.commit(batch).await?.is_applied());
        }
        Ok(moved)
    }

    /// Whether the steps of a plan are only put aside now, or dropped. `None` if they are to be performed.
    pub(crate) async fn stopped(&self, id: RunId, generation: Generation) -> Result<Option<Stopped>, Error> {
        let Some(run) = self.read_run(id).await? else { return Ok(Some(Stopped::Stale)) };
        let state = run.state();
        Ok(match state.generation == generation {
            false => Some(Stopped::Stale),
            true if state.phase.is_open() && !state.phase.dispatches() => {
                Some(Stopped::While(run.plan.keys.state(), state.to_row()))
            }
            true => None,
        })
    }
}

/// Why steps are not performed any more.
#[derive(Clone)]
pub(crate) enum Stopped {
    /// Their plan is not valid any more.
    Stale,
    /// Their run takes none, while its state is so.
    While(Key, Row),
}

impl Worker {
    /// Looks whether steps wait for tasks that are here. Whether there are any that were not known.
    pub(super) async fn look_for_unserved(&self) -> Result<bool, Error> {
        let all = self.shared.unserved().await?;
        let tasks = lock(&self.shared.tasks).clone();
        let is_here = |unserved: &Unserved| {
            let has = unserved.tasks.iter().all(|(name, version)| tasks.offer(name, version));
            has && self.capacity.takes(&unserved.class)
        };
        let here = all.iter().filter(|(.., unserved)| is_here(unserved));
        let here = here.map(|(name, _, unserved)| (keys::unserved_queue(name), keys::class_queue(&unserved.class)));
        Ok(self.capacity.set_unserved(here.collect()))
    }

    /// There was nothing to take: whether there is, in a queue that was not looked at.
    pub(super) async fn finds_unserved(&self) -> bool {
        if !self.shared.options.is_shared() || self.is_stopping() {
            return false;
        }
        self.look_for_unserved().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "what is unserved could not be seen");
            false
        })
    }

    /// Removes what is not unserved any more; steps of runs that have stopped go where everybody sees them.
    pub(super) async fn tidy_unserved(&self) -> Result<(), Error> {
        for (name, seen, _) in self.shared.unserved().await? {
            let queue = keys::unserved_queue(&name);
            let page = self.shared.records.scan(self.shared.shard(), Scan::of(queue.clone(), SCAN_ROWS_MAX)).await?;
            if page.rows.is_empty() {
                let key = keys::unserved().key(&name);
                let mut batch = Batch::new(self.shared.shard());
                batch.require_equals(key.clone(), seen).delete(key);
                let _refused_if_another_came = self.shared.records.commit(batch).await?;
                continue;
            }
            self.free_stopped(&queue, page.rows).await?;
        }
        Ok(())
    }

    async fn free_stopped(&self, queue: &Group, steps: Vec<(Name, Row)>) -> Result<(), Error> {
        let mut known = BTreeMap::new();
        for (name, row) in steps {
            let ready_step =
                onceflow_core::Inbox::from_row(&row).and_then(|inbox| rows::read::<ReadyStep>(&inbox.note));
            let run = StepId::from_queue_name(name.as_bytes()).map(|(run, _)| run);
            let Some((run, generation)) = run.zip(ready_step.map(|ready_step| ready_step.generation)) else { continue };
            let stopped = match known.entry((run, generation)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(entry) => entry.insert(self.shared.stopped(run, generation).await?),
            };
            if let Some(stopped) = stopped {
                self.shared.free_for_all(queue, vec![(name, row)], stopped).await?;
            }
        }
        Ok(())
    }
}

impl Work<'_> {
    /// The queue of the step's class, if it stands where all look and this worker does not take its class.
    pub(crate) fn is_elsewhere(&self, spec: &TaskSpec) -> Option<Group> {
        let is_internal = self.taken.queue == keys::internal_queue();
        (is_internal && !self.worker.capacity.takes(&spec.class)).then(|| keys::class_queue(&spec.class))
    }

    /// This worker cannot perform the step: others can.
    pub(crate) async fn leave_to_those_who_have_it(&self, why: &str) -> Result<(), Error> {
        if !self.worker.shared.options.is_shared() {
            tracing::warn!(%why, "a step waits for a worker that offers its task");
            return self.pause_and_give_back().await;
        }
        tracing::info!(%why, "a step is left to workers that offer its task");
        let unserved = unserved_of(&self.run, &self.taken).expect("only tasks lack code");
        self.move_to(keys::unserved_queue(&unserved.name()), Some(unserved)).await
    }

    /// Moves the step to another queue, as it is. Nothing happens if it is not ours any more.
    pub(crate) async fn move_to(&self, queue: Group, unserved: Option<Unserved>) -> Result<(), Error> {
        let (shared, taken) = (&self.worker.shared, &self.taken);
        let from = taken.queue.key(&taken.name);
        let Some(row) = shared.row(from.clone()).await? else { return Ok(()) };
        let (claim, state) = (taken.queue.claims().key(&taken.name), self.run.state());
        let mut batch = Batch::new(shared.shard());
        // While a new plan is made, steps stay where they are: somebody looks for them.
        batch.require_equals(self.run.plan.keys.state(), state.to_row());
        batch.require_equals(claim.clone(), Row::new(taken.fence.to_bytes()));
        batch.delete(from).delete(claim).delete(taken.queue.deadlines().key(&taken.name));
        batch.put(queue.key(&taken.name), row);
        if let Some(unserved) = unserved {
            batch.put(keys::unserved().key(unserved.name()), rows::write(&unserved));
        }
        self.worker.alive.release(taken.fence);
        match shared.records.commit(batch).await?.is_applied() {
            true => Ok(()),
            false => self.stay().await,
        }
    }

    /// The step could not be moved: the run has changed, or the step is not ours any more.
    async fn stay(&self) -> Result<(), Error> {
        self.worker.shared.see_state(&self.run).await?;
        self.pause_and_give_back().await
    }
}
