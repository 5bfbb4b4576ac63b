//! The values a plan reuses are verified before it relies on them. A value whose object is missing or damaged counts as
//! missing: the step that gave it runs again, and putting the same content again heals the value for all that refer to
//! it.
//!
//! ```text
//! plan     every value that it reads is checked; without the broken ones it is planned again, until all are intact
//! take     a step that finds its kept outputs broken drops them, and runs
//! load     a step with broken inputs drops them and is parked: the next start plans anew, as above
//! store    content that is stored again replaces a broken object of the same content
//! ```

use super::{
    CheckedStart,
    known::{KnownValues, PreviousPlan},
    replan::{self, PlannedRun},
};
use crate::{Error, data, error::is_damage, run_rows::RunRows};
use onceflow_core::{
    payload::Outcome,
    plan::{Fate, Reason},
    protocol::rows::{Finished, Why},
};
use onceflow_store::values::{self, Values};
use std::collections::BTreeSet;

/// Plans over the known values that are intact.
pub(super) async fn plan_over_intact(
    values: &Values,
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
            if !is_intact(values, outcome).await? {
                broken.push(outcome.clone());
            }
        }
        assert!(planned.reads.iter().all(|at| known.contains_key(at)), "a plan reads a value that is not known");
        if broken.is_empty() {
            let of_lost = |line: &&mut onceflow_core::plan::explain::ExplanationLine| lost.contains(&line.node);
            for line in planned.explanation.lines.iter_mut().filter(of_lost).filter(|line| line.fate == Fate::Run) {
                line.reason = Reason::Damaged;
            }
            return Ok(planned);
        }
        // A relay has the same value as the node it relays.
        known.to_mut().retain(|(node, _), (outcome, _)| {
            let is_whole = !broken.contains(outcome);
            if !is_whole {
                lost.insert(*node);
            }
            is_whole
        });
    }
}

/// The value is in the store as it was written, as far as a cheap check can tell.
pub(crate) async fn is_intact(values: &Values, outcome: &Outcome) -> Result<bool, Error> {
    Ok(data::broken(values, outcome).await?.is_empty())
}

/// All outputs of a run are intact.
pub(crate) async fn are_outputs_intact(values: &Values, outputs: &[(String, Outcome)]) -> Result<bool, Error> {
    for (_, outcome) in outputs {
        if !is_intact(values, outcome).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A finished run answers this request: it was started with the same, and its outputs are intact.
pub(super) async fn is_done(values: &Values, asked: &CheckedStart, finished: &Finished) -> Result<bool, Error> {
    Ok(asked.is(&finished.header) && are_outputs_intact(values, &finished.outputs).await?)
}

/// The run failed because of values that the store has lost: a retry does not help, a new plan does.
pub(super) async fn stands_for_damage(rows: RunRows<'_>) -> Result<bool, Error> {
    let is_it = |why: &Why| matches!(why, Why::Failed(failed) if is_damage(failed));
    Ok(!rows.parked_for(is_it, 1).await?.is_empty())
}

/// Drops the value that an error reports as broken, so that it counts as missing from now on.
pub(crate) async fn drop_broken(values: &Values, error: &Error) {
    let Error::Values(values::Error::Broken { id, .. }) = error else {
        return;
    };
    if let Err(error) = values.integrity().drop_if_broken(id).await {
        tracing::warn!(%error, %id, "failed to drop a damaged object; the next reader tries again");
    }
}
