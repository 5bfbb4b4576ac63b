//! The facts about an unfinished run that a new plan rests on. They are read before a preview, and again once the run
//! is frozen: if they still stand, the plan that was previewed is the plan that is installed.

use super::{
    CheckedStart,
    done::done_so_far,
    kept::KeptValues,
    known::{KnownValues, PreviousPlan, held, still_right},
    live::Live,
    reruns::Marks,
};
use crate::{Error, runs::Run, shared::Shared};
use onceflow_core::protocol::ids::Generation;

/// The facts that a new plan of an unfinished run rests on.
#[derive(PartialEq)]
pub(super) struct Facts {
    /// The generation that they were read from.
    generation: Generation,
    /// The values that are valid for the new request.
    pub(super) known: KnownValues,
    /// Steps that are done, or may be, and must not be repeated without consent.
    pub(super) done_before: Marks,
    /// The addresses of at-most-once steps that were started and have reported no outcome.
    started: Vec<String>,
    /// Compensations are registered.
    can_be_undone: bool,
}

impl Facts {
    /// The facts about a run, given its rows.
    pub(super) async fn read(
        shared: &Shared,
        asked: &CheckedStart,
        run: &Run,
        live: &Live,
        before: &PreviousPlan,
    ) -> Result<Facts, Error> {
        let mut started = Vec::new();
        for (step, ready_step) in live.ready_steps.iter().filter(|(_, ready_step)| ready_step.started.is_some()) {
            let node = run.plan.program.blocks[ready_step.block as usize].nodes.get(step.node as usize);
            match shared.runs.place(run, step.frame, step.index).await {
                Ok(place) => started.push(place.address(node.map_or(&[], |node| &*node.path))),
                // The run went on meanwhile, and the frame of the step has closed.
                Err(_) if shared.runs.frame(run, step.frame).await?.is_none() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Facts {
            generation: run.plan.keys.generation,
            known: known_of(shared, asked, run, live, before).await?,
            done_before: done_so_far(run, live, before),
            started,
            can_be_undone: !live.undos.is_empty(),
        })
    }

    /// The error with which a new plan is refused, whatever it is: at-most-once steps were started, or compensations
    /// are registered.
    pub(super) fn refusal(&self, asked: &CheckedStart) -> Option<Error> {
        let key = || asked.start.key.clone();
        // Registrations of compensations refer to their plan.
        if self.can_be_undone {
            return Some(Error::CanBeUndone { key: key() });
        }
        let is_undecided = !asked.start.accept_reruns && !self.started.is_empty();
        is_undecided.then(|| Error::Undecided { key: key(), steps: self.started.clone() })
    }
}

/// The values of an unfinished run that are valid for this start.
pub(super) async fn known_of(
    shared: &Shared,
    asked: &CheckedStart,
    run: &Run,
    live: &Live,
    before: &PreviousPlan,
) -> Result<KnownValues, Error> {
    let mut known = still_right(held(run, live)?, before, asked);
    if run.header.keep_ms.is_some() {
        known.extend(KeptValues::new(&shared.kernel, &run.plan.keys).valid_for(asked).await?);
    }
    Ok(known)
}
