//! The values a plan reuses are verified before it relies on them. A value whose object is missing or damaged counts as missing: the
//! step that gave it runs again, and putting the same content again heals the value for all that refer to it.
//!
//! ```text
//! plan     every value that it reads is looked at; without the broken ones it is planned again, until all it reads is whole
//! take     a step that finds its kept result broken drops it, and runs
//! load     a step that is given broken bytes drops them and is put aside: the next start plans anew, as above
//! store    content that is stored again takes the place of a broken object of the same content
//! ```

use super::{
    CheckedStart,
    known::{KnownValues, PreviousPlan},
    replan::{self, PlannedRun},
};
use crate::{
    Error, data,
    error::is_damage,
    shared::{Run, Shared},
};
use onceflow_core::{
    Key,
    payload::Outcome,
    plan::{Fate, Reason},
    protocol::{
        keys::Keys,
        rows::{self, Finished, Memo, Why},
    },
};
use onceflow_store::values;
use std::collections::BTreeSet;

impl Shared {
    /// Plans over what is known and whole.
    pub(super) async fn plan_over_intact(
        &self,
        asked: &CheckedStart,
        known: &KnownValues,
        before: Option<&PreviousPlan>,
        fuses: bool,
    ) -> Result<PlannedRun, Error> {
        let (mut known, mut seen, mut lost) = (std::borrow::Cow::Borrowed(known), BTreeSet::new(), BTreeSet::new());
        loop {
            let mut planned = replan::plan(asked, &known, before, fuses)?;
            let mut broken = Vec::new();
            for at in planned.reads.iter().filter(|at| seen.insert(**at)) {
                let outcome = &known[at].0;
                if !self.is_intact(outcome).await? {
                    broken.push(outcome.clone());
                }
            }
            if broken.is_empty() {
                let of_lost = |line: &&mut onceflow_core::plan::explain::ExplanationLine| lost.contains(&line.node);
                for line in planned.explanation.lines.iter_mut().filter(of_lost).filter(|line| line.fate == Fate::Run) {
                    line.reason = Reason::Damaged;
                }
                return Ok(planned);
            }
            // A relay has the very value of what it relays.
            known.to_mut().retain(|(node, _), (outcome, _)| {
                let is_whole = !broken.contains(outcome);
                if !is_whole {
                    lost.insert(*node);
                }
                is_whole
            });
        }
    }

    /// Whether a value is in the store as it was put there, as far as that shows at little cost.
    pub(crate) async fn is_intact(&self, outcome: &Outcome) -> Result<bool, Error> {
        Ok(data::broken(&self.values, outcome).await?.is_empty())
    }

    /// The same of all that a run gave.
    pub(crate) async fn are_outputs_intact(&self, outputs: &[(String, Outcome)]) -> Result<bool, Error> {
        for (_, outcome) in outputs {
            if !self.is_intact(outcome).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a finished run is done with what is asked for: it gave that, and that is whole.
    pub(super) async fn is_done(&self, asked: &CheckedStart, finished: &Finished) -> Result<bool, Error> {
        Ok(asked.is(&finished.header) && self.are_outputs_intact(&finished.outputs).await?)
    }

    /// Whether a run stands still because of what the store has lost: to try again does not help, a new plan does.
    pub(super) async fn stands_for_damage(&self, run: &Run) -> Result<bool, Error> {
        let is_it = |why: &Why| matches!(why, Why::Failed(failed) if is_damage(failed));
        Ok(!self.parked_for(&run.plan.keys, is_it, 1).await?.is_empty())
    }

    /// Drops what an error says is broken, so that it counts as missing from now on.
    pub(crate) async fn drop_broken(&self, error: &Error) {
        let Error::Values(values::Error::Broken { id, .. }) = error else {
            return;
        };
        if let Err(error) = self.values.drop_if_broken(id).await {
            tracing::warn!(%error, %id, "failed to drop a damaged object; whoever reads it next tries again");
        }
    }

    /// What a step gave before, if all of it is whole. What is not is dropped, with the row that keeps it.
    pub(crate) async fn kept_if_intact(&self, keys: &Keys, key: Key) -> Result<Option<Vec<Outcome>>, Error> {
        let Some(row) = self.row(key.clone()).await? else { return Ok(None) };
        let (memo, mut is_whole) = (rows::read::<Memo>(&row), true);
        for outcome in memo.iter().flat_map(|memo| &memo.outputs) {
            for id in data::broken(&self.values, outcome).await? {
                is_whole = false;
                self.values.drop_if_broken(&id).await?;
            }
        }
        match memo {
            Some(memo) if is_whole => Ok(Some(memo.outputs)),
            _ => {
                tracing::warn!(?key, "a kept result is damaged; its step runs again");
                self.remove_kept(keys, &[(key.name, row)]).await?;
                Ok(None)
            }
        }
    }
}
