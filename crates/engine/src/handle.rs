//! A handle on a run: its outputs as soon as they exist, its end, and ways to stop or resolve it.

mod outputs;

pub use outputs::RunOutputs;

use crate::{
    Error, RunStatus, Summary, data,
    engine::{HistoryEnd, Request, SAFETY_MS, not_undone::FailedUndos, timers::Timers},
    perform::{decide_done, may_decide},
    shared::Shared,
    task::Data,
};
use futures_util::future::{BoxFuture, Either, select};
use onceflow_core::payload::Outcome;
use onceflow_core::protocol::{
    draft::Draft,
    ids::RunId,
    keys,
    premise::REPORT,
    rows::{Failed, Header, Phase, Why},
    run,
};
use std::sync::Arc;

/// A handle on a run. Dropping it changes nothing: the run goes on.
///
/// A handle from [`Engine::start`](crate::Engine::start) is for the request that was started. If the key is started
/// again with another request, the handle fails with [`Error::Superseded`]. A handle from
/// [`Engine::find`](crate::Engine::find) is for the run whatever its request.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: String,
    pub(crate) id: RunId,
    /// The request this handle was made for.
    pub(crate) request: Option<Arc<Request>>,
    /// Ends the history of the run when the last handle is dropped.
    #[expect(dead_code, reason = "dropping it is what it is for")]
    pub(crate) end: Option<Arc<HistoryEnd>>,
}

/// The request of a run: which flow was asked for, with which inputs and outputs. See [`Handle::request`].
#[derive(Clone, Copy)]
pub struct RunRequest<'a> {
    pub(crate) handle: &'a Handle,
}

/// The steps of a run: the outline of its flow, their progress, and those that wait. See [`Handle::steps`].
#[derive(Clone, Copy)]
pub struct RunSteps<'a> {
    pub(crate) handle: &'a Handle,
}

/// The history of a run: its events, logs and reasons, and the record of its values. See [`Handle::history`].
#[derive(Clone, Copy)]
pub struct RunHistory<'a> {
    pub(crate) handle: &'a Handle,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>, key: String, id: RunId) -> Self {
        Handle { shared, key, id, request: None, end: None }
    }

    /// The run's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The run's id, which no other run ever has.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// The request of the run.
    pub fn request(&self) -> RunRequest<'_> {
        RunRequest { handle: self }
    }

    /// The steps of the run.
    pub fn steps(&self) -> RunSteps<'_> {
        RunSteps { handle: self }
    }

    /// The outputs of the run.
    pub fn outputs(&self) -> RunOutputs<'_> {
        RunOutputs::of(self)
    }

    /// The history of the run.
    pub fn history(&self) -> RunHistory<'_> {
        RunHistory { handle: self }
    }

    /// Fails if the run was planned anew for another request than the one this handle was made for.
    pub(crate) fn is_for(&self, header: &Header) -> Result<(), Error> {
        match &self.request {
            Some(request) if !request.is_of(header) => Err(Error::Superseded { key: self.key.clone() }),
            _ => Ok(()),
        }
    }

    /// Waits until the run is at rest ([`RunStatus::is_at_rest`]).
    ///
    /// # Errors
    /// As [`Handle::summary`]; [`Error::Closed`] if the engine is closed before that.
    pub fn wait(&self) -> BoxFuture<'_, Result<Summary, Error>> {
        Box::pin(async move {
            loop {
                let progress = self.shared.signals.progress(self.id).notified();
                let mut progress = std::pin::pin!(progress);
                progress.as_mut().enable();
                if self.is_at_rest().await? {
                    let mut summary = self.summary().await?;
                    if summary.status == RunStatus::Waiting {
                        // A deadline may have passed while no process was there.
                        Timers::of(&self.shared).fire_due().await?;
                        summary = self.summary().await?;
                    }
                    if summary.status.is_at_rest() {
                        return Ok(summary);
                    }
                }
                self.poke().await?;
                self.until_something_happens(progress).await?;
            }
        })
    }

    /// Waits for progress of the run, in this process or another.
    async fn until_something_happens(
        &self,
        progress: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Error> {
        if self.shared.signals.is_closed() {
            return Err(Error::Closed);
        }
        let _waiting = self.shared.signals.begin_waiting();
        select(progress, self.shared.world.sleep(SAFETY_MS)).await;
        Ok(())
    }

    /// Waits until the run may have changed: this process did a step of it, a step became ready on the store, or
    /// `ms_max` milliseconds have passed. The return is only a hint to read the run again: a change just before the
    /// call, or one that made no step ready elsewhere, is noticed when the time has passed.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn until_changed(&self, ms_max: u64) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let progress = std::pin::pin!(self.shared.signals.progress(self.id).notified());
            let (records, shard) = (&self.shared.records, self.shared.shard());
            let seen = records.position();
            let until = records.now().await?.plus_ms(ms_max);
            let ready = records.wait(shard, seen, until);
            let either = select(progress, self.shared.world.sleep(ms_max));
            match select(ready, either).await {
                Either::Left((woken, _)) => Ok(woken?),
                Either::Right(_) => Ok(()),
            }
        })
    }

    /// Waits for one output, which may exist long before the run is done.
    ///
    /// # Errors
    /// [`Error::Failed`] if the output will not exist unless the run is retried, [`Error::Superseded`] if the run is
    /// for another request by now.
    pub fn output<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Data, Error>> {
        Box::pin(async move { self.outputs().output_into(name, None).await })
    }

    /// Cancels the run: running bodies are dropped on all workers, except at-most-once bodies, which may finish; no
    /// others start; registered compensations run, and only the record that the run was cancelled remains. Returns when
    /// that is durably decided; [`Handle::wait`] waits for the rest.
    ///
    /// # Errors
    /// [`Error::Ended`] if the run has ended; [`Error::NotUndone`] if some of its compensations have failed.
    pub fn cancel(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            loop {
                let Some(run) = self.shared.runs.read_run(self.id).await? else {
                    return Err(Error::Ended { key: self.key.clone() });
                };
                let state = run.state();
                match state.phase {
                    Phase::Running | Phase::Failing | Phase::Failed { .. } | Phase::Waiting | Phase::Frozen => {}
                    Phase::NotUndone { .. } => return Err(FailedUndos::of(&self.shared, &run).error().await?),
                    _ => break,
                }
                let draft = run::turn(&run.plan, state, Phase::Cancelling);
                if self.shared.commit_outside(draft, &[]).await?.is_applied() {
                    run.set_state(onceflow_core::protocol::rows::RunState { phase: Phase::Cancelling, ..state });
                    self.shared.signals.look.notify_one();
                    break;
                }
            }
            Ok(self.shared.records.durable(self.shared.records.position()).await?)
        })
    }
}

/// The outcome of an interrupted step, as an operator or an event reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The step was done, with these outputs.
    Done(Vec<Data>),
    /// The step was not done; it runs again.
    Redo,
    /// The step failed, with this cause.
    Fail(String),
}

impl Handle {
    /// Reports the outcome of a step whose outcome is not known; see [`RunStatus::Waiting`]. Durable when it returns.
    ///
    /// In a run that could not be undone, reports the outcome of a failed compensation: it was done by hand
    /// ([`Resolution::Done`], without outputs), is retried with all others ([`Resolution::Redo`]), or is given up
    /// ([`Resolution::Fail`]).
    ///
    /// # Errors
    /// [`Error::Refused`] if there is no such step, or its outcome was reported before.
    pub fn resolve<'a>(&'a self, address: &'a str, resolution: Resolution) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move { self.resolve_as(address, resolution, None).await })
    }

    /// As [`Handle::resolve`], under an id: a report under an id that was used before does nothing. Returns true if
    /// this call made the report. The id is kept as long as the run.
    ///
    /// # Errors
    /// As [`Handle::resolve`].
    pub fn resolve_once<'a>(
        &'a self,
        address: &'a str,
        resolution: Resolution,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            if self.is_resolved(id).await? {
                return Ok(false);
            }
            let said = self.resolve_as(address, resolution, Some(id)).await;
            match said {
                Ok(()) => Ok(true),
                // Another caller reported under the same id, or the reply to our own report was lost.
                Err(Error::Refused { .. }) if self.is_resolved(id).await? => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    /// A report was made under this id.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn is_resolved<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let is_said = self.shared.row(report_key(self.id, id)).await?.is_some();
            // The caller will not report again, so the row must be durable.
            self.shared.records.durable(self.shared.records.position()).await?;
            Ok(is_said)
        })
    }

    fn resolve_as<'a>(
        &'a self,
        address: &'a str,
        resolution: Resolution,
        note: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let note = note.map(|note| report_key(self.id, note));
            let refused = |why: String| Error::Refused { key: self.key.clone(), why };
            let Some(run) = self.shared.runs.read_run(self.id).await? else {
                return Err(Error::Ended { key: self.key.clone() });
            };
            if let Phase::NotUndone { .. } = run.state().phase {
                return self.resolve_undo(&run, address, resolution).await;
            }
            let is_it = |why: &Why| why.awaited().is_some_and(|at| **at == *address);
            let Some((step, row, parked)) = self.shared.rows_of(&run.plan.keys).parked_for(is_it, 1).await?.pop()
            else {
                return Err(refused(format!("has no step {address} whose outcome is not known")));
            };
            if let (Resolution::Done(_), Why::Suspended { wakes: Some(deadline), .. }) = (&resolution, &parked.why)
                && self.shared.records.now().await? >= *deadline
            {
                // Whichever process works on the run next lets the deadline pass.
                return Err(refused(format!("waits for {address} no more: its timeout has passed")));
            }
            let (plan, state) = (&run.plan, run.state());
            if !may_decide(state.phase) {
                return Err(refused(String::from("is being undone or removed")));
            }
            let applied = match resolution {
                Resolution::Done(outputs) => {
                    let node = &plan.program.blocks[parked.ready_step.block as usize].nodes[step.node as usize];
                    let own = node.outputs.len() - usize::from(node.attempt);
                    // As many outputs as the task itself returns: a task without outputs returns only its `done`
                    // signal.
                    let is_done_only = own == 1 && node.outputs[0].name == onceflow_core::model::task::DONE;
                    let (wanted, mut outputs) = (own, outputs);
                    if is_done_only && outputs.is_empty() {
                        outputs.push(Data::Bytes(bytes::Bytes::from_static(&[0xc0])));
                    }
                    let mut storing = data::Storing::new(&self.shared.values, data::Files::Copied);
                    let mut outcomes = Vec::new();
                    for output in outputs {
                        outcomes.push(storing.store(&output).await?);
                    }
                    if outcomes.len() != wanted {
                        return Err(refused(format!(
                            "needs {wanted} outputs for {address}, and {} were given",
                            outcomes.len()
                        )));
                    }
                    outcomes.extend(node.attempt.then_some(Outcome::None));
                    assert_eq!(outcomes.len(), node.outputs.len(), "{address} is done without all of its outputs");
                    let step = (step, &row, &parked);
                    decide_done(&self.shared, &run, step, &outcomes, &storing.changes(), note).await?
                }
                Resolution::Redo => {
                    let draft = noted(run::redo(plan, state, step, (&row, &parked)), note.as_ref());
                    self.shared.commit_outside(draft, &[]).await?.is_applied()
                }
                Resolution::Fail(why) => {
                    let failed = Failed {
                        address: address.into(),
                        attempt: parked.ready_step.failed + 1,
                        causes: vec![why],
                        started: false,
                    };
                    let draft = noted(run::fail(plan, state, step, (&row, &parked), failed), note.as_ref());
                    self.shared.commit_outside(draft, &[]).await?.is_applied()
                }
            };
            self.shared.runs.read_run(self.id).await?;
            self.shared.records.durable(self.shared.records.position()).await?;
            if applied { Ok(()) } else { Err(refused(format!("went on meanwhile; look again at {address}"))) }
        })
    }
}

/// The row that records a report under this id: it stands beside the reasons of steps, so that it is deleted with the
/// run.
pub(crate) fn report_key(run: RunId, id: &str) -> onceflow_core::Key {
    let digest = blake3::hash(id.as_bytes());
    keys::reasons(run).key([REPORT, &digest.as_bytes()[..16]].concat())
}

/// Adds the row of a report to the draft; the batch is refused if that row exists.
pub(crate) fn noted<'a>(mut draft: Draft<'a>, note: Option<&onceflow_core::Key>) -> Draft<'a> {
    if let Some(note) = note {
        draft.batch.require_absent(note.clone()).put(note.clone(), onceflow_core::Row::default());
    }
    draft
}
