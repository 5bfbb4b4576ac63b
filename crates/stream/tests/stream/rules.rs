//! The rules of exactly-once, each with a bug that breaks it: without the bug the results are right for every seed, with
//! it they are wrong, or the pipeline does not end, for some.

use crate::{
    bed::{Bed, Gate, MemorySink, options},
    crashes::under_chaos,
    plans::{expected_sums, sums},
};
use futures_util::FutureExt;
use onceflow_core::hazard;
use onceflow_stream::{EdgeMode, StreamOptions};
use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering::SeqCst},
    task::{Context, Waker},
};

const SEEDS: u64 = 12;

/// A seed for which the results are wrong, or the pipeline does not end.
async fn wrong_seed(bug: &'static str) -> Option<u64> {
    for seed in 0..SEEDS {
        hazard::switch(Some(bug));
        let ended = AssertUnwindSafe(under_chaos(seed)).catch_unwind().await;
        hazard::switch(None);
        if !ended.is_ok_and(|(lines, _, _)| lines == expected_sums()) {
            return Some(seed);
        }
    }
    None
}

macro_rules! rules {
    ($($name:ident: $bug:literal;)*) => { $(
        #[tokio::test(flavor = "current_thread")]
        async fn $name() {
            assert_ne!(wrong_seed($bug).await, None, "the bug {} was not noticed", $bug);
        }
    )* };
}

rules! {
    rule_1_a_record_sent_again_has_the_same_id: "identity-renewed";
    rule_2_blocks_are_stored_before_they_are_sent: "blocks-not-stored";
    rule_3_positions_commit_with_their_effects: "position-committed-later";
    rule_3_ids_commit_with_their_effects: "ids-not-stored";
    rule_4_blocks_are_acknowledged_after_they_are_durable: "acknowledged-on-arrival";
    rule_4_copies_are_acknowledged_too: "copies-not-acknowledged";
    rule_6_ids_of_blocks_under_way_are_not_reclaimed: "reclaim-ignores-outbox";
    rule_8_remnants_are_dropped: "remnants-looked-up";
    rule_8_a_record_at_the_watermark_is_looked_up: "watermark-is-a-remnant";
    rule_10_no_order_is_assumed: "order-assumed";
    rule_11_an_id_counts_once_within_a_bundle: "pending-not-consulted";
    watermarks_wait_for_blocks_under_way: "watermark-ignores-outbox";
    the_end_waits_for_blocks_under_way: "end-overtakes-blocks";
}

/// A worker stands still in its n-th commit until another one has taken over and ended the pipeline; then it goes on.
/// True if that changes nothing.
async fn with_zombie(n: usize) -> bool {
    let (bed, sink) = (Bed::new(), MemorySink::default());
    let pipeline = || sums("p", &sink).options(StreamOptions { bundle_records: 20, ..options(EdgeMode::Local) });
    let gate = Arc::new(Gate { store: bed.store.clone(), commits_left: n.into(), is_open: false.into() });
    let mut zombie = pipeline().run(gate.clone(), bed.world.clone());
    let mut context = Context::from_waker(Waker::noop());
    while !gate.is_reached() {
        assert!(zombie.poll_unpin(&mut context).is_pending());
        bed.world.advance(1);
    }
    bed.run(&pipeline()).await.unwrap();
    gate.is_open.store(true, SeqCst);
    while zombie.poll_unpin(&mut context).is_pending() {
        bed.world.advance(1);
    }
    sink.lines() == expected_sums() && bed.rows_left().await == 2
}

#[tokio::test(flavor = "current_thread")]
async fn rule_5_a_worker_that_lost_its_partition_commits_nothing() {
    let mut noticed = false;
    for n in 2..40 {
        assert!(with_zombie(n).await, "a zombie at its commit {n}");
        hazard::switch(Some("bundle-without-claim"));
        noticed |= !AssertUnwindSafe(with_zombie(n)).catch_unwind().await.unwrap_or(false);
        hazard::switch(None);
    }
    assert!(noticed, "a bundle of a worker without a claim was not noticed");
}

#[tokio::test(flavor = "current_thread")]
async fn rule_7_stamps_grow_while_the_clock_stands_still() {
    let right = async || {
        let (bed, sink) = (Bed { turns_per_ms: 50, ..Bed::new() }, MemorySink::default());
        bed.run(&sums("p", &sink).options(options(EdgeMode::Retry))).await.unwrap();
        sink.lines() == expected_sums()
    };
    assert!(right().await);
    hazard::switch(Some("stamps-follow-the-clock"));
    let broken = AssertUnwindSafe(right()).catch_unwind().await;
    hazard::switch(None);
    assert!(!broken.unwrap_or(false), "stamps that repeat were not noticed");
}
