//! The same pipelines on every kind of store: journal, pages, a Redis server.

use crate::{
    bed::{MemorySink, options},
    client_ids, plans,
};
use onceflow_core::{Group, Shard};
use onceflow_store::{Store, records::Scan, testing::redis::Server, world::RealWorld};
use onceflow_stream::{EdgeMode, Pipeline, StreamOptions, StreamResult, plan::PlanOptions};

/// A lease that no busy machine outlives by accident.
fn patient(edges: EdgeMode) -> StreamOptions {
    StreamOptions { lease_ms: 10_000, bundle_records: 20, ..options(edges) }
}

/// Runs a pipeline to its end; only its plan and its result remain.
async fn run(store: &Store, name: &str, pipeline: &Pipeline) -> StreamResult {
    let records = store.records();
    let result = pipeline.run(records.clone(), RealWorld::here()).await.unwrap();
    let group = Group::rows(format!("stream/{name}"));
    assert_eq!(records.scan(Shard(0), Scan::of(group, 100)).await.unwrap().rows.len(), 2);
    result
}

/// Results are the same {lifted, not} × {fused, not} × {local, forced retry}, with copies of clients and without.
async fn check_store(url: &str) {
    let store = Store::open_url(url).await.unwrap();
    for edges in [EdgeMode::Local, EdgeMode::Retry] {
        for (lift, fuse) in [(true, true), (true, false), (false, true), (false, false)] {
            let (sink, name) = (MemorySink::default(), format!("sums-{edges:?}-{lift}-{fuse}"));
            let pipeline = plans::sums(&name, &sink).options(patient(edges)).planning(PlanOptions { lift, fuse });
            let result = run(&store, &name, &pipeline).await;
            assert_eq!(sink.lines(), plans::expected_sums(), "{name} on {url}");
            assert_eq!(result.stages[0].counts.records_in, plans::RECORDS);
            assert_eq!(run(&store, &name, &pipeline).await, result, "a pipeline that has ended gives its result again");
        }
        let (sink, name, sent) = (MemorySink::default(), format!("once-{edges:?}"), client_ids::deliveries(5));
        let pipeline = client_ids::sent_by_two(&name, &sent, &sink, patient(edges));
        let counts = client_ids::counts_of_once(&run(&store, &name, &pipeline).await);
        assert_eq!(sink.lines(), client_ids::expected_sums(), "{name} on {url}");
        let copies = sent.len() as u64 - client_ids::DISTINCT;
        assert_eq!(counts.client_duplicates + counts.client_remnants, copies, "{name} on {url}: {counts:?}");
    }
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_the_same_on_a_journal() {
    let directory = tempfile::tempdir().unwrap();
    check_store(&format!("journal:{}", directory.path().join("store").display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_the_same_on_pages() {
    let directory = tempfile::tempdir().unwrap();
    check_store(&format!("paged:{}", directory.path().join("store").display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_the_same_on_a_redis_server() {
    let server = Server::start();
    check_store(&server.url()).await;
}
