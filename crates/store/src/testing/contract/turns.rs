//! Which free row a claim takes.

use super::{Bed, bed::name_of};
use crate::testing::batches::*;
use onceflow_core::{Name, Op, Pick};

/// Commits these with a claim; returns the name of the row it took.
async fn take_after(bed: &Bed, ops: impl IntoIterator<Item = Op>, pick: Pick) -> String {
    let mut batch = bed.once(ops);
    batch.claim(bed.claim(pick));
    bed.apply(batch).await.claimed.as_ref().map(name_of).unwrap_or_default()
}

/// A lane with many rows has one of them taken, then the next lane has its turn, round and round.
pub async fn lanes_are_served_round_robin(bed: Bed) {
    let names = "lane-aaa1 lane-aaa2 lane-aaa3 lane-bbb1 lane-ccc1 lane-ccc2";
    bed.run(names.split(' ').map(ready)).await;
    assert_eq!(bed.take_all().await, "lane-aaa1 lane-bbb1 lane-ccc1 lane-aaa2 lane-ccc2 lane-aaa3");
}

/// A name shorter than a lane is a lane of its own, also when others begin with it.
pub async fn a_name_shorter_than_a_lane_is_its_own_lane(bed: Bed) {
    bed.run(["", "a", "a\0", "ab", "abcdefg", "abcdefgh", "abcdefgh1", "b"].map(ready)).await;
    assert_eq!(bed.take_all().await, " a a\\x00 ab abcdefg abcdefgh b abcdefgh1");
}

/// The lane after the last one is the first, also at the end of all names.
pub async fn round_robin_wraps_after_the_last_name(bed: Bed) {
    let last = |more: &[u8]| ready([&[0xFF; 8], more].concat());
    bed.run([last(b"1"), last(b"2"), ready("a"), ready([0xFF])]).await;
    let order = bed.take_until_none().await;
    let full = |more: &[u8]| [&[0xFF; 8], more].concat();
    assert_eq!(order, [b"a".to_vec(), vec![0xFF], full(b"1"), full(b"2")].map(Name::new));
}

/// No lane starves: a lane that is always ready does not keep another waiting.
pub async fn a_busy_lane_does_not_starve_another(bed: Bed) {
    for (busy, other) in [("lane-aaa1", "lane-bbb1"), ("x", "xy"), ("y", "x")] {
        bed.run([delete_group(queue()), delete_group(queue().claims())]).await;
        bed.run([ready(busy), ready(other)]).await;
        let mut taken = Vec::new();
        for _ in 0..2 {
            taken.push(bed.take(Pick::InTurn).await.map(|claimed| name_of(&claimed)).unwrap_or_default());
            bed.run([delete(queue().claims().key(busy))]).await;
        }
        assert!(taken.contains(&other.to_owned()), "{busy} kept {other} waiting: {taken:?}");
    }
}

/// The queue remembers the turn, whichever caller claims and however the row comes and goes.
pub async fn claiming_an_enabled_row_advances_the_round_robin(bed: Bed) {
    bed.run([ready("lane-aaa1"), ready("lane-bbb1"), ready("lane-ccc1")]).await;
    assert_eq!(take_after(&bed, [ready("lane-bbb2")], Pick::EnabledFirst).await, "lane-bbb2");
    assert_eq!(bed.take_all().await, "lane-ccc1 lane-aaa1 lane-bbb1");
}

/// Enabled first: the row this batch made ready, before older ones, whichever lane has the turn.
pub async fn enabled_first_claims_the_row_the_batch_enabled(bed: Bed) {
    bed.run([ready("lane-aaa1")]).await;
    assert_eq!(take_after(&bed, [ready("lane-zzz1")], Pick::EnabledFirst).await, "lane-zzz1");
    assert_eq!(take_after(&bed, [ready("lane-zzz2")], Pick::InTurn).await, "lane-aaa1");
    assert_eq!(take_after(&bed, [], Pick::EnabledFirst).await, "lane-zzz2", "nothing fresh: in turn");
}

/// Of several fresh rows it is the first in the batch, not in name; in a claimed queue, whichever that is.
pub async fn enabled_first_follows_batch_order_not_name_order(bed: Bed) {
    assert_eq!(take_after(&bed, ["c", "a", "b"].map(ready), Pick::EnabledFirst).await, "c");
    let elsewhere = put(onceflow_core::Group::queue("other").key("x"), inbox(""));
    assert_eq!(take_after(&bed, [elsewhere, ready("z"), ready("d")], Pick::EnabledFirst).await, "z");
    let by_trigger = bit(key("set"), 0, 1, [ready("e")]);
    assert_eq!(take_after(&bed, [by_trigger, ready("f")], Pick::EnabledFirst).await, "f");
    let gone = [ready("g"), ready("h"), delete(queue().key("g"))];
    assert_eq!(take_after(&bed, gone, Pick::EnabledFirst).await, "h");
}

/// A row whose claim this batch deletes is fresh too: given back, and taken again in one go.
pub async fn a_row_whose_claim_is_deleted_counts_as_enabled(bed: Bed) {
    bed.run([ready("a"), ready("b"), ready("c")]).await;
    assert_eq!(bed.take_all().await, "a b c");
    bed.run([ready("0")]).await;
    assert_eq!(take_after(&bed, [delete(queue().claims().key("b"))], Pick::EnabledFirst).await, "b");
    assert_eq!(take_after(&bed, [delete_group(queue().claims())], Pick::EnabledFirst).await, "a");
}
