//! The workers of a store, their steps, and the steps that wait, for people. Read from registrations, queues and claims
//! one after the other, so the answer is not a snapshot.

use super::Engine;
use crate::{
    Error, Handle,
    options::About,
    shared::{Shared, lock},
    worker::{
        announce::{Registration, incarnation},
        unserved::Unserved,
    },
};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Fence, Group, Name, Timestamp,
    limits::SCAN_ROWS_MAX,
    protocol::{
        claim,
        draft::InstalledProgram,
        ids::{RunId, StepId},
        keys, rows, step,
    },
};
use onceflow_store::records::Scan;
use std::collections::{BTreeMap, BTreeSet};

/// Steps of one class that are counted.
const COUNTED_MAX: usize = 100_000;

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
    pub(super) fn of(incarnation: u128, worker: Registration, now: Timestamp) -> Self {
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
            let mut workers = self.shared.workers().await?;
            if workers.is_empty() {
                return Ok(workers);
            }
            for queue in self.queues().await?.iter().filter(|queue| **queue != keys::internal_queue()) {
                for (name, row) in self.shared.kernel.all_rows(queue.claims(), b"").await? {
                    let Some(fence) = Fence::from_bytes(&row) else { continue };
                    let worker = workers.iter_mut().find(|worker| worker.incarnation == fence.incarnation());
                    if let Some(worker) = worker.filter(|worker| worker.steps.len() < STEPS_MAX) {
                        worker.steps.extend(self.shared.step_at(queue, &name).await?);
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
        Box::pin(async move {
            let has_ended = |shared: &Shared, incarnation, worker: &Registration, _| {
                shared.has_ended(incarnation, worker) == Some(true)
            };
            self.shared.workers_that(has_ended).await
        })
    }

    /// The ready steps, by class; separately, those that wait for workers that offer their task.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn backlog(&self) -> BoxFuture<'_, Result<Vec<Backlog>, Error>> {
        Box::pin(async move {
            let workers = self.shared.workers().await?;
            let unserved: BTreeMap<_, _> = self
                .shared
                .unserved()
                .await?
                .into_iter()
                .map(|(name, _, it)| (keys::unserved_queue(&name), it))
                .collect();
            let mut found = Vec::new();
            for queue in self.queues().await? {
                let (class, tasks) = match unserved.get(&queue) {
                    Some(Unserved { class, tasks, .. }) => (class.clone(), tasks.clone()),
                    None => (keys::class_of(&queue).unwrap_or_default().to_owned(), vec![]),
                };
                let may = |worker: &&crate::WorkerInfo| class.is_empty() || worker.can(&class, &tasks);
                let workers = workers.iter().filter(may).count();
                let counted = self.shared.count(&queue).await?;
                if counted.ready + counted.taken > 0 {
                    found.push(Backlog { class, tasks, workers, ..counted });
                }
            }
            Ok(found)
        })
    }
}

impl Handle {
    /// The classes of the tasks of a run that has not ended; none of one that has.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn classes(&self) -> BoxFuture<'_, Result<BTreeSet<String>, Error>> {
        Box::pin(async move {
            let run = self.shared.runs.read_run(self.id()).await?;
            Ok(run.map(|run| run.plan.classes()).unwrap_or_default())
        })
    }

    /// Ready steps of the run that no registered worker can take. Where workers do not register, as in one process,
    /// that is all of them.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn missing_tasks(&self) -> BoxFuture<'_, Result<Vec<MissingTask>, Error>> {
        Box::pin(async move {
            let id = self.id();
            let Some(run) = self.shared.runs.read_run(id).await? else { return Ok(vec![]) };
            let workers = self.shared.workers().await?;
            let mut found = Vec::new();
            for (queue, class, tasks) in self.shared.queues_of(&run.plan).await? {
                if workers.iter().any(|worker| worker.can(&class, &tasks)) {
                    continue;
                }
                let steps = self.shared.free_steps(&queue, id).await?.len() as u64;
                if steps > 0 {
                    found.push(MissingTask { class, tasks, steps });
                }
            }
            Ok(found)
        })
    }

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
            if is_alone || phase.dispatches() || !phase.is_open() {
                return Ok(());
            }
            let workers = self.shared.workers().await?;
            for (queue, class, tasks) in self.shared.queues_of(&run.plan).await? {
                let Some(stopped) = self.shared.stopped(id, run.plan.keys.generation).await? else { return Ok(()) };
                if workers.iter().any(|worker| worker.can(&class, &tasks)) || self.shared.takes(&class, &tasks) {
                    continue;
                }
                self.shared.free_overdue(&queue, id).await?;
                let steps = self.shared.free_steps(&queue, id).await?;
                self.shared.free_for_all(&queue, steps, &stopped).await?;
            }
            Ok(())
        })
    }
}

impl Shared {
    /// This process takes such steps itself, whether it is registered as a worker or not.
    pub(super) fn takes(&self, class: &str, tasks: &[(String, String)]) -> bool {
        let options = &self.options;
        // A class with a limit of zero is configured, and not taken.
        let takes = match options.classes.get(class) {
            Some(at_a_time) => *at_a_time > 0,
            None => options.other_classes,
        };
        let takes = options.works && takes;
        takes && tasks.iter().all(|(name, version)| lock(&self.tasks).offer(name, version))
    }

    /// The registered workers that are not gone, without their steps.
    pub(super) async fn workers(&self) -> Result<Vec<WorkerInfo>, Error> {
        self.workers_that(|shared, incarnation, worker, now| !shared.is_gone(incarnation, worker, now)).await
    }

    async fn workers_that(
        &self,
        is_wanted: impl Fn(&Shared, u128, &Registration, Timestamp) -> bool,
    ) -> Result<Vec<WorkerInfo>, Error> {
        let all = self.registrations().await?;
        if all.is_empty() {
            return Ok(vec![]);
        }
        let now = self.records.now().await?;
        let info = |(name, row): &(Name, onceflow_core::Row)| {
            let (incarnation, worker) = incarnation(name).zip(rows::read::<Registration>(row))?;
            (worker.works && is_wanted(self, incarnation, &worker, now))
                .then(|| WorkerInfo::of(incarnation, worker, now))
        };
        Ok(all.iter().filter_map(info).collect())
    }

    /// The queues that steps of a program may stand in, but for the internal one; each with its class, and the tasks it
    /// is for.
    async fn queues_of(&self, plan: &InstalledProgram) -> Result<Vec<(Group, String, Vec<(String, String)>)>, Error> {
        let classes = plan.classes();
        let unserved = self.unserved().await?;
        let unserved = unserved.into_iter().map(|(name, _, it)| (keys::unserved_queue(&name), it.class, it.tasks));
        Ok(classes.into_iter().map(|class| (keys::class_queue(&class), class, vec![])).chain(unserved).collect())
    }

    /// The steps of a run that stand in a queue and are not taken.
    async fn free_steps(&self, queue: &Group, run: RunId) -> Result<Vec<(Name, onceflow_core::Row)>, Error> {
        let steps = self.kernel.all_rows(queue.clone(), &run.0).await?;
        if steps.is_empty() {
            return Ok(steps);
        }
        let taken: BTreeSet<_> =
            self.kernel.all_rows(queue.claims(), &run.0).await?.into_iter().map(|(name, _)| name).collect();
        Ok(steps.into_iter().filter(|(name, _)| !taken.contains(name)).collect())
    }

    /// Frees the steps of a run in a queue whose claims are past their deadline: no worker looks at that queue.
    pub(super) async fn free_overdue(&self, queue: &Group, run: RunId) -> Result<(), Error> {
        let claims = self.kernel.all_rows(queue.claims(), &run.0).await?;
        if claims.is_empty() {
            return Ok(());
        }
        let now = self.records.now().await?;
        for (name, fence) in claims {
            let ready = queue.key(&name);
            let Some(deadline) = self.row(claim::deadline_key(&ready)).await? else { continue };
            if claim::is_overdue(&deadline, now) {
                self.kernel.apply(claim::take_over(self.shard(), &ready, fence, deadline)).await?;
            }
        }
        Ok(())
    }

    /// The address of a step in a queue.
    async fn step_at(&self, queue: &Group, name: &Name) -> Result<Option<WorkerStep>, Error> {
        let Some(row) = self.row(queue.key(name)).await? else { return Ok(None) };
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
    async fn count(&self, queue: &Group) -> Result<Backlog, Error> {
        let claims: BTreeSet<_> =
            self.kernel.all_rows(queue.claims(), b"").await?.into_iter().map(|(name, _)| name).collect();
        let (mut counted, mut runs, mut after) = (Backlog::default(), BTreeSet::new(), None);
        loop {
            let page = self.records.scan(self.shard(), Scan::of(queue.clone(), SCAN_ROWS_MAX).after(after)).await?;
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
}
