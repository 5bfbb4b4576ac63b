//! Summaries of runs: status, times, failures and outputs of one run, or of all runs of a store. Any process may ask.

use super::{Engine, Request, known::PreviousPlan, reruns, workers::WorkerInfo};
use crate::{Error, Handle, RunStatus, error::failures as listed, run_rows::failures, runs::Run, shared::Shared};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Timestamp,
    limits::SCAN_ROWS_MAX,
    payload::Outcome,
    protocol::{
        ids::{Generation, RunId},
        keys::{self, Keys},
        rows::{self, Failed, Finished, Head, Header, Phase, RunState, Status},
    },
    row::counter,
};
use onceflow_store::records::Scan;

/// Failures listed for each run in a list of runs. A single run lists up to 1000 (`RunRows::parked_first`).
const LISTED_FAILURES_MAX: usize = 10;

/// The status, times, failures and outputs of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The run's key.
    pub key: String,
    /// The run's id.
    pub id: RunId,
    /// The name of its flow.
    pub flow: String,
    /// The number of its plan: 0 is the first.
    pub generation: u32,
    /// Its status.
    pub status: RunStatus,
    /// When it was started first.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// How long inner values outlive it, in milliseconds.
    pub keep_ms: Option<u64>,
    /// How long its result can be asked for after its end, in milliseconds.
    pub history_ms: u64,
    /// Its outputs, by name, once it is [`RunStatus::Done`].
    pub outputs: Vec<(String, Outcome)>,
    /// The first steps that failed, with their causes.
    pub failures: Vec<Failed>,
    /// The total number of failed steps.
    pub failed: usize,
    /// Undos that failed.
    pub not_undone: Vec<Failed>,
    /// Addresses of steps whose outcome an operator must report ([`Handle::resolve`]).
    pub undecided: Vec<String>,
    /// Steps that are ready or claimed.
    pub live: u64,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.status {
            RunStatus::Failed => f.write_str(&listed(&self.failures))?,
            RunStatus::Waiting => write!(f, "waiting for the outcome of {}", self.undecided.join(", "))?,
            RunStatus::Undone => write!(f, "failed and undone: {}", listed(&self.failures))?,
            RunStatus::NotUndone if !self.failures.is_empty() => {
                write!(f, "failed and not undone: {}", listed(&self.failures))?;
            }
            status => write!(f, "{status}")?,
        }
        match self.not_undone.is_empty() {
            true => Ok(()),
            false => write!(f, "\nnot undone: {}", listed(&self.not_undone)),
        }
    }
}

impl Engine {
    /// Runs in the order of their keys, after this one, at most so many. Durable when it returns.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn runs<'a>(&'a self, after: Option<&'a str>, limit: usize) -> BoxFuture<'a, Result<Vec<Summary>, Error>> {
        Box::pin(async move {
            let scan = Scan::of(keys::heads(), limit.min(SCAN_ROWS_MAX)).after(after.map(onceflow_core::Name::new));
            let page = self.shared.records.scan(self.shared.shard(), scan).await?;
            let summaries = Summaries::new(&self.shared).await?;
            let mut found = Vec::with_capacity(page.rows.len());
            for (key, row) in &page.rows {
                let key = String::from_utf8_lossy(key.as_bytes()).into_owned();
                let summary = match summaries.of_row(&key, row, None).await? {
                    Some(summary) => Some(summary),
                    None => self.read_again(&key).await?,
                };
                found.extend(summary.map(|summary| {
                    let failures = summary.failures.into_iter().take(LISTED_FAILURES_MAX).collect();
                    Summary { failures, ..summary }
                }));
            }
            self.shared.records.durable(self.shared.records.position()).await?;
            Ok(found)
        })
    }

    /// The summary of a run that changed while it was read; `None` if it is gone.
    async fn read_again(&self, key: &str) -> Result<Option<Summary>, Error> {
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
    /// The run's status, with its failures and outputs so far. Durable when it returns.
    ///
    /// # Errors
    /// [`Error::NoRun`] if its history has ended, [`Error::Superseded`] if the key was started with another request.
    pub fn summary(&self) -> BoxFuture<'_, Result<Summary, Error>> {
        Box::pin(async move {
            loop {
                let row = self.shared.row(keys::heads().key(&self.key)).await?;
                let Some(row) = row else { return Err(self.shared.no_run(&self.key).await) };
                let (request, summaries) = (self.request.as_deref(), Summaries::new(&self.shared).await?);
                if let Some(summary) = summaries.of_row(&self.key, &row, request).await? {
                    crate::seams::before_report(&*self.shared.records).await?;
                    return Ok(summary);
                }
            }
        })
    }

    /// The run is at rest ([`RunStatus::is_at_rest`]), by its state row alone: cheap, and it may not outlive a crash.
    pub(crate) async fn is_at_rest(&self) -> Result<bool, Error> {
        let Some(row) = self.shared.row(keys::heads().key(&self.key)).await? else {
            return Err(self.shared.no_run(&self.key).await);
        };
        match rows::read::<Head>(&row).ok_or_else(|| Error::damaged(format!("the row of run `{}`", self.key)))? {
            Head::Finished(finished) => {
                self.is_for(&finished.header)?;
                Ok(true)
            }
            Head::Active(id) => match self.shared.runs.read_run(id).await? {
                Some(run) => {
                    self.is_for(&run.header)?;
                    Ok(RunStatus::from(run.state().phase).is_at_rest())
                }
                // The run ended between the two reads.
                None => Ok(false),
            },
        }
    }
}

/// Reads summaries of runs, with the workers that were there when the call began.
struct Summaries<'a> {
    shared: &'a Shared,
    workers: Vec<WorkerInfo>,
}

impl<'a> Summaries<'a> {
    async fn new(shared: &'a Shared) -> Result<Self, Error> {
        Ok(Summaries { shared, workers: shared.registry.workers().await? })
    }

    /// The summary of a run; `None` if it changed while it was read.
    async fn of_row(&self, key: &str, row: &[u8], request: Option<&Request>) -> Result<Option<Summary>, Error> {
        let is_for = |header: &Header| match request {
            Some(request) if !request.is_of(header) => Err(Error::Superseded { key: key.to_owned() }),
            _ => Ok(()),
        };
        match rows::read::<Head>(row).ok_or_else(|| Error::damaged(format!("the row of run `{key}`")))? {
            Head::Finished(finished) => {
                is_for(&finished.header)?;
                Ok(Some(of_finished(*finished)))
            }
            Head::Active(id) => self.of_active(id, is_for).await,
        }
    }

    async fn of_active(
        &self,
        id: RunId,
        is_for: impl Fn(&Header) -> Result<(), Error>,
    ) -> Result<Option<Summary>, Error> {
        let home = Keys::new(id, Generation(0));
        let found = self.shared.records.get(self.shared.shard(), &[home.state(), home.header()]).await?;
        let [Some(state), Some(header)] = &found[..] else { return Ok(None) };
        let damaged = || Error::damaged(format!("the rows of run {id}"));
        let state: RunState = rows::read(state).ok_or_else(damaged)?;
        let header: Header = rows::read(header).ok_or_else(damaged)?;
        is_for(&header)?;
        let keys = Keys::new(id, state.generation);
        let live = self.shared.row(keys.live()).await?.and_then(|row| counter::read(&row)).unwrap_or(0);
        let mut status = RunStatus::from(state.phase);
        if !status.is_at_rest() {
            let Some(is_served) = self.is_served((id, &header.key), status).await? else { return Ok(None) };
            status = if is_served { status } else { status.unserved() };
        }
        let mut summary =
            Summary { live: u64::try_from(live).unwrap_or(0), ..of_header(id, state.generation, header, status) };
        if !matches!(state.phase, Phase::Running | Phase::Frozen) {
            let (parked, all_failed) = self.shared.rows_of(&keys).parked_first().await?;
            summary.failures = failures(&parked);
            let (failed, not_undone) = self.shared.rows_of(&keys).noted().await?;
            let more: Vec<_> = failed.into_iter().filter(|failed| !summary.failures.contains(failed)).collect();
            summary.failed = all_failed + more.len();
            summary.failures.extend(more);
            summary.not_undone = not_undone;
            let awaited = parked.iter().filter_map(|(_, _, parked)| parked.why.awaited());
            summary.undecided = awaited.map(ToString::to_string).collect();
        }
        assert!(summary.failed >= summary.failures.len(), "run {id} lists more failures than it has");
        Ok(Some(summary))
    }

    /// A worker that is limited to the run attends it; or this engine, or a living worker of any run, serves a class of
    /// its tasks, or, while it is cancelled or removed, anything. Compensations are also performed by workers that take
    /// no other steps of their class. `None` if the run is gone.
    async fn is_served(&self, (id, key): (RunId, &str), status: RunStatus) -> Result<Option<bool>, Error> {
        let (shared, workers) = (self.shared, &self.workers);
        let is_its = |worker: &&WorkerInfo| worker.about.run.as_deref() == Some(key);
        if workers.iter().any(|worker| is_its(&worker)) {
            return Ok(Some(true));
        }
        let limited_to = shared.options.about.as_ref().and_then(|about| about.run.as_deref());
        let takes_here = shared.options.works && !shared.signals.is_closed() && limited_to.is_none_or(|run| run == key);
        let living: Vec<_> = workers.iter().filter(|worker| worker.is_alive && worker.about.run.is_none()).collect();
        if living.is_empty() && !takes_here {
            return Ok(Some(false));
        }
        let Some(run) = shared.runs.run(id, None).await? else { return Ok(None) };
        let classes = run.plan.classes();
        let is_undoing = status == RunStatus::Undoing;
        let any_serves = status.is_being_undone() && !is_undoing || classes.is_empty();
        let serves =
            |class: &String| takes_here && shared.takes(class, &[]) || living.iter().any(|worker| worker.serves(class));
        let undoes = |class: &String| {
            let is_its = |worker: &&WorkerInfo| worker.classes.iter().any(|(its, _)| its == class);
            takes_here && shared.knows_class(class) || living.iter().any(is_its)
        };
        Ok(Some(any_serves || classes.iter().any(serves) || is_undoing && classes.iter().any(undoes)))
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
        outputs: vec![],
        failures: vec![],
        failed: 0,
        not_undone: vec![],
        undecided: vec![],
        live: 0,
    }
}

pub(super) fn of_finished(finished: Finished) -> Summary {
    let status = RunStatus::from(&finished.status);
    assert!(status.has_ended(), "a finished run is {status}");
    let (failures, not_undone) = match finished.status {
        Status::Done => (vec![], vec![]),
        Status::Failed { failures, undone } => (failures, undone),
        Status::Cancelled { undone } => (vec![], undone),
    };
    let summary = of_header(finished.run, finished.generation, finished.header, status);
    let (ended, failed) = (Some(finished.ended), failures.len());
    let outputs = if status == RunStatus::Done { finished.outputs } else { vec![] };
    Summary { ended, outputs, failures, failed, not_undone, ..summary }
}

/// The steps that must not be repeated without consent, for the record of a run that ends.
pub(crate) async fn once_only_of(shared: &Shared, run: &Run) -> Result<Vec<String>, Error> {
    if run.header.full.is_none() {
        return Ok(reruns::once_only(&run.plan.program).into_iter().collect());
    }
    let before = PreviousPlan::read(&shared.values, &run.header).await?;
    Ok(before.map(|before| reruns::once_only(&before.program)).unwrap_or_default().into_iter().collect())
}
