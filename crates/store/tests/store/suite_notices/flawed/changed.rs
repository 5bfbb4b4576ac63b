//! Flaws that change a request or an answer, and nothing else.

use super::Flaw;
use onceflow_store::{
    CommitResult, Position,
    core::{Batch, Kind, Op, Pick, Require},
};

pub(super) fn change_batch(flaw: Flaw, batch: &mut Batch) {
    match (flaw, &mut batch.claim) {
        (Flaw::NeverTakesFreshRowsFirst, Some(claim)) => claim.pick = Pick::InTurn,
        (Flaw::AlwaysTakesFreshRowsFirst, Some(claim)) => claim.pick = Pick::EnabledFirst,
        (Flaw::AsksLaterQueuesFirst, Some(claim)) => claim.queues.reverse(),
        (Flaw::HalvesDeadlines, Some(claim)) => claim.ttl_ms /= 2,
        (Flaw::KeepsClaimsOfAGroup, _) => {
            batch.ops.retain(|op| !matches!(op, Op::DeleteGroup(group) if group.kind() == Kind::Claims));
        }
        (Flaw::DoesNotFireOnNothing, _) => batch.ops.retain(|op| !matches!(op, Op::Add { delta: 0, .. })),
        (Flaw::TakesEqualsForPresent, _) if batch.ops.is_empty() => {
            for require in &mut batch.requires {
                if let Require::Equals(key, _) = require {
                    *require = Require::Present(key.clone());
                }
            }
        }
        (Flaw::ForgetsEmptyRows, _) => {
            for op in &mut batch.ops {
                match op {
                    Op::Put(key, row) if row.is_empty() && key.group.id() != b"permits" => {
                        *op = Op::Delete(key.clone());
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

pub(super) fn change_outcome(flaw: Flaw, outcome: &mut CommitResult, requires: usize) {
    match outcome {
        CommitResult::Refused(refused) => match flaw {
            Flaw::ForgetsWhatItFound => refused.found = None,
            Flaw::NamesTheLastRequire => refused.which = requires - 1,
            Flaw::AnswersTheFirstPosition => refused.position = Position(0),
            _ => {}
        },
        CommitResult::Applied(done) => match (flaw, &mut done.claimed) {
            (Flaw::AnswersFiredBackwards, _) => done.fired.reverse(),
            (Flaw::AnswersNothingFired, _) => done.fired.clear(),
            (Flaw::AnswersTheFirstPosition, _) => done.position = Position(0),
            (Flaw::AnswersNoInputs, Some(claimed)) => claimed.inputs.clear(),
            (Flaw::NeverSaysThatAnInboxHasMore, Some(claimed)) => claimed.more = false,
            _ => {}
        },
    }
}
