//! Starts runs, and gives handles on existing ones. Public futures are boxed, so that they are compiled in this crate,
//! once (decision 0020).

mod again;
pub(crate) mod attend;
mod claims;
mod closing;
pub(crate) mod damage;
mod done;
mod elements;
mod explain;
mod facts;
mod finished;
mod forget;
mod fork;
mod fsck;
mod house;
mod inputs;
mod inside;
mod kept;
mod keyless;
mod known;
mod listen;
mod live;
pub(crate) mod not_undone;
mod outline;
mod planning;
mod preview;
mod reasons;
mod record;
mod replan;
pub(crate) mod reruns;
mod settings;
mod start;
mod started;
mod starting;
pub(crate) mod summary;
mod superseded;
pub(crate) mod timers;
mod transfer;
mod usage;
pub(crate) mod workers;

use crate::{
    Error, Handle, Options,
    event_log::write_event_logs,
    events::Event,
    shared::{Shared, lock},
    task::Tasks,
    worker::Worker,
};
pub use again::{Signature, UndecidedStep};
pub use attend::Attendant;
pub use elements::{EachProgress, RunProgress};
pub use fork::Fork;
pub(crate) use kept::KeptValues;
pub(crate) use keyless::HistoryEnd;
pub use keyless::KEYLESS_HISTORY_MS;
pub(crate) use listen::SAFETY_MS;
pub use outline::Outline;
pub use preview::{Intent, Preview};
pub use reasons::{PLANS_MAX, Reasons};
pub use record::{EachBody, Origin, Record, StepRecord};
pub(crate) use start::Request;
pub use start::{HISTORY_MS, Start};
pub use started::StartedStep;
use starting::CheckedStart;
pub use transfer::{ExportedRun, ImportOptions};
pub use usage::{RunUsage, Usage, UsageKind, UsagePart};

use futures_util::future::BoxFuture;
use onceflow_core::protocol::{
    ids::RunId,
    keys,
    rows::{self, Head},
};
use onceflow_store::{Records, Store, World, values::Values, world::RealWorld};
use std::sync::{Arc, Weak};
use tokio::sync::mpsc;

/// Runs flows on a store: starts them, performs their steps, and answers queries about them. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    worker: Option<Arc<Worker>>,
}

/// An engine that does not live on for this.
#[derive(Clone)]
pub(crate) struct WeakEngine {
    shared: Weak<Shared>,
    worker: Option<Weak<Worker>>,
}

impl WeakEngine {
    /// The engine; `None` once it is gone.
    pub(crate) fn upgrade(&self) -> Option<Engine> {
        let worker = match &self.worker {
            Some(worker) => Some(worker.upgrade()?),
            None => None,
        };
        Some(Engine { shared: self.shared.upgrade()?, worker })
    }
}

impl Engine {
    /// Starts a host of these durable scopes, by name, on the store of this engine: it shares the engine's places for
    /// activities, and works until it is closed or stopped, which is to be done before the engine closes.
    ///
    /// # Errors
    /// If the engine is closed.
    pub fn host_scopes(
        &self,
        scopes: impl IntoIterator<Item = (String, Arc<crate::scope::DurableScope>)>,
    ) -> Result<Arc<crate::scope::ScopeHost>, Error> {
        let store = self.shared.resources().get::<crate::scope::ScopeStore>();
        let store = store.filter(|_| !self.shared.signals.is_closed()).ok_or(Error::Closed)?;
        Ok(crate::scope::ScopeHost::of_store(&store, None, scopes))
    }

    /// An engine on a store in a directory.
    ///
    /// # Errors
    /// If the directory of large values cannot be created.
    pub fn open(store: &Store, options: Options) -> BoxFuture<'_, Result<Self, Error>> {
        Box::pin(async move {
            let values = store.values_of(options.shard).await?;
            Ok(Engine::new(store.records_of(options.shard), values, RealWorld::here(), options))
        })
    }

    /// An engine on any store. `values` must be those of the same shard of the same records.
    pub fn new(records: Arc<dyn Records>, values: Arc<Values>, world: Arc<dyn World>, options: Options) -> Self {
        let works = options.works;
        let shared = Shared::new(records, values, world, options);
        let writer = Arc::downgrade(&shared);
        shared.values.enlist_with(Box::new(move || {
            let writer = writer.upgrade();
            Box::pin(async move {
                match writer {
                    Some(writer) => writer.registry.register_writer().await,
                    None => Ok(()),
                }
            })
        }));
        write_event_logs(&shared);
        let events = shared.events.run(shared.records.clone(), shared.event_logs.queue());
        shared.world.spawn("onceflow events", Box::pin(events));
        shared.world.spawn("onceflow listener", Box::pin(shared.listen()));
        let worker = works.then(|| Worker::start(shared.clone()));
        if works {
            shared.world.spawn("onceflow housekeeping", Box::pin(house::keep_house(shared.clone())));
            shared.world.spawn("onceflow reclaim", Box::pin(house::reclaim(shared.clone())));
        }
        let engine = Engine { shared, worker };
        if let Some(scopes) = engine.shared.resources().get::<crate::scope::ScopeStore>() {
            // Scopes belong to the engine, so they must not keep it.
            let _set_once = scopes.engine.set(engine.downgrade());
        }
        engine
    }

    fn downgrade(&self) -> WeakEngine {
        WeakEngine { shared: Arc::downgrade(&self.shared), worker: self.worker.as_ref().map(Arc::downgrade) }
    }

    /// Adds tasks that this engine can run. Adding the same task again does nothing.
    ///
    /// # Errors
    /// [`Error::Tasks`] if the engine has a different task of the same name and version, [`Error::Resource`] if it
    /// works and lacks a resource that a task takes; then none of these tasks is added.
    pub fn add_tasks(&self, tasks: &Tasks) -> Result<(), Error> {
        if self.shared.signals.is_closed() {
            return Err(Error::Closed);
        }
        if self.worker.is_some()
            && let Some((task, need)) = tasks.missing_resource(&self.shared.resources())
        {
            return Err(Error::Resource { task, ty: need.name() });
        }
        {
            let mut known = lock(&self.shared.tasks);
            let mut all = (**known).clone();
            all.extend(tasks)?;
            *known = Arc::new(all);
        }
        if let Some(worker) = &self.worker {
            worker.capacity.learn(tasks.classes());
            // Steps may be waiting for these tasks.
            worker.capacity.ring();
        }
        Ok(())
    }

    /// Takes steps from now on, if the engine was opened with [`Options::waits`].
    pub fn start_work(&self) {
        if let Some(worker) = &self.worker {
            worker.go();
        }
    }

    /// The time on the store's clock.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn now(&self) -> Result<onceflow_core::Timestamp, Error> {
        Ok(self.shared.records.now().await?)
    }

    /// Subscribes to the events of all runs that this engine works on, from now on.
    pub fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        self.shared.events.listen()
    }

    /// Starts a run, or finds it: the same key is the same run. A failed run continues where it failed; a finished one
    /// answers with its outputs. Durable when it returns.
    ///
    /// # Errors
    /// If the flow does not pass its checks, the inputs do not match it, or the store does not answer.
    pub fn start(&self, start: Start) -> BoxFuture<'_, Result<Handle, Error>> {
        Box::pin(async move {
            if self.shared.signals.is_closed() {
                return Err(Error::Closed);
            }
            let asked = self.ask(start).await?;
            self.start_asked(asked, None).await
        })
    }

    /// Finds the run of a key.
    ///
    /// # Errors
    /// [`Error::NoRun`] if there is none of this key.
    pub fn find<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Handle, Error>> {
        Box::pin(async move {
            let row = self.shared.row(keys::heads().key(key)).await?;
            match row.as_deref().and_then(rows::read::<Head>) {
                None => Err(self.shared.no_run(key).await),
                Some(Head::Active(id)) => Ok(self.handle(key, id)),
                Some(Head::Finished(finished)) => Ok(self.handle(key, finished.run)),
            }
        })
    }

    pub(crate) fn handle(&self, key: &str, id: RunId) -> Handle {
        Handle::new(self.shared.clone(), key.to_owned(), id)
    }

    /// A flow's own rows, which its transactional tasks write, and its outbox.
    pub fn flow_rows(&self, flow: &str) -> crate::task::FlowRows {
        crate::task::FlowRows::new(self.shared.clone(), flow)
    }

    /// Waits until the store has no space for the outputs of steps; returns its error. Such steps are given back and
    /// retried, in vain until an operator frees space: a caller that would rather stop learns it here.
    pub fn until_store_full(&self) -> BoxFuture<'_, String> {
        Box::pin(async move {
            match &self.worker {
                Some(worker) => worker.full().await,
                None => std::future::pending().await,
            }
        })
    }
}
