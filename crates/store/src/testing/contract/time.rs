//! Positions and the store's clock: neither goes back.

use super::Bed;
use crate::testing::{batches::*, world::START};
use onceflow_core::{Pick, Timestamp};

/// Every batch that changes something has a higher position than all before it.
pub async fn positions_increase_with_every_change(bed: Bed) {
    let mut last = bed.records.position();
    for n in 0..20 {
        let ops = if n % 2 == 0 { vec![put(key([n]), row(""))] } else { vec![add(key("n"), 1, []), ready([n])] };
        let position = bed.run(ops).await.position;
        assert!(position > last, "{position:?} after {last:?}");
        assert!(bed.records.position() >= position);
        last = position;
    }
    let taken = bed.records.position();
    bed.take(Pick::InTurn).await.expect("there is work");
    assert!(bed.records.position() >= taken);
}

/// A refusal, a claim that finds nothing and a read carry a position not before the state they were decided on.
pub async fn a_refusal_carries_the_position_it_was_decided_at(bed: Bed) {
    let there = bed.run([put(key("a"), row(""))]).await.position;
    let mut asks = batch([]);
    asks.require_absent(key("a"));
    let refused = bed.refuse(asks).await.position;
    assert!(refused >= there && bed.records.position() >= refused);
    let empty = bed.apply(batch([])).await.position;
    assert!(empty >= refused && bed.records.position() >= empty);
}

/// Every answer becomes durable: an applied batch, a refusal, and a read.
pub async fn every_reply_becomes_durable(bed: Bed) {
    let applied = bed.run([put(key("a"), row(""))]).await.position;
    bed.world.hurry(bed.records.durable(applied)).await.expect("it becomes durable");
    let mut asks = batch([]);
    asks.require_absent(key("a"));
    let refused = bed.refuse(asks).await.position;
    bed.world.hurry(bed.records.durable(refused)).await.expect("it becomes durable");
    bed.get(key("a")).await;
    bed.world.hurry(bed.records.durable(bed.records.position())).await.expect("it becomes durable");
    bed.world.hurry(bed.records.durable(applied)).await.expect("and stays so");
}

/// Many may wait for many positions at once, in any order, and give up.
pub async fn durability_waits_are_concurrent_and_cancellable(bed: Bed) {
    let mut positions = Vec::new();
    for n in 0..50 {
        positions.push(bed.run([put(key([n]), row(""))]).await.position);
    }
    drop(bed.records.durable(positions[49]));
    let all = positions.iter().rev().map(|position| bed.records.durable(*position));
    for durable in bed.world.hurry(futures_util::future::join_all(all)).await {
        durable.expect("it becomes durable");
    }
}

/// The world's clock may be set back; the store's waits until time has caught up.
pub async fn store_time_is_monotonic(bed: Bed) {
    let now = async || bed.records.now().await.expect("the store answers");
    let mut last = now().await;
    let times = [START.plus_ms(5000), START, Timestamp::ZERO, START.plus_ms(4999), START.plus_ms(6000)];
    for (n, time) in times.into_iter().enumerate() {
        bed.world.set_clock(time);
        let next = now().await;
        assert!(next >= last, "{next} after {last}");
        bed.run([ready([n as u8])]).await;
        let mut claim = bed.claim(Pick::InTurn);
        claim.ttl_ms = 10;
        let deadline = bed.take_by(claim).await.expect("it is free").deadline;
        assert!(deadline >= next.plus_ms(10), "a deadline {deadline} that began before {next}");
        last = now().await;
    }
}

/// While time passes, it passes for the store too.
pub async fn store_time_advances(bed: Bed) {
    let now = async || bed.records.now().await.expect("the store answers");
    let start = now().await;
    let passes = async {
        while now().await < start.plus_ms(20) {
            bed.world.advance(1);
            tokio::task::yield_now().await;
        }
    };
    passes.await;
}
