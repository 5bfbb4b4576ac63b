//! Real processes on a real journal, killed with `kill -9` while they work; and the file they write.

use onceflow_store::{Store, world::RealWorld};
use onceflow_stream::{
    EventTime, FileLines, FileSink, Pipeline, StreamOptions,
    combine::{Count, TopN},
    window::Windowing,
};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const DIRECTORY: &str = "ONCEFLOW_TEST_STREAM_DIRECTORY";
const LINES: u64 = 6000;

fn log(directory: &Path) -> PathBuf {
    directory.join("access.log")
}

/// Time and page of a line of the log.
fn page_of(n: u64) -> (u64, u64) {
    (n * 10 + (n * 37) % 50, (n * n + n / 7) % 23)
}

/// Top pages per second of a web log: the three most visited, with their counts.
fn top_pages(directory: &Path) -> Pipeline {
    let pipeline = Pipeline::new("top-pages").options(StreamOptions {
        partitions: 2,
        bundle_records: 100,
        ..StreamOptions::default()
    });
    let time = |line: &str| EventTime(line.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0));
    let lines = pipeline.source("log", FileLines::new(vec![log(directory)], time).out_of_order_ms(100));
    let counts = lines.key_by("page", |line| line.split(' ').nth(1).unwrap_or_default().to_owned()).combine(
        "count",
        Windowing::tumbling(1000),
        Count::new(),
    );
    let top = counts.key_value("second", |count| (count.window.start.0, (count.value, count.key))).combine(
        "top",
        Windowing::tumbling(1000),
        TopN::new(3),
    );
    top.sink("file", FileSink::new(directory.join("top")), |top, bytes| {
        println!("progress {}", top.key);
        bytes.extend(format!("{} {:?}\n", top.key, top.value).bytes());
    });
    pipeline
}

fn expected() -> Vec<String> {
    let mut counts: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    for (time, page) in (0..LINES).map(page_of) {
        *counts.entry(time / 1000).or_default().entry(page).or_default() += 1;
    }
    let mut lines = Vec::new();
    for (second, counts) in counts {
        let mut top: Vec<_> = counts.into_iter().map(|(page, count)| (count, format!("/{page}"))).collect();
        top.sort_by(|a, b| b.cmp(a));
        top.truncate(3);
        lines.push(format!("{} {top:?}", second * 1000));
    }
    lines.sort();
    lines
}

fn written(directory: &Path) -> Vec<String> {
    let read = |part: u32| std::fs::read_to_string(directory.join(format!("top.{part}"))).unwrap_or_default();
    let mut lines: Vec<String> =
        (0..2).flat_map(|part| read(part).lines().map(String::from).collect::<Vec<_>>()).collect();
    lines.sort();
    lines
}

/// Runs as a process of its own, started by the tests below; without them it has nothing to do.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(directory.join("store")).await.unwrap();
        top_pages(&directory).run(store.records(), RealWorld::here()).await.unwrap();
        store.close().await.unwrap();
    });
    println!("ended");
}

fn start(directory: &Path) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "kill::child", "--nocapture"]).env(DIRECTORY, directory).stdout(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn top_pages_of_a_log_are_right_though_the_process_is_killed_while_it_works() {
    let directory = tempfile::tempdir().unwrap();
    let lines: String = (0..LINES).map(page_of).map(|(time, page)| format!("{time} /{page}\n")).collect();
    std::fs::write(log(directory.path()), lines).unwrap();
    let mut kills = 0;
    for after in 1.. {
        let mut child = start(directory.path());
        let mut told = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let progress = told.by_ref().filter(|line| line.contains("progress")).take(3 * after).count();
        if progress < 3 * after {
            assert!(child.wait().unwrap().success());
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    assert!(kills >= 2, "killed {kills} times");
    assert_eq!(written(directory.path()), expected());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_share_the_partitions_of_a_pipeline() {
    let directory = tempfile::tempdir().unwrap();
    let lines: String = (0..LINES).map(page_of).map(|(time, page)| format!("{time} /{page}\n")).collect();
    std::fs::write(log(directory.path()), lines).unwrap();
    let store = Store::open(directory.path().join("store")).await.unwrap();
    let pipeline = top_pages(directory.path());
    let (one, two) = tokio::join!(
        pipeline.run(store.records(), RealWorld::here()),
        pipeline.run(store.records(), RealWorld::here()),
    );
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!(written(directory.path()), expected());
    store.close().await.unwrap();
}
