//! The queries of Nexmark, an auction house, against a naive evaluation of the same events, all at once.

mod answers;
pub(crate) mod house;

use super::bed::{Bed, MemorySink, line, options};
use house::House;
use onceflow_stream::{EdgeMode, Pipeline, StreamOptions};

const HOUSE: House = House {
    events: 900,
    us_per_event: 10_000,
    disorder_ms: 40,
    in_flight: 4,
    active_people: 10,
    hot_group: 4,
    open_ms: 900,
    hot_ms: (1000, 250),
    highest_ms: 500,
    new_ms: 3000,
    bidder_ms: 1000,
    gap_ms: 150,
};

/// Runs a query on every kind of edge, and compares its lines with those of the naive evaluation.
async fn check(name: &str) {
    let expected = HOUSE.answer(name);
    assert!(expected.len() > 3, "{name} has {} results", expected.len());
    for (edges, gather_ms) in [(EdgeMode::Local, 0), (EdgeMode::Local, 3), (EdgeMode::Retry, 0), (EdgeMode::Retry, 3)] {
        let (bed, sink) = (Bed::new(), MemorySink::default());
        let pipeline = Pipeline::new(name).options(StreamOptions { bundle_records: 40, gather_ms, ..options(edges) });
        HOUSE.query(&pipeline, name).sink("lines", sink.clone(), |text, bytes| line(text, bytes));
        let result = bed.run(&pipeline).await.unwrap();
        assert_eq!(sink.lines(), expected, "{name} {edges:?}");
        assert!(result.stages.iter().all(|stage| stage.counts.late == 0), "{name} {edges:?}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn queries_0_to_2_pass_convert_and_select_bids() {
    for name in ["q0", "q1", "q2"] {
        check(name).await;
    }
}

#[tokio::test(flavor = "current_thread")]
async fn query_3_joins_sellers_of_some_states_with_their_auctions() {
    check("q3").await;
}

#[tokio::test(flavor = "current_thread")]
async fn query_4_is_the_mean_closing_price_of_a_category() {
    check("q4").await;
}

#[tokio::test(flavor = "current_thread")]
async fn query_5_is_the_auction_with_the_most_bids_of_a_sliding_window() {
    check("q5").await;
}

#[tokio::test(flavor = "current_thread")]
async fn query_7_is_the_highest_bid_of_a_window() {
    check("q7").await;
}

#[tokio::test(flavor = "current_thread")]
async fn query_8_is_persons_who_are_new_and_sell_in_the_same_window() {
    check("q8").await;
}

#[tokio::test(flavor = "current_thread")]
async fn queries_11_and_12_count_the_bids_of_a_bidder_per_session_and_window() {
    for name in ["q11", "q12"] {
        check(name).await;
    }
}

#[test]
fn every_query_of_the_benchmark_is_tested_here() {
    let tested = ["q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q11", "q12"];
    assert_eq!(house::QUERIES, tested);
}
