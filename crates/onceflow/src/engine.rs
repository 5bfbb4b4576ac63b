//! The engine as users see it: opened in one line, typed, and stopped when its last handle is dropped.

mod events;
mod options;

pub use events::Events;
pub use options::EngineBuilder;
pub(crate) use options::ms;

use crate::{
    Error, Timestamp,
    flow::Flow,
    port::Ports,
    run::{Run, Start},
};
use onceflow_core::model::CheckedFlow;
use onceflow_engine::Options;
use onceflow_store::{Store, World, backend::memory::Memory, blobs::Objects, values::Values, world::RealWorld};
use std::{path::PathBuf, sync::Arc, task::Poll};

/// Runs flows. Cheap to clone; works until it is [closed](Engine::close), or until the last clone, and the last [`Run`]
/// it gave, is dropped.
///
/// ```
/// use onceflow::prelude::*;
///
/// #[task(effect = pure)]
/// fn square(n: u64) -> u64 {
///     n * n
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onceflow::Error> {
/// let flow = Flow::new("squares", ["numbers"], ["squares"], |f, numbers: Port<Vec<u64>>| {
///     f.each(numbers, |f, n| f.add(square(n)))
/// });
/// let engine = Engine::in_memory();
/// assert_eq!(engine.run(&flow, vec![1, 2, 3]).await?, [1, 4, 9]);
/// engine.close().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    engine: onceflow_engine::Engine,
    store: Option<Store>,
    graph_modules_max: usize,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

impl Engine {
    /// An engine on a directory, which is made if it is not there. No server: the processes of one user share the
    /// directory, and when one of them dies the others go on with its runs.
    ///
    /// Given `paged:DIR`, rows are in a file of pages, for state larger than memory; a directory that is there already is
    /// opened as what it is. Given `redis://host`, or `rediss://host` for TLS, it is an engine on a store that many machines share (feature
    /// `redis`). Name and password stand in the environment: `ONCEFLOW_REDIS_USERNAME`, `ONCEFLOW_REDIS_PASSWORD`.
    ///
    /// # Errors
    /// If the directory cannot be used, or is damaged; if the server does not answer, or can lose what it acknowledges.
    pub async fn open(store: impl Into<PathBuf>) -> Result<Engine, Error> {
        Engine::builder().open(store).await
    }

    /// An engine whose store is gone with it; for tests and examples.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn in_memory() -> Engine {
        Engine::builder().in_memory()
    }

    /// An engine with options.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    async fn on_store(place: PathBuf, mut options: Options, graph_modules_max: usize) -> Result<Engine, Error> {
        if options.works && options.about.is_none() {
            let program = std::env::current_exe().ok().and_then(|path| path.file_name().map(ToOwned::to_owned));
            let program = program.map(|name| name.to_string_lossy().into_owned());
            options.about = Some(onceflow_engine::About::this_process(program.unwrap_or_default()));
        }
        let store = Store::open_url(place).await?;
        let engine = onceflow_engine::Engine::open(&store, options).await?;
        Ok(Engine { inner: Arc::new(Inner { engine, store: Some(store), graph_modules_max }) })
    }

    fn on_memory(options: Options, graph_modules_max: usize) -> Engine {
        let world: Arc<dyn World> = RealWorld::here();
        let records = Arc::new(Memory::new(world.clone()));
        let values = Values::new(records.clone(), world.clone(), options.shard).with_blobs(Arc::new(Objects::memory()));
        let engine = onceflow_engine::Engine::new(records, Arc::new(values), world, options);
        Engine { inner: Arc::new(Inner { engine, store: None, graph_modules_max }) }
    }

    /// Starts a run of a flow, or finds it, when it is awaited: the same [key](Start::key) is the same run. One that is
    /// at work goes on, one that failed tries again what failed, one that is done answers what it gave. The run goes on
    /// whether or not a caller waits for it.
    ///
    /// Without a key it is a run of its own, however many are started at once, and nothing is left of it when it is
    /// done and its [`Run`] is dropped.
    ///
    /// ```
    /// # use onceflow::prelude::*;
    /// # #[task] fn charge(cents: u64) -> String { format!("receipt for {cents}") }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onceflow::Error> {
    /// # let flow = Flow::new("pay", ["cents"], ["receipt"], |f, cents: Port<u64>| f.add(charge(cents)));
    /// # let engine = Engine::in_memory();
    /// let run = engine.start(&flow, 1299).key("order-17").await?;
    /// let receipt = run.output(&flow.outputs()).await?;
    /// # assert_eq!(receipt, "receipt for 1299");
    /// # Ok(()) }
    /// ```
    pub fn start<I: Ports, O: Ports>(&self, flow: &Flow<I, O>, inputs: I::Values) -> Start<O> {
        Start::new(self.clone(), flow, inputs)
    }

    /// Checks a flow, unless it was checked before.
    pub(crate) fn check<I: Ports, O: Ports>(&self, flow: &Flow<I, O>) -> Result<CheckedFlow, Error> {
        let checked = flow.check_within(self.inner.graph_modules_max);
        Ok(checked.map_err(onceflow_engine::Error::from)?)
    }

    /// Starts a run of its own, waits for its result, and leaves nothing behind. For work that must survive this
    /// process, so that the same call goes on, give it a key: `engine.start(&flow,
    /// inputs).key("order-17").await?.result().await?`.
    ///
    /// # Errors
    /// As [`Engine::start`] and [`Run::result`].
    pub async fn run<I: Ports, O: Ports>(&self, flow: &Flow<I, O>, inputs: I::Values) -> Result<O::Values, Error> {
        self.start(flow, inputs).await?.result().await
    }

    /// Finds a run that was started before, by this process or another.
    ///
    /// # Errors
    /// [`NoRun`](onceflow_engine::Error::NoRun) if there is none of this key, or not any more.
    pub async fn find<I: Ports, O: Ports>(&self, flow: &Flow<I, O>, key: &str) -> Result<Run<O>, Error> {
        self.offer(flow)?;
        let handle = self.inner.engine.find(key).await?;
        Ok(Run::new(self.clone(), flow, handle))
    }

    /// Lets this engine work on runs of a flow that others started. Starting one here does it, too.
    ///
    /// # Errors
    /// If it knows a different task of the same name and version.
    pub fn offer<I: Ports, O: Ports>(&self, flow: &Flow<I, O>) -> Result<(), Error> {
        Ok(self.inner.engine.add_tasks(flow.tasks())?)
    }

    /// Takes steps, of any run whose tasks were [offered](Engine::offer) here, until the process is asked to stop
    /// (SIGTERM, Ctrl-C); then it takes no further ones, finishes those it has, and closes. All of a worker but its
    /// tasks:
    ///
    /// ```no_run
    /// # use onceflow::prelude::*;
    /// # #[task] fn charge(cents: u64) -> String { format!("receipt for {cents}") }
    /// # async fn worker() -> Result<(), onceflow::Error> {
    /// # let flow = Flow::new("pay", ["cents"], ["receipt"], |f, cents: Port<u64>| f.add(charge(cents)));
    /// let engine = Engine::open("redis://127.0.0.1").await?;
    /// engine.offer(&flow)?;
    /// engine.work().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If what was done may not last.
    pub async fn work(&self) -> Result<(), Error> {
        asked_to_stop().await;
        self.close().await
    }

    /// Lists the workers on the store, with the steps that each has now.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn workers(&self) -> Result<Vec<onceflow_engine::WorkerInfo>, Error> {
        Ok(self.inner.engine.workers().await?)
    }

    /// Streams the events of all runs that this engine works on from now on: facts, in the order of the commits of a
    /// run.
    pub fn events(&self) -> Events {
        Events::new(self.inner.engine.events())
    }

    /// The rows of a flow's own, which its transactional tasks write, and its outbox.
    pub fn rows<I: Ports, O: Ports>(&self, flow: &Flow<I, O>) -> onceflow_engine::task::FlowRows {
        self.inner.engine.flow_rows(flow.name())
    }

    /// The time on the store's clock: what a caller who may have to repeat a start gives to
    /// [`first_tried`](Start::first_tried).
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.inner.engine.now().await?)
    }

    /// Takes no further steps, ends when those in flight are done and everything is on the disk, and lets others have
    /// the directory. Runs that are not done go on when a process opens it again. Later calls are refused.
    ///
    /// # Errors
    /// If what was done may not last.
    pub async fn close(&self) -> Result<(), Error> {
        self.inner.engine.close().await?;
        if let Some(store) = &self.inner.store {
            store.close().await.map_err(onceflow_engine::Error::from)?;
        }
        Ok(())
    }

    /// The untyped engine below, for operations without a typed interface.
    pub fn untyped(&self) -> &onceflow_engine::Engine {
        &self.inner.engine
    }
}

/// Waits until the process gets a stop signal; forever where signals cannot be received.
async fn asked_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupted), Ok(mut terminated)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    std::future::poll_fn(|context| match (interrupted.poll_recv(context), terminated.poll_recv(context)) {
        (Poll::Pending, Poll::Pending) => Poll::Pending,
        _ => Poll::Ready(()),
    })
    .await;
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let directory = self.inner.store.as_ref().and_then(Store::directory);
        f.debug_struct("Engine").field("directory", &directory).finish_non_exhaustive()
    }
}
