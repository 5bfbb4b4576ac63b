//! The answer of a claim, and the row it leaves: the fence, and when the claim may be taken over.

use super::{Bed, bed::name_of};
use crate::testing::batches::*;
use onceflow_core::{Fence, Group, Inbox, Name, Pick, Timestamp, limits::CLAIM_ROWS_MAX};

/// The fence stands under the row's name, and the deadline beside it; the answer says both.
pub async fn a_claim_stores_its_fence_and_deadline(bed: Bed) {
    bed.run([ready("a")]).await;
    let claim = bed.claim(Pick::InTurn);
    let claimed = bed.take_by(claim.clone()).await.expect("it is free");
    assert_eq!((&claimed.queue, name_of(&claimed).as_str(), &claimed.row), (&queue(), "a", &inbox("a")));
    let fence = bed.get(queue().claims().key("a")).await.expect("the claim stands");
    assert_eq!(Fence::from_bytes(&fence), Some(claim.fence));
    let deadline = bed.get(queue().deadlines().key("a")).await.expect("the deadline stands");
    assert_eq!(Timestamp::from_sortable(&deadline), Some(claimed.deadline));
    assert_eq!(bed.get(queue().key("a")).await, Some(inbox("a")), "the row itself stays as it was");
}

/// The deadline is the store's time plus the time to live; a deadline beyond the largest time is never.
pub async fn a_deadline_is_store_time_plus_ttl(bed: Bed) {
    for (name, ttl_ms) in [("a", 0), ("b", 1), ("c", 30_000), ("d", u64::MAX)] {
        bed.world.advance(7);
        bed.run([ready(name)]).await;
        let mut claim = bed.claim(Pick::InTurn);
        claim.ttl_ms = ttl_ms;
        let before = bed.records.now().await.expect("the store answers");
        let deadline = bed.take_by(claim).await.expect("it is free").deadline;
        let after = bed.records.now().await.expect("the store answers");
        assert!(before.plus_ms(ttl_ms) <= deadline && deadline <= after.plus_ms(ttl_ms), "{ttl_ms}: {deadline}");
    }
}

/// A new claim overwrites the deadline that a claim taken away has left.
pub async fn a_new_claim_replaces_a_stale_deadline(bed: Bed) {
    bed.run([ready("a")]).await;
    let mut long = bed.claim(Pick::InTurn);
    long.ttl_ms = 1_000_000_000;
    bed.take_by(long).await.expect("it is free");
    bed.run([delete(queue().claims().key("a"))]).await;
    let claimed = bed.take(Pick::InTurn).await.expect("it is free again");
    let deadline = bed.get(queue().deadlines().key("a")).await.expect("the deadline stands");
    assert_eq!(Timestamp::from_sortable(&deadline), Some(claimed.deadline));
}

/// The inputs are the rows under the inbox's prefix, as the batch left them, in order; and no others.
pub async fn a_claim_returns_the_inbox_rows_in_order(bed: Bed) {
    let inside = ["work/", "work/1", "work/10", "work/2", "work/\u{7f}"];
    let outside = ["wor", "work", "work0", "work.", "x"];
    bed.run(inside.iter().rev().chain(&outside).map(|name| put(inputs().key(name), row(name)))).await;
    bed.run([put(group().key("work/3"), row("of another group"))]).await;
    let mut batch = bed.once([
        put(queue().key("work"), inbox("work/")),
        delete(inputs().key("work/2")),
        put(inputs().key("work/0"), row("late")),
    ]);
    batch.claim(bed.claim(Pick::EnabledFirst));
    let claimed = bed.apply(batch).await.claimed.expect("it is free");
    let names: Vec<_> = claimed.inputs.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, ["work/", "work/0", "work/1", "work/10", "work/\u{7f}"].map(Name::new));
    assert_eq!(claimed.inputs[1].1, row("late"));
    assert!(!claimed.more);
}

/// An inbox may be empty, in any group, under any prefix; the store does not interpret its note.
pub async fn an_inbox_may_be_any_group_and_prefix(bed: Bed) {
    let last = Name::new([0xFF, 0xFF]);
    let group = Group::rows([0, 0xFF]);
    let inbox = Inbox { group: group.clone(), prefix: last.clone(), note: vec![0, 255, 10] };
    bed.run([put(queue().key("a"), inbox.to_row())]).await;
    let claimed = bed.take(Pick::InTurn).await.expect("it is free");
    assert_eq!((claimed.inputs.len(), claimed.more), (0, false));
    assert_eq!(Inbox::from_row(&claimed.row), Some(inbox.clone()));
    let names = [vec![0xFF], vec![0xFF, 0xFE], vec![0xFF, 0xFF], vec![0xFF, 0xFF, 0], vec![0xFF, 0xFF, 0xFF]];
    bed.run(names.iter().map(|name| put(group.key(name), row("")))).await;
    bed.run([put(queue().key("b"), inbox.to_row())]).await;
    let claimed = bed.take(Pick::InTurn).await.expect("it is free");
    let found: Vec<_> = claimed.inputs.iter().map(|(name, _)| name.as_bytes().to_vec()).collect();
    assert_eq!(found, names[2..]);
}

/// At most so many inputs are answered; `more` says whether there are others.
pub async fn a_long_inbox_is_truncated_and_reports_more(bed: Bed) {
    let name = |n: usize| format!("{n:04}");
    bed.run((0..CLAIM_ROWS_MAX).map(|n| put(inputs().key(name(n)), row(name(n))))).await;
    bed.run([put(queue().key("a"), inbox("")), put(queue().key("b"), inbox(""))]).await;
    let claimed = bed.take(Pick::InTurn).await.expect("it is free");
    assert_eq!((claimed.inputs.len(), claimed.more), (CLAIM_ROWS_MAX, false));
    bed.run([put(inputs().key(name(CLAIM_ROWS_MAX)), row("one more"))]).await;
    let claimed = bed.take(Pick::InTurn).await.expect("it is free");
    assert_eq!((claimed.inputs.len(), claimed.more), (CLAIM_ROWS_MAX, true));
    assert_eq!(claimed.inputs.last(), Some(&(Name::new(name(CLAIM_ROWS_MAX - 1)), row(name(CLAIM_ROWS_MAX - 1)))));
}

/// A fence required by the holder that finishes is refused after another caller took the row over.
pub async fn a_stale_fence_is_refused(bed: Bed) {
    bed.run([ready("a")]).await;
    let (mine, claim_key) = (bed.claim(Pick::InTurn), queue().claims().key("a"));
    bed.take_by(mine.clone()).await.expect("it is free");
    bed.run([delete(claim_key.clone())]).await;
    let theirs = bed.claim(Pick::InTurn);
    bed.take_by(theirs.clone()).await.expect("it is free again");
    let finish = |fence: Fence| {
        let mut batch = batch([delete(claim_key.clone()), delete(queue().key("a"))]);
        batch.require_equals(claim_key.clone(), row(fence.to_bytes()));
        batch
    };
    assert_eq!(bed.refuse(finish(mine.fence)).await.found, Some(row(theirs.fence.to_bytes())));
    bed.apply(finish(theirs.fence)).await;
}
