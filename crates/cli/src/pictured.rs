//! A run as pictures and reports need it: its flow, its attempts and its outcome.

use crate::{
    codes, event_log,
    exit::Exit,
    fault::Fault,
    finish::data_json,
    history::History,
    location::StoreLocation,
    pending,
    picture::{
        Scene,
        scene::{box_id, is_step},
        states,
    },
    run_meta, runs, scopes,
    session::Session,
};
use onceflow_core::{
    plan::{Fate, Reason},
    protocol::rows::Failed,
};
use onceflow_engine::{RunStatus, StepLog, Summary, scope::SessionView};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::PathBuf};

/// A run with all that pictures and reports show.
pub(crate) struct Pictured {
    pub(crate) run: Summary,
    pub(crate) status: RunStatus,
    /// The run has work to do, and no worker that the store knows of serves it.
    is_left: bool,
    /// The scene of its flow, if the flow's outline is kept.
    drawn: Option<Scene>,
    /// The open sessions of its scopes.
    sessions: Vec<SessionView>,
    pub(crate) history: History,
    pub(crate) failures: Vec<Failed>,
    /// Steps whose outcome is not known.
    pub(crate) unknown: Vec<String>,
    pub(crate) outputs: Map<String, Value>,
    /// The command, flow and inputs it was started with.
    pub(crate) asked: Option<Value>,
    /// Logs of steps, as far as the store keeps them.
    pub(crate) logs: Vec<StepLog>,
    /// The run's directory beside the store.
    pub(crate) directory: PathBuf,
    pub(crate) next: String,
    /// The decision of its plan for each step, by the id of its box; empty for a first plan, in which all steps run.
    pub(crate) decided: BTreeMap<String, (Fate, Reason)>,
}

impl Pictured {
    /// Loads the run that `word` names.
    ///
    /// # Errors
    /// If there is no such run, or the store does not answer.
    pub(crate) async fn of(word: &str, location: StoreLocation) -> Result<Self, Fault> {
        let session = Session::open(location).await?;
        let engine = session.idle().await?;
        let run = session.run(&engine, word).await?;
        let handle = engine.find(&run.key).await?;
        let run = handle.summary().await?;
        let waits = runs::pending(&engine, &run).await?;
        let mut outputs = Map::new();
        for (name, outcome) in &run.outputs {
            outputs.insert(name.clone(), data_json(handle.outputs().peek(outcome).await?));
        }
        let failures = if run.status.is_at_rest() { run.failures.clone() } else { vec![] };
        let reasons = handle.history().reasons().await?;
        let decided = reasons.into_iter().rfind(|plan| plan.generation == run.generation);
        let decided = decided.map(|plan| plan.lines).unwrap_or_default();
        let (program, logs) = (handle.steps().program().await?, handle.history().logs().await?);
        let standing = handle.steps().progress().await?.filter(|_| !run.status.is_being_undone());
        let is_done = run.status == RunStatus::Done;
        let drawn = program.map(|program| Scene::of(&program, &run.key));
        let drawn = drawn.or_else(|| run_meta::drawn(&session.location, run.id));
        let sessions = scopes::open(&handle).await?;
        let mut history = History::of(&event_log::lines(&handle).await?);
        engine.stop();
        let asked = run_meta::read(&session.location, run.id);
        let directory = session.location.run(run.id);
        session.close().await?;
        let is_left = run.status.is_interrupted();
        if run.status.is_at_rest() || is_left {
            history.rests(|address| match &standing {
                Some(standing) => standing.under_way.contains(address),
                None => !is_done,
            });
        }
        let status = run.status;
        let next = runs::next(&run, &waits, run_meta::again(asked.as_ref()).as_deref());
        Ok(Pictured {
            run,
            status,
            is_left,
            drawn,
            sessions,
            history,
            failures,
            unknown: pending::unknown(&waits),
            outputs,
            asked,
            logs,
            directory,
            next,
            decided: of_boxes(decided),
        })
    }

    /// Returns its flow with the state of every step; `None` if the program is not kept any more.
    pub(crate) fn scene(&self) -> Option<Scene> {
        let title = match self.run.key == self.run.flow {
            true => format!("{}: {}", self.run.flow, self.status),
            false => format!("{} ({}): {}", self.run.key, self.run.flow, self.status),
        };
        let mut scene = Scene { title, ..self.drawn.clone()? };
        let fate = |id: &str| self.decided.get(id).map(|(fate, _)| *fate);
        states::colour(&mut scene, &self.history, (self.run.status, self.is_left), &self.unknown, fate);
        scene.colour_scopes(&self.sessions, self.is_left);
        Some(scene)
    }

    /// Returns the same for commands that need it.
    ///
    /// # Errors
    /// If the flow is not kept any more.
    pub(crate) fn must_have_scene(&self) -> Result<Scene, Fault> {
        let message = format!("the flow of run `{}` is not kept any more", self.run.key);
        let flow = self.asked.as_ref().and_then(|asked| asked["flow"].as_str()).unwrap_or("FLOW.yaml");
        let hint = format!("`onceflow graph {}` draws the flow itself", crate::verbs::ls::shell_word(flow));
        self.scene().ok_or_else(|| Fault::new(Exit::No, codes::DRAWING, message).hint(hint))
    }
}

/// Reduces the decisions for everything inside a box to one: running takes precedence.
fn of_boxes(lines: Vec<(String, Fate, Reason)>) -> BTreeMap<String, (Fate, Reason)> {
    let rank = |fate: Fate| match fate {
        Fate::Run => 2,
        Fate::Reused => 1,
        Fate::Skipped => 0,
    };
    let mut of = BTreeMap::new();
    for (address, fate, reason) in lines.into_iter().filter(|(address, ..)| is_step(address)) {
        let known = of.entry(box_id(&address)).or_insert_with(|| (fate, reason.clone()));
        if rank(fate) > rank(known.0) {
            *known = (fate, reason);
        }
    }
    of
}
