//! What can be said about runs at a glance: for lists of them, also by those who do not work on any.

use super::{Engine, Start, reruns};
use crate::{
    Error, Handle,
    perform::{failures, noted},
    shared::Shared,
};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Timestamp,
    limits::SCAN_ROWS_MAX,
    model::{
        InstancePath, Node, Program,
        program::{NodeOp, ROOT},
        task::{ResourceRequest, Retry, TaskSpec},
    },
    protocol::{
        ids::{Generation, RunId},
        keys::{self, Keys},
        rows::{self, Failed, Finished, Head, Header, Phase, State, Status, Why},
    },
    row::counter,
};
use onceflow_store::records::Scan;
use std::collections::{BTreeMap, BTreeSet};

/// Failures told of one run.
const FAILURES_MAX: usize = 10;

/// A run at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// What it is called.
    pub key: String,
    /// Which run it is.
    pub id: RunId,
    /// What its flow is called.
    pub flow: String,
    /// Which plan: 0 is the first.
    pub generation: u32,
    /// How it stands.
    pub status: RunStatus,
    /// When it was started first.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// How long inner values outlive it, in milliseconds.
    pub keep_ms: Option<u64>,
    /// How long it can be asked for after its end, in milliseconds.
    pub history_ms: u64,
    /// What went wrong, the first few.
    pub failures: Vec<Failed>,
    /// How many steps failed, in all.
    pub failed: usize,
    /// What could not be undone.
    pub not_undone: Vec<Failed>,
    /// Steps whose outcome somebody must say.
    pub undecided: Vec<String>,
    /// Steps that are ready or at work.
    pub live: u64,
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunStatus {
    /// It is at work, or waits for a worker.
    Running,
    /// A step failed; those in flight may end.
    Failing,
    /// It stands still; starting it again tries what failed again.
    Failed,
    /// It stands still until somebody says what became of a step.
    Waiting,
    /// It gets a new plan.
    Planning,
    /// It was cancelled; steps in flight end.
    Cancelling,
    /// What it did is undone.
    Undoing,
    /// What is left of it is removed.
    Removing,
    /// All outputs are there.
    Done,
    /// It failed and was undone.
    Undone,
    /// It was cancelled and undone.
    Cancelled,
    /// Some of what it did could not be undone; it stands still until somebody says how it goes on.
    NotUndone,
}

impl RunStatus {
    /// Whether it will stay so until somebody does something.
    pub fn is_at_rest(self) -> bool {
        use RunStatus::{Cancelled, Done, Failed, NotUndone, Undone, Waiting};
        matches!(self, Failed | Waiting | Done | Undone | Cancelled | NotUndone)
    }

    /// Whether it is over.
    pub fn has_ended(self) -> bool {
        matches!(self, RunStatus::Done | RunStatus::Undone | RunStatus::Cancelled)
    }
}

impl std::fmt::Display for RunStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            RunStatus::Running => "running",
            RunStatus::Failing => "failing",
            RunStatus::Failed => "failed",
            RunStatus::Waiting => "waiting",
            RunStatus::Planning => "planning",
            RunStatus::Cancelling => "cancelling",
            RunStatus::Undoing => "undoing",
            RunStatus::Removing => "removing",
            RunStatus::Done => "done",
            RunStatus::Undone => "undone",
            RunStatus::Cancelled => "cancelled",
            RunStatus::NotUndone => "not undone",
        })
    }
}

/// A step of a flow as it was written: one line of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Where it is, with `*` for the numbers of elements and iterations: `/align[*]/sort`.
    pub address: String,
    /// `task`, `each`, `loop`, `choice` or `call`.
    pub kind: &'static str,
    /// The task's name, if it is one.
    pub task: Option<String>,
    /// How many containers are around it.
    pub depth: usize,
}

impl Engine {
    /// Runs in the order of their keys, after this one, at most so many. What they say will outlive a crash.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn runs<'a>(&'a self, after: Option<&'a str>, limit: usize) -> BoxFuture<'a, Result<Vec<Summary>, Error>> {
        Box::pin(async move {
            let scan = Scan::of(keys::heads(), limit.min(SCAN_ROWS_MAX)).after(after.map(onceflow_core::Name::new));
            let page = self.shared.records.scan(self.shared.shard(), scan).await?;
            let mut found = Vec::with_capacity(page.rows.len());
            for (key, row) in &page.rows {
                let key = String::from_utf8_lossy(key.as_bytes()).into_owned();
                let summary = match self.shared.summary(&key, row).await? {
                    Some(summary) => Some(summary),
                    None => self.look_again(&key).await?,
                };
                found.extend(summary);
            }
            self.shared.records.durable(self.shared.records.position()).await?;
            Ok(found)
        })
    }
}

impl Engine {
    /// Steps that are asked for with another retry, timeout, class or other resources than the run of this key was planned
    /// with. A run that goes on for the same does not take those up.
    ///
    /// # Errors
    /// If the flow does not check, the store does not answer, or the run is not there.
    pub fn ignored_changes<'a>(&'a self, start: &'a Start) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(async move {
            let Some(planned) = self.find(&start.key).await?.program().await? else { return Ok(vec![]) };
            let asked = self.check(start)?;
            Ok(unlike(&asked, &planned))
        })
    }

    /// A run that went on while it was looked at; `None` if it is not there any more.
    async fn look_again(&self, key: &str) -> Result<Option<Summary>, Error> {
        let found = match self.find(key).await {
            Ok(handle) => handle.summary().await,
            Err(error) => Err(error),
        };
        match found {
            Ok(summary) => Ok(Some(summary)),
            Err(Error::NoRun(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Handle {
    /// The run at a glance. What it says will outlive a crash.
    ///
    /// # Errors
    /// [`Error::NoRun`] if its history has ended.
    pub fn summary(&self) -> BoxFuture<'_, Result<Summary, Error>> {
        Box::pin(async move {
            loop {
                let row = self.shared.row(keys::heads().key(&self.key)).await?;
                let Some(row) = row else { return Err(self.shared.no_run(&self.key).await) };
                if let Some(summary) = self.shared.summary(&self.key, &row).await? {
                    self.shared.records.durable(self.shared.records.position()).await?;
                    return Ok(summary);
                }
            }
        })
    }

    /// The flow as it was asked for, as it is run; `None` if that is not kept any more.
    ///
    /// # Errors
    /// If the store does not answer, or the run is not there.
    pub fn program(&self) -> BoxFuture<'_, Result<Option<Program>, Error>> {
        Box::pin(async move {
            let header =
                match self.shared.row(keys::heads().key(&self.key)).await?.as_deref().and_then(rows::read::<Head>) {
                    Some(Head::Finished(finished)) => finished.header,
                    Some(Head::Active(id)) => match self.shared.read_run(id).await? {
                        Some(run) => run.header.clone(),
                        None => return Ok(None),
                    },
                    None => return Err(self.shared.no_run(&self.key).await),
                };
            Ok(self.shared.before(&header).await?.map(|before| before.program))
        })
    }

    /// The steps of the flow as it was asked for, as a tree from the outside in; `None` if that is not kept any more.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn outline(&self) -> BoxFuture<'_, Result<Option<Vec<Outline>>, Error>> {
        Box::pin(async move { Ok(self.program().await?.map(|program| outline(&program))) })
    }
}

/// The steps of a program as a tree.
pub(super) fn outline(program: &Program) -> Vec<Outline> {
    let line =
        |(line, task): (Outline, Option<&TaskSpec>)| Outline { task: task.map(|task| task.name.clone()), ..line };
    drawn(program).into_iter().map(line).collect()
}

/// The steps of a program that have another retry, timeout, class or needs than in another one of the same steps.
fn unlike(program: &Program, other: &Program) -> Vec<String> {
    fn settings(task: &TaskSpec) -> (&Retry, Option<u64>, &str, &ResourceRequest) {
        (&task.retry, task.timeout_ms, &task.class, &task.resources)
    }
    let others: BTreeMap<_, _> = drawn(other).into_iter().map(|(line, task)| (line.address, task)).collect();
    let is_unlike = |address: &String, task: &TaskSpec| {
        others.get(address).copied().flatten().is_some_and(|other| settings(other) != settings(task))
    };
    let tasks = drawn(program).into_iter().filter_map(|(line, task)| Some((line.address, task?)));
    tasks.filter(|(address, task)| is_unlike(address, task)).map(|(address, _)| address).collect()
}

/// The steps of a program, and the task of each that is one.
fn drawn(program: &Program) -> Vec<(Outline, Option<&TaskSpec>)> {
    let mut lines = Vec::new();
    for node in &program.blocks[ROOT as usize].nodes {
        draw(program, node, &InstancePath::root(), &mut BTreeSet::new(), &mut lines);
    }
    lines
}

fn draw<'a>(
    program: &'a Program,
    node: &Node,
    place: &InstancePath,
    around: &mut BTreeSet<u32>,
    lines: &mut Vec<(Outline, Option<&'a TaskSpec>)>,
) {
    let mut line = |path: &[_], kind, task: Option<u32>| {
        let line = Outline { address: place.address(path), kind, task: None, depth: around.len() };
        lines.push((line, task.map(|task| &program.tasks[task as usize])));
    };
    let (kind, bodies) = match &node.op {
        NodeOp::Relay => return,
        NodeOp::Task(task) => return line(&node.path, "task", Some(*task)),
        NodeOp::Fused(tasks) => return tasks.iter().for_each(|fused| line(&fused.path, "task", Some(fused.task))),
        NodeOp::Each { body, .. } => ("each", vec![*body]),
        NodeOp::Loop { body, .. } => ("loop", vec![*body]),
        NodeOp::Call { body } => ("call", vec![*body]),
        NodeOp::Choice { arms } => ("choice", arms.iter().map(|arm| arm.body).collect()),
    };
    line(&node.path, kind, None);
    let inside = if let NodeOp::Call { .. } = node.op { place.called(node) } else { place.clone() };
    for body in bodies {
        if around.insert(body) {
            for node in &program.blocks[body as usize].nodes {
                draw(program, node, &inside, around, lines);
            }
            around.remove(&body);
        }
    }
}

impl Shared {
    /// A run at a glance; `None` if it went on while it was looked at.
    async fn summary(&self, key: &str, row: &[u8]) -> Result<Option<Summary>, Error> {
        match rows::read::<Head>(row).ok_or_else(|| Error::damaged(format!("the row of run `{key}`")))? {
            Head::Finished(finished) => Ok(Some(of_finished(*finished))),
            Head::Active(id) => self.of_active(id).await,
        }
    }

    async fn of_active(&self, id: RunId) -> Result<Option<Summary>, Error> {
        let home = Keys::new(id, Generation(0));
        let found = self.records.get(self.shard(), &[home.state(), home.header()]).await?;
        let [Some(state), Some(header)] = &found[..] else { return Ok(None) };
        let damaged = || Error::damaged(format!("the rows of run {id}"));
        let state: State = rows::read(state).ok_or_else(damaged)?;
        let header: Header = rows::read(header).ok_or_else(damaged)?;
        let keys = Keys::new(id, state.generation);
        let live = self.row(keys.live()).await?.and_then(|row| counter::read(&row)).unwrap_or(0);
        let mut summary = Summary {
            live: u64::try_from(live).unwrap_or(0),
            ..of_header(id, state.generation, header, of_phase(state.phase))
        };
        if !matches!(state.phase, Phase::Running | Phase::Frozen) {
            let (parked, all_failed) = self.parked_first_of(&keys).await?;
            summary.failures = failures(&parked);
            let noted = self.row(keys.rows.key(noted::NOTED)).await?.as_deref().and_then(rows::read::<noted::Noted>);
            let (failed, not_undone) = noted.unwrap_or_default();
            let more: Vec<_> = failed.into_iter().filter(|failed| !summary.failures.contains(failed)).collect();
            summary.failed = all_failed + more.len();
            summary.failures.extend(more);
            summary.failures.truncate(FAILURES_MAX);
            summary.not_undone = not_undone;
            let undecided = |why: &Why| match why {
                Why::Unknown { address, .. } => Some(address.to_string()),
                Why::Failed(_) | Why::NotStarted => None,
            };
            summary.undecided = parked.iter().filter_map(|(_, _, parked)| undecided(&parked.why)).collect();
        }
        Ok(Some(summary))
    }
}

fn of_phase(phase: Phase) -> RunStatus {
    match phase {
        Phase::Running => RunStatus::Running,
        Phase::Failing => RunStatus::Failing,
        Phase::Cancelling => RunStatus::Cancelling,
        Phase::Failed { .. } => RunStatus::Failed,
        Phase::Waiting => RunStatus::Waiting,
        Phase::UndoingFailed | Phase::UndoingCancelled => RunStatus::Undoing,
        Phase::Frozen => RunStatus::Planning,
        Phase::NotUndone { .. } => RunStatus::NotUndone,
        Phase::RemovingFailed | Phase::RemovingCancelled | Phase::Expired => RunStatus::Removing,
    }
}

fn of_header(id: RunId, generation: Generation, header: Header, status: RunStatus) -> Summary {
    Summary {
        key: header.key,
        id,
        flow: header.flow,
        generation: generation.0,
        status,
        started: header.started,
        ended: None,
        keep_ms: header.keep_ms,
        history_ms: header.history_ms,
        failures: vec![],
        failed: 0,
        not_undone: vec![],
        undecided: vec![],
        live: 0,
    }
}

fn of_finished(finished: Finished) -> Summary {
    let (status, mut failures, not_undone) = match finished.status {
        Status::Done => (RunStatus::Done, vec![], vec![]),
        Status::Failed { failures, undone } => (RunStatus::Undone, failures, undone),
        Status::Cancelled { undone } => (RunStatus::Cancelled, vec![], undone),
    };
    let failed = failures.len();
    failures.truncate(FAILURES_MAX);
    let summary = of_header(finished.run, finished.generation, finished.header, status);
    Summary { ended: Some(finished.ended), failures, failed, not_undone, ..summary }
}

/// Which steps must not simply run again, for the record of a run that ends.
pub(crate) async fn once_only_of(shared: &Shared, run: &crate::shared::Run) -> Result<Vec<String>, Error> {
    if run.header.full.is_none() {
        return Ok(reruns::once_only(&run.plan.program).into_iter().collect());
    }
    let before = shared.before(&run.header).await?;
    Ok(before.map(|before| reruns::once_only(&before.program)).unwrap_or_default().into_iter().collect())
}
