//! Waiting for work. A wake-up is a hint and may come for no reason, but it must come for a good one.

use super::Bed;
use crate::{
    records::Scan,
    testing::{batches::*, world::poll_once},
};
use onceflow_core::{Group, Op, Pick, Shard, Timestamp};

/// Begins to wait, does these, and expects the wait to end by that.
async fn wakes(bed: &Bed, ops: impl IntoIterator<Item = Op>) {
    let mut wait = bed.records.wait(SHARD, bed.records.position(), Timestamp::NEVER);
    // The wait may end at once, for no reason.
    let ended = poll_once(&mut wait).await.is_ready();
    bed.run(ops).await;
    if !ended {
        wait.await.expect("the store answers");
    }
}

/// A row that is put, freed, or enabled by a trigger wakes waiters, in whichever queue.
pub async fn a_freed_row_ends_the_wait(bed: Bed) {
    wakes(&bed, [ready("a")]).await;
    wakes(&bed, [put(Group::queue("other").key("a"), inbox(""))]).await;
    wakes(&bed, [bit(key("set"), 0, 1, [ready("b")])]).await;
    assert_eq!(bed.take_all().await, "a b");
    wakes(&bed, [delete(queue().claims().key("a"))]).await;
    assert_eq!(bed.take_all().await, "a");
    wakes(&bed, [delete_group(queue().claims())]).await;
    wakes(&bed, [delete_group(queue()), ready("c")]).await;
}

/// A batch that rings wakes waiters though no row becomes free, or the only one is claimed with it, and leaves no row.
pub async fn a_batch_that_rings_ends_the_wait(bed: Bed) {
    for (name, pick) in [("a", None), ("b", Some(Pick::EnabledFirst)), ("c", Some(Pick::InTurn))] {
        let mut wait = bed.records.wait(SHARD, bed.records.position(), Timestamp::NEVER);
        let ended = poll_once(&mut wait).await.is_ready();
        let mut batch = match pick {
            None => bed.once([put(key(name), row(""))]),
            Some(_) => bed.once([ready(name)]),
        };
        batch.ring();
        if let Some(pick) = pick {
            batch.claim(bed.claim(pick));
        }
        assert_eq!(bed.apply(batch).await.claimed.is_some(), pick.is_some());
        if !ended {
            wait.await.expect("the store answers");
        }
    }
    let bells =
        bed.records.scan(SHARD, Scan::of(Group::queue("bell").deadlines(), 1)).await.expect("the store answers");
    assert!(bells.rows.is_empty(), "{:?}", bells.rows);
}

/// Two rows become ready and one is born claimed: the other is for the waiters.
pub async fn an_unclaimed_second_row_ends_the_wait(bed: Bed) {
    let mut wait = bed.records.wait(SHARD, bed.records.position(), Timestamp::NEVER);
    let ended = poll_once(&mut wait).await.is_ready();
    let mut batch = bed.once([ready("a"), ready("b")]);
    batch.claim(bed.claim(Pick::EnabledFirst));
    bed.apply(batch).await.claimed.expect("one is taken");
    if !ended {
        wait.await.expect("the store answers");
    }
}

/// A row that became ready after `seen`, but before the call, ends the wait at once.
pub async fn a_row_freed_between_seen_and_wait_is_not_missed(bed: Bed) {
    let seen = bed.run([put(key("a"), row(""))]).await.position;
    bed.run([ready("a")]).await;
    for _ in 0..10 {
        bed.run([put(key("a"), row(""))]).await;
    }
    bed.records.wait(SHARD, seen, Timestamp::NEVER).await.expect("the store answers");
    assert_eq!(bed.take_all().await, "a");
    bed.records.wait(SHARD, seen, Timestamp::NEVER).await.expect("it is a hint, not a promise of work");
}

/// A wait ends at its time, also when nothing happens that it waits for.
pub async fn a_wait_ends_at_its_deadline(bed: Bed) {
    let now = bed.records.now().await.expect("the store answers");
    for until in [Timestamp::ZERO, now] {
        let wait = bed.records.wait(SHARD, bed.records.position(), until);
        bed.world.hurry(wait).await.expect("the store answers");
    }
    let mut wait = bed.records.wait(SHARD, bed.records.position(), now.plus_ms(20));
    let ended = poll_once(&mut wait).await.is_ready();
    bed.run([put(key("a"), row("")), delete(queue().key("none")), delete_group(queue().claims())]).await;
    let mut elsewhere = batch([ready("a")]);
    elsewhere.shard = Shard(1);
    bed.apply(elsewhere).await;
    if !ended {
        bed.world.hurry(wait).await.expect("the store answers");
    }
}

/// All waiters wake, not one of them; those that stopped waiting are not missed.
pub async fn all_waiters_wake_and_cancelled_ones_leave_nothing(bed: Bed) {
    let seen = bed.records.position();
    let mut waits: Vec<_> = (0..10).map(|_| bed.records.wait(SHARD, seen, Timestamp::NEVER)).collect();
    let mut ended = Vec::new();
    for wait in &mut waits {
        ended.push(poll_once(wait).await.is_ready());
    }
    waits.drain(..5);
    drop(bed.records.wait(SHARD, seen, Timestamp::NEVER));
    bed.run([ready("a")]).await;
    for (wait, ended) in waits.into_iter().zip(&ended[5..]) {
        if !ended {
            wait.await.expect("the store answers");
        }
    }
}

/// Work in one shard wakes its waiters, while others wait elsewhere.
pub async fn a_freed_row_wakes_the_waiters_of_its_shard(bed: Bed) {
    let other = Shard(3);
    let seen = bed.records.position();
    let mut elsewhere = batch([ready("a")]);
    elsewhere.shard = other;
    let mut wait = bed.records.wait(other, seen, Timestamp::NEVER);
    let ended = poll_once(&mut wait).await.is_ready();
    bed.run([ready("a")]).await;
    bed.apply(elsewhere).await;
    if !ended {
        wait.await.expect("the store answers");
    }
}
