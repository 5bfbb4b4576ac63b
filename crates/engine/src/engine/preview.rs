//! Previews a start, a fork or a retry: one call that answers, from one read of the store, what would be reused and
//! run, what is undecided or would be undone, and why it would be refused. [`Engine::start_previewed`] installs the plan
//! of a preview, if what the plan rests on still stands; else it plans again.

use super::{
    CheckedStart, EachProgress, Engine, Fork, Start, StartedStep, UndecidedStep,
    damage::is_done,
    elements::each_progress,
    explain::explain_inside,
    facts::Facts,
    fork::{Forking, PlannedFork},
    inputs::Inputs,
    known::{KnownValues, PreviousPlan},
    live::Live,
    not_undone::FailedUndos,
    planning::Planning,
    replan::{PlannedFrom, PlannedRun},
    reruns::no_reruns,
    settings::settings_for,
    started::StartedSteps,
    summary::Summary,
};
use crate::{Error, Handle, RunStatus, data, runs::Run, shared::Shared};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Row,
    model::{Library, Port, Type},
    payload::Outcome,
    plan::{Explanation, explain::all_done},
    protocol::{
        ids::{FrameId, Generation},
        keys::{self, Keys},
        rows::{self, Head, Phase, Status},
    },
};
use std::sync::{Arc, Mutex};

/// An action on a run, to be previewed.
#[derive(Clone, Debug)]
pub enum Intent {
    /// [`Engine::start`].
    Start(Box<Start>),
    /// Starting an unfinished run with this flow and the run's own inputs; the inputs of the start are used only where
    /// the run has none. Can be previewed, not started.
    Move(Box<Start>),
    /// Continuing an unfinished run of this key as it is: [`Handle::retry`].
    Retry(String),
    /// [`Engine::fork`] of the run of this key.
    Fork(String, Fork),
}

impl From<Start> for Intent {
    fn from(start: Start) -> Self {
        Intent::Start(Box::new(start))
    }
}

/// The effects that an action would have. Nothing has changed yet. For a run that is at work it is an estimate: the run goes on
/// meanwhile.
pub struct Preview {
    /// The run of the key, as it stands; `None` if there is none.
    pub run: Option<Summary>,
    /// The run was started with the same flow, inputs and requested outputs; `None` if there is no run.
    pub is_same: Option<bool>,
    /// Every step that is reused, run or skipped, and why; damaged values are computed again. For runs with `keep`,
    /// inside loops, eaches, choices and calls too, as far as their values are known.
    pub explanation: Explanation,
    /// The error with which the action would be refused.
    pub refused: Option<Error>,
    /// The addresses of steps that have another retry, timeout, class or resources in an unfinished run, which the run
    /// takes up though nothing else changed.
    pub taken_up: Vec<String>,
    /// The changed policy after a failure, which the run takes up: steps that do not depend on it continue, or stop.
    pub finish_independent: Option<bool>,
    /// The addresses of steps with changed settings that the run would not take up.
    pub ignored: Vec<String>,
    /// The steps that would be undone if the run was cancelled, or that are being undone, the last first.
    pub undos: Vec<String>,
    /// Parked steps whose outcome an operator or an event must report.
    pub undecided: Vec<UndecidedStep>,
    /// At-most-once steps that were started and have reported no outcome.
    pub started: Vec<StartedStep>,
    /// The eaches of the run that have begun and have not ended.
    pub eaches: Vec<EachProgress>,
    action: Option<PreviewedAction>,
}

/// The action of a preview, with its plan.
enum PreviewedAction {
    Start(Box<CheckedStart>, Option<PreviewedPlan>),
    Fork(String, Fork, Box<PlannedFork>),
}

/// A plan that was previewed, and what it rests on.
pub(super) struct PreviewedPlan {
    /// The row of the run's key.
    pub(super) head: Option<Row>,
    /// The facts about an unfinished run; `None` if there was none.
    pub(super) facts: Option<Facts>,
    pub(super) planned: PlannedRun,
}

impl Engine {
    /// Previews an action: answers everything that a caller asks before it. Changes nothing.
    ///
    /// # Errors
    /// If the flow does not pass its checks, the inputs do not match it, a run that the action needs does not exist, or
    /// the store does not answer.
    pub fn preview(&self, intent: impl Into<Intent>) -> BoxFuture<'_, Result<Preview, Error>> {
        let intent = intent.into();
        Box::pin(async move {
            match intent {
                Intent::Start(start) => {
                    let asked = self.ask(*start).await?;
                    let (mut preview, plan) = Previewing::new(self, &asked).preview().await?;
                    preview.action = Some(PreviewedAction::Start(Box::new(asked), plan));
                    Ok(preview)
                }
                Intent::Move(start) => {
                    let run = self.unfinished(&start.key).await?;
                    let asked = self.ask_with_its_own(*start, &run).await?;
                    Ok(Previewing::new(self, &asked).preview().await?.0)
                }
                Intent::Retry(key) => {
                    let run = self.unfinished(&key).await?;
                    let asked = self.ask_the_same(&run).await?;
                    Ok(Previewing::new(self, &asked).preview().await?.0)
                }
                Intent::Fork(from, fork) => {
                    let planned =
                        Forking { engine: self, shared: &self.shared, from: &from, fork: &fork }.plan().await?;
                    let explanation = planned.planned.explanation.clone();
                    let action = PreviewedAction::Fork(from, fork, Box::new(planned));
                    Ok(Preview { explanation, action: Some(action), ..Preview::empty() })
                }
            }
        })
    }

    /// Starts or forks a run as it was previewed: the plan of the preview is installed if what it rests on still
    /// stands, else the run is planned again. Durable when it returns.
    ///
    /// # Errors
    /// As [`Engine::start`] and [`Engine::fork`].
    ///
    /// # Panics
    /// If the preview is of a [`Intent::Move`] or [`Intent::Retry`].
    pub fn start_previewed(&self, preview: Preview) -> BoxFuture<'_, Result<Handle, Error>> {
        Box::pin(async move {
            if let Some(refused) = preview.refused {
                return Err(refused);
            }
            match preview.action.expect("a start or a fork was previewed") {
                PreviewedAction::Start(asked, plan) => self.start_asked(*asked, plan).await,
                PreviewedAction::Fork(from, fork, planned) => {
                    let forking = Forking { engine: self, shared: &self.shared, from: &from, fork: &fork };
                    forking.begin(Some(*planned)).await
                }
            }
        })
    }

    /// The unfinished run of a key.
    async fn unfinished(&self, key: &str) -> Result<Arc<Run>, Error> {
        let row = self.shared.row(keys::heads().key(key)).await?;
        let run = match row.as_deref().and_then(rows::read::<Head>) {
            Some(Head::Active(id)) => self.shared.runs.read_run(id).await?,
            Some(Head::Finished(_)) => None,
            None => return Err(self.shared.no_run(key).await),
        };
        run.ok_or_else(|| Error::Ended { key: key.to_owned() })
    }

    /// The request of a run, with the inputs that it holds.
    async fn ask_the_same(&self, run: &Run) -> Result<CheckedStart, Error> {
        let before = PreviousPlan::read(&self.shared.values, &run.header).await?;
        let before = before.ok_or_else(|| Error::damaged(format!("the program of run `{}`", run.key)))?;
        let (header, program) = (&run.header, before.program);
        let start = Start {
            outputs: header.requested.clone(),
            keep_ms: header.keep_ms,
            finish_independent: run.finish_independent(),
            ..Start::new(header.key.clone(), Library::default(), header.flow.clone())
        };
        let inputs = self.own_inputs(&start, run, program.identity().inputs).await?;
        let (program, digest) = (Arc::new(program), header.asked);
        Ok(CheckedStart { program, digest, inputs, stored: Mutex::default(), start })
    }

    async fn ask_with_its_own(&self, start: Start, run: &Run) -> Result<CheckedStart, Error> {
        let program = self.check(&start)?;
        let inputs = self.own_inputs(&start, run, program.identity().inputs).await?;
        let digest = program.blocks[0].digest;
        let start = Start { inputs: vec![], ..start };
        Ok(CheckedStart { program: Arc::new(program), digest, inputs, stored: Mutex::default(), start })
    }

    /// The inputs that a run holds; where it has none, those of the start.
    async fn own_inputs(&self, start: &Start, run: &Run, ports: Vec<Port>) -> Result<Inputs, Error> {
        let root = self.shared.runs.frame(run, FrameId::ROOT).await?;
        // The frame is the last row of a run that is removed.
        let root = root.ok_or_else(|| Error::Ended { key: run.key.to_string() })?;
        let own = |name: &str| {
            let at = run.header.inputs.iter().position(|(input, _)| input == name)?;
            root.inputs.get(at)?.as_ref().map(|held| held.outcome.clone())
        };
        let (mut found, mut lacking) = (Vec::new(), Vec::new());
        for port in ports {
            let given = start.inputs.iter().find(|(name, _)| *name == port.name).map(|(_, data)| data.clone());
            match (own(&port.name), given) {
                (Some(outcome), _) => found.push((port.name, outcome)),
                (None, Some(data)) => found.push((port.name, data::look(data).await?.outcome)),
                (None, None) if matches!(port.ty, Type::Option(_)) => found.push((port.name, Outcome::None)),
                (None, None) => lacking.push(format!("`{}`", port.name)),
            }
        }
        match lacking.is_empty() {
            true => Ok(Inputs::seen(found)),
            false => Err(Error::Inputs(format!("the flow takes {}, which the run does not have", lacking.join(", ")))),
        }
    }
}

/// A checked start that is previewed.
struct Previewing<'a> {
    engine: &'a Engine,
    shared: &'a Shared,
    asked: &'a CheckedStart,
}

impl<'a> Previewing<'a> {
    fn new(engine: &'a Engine, asked: &'a CheckedStart) -> Self {
        Previewing { engine, shared: &engine.shared, asked }
    }

    fn planning(&self) -> Planning<'a> {
        Planning { shared: self.shared, asked: self.asked }
    }

    /// Previews a start whose flow and inputs were checked.
    async fn preview(&self) -> Result<(Preview, Option<PreviewedPlan>), Error> {
        /// Reads of a run that ends and begins again and again.
        const LOOKS_MAX: usize = 1000;
        for _ in 0..LOOKS_MAX {
            let head = self.shared.row(keys::heads().key(&self.asked.start.key)).await?;
            let previewed = match head.as_deref() {
                None => Some(self.preview_new().await?),
                Some(row) => match rows::read(row) {
                    None => return Err(Error::damaged(format!("the row of run `{}`", self.asked.start.key))),
                    Some(Head::Finished(finished)) => Some(self.preview_finished(head, *finished).await?),
                    Some(Head::Active(id)) => match self.shared.runs.read_run(id).await? {
                        Some(run) => self.preview_unfinished(head, &run).await?,
                        None => None,
                    },
                },
            };
            // The run ended between two reads, and is read again.
            if let Some(previewed) = previewed {
                // A preview leaves the process, so what it rests on must be durable.
                self.shared.records.durable(self.shared.records.position()).await?;
                return Ok(previewed);
            }
        }
        Err(Error::damaged(format!("the rows of run `{}`", self.asked.start.key)))
    }

    async fn preview_new(&self) -> Result<(Preview, Option<PreviewedPlan>), Error> {
        let known = KnownValues::new();
        let planned = self.planning().plan_over(&known, None).await?;
        let preview = Preview { explanation: planned.explanation.clone(), ..Preview::empty() };
        Ok((preview, Some(PreviewedPlan { head: None, facts: None, planned })))
    }

    async fn preview_finished(
        &self,
        head: Option<Row>,
        finished: rows::Finished,
    ) -> Result<(Preview, Option<PreviewedPlan>), Error> {
        let is_same = Some(self.asked.is(&finished.header));
        let run = Some(super::summary::of_finished(finished.clone()));
        if finished.status != Status::Done {
            // The effects of an undone run are gone: this is another run.
            let (preview, plan) = self.preview_new().await?;
            return Ok((Preview { run, is_same, ..preview }, plan.map(|plan| PreviewedPlan { head, ..plan })));
        }
        if is_done(&self.shared.values, self.asked, &finished).await? {
            let explanation = all_done(&self.asked.program);
            return Ok((Preview { run, is_same, explanation, ..Preview::empty() }, None));
        }
        let PlannedFrom { planned, known } = self.planning().plan_again(&finished).await?;
        let kept = finished.header.keep_ms.map(|_| Keys::new(finished.run, Generation(0)));
        let explanation = explain_inside(self.shared, self.asked, &known, &planned, kept.as_ref()).await?;
        let refused = no_reruns(self.asked, &planned).err();
        let plan = PreviewedPlan { head, facts: None, planned };
        Ok((Preview { run, is_same, explanation, refused, ..Preview::empty() }, Some(plan)))
    }

    /// `None` if the run has ended meanwhile.
    async fn preview_unfinished(
        &self,
        head: Option<Row>,
        run: &Arc<Run>,
    ) -> Result<Option<(Preview, Option<PreviewedPlan>)>, Error> {
        let shared = self.shared;
        let Some((summary, live)) = self.read_unfinished(&self.asked.start.key, run).await? else { return Ok(None) };
        let is_same = self.asked.is(&run.header);
        let undos = live.undos.iter().rev().map(|undo| undo.address.to_string()).collect();
        if RunStatus::from(run.state().phase).is_being_undone() {
            // None of its steps runs any more, and its rows are being removed.
            let refused = (!is_same).then(|| Error::Busy { key: self.asked.start.key.clone() });
            let preview = Preview { run: Some(summary), is_same: Some(is_same), undos, refused, ..Preview::empty() };
            return Ok(Some((preview, None)));
        }
        let before = PreviousPlan::read(&shared.values, &run.header).await?;
        let mut preview = Preview {
            run: Some(summary),
            is_same: Some(is_same),
            undos,
            undecided: super::again::undecided_of(run, &live),
            started: StartedSteps::of(shared, run).in_rows(&live).await?,
            eaches: each_progress(run, &live),
            ..Preview::empty()
        };
        if is_same {
            let (settings, changed) = settings_for(run, &self.asked.program, self.asked.start.finish_independent);
            let is_changed = settings.steps != run.plan.settings().steps;
            preview.taken_up = if is_changed { changed.addresses } else { vec![] };
            preview.finish_independent = Some(self.asked.start.finish_independent)
                .filter(|independent| *independent != run.finish_independent());
            preview.ignored = changed.ignored;
        }
        let Some(before) = before else {
            let refused = Error::damaged(format!("the program of run `{}`", run.key));
            let explanation = self.preview_new().await?.0.explanation;
            return Ok(Some((Preview { explanation, refused: (!is_same).then_some(refused), ..preview }, None)));
        };
        let facts = Facts::read(shared, self.asked, run, &live, &before).await?;
        let planned = self.planning().plan_unfinished(&facts, Some(&before)).await?;
        let kept = run.header.keep_ms.map(|_| &run.plan.keys);
        preview.explanation = explain_inside(self.shared, self.asked, &facts.known, &planned, kept).await?;
        preview.refused = match run.state().phase {
            Phase::NotUndone { .. } => Some(FailedUndos::of(shared, run).error().await?),
            _ if is_same => None,
            _ => facts.refusal(self.asked).or_else(|| no_reruns(self.asked, &planned).err()),
        };
        Ok(Some((preview, Some(PreviewedPlan { head, facts: Some(facts), planned }))))
    }

    /// Reads the rows of an unfinished run at one moment, as far as other commits leave one; `None` if it has ended.
    async fn read_unfinished(&self, key: &str, run: &Run) -> Result<Option<(Summary, Live)>, Error> {
        /// Reads before the rows of a busy store are taken as they are.
        const LOOKS_MAX: usize = 4;
        let (shared, mut looks) = (self.shared, 0);
        loop {
            let from = shared.records.position();
            let handle = self.engine.handle(key, run.plan.keys.run);
            let summary = match handle.summary().await {
                Err(Error::NoRun(_)) => return Ok(None),
                summary => summary?,
            };
            if summary.id != run.plan.keys.run || summary.status.has_ended() {
                return Ok(None);
            }
            let live = Live::read(shared, run).await?;
            looks += 1;
            if shared.records.position() == from || looks == LOOKS_MAX {
                return Ok(Some((summary, live)));
            }
        }
    }
}

impl Preview {
    /// A preview of nothing.
    fn empty() -> Self {
        Preview {
            run: None,
            is_same: None,
            explanation: Explanation::default(),
            refused: None,
            taken_up: vec![],
            finish_independent: None,
            ignored: vec![],
            undos: vec![],
            undecided: vec![],
            started: vec![],
            eaches: vec![],
            action: None,
        }
    }
}
