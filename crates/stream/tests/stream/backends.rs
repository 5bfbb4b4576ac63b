//! The same pipelines on every kind of store: journal, pages, a Redis server.

use crate::{
    bed::{MemorySink, options},
    client_ids, life, plans,
    upgrade::{HALF, LAST, Numbers},
};
use onceflow_core::{Group, Shard};
use onceflow_store::{Store, records::Scan, testing::redis::Server, world::RealWorld};
use onceflow_stream::{
    EdgeMode, Pipeline, StreamOptions, StreamPhase, StreamResult, StreamStatus, begin_from_savepoint, drain,
    make_savepoint, pause, plan::PlanOptions, remove_savepoint, resume, status,
};

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
    paused_resumed_and_drained(&store, url).await;
    store.close().await.unwrap();
}

/// Workers notice what is asked of a pipeline though their heartbeats are minutes apart: the store wakes them.
#[expect(clippy::disallowed_methods, reason = "a worker at work while another process asks something of it")]
async fn paused_resumed_and_drained(store: &Store, url: &str) {
    let (records, sink, numbers) = (store.records(), MemorySink::default(), Numbers::new(LAST));
    let options = StreamOptions { lease_ms: 600_000, ..options(EdgeMode::Local) };
    let pipeline = || life::sums("life", &numbers, options, &sink);
    let until = async |is_so: &dyn Fn(&StreamStatus) -> bool| loop {
        match status(&*records, "life", None).await.unwrap() {
            Some(status) if is_so(&status) => return,
            _ => tokio::task::yield_now().await,
        }
    };
    numbers.give(HALF);
    let first = pipeline();
    let (control, worker) = (first.control(), tokio::spawn(first.run(records.clone(), RealWorld::here())));
    until(&|status| status.stages[0].counts.records_in == HALF).await;
    assert!(pause(&*records, "life").await.unwrap());
    until(&|status| status.phase == StreamPhase::Paused).await;
    let before = sink.lines();
    make_savepoint(&*records, &*RealWorld::here(), "life", "half").await.unwrap();
    numbers.give(HALF + 100);
    control.ring();
    assert!(resume(&*records, "life").await.unwrap());
    until(&|status| status.stages[0].counts.records_in == HALF + 100).await;
    drain(&*records, "life").await.unwrap();
    assert!(!worker.await.unwrap().unwrap().has_ended, "{url}");
    numbers.give(LAST);
    // Not in the millisecond in which the others were asked to drain.
    let asked = records.now().await.unwrap();
    while records.now().await.unwrap() <= asked {
        tokio::task::yield_now().await;
    }
    assert!(pipeline().run(records.clone(), RealWorld::here()).await.unwrap().has_ended);
    assert_eq!(sink.lines(), life::expected(), "{url}");
    begin_from_savepoint(&*records, &*RealWorld::here(), "half", "second").await.unwrap();
    let second = MemorySink::default();
    let result =
        life::sums("second", &numbers, options, &second).run(records.clone(), RealWorld::here()).await.unwrap();
    assert_eq!(result.stages[0].counts.records_in, LAST - HALF, "{url}");
    let mut both = [before, second.lines()].concat();
    both.sort();
    assert_eq!(both, life::expected(), "{url}");
    assert!(remove_savepoint(&*records, "half").await.unwrap());
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
