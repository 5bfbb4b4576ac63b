//! Files with dates in their names: each exact through every crash, and sealed when its time is over.

use crate::bed::{Bed, line, options};
use onceflow_store::testing::fault::{self, Fault, FaultPlan, Faulty};
use onceflow_stream::{
    DatedFileSink, DatedName, EdgeMode, EventTime, Generator, Pipeline, StreamError, StreamOptions, sink_bytes,
};
use std::{collections::BTreeMap, os::unix::fs::PermissionsExt, path::Path};

const HOUR: i64 = 3_600_000;
/// 2026-01-31T20:00:00Z, so that the records pass the end of a day and of a month.
const START: i64 = 1_769_889_600_000;
const RECORDS: u64 = 200;

/// Mixed by up to two hours.
fn time(n: u64) -> EventTime {
    let n = i64::try_from(n).unwrap();
    EventTime(START + n * HOUR / 4 - (n * 37 % 9) * HOUR / 4)
}

fn dated(directory: &Path, records: u64, lateness_ms: i64) -> Pipeline {
    let pipeline =
        Pipeline::new("p").options(StreamOptions { partitions: 1, bundle_records: 20, ..options(EdgeMode::Local) });
    let name = DatedName::parse("days/%Y/n-%m%d").unwrap().unwrap();
    let numbers = pipeline.source("numbers", Generator::new(records, |n| (n, time(n))).out_of_order_ms(lateness_ms));
    numbers.sink("files", DatedFileSink::new(directory, name), |n, bytes| line(&n.to_string(), bytes));
    pipeline
}

fn expected(records: u64) -> BTreeMap<String, Vec<u64>> {
    let mut days: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for n in 0..records {
        let day = (time(n).0 - (START - 20 * HOUR)).div_euclid(24 * HOUR);
        let name = if day == 0 { String::from("n-0131") } else { format!("n-02{day:02}") };
        days.entry(name).or_default().push(n);
    }
    days
}

fn found(directory: &Path) -> BTreeMap<String, Vec<u64>> {
    let Ok(entries) = std::fs::read_dir(directory.join("days/2026")) else { return BTreeMap::new() };
    entries
        .map(|entry| {
            let entry = entry.unwrap();
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let mut numbers: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
            numbers.sort_unstable();
            (entry.file_name().into_string().unwrap(), numbers)
        })
        .collect()
}

fn is_sealed(directory: &Path, name: &str) -> bool {
    std::fs::metadata(directory.join("days/2026").join(name)).unwrap().permissions().mode() & 0o222 == 0
}

async fn all_known(bed: &Bed, directory: &Path) -> usize {
    let bytes = sink_bytes(&*bed.store, "p").await.unwrap();
    let parts = bytes.iter().filter(|bytes| !bytes.total.part.is_empty());
    let known = parts.map(|bytes| {
        let path = directory.join(&bytes.total.part);
        assert!(!path.exists() || bytes.wrote(&path).unwrap(), "{path:?} holds what the pipeline wrote");
    });
    known.count()
}

async fn with_fault(plan: FaultPlan) {
    let (bed, directory) = (Bed::new(), tempfile::tempdir().unwrap());
    let pipeline = || dated(directory.path(), RECORDS, 2 * HOUR);
    let faulty = Faulty::new(bed.store.clone(), plan.clone());
    match bed.run_on(&pipeline(), faulty, || plan.stopped()).await {
        Some(Ok(_)) => {}
        None | Some(Err(StreamError::Store(_))) => {
            all_known(&bed, directory.path()).await;
            bed.run(&pipeline()).await.unwrap();
        }
        Some(Err(error)) => panic!("{error}"),
    }
    assert_eq!(found(directory.path()), expected(RECORDS));
    for name in expected(RECORDS).keys() {
        assert!(is_sealed(directory.path(), name), "{name} is sealed at the end");
    }
    assert_eq!(all_known(&bed, directory.path()).await, 3);
}

#[tokio::test(flavor = "current_thread")]
async fn files_of_days_are_exact_and_sealed_whichever_call_fails() {
    for fault in Fault::ALL {
        let calls = fault::for_every_n(fault, async |plan| with_fault(plan).await).await;
        assert!(calls > 30, "{calls} calls");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_day_is_sealed_when_the_watermark_passes_it_and_grows_again_only_for_late_records() {
    let (bed, directory) = (Bed::new(), tempfile::tempdir().unwrap());
    // Nothing may be late, but records are: they come after their day was sealed.
    let pipeline = dated(directory.path(), RECORDS, 0);
    let first_is_sealed =
        || directory.path().join("days/2026/n-0131").exists() && is_sealed(directory.path(), "n-0131");
    assert!(bed.run_on(&pipeline, bed.store.clone(), first_is_sealed).await.is_none());
    assert!(found(directory.path())["n-0131"].len() <= expected(RECORDS)["n-0131"].len());
    bed.run(&dated(directory.path(), RECORDS, 0)).await.unwrap();
    assert_eq!(found(directory.path()), expected(RECORDS));
    assert!(is_sealed(directory.path(), "n-0131"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_file_that_the_pipeline_did_not_write_is_refused_when_its_day_comes() {
    let (bed, directory) = (Bed::new(), tempfile::tempdir().unwrap());
    let other = directory.path().join("days/2026/n-0202");
    std::fs::create_dir_all(other.parent().unwrap()).unwrap();
    std::fs::write(&other, "a user's file\n").unwrap();
    let refused = bed.run(&dated(directory.path(), RECORDS, 2 * HOUR)).await.unwrap_err().to_string();
    assert!(refused.contains("n-0202 holds 14 bytes that this stream did not write"), "{refused}");
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "a user's file\n");
    std::fs::remove_file(&other).unwrap();
    bed.run(&dated(directory.path(), RECORDS, 2 * HOUR)).await.unwrap();
    assert_eq!(found(directory.path()), expected(RECORDS), "it goes on when the file was moved away");
}

#[tokio::test(flavor = "current_thread")]
async fn a_sealed_file_may_be_taken_away_and_one_that_is_written_may_not() {
    let (bed, directory) = (Bed::new(), tempfile::tempdir().unwrap());
    let path = |name: &str| directory.path().join("days/2026").join(name);
    let has_second = || std::fs::metadata(path("n-0202")).is_ok_and(|file| file.len() > 150);
    assert!(bed.run_on(&dated(directory.path(), RECORDS, 2 * HOUR), bed.store.clone(), has_second).await.is_none());
    assert!(is_sealed(directory.path(), "n-0131"));
    std::fs::remove_file(path("n-0131")).unwrap();
    std::fs::remove_file(path("n-0202")).unwrap();
    let refused = bed.run(&dated(directory.path(), RECORDS, 2 * HOUR)).await.unwrap_err().to_string();
    assert!(refused.contains("n-0202 is gone") || refused.contains("n-0202 holds"), "{refused}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_file_that_is_taken_away_between_its_seal_and_the_commit_that_notes_it_is_not_missed() {
    for lateness_ms in [2 * HOUR, 0] {
        let (bed, directory) = (Bed::new(), tempfile::tempdir().unwrap());
        let first = directory.path().join("days/2026/n-0131");
        let is_taken = || first.exists() && is_sealed(directory.path(), "n-0131");
        let pipeline = || dated(directory.path(), RECORDS, lateness_ms);
        assert!(bed.run_on(&pipeline(), bed.store.clone(), is_taken).await.is_none());
        let mut all = found(directory.path())["n-0131"].clone();
        std::fs::remove_file(&first).unwrap();
        bed.run(&pipeline()).await.unwrap();
        let mut days = found(directory.path());
        all.extend(days.remove("n-0131").unwrap_or_default());
        all.sort_unstable();
        days.insert(String::from("n-0131"), all);
        assert_eq!(days, expected(RECORDS), "late records begin the file anew");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn more_files_than_a_bundle_takes_are_written_all_the_same() {
    let (bed, directory) = (Bed::new(), tempfile::tempdir().unwrap());
    let pipeline = Pipeline::new("p").options(StreamOptions { partitions: 1, ..StreamOptions::default() });
    let name = DatedName::parse("%F-%H%M%S").unwrap().unwrap();
    let source = Generator::new(300, |n| (n, EventTime(START + 1000 * i64::try_from(n % 150).unwrap())));
    let numbers = pipeline.source("numbers", source.out_of_order_ms(HOUR));
    numbers.sink("files", DatedFileSink::new(directory.path(), name), |n, bytes| line(&n.to_string(), bytes));
    bed.run(&pipeline).await.unwrap();
    let files: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 150);
    assert!(files.iter().all(|file| std::fs::read_to_string(file).unwrap().lines().count() == 2));
}
