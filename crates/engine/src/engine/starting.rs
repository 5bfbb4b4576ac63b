//! Turns a request to start into a run: checks it, then begins a run, continues the one of its key, or gives it a new
//! plan.

use super::{Engine, Request, Start, inputs, known, preview, replan};
use crate::{Error, Handle, shared::lock};
use onceflow_core::{
    Digest, Row,
    model::{Program, check_within},
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

/// A start whose flow and inputs were checked, ready to be compared with the run of its key.
pub(super) struct CheckedStart {
    pub(super) program: Arc<Program>,
    pub(super) digest: Digest,
    pub(super) inputs: inputs::Inputs,
    /// The inputs as they are stored; `None` until a run needs them stored.
    pub(super) stored: Mutex<Option<Arc<inputs::Stored>>>,
    pub(super) start: Start,
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
        if let Some((name, _)) = asked.start.assumed.first() {
            return Err(Error::Inputs(format!("input `{name}` is not given, and nothing starts without it")));
        }
        let answer = loop {
            // A plan that was refused because something changed is not tried again.
            match self.try_start(&asked, previewed.take()).await {
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

    /// Checks the flow of a start; returns its program for the requested outputs.
    pub(super) fn check(&self, start: &Start) -> Result<Program, Error> {
        let most = self.shared.options.graph_modules_max;
        Ok(check_within(most, &start.library, &start.flow, start.outputs.as_deref())?)
    }

    pub(super) async fn ask(&self, mut start: Start) -> Result<CheckedStart, Error> {
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

    /// Stores the inputs for a run that begins, once.
    pub(super) async fn stored(&self, asked: &CheckedStart) -> Result<Arc<inputs::Stored>, Error> {
        let known = lock(&asked.stored).clone();
        if let Some(stored) = known {
            return Ok(stored);
        }
        let stored = Arc::new(asked.inputs.store(&self.shared.values).await?);
        *lock(&asked.stored) = Some(stored.clone());
        Ok(stored)
    }

    /// Commits the batch that begins a run. `None` if a required row has changed, or a value that the batch refers to
    /// is gone: then the inputs are stored again.
    pub(super) async fn commit_beginning(
        &self,
        asked: &CheckedStart,
        draft: Draft<'_>,
        changes: &[ValueChange],
    ) -> Result<Option<onceflow_store::Position>, Error> {
        match self.shared.commit_outside(draft, changes).await {
            Err(Error::Values(
                values::Error::Missing { .. } | values::Error::LeaseLost { .. } | values::Error::UploadLost { .. },
            )) => {}
            committed => return Ok(committed?.applied()),
        }
        lock(&asked.stored).take();
        Ok(None)
    }

    /// Starts, continues or replans the run as the head row of its key requires. `None` if that row changed in between.
    pub(super) async fn try_start(
        &self,
        asked: &CheckedStart,
        previewed: Option<preview::PreviewedPlan>,
    ) -> Result<Option<Handle>, Error> {
        let key = &asked.start.key;
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
                self.in_time(&asked.start).await?;
                let planned = replan::first(asked, self.fuses(asked));
                self.begin(asked, seen, self.new_run(), Generation(0), planned).await
            }
            Some(Head::Active(id)) => self.go_on(asked, id, previewed).await,
            Some(Head::Finished(finished)) => self.again(asked, seen, *finished, previewed).await,
        }
    }

    pub(super) fn new_run(&self) -> RunId {
        let random = self.shared.world.random().to_be_bytes();
        RunId(*random.first_chunk().expect("sixteen bytes are more than eight"))
    }

    /// Fails if the start was first tried longer ago than its history is kept: the run may have ended and been removed
    /// since.
    pub(super) async fn in_time(&self, start: &Start) -> Result<(), Error> {
        let Some(first_tried) = start.first_tried else { return Ok(()) };
        let ago_ms = self.shared.records.now().await?.ms_since(first_tried);
        if ago_ms < start.history_ms {
            return Ok(());
        }
        Err(Error::TooLate { key: start.key.clone(), ago_ms, history_ms: start.history_ms })
    }

    /// Begins a new run, or another generation of a finished one.
    pub(super) async fn begin(
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
        let plan = shared.runs.plan(Keys::new(id, generation), planned.program);
        let replaced = seen.as_deref().and_then(rows::read::<Head>);
        let mut draft = run::start(&plan, &header, &frame, seen);
        if let Some(Head::Finished(replaced)) = replaced {
            run::supersede(&mut draft.batch, &replaced, header.started);
        }
        self.write_reasons(&mut draft.batch, (id, generation), (&planned.explanation, planned.is_partial)).await?;
        for key in planned.while_there {
            draft.batch.require_present(key);
        }
        // Held until the start is published, so that no event of the run comes before it.
        let _order = shared.events.order_if_wanted().await;
        let Some(position) = self.commit_beginning(asked, draft, &changes).await? else { return Ok(None) };
        shared.signals.due.notify_one();
        let run = shared.runs.remember(plan, header, RunState::begins(generation));
        let what = crate::events::EventKind::DidStart { generation: generation.0 };
        shared.events.tell(position, &run, what);
        Ok(Some(self.handle(&asked.start.key, id)))
    }

    pub(super) async fn header(
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

    /// Continues an active run as it is, or with a new plan.
    pub(super) async fn go_on(
        &self,
        asked: &CheckedStart,
        id: RunId,
        previewed: Option<preview::PreviewedPlan>,
    ) -> Result<Option<Handle>, Error> {
        let Some(run) = self.shared.runs.read_run(id).await? else { return Ok(None) };
        if let Phase::NotUndone { .. } = run.state().phase {
            return Err(self.shared.not_undone(&run).await?);
        }
        if !asked.is(&run.header) || run.state().phase == Phase::Frozen {
            return self.replan(asked, &run, previewed).await;
        }
        if run.state().phase.expires() {
            return self.until_gone(asked, id).await;
        }
        if !self.take_up_settings(asked, &run).await? {
            return Ok(None);
        }
        if run.state().phase.is_failed() {
            if self.shared.stands_for_damage(&run).await? {
                return self.replan(asked, &run, previewed).await;
            }
            self.retry(&run).await?;
        }
        Ok(Some(self.handle(&asked.start.key, id)))
    }

    /// Waits for a worker to remove a run whose history has ended; then the start is tried again and begins another
    /// run. Removal takes a worker little time.
    pub(super) async fn until_gone(&self, asked: &CheckedStart, id: RunId) -> Result<Option<Handle>, Error> {
        const LOOK_MS: u64 = 100;
        if self.worker.as_ref().is_none_or(|worker| worker.is_stopping()) {
            return Err(Error::Busy { key: asked.start.key.clone() });
        }
        let progress = std::pin::pin!(self.shared.signals.progress(id).notified());
        futures_util::future::select(progress, self.shared.world.sleep(LOOK_MS)).await;
        Ok(None)
    }

    /// Handles the start of a finished run: it answers with its outputs, or begins another generation.
    pub(super) async fn again(
        &self,
        asked: &CheckedStart,
        seen: Option<Row>,
        finished: Finished,
        previewed: Option<preview::PreviewedPlan>,
    ) -> Result<Option<Handle>, Error> {
        let generation = Generation(finished.generation.0 + 1);
        match finished.status {
            Status::Done if self.shared.is_done(asked, &finished).await? => {
                Ok(Some(self.handle(&asked.start.key, finished.run)))
            }
            // The effects of an undone run are gone, whatever it kept: this is another run.
            Status::Failed { .. } | Status::Cancelled { .. } => {
                let planned = replan::first(asked, self.fuses(asked));
                self.begin(asked, seen, self.new_run(), Generation(0), planned).await
            }
            Status::Done => {
                // The batch that begins the generation requires the row of the key, and the rows of reused values.
                let planned = match previewed {
                    Some(previewed) => previewed.planned,
                    None => self.plan_again(asked, &finished).await?.planned,
                };
                self.no_reruns(asked, &planned)?;
                self.begin(asked, seen, finished.run, generation, planned).await
            }
        }
    }

    /// The values that a finished run has kept and that are valid for this start, with the plan they come from.
    pub(super) async fn kept_by(
        &self,
        asked: &CheckedStart,
        finished: &Finished,
    ) -> Result<(known::KnownValues, Option<known::PreviousPlan>), Error> {
        let before = self.shared.before(&finished.header).await?;
        let mut known = match &before {
            // The same start again, because some of the outputs are damaged: the others are valid as they are.
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
}

impl CheckedStart {
    /// The run was started with the same flow, inputs and requested outputs.
    pub(super) fn is(&self, header: &Header) -> bool {
        self.start.is_of(header, &self.digest, &self.inputs)
    }
}

impl Handle {
    /// Binds the handle to this request: it answers for no other.
    pub(super) fn of(self, asked: &CheckedStart) -> Self {
        let Start { outputs, ends_with_handle, .. } = &asked.start;
        let request = Request { digest: asked.digest, inputs: asked.inputs.digests(), outputs: outputs.clone() };
        let end = ends_with_handle.then(|| Arc::new(self.end()));
        Handle { request: Some(Arc::new(request)), end, ..self }
    }
}

/// The root frame of a run: its inputs, and the values it reuses.
pub(super) fn root_frame(asked: &CheckedStart, stored: &inputs::Stored, reused: Vec<Held>) -> Frame {
    let reused = reused.into_iter().map(|held| asked.inputs.settled(held, stored));
    let inputs = stored.held.iter().cloned().chain(reused).map(Some).collect();
    Frame { block: 0, opened_by: None, depth: 0, guarded: false, shape: Shape::Run, inputs, memo: None }
}
