//! Explains whether an unfinished run can continue with another flow, and what that would do: a dry run, which needs
//! none of the files that the run was started with.

use super::{CheckedStart, Engine, Start, inputs::Inputs};
use crate::{Error, data, runs::Run, task::Data};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Digest,
    payload::Outcome,
    plan::Explanation,
    protocol::{
        ids::FrameId,
        keys,
        rows::{self, Head, Phase, Status},
    },
};
use std::sync::{Arc, Mutex};

/// The effect of giving a run another flow.
#[derive(Debug)]
pub struct Move {
    /// Flow, inputs and requested outputs are those of the run: nothing changes.
    pub is_same: bool,
    /// The steps that would run, be reused and be skipped.
    pub explanation: Explanation,
    /// The error with which the new plan would be refused, if it would.
    pub refused: Option<Error>,
}

impl Engine {
    /// The error with which [`Engine::start`] would refuse to give an existing run a new plan; `None` if it would not,
    /// or if there is no such run. Changes nothing.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn refusal(&self, start: Start) -> BoxFuture<'_, Result<Option<Error>, Error>> {
        Box::pin(async move {
            let asked = self.ask(start).await?;
            match self.active_run(&asked.start.key).await? {
                Some(run) if matches!(run.state().phase, Phase::NotUndone { .. }) => {
                    self.shared.not_undone(&run).await.map(Some)
                }
                Some(run) if !asked.is(&run.header) => self.why_not(&asked, &run).await,
                Some(_) => Ok(None),
                None => self.why_not_again(&asked).await,
            }
        })
    }

    /// The error with which a finished run would be refused a new plan; `None` if it would not.
    async fn why_not_again(&self, asked: &CheckedStart) -> Result<Option<Error>, Error> {
        let row = self.shared.row(keys::heads().key(&asked.start.key)).await?;
        let Some(Head::Finished(finished)) = row.as_deref().and_then(rows::read::<Head>) else { return Ok(None) };
        if finished.status != Status::Done || self.shared.is_done(asked, &finished).await? {
            return Ok(None);
        }
        match self.plan_again(asked, &finished).await {
            Ok(_) => Ok(None),
            Err(refused @ Error::WouldRerun { .. }) => Ok(Some(refused)),
            Err(error) => Err(error),
        }
    }

    /// Explains what would happen to the unfinished run of this start's key if it was started with this flow and the
    /// run's own inputs; the inputs of the start are used only where the run has none. `None` if there is no such run.
    /// Changes nothing.
    ///
    /// # Errors
    /// If the flow does not pass its checks, lacks an input, or the store does not answer.
    pub fn explain_move(&self, start: Start) -> BoxFuture<'_, Result<Option<Move>, Error>> {
        Box::pin(async move {
            let Some(run) = self.active_run(&start.key).await? else { return Ok(None) };
            let asked = self.ask_with_its_own(start, &run).await?;
            let is_same = asked.is(&run.header);
            let before = self.shared.before(&run.header).await?;
            let before = before.ok_or_else(|| Error::damaged(format!("the program of run `{}`", run.key)))?;
            let known = self.shared.known_of(&run, &asked, &before).await?;
            let explanation = self.shared.plan_over_intact(&asked, &known, Some(&before), false).await?.explanation;
            let refused = if is_same { None } else { self.why_not(&asked, &run).await? };
            Ok(Some(Move { is_same, explanation, refused }))
        })
    }

    async fn active_run(&self, key: &str) -> Result<Option<std::sync::Arc<Run>>, Error> {
        let row = self.shared.row(keys::heads().key(key)).await?;
        match row.as_deref().and_then(rows::read::<Head>) {
            Some(Head::Active(id)) => self.shared.runs.read_run(id).await,
            Some(Head::Finished(_)) | None => Ok(None),
        }
    }

    async fn ask_with_its_own(&self, start: Start, run: &Run) -> Result<CheckedStart, Error> {
        let program = self.check(&start)?;
        let root = self.shared.runs.frame(run, FrameId::ROOT).await?;
        let root = root.ok_or_else(|| Error::damaged(format!("the frame of run `{}`", run.key)))?;
        let own = |name: &str| {
            let at = run.header.inputs.iter().position(|(input, _): &(String, Digest)| input == name)?;
            root.inputs.get(at)?.as_ref().map(|held| held.outcome.clone())
        };
        let (mut found, mut lacking) = (Vec::new(), Vec::new());
        for port in program.identity().inputs {
            let given = start.inputs.iter().find(|(name, _)| *name == port.name).map(|(_, data)| data.clone());
            match (own(&port.name), given) {
                (Some(outcome), _) => found.push((port.name, outcome)),
                (None, Some(data)) => found.push((port.name, data::look(data).await?.outcome)),
                (None, None) if matches!(port.ty, onceflow_core::model::Type::Option(_)) => {
                    found.push((port.name, Outcome::None));
                }
                (None, None) => lacking.push(format!("`{}`", port.name)),
            }
        }
        if !lacking.is_empty() {
            return Err(Error::Inputs(format!("the flow takes {}, which the run does not have", lacking.join(", "))));
        }
        let start = Start { inputs: Vec::<(String, Data)>::new(), ..start };
        let digest = program.blocks[0].digest;
        Ok(CheckedStart {
            program: Arc::new(program),
            digest,
            inputs: Inputs::seen(found),
            stored: Mutex::default(),
            start,
        })
    }

    /// Why a run gets no new plan, if it does not.
    async fn why_not(&self, asked: &CheckedStart, run: &Run) -> Result<Option<Error>, Error> {
        match run.state().phase {
            Phase::Running | Phase::Failing | Phase::Failed { .. } | Phase::Waiting | Phase::Frozen => {}
            Phase::NotUndone { .. } => return self.shared.not_undone(run).await.map(Some),
            _ => return Ok(Some(Error::Busy { key: asked.start.key.clone() })),
        }
        let refused = match self.may_run_again(asked, run).await {
            Err(refused) => Err(refused),
            Ok(()) => self.plan_anew(asked, run).await.map(drop),
        };
        match refused {
            Ok(()) => Ok(None),
            Err(refused @ (Error::CanBeUndone { .. } | Error::Undecided { .. } | Error::WouldRerun { .. })) => {
                Ok(Some(refused))
            }
            Err(error) => Err(error),
        }
    }
}
