//! Plans for a checked start: which values of an earlier run are valid for it, and which steps run. Nothing is written.

use super::{
    CheckedStart,
    damage::plan_over_intact,
    facts::Facts,
    kept::KeptValues,
    known::{KnownValues, PreviousPlan, given_out, still_right},
    replan::{PlannedFrom, PlannedRun},
    reruns::done_by,
};
use crate::{Error, shared::Shared};
use onceflow_core::protocol::{
    keys::Keys,
    rows::{Finished, Status},
};

/// The plans of a start.
#[derive(Clone, Copy)]
pub(super) struct Planning<'a> {
    pub(super) shared: &'a Shared,
    pub(super) asked: &'a CheckedStart,
}

impl Planning<'_> {
    /// Plans over the known values that are intact.
    pub(super) async fn plan_over(
        &self,
        known: &KnownValues,
        before: Option<&PreviousPlan>,
    ) -> Result<PlannedRun, Error> {
        plan_over_intact(&self.shared.values, self.asked, known, before, self.fuses()).await
    }

    /// Plans an unfinished run anew, over these facts.
    pub(super) async fn plan_unfinished(
        &self,
        facts: &Facts,
        before: Option<&PreviousPlan>,
    ) -> Result<PlannedRun, Error> {
        let mut planned = self.plan_over(&facts.known, before).await?;
        planned.done_before.clone_from(&facts.done_before);
        Ok(planned)
    }

    /// Plans another generation of a finished run.
    pub(super) async fn plan_again(&self, finished: &Finished) -> Result<PlannedFrom, Error> {
        let (known, before) = self.kept_by(finished).await?;
        let mut planned = self.plan_over(&known, before.as_ref()).await?;
        planned.done_before = done_by(&self.shared.values, finished).await?;
        Ok(PlannedFrom { planned, known })
    }

    /// The values that a finished run has kept and that are valid for this start, with the plan they come from.
    async fn kept_by(&self, finished: &Finished) -> Result<(KnownValues, Option<PreviousPlan>), Error> {
        let asked = self.asked;
        let before = PreviousPlan::read(&self.shared.values, &finished.header).await?;
        let mut known = match &before {
            // The same start again, because some of the outputs are damaged: the others are valid as they are.
            Some(before) if finished.status == Status::Done && asked.is(&finished.header) => {
                still_right(given_out(before, &finished.outputs), before, asked)
            }
            _ => KnownValues::new(),
        };
        if finished.header.keep_ms.is_some() {
            let keys = Keys::new(finished.run, finished.generation);
            known.extend(KeptValues::new(&self.shared.kernel, &keys).valid_for(asked).await?);
        }
        Ok((known, before))
    }

    pub(super) fn fuses(&self) -> bool {
        self.shared.options.fuse && self.asked.start.keep_ms.is_none()
    }
}
