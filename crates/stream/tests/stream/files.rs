//! Files as sinks: exact through every crash, and no byte of another file is lost.

use crate::{
    bed::{Bed, line, options},
    plans::{RECORDS, expected_sums, record},
};
use onceflow_store::testing::fault::{self, Fault, FaultPlan, Faulty};
use onceflow_stream::{
    EdgeMode, FileSink, Generator, Pipeline, StreamError, StreamOptions, combine::Sum, sink_bytes, window::Windowing,
};
use std::path::Path;

fn settings() -> StreamOptions {
    StreamOptions { bundle_records: 50, ..options(EdgeMode::Local) }
}

/// The sums of `plans`, all in one file.
fn sums(path: &Path, records: u64) -> Pipeline {
    let pipeline = Pipeline::new("p").options(settings());
    let source = Generator::new(records, record).splits(2).out_of_order_ms(20);
    let sums = (pipeline.source("numbers", source))
        .filter("odd keys", |(key, _)| key % 2 == 1)
        .key_value("by key", |(key, n)| (key, 2 * n))
        .combine("sum", Windowing::tumbling(30), Sum::new())
        .gather("all");
    sums.sink("file", FileSink::new(path), |sum, bytes| {
        line(&format!("{} {} {} {:?}", sum.window.start.0, sum.key, sum.value, sum.timing), bytes);
    });
    pipeline
}

fn lines(path: &Path) -> Vec<String> {
    let mut lines: Vec<_> = std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

async fn with_fault(plan: FaultPlan) {
    let (bed, directory) = (Bed::new(), tempfile::tempdir().unwrap());
    let path = directory.path().join("sums");
    let faulty = Faulty::new(bed.store.clone(), plan.clone());
    let wrote = async || sink_bytes(&*bed.store, "p").await.unwrap().iter().all(|bytes| bytes.wrote(&path).unwrap());
    match bed.run_on(&sums(&path, RECORDS), faulty, || plan.stopped()).await {
        Some(Ok(_)) => {}
        None | Some(Err(StreamError::Store(_))) => {
            assert!(!path.exists() || wrote().await, "whatever is in the file was written by the pipeline");
            bed.run(&sums(&path, RECORDS)).await.unwrap();
        }
        Some(Err(error)) => panic!("{error}"),
    }
    assert_eq!(lines(&path), expected_sums());
    assert!(wrote().await, "the file is known to be the pipeline's");
    std::fs::write(&path, "mine").unwrap();
    assert!(!wrote().await, "another one is not");
}

#[tokio::test(flavor = "current_thread")]
async fn a_file_is_exact_and_known_again_whichever_call_fails() {
    for fault in Fault::ALL {
        let calls = fault::for_every_n(fault, async |plan| with_fault(plan).await).await;
        assert!(calls > 50, "{calls} calls");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_file_that_the_pipeline_did_not_write_is_refused_and_keeps_every_byte() {
    let (bed, directory) = (Bed::new(), tempfile::tempdir().unwrap());
    let path = directory.path().join("sums");
    std::fs::write(&path, "a user's file\n").unwrap();
    let refused = bed.run(&sums(&path, RECORDS)).await.unwrap_err().to_string();
    assert!(refused.contains("file: ") && refused.contains("14 bytes that this stream did not write"), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a user's file\n");
    std::fs::remove_file(&path).unwrap();
    bed.run(&sums(&path, RECORDS)).await.unwrap();
    assert_eq!(lines(&path), expected_sums(), "it goes on when the file was moved away");
}

#[tokio::test(flavor = "current_thread")]
async fn a_file_that_was_changed_or_cut_while_the_pipeline_rested_is_refused() {
    for change in ["", "0 1 cut", "a much longer text than everything that was written by this pipeline so far"] {
        let (bed, directory) = (Bed::new(), tempfile::tempdir().unwrap());
        let path = directory.path().join("sums");
        // The worker is stopped once results are in the file and some of them are noted as written.
        let has_results = || std::fs::metadata(&path).is_ok_and(|file| file.len() > 300);
        assert!(bed.run_on(&sums(&path, RECORDS), bed.store.clone(), has_results).await.is_none());
        let change = if change.len() > 20 { change.repeat(50) } else { change.to_owned() };
        std::fs::write(&path, &change).unwrap();
        let refused = bed.run(&sums(&path, RECORDS)).await.unwrap_err().to_string();
        assert!(refused.contains("is left as it is"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), change);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn state_and_results_of_a_bundle_that_exceed_a_batch_are_cut_by_their_bytes() {
    let (bed, directory) = (Bed::new(), tempfile::tempdir().unwrap());
    let path = directory.path().join("long");
    let pipeline = Pipeline::new("p").options(StreamOptions { partitions: 1, bundle_records: 10_000, ..settings() });
    let long = |n: u64| (n, format!("{n:08}").repeat(500));
    let longest = (pipeline.source("numbers", Generator::new(3000, move |n| (n, onceflow_stream::EventTime(0)))))
        .key_value("by number", long)
        .combine("longest", Windowing::tumbling(1000), onceflow_stream::combine::Max::new())
        .gather("all");
    longest.sink("file", FileSink::new(&path), |longest, bytes| {
        line(&format!("{} {:?}", longest.key, longest.value), bytes);
    });
    bed.run(&pipeline).await.unwrap();
    let found = lines(&path);
    assert_eq!(found.len(), 3000);
    assert!(found.iter().all(|line| line.len() > 4000));
}

#[tokio::test(flavor = "current_thread")]
async fn a_killed_worker_is_known_from_its_lock_and_its_partitions_are_taken_at_once() {
    let (bed, directory) = (Bed::new(), tempfile::tempdir().unwrap());
    let (path, locks) = (directory.path().join("sums"), directory.path().join("locks"));
    let options = StreamOptions { lease_ms: 1_000_000, ..settings() };
    let pipeline = || sums(&path, RECORDS).options(options).locks(&locks);
    let has_results = || std::fs::metadata(&path).is_ok_and(|file| file.len() > 20);
    // The worker is dropped, and with it its lock, as by a kill.
    assert!(bed.run_on(&pipeline(), bed.store.clone(), has_results).await.is_none());
    let seen =
        async |locks: Option<&Path>| onceflow_stream::status(&*bed.store, "p", locks).await.unwrap().unwrap().workers;
    assert_eq!(seen(Some(&locks)).await, 0);
    assert_eq!(seen(None).await, 1, "without the lock only the lease tells");
    // The bed gives up long before the lease of the first worker ends.
    bed.run(&pipeline()).await.unwrap();
    assert_eq!(lines(&path), expected_sums());
}
