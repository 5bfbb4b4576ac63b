//! Several worker processes share the partitions of a pipeline on one journal. When one is killed with `kill -9`, the
//! others take over its partitions, whether it was a guest of the store or the process that owns it.

use onceflow_store::{Store, World, world::RealWorld};
use onceflow_stream::{
    EventTime, FileLines, FileSink, NextRecord, Pipeline, SplitReader, StreamOptions, StreamSource,
    combine::{Count, Sum},
    window::Windowing,
};
use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

const DIRECTORY: &str = "ONCEFLOW_TEST_STREAM_WORKERS_DIRECTORY";
const PARTITIONS: u16 = 4;
const WORKERS: usize = 3;

/// The parent gives up when the workers say nothing for so long.
const SILENCE: Duration = Duration::from_secs(120);

/// The lines that the parent appends to a file, until one says that it is the last.
struct UntilEnd(FileLines);

struct ReadingUntilEnd(Box<dyn SplitReader<String>>);

impl StreamSource for UntilEnd {
    type Item = String;

    fn splits(&self) -> u16 {
        self.0.splits()
    }

    fn open(&self, split: u16, position: Option<&[u8]>) -> io::Result<Box<dyn SplitReader<String>>> {
        Ok(Box::new(ReadingUntilEnd(self.0.open(split, position)?)))
    }
}

impl SplitReader<String> for ReadingUntilEnd {
    fn next(&mut self) -> io::Result<NextRecord<String>> {
        Ok(match self.0.next()? {
            NextRecord::Record(line, _) if line == "end" => NextRecord::Ended,
            next => next,
        })
    }

    fn position(&self) -> Vec<u8> {
        self.0.position()
    }

    fn watermark(&self) -> EventTime {
        self.0.watermark()
    }
}

/// Visits per page and second, and from them visits per second. Every stage tells its process when it works.
fn visits(directory: &Path) -> Pipeline {
    let pipeline = Pipeline::new("visits").options(StreamOptions {
        partitions: PARTITIONS,
        bundle_records: 100,
        lease_ms: 1500,
        ..StreamOptions::default()
    });
    let time = |line: &str| EventTime(line.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0));
    let source = UntilEnd(FileLines::new(vec![directory.join("log")], time).follow(true));
    let counts = pipeline
        .source("log", source)
        .key_by("page", |line| line.split(' ').nth(1).unwrap_or_default().to_owned())
        .combine("count", Windowing::tumbling(1000), Count::new());
    let seconds = counts
        .key_value("second", |count| {
            println!("\nworks");
            (count.window.start.0, count.value)
        })
        .combine("sum", Windowing::tumbling(1000), Sum::new());
    seconds.sink("file", FileSink::new(directory.join("visits")), |sum, bytes| {
        println!("\nwrote {}", sum.key);
        bytes.extend(format!("{} {}\n", sum.key, sum.value).bytes());
    });
    pipeline
}

/// Time and page of a line.
fn visit(n: u64) -> (u64, u64) {
    (n * 20, (n * n + n / 7) % 23)
}

fn expected(lines: u64) -> Vec<String> {
    let mut visits: BTreeMap<u64, u64> = BTreeMap::new();
    (0..lines).for_each(|n| *visits.entry(visit(n).0 / 1000 * 1000).or_default() += 1);
    let mut lines: Vec<_> = visits.iter().map(|(second, visits)| format!("{second} {visits}")).collect();
    lines.sort();
    lines
}

fn written(directory: &Path) -> Vec<String> {
    let read = |part: u16| std::fs::read_to_string(directory.join(format!("visits.{part}"))).unwrap_or_default();
    let mut lines: Vec<String> =
        (0..PARTITIONS).flat_map(|part| read(part).lines().map(String::from).collect::<Vec<_>>()).collect();
    lines.sort();
    lines
}

/// Runs as a process of its own, started by the tests below; without them it has nothing to do.
#[test]
fn worker() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(directory.join("store")).await.unwrap();
        println!("\nopened");
        visits(&directory).run(store.records(), RealWorld::here()).await.unwrap();
        store.close().await.unwrap();
    });
}

/// Starts a worker whose lines come through a channel, with its number.
fn start(directory: &Path, number: usize, told: Sender<(usize, String)>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes::worker", "--nocapture"]).env(DIRECTORY, directory).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let forward = async move {
        for line in lines.map_while(Result::ok) {
            if told.send((number, line)).is_err() {
                return;
            }
        }
    };
    RealWorld::here().dedicate("worker-lines", Box::pin(forward));
    child
}

/// Appends the lines of some more seconds.
fn append(log: &mut File, lines: &mut u64) {
    let more: String = (*lines..*lines + 100).map(visit).map(|(time, page)| format!("{time} /{page}\n")).collect();
    log.write_all(more.as_bytes()).unwrap();
    *lines += 100;
}

/// Returns the next word of a worker.
fn hear(heard: &Receiver<(usize, String)>) -> (usize, String) {
    heard.recv_timeout(SILENCE).expect("the workers say something")
}

/// Feeds lines until every one of these workers has worked since. Further lines come only after the results of the
/// earlier ones, so that the workers do not fall behind.
fn feed(log: &mut File, lines: &mut u64, heard: &Receiver<(usize, String)>, workers: &[usize]) {
    let mut waiting = workers.to_vec();
    while !waiting.is_empty() {
        append(log, lines);
        let last_whole_second = visit(*lines - 1).0 / 1000 * 1000 - 1000;
        loop {
            let (number, line) = hear(heard);
            let wrote = line.strip_prefix("wrote ").map(|second| second.parse::<u64>().unwrap());
            if wrote.is_some() || line == "works" {
                waiting.retain(|worker| *worker != number);
            }
            if wrote == Some(last_whole_second) {
                break;
            }
        }
    }
}

/// Kills one of three workers while all of them work; the first to open the store owns it.
fn kill_one(victim: usize) {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let mut log = OpenOptions::new().create(true).append(true).open(directory.join("log")).unwrap();
    let (told, heard) = channel();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        workers.push(start(directory, number, told.clone()));
        while hear(&heard) != (number, "opened".to_owned()) {}
    }
    let mut lines = 0;
    feed(&mut log, &mut lines, &heard, &[0, 1, 2]);
    let mut killed = workers.remove(victim);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let rest: Vec<usize> = (0..WORKERS).filter(|number| *number != victim).collect();
    feed(&mut log, &mut lines, &heard, &rest);
    append(&mut log, &mut lines);
    log.write_all(b"end\n").unwrap();
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    assert_eq!(written(directory), expected(lines));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn partitions_of_a_killed_guest_move_to_the_other_processes() {
    kill_one(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn partitions_of_the_killed_owner_of_the_store_move_to_the_other_processes() {
    kill_one(0);
}
