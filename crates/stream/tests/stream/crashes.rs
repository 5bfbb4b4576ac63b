//! A worker that dies at any call to the store costs only time.

use crate::{
    bed::{Bed, Chaos, MemorySink, options},
    plans::{expected_sums, sums},
};
use onceflow_store::testing::fault::{self, Fault, FaultPlan, Faulty};
use onceflow_stream::{EdgeMode, StreamError, StreamOptions};

/// Runs the sums with a fault at one call of the first worker; a second one ends the pipeline.
async fn with_fault(plan: FaultPlan, edges: EdgeMode) {
    let (bed, sink) = (Bed::new(), MemorySink::default());
    let options = StreamOptions { bundle_records: 50, gather_ms: 3, ..options(edges) };
    let pipeline = sums("p", &sink).options(options);
    let faulty = Faulty::new(bed.store.clone(), plan.clone());
    match bed.run_on(&pipeline, faulty, || plan.stopped()).await {
        Some(Ok(_)) => {}
        // Killed, or the store failed before the pipeline was there.
        None | Some(Err(StreamError::Store(_))) => drop(bed.run(&sums("p", &sink).options(options)).await.unwrap()),
        Some(Err(error)) => panic!("{error}"),
    }
    assert_eq!(sink.lines(), expected_sums());
    assert_eq!(bed.rows_left().await, 2);
}

#[tokio::test(flavor = "current_thread")]
async fn results_are_right_whichever_call_fails_on_local_edges() {
    for fault in Fault::ALL {
        let calls = fault::for_every_n(fault, async |plan| with_fault(plan, EdgeMode::Local).await).await;
        assert!(calls > 50, "{calls} calls");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn results_are_right_whichever_call_fails_on_retry_edges() {
    for fault in [Fault::StopBefore, Fault::StopAfter, Fault::LoseReply] {
        let calls = fault::for_every_n(fault, async |plan| with_fault(plan, EdgeMode::Retry).await).await;
        assert!(calls > 50, "{calls} calls");
    }
}

/// Kills workers by chance and delivers messages many times, late or never; answers the lines, and how many workers
/// there were and how many copies were dropped.
pub(crate) async fn under_chaos(seed: u64) -> (Vec<String>, u64, u64) {
    let (bed, sink, chaos) = (Bed::new(), MemorySink::default(), Chaos::new(seed));
    let pipeline = || sums("p", &sink).options(options(EdgeMode::Retry)).transport(chaos.clone());
    let odds = fault::Odds { stop_before: 4, stop_after: 4, lose_reply: 5, fail_once: 5 };
    let mut lives = 0;
    let result = loop {
        lives += 1;
        let plan = if lives > 30 { FaultPlan::never() } else { FaultPlan::by_chance(seed * 100 + lives, odds) };
        let faulty = Faulty::new(bed.store.clone(), plan.clone());
        match bed.run_on(&pipeline(), faulty, || plan.stopped()).await {
            Some(Ok(result)) => break result,
            None | Some(Err(StreamError::Store(_))) => {}
            Some(Err(error)) => panic!("{error}"),
        }
    };
    assert_eq!(bed.rows_left().await, 2);
    let counts = result.stages[1].counts;
    (sink.lines(), lives, counts.duplicates + counts.remnants)
}

#[tokio::test(flavor = "current_thread")]
async fn results_are_right_when_workers_die_often_and_messages_come_many_times_late_or_never() {
    let (mut lives, mut dropped) = (0, 0);
    for seed in 0..30 {
        let (lines, its_lives, its_dropped) = under_chaos(seed).await;
        assert_eq!(lines, expected_sums(), "seed {seed}");
        (lives, dropped) = (lives + its_lives, dropped + its_dropped);
    }
    assert!(lives > 60 && dropped > 1000, "{lives} workers, {dropped} copies dropped");
}
