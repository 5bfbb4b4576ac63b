//! Triggers fire after all plain operations; their operations may complete other rows, which fire in the next round.
//! Counters fire only when no bitmap is full.

use super::Bed;
use crate::testing::batches::*;
use onceflow_core::Pick;

/// A trigger sees, and can undo, everything the batch did, also the operations that stand after it.
pub async fn triggers_fire_after_all_operations_of_the_batch(bed: Bed) {
    let fires = |then| bit(key("set"), 0, 1, [then]);
    bed.run([fires(put(key("a"), row("trigger"))), put(key("a"), row("plain"))]).await;
    assert_eq!(bed.get(key("a")).await, Some(row("trigger")));
    bed.run([fires(delete(key("b"))), put(key("b"), row("plain"))]).await;
    assert_eq!(bed.get(key("b")).await, None);
    bed.run([fires(delete_group(group())), put(key("c"), row("plain"))]).await;
    assert_eq!(bed.names(group()).await, "");
}

/// A counter that a later operation moves away from zero has only passed through.
pub async fn a_later_operation_can_keep_a_trigger_from_firing(bed: Bed) {
    bed.run([put(key("n"), count(1))]).await;
    let done = bed.run([add(key("n"), -1, []), bit(key("set"), 0, 1, []), add(key("n"), 1, [])]).await;
    assert_eq!(done.fired, [key("set")]);
    assert_eq!(bed.get(key("n")).await, Some(count(1)));
}

/// Triggers within triggers, as deep as the limit allows, in one batch.
pub async fn triggers_fire_nested_triggers(bed: Bed) {
    let depth = onceflow_core::limits::TRIGGER_DEPTH_MAX;
    let chain = (0..depth).rev().fold(put(key("end"), row("")), |then, level| add(key(level.to_string()), 0, [then]));
    let done = bed.run([chain]).await;
    assert_eq!(done.fired, (0..depth).map(|level| key(level.to_string())).collect::<Vec<_>>());
    assert_eq!(bed.names(group()).await, "end");
}

/// Rows of one kind fire in the order in which the batch first completes them, a whole round before the next.
pub async fn fired_rows_are_returned_round_by_round_in_order(bed: Bed) {
    let zero = |name: &str, then: Vec<_>| add(key(name), 0, then);
    let done = bed.run([zero("z", vec![zero("c", vec![])]), zero("a", vec![zero("b", vec![])]), zero("m", vec![])]);
    assert_eq!(done.await.fired, ["z", "a", "m", "c", "b"].map(key));
}

/// A step that ends while another begins: the last one to arrive at a join takes itself off the count of live steps, and
/// the join's trigger puts the next one on. The count was never at its end, in whichever order the batch says it.
pub async fn a_counter_raised_by_a_full_bitmap_does_not_fire(bed: Bed) {
    let settle = || [put(key("settled"), row(""))];
    let ends = || add(key("live"), -1, settle());
    let begins = || vec![put(key("next"), row("")), add(key("live"), 1, settle())];
    let arrives = || bit(key("join"), 0, 1, begins());
    bed.run([put(key("live"), count(1))]).await;
    for ops in [[ends(), arrives()], [arrives(), ends()]] {
        let done = bed.run(ops).await;
        assert_eq!(done.fired, [key("join")]);
        assert_eq!(bed.get(key("live")).await, Some(count(1)));
        assert_eq!(bed.names(group()).await, "live next");
    }
    let done = bed.run([ends()]).await;
    assert_eq!(done.fired, [key("live")]);
    assert_eq!(bed.names(group()).await, "next settled");
}

/// However many rounds of sets it takes until none is full, a counter waits for them all.
pub async fn counters_fire_only_when_no_bitmap_is_full(bed: Bed) {
    let zero = || add(key("n"), 0, []);
    let chain = |last| bit(key("a"), 0, 1, [bit(key("b"), 0, 1, [bit(key("c"), 0, 1, [last])])]);
    let done = bed.run([zero(), chain(add(key("n"), 1, []))]).await;
    assert_eq!(done.fired, ["a", "b", "c"].map(key));
    assert_eq!(bed.get(key("n")).await, Some(count(1)));
    let done = bed.run([zero(), chain(add(key("n"), -1, []))]).await;
    assert_eq!(done.fired, ["a", "b", "c", "n"].map(key));
    // A row at zero that a set's trigger then puts or deletes counts as it is at the end.
    assert_eq!(bed.run([zero(), chain(put(key("n"), row("text")))]).await.fired, ["a", "b", "c"].map(key));
    assert_eq!(bed.run([delete(key("n")), zero(), chain(delete(key("n")))]).await.fired, ["a", "b", "c"].map(key));
}

/// A set that fills because a counter fired comes before the counters that this counter's trigger left at zero.
pub async fn bitmaps_filled_by_a_counter_fire_before_further_counters(bed: Bed) {
    let fills = bit(key("set"), 0, 1, [add(key("later"), 1, [])]);
    let done = bed.run([add(key("n"), 0, [add(key("later"), 0, []), fills]), add(key("m"), 0, [])]).await;
    assert_eq!(done.fired, ["n", "m", "set"].map(key));
    assert_eq!(bed.get(key("later")).await, Some(count(1)));
}

/// Two triggers of one round that count at the same row are counted together, then it fires once.
pub async fn changes_of_one_round_are_summed_before_firing(bed: Bed) {
    let last = |delta| add(key("sum"), delta, [put(key("end"), row(""))]);
    let fires = |name: &str, delta| bit(key(name), 0, 1, [last(delta)]);
    // The sum would be at zero between the two.
    bed.run([put(key("sum"), count(1))]).await;
    let done = bed.run([fires("a", -1), fires("b", 1)]).await;
    assert_eq!(done.fired, ["a", "b"].map(key));
    assert_eq!(bed.get(key("sum")).await, Some(count(1)));
    let done = bed.run([fires("a", -2), fires("b", 1)]).await;
    assert_eq!(done.fired, ["a", "b", "sum"].map(key));
}

/// A row may fire, be counted at by its own trigger's consequences, and fire again.
pub async fn a_row_may_fire_again_in_a_later_round(bed: Bed) {
    let again = add(key("n"), 1, []);
    let done = bed.run([bit(key("n"), 0, 1, []), bit(key("set"), 0, 1, [again])]).await;
    // Triggers of one row must agree; both are empty here.
    assert_eq!(done.fired, ["n", "set"].map(key));
    assert_eq!(bed.get(key("n")).await, Some(count(1)));
}

/// All rows complete in one round go before any of their triggers act.
pub async fn complete_rows_are_deleted_before_their_triggers_run(bed: Bed) {
    let done = bed.run([bit(key("a"), 0, 1, [put(key("b"), row("new"))]), bit(key("b"), 0, 1, [])]).await;
    assert_eq!(done.fired, ["a", "b"].map(key));
    assert_eq!(bed.get(key("b")).await, Some(row("new")), "the trigger's row is not the set that went");
}

/// A trigger can make work ready, and the same batch can claim it with its inputs.
pub async fn a_batch_can_claim_a_row_that_its_trigger_enabled(bed: Bed) {
    bed.run([put(inputs().key("work/1"), row("one")), bit(key("set"), 0, 2, [])]).await;
    let mut last = bed.once([
        put(inputs().key("work/2"), row("two")),
        bit(key("set"), 1, 2, [put(queue().key("work"), inbox("work/"))]),
    ]);
    last.claim(bed.claim(Pick::EnabledFirst));
    let claimed = bed.apply(last).await.claimed.expect("the trigger made it ready");
    assert_eq!(claimed.inputs.len(), 2);
}
