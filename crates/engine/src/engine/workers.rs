//! The workers of a store, their steps, and the steps that wait, for people. Read from registrations, queues and claims
//! one after the other, so the answer is not a snapshot.

use super::Engine;
use crate::{Error, Handle, RunSteps, options::About, registry::Registration, worker::unserved::Unserved};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Fence, Timestamp,
    protocol::{ids::RunId, keys},
};
use std::collections::{BTreeMap, BTreeSet};

/// Steps of one worker that are listed.
const STEPS_MAX: usize = 100;

/// A registered worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerInfo {
    /// The incarnation in its claims.
    pub incarnation: u128,
    /// The description under which it registered.
    pub about: About,
    /// The time of its registration, on the store's clock.
    pub started: Timestamp,
    /// The time of its last heartbeat, on the store's clock.
    pub seen: Timestamp,
    /// The milliseconds since its last heartbeat.
    pub silent_ms: u64,
    /// How long its registration and its claims stand without a heartbeat.
    pub lease_ms: u64,
    /// The last heartbeat is within its deadline, half a lease. A worker that is not alive may be gone, or slow.
    pub is_alive: bool,
    /// The worker takes no further steps.
    pub draining: bool,
    /// Classes whose steps it takes, and how many at a time, if that is bounded.
    pub classes: Vec<(String, Option<u64>)>,
    /// Tasks it offers, by name and version; those without a version it runs in any.
    pub tasks: Vec<(String, Option<String>)>,
    /// Tasks of it that took effect.
    pub done: u64,
    /// The number of its tasks that took effect by run, for the last few runs.
    pub done_of: BTreeMap<RunId, u64>,
    /// Steps that other workers took over because its heartbeats came too late.
    pub lost: u64,
    /// Steps it holds: the first few.
    pub steps: Vec<WorkerStep>,
}

/// A step that a worker holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerStep {
    /// The run's key.
    pub run: String,
    /// The step's address; empty if the run has another plan by now.
    pub address: String,
}

impl WorkerInfo {
    /// A registration as of now.
    pub(crate) fn of(incarnation: u128, worker: Registration, now: Timestamp) -> Self {
        let silent_ms = now.ms_since(worker.seen);
        WorkerInfo {
            incarnation,
            about: worker.about,
            started: worker.started,
            seen: worker.seen,
            silent_ms,
            lease_ms: worker.lease_ms,
            is_alive: silent_ms <= worker.lease_ms / 2,
            draining: worker.draining,
            classes: worker.classes,
            tasks: worker.tasks,
            done: worker.counts.done,
            done_of: worker.counts.runs,
            lost: worker.counts.lost,
            steps: vec![],
        }
    }

    /// The worker takes steps of this class.
    pub fn serves(&self, class: &str) -> bool {
        self.classes.iter().any(|(served, max)| served == class && *max != Some(0))
    }

    /// The worker offers this task.
    pub fn offers(&self, task: &str, version: &str) -> bool {
        let is_it = |(name, of): &(String, Option<String>)| {
            name == task && of.as_deref().is_none_or(|offered| offered == version)
        };
        self.tasks.iter().any(is_it)
    }

    /// The milliseconds until its lease ends, if it sends no heartbeat.
    pub fn forgotten_in_ms(&self) -> u64 {
        self.lease_ms.saturating_sub(self.silent_ms)
    }

    fn can(&self, class: &str, tasks: &[(String, String)]) -> bool {
        self.serves(class) && tasks.iter().all(|(name, version)| self.offers(name, version))
    }
}

/// Steps of one class that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// The class; empty for internal steps, which every worker takes.
    pub class: String,
    /// The tasks, by name and version, if the steps wait for workers that offer them.
    pub tasks: Vec<(String, String)>,
    /// Steps that are ready, and not taken.
    pub ready: u64,
    /// Steps that are taken.
    pub taken: u64,
    /// The start of the oldest run with ready steps.
    pub since: Option<Timestamp>,
    /// The number of registered workers that may take them.
    pub workers: usize,
}

/// Steps of a run that no registered worker can take.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingTask {
    /// Their class.
    pub class: String,
    /// Their tasks, by name and version, if workers of the class are registered and lack these.
    pub tasks: Vec<(String, String)>,
    /// The number of steps.
    pub steps: u64,
}

impl std::fmt::Display for MissingTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tasks: Vec<_> = self.tasks.iter().map(|(name, version)| format!("`{name}`, version {version}")).collect();
        match tasks.is_empty() {
            true => write!(f, "waits for a worker that takes class `{}`", self.class),
            false => write!(f, "waits for a worker that offers {}", tasks.join(" and ")),
        }
    }
}

impl Engine {
    /// The number of steps that this engine has claimed.
    pub fn claimed_steps(&self) -> usize {
        self.worker.as_ref().map_or(0, |worker| worker.slots())
    }

    /// The registered workers that are not gone, with the steps they hold.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn workers(&self) -> BoxFuture<'_, Result<Vec<WorkerInfo>, Error>> {
        Box::pin(async move {
            let mut workers = self.shared.registry.workers().await?;
            if workers.is_empty() {
                return Ok(workers);
            }
            for queue in self.shared.queues().all().await?.iter().filter(|queue| **queue != keys::internal_queue()) {
                for (name, row) in self.shared.kernel.all_rows(queue.claims(), b"").await? {
                    let Some(fence) = Fence::from_bytes(&row) else { continue };
                    let worker = workers.iter_mut().find(|worker| worker.incarnation == fence.incarnation());
                    if let Some(worker) = worker.filter(|worker| worker.steps.len() < STEPS_MAX) {
                        worker.steps.extend(self.shared.queues().step_at(queue, &name).await?);
                    }
                }
            }
            Ok(workers)
        })
    }

    /// The registered workers whose process has ended without closing its engine, as far as that is seen from here
    /// ([`Options::locks`](crate::Options::locks)). Their claims stand until they are [released](Engine::release) or
    /// end.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn ended_workers(&self) -> BoxFuture<'_, Result<Vec<WorkerInfo>, Error>> {
        Box::pin(async move { self.shared.registry.ended_workers().await })
    }

    /// The ready steps, by class; separately, those that wait for workers that offer their task.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn backlog(&self) -> BoxFuture<'_, Result<Vec<Backlog>, Error>> {
        Box::pin(async move {
            let workers = self.shared.registry.workers().await?;
            let unserved: BTreeMap<_, _> = self
                .shared
                .queues()
                .unserved()
                .await?
                .into_iter()
                .map(|(name, _, it)| (keys::unserved_queue(&name), it))
                .collect();
            let mut found = Vec::new();
            for queue in self.shared.queues().all().await? {
                let (class, tasks) = match unserved.get(&queue) {
                    Some(Unserved { class, tasks, .. }) => (class.clone(), tasks.clone()),
                    None => (keys::class_of(&queue).unwrap_or_default().to_owned(), vec![]),
                };
                let may = |worker: &&crate::WorkerInfo| class.is_empty() || worker.can(&class, &tasks);
                let workers = workers.iter().filter(may).count();
                let counted = self.shared.queues().count(&queue).await?;
                if counted.ready + counted.taken > 0 {
                    found.push(Backlog { class, tasks, workers, ..counted });
                }
            }
            Ok(found)
        })
    }
}

impl<'a> RunSteps<'a> {
    /// The classes of the tasks of a run that has not ended; none of one that has.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn classes(self) -> BoxFuture<'a, Result<BTreeSet<String>, Error>> {
        Box::pin(async move {
            let run = self.handle.shared.runs.read_run(self.handle.id()).await?;
            Ok(run.map(|run| run.plan.classes()).unwrap_or_default())
        })
    }

    /// Ready steps of the run that no registered worker can take. Where workers do not register, as in one process,
    /// that is all of them.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn missing_tasks(self) -> BoxFuture<'a, Result<Vec<MissingTask>, Error>> {
        Box::pin(async move {
            let id = self.handle.id();
            let Some(run) = self.handle.shared.runs.read_run(id).await? else { return Ok(vec![]) };
            let workers = self.handle.shared.registry.workers().await?;
            let mut found = Vec::new();
            for (queue, class, tasks) in self.handle.shared.queues().of_program(&run.plan).await? {
                if workers.iter().any(|worker| worker.can(&class, &tasks)) {
                    continue;
                }
                let steps = self.handle.shared.queues().free_steps(&queue, id).await?.len() as u64;
                if steps > 0 {
                    found.push(MissingTask { class, tasks, steps });
                }
            }
            Ok(found)
        })
    }
}

impl Handle {
    /// Helps a cancelled or failed run to its end: steps in queues that no worker looks at are moved to the queue that
    /// all workers look at. A run that goes on is not touched.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn poke(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let id = self.id();
            let Some(run) = self.shared.runs.known(id) else { return Ok(()) };
            let (phase, options) = (run.state().phase, &self.shared.options);
            let is_alone = options.works && !options.is_shared();
            if is_alone || !(phase.is_undoing() || phase.is_open() && !phase.dispatches()) {
                return Ok(());
            }
            let workers = self.shared.registry.workers().await?;
            for (queue, class, tasks) in self.shared.queues().of_program(&run.plan).await? {
                let Some(stopped) = self.shared.queues().stopped(id, run.plan.keys.generation).await? else {
                    return Ok(());
                };
                if workers.iter().any(|worker| worker.can(&class, &tasks)) || self.shared.takes(&class, &tasks) {
                    continue;
                }
                // A compensation is performed by workers of its class only, even where they take no other steps of it.
                if phase.is_undoing() && !self.shared.knows_class(&class) {
                    continue;
                }
                self.shared.queues().free_overdue(&queue, id).await?;
                let steps = self.shared.queues().free_steps(&queue, id).await?;
                self.shared.queues().free_for_all(&queue, steps, &stopped).await?;
            }
            Ok(())
        })
    }
}
