//! The reasons why the steps of a plan run or do not, recorded when the plan was made: a row for each of the last few
//! plans of a run, written with the plan and deleted with the run's history. The first plan of a run that reuses
//! nothing has none: all of its steps run for the first time.

use crate::{Error, RunHistory, shared::Shared};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Batch, Timestamp,
    plan::{Explanation, Fate, Reason},
    protocol::{
        ids::{Generation, RunId},
        keys, rows,
    },
};
use serde::{Deserialize, Serialize};

/// Plans of a run whose reasons are kept.
pub const PLANS_MAX: u32 = 8;

/// Bytes of addresses and names kept of one plan: far below the limit of a row.
const BYTES_MAX: usize = 128 << 10;

/// The reasons why outermost steps of a plan run, or do not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasons {
    /// The plan of the run: 0 is the first.
    pub generation: u32,
    /// The time of planning, on the store's clock.
    pub decided: Timestamp,
    /// The fate and reason of each step, by address, in the order of the flow.
    pub lines: Vec<(String, Fate, Reason)>,
    /// Steps that are not listed because the row would exceed its limit.
    pub left_out: u32,
}

impl Reasons {
    fn of(generation: Generation, decided: Timestamp, explanation: &Explanation) -> Self {
        let mut bytes = 0;
        let mut fits = |address: &str, reason: &Reason| {
            bytes += address.len() + 8 + weight(reason);
            bytes <= BYTES_MAX
        };
        let kept = explanation.lines.iter().take_while(|line| fits(&line.address, &line.reason));
        let lines: Vec<_> = kept.map(|line| (line.address.clone(), line.fate, line.reason.clone())).collect();
        let left_out = u32::try_from(explanation.lines.len() - lines.len()).unwrap_or(u32::MAX);
        Reasons { generation: generation.0, decided, lines, left_out }
    }
}

/// Bytes of the names in a reason.
fn weight(reason: &Reason) -> usize {
    match reason {
        Reason::CodeChanged { from, to } => from.len() + to.len(),
        Reason::InputChanged { port } => port.len(),
        Reason::SourceReruns { address } => address.len(),
        Reason::New | Reason::NoValue | Reason::Kept | Reason::NotNeeded | Reason::Damaged => 0,
    }
}

/// Adds the reasons of a plan to the batch that installs it.
pub(super) async fn write_reasons(
    shared: &Shared,
    batch: &mut Batch,
    (run, generation): (RunId, Generation),
    (explanation, is_partial): (&Explanation, bool),
) -> Result<(), Error> {
    if generation == Generation(0) && !is_partial {
        return Ok(());
    }
    let now = shared.records.now().await?;
    let group = keys::reasons(run);
    let reasons = Reasons::of(generation, now, explanation);
    batch.put(group.key(generation.0.to_be_bytes()), rows::write(&reasons));
    if let Some(old) = generation.0.checked_sub(PLANS_MAX) {
        batch.delete(group.key(old.to_be_bytes()));
    }
    Ok(())
}

impl<'a> RunHistory<'a> {
    /// The reasons of the last few plans of the run, the oldest plan first: why each step runs or does not. None for a
    /// first plan whose steps all run for the first time.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn reasons(self) -> BoxFuture<'a, Result<Vec<Reasons>, Error>> {
        Box::pin(async move {
            let rows = self.handle.shared.kernel.all_rows(keys::reasons(self.handle.id()), b"").await?;
            // Rows of reports under an id ([`Handle::resolve_once`]) stand in the same group.
            let rows = rows.iter().filter(|(name, _)| name.as_bytes().len() == size_of::<u32>());
            rows.map(|(_, row)| rows::read(row).ok_or_else(|| Error::damaged("why steps ran"))).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_core::plan::explain::ExplanationLine;

    #[test]
    fn reasons_fit_into_a_row_and_say_what_they_leave_out() {
        let line = |node: u32| ExplanationLine {
            node,
            address: format!("/{node:0100}"),
            fate: Fate::Run,
            reason: Reason::InputChanged { port: String::from("reads") },
            is_open: false,
        };
        let explanation = Explanation { lines: (0..100_000).map(line).collect() };
        let reasons = Reasons::of(Generation(3), Timestamp::from_ms(7), &explanation);
        assert!(rows::write(&reasons).len() < onceflow_core::limits::ROW_BYTES_MAX / 4);
        assert_eq!(reasons.lines.len() + reasons.left_out as usize, 100_000);
        assert_eq!(reasons.lines[0], (explanation.lines[0].address.clone(), Fate::Run, line(0).reason));
    }
}
