//! The parts of an engine: handles on the store and the world, the tasks it offers, and one object for each further
//! job.

use crate::{
    Error, event_log::EventLogs, events::Events, kernel::Kernel, options::Options, resources::Resources, runs::Runs,
    signals::Signals, task::Tasks,
};
use onceflow_core::{
    Fences, Key, Row, Shard,
    protocol::{ids::RunId, step},
};
use onceflow_store::{Records, World, values::Values};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
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
    /// This engine is registered as a writer of large values that does not work.
    pub(crate) is_writer: AtomicBool,
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
        options.resources.add(crate::scope::ScopeStore {
            records: of_records,
            values: of_values,
            world: of_world,
            shard,
            lease_ms,
        });
        let resources = Mutex::new(Arc::new(std::mem::take(&mut options.resources)));
        let kernel = Arc::new(Kernel {
            records: records.clone(),
            values: values.clone(),
            fences: Fences::new(world.random()),
            shard: options.shard,
            lease_ms: options.lease_ms,
            is_same_attempt: step::is_same_attempt,
        });
        let small = options.scratch.join(crate::data::scratch_name(kernel.fences.incarnation()));
        let events = Events::new(world.clone(), options.event_log.is_some());
        Arc::new(Shared {
            records,
            values,
            world,
            options,
            events,
            event_logs: EventLogs::default(),
            runs: Runs::new(kernel.clone()),
            kernel,
            signals: Signals::new(),
            tasks: Mutex::default(),
            resources,
            lists: crate::data::Lists::default(),
            small: crate::data::SmallFiles::new(small),
            abandoned: Mutex::default(),
            is_writer: AtomicBool::new(false),
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

    pub(crate) fn resources(&self) -> Arc<Resources> {
        lock(&self.resources).clone()
    }
}
