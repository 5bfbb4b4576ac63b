//! Decisions of this crate that a known bug can replace, one function each. A normal build makes the correct decision
//! that the function's first sentence states. A build with the feature `hazards` has the bug instead while its
//! [switch](crate::hazard) is on, and the simulator must detect it.

use crate::{
    batch::{Batch, Op},
    fence::Fence,
    hazard::is_on,
    key::{Group, Key},
    payload::Outcome,
    protocol::{
        claim::WorkClaim,
        rows::{Held, ReadyStep, Received, Why},
    },
    row::Row,
};

/// A batch must be repeatable. Bugs that repeat arrivals or wakes on purpose are exempt.
pub(crate) fn must_be_repeatable() -> bool {
    !is_on("arrivals-repeated") && !is_on("arrivals-counted") && !is_on("woken-stays-parked")
}

/// Every start of a process has an incarnation of its own.
pub(crate) fn incarnation(random: u128) -> u128 {
    if is_on("fences-repeat") { 1 } else { random }
}

/// A draft requires the exact state of its run: its phase and its generation.
pub(crate) fn require_state(batch: &mut Batch, key: Key, state: Row) {
    match is_on("commit-in-any-state") {
        false => batch.require_equals(key, state),
        true => batch.require_present(key),
    };
}

/// A commit requires the claim that its work was taken under.
pub(crate) fn require_claim(batch: &mut Batch, claim: &WorkClaim) {
    match is_on("commit-without-fence") {
        false => batch.require_equals(claim.claim_key(), Row::new(claim.fence.to_bytes())),
        true => batch.require_present(claim.ready_key()),
    };
}

/// Work is taken over only if its deadline has not been moved since it was read.
pub(crate) fn require_deadline(batch: &mut Batch, key: Key, deadline: Row) {
    if !is_on("takeover-despite-renewal") {
        batch.require_equals(key, deadline);
    }
}

/// The ready row of a step is deleted in the batch that commits it.
pub(crate) fn delete_ready_row(batch: &mut Batch, ready_row: Key) {
    if !is_on("row-deleted-apart") {
        batch.delete(ready_row);
    }
}

/// Suspending a step deletes its ready row with its claim.
pub(crate) fn leave_suspended(batch: &mut Batch, claim: &WorkClaim) {
    if is_on("suspended-stays-ready") {
        batch.delete(claim.claim_key()).delete(claim.deadline_key());
    } else {
        claim.leave(batch);
    }
}

/// The timer of a suspended step is put in the batch that suspends it.
pub(crate) fn set_timer(batch: &mut Batch, key: Key, row: Row) {
    if !is_on("timer-not-set") {
        batch.put(key, row);
    }
}

/// Waking a step, or deciding its outcome, requires its parked row and deletes it.
pub(crate) fn delete_parked(batch: &mut Batch, key: Key, row: Row, why: &Why) {
    batch.require_equals(key.clone(), row);
    if !(is_on("woken-stays-parked") && matches!(why, Why::Suspended { .. })) {
        batch.delete(key);
    }
}

/// A step that a join makes ready is counted in the same batch.
pub(crate) fn enabled_by_join(ready: Op, counted: Op) -> Vec<Op> {
    if is_on("join-not-counted") { vec![ready] } else { vec![ready, counted] }
}

/// The bitmap of a join is one of its run's rows, so that it is deleted with them.
pub(crate) fn join_key(within_run: Key, run: &Group, step: &[u8]) -> Key {
    match is_on("join-kept-apart") {
        false => within_run,
        true => Group::rows("joins").key([run.id(), step].concat()),
    }
}

/// A delivery that owns its value holds it until it is consumed.
pub(crate) fn holds_delivery(received: &Received) -> bool {
    received.owned && !is_on("arrival-not-held")
}

/// Consuming a delivery that owns its value releases the value.
pub(crate) fn releases_delivery(received: &Received) -> bool {
    received.owned && !is_on("consumed-not-released")
}

/// A step whose input has not arrived cannot run.
pub(crate) fn missing_input() -> Option<Held> {
    is_on("fewer-inputs").then_some(Held { owned: false, outcome: Outcome::None })
}

/// A memo covers every input of its step.
pub(crate) fn memo_inputs(inputs: &[Held]) -> &[Held] {
    if is_on("memo-ignores-inputs") { &[] } else { inputs }
}

/// The end of a run's history is scheduled with the batch that folds the run.
pub(crate) fn schedule_history_end(batch: &mut Batch, due: Key, row: Row) {
    if !is_on("history-without-end") {
        batch.put(due, row);
    }
}

/// The removal of a failed run is scheduled with the batch that marks the run as failed.
pub(crate) fn schedule_failed_end(batch: &mut Batch, due: Key, row: Row) {
    if !is_on("failed-for-ever") {
        batch.put(due, row);
    }
}

/// A step that goes back to its queue keeps the mark of the worker that started it.
pub(crate) fn start_mark(ready_step: &ReadyStep) -> Option<Fence> {
    if is_on("retry-forgets-start") { None } else { ready_step.started }
}

/// A message on its way into a buffer when its session ends is in the buffer when cleanup looks.
pub(crate) fn keeps_messages_for_buffers() -> bool {
    !is_on("scope-message-lost")
}

/// An answer is for the order that it names, and for no later one in the same place.
pub(crate) fn is_turn_of(turn: u32, answered: u32) -> bool {
    turn == answered || is_on("scope-answer-counted-twice")
}

/// The end of a session is delivered when its cleanup flows have ended.
pub(crate) fn waits_for_cleanup() -> bool {
    !is_on("scope-result-before-cleanup")
}
