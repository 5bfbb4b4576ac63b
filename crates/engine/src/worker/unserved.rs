//! Steps whose task a worker does not offer. The worker that claims one moves it into a queue of that task, where only
//! workers that offer the task look; so a step is claimed in vain at most once.
//!
//! A row of [`keys::unserved`] announces such a queue. The batch that moves a step there writes it, with the worker's
//! claim in it, so that it is deleted only by a worker that saw the queue empty after the last step came.

use super::Worker;
use crate::{Error, runs::Run, shared::lock};
use onceflow_core::{
    Batch, Fence, Group, Key, Name, Row,
    limits::SCAN_ROWS_MAX,
    model::{TaskSpec, program::NodeOp},
    protocol::{
        ids::StepId,
        keys,
        step::{self, Taken},
    },
};
use onceflow_store::records::Scan;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, btree_map::Entry};

/// The row of an unserved task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unserved {
    pub(crate) class: String,
    /// Name and version; several where a step is fused.
    pub(crate) tasks: Vec<(String, String)>,
    /// The claim of the step that was moved there last.
    by: Fence,
}

impl Unserved {
    pub(crate) fn name(&self) -> Name {
        keys::unserved_name(&self.class, self.tasks.iter().map(|(name, version)| (name.as_str(), version.as_str())))
    }
}

/// The tasks of a step; none if the step is internal.
fn tasks_of<'a>(run: &'a Run, taken: &Taken) -> Vec<&'a TaskSpec> {
    let program = &run.plan.program;
    let nodes = &program.blocks[taken.ready_step.block as usize].nodes;
    match nodes.get(taken.step.node as usize).map(|node| &node.op) {
        Some(NodeOp::Task(task)) => vec![&program.tasks[*task as usize]],
        Some(NodeOp::Fused(tasks)) => tasks.iter().map(|fused| &program.tasks[fused.task as usize]).collect(),
        _ => vec![],
    }
}

/// The row that announces a step as unserved; `None` if it is internal.
pub(crate) fn unserved_of(run: &Run, taken: &Taken) -> Option<Unserved> {
    let tasks = tasks_of(run, taken);
    let class = run.plan.class(taken.ready_step.block, taken.step.node)?;
    let tasks = tasks.iter().map(|task| (task.name.clone(), task.version.clone())).collect();
    Some(Unserved { class, tasks, by: taken.claim.fence })
}

/// The other keys that the ready row of a step may have.
pub(crate) fn elsewhere(run: &Run, taken: &Taken) -> Vec<Key> {
    let Some(unserved) = unserved_of(run, taken) else { return vec![] };
    let queues = [keys::unserved_queue(&unserved.name()), keys::class_queue(&unserved.class), keys::internal_queue()];
    queues.into_iter().filter(|queue| *queue != taken.claim.queue).map(|queue| queue.key(&taken.claim.name)).collect()
}

impl Worker {
    /// Looks for unserved tasks that this worker offers. True if it found new ones.
    pub(super) async fn look_for_unserved(&self) -> Result<bool, Error> {
        let all = self.shared.queues().unserved().await?;
        let tasks = lock(&self.shared.tasks).clone();
        let is_here = |unserved: &Unserved| {
            let has = unserved.tasks.iter().all(|(name, version)| tasks.offer(name, version));
            has && self.capacity.takes(&unserved.class)
        };
        let here = all.iter().filter(|(.., unserved)| is_here(unserved));
        let here = here.map(|(name, _, unserved)| (keys::unserved_queue(name), keys::class_queue(&unserved.class)));
        Ok(self.capacity.set_unserved(here.collect()))
    }

    /// Called when no step was ready: true if a queue of unserved tasks was found that this worker did not look at.
    pub(super) async fn finds_unserved(&self) -> bool {
        if !self.shared.options.is_shared() || self.is_stopping() {
            return false;
        }
        self.look_for_unserved().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "failed to read the unserved tasks; retrying");
            false
        })
    }

    /// Deletes the rows of empty queues; moves steps of stopped runs to the internal queue.
    pub(super) async fn tidy_unserved(&self) -> Result<(), Error> {
        for (name, seen, _) in self.shared.queues().unserved().await? {
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
            let ready_step = step::ready_step(&row);
            let run = StepId::from_queue_name(name.as_bytes()).map(|(run, _)| run);
            let Some((run, generation)) = run.zip(ready_step.map(|ready_step| ready_step.generation)) else { continue };
            let stopped = match known.entry((run, generation)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(entry) => entry.insert(self.shared.queues().stopped(run, generation).await?),
            };
            if let Some(stopped) = stopped {
                self.shared.queues().free_for_all(queue, vec![(name, row)], stopped).await?;
            }
        }
        Ok(())
    }
}
