//! Decisions of this crate that a known mistake can replace, one function each. A normal build makes the plain decision
//! that the function's first sentence states. A build with the feature `hazards` makes the mistake instead while its
//! [switch](onceflow_core::hazard) is on, and the simulator must notice.

use crate::task::Data;
use onceflow_core::{
    Batch, Key, Kind, Op, Row,
    fence::Fence,
    hazard::{is_on, note, noted},
    model::{Effect, TaskSpec},
    protocol::{claim::WorkClaim, ids::Generation, rows::ReadyStep},
};
use onceflow_store::{Records, records};

/// The next steps become ready, and the step's own row goes, in the batch that commits the step: nothing is left to
/// send after it.
pub(crate) fn split_from_commit(batch: &mut Batch, claim: &WorkClaim) -> Vec<Op> {
    let mut later = Vec::new();
    if is_on("next-enqueued-apart") {
        let is_next = |op: &Op| matches!(op, Op::Put(key, _) if key.group.kind() == Kind::Queue);
        (later, batch.ops) = std::mem::take(&mut batch.ops).into_iter().partition(is_next);
    }
    if is_on("row-deleted-apart") {
        later.push(Op::Delete(claim.ready_key()));
    }
    later
}

/// Sends what [`split_from_commit`] split off: nothing.
pub(crate) async fn commit_apart(records: &dyn Records, batch: Batch) -> Result<(), records::Error> {
    match batch.ops.is_empty() {
        true => Ok(()),
        false => records.commit(batch).await.map(drop),
    }
}

/// A batch whose reply was lost is sent again as a whole: arrivals at joins are never repeated apart from it.
pub(crate) async fn repeat_arrivals(records: &dyn Records, batch: &Batch) {
    if is_on("arrivals-repeated") || is_on("arrivals-counted") {
        let ops = batch.ops.iter().filter(|op| matches!(op, Op::SetBit { .. })).cloned().collect();
        let _mistake = records.commit(Batch { ops, ..Batch::new(batch.shard) }).await;
    }
}

/// A kept value may be reused if it was computed from the same inputs by the same code.
pub(crate) fn is_valid(has_same_key: bool) -> bool {
    has_same_key || is_on("validity-is-not-asked")
}

/// A new plan reuses the values it was made with: they are pinned until it has.
pub(crate) fn is_pinned(generation: Generation) -> bool {
    generation == Generation(0) || !is_on("reuse-not-pinned")
}

/// Everything that was read is durable before it is reported.
pub(crate) async fn before_report(records: &dyn Records) -> Result<(), records::Error> {
    match is_on("told-before-durable") {
        false => records.durable(records.position()).await,
        true => Ok(()),
    }
}

/// A step is performed with all rows of its inbox.
pub(crate) fn arrivals<T>(mut rows: Vec<T>) -> Vec<T> {
    if is_on("fewer-inputs") {
        rows.pop();
    }
    rows
}

/// The lengths of lists that an attempt gave are known from its commit only: nothing is noted before it.
pub(crate) fn note_lens(outputs: &[Data], place: impl Fn(u16) -> Vec<u8>) {
    if !is_on("size-from-attempt") {
        return;
    }
    for (port, output) in (0..).zip(outputs) {
        if let Data::List(elements) = output {
            note(&place(port), elements.len() as u64);
        }
    }
}

/// An each is as wide as the committed list it goes over.
pub(crate) fn each_len(committed: u64, places: impl Iterator<Item = Vec<u8>>) -> u64 {
    match is_on("size-from-attempt") {
        false => committed,
        true => places.filter_map(|place| noted(&place)).next().unwrap_or(committed),
    }
}

/// Lists that an each goes over together must have the same length.
pub(crate) fn lens_differ(lens: &[Option<u64>], n: u64) -> bool {
    lens.iter().any(|len| *len != Some(n)) && !is_on("size-from-attempt")
}

/// An each without elements commits empty lists at once.
pub(crate) fn closes_empty_each() -> bool {
    !is_on("empty-each-waits")
}

/// A run is settled only when its count of steps in flight is gone.
pub(crate) fn in_flight(live: Option<Row>) -> Option<Row> {
    live.filter(|_| !is_on("settles-too-soon"))
}

/// The batch that settles a run requires that no step is in flight.
pub(crate) fn require_none_in_flight(batch: &mut Batch, live: Key) {
    if !is_on("settles-too-soon") {
        batch.require_absent(live);
    }
}

/// Leaving a run to be settled later requires that the same steps are still in flight.
pub(crate) fn require_in_flight(batch: &mut Batch, key: Key, live: Row) {
    if !is_on("settles-on-stale-fact") {
        batch.require_equals(key, live);
    }
}

/// Undoing begins with the registration that was made last.
pub(crate) fn first_to_undo<T>(registered: &[T]) -> Option<&T> {
    if is_on("undo-first-first") { registered.first() } else { registered.last() }
}

/// The worker that started an at-most-once step and did not commit it: the body may have run.
pub(crate) fn may_have_run(spec: &TaskSpec, ready_step: &ReadyStep) -> Option<Fence> {
    ready_step.started.filter(|_| spec.effect == Effect::AtMostOnce && !is_on("takeover-runs-again"))
}

/// Writes of a transactional body go into the commit of its step.
pub(crate) fn commits_writes() -> bool {
    !is_on("writes-not-in-commit")
}

/// Every row that a transactional body has read must be the same when it commits.
pub(crate) fn require_read(batch: &mut Batch, key: Key, seen: Option<Row>) {
    if !is_on("reads-not-required") {
        batch.require_seen(key, seen);
    }
}

/// A failure that something around the step handles is delivered to it.
pub(crate) fn delivers_failure(is_handled: bool) -> bool {
    is_handled && !is_on("failure-not-delivered")
}

/// The undo of a task with a compensation is registered before its body starts.
pub(crate) fn registers_undo(spec: &TaskSpec) -> bool {
    spec.compensation.is_some() && !is_on("undo-not-registered")
}

/// A body that touches the world starts only after the rows it was decided on are durable.
pub(crate) fn waits_until_durable(spec: &TaskSpec) -> bool {
    spec.effect != Effect::Pure && !is_on("body-before-durable")
}

/// Every worker frees the steps of dead workers.
pub(crate) fn frees_abandoned() -> bool {
    !is_on("abandoned-for-ever")
}

/// An event of a session is taken by the batch that deletes its row.
pub(crate) fn takes_answer() -> bool {
    !is_on("scope-answer-lost")
}

/// An event of a session is taken once.
pub(crate) fn takes_answer_again() -> bool {
    is_on("scope-answer-counted-twice")
}

/// An activity is over when its future is dropped, which its host says.
pub(crate) fn waits_for_host() -> bool {
    !is_on("scope-cleanup-before-drop")
}

/// Telling a nested session something requires that it is there.
pub(crate) fn require_nested(batch: &mut Batch, ready: Key) {
    if !is_on("scope-nested-not-required") {
        batch.require_present(ready);
    }
}

/// A timer of a session is a row.
pub(crate) fn stores_timer() -> bool {
    !is_on("scope-timer-not-stored")
}

/// A nested session's end is an event for its parent in the batch that deletes its rows.
pub(crate) fn tells_parent() -> bool {
    !is_on("scope-parent-not-told")
}
