//! Turns a request to start into a run: checks its inputs, then begins a run, continues the one of its key, or gives it a new
//! plan.

use super::{
    Engine, Request, Start,
    again::retry_failed,
    damage::{is_done, stands_for_damage},
    fork::rename_classes,
    inputs,
    not_undone::FailedUndos,
    planning::Planning,
    preview,
    reasons::write_reasons,
    replan,
    reruns::no_reruns,
    settings::take_up_settings,
    start::{Terms, check_key},
};
use crate::{
    Error, Handle,
    runs::Run,
    shared::{Shared, lock},
};
use onceflow_core::{
    Row,
    model::Program,
    protocol::{
        draft::Draft,
        ids::{Generation, RunId},
        keys::{self, Keys},
        rows::{self, Finished, Frame, Head, Header, Held, Phase, RunState, Shape, Status},
        run,
    },
};
use onceflow_store::values::{self, ValueChange};
use std::sync::{Arc, Mutex};

/// A start whose inputs were checked, too, ready to be compared with the run of its key.
pub(super) struct CheckedStart {
    /// The name of the flow.
    pub(super) flow: String,
    pub(super) program: Arc<Program>,
    pub(super) request: Arc<Request>,
    pub(super) inputs: inputs::Inputs,
    /// The inputs as they are stored; `None` until a run needs them stored.
    pub(super) stored: Mutex<Option<Arc<inputs::Stored>>>,
    pub(super) terms: Terms,
}

impl Engine {
    /// Starts a run whose flow and inputs were checked, with the plan of a preview if there is one.
    pub(super) async fn start_asked(
        &self,
        asked: CheckedStart,
        mut previewed: Option<preview::PreviewedPlan>,
    ) -> Result<Handle, Error> {
        if self.shared.signals.is_closed() {
            return Err(Error::Closed);
        }
        if let Some((name, _)) = asked.terms.assumed.first() {
            return Err(Error::Inputs(format!("input `{name}` is not given, and nothing starts without it")));
        }
        let starting = Starting::new(self, &asked);
        let answer = loop {
            // A plan that was refused because something changed is not tried again.
            match starting.try_start(previewed.take()).await {
                Ok(None) => {}
                Ok(Some(handle)) => break Ok(handle.of(&asked)),
                Err(error) => break Err(error),
            }
        };
        // A refusal, too, is returned only when the rows it rests on are durable: the run goes on as it was, and must
        // not be found frozen later.
        if !matches!(answer, Err(Error::Store(_))) {
            self.shared.records.durable(self.shared.records.position()).await?;
        }
        answer
    }

    pub(super) async fn ask(&self, mut start: Start) -> Result<CheckedStart, Error> {
        check_key(&start.key)?;
        let inputs = inputs::take(&start.flow.identity().inputs, &mut start.inputs, &start.assumed).await?;
        inputs.note_sources(&self.shared.values);
        let asked = CheckedStart::of(start, inputs);
        if let Some(worker) = &self.worker {
            worker.capacity.learn(asked.program.tasks.iter().map(|task| task.class.clone()));
        }
        Ok(asked)
    }

    /// An id that no other run has.
    pub(super) fn new_run(&self) -> RunId {
        let random = self.shared.world.random().to_be_bytes();
        RunId(*random.first_chunk().expect("sixteen bytes are more than eight"))
    }
}

/// A checked start, on its way to a run.
pub(super) struct Starting<'a> {
    pub(super) engine: &'a Engine,
    pub(super) shared: &'a Shared,
    pub(super) asked: &'a CheckedStart,
}

impl<'a> Starting<'a> {
    pub(super) fn new(engine: &'a Engine, asked: &'a CheckedStart) -> Self {
        Starting { engine, shared: &engine.shared, asked }
    }

    pub(super) fn planning(&self) -> Planning<'a> {
        Planning { shared: self.shared, asked: self.asked }
    }

    pub(super) fn handle(&self, id: RunId) -> Handle {
        self.engine.handle(&self.asked.terms.key, id)
    }

    /// Stores the inputs for a run that begins, once.
    pub(super) async fn stored(&self) -> Result<Arc<inputs::Stored>, Error> {
        let known = lock(&self.asked.stored).clone();
        if let Some(stored) = known {
            return Ok(stored);
        }
        let stored = Arc::new(self.asked.inputs.store(&self.shared.values).await?);
        *lock(&self.asked.stored) = Some(stored.clone());
        Ok(stored)
    }

    /// Commits the batch that begins a run. `None` if a required row has changed, or a value that the batch refers to
    /// is gone: then the inputs are stored again.
    pub(super) async fn commit_beginning(
        &self,
        draft: Draft<'_>,
        changes: &[ValueChange],
    ) -> Result<Option<onceflow_store::Position>, Error> {
        match self.shared.commit_outside(draft, changes).await {
            Err(Error::Values(
                values::Error::Missing { .. } | values::Error::LeaseLost { .. } | values::Error::UploadLost { .. },
            )) => {}
            committed => return Ok(committed?.applied()),
        }
        lock(&self.asked.stored).take();
        Ok(None)
    }

    /// Starts, continues or replans the run as the head row of its key requires. `None` if that row changed in between.
    pub(super) async fn try_start(&self, previewed: Option<preview::PreviewedPlan>) -> Result<Option<Handle>, Error> {
        let key = &self.asked.terms.key;
        self.is_wanted().await?;
        let seen = self.shared.row(keys::heads().key(key)).await?;
        let previewed = previewed.filter(|previewed| previewed.head == seen);
        let head = match seen.as_deref() {
            None => None,
            Some(row) => {
                Some(rows::read::<Head>(row).ok_or_else(|| Error::damaged(format!("the row of run `{key}`")))?)
            }
        };
        match head {
            None => {
                self.in_time().await?;
                let planned = replan::first(self.asked, self.planning().fuses());
                self.begin(seen, self.engine.new_run(), Generation(0), planned).await
            }
            Some(Head::Active(id)) => self.go_on(id, previewed).await,
            Some(Head::Finished(finished)) => self.again(seen, *finished, previewed).await,
        }
    }

    /// Fails if the start was first tried longer ago than its history is kept: the run may have ended and been removed
    /// since.
    pub(super) async fn in_time(&self) -> Result<(), Error> {
        let terms = &self.asked.terms;
        let Some(first_tried) = terms.first_tried else { return Ok(()) };
        let ago_ms = self.shared.records.now().await?.ms_since(first_tried);
        if ago_ms < terms.history_ms {
            return Ok(());
        }
        Err(Error::TooLate { key: terms.key.clone(), ago_ms, history_ms: terms.history_ms })
    }

    /// Fails if a row is gone that is there as long as the start is wanted.
    async fn is_wanted(&self) -> Result<(), Error> {
        let Terms { key, while_there, .. } = &self.asked.terms;
        for row in while_there {
            if self.shared.row(row.clone()).await?.is_none() {
                return Err(Error::Unwanted { key: key.clone() });
            }
        }
        Ok(())
    }

    /// Begins a new run, or another generation of a finished one.
    pub(super) async fn begin(
        &self,
        seen: Option<Row>,
        id: RunId,
        generation: Generation,
        planned: replan::PlannedRun,
    ) -> Result<Option<Handle>, Error> {
        let shared = self.shared;
        let inputs = self.stored().await?;
        let mut changes = inputs.changes.clone();
        let header = self.header(&planned, &mut changes).await?;
        let frame = root_frame(self.asked, &inputs, planned.reused);
        let plan = shared.runs.plan(Keys::new(id, generation), planned.program);
        let replaced = seen.as_deref().and_then(rows::read::<Head>);
        let run = Run::new(plan, header, RunState::begins(generation));
        let mut draft = run::start(&run.plan, &run.header, &frame, seen);
        if let Some(Head::Finished(replaced)) = replaced {
            run::supersede(&mut draft.batch, &replaced, run.header.started);
        }
        write_reasons(self.shared, &mut draft.batch, (id, generation), (&planned.explanation, planned.is_partial))
            .await?;
        for key in planned.while_there.into_iter().chain(self.asked.terms.while_there.iter().cloned()) {
            draft.batch.require_present(key);
        }
        // Held until the start is published, so that no event of the run comes before it.
        let _order = shared.events.order_if_wanted().await;
        // The id of a first generation is new. It is cached before its steps are ready, so that a worker that claims one
        // at once does not read the program again.
        let is_first = generation == Generation(0);
        if is_first {
            shared.runs.cache(&run);
        }
        let position = match self.commit_beginning(draft, &changes).await {
            Ok(Some(position)) => position,
            not_begun => {
                if is_first {
                    shared.runs.forget(id);
                }
                return not_begun.map(|_| None);
            }
        };
        shared.signals.due.notify_one();
        if !is_first {
            shared.runs.cache(&run);
        }
        let what = crate::events::EventKind::DidStart { generation: generation.0 };
        shared.events.tell(position, &run, what);
        Ok(Some(self.handle(id)))
    }

    pub(super) async fn header(
        &self,
        planned: &replan::PlannedRun,
        changes: &mut Vec<ValueChange>,
    ) -> Result<Header, Error> {
        let terms = &self.asked.terms;
        let bytes = rows::bytes(&*planned.program);
        let (change, stored) = self.shared.values.put_bytes(bytes).await?;
        changes.push(change);
        Ok(Header {
            key: terms.key.clone(),
            flow: self.asked.flow.clone(),
            program: stored,
            full: self.full(planned, changes).await?,
            asked: self.asked.request.digest,
            inputs: self.asked.request.inputs.clone(),
            requested: self.asked.request.outputs.clone(),
            finish_independent: terms.finish_independent,
            keep_ms: terms.keep_ms,
            history_ms: terms.history_ms,
            started: self.shared.records.now().await?,
            done_before: planned.done_before.iter().copied().collect(),
        })
    }

    /// Continues an active run as it is, or with a new plan.
    pub(super) async fn go_on(
        &self,
        id: RunId,
        previewed: Option<preview::PreviewedPlan>,
    ) -> Result<Option<Handle>, Error> {
        let Some(run) = self.shared.runs.read_run(id).await? else { return Ok(None) };
        if let Phase::NotUndone { .. } = run.state().phase {
            return Err(FailedUndos::of(self.shared, &run).error().await?);
        }
        if !self.asked.is(&run.header) || run.state().phase == Phase::Frozen {
            return self.replan(&run, previewed).await;
        }
        if run.state().phase.expires() {
            return self.until_gone(id).await;
        }
        if !take_up_settings(self.shared, self.asked, &run).await? {
            return Ok(None);
        }
        if run.state().phase.is_failed() {
            if stands_for_damage(self.shared.rows_of(&run.plan.keys)).await? {
                return self.replan(&run, previewed).await;
            }
            retry_failed(self.shared, &run, None).await?;
        }
        Ok(Some(self.handle(id)))
    }

    /// Waits for a worker to remove a run whose history has ended; then the start is tried again and begins another
    /// run. Removal takes a worker little time.
    pub(super) async fn until_gone(&self, id: RunId) -> Result<Option<Handle>, Error> {
        const LOOK_MS: u64 = 100;
        if self.engine.worker.as_ref().is_none_or(|worker| worker.is_stopping()) {
            return Err(Error::Busy { key: self.asked.terms.key.clone() });
        }
        let progress = std::pin::pin!(self.shared.signals.progress(id).notified());
        futures_util::future::select(progress, self.shared.world.sleep(LOOK_MS)).await;
        Ok(None)
    }

    /// Handles the start of a finished run: it answers with its outputs, or begins another generation.
    pub(super) async fn again(
        &self,
        seen: Option<Row>,
        finished: Finished,
        previewed: Option<preview::PreviewedPlan>,
    ) -> Result<Option<Handle>, Error> {
        let generation = Generation(finished.generation.0 + 1);
        match finished.status {
            Status::Done if is_done(&self.shared.values, self.asked, &finished).await? => {
                Ok(Some(self.handle(finished.run)))
            }
            // The effects of an undone run are gone, whatever it kept: this is another run.
            Status::Failed { .. } | Status::Cancelled { .. } => {
                let planned = replan::first(self.asked, self.planning().fuses());
                self.begin(seen, self.engine.new_run(), Generation(0), planned).await
            }
            Status::Done => {
                // The batch that begins the generation requires the row of the key, and the rows of reused values.
                let planned = match previewed {
                    Some(previewed) => previewed.planned,
                    None => self.planning().plan_again(&finished).await?.planned,
                };
                no_reruns(self.asked, &planned)?;
                self.begin(seen, finished.run, generation, planned).await
            }
        }
    }
}

impl CheckedStart {
    /// A start with these inputs: its flow's program, with the classes of the start.
    pub(super) fn of(start: Start, inputs: inputs::Inputs) -> Self {
        let (flow, mut program) = (&start.flow, start.flow.program().clone());
        if !start.classes.is_empty() {
            rename_classes(Arc::make_mut(&mut program), &start.classes);
        }
        let request = Request::new(flow.identity().digest, &inputs, flow.requested());
        CheckedStart::new((flow.name().to_owned(), program), request, inputs, Terms::asked(&start))
    }

    /// A start of a flow's program.
    pub(super) fn new(
        (flow, program): (String, Arc<Program>),
        request: Request,
        inputs: inputs::Inputs,
        terms: Terms,
    ) -> Self {
        CheckedStart { flow, program, request: Arc::new(request), inputs, stored: Mutex::default(), terms }
    }

    /// The run was started with the same flow, inputs and requested outputs.
    pub(super) fn is(&self, header: &Header) -> bool {
        self.request.is_of(header)
    }
}

impl Handle {
    /// Binds the handle to this request: it answers for no other.
    pub(super) fn of(self, asked: &CheckedStart) -> Self {
        let end = asked.terms.ends_with_handle.then(|| Arc::new(self.end()));
        Handle { request: Some(asked.request.clone()), end, ..self }
    }
}

/// The root frame of a run: its inputs, and the values it reuses.
pub(super) fn root_frame(asked: &CheckedStart, stored: &inputs::Stored, reused: Vec<Held>) -> Frame {
    let reused = reused.into_iter().map(|held| asked.inputs.settled(held, stored));
    let inputs = stored.held.iter().cloned().chain(reused).map(Some).collect();
    Frame { block: 0, opened_by: None, depth: 0, guarded: false, shape: Shape::Run, inputs, memo: None }
}
