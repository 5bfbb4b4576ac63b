//! Starts runs, and gives handles to those that are there. What others wait for is in boxes, so that it is compiled here,
//! once (decision 0020).

mod again;
pub(crate) mod attend;
mod claims;
mod closing;
mod damage;
mod done;
mod elements;
mod explain;
mod finished;
mod forget;
mod fork;
mod fsck;
mod inputs;
mod inside;
mod keyless;
mod known;
mod live;
mod moves;
mod not_undone;
mod outline;
mod reasons;
mod record;
mod replan;
pub(crate) mod reruns;
mod start;
mod started;
pub(crate) mod summary;
mod superseded;
mod transfer;
mod usage;
pub(crate) mod workers;

pub use again::{Signature, UndecidedStep};
pub use attend::Attendant;
pub use elements::{EachProgress, RunProgress};
pub use fork::Fork;
pub(crate) use keyless::HistoryEnd;
pub use keyless::KEYLESS_HISTORY_MS;
pub use moves::Move;
pub use outline::Outline;
pub use reasons::{PLANS_MAX, Reasons};
pub use record::{EachBody, Origin, Record, StepRecord};
pub(crate) use start::Request;
pub use start::{HISTORY_MS, Start};
pub use started::StartedStep;
pub use transfer::{ExportedRun, ImportOptions};
pub use usage::{RunUsage, Usage, UsageKind, UsagePart};

use crate::{
    Error, Handle, Options,
    events::Event,
    shared::{Shared, lock},
    task::Tasks,
    worker::Worker,
};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Digest, Row,
    model::{Program, check_within},
    protocol::{
        draft::Draft,
        ids::{Generation, RunId},
        keys::{self, Keys},
        rows::{self, Finished, Frame, Head, Header, Held, Phase, Shape, State, Status},
        run,
    },
};
use onceflow_store::{
    Records, Store, World,
    values::{self, ValueChange, Values},
    world::RealWorld,
};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// Runs flows on a store: starts them, works on them, answers for them. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    worker: Option<Arc<Worker>>,
}

/// What was asked for, ready to be compared with what is there.
struct CheckedStart {
    program: Arc<Program>,
    digest: Digest,
    inputs: inputs::Inputs,
    /// The inputs as they are stored, once that was necessary.
    stored: Mutex<Option<Arc<inputs::Stored>>>,
    start: Start,
}

impl Engine {
    /// An engine on a store in a directory.
    ///
    /// # Errors
    /// If the directory of large values cannot be made.
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
        shared.world.spawn("onceflow events", Box::pin(shared.events.run(shared.records.clone())));
        let worker = works.then(|| Worker::start(shared.clone()));
        if works {
            shared.world.spawn("onceflow housekeeping", Box::pin(shared.clone().keep_house()));
            shared.world.spawn("onceflow reclaim", Box::pin(shared.clone().reclaim()));
        }
        Engine { shared, worker }
    }

    /// Lets this engine run these tasks. Adding the same again does nothing.
    ///
    /// # Errors
    /// [`Error::Tasks`] if it has a different task of the same name and version, [`Error::Resource`] if it works and lacks
    /// something that a task takes; none of these is added then.
    pub fn add_tasks(&self, tasks: &Tasks) -> Result<(), Error> {
        if self.shared.is_closed() {
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
            // Steps may wait for just these.
            worker.capacity.ring();
        }
        Ok(())
    }

    /// Takes steps from now on, if it was opened to wait ([`Options::waits`]).
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

    /// What happens from now on, in all runs this engine works on.
    pub fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        self.shared.events.listen()
    }

    /// Starts a run, or finds it: the same key is the same run. One that failed goes on where it failed; one that is
    /// done answers what it gave. Durable when it returns.
    ///
    /// # Errors
    /// If the flow does not check, the inputs are not its own, or the store does not answer.
    pub fn start(&self, start: Start) -> BoxFuture<'_, Result<Handle, Error>> {
        Box::pin(async move {
            if self.shared.is_closed() {
                return Err(Error::Closed);
            }
            if let Some((name, _)) = start.assumed.first() {
                return Err(Error::Inputs(format!("input `{name}` is not given, and nothing starts without it")));
            }
            let asked = self.ask(start).await?;
            let answer = loop {
                match self.try_start(&asked).await {
                    Ok(None) => {}
                    Ok(Some(handle)) => break Ok(handle.of(&asked)),
                    Err(error) => break Err(error),
                }
            };
            // Also what is refused is told only when what it rests on will last: the run goes on as it was, and must not be
            // found frozen later.
            if !matches!(answer, Err(Error::Store(_))) {
                self.shared.records.durable(self.shared.records.position()).await?;
            }
            answer
        })
    }

    /// The program of what is asked for.
    fn check(&self, start: &Start) -> Result<Program, Error> {
        let most = self.shared.options.graph_modules_max;
        Ok(check_within(most, &start.library, &start.flow, start.outputs.as_deref())?)
    }

    async fn ask(&self, mut start: Start) -> Result<CheckedStart, Error> {
        start.check_key()?;
        let program = self.check(&start)?;
        let digest = program.blocks[0].digest;
        if let Some(worker) = &self.worker {
            worker.capacity.learn(program.tasks.iter().map(|task| task.class.clone()));
        }
        let inputs = inputs::take(program.identity().inputs, &mut start.inputs, &start.assumed).await?;
        inputs.note_sources(&self.shared.values);
        Ok(CheckedStart { program: Arc::new(program), digest, inputs, stored: Mutex::default(), start })
    }

    /// The inputs in the store, for a run that begins.
    async fn stored(&self, asked: &CheckedStart) -> Result<Arc<inputs::Stored>, Error> {
        let known = lock(&asked.stored).clone();
        if let Some(stored) = known {
            return Ok(stored);
        }
        let stored = Arc::new(asked.inputs.store(&self.shared.values).await?);
        *lock(&asked.stored) = Some(stored.clone());
        Ok(stored)
    }

    /// Commits what begins a run. `None` if something has changed: also if a value that was there has gone, so that the
    /// inputs are stored again.
    async fn commit_beginning(
        &self,
        asked: &CheckedStart,
        draft: Draft<'_>,
        changes: &[ValueChange],
    ) -> Result<Option<onceflow_store::Committed>, Error> {
        match self.shared.commit_outside(draft, changes).await {
            Err(Error::Values(
                values::Error::Missing { .. } | values::Error::LeaseLost { .. } | values::Error::UploadLost { .. },
            )) => {}
            committed => return Ok(committed?.applied()),
        }
        lock(&asked.stored).take();
        Ok(None)
    }

    /// Does what the key's row, as it is now, asks for. `None` if it changed meanwhile.
    async fn try_start(&self, asked: &CheckedStart) -> Result<Option<Handle>, Error> {
        let key = &asked.start.key;
        let seen = self.shared.row(keys::heads().key(key)).await?;
        let head = match seen.as_deref() {
            None => None,
            Some(row) => {
                Some(rows::read::<Head>(row).ok_or_else(|| Error::damaged(format!("the row of run `{key}`")))?)
            }
        };
        match head {
            None => {
                self.in_time(&asked.start).await?;
                let planned = replan::first(asked, self.fuses(asked));
                self.begin(asked, seen, self.new_run(), Generation(0), planned).await
            }
            Some(Head::Active(id)) => self.go_on(asked, id).await,
            Some(Head::Finished(finished)) => self.again(asked, seen, *finished).await,
        }
    }

    fn new_run(&self) -> RunId {
        let random = self.shared.world.random().to_be_bytes();
        RunId(*random.first_chunk().expect("sixteen bytes are more than eight"))
    }

    /// A start that was first tried longer ago than runs are remembered may have run already.
    async fn in_time(&self, start: &Start) -> Result<(), Error> {
        let Some(first_tried) = start.first_tried else { return Ok(()) };
        let ago_ms = self.shared.records.now().await?.ms_since(first_tried);
        if ago_ms < start.history_ms {
            return Ok(());
        }
        Err(Error::TooLate { key: start.key.clone(), ago_ms, history_ms: start.history_ms })
    }

    /// A new run, or a new life of an old one.
    async fn begin(
        &self,
        asked: &CheckedStart,
        seen: Option<Row>,
        id: RunId,
        generation: Generation,
        planned: replan::PlannedRun,
    ) -> Result<Option<Handle>, Error> {
        let shared = &self.shared;
        let inputs = self.stored(asked).await?;
        let mut changes = inputs.changes.clone();
        let header = self.header(asked, &planned, &mut changes).await?;
        let frame = root_frame(asked, &inputs, planned.reused);
        let plan = shared.plan(Keys::new(id, generation), planned.program);
        let replaced = seen.as_deref().and_then(rows::read::<Head>);
        let mut draft = run::start(&plan, &header, &frame, seen);
        if let Some(Head::Finished(replaced)) = replaced {
            run::supersede(&mut draft.batch, &replaced, header.started);
        }
        self.write_reasons(&mut draft.batch, (id, generation), (&planned.explanation, planned.is_partial)).await?;
        for key in planned.while_there {
            draft.batch.require_present(key);
        }
        // Held until it is told, so that nothing is told before.
        let _order = shared.events.order_if_wanted().await;
        let Some(committed) = self.commit_beginning(asked, draft, &changes).await? else { return Ok(None) };
        shared.due.notify_one();
        let run = shared.remember(plan, header, State { generation, phase: Phase::Running });
        let what = crate::events::EventKind::DidStart { generation: generation.0 };
        shared.events.tell(committed.position, Event { run: run.key.clone(), kind: what });
        Ok(Some(self.handle(&asked.start.key, id)))
    }

    async fn header(
        &self,
        asked: &CheckedStart,
        planned: &replan::PlannedRun,
        changes: &mut Vec<ValueChange>,
    ) -> Result<Header, Error> {
        let start = &asked.start;
        let bytes = rows::bytes(&*planned.program);
        let (change, stored) = self.shared.values.put_bytes(bytes).await?;
        changes.push(change);
        Ok(Header {
            key: start.key.clone(),
            flow: start.flow.clone(),
            program: stored,
            full: self.full(asked, planned, changes).await?,
            asked: asked.digest,
            inputs: asked.inputs.digests(),
            requested: start.outputs.clone(),
            finish_independent: start.finish_independent,
            keep_ms: start.keep_ms,
            history_ms: start.history_ms,
            started: self.shared.records.now().await?,
            done_before: planned.done_before.iter().copied().collect(),
        })
    }

    /// The run is there: it goes on as it is, or with a new plan.
    async fn go_on(&self, asked: &CheckedStart, id: RunId) -> Result<Option<Handle>, Error> {
        let Some(run) = self.shared.read_run(id).await? else { return Ok(None) };
        if let Phase::NotUndone { .. } = run.state().phase {
            return Err(self.shared.not_undone(&run).await?);
        }
        if !asked.is(&run.header) || run.state().phase == Phase::Frozen {
            return self.replan(asked, &run).await;
        }
        if run.state().phase.expires() {
            return self.until_gone(asked, id).await;
        }
        if run.state().phase.is_failed() {
            if self.shared.stands_for_damage(&run).await? {
                return self.replan(asked, &run).await;
            }
            self.retry(&run).await?;
        }
        Ok(Some(self.handle(&asked.start.key, id)))
    }

    /// The history of the run has ended, and it goes: then this is another run. It takes a worker little time.
    async fn until_gone(&self, asked: &CheckedStart, id: RunId) -> Result<Option<Handle>, Error> {
        const LOOK_MS: u64 = 100;
        if self.worker.as_ref().is_none_or(|worker| worker.is_stopping()) {
            return Err(Error::Busy { key: asked.start.key.clone() });
        }
        let progress = std::pin::pin!(self.shared.progress(id).notified());
        futures_util::future::select(progress, self.shared.world.sleep(LOOK_MS)).await;
        Ok(None)
    }

    /// The run has ended: it answers what it gave, or lives again.
    async fn again(
        &self,
        asked: &CheckedStart,
        seen: Option<Row>,
        finished: Finished,
    ) -> Result<Option<Handle>, Error> {
        let generation = Generation(finished.generation.0 + 1);
        match finished.status {
            Status::Done if self.shared.is_done(asked, &finished).await? => {
                Ok(Some(self.handle(&asked.start.key, finished.run)))
            }
            // What was undone is not there any more, whatever was kept: this is another run.
            Status::Failed { .. } | Status::Cancelled { .. } => {
                let planned = replan::first(asked, self.fuses(asked));
                self.begin(asked, seen, self.new_run(), Generation(0), planned).await
            }
            Status::Done => {
                let planned = self.plan_again(asked, &finished).await?;
                self.begin(asked, seen, finished.run, generation, planned).await
            }
        }
    }

    /// What a finished run has kept that is right for what is asked, and what it was for.
    async fn kept_by(
        &self,
        asked: &CheckedStart,
        finished: &Finished,
    ) -> Result<(known::KnownValues, Option<known::PreviousPlan>), Error> {
        let before = self.shared.before(&finished.header).await?;
        let mut known = match &before {
            // CheckedStart for the same again, because some of what it gave is damaged: the rest is right as it is.
            Some(before) if finished.status == Status::Done && asked.is(&finished.header) => {
                known::still_right(known::given_out(before, &finished.outputs), before, asked)
            }
            _ => known::KnownValues::new(),
        };
        if finished.header.keep_ms.is_some() {
            let keys = Keys::new(finished.run, finished.generation);
            known.extend(self.shared.kept(&keys, asked).await?);
        }
        Ok((known, before))
    }

    /// A run that was started.
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

    /// The rows of a flow's own, which its transactional tasks write, and its outbox.
    pub fn flow_rows(&self, flow: &str) -> crate::task::FlowRows {
        crate::task::FlowRows::new(self.shared.clone(), flow)
    }

    /// Waits until the store has no room for what steps gave; what it said. Such steps are given back and tried again, which
    /// is in vain until somebody makes room: whoever would rather stop learns it here.
    pub fn until_store_full(&self) -> BoxFuture<'_, String> {
        Box::pin(async move {
            match &self.worker {
                Some(worker) => worker.full().await,
                None => std::future::pending().await,
            }
        })
    }
}

impl CheckedStart {
    /// Whether a run is for the same.
    fn is(&self, header: &Header) -> bool {
        self.start.is_of(header, &self.digest, &self.inputs)
    }
}

impl Handle {
    /// The handle of who asked for this: it answers for nothing else.
    fn of(self, asked: &CheckedStart) -> Self {
        let Start { outputs, ends_with_handle, .. } = &asked.start;
        let request = Request { digest: asked.digest, inputs: asked.inputs.digests(), outputs: outputs.clone() };
        let end = ends_with_handle.then(|| Arc::new(self.end()));
        Handle { request: Some(Arc::new(request)), end, ..self }
    }
}

/// The frame of a run: its inputs, and what is reused.
fn root_frame(asked: &CheckedStart, stored: &inputs::Stored, reused: Vec<Held>) -> Frame {
    let reused = reused.into_iter().map(|held| asked.inputs.settled(held, stored));
    let inputs = stored.held.iter().cloned().chain(reused).map(Some).collect();
    Frame { block: 0, opened_by: None, depth: 0, guarded: false, shape: Shape::Run, inputs, memo: None }
}
