//! Continues a run by its key alone: the run carries its program and inputs. Also reads its inputs, outputs and
//! undecided steps, for callers without the flow file.

use super::{known::PreviousPlan, live::Live, not_undone::FailedUndos};
use crate::{Error, Handle, RunRequest, RunSteps, data, runs::Run, shared::Shared, task::Data};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Digest,
    model::{Port, program::NodeOp, task::DONE},
    payload::Outcome,
    protocol::{
        ids::{FrameId, StepId},
        keys,
        rows::{self, Head, Header, Held, Phase, ReadyStep, RunState, Why},
        run,
    },
};
use std::path::Path;

/// The inputs and outputs of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The inputs, in the flow's order.
    pub inputs: Vec<Port>,
    /// The requested outputs.
    pub outputs: Vec<Port>,
}

/// A step whose outcome is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndecidedStep {
    /// The address of the step.
    pub address: String,
    /// The outputs that its task would have given.
    pub outputs: Vec<Port>,
    /// The name of its task, and the settings that the flow gives to an executor of many tasks.
    pub task: Option<(String, Vec<u8>)>,
}

impl Handle {
    /// Retries failed steps, or failed compensations, and lets a run that was stopped while it was planned continue
    /// with its old plan. If addresses are given, only the failed steps there are retried. Returns the number of steps.
    /// Durable when it returns. A worker must serve the run for anything to happen.
    ///
    /// # Errors
    /// [`Error::Ended`] if the run has ended; [`Error::Busy`] if it is about to; [`Error::Refused`] if it waits for the
    /// outcome of a step to be reported.
    pub fn retry<'a>(&'a self, only: Option<&'a [String]>) -> BoxFuture<'a, Result<usize, Error>> {
        Box::pin(async move {
            let key = || self.key.clone();
            let Some(run) = self.shared.runs.read_run(self.id()).await? else {
                return Err(Error::Ended { key: key() });
            };
            let state = run.state();
            let tried = match state.phase {
                Phase::Running | Phase::Failing => 0,
                Phase::Failed { .. } => retry_failed(&self.shared, &run, only).await?,
                Phase::Frozen => {
                    thaw(&self.shared, &run, state, Phase::Running).await?;
                    0
                }
                Phase::Waiting => {
                    let why = String::from("waits for the outcome of a step to be reported");
                    return Err(Error::Refused { key: key(), why });
                }
                Phase::NotUndone { .. } => FailedUndos::of(&self.shared, &run).retry().await?,
                _ => return Err(Error::Busy { key: key() }),
            };
            self.shared.records.durable(self.shared.records.position()).await?;
            Ok(tried)
        })
    }
}

impl<'a> RunRequest<'a> {
    /// The inputs and outputs of the run; `None` if its program is not kept any more.
    ///
    /// # Errors
    /// [`Error::NoRun`] if its history has ended.
    pub fn signature(self) -> BoxFuture<'a, Result<Option<Signature>, Error>> {
        Box::pin(async move {
            let before = PreviousPlan::read(&self.handle.shared.values, &self.header().await?).await?;
            Ok(before.map(|before| {
                let root = &before.program.blocks[0];
                Signature {
                    inputs: root.inputs.iter().map(|input| input.port.clone()).collect(),
                    outputs: root.outputs.iter().filter(|out| !out.hidden).map(|out| out.port.clone()).collect(),
                }
            }))
        })
    }

    /// The requested outputs; `None` is all.
    ///
    /// # Errors
    /// [`Error::NoRun`] if its history has ended.
    pub fn requested(self) -> BoxFuture<'a, Result<Option<Vec<String>>, Error>> {
        Box::pin(async move { Ok(self.header().await?.requested) })
    }

    /// The digests of the run's inputs: see [`Data::digest`].
    ///
    /// # Errors
    /// [`Error::NoRun`] if its history has ended.
    pub fn input_digests(self) -> BoxFuture<'a, Result<Vec<(String, Digest)>, Error>> {
        Box::pin(async move { Ok(self.header().await?.inputs) })
    }

    /// The header of the run: its request.
    pub(crate) async fn header(self) -> Result<Header, Error> {
        /// Looks at a run that ends and begins again and again.
        const LOOKS_MAX: usize = 1000;
        for _ in 0..LOOKS_MAX {
            let row = self.handle.shared.row(keys::heads().key(&self.handle.key)).await?;
            let Some(row) = row else { return Err(self.handle.shared.no_run(&self.handle.key).await) };
            match rows::read(&row).ok_or_else(|| Error::damaged(format!("the row of run `{}`", self.handle.key)))? {
                Head::Finished(finished) => return Ok(finished.header),
                // The run may end between two looks.
                Head::Active(id) => {
                    if let Some(run) = self.handle.shared.runs.read_run(id).await? {
                        return Ok(run.header.clone());
                    }
                }
            }
        }
        Err(Error::damaged(format!("the rows of run `{}`", self.handle.key)))
    }

    /// The inputs of an unfinished run, by name; files are written into `directory`, except files by reference. `None`
    /// if the run has ended: its inputs are not kept.
    ///
    /// # Errors
    /// If the inputs cannot be read, or not written there.
    pub fn inputs(self, directory: &'a Path) -> BoxFuture<'a, Result<Option<Vec<(String, Data)>>, Error>> {
        Box::pin(async move {
            let Some(given) = self.input_outcomes().await? else { return Ok(None) };
            let mut found = Vec::with_capacity(given.len());
            for (name, outcome) in given {
                let data = match outcome.value() {
                    None => Data::None,
                    Some(payload) => {
                        data::load_inputs(&self.handle.shared.values, payload, &directory.join(&name)).await?
                    }
                };
                found.push((name, data));
            }
            Ok(Some(found))
        })
    }

    /// The inputs of an unfinished run as the store holds them: see [`RunOutputs::peek`](crate::RunOutputs::peek).
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn input_outcomes(self) -> BoxFuture<'a, Result<Option<Vec<(String, Outcome)>>, Error>> {
        Box::pin(async move {
            let Some(run) = self.handle.shared.runs.read_run(self.handle.id()).await? else { return Ok(None) };
            let Some(root) = self.handle.shared.runs.frame(&run, FrameId::ROOT).await? else { return Ok(None) };
            let outcome = |held: &Option<Held>| held.as_ref().map_or(Outcome::None, |held| held.outcome.clone());
            let names = run.header.inputs.iter().map(|(name, _)| name.clone());
            Ok(Some(names.zip(root.inputs.iter().map(outcome)).collect()))
        })
    }
}

impl<'a> RunSteps<'a> {
    /// The steps whose outcome is not known, each with the outputs that it would have given.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn undecided_steps(self) -> BoxFuture<'a, Result<Vec<UndecidedStep>, Error>> {
        Box::pin(async move {
            let Some(run) = self.handle.shared.runs.read_run(self.handle.id()).await? else { return Ok(vec![]) };
            let is_it = |why: &Why| why.awaited().is_some();
            let parked = self.handle.shared.rows_of(&run.plan.keys).parked_for(is_it, usize::MAX).await?;
            let parked = parked.iter().map(|(step, _, parked)| (*step, &parked.why, &parked.ready_step));
            Ok(parked.filter_map(|(step, why, ready_step)| undecided_if(&run, step, why, ready_step)).collect())
        })
    }
}

/// The parked steps of a run whose outcome is not known.
pub(super) fn undecided_of(run: &Run, live: &Live) -> Vec<UndecidedStep> {
    let parked = live.parked.iter().map(|(step, why)| (*step, why, &live.ready_steps[step]));
    parked.filter_map(|(step, why, ready_step)| undecided_if(run, step, why, ready_step)).collect()
}

/// A parked step, if its outcome is not known.
fn undecided_if(run: &Run, step: StepId, why: &Why, ready_step: &ReadyStep) -> Option<UndecidedStep> {
    why.awaited().map(|address| undecided(run, address.to_string(), step, ready_step))
}

/// A step of a run, with everything needed to report its outcome.
pub(super) fn undecided(run: &Run, address: String, step: StepId, ready_step: &ReadyStep) -> UndecidedStep {
    let node = &run.plan.program.blocks[ready_step.block as usize].nodes[step.node as usize];
    let own = &node.outputs[..node.outputs.len() - usize::from(node.attempt)];
    let outputs = own.iter().filter(|port| port.name != DONE).cloned().collect();
    let task = match &node.op {
        NodeOp::Task(task) => Some(&run.plan.program.tasks[*task as usize]),
        _ => None,
    };
    let task = task.map(|task| (task.name.clone(), task.params.clone()));
    UndecidedStep { address, outputs, task }
}

/// Retries failed steps, all of them or those at these addresses, and the steps that were parked with them.
pub(super) async fn retry_failed(shared: &Shared, run: &Run, only: Option<&[String]>) -> Result<usize, Error> {
    const UNPARK_MAX: usize = 100;
    /// Other callers may commit in between a few times for every page; a caller that is refused more often leaves
    /// the rest to them.
    const REFUSED_MAX: usize = 1000;
    let (mut after, mut tried, mut refused) = (None, 0, 0);
    let is_meant = |why: &Why| match why {
        Why::Failed(failed) => only.is_none_or(|only| only.iter().any(|address| **address == *failed.address)),
        Why::NotStarted | Why::Unknown { .. } => true,
        // Something outside, or its timer, wakes it.
        Why::Suspended { .. } => false,
    };
    loop {
        // A step that fails again meanwhile stands before this one, and is not tried a third time.
        let mut parked = shared.rows_of(&run.plan.keys).parked(after, UNPARK_MAX).await?;
        let Some((last, ..)) = parked.last() else { return Ok(tried) };
        let before = after.replace(*last);
        parked.retain(|(_, _, parked)| is_meant(&parked.why));
        if parked.is_empty() {
            continue;
        }
        let state = run.state();
        let draft = run::unpark(&run.plan, state, &parked);
        if !shared.commit_outside(draft, &[]).await?.is_applied() {
            // Another caller retries too, or a step retried first has failed again: the steps that are still parked
            // are still to be retried.
            shared.runs.read_run(run.plan.keys.run).await?;
            let goes_on = matches!(run.state().phase, Phase::Running | Phase::Failing | Phase::Failed { .. });
            refused += 1;
            if !goes_on || refused == REFUSED_MAX {
                return Ok(tried);
            }
            after = before;
            continue;
        }
        tried += parked.iter().filter(|(_, _, parked)| matches!(parked.why, Why::Failed(_))).count();
        run.set_state(RunState { phase: Phase::Running, ..state });
    }
}

/// Returns a frozen run to its old plan, because there is no new one; the run is settled if no step is in flight.
pub(super) async fn thaw(shared: &Shared, run: &Run, frozen: RunState, before: Phase) -> Result<(), Error> {
    let draft = run::turn(&run.plan, frozen, before);
    if shared.commit_outside(draft, &[]).await?.is_applied() {
        run.set_state(RunState { phase: before, ..frozen });
    }
    Ok(())
}

impl<'a> RunSteps<'a> {
    /// The steps that would be undone if the run was cancelled now, the last first.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn pending_undos(self) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(async move {
            let Some(run) = self.handle.shared.runs.read_run(self.handle.id()).await? else { return Ok(vec![]) };
            let registered = self.handle.shared.rows_of(&run.plan.keys).registrations().await?;
            Ok(registered.iter().rev().map(|registration| registration.undo.address.to_string()).collect())
        })
    }
}
