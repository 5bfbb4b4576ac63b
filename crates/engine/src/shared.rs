//! The parts of an engine: handles on the store and the world, the tasks it offers, and one object for each further
//! job.

use crate::{
    Error, event_log::EventLogs, events::Events, kernel::Kernel, options::Options, queues::Queues, registry::Registry,
    resources::Resources, run_rows::RunRows, runs::Runs, signals::Signals, task::Tasks,
};
use onceflow_core::{
    Fences, Key, Row, Shard,
    limits::SCOPE_ACTIVITIES_MAX,
    protocol::{ids::RunId, keys::Keys, step},
};
use onceflow_store::{Records, World, values::Values};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The parts of an engine.
pub(crate) struct Shared {
    pub(crate) records: Arc<dyn Records>,
    pub(crate) values: Arc<Values>,
    pub(crate) world: Arc<dyn World>,
    pub(crate) options: Options,
    pub(crate) events: Arc<Events>,
    pub(crate) event_logs: EventLogs,
    /// Claims and commits.
    pub(crate) kernel: Arc<Kernel>,
    /// The runs, as this process has read them.
    pub(crate) runs: Runs,
    pub(crate) signals: Signals,
    pub(crate) tasks: Mutex<Arc<Tasks>>,
    /// Resources that tasks look up by type, until the engine closes.
    pub(crate) resources: Mutex<Arc<Resources>>,
    /// The cache of lists that eaches go over.
    pub(crate) lists: crate::data::Lists,
    /// The cache of small files, for tasks that read them.
    pub(crate) small: Arc<crate::data::SmallFiles>,
    /// Runs without a history whose last handle was dropped.
    pub(crate) abandoned: Mutex<BTreeMap<RunId, String>>,
    pub(crate) registry: Registry,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(
        records: Arc<dyn Records>,
        values: Arc<Values>,
        world: Arc<dyn World>,
        mut options: Options,
    ) -> Arc<Self> {
        let (shard, lease_ms) = (options.shard, options.lease_ms);
        let (of_records, of_values, of_world) = (records.clone(), values.clone(), world.clone());
        let fences = Fences::new(world.random());
        let small = options.scratch.join(crate::data::scratch_name(fences.incarnation()));
        let small = crate::data::SmallFiles::new(small);
        options.resources.add(crate::scope::ScopeStore {
            records: of_records,
            values: of_values,
            world: of_world,
            shard,
            lease_ms,
            activities: Arc::new(tokio::sync::Semaphore::new(options.running_max.clamp(1, SCOPE_ACTIVITIES_MAX))),
            small: small.clone(),
            scratch: options.scratch.clone(),
            engine: std::sync::OnceLock::new(),
        });
        let resources = Mutex::new(Arc::new(std::mem::take(&mut options.resources)));
        let kernel = Arc::new(Kernel {
            records: records.clone(),
            values: values.clone(),
            fences,
            shard: options.shard,
            lease_ms: options.lease_ms,
            is_same_attempt: step::is_same_attempt,
        });
        let events = Events::new(world.clone(), options.event_log.is_some());
        Arc::new(Shared {
            records,
            values,
            world,
            events,
            event_logs: EventLogs::default(),
            registry: Registry::new(kernel.clone(), small.clone(), &options),
            runs: Runs::new(kernel.clone()),
            kernel,
            signals: Signals::new(),
            tasks: Mutex::default(),
            resources,
            lists: crate::data::Lists::default(),
            small,
            options,
            abandoned: Mutex::default(),
        })
    }

    pub(crate) fn shard(&self) -> Shard {
        self.options.shard
    }

    /// The error for a run that is not there: its history has ended, or the store was replaced.
    pub(crate) async fn no_run(&self, key: &str) -> Error {
        if let Some(server) = self.records.server()
            && let Err(lost @ onceflow_store::Error::Lost(_)) = server.check_store().await
        {
            return lost.into();
        }
        Error::NoRun(key.to_owned())
    }

    pub(crate) async fn row(&self, key: Key) -> Result<Option<Row>, Error> {
        self.kernel.row(key).await
    }

    /// The rows of a generation of a run.
    pub(crate) fn rows_of<'a>(&'a self, keys: &'a Keys) -> RunRows<'a> {
        RunRows::new(&self.kernel, keys)
    }

    /// The queues of the store.
    pub(crate) fn queues(&self) -> Queues<'_> {
        Queues::new(&self.kernel, &self.runs)
    }

    /// This process takes such steps itself, whether it is registered as a worker or not.
    pub(crate) fn takes(&self, class: &str, tasks: &[(String, String)]) -> bool {
        let options = &self.options;
        // A class with a limit of zero is configured, and not taken.
        let takes = match options.classes.get(class) {
            Some(at_a_time) => *at_a_time > 0,
            None => options.other_classes,
        };
        let takes = options.works && takes;
        takes && tasks.iter().all(|(name, version)| lock(&self.tasks).offer(name, version))
    }

    /// This process performs compensations of a class: also where it takes no other steps of it.
    pub(crate) fn knows_class(&self, class: &str) -> bool {
        self.options.works && (self.options.other_classes || self.options.classes.contains_key(class))
    }

    /// The tasks that this engine offers now.
    pub(crate) fn tasks(&self) -> Arc<Tasks> {
        lock(&self.tasks).clone()
    }

    pub(crate) fn resources(&self) -> Arc<Resources> {
        lock(&self.resources).clone()
    }
}
